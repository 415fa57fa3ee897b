"""The reference of Events, as Markdown, made from the table of their reasons.

``python -m tests.pages.events`` prints it.
"""

from __future__ import annotations

import sys
from typing import Final

from gangctl.api.events import EVENTS
from gangctl.api.model import meanings
from gangctl.api.names import ANNOTATION_TRACE_ID
from gangctl.api.reasons import Reason

_INTRODUCTION: Final = f"""\
<!-- Made by `python -m tests.pages.events` from gangctl/api/events.py and reasons.py. Change those. -->

# Events

To see the Kubernetes Events of a gang, run `kubectl describe gangjob NAME`, or:

```
kubectl events --for gangjob/NAME
kubectl get events.events.k8s.io --field-selector regarding.kind=GangJob,type=Warning --all-namespaces
```

An Event follows the status with the same message; only `{Reason.UNREADABLE}` and `{Reason.ACTION_FAILS}` are in no
status. Events are for people; programs read conditions. If the API server does not take an Event for ten seconds (a
minute if it does not answer), the controller drops and logs it.

- `regarding` is the GangJob, or the pod for `{Reason.DEVICE_GUARD_EVICTED}` and `{Reason.DEVICE_GUARD_REFUSED}`.
  `related` is the pod that the Event is about, if any.
- `reason` and `type` are stable, so you can alert on them. `action` is what the controller does.
- `note` is the message: one line of at most 1024 bytes. For an incident it ends with ` (trace ID)`, and the
  annotation `{ANNOTATION_TRACE_ID}` has the ID.

**Repeats are counted.** Events with the same type, reason, note and pod are one Event with a `series` while the API
server keeps it, by default an hour. Each incident has its own Events.

**Bursts are limited.** A gang may emit 25 Events with the same reason at once, then one every five minutes. The next
Event says how many were dropped.

With `gangctl run`, Events are appended to `events.jsonl` in the gang's folder, without series and limits.
"""


def events_page() -> str:
    """The text of ``docs/reference/events.md``."""
    said = meanings(Reason)
    parts = [_INTRODUCTION]
    for title, warned in (("Warning", True), ("Normal", False)):
        lines = [f"## Type {title}", "", "| reason | meaning | action | what to do |", "| --- | --- | --- | --- |"]
        for reason, told in EVENTS.items():
            if told.is_warning is warned:
                todo = told.todo.removeprefix("Nothing.").strip()
                lines.append(f"| `{reason}` | {said[reason]} | `{told.action}` | {todo} |")
        parts.append("\n".join([*lines, ""]))
    return "\n".join(parts)


if __name__ == "__main__":
    sys.stdout.write(events_page())
