"""Checks: which are due before an attempt, who is checked with whom, and who is to blame.

The rule: a check is due for members that its ``when`` concerns, and of which no result of it was acted on in this
attempt. One check runs at a time, in turns; the results are in the members' reports, so that a new leader goes on where
the last one was::

    concerned(Start)    all, if no worker has run since the gang's start or resume
    concerned(NewPod)   those in whose pods no worker has run
    concerned(Fault)    all, if the cause of the open incident is unclear
    concerned(Suspect)  those on a node that the cause of the open incident counts against, or that new pods must avoid
    unclear(cause)      its reason says no more than that something is wrong (``facts/evidence.py``), or it isn't known
                        who failed first
    bad                 who didn't pass; of pairs: who is certainly to blame (``pairs.py``)
    faulty(check)       bad on more than one node, and on more than a quarter of those that take part

An attempt that no check concerns must not be delayed. If the check is faulty, no member is to blame. Nothing is
concluded from a result that is missing. Where all members are on one node, each counts as one.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal, NamedTuple

from gangctl.api.gangjob import CheckSpec, DirectorySource
from gangctl.api.incident import Cause
from gangctl.api.status import Checks
from gangctl.core.facts.evidence import default
from gangctl.core.facts.gang import Gang
from gangctl.core.policy import pairs
from gangctl.core.policy.recovery import is_failure, suspected_member
from gangsidecar.wire import CHECK_CANT_TELL, CHECK_CORRUPT, Check, Checked

FINAL: Final = frozenset({"Undecided", "CheckFaulty"})
"""Results after which a check isn't repeated in the attempt, whatever pods are new."""
PARTNERS: Final = 2
"""So many others at least are checked with the members that a check of pairs concerns: one alone can't be told apart
from its partner."""


def _arguments(gang: Gang, check: CheckSpec) -> tuple[str, ...]:
    """Its arguments. A check of mounts that names no folder looks at those of the checkpoint tiers."""
    checkpoint = gang.spec.checkpoint
    if check.builtin != "Mount" or checkpoint is None or any(one.startswith("--path") for one in check.args):
        return check.args
    sources = (tier.source for tier in checkpoint.tiers)
    folders = {source.directory: None for source in sources if isinstance(source, DirectorySource)}
    return (*check.args, *(f"--tier={folder}" for folder in folders))


class AskCheck(NamedTuple):
    """Have one member take part in a turn. Asked again, it does no harm."""

    pod: str
    check: Check


class Blame(NamedTuple):
    """What a check comes to."""

    result: Literal["Passed", "Failed", "Undecided", "CheckFaulty"]
    bad: tuple[str, ...] = ()
    """Members that didn't pass, or of which one didn't, where it isn't known which."""


def of_attempt(gang: Gang) -> Checks:
    """The checks of the status' attempt."""
    known = gang.status.checks
    return known if known is not None and known.attempt == gang.status.attempt else Checks(attempt=gang.status.attempt)


def is_unclear(cause: Cause) -> bool:
    """Whether the cause of an incident doesn't say who is to blame."""
    return default(cause.reason).unclear or bool(cause.suspect) or cause.alike or len(cause.tied) > 1


def passed(checked: Checked) -> bool:
    """Whether a member has passed."""
    return checked.exit_code in {0, CHECK_CANT_TELL}


@dataclass(frozen=True)
class Look:
    """The members that are about to run the attempt, and what checks have told of them."""

    gang: Gang
    cause: Cause | None
    """Of the open incident; None if there is none."""
    members: tuple[str, ...]
    """In the order of places."""

    @cached_property
    def nodes(self) -> Mapping[str, str]:
        """Member -> what it shares with others: its node or, where there is no other node, nothing."""
        nodes = {name: self.gang.pods[name].node for name in self.members}
        return nodes if len(set(nodes.values())) > 1 else {name: name for name in nodes}

    @cached_property
    def told(self) -> Mapping[str, Mapping[int, Checked]]:
        """Member -> turn -> its result."""
        attempt, reports = self.gang.status.attempt, ((name, self.gang.report(name)) for name in self.members)
        return {
            name: {one.turn: one for one in report.checks if one.attempt == attempt}
            for name, report in reports
            if report is not None
        }

    def sessions(self, members: Sequence[str]) -> str:
        """A hash of the sessions of these members' supervisors, which keep the results."""
        reports = (self.gang.report(name) for name in members)
        told = "/".join(sorted("" if report is None else report.session for report in reports))
        return hashlib.sha256(told.encode()).hexdigest()[:16]

    def due(self, known: Checks) -> tuple[CheckSpec, tuple[str, ...]] | None:
        """The next check, and who takes part; None if no more is due."""
        over = {one.name for one in known.results if one.result in FINAL}
        specs = (one for one in self.gang.spec.recovery.checks if one.name not in over)
        found = ((one, self.taking_part(one, known)) for one in specs)
        return next(((check, members) for check, members in found if members), None)

    def taking_part(self, check: CheckSpec, known: Checks) -> tuple[str, ...]:
        """Who is checked; none if the check isn't due."""
        ends = {
            name: [one for turn, one in told.items() if turn <= known.judged_turn and one.name == check.name]
            for name, told in self.told.items()
        }
        wanted = [name for name in self._concerned(check) if not ends.get(name)]
        if not wanted or check.scope == "Member":
            return tuple(wanted)
        if check.scope == "Gang":
            return self.members
        chosen, where = set(wanted), {self.nodes[name] for name in wanted}
        others = sorted((name for name in self.members if name not in chosen), key=lambda one: self.nodes[one] in where)
        chosen.update(others[: max(PARTNERS, len(wanted))])
        return tuple(name for name in self.members if name in chosen) if len(chosen) > 1 else ()

    def _concerned(self, check: CheckSpec) -> Sequence[str]:
        gang, cause, status = self.gang, self.cause, self.gang.status
        match check.when:
            case "Start":
                return self.members if status.started_attempt < max(1, status.resumed_attempt) else ()
            case "NewPod":
                return [name for name in self.members if gang.never_ran(name)]
            case "Fault":
                return self.members if cause is not None and is_unclear(cause) else ()
            case "Suspect":
                if cause is None or not is_failure(cause):
                    return ()
                pod = gang.pods.get(suspected_member(cause)[0])
                is_same = pod is not None and pod.incarnation == suspected_member(cause)[1]
                nodes = {pod.node} if pod is not None and is_same else set()
                nodes |= {node for entry in status.replaced if entry.required for node in entry.avoid}
                return [name for name in self.members if gang.pods[name].node in nodes]


@dataclass(frozen=True)
class Turn:
    """One turn of a check that runs, as its members' reports tell of it."""

    look: Look
    check: CheckSpec
    known: Checks
    members: tuple[str, ...]
    """Who takes part in the check."""

    @cached_property
    def groups(self) -> tuple[tuple[str, ...], ...]:
        """Who is checked together in this turn, in the order of their ranks."""
        if self.check.scope == "Member":
            return tuple((name,) for name in self.members)
        if self.check.scope == "Gang":
            return (self.members,)
        return self._named(pairs.next_pairs(self._nodes, self._before))

    @cached_property
    def missing(self) -> tuple[str, ...]:
        """Who has no result of this turn."""
        return tuple(name for group in self.groups for name in group if self._end(name, self.known.turn) is None)

    @property
    def has_next(self) -> bool:
        """Whether pairs need another turn. A result that is missing may come late: nothing must follow from it."""
        return self.check.scope == "Pair" and not self.missing and bool(pairs.next_pairs(self._nodes, self._after))

    @cached_property
    def blame(self) -> Blame:
        """Who is to blame, once the last turn is over."""
        nodes = self.look.nodes
        if self.check.scope == "Pair":
            verdict = pairs.verdict(self._nodes, self._after)
            bad = tuple(self.members[at] for at in verdict.bad)
            unsure = tuple(self.members[at] for at in verdict.unsure)
            is_told = None not in self._after.values()
        else:
            ends = {name: self._end(name, self.known.turn) for name in self.members}
            bad = tuple(name for name, end in ends.items() if end is not None and not passed(end))
            unsure, is_told = (), None not in ends.values()
        hit, checked = {nodes[name] for name in bad}, {nodes[name] for name in self.members}
        if len(hit) > 1 and len(checked) < 4 * len(hit):
            return Blame("CheckFaulty", bad)
        if len(checked) > PARTNERS and len(unsure) == len(self.members):
            return Blame("CheckFaulty", unsure)
        if bad:
            return Blame("Failed", bad)
        return Blame("Passed") if is_told and not unsure else Blame("Undecided", unsure)

    def last_end(self, member: str) -> Checked | None:
        """The newest result of a member in this check, one that it didn't pass first."""
        ends = [one for turn, one in self.look.told.get(member, {}).items() if turn >= self.known.first_turn]
        return max(ends, key=lambda one: (not passed(one), one.turn), default=None)

    @property
    def verifies(self) -> bool:
        """Whether it verifies what there is: all that ran the attempt before have passed, for certain."""
        gang, status = self.look.gang, self.look.gang.status
        if self.check.verifies_after is None or not gang.holding <= {*self.members}:
            return False
        ran = status.attempt == status.started_attempt + 1 and not any(map(gang.is_fresh, gang.holding))
        ends = [self.last_end(name) for name in gang.holding]
        return ran and all(end is not None and end.exit_code == 0 for end in ends)

    @property
    def finds_corruption(self) -> bool:
        """Whether one of those to blame has computed wrongly in a pod in which a worker ran."""
        ends = (self.last_end(name) for name in self.blame.bad if not self.look.gang.never_ran(name))
        return any(end is not None and end.exit_code == CHECK_CORRUPT for end in ends)

    @property
    def note(self) -> str:
        """Why the check can't tell, as the first member says for which that is so."""
        ends = (self.last_end(name) for name in self.members)
        return next((one.detail for one in ends if one is not None and one.exit_code == CHECK_CANT_TELL), "")

    def asks(self) -> Iterator[AskCheck]:
        """What the members are asked that haven't told their result."""
        gang, check, missing = self.look.gang, self.check, frozenset(self.missing)
        taken: set[tuple[str, int]] = set()
        for group in self.groups:
            first = gang.report(group[0])
            if first is None:
                continue
            # The last first: an attempt takes its ports from the other end.
            free = [port for port in reversed(first.ports) if (first.address, port) not in taken]
            port = next(iter(free), gang.spec.network.base_port)
            taken.add((first.address, port))
            for rank, name in enumerate(group):
                if name in missing:
                    query = Check(
                        attempt=gang.status.attempt,
                        turn=self.known.turn,
                        name=check.name,
                        timeout_ms=check.timeout_seconds * 1000,
                        command=check.command,
                        builtin=check.builtin or "",
                        args=_arguments(gang, check),
                        rank=rank,
                        size=len(group),
                        host=first.address,
                        port=port,
                    )
                    yield AskCheck(gang.pods[name].uid, query)

    def _end(self, member: str, turn: int) -> Checked | None:
        return self.look.told.get(member, {}).get(turn)

    # Pairs, by the places of their members in ``members``.

    @cached_property
    def _nodes(self) -> Mapping[int, str]:
        return {at: self.look.nodes[name] for at, name in enumerate(self.members)}

    @cached_property
    def _before(self) -> Mapping[pairs.Pair, bool | None]:
        """The results of the turns before."""
        found: dict[pairs.Pair, bool | None] = {}
        for turn in range(self.known.first_turn, self.known.turn):
            found |= self._results(pairs.next_pairs(self._nodes, found), turn)
        return found

    @cached_property
    def _after(self) -> Mapping[pairs.Pair, bool | None]:
        """Those of this turn as well."""
        return {**self._before, **self._results(pairs.next_pairs(self._nodes, self._before), self.known.turn)}

    def _results(self, run: Sequence[pairs.Pair], turn: int) -> dict[pairs.Pair, bool | None]:
        ends = {pair: [self._end(self.members[at], turn) for at in pair] for pair in run}
        return {pair: pairs.joined([None if one is None else passed(one) for one in two]) for pair, two in ends.items()}

    def _named(self, run: Sequence[pairs.Pair]) -> tuple[tuple[str, ...], ...]:
        return tuple(tuple(self.members[at] for at in pair) for pair in run)


def turn_of(look: Look, known: Checks) -> Turn | None:
    """The turn that runs; None if its check isn't due any more, or other sessions of supervisors take part by now."""
    check = next((one for one in look.gang.spec.recovery.checks if one.name == known.check), None)
    members = () if check is None else look.taking_part(check, known)
    is_same = bool(members) and look.sessions(members) == known.sessions
    return Turn(look, check, known, members) if check is not None and is_same else None
