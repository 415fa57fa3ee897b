"""What supervisors said last: for each pod the newest report, whichever connection and order it came by.

Of one session a report that isn't newer than the last is ignored. What was heard of a pod outlives its connection, and
its pod too, until nobody needs it: :meth:`ReportStore.prune`.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import replace
from enum import Enum, auto

from gangctl.core.facts.world import Heard
from gangsidecar.wire import Report, Scanned


class ReportChange(Enum):
    """What a report is worth."""

    STALE = auto()
    """A newer one of its session is known: ignored."""
    NONE = auto()
    """Only ages have grown: it is there, and nothing has happened."""
    STEP = auto()
    """Only the step has gone up, as it does all the time: worth a look, but not one for each step of each member."""
    STATE = auto()


class ReportStore:
    """The newest reports and scans of all gangs."""

    def __init__(self) -> None:
        self._heard: dict[str, dict[str, Heard]] = {}
        self._scanned: dict[str, Scanned] = {}

    def add(self, report: Report, now: float) -> ReportChange:
        """Keep a report that arrived at ``now``, in seconds since the epoch."""
        gang = self._heard.setdefault(report.gang, {})
        known = gang.get(report.pod)
        if known is not None and known.report.session == report.session:
            # Who comes back says again what he said last: that is news, because he is there.
            newest = known.report.seq + (0 if known.connected else -1)
            if report.seq <= newest:
                return ReportChange.STALE
        gang[report.pod] = Heard(report, now)
        if known is None or not known.connected:
            return ReportChange.STATE
        before, after = _substance(known.report), _substance(report)
        if before == after:
            return ReportChange.NONE
        return ReportChange.STEP if _without_step(before) == _without_step(after) else ReportChange.STATE

    def add_scanned(self, gang: str, scanned: Scanned) -> ReportChange:
        """Keep the answer to a scan."""
        known = self._scanned.get(gang)
        self._scanned[gang] = scanned
        return ReportChange.NONE if known == scanned else ReportChange.STATE

    def disconnect(self, gang: str, pod: str) -> bool:
        """Its connection ended, or it says nothing any more; whether that is new."""
        known = self._heard.get(gang, {}).get(pod)
        if known is None or not known.connected:
            return False
        self._heard[gang][pod] = replace(known, connected=False)
        return True

    def report(self, gang: str, pod: str) -> Report | None:
        """The newest report of a pod."""
        known = self._heard.get(gang, {}).get(pod)
        return None if known is None else known.report

    def heard(self, gang: str) -> tuple[Heard, ...]:
        """All that is known of a gang's pods."""
        return tuple(self._heard.get(gang, {}).values())

    def scanned(self, gang: str) -> Scanned | None:
        """The newest answer to a scan."""
        return self._scanned.get(gang)

    def prune(self, gang: str, needed: AbstractSet[str]) -> None:
        """Drop what was heard of pods (by UID) that nobody needs and that aren't connected."""
        known = self._heard.get(gang, {})
        for pod in [pod for pod, heard in known.items() if pod not in needed and not heard.connected]:
            del known[pod]

    def forget(self, gang: str) -> None:
        """The gang is gone."""
        self._heard.pop(gang, None)
        self._scanned.pop(gang, None)


def _substance(report: Report) -> Report:
    """The report without what changes though nothing happens."""
    return replace(
        report,
        seq=0,
        phase_age_ms=0,
        ends=tuple(replace(end, age_ms=0) for end in report.ends),
        progress=None if report.progress is None else replace(report.progress, age_ms=0, first_age_ms=None),
        request=None if report.request is None else replace(report.request, age_ms=0),
        loaded=None if report.loaded is None else replace(report.loaded, age_ms=0),
    )


def _without_step(substance: Report) -> Report:
    """The first report of progress, another attempt's and another phase still differ in this."""
    progress = substance.progress
    return substance if progress is None else replace(substance, progress=replace(progress, step=0))
