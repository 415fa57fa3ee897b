"""The reference of node signals, as Markdown, made from the table.

``python -m gangctl.cluster.kube.nodes.reference`` prints it.
"""

from __future__ import annotations

import sys
from typing import Final

from gangctl.cluster.kube.nodes.table import Row, default_rows

_INTRODUCTION: Final = """\
<!-- Made by `python -m gangctl.cluster.kube.nodes.reference` from signals.yaml beside it. Change that. -->

# Node signals

Health agents, cloud providers and autoscalers mark a node that is faulty or about to go with a condition, a taint or a
label. This table says what a gang with pods on the node does about it.

- **Leave**: all its pods on the node are replaced, and the new pods avoid it for `recovery.avoidNodeSeconds`. The other
  workers restart in place. The reason is `NodeUnhealthy`, and the budget is not charged.
- **Drain**: the same, but all ranks have `recovery.plannedStopGracePeriodSeconds` to save a last checkpoint. The reason
  is `NodeDrained`.
- **LeaveAtRestart**: its pods leave the node when the gang restarts for another reason. Until then the condition
  Degraded reports the node, with the reason `NodeSuspect`.
- **Note**: the condition Degraded reports the node.
- **Off**: nothing.

What counts:

- **Only news.** A sign that the node had before the pod was scheduled there, or before the attempt began, is only
  reported by the condition Degraded. A controller that has just started takes every taint and label for old, because
  they have no time.
- **Only signs, not their absence.** A cordon alone is not a sign either. If a pod of the gang is evicted from a
  cordoned node, the node is being drained: [all members on it move in one
  restart](../tasks/platforms.md#autoscalers-and-drains).
- If fewer devices are **allocatable** than the node has, it is unknown which pod has the missing device. This counts if
  pods of the gang have more devices there than are allocatable, but at least one is: with none, the device plugin is
  gone, and running pods may stay. If the pod's status has the [health of its devices](../concepts.md), that counts at
  once.
- A row with a `message` requires these words in the condition's message.

A rule can match `onReasons: [NodeUnhealthy]` or `[NodeDrained]`. The chart's value `nodeSignals` changes the table: a
row with the name of another replaces it, others are added.

```yaml
nodeSignals:
- {name: aks-xid, condition: {type: XIDErrors}, answer: LeaveAtRestart}
- {name: gpu-lamp, condition: {type: GpuLampRed, message: rack 7}, answer: Leave}
- {name: maintenance, label: {key: example.com/maintenance, values: [soon, now]}, answer: Drain}
```

"""


def page() -> str:
    """The whole page."""
    head = "| name | signal | answer | set by | means | source |\n| --- | --- | --- | --- | --- | --- |\n"
    return _INTRODUCTION + head + "".join(map(_line, default_rows()))


def _line(row: Row) -> str:
    return f"| {row.name} | {_signal(row)} | {row.answer} | {row.set_by} | {row.means} | {row.source} |\n"


def _signal(row: Row) -> str:
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
    sys.stdout.write(page())
