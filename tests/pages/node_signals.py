"""The reference of node signals, as Markdown, made from the table of default rows.

``python -m tests.pages.node_signals`` prints it.
"""

from __future__ import annotations

import sys
from typing import Final

from gangctl.kubernetes.signals import SignalRow, default_rows

_SOURCE: Final = "https://github.com/gangctl/gangctl/blob/main/gangctl/kubernetes/signals.yaml"
_INTRODUCTION: Final = """\
<!-- Made by `python -m tests.pages.node_signals` from gangctl/kubernetes/signals.yaml. Change that. -->

# Node signals

Health agents, cloud providers and autoscalers mark a node that is faulty or about to go. The table says what a gang
with pods on the node does about each sign.

- **Leave**: its pods on the node are replaced, and the new pods avoid it for `recovery.avoidNodeSeconds`. The reason is
  `NodeUnhealthy`, not charged.
- **Drain**: the same, but all ranks have `recovery.plannedStopGracePeriodSeconds` to save. The reason is `NodeDrained`.
- **LeaveAtRestart**: its pods leave the node when the gang restarts for another reason. Until then the condition
  Degraded reports the node (`NodeSuspect`).
- **Note**: the condition Degraded reports the node. **Off**: nothing.

Only news counts: of a sign from before the pod was scheduled or the attempt began, only Degraded reports. A
controller that has just started takes every taint and label for old.

- A cordon alone is not a sign. If a pod of the gang is evicted from a cordoned node, [all members on it
  move](../tasks/platforms.md#autoscalers-and-drains).
- Missing **allocatable** devices count if the gang's pods have more devices there than are allocatable, but some are:
  with none, the device plugin is gone, and running pods may stay. Device health in a pod's status counts at once.
- A row with a `message` requires these words in the condition's message.

In the chart's value `nodeSignals`, a row with the name of another replaces it; others are added.

```yaml
nodeSignals:
- {name: aks-xid, condition: {type: XIDErrors}, answer: LeaveAtRestart}
- {name: gpu-lamp, condition: {type: GpuLampRed, message: rack 7}, answer: Leave}
- {name: maintenance, label: {key: example.com/maintenance, values: [soon, now]}, answer: Drain}
```

"""


def signals_page() -> str:
    """The text of ``docs/reference/node-signals.md``."""
    head = f"[signals.yaml]({_SOURCE}) has the source of each row.\n\n"
    head += "| name | signal | answer | means | set by |\n| --- | --- | --- | --- | --- |\n"
    return _INTRODUCTION + head + "".join(map(_line, default_rows()))


def _line(row: SignalRow) -> str:
    return f"| {row.name} | {_signal(row)} | {row.answer} | {row.means} | {row.set_by} |\n"


def _signal(row: SignalRow) -> str:
    if row.condition is not None:
        words = f" with the message `{row.condition.message}`" if row.condition.message else ""
        return f"condition `{row.condition.type}={row.condition.status}`{words}"
    if row.taint is not None:
        return f"taint `{row.taint.key}{f':{row.taint.effect}' if row.taint.effect else ''}`"
    if row.allocatable is not None:
        return f"allocatable {', '.join(f'`{one}`' for one in row.allocatable.resources) or 'devices'} below capacity"
    assert row.label is not None
    values = row.label.values or row.label.not_values
    return f"label `{row.label.key}` {'' if row.label.values else 'not '}{', '.join(f'`{one}`' for one in values)}"


if __name__ == "__main__":
    sys.stdout.write(signals_page())
