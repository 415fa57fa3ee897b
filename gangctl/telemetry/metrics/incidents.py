"""Counters and histograms of incidents: restarts, durations of phases, lost training.

The rule: the process that stores a value in a status for the first time counts it. No other process must count it
again, and a later correction changes no count.
"""

from functools import partial
from itertools import product
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram

from gangctl.api.gangjob import GangJob
from gangctl.api.incident import Incident, IncidentLevel, PhaseMilliseconds
from gangctl.core.record.incidents import node_faults
from gangctl.telemetry.metrics.exposition import MAX_NODES, LabelValues, cause_label

BUCKETS: Final = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800)
"""From a restart of processes (a second) to a pod that waits for a node (half an hour)."""
INCIDENT_PHASES: Final = tuple(PhaseMilliseconds.model_fields)
STARTS: Final = ("Fork", "Exec", "InProcess")
COMMAND: Final = "Command"
CHECK_RESULTS: Final = ("Passed", "Failed", "Undecided", "CheckFaulty")
TOTAL: Final = "total"
"""The whole incident, from the fault to the first training step; only if the framework reports steps."""


class IncidentMetrics:
    """The counts of one process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        counter = partial(Counter, registry=registry)
        self._incidents = counter("gangctl_incidents", "Incidents that began.", ["namespace"])
        self._restarts = counter(
            "gangctl_restarts",
            "Settled incidents by the reason of their cause, their recovery level, and their outcome.",
            ["namespace", "reason", "level", "outcome"],
        )
        self._corrected = counter(
            "gangctl_causes_corrected", "Incidents whose cause was corrected after they were counted.", ["namespace"]
        )
        self._phases = Histogram(
            "gangctl_incident_phase_seconds",
            "Duration of each phase of an incident; total: from the fault to the first training step after it.",
            ["phase", "level"],
            buckets=BUCKETS,
            registry=registry,
        )
        self._lost_steps = counter(
            "gangctl_lost_steps", "Training steps that had to be repeated.", ["namespace", "reason"]
        )
        self._lost_seconds = counter(
            "gangctl_lost_seconds", "Seconds of training that had to be repeated.", ["namespace", "reason"]
        )
        self._starts = counter(
            "gangctl_warm_starts",
            "Processes of restarts that could be forked or go on, by how they started.",
            ["namespace", "type"],
        )
        self._nodes = LabelValues(MAX_NODES)
        self._node_faults = counter(
            "gangctl_node_faults",
            "Faults seen on a node: of a device, or those for which a rule or the framework asked for a new pod.",
            ["node", "reason"],
        )
        self._checks = counter(
            "gangctl_checks",
            "Checks before attempts, by what they came to. check: the builtin's name, or Command.",
            ["namespace", "check", "result"],
        )
        for phase, level in product((*INCIDENT_PHASES, TOTAL), IncidentLevel):
            self._phases.labels(phase, level.value)

    def begin(self, namespace: str) -> None:
        """Start the series of a namespace at zero, since Prometheus sees no increase in a series that is new."""
        self._incidents.labels(namespace)
        self._corrected.labels(namespace)
        for kind in STARTS:
            self._starts.labels(namespace, kind)

    def count(self, namespace: str, before: GangJob, after: GangJob) -> None:
        """Count what is new in the second of two stored objects of a gang."""
        self._count_checks(namespace, before, after)
        if before.status.incidents is after.status.incidents:
            return
        known = {incident.attempt: incident for incident in before.status.incidents}
        newest = max(known, default=0)
        for incident in reversed(after.status.incidents):
            old = known.get(incident.attempt)
            if old is None and incident.attempt < newest:
                continue  # It is older than all known ones: it was counted before.
            if old != incident:
                self._count(namespace, old, incident)
        for node, incident in node_faults(before.status, after.status):
            self._node_faults.labels(self._nodes.label(node), cause_label(incident)).inc()

    def _count_checks(self, namespace: str, before: GangJob, after: GangJob) -> None:
        new, old = after.status.checks, before.status.checks
        if new is None or new is old:
            return
        known = () if old is None or old.attempt != new.attempt else old.results
        builtins = {one.name: str(one.builtin or COMMAND) for one in after.spec.recovery.checks}
        for result in CHECK_RESULTS if new.check in builtins else ():
            self._checks.labels(namespace, builtins[new.check], result)  # It starts at zero, as those of restarts.
        for one in new.results:
            if one not in known:
                self._checks.labels(namespace, builtins.get(one.name, COMMAND), one.result).inc()

    def _count(self, namespace: str, old: Incident | None, new: Incident) -> None:
        reason = cause_label(new)
        if old is None:
            self._incidents.labels(namespace).inc()
            # The series starts at zero when the incident begins, so that Prometheus sees the increase.
            self._restarts.labels(namespace, reason, new.level.value, "Restarted")
        if new.settled and (old is None or not old.settled):
            self._restarts.labels(namespace, reason, new.level.value, new.outcome).inc()
        if old is not None and old.settled and old.cause.reason != new.cause.reason:
            self._corrected.labels(namespace).inc()
        if new.lost_steps is not None and (old is None or old.lost_steps is None):
            self._lost_steps.labels(namespace, reason).inc(max(0, new.lost_steps))
        if new.lost_seconds is not None and (old is None or old.lost_seconds is None):
            self._lost_seconds.labels(namespace, reason).inc(max(0.0, new.lost_seconds))
        counted = _starts(old)
        for kind, count in _starts(new).items():
            self._starts.labels(namespace, kind).inc(max(0, count - counted[kind]))
        self._time(PhaseMilliseconds() if old is None else old.milliseconds, new)

    def _time(self, known: PhaseMilliseconds, incident: Incident) -> None:
        """Observe each phase once, when its duration is known."""
        times = incident.milliseconds
        for phase in INCIDENT_PHASES:
            took = getattr(times, phase)
            if took is not None and getattr(known, phase) is None:
                self._observe(phase, incident, took)
        if times.first_step is not None and known.first_step is None:
            self._observe(TOTAL, incident, sum(getattr(times, phase) or 0 for phase in INCIDENT_PHASES))

    def _observe(self, phase: str, incident: Incident, milliseconds: int) -> None:
        exemplar = {"trace_id": incident.trace_id} if incident.trace_id else None
        self._phases.labels(phase, incident.level.value).observe(max(0, milliseconds) / 1000, exemplar)


def _starts(incident: Incident | None) -> dict[str, int]:
    """The number of processes that were started in each way."""
    warm = None if incident is None else incident.warm_start
    counts = (0, 0, 0) if warm is None else (warm.forked, warm.executed, warm.went_on)
    return dict(zip(STARTS, counts, strict=True))
