"""The newest report of each pod, on whatever connection and in whatever order reports arrive.

The rule: within a session, a report that is not newer than the last one is ignored. A report outlives its connection,
and even its pod, until no decision needs it any more (:meth:`ReportStore.prune`).

What the workers of each role import is kept as well, for supervisors of the role that have run nothing yet. A list
reaches only the gang and the role of the pod that has sent it. No decision reads it, and nothing stores it: a new
leader gets it as sidecars connect again. A gang has one list for each of its roles, compressed, and of
:data:`~gangsidecar.wire.MAX_IMPORTS_BYTES` at most before that.
"""

import zlib
from collections.abc import Callable, Container
from collections.abc import Set as AbstractSet
from dataclasses import fields, replace
from enum import Enum, StrEnum, auto
from functools import lru_cache
from operator import attrgetter
from typing import Final

from gangctl.cluster.port import MemberIdentity
from gangctl.core.facts.world import Heard, gaps
from gangsidecar import wire
from gangsidecar.wire import Corruption, End, Progress, RankBehind, Reached, Report, Request, Scanned

AGAIN_SECONDS: Final = 5.0
"""A list of imports goes to a whole role at once so often at most: one message of a pod costs one for each member."""
SAME_SECONDS: Final = 1.0
"""An answer to a scan that repeats an older one deserves a look: it may be asked whether that is still so."""


class ReportChange(Enum):
    """What a report changes in what is known of its pod."""

    STALE = auto()
    """Nothing: a newer report of its session is known, so it was ignored."""
    NONE = auto()
    """Nothing but ages."""
    STEP = auto()
    """Only the training step. That happens all the time, so it deserves a look, but not one for each step."""
    STATE = auto()
    """Anything else."""


class StaleReason(StrEnum):
    """Why a message came too late to change anything. Label values of a metric."""

    OLDER_ATTEMPT = "OlderAttempt"
    """A report of an attempt before the stored one."""
    OVERTAKEN = "Overtaken"
    """A newer report of the same session is known."""
    SUPERSEDED = "Superseded"
    """The pod has a newer connection, or this process does not lead any more."""


class ReportStore:
    """The newest reports and scans of all gangs."""

    def __init__(self) -> None:
        self._heard: dict[str, dict[str, Heard]] = {}
        self._scanned: dict[str, tuple[Scanned, float]] = {}

    def add(self, report: Report, now: float) -> ReportChange:
        """Take a report that arrived at ``now``, in seconds since the epoch."""
        gang = self._heard.setdefault(report.gang, {})
        known = gang.get(report.pod)
        if known is not None and known.report.session == report.session:
            # A pod that connects again repeats its last report, which changes its state: it is connected.
            newest = known.report.seq + (0 if known.connected else -1)
            if report.seq <= newest:
                return ReportChange.STALE
        if known is None or not known.connected:
            gang[report.pod] = Heard(report, now, since=now, gaps=gaps(known, report, now))
            return ReportChange.STATE
        gang[report.pod] = Heard(report, now, since=known.since, gaps=gaps(known, report, now))
        before, after = substance(known.report), substance(report)
        if before == after:
            return ReportChange.NONE
        return ReportChange.STEP if before[:-1] == after[:-1] else ReportChange.STATE

    def add_scanned(self, gang: str, scanned: Scanned, now: float) -> ReportChange:
        """Take the answer to a scan that arrived at ``now``, in seconds since the epoch."""
        known, at = self.scanned(gang)
        self._scanned[gang] = scanned, now
        return ReportChange.NONE if known == scanned and now < at + SAME_SECONDS else ReportChange.STATE

    def disconnect(self, gang: str, pod: str) -> bool:
        """The pod's connection ended, or its supervisor is silent; return whether that is new."""
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
        """The newest report of each pod of a gang."""
        return tuple(self._heard.get(gang, {}).values())

    def scanned(self, gang: str) -> tuple[Scanned | None, float]:
        """The newest answer to a scan, and when it arrived."""
        return self._scanned.get(gang, (None, 0.0))

    def prune(self, gang: str, needed: AbstractSet[str]) -> None:
        """Forget the reports of pods that are neither ``needed`` (UIDs) nor connected."""
        known = self._heard.get(gang, {})
        for pod in [pod for pod, heard in known.items() if pod not in needed and not heard.connected]:
            del known[pod]

    def forget(self, gang: str) -> None:
        """The gang is gone."""
        self._heard.pop(gang, None)
        self._scanned.pop(gang, None)


def substance(report: Report) -> tuple[object, ...]:
    """Say what a report says, without sequence number, clock and ages, which change all the time; the steps come last.

    It is made for each report that arrives, so nothing is copied.
    """
    progress, request, corruption = report.progress, report.request, report.corruption
    return (
        _of_report(report),
        tuple(map(_of_end, report.ends)),
        None if request is None else _of_request(request),
        None if corruption is None else _of_corruption(corruption),
        tuple(map(_of_reached, report.reached)),
        None if progress is None else _of_progress(progress),
        None if progress is None else (progress.step, progress.behind and _of_behind(progress.behind)),
    )


def _all_but(kind: type, *left_out: str) -> Callable[[object], object]:
    """Gives the values of all fields but these."""
    return attrgetter(*(one.name for one in fields(kind) if one.name not in left_out))


_of_report = _all_but(Report, "seq", "sent_ms", "phase_age_ms", "ends", "progress", "request", "corruption", "reached")
_of_end = _all_but(End, "age_ms")
_of_request = _all_but(Request, "age_ms")
_of_corruption = _all_but(Corruption, "age_ms")
_of_reached = _all_but(Reached, "age_ms")
_of_progress = _all_but(Progress, "age_ms", "first_age_ms", "step", "behind")
_of_behind = _all_but(RankBehind, "age_ms")


class ImportLists:
    """The lists of all gangs."""

    def __init__(self) -> None:
        self._lists: dict[str, dict[str, tuple[str, bytes, float]]] = {}
        """UID of the gang -> role -> the pod that has sent the list, the list, and when it was last for all at once."""

    def add(self, sender: MemberIdentity, imports: wire.Imports, connected: Container[str], now: float) -> bool:
        """Take a list from its sender's connection; return whether all get it at once, not with their next reports.

        That of the first pod counts, until it isn't ``connected`` any more: each change costs other pods a template.
        """
        lists = self._lists.setdefault(sender.gang, {})
        before, _, at = lists.get(sender.role, (sender.pod, b"", now - AGAIN_SECONDS))
        if before != sender.pod and before in connected:
            return False
        is_due = now >= at + AGAIN_SECONDS
        lists[sender.role] = sender.pod, zlib.compress(wire.encode(imports).encode()), now if is_due else at
        return is_due

    def of(self, member: MemberIdentity) -> bytes | None:
        """The list of this member's role, as :func:`imports_text` takes it."""
        known = self._lists.get(member.gang, {}).get(member.role)
        return None if known is None else known[1]

    def forget(self, gang: str) -> None:
        """The gang is gone."""
        self._lists.pop(gang, None)


@lru_cache(maxsize=8)
def imports_text(packed: bytes, revision: int, *, beside: bool) -> str:
    """The message for a sidecar of this revision. ``beside``: the gang trains. Many members get the same at a time."""
    imports: wire.Imports = wire.decode(zlib.decompress(packed))
    return wire.encode(wire.in_revision(replace(imports, beside=beside), revision))
