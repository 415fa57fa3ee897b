"""How the processes of the new attempt were started: forked from a template, executed, or not at all: they went on.

The rule: it is told once, when every worker has started, from the reports of that attempt. A process that was executed
is no fault and changes nothing: the incident only says why the restart took the time of an import.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gangctl.api.incident import Incident, WarmStart
from gangctl.core.facts.world import Heard
from gangsidecar import wire

_MOST_PROCESSES: Final = 64
"""In one pod (roles[].processesPerPod)."""
_MOST_BYTES: Final = 1 << 50


def warm_start(incident: Incident, runs: Mapping[str, Heard]) -> WarmStart | None:
    """What the members say of the incident's attempt; None if none says anything. ``runs``: holder -> its report."""
    told = {
        name: warm
        for name, heard in runs.items()
        if (warm := heard.report.warm_start) is not None and warm.attempt == incident.attempt
    }
    if not told:
        return None
    executed = next((name for name, warm in told.items() if warm.executed > 0), "")
    return WarmStart(
        forked=sum(_processes(warm.forked) for warm in told.values()),
        executed=sum(_processes(warm.executed) for warm in told.values()),
        member=executed,
        obstacle=told[executed].obstacle if executed else "",
        template_bytes=max(_bytes(warm) for warm in told.values()),
        went_on=sum(_processes(warm.went_on) for warm in told.values()),
    )


def _processes(count: int) -> int:
    return max(0, min(count, _MOST_PROCESSES))


def _bytes(warm: wire.WarmStart) -> int:
    return max(0, min(warm.template_bytes, _MOST_BYTES))
