"""The reference of Events, as Markdown, made from the table of their reasons.

``python -m gangctl.api.event_reference`` prints it.
"""

from __future__ import annotations

import sys
from typing import Final

from gangctl.api.events import EVENTS
from gangctl.api.gangjob_reference import meanings
from gangctl.api.names import ANNOTATION_TRACE_ID
from gangctl.api.reasons import Reason

_INTRODUCTION: Final = f"""\
<!-- Made by `python -m gangctl.api.event_reference` from gangctl/api/events.py and reasons.py. Change those. -->

# Events

What gangctl says of a gang while it happens: `kubectl describe gangjob NAME`, or

```
kubectl events --for gangjob/NAME
kubectl get events.events.k8s.io --field-selector regarding.kind=GangJob,type=Warning --all-namespaces
```

An Event is sent after the status that says the same was stored, never before, in the background and, within a
namespace, in order. It is news for people: machines read the conditions. If the API server can't take it now, it is
tried again for about ten seconds (a minute if no answer comes) and then lost, with a line in the controller's log. No
decision ever waits for one, nor does another namespace's. What a leader wrote just before it ended may never be told:
the next one continues from the status, and doesn't tell it twice.

- `regarding` is the GangJob. `related` is the pod it is about, if it is about one: that of the incarnation meant, which
  may be gone by now (then without its UID).
- `reason` and `type` are those of the table below. They are stable: alerts may be made of them.
- `action` is what the controller does about it.
- `note` is the sentence of the decision. Where it belongs to an incident it ends with ` (trace ID)`, and the annotation
  `{ANNOTATION_TRACE_ID}` has the ID alone: look it up in Jaeger, or with `gangctl trace NAME`.

**The same, said again, is one Event.** What has the same type, reason, note and pod is counted in the `series` of the
first Event (`count`, `lastObservedTime`; kubectl shows `x3 over 5m`) for as long as the API server keeps it: an hour
after it was last said, by default. That holds across a change of the leader. Incidents differ in their trace, so each
has Events of its own.

**A flood is paced.** A gang may send 25 Events of one reason at once, and one in five minutes after that. What is more
is left out: the next Event of this reason says how many, the incidents in the status have them, and so do the
controller's log and metrics. Repeats that are only counted are never left out, but told later.

On one machine (`gangctl run`) events are appended to `events.jsonl` in the gang's folder: no series, no pacing.

Notes are one line of at most 1024 bytes; control characters in them are written out, as in `\\x1b`.
"""


def page() -> str:
    """The text of ``docs/reference/events.md``."""
    said = meanings(Reason)
    parts = [_INTRODUCTION]
    for title, warned in (("Warning", True), ("Normal", False)):
        lines = [f"## Type {title}", "", "| reason | when | action | what to do |", "| --- | --- | --- | --- |"]
        for reason, told in EVENTS.items():
            if told.is_warning is warned:
                lines.append(f"| `{reason}` | {said[reason]} | `{told.action}` | {told.todo} |")
        parts.append("\n".join([*lines, ""]))
    return "\n".join(parts)


if __name__ == "__main__":
    sys.stdout.write(page())
