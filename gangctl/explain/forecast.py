"""Forecasts what a GangJob will do, before anything of it runs: members, ranks, variables of processes, rules, faults.

The rule: it says what the controller would send, made by the same functions. What is known only at the start of an
attempt stands in angle brackets: ``<address of worker-0>``, ``<port>``, ``<uid>``.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from gangctl.api.gangjob import GangJob, NeverSucceeds, Role, Roles, Rule, Unlimited
from gangctl.api.incident import IncidentLevel
from gangctl.api.model import changed
from gangctl.api.roles import ExecStart, ForkStart, ModulesPreload, layout, number_places
from gangctl.api.status import GangPhase, Master, RestorePoint, Status
from gangctl.core.facts.evidence import Fault
from gangctl.core.facts.gang import Gang
from gangctl.core.facts.world import Observed
from gangctl.core.policy import launch
from gangctl.core.policy.cause import Verdict, judge_fault, verdict
from gangctl.core.policy.recovery import level_of
from gangctl.core.policy.restore import tier_with
from gangctl.words.text import counted, listed
from gangsidecar.wire import Phase, Report
from gangsidecar.wire.python_command import parse_python, unforkable_flag

PORT: Final = "<port>"
UID: Final = "<uid>"
_DROPS_HOOK: Final = re.compile(r"\bPYTHONPATH=(?!\S*PYTHONPATH)")
"""In a shell's text: the variable without what it had."""


@dataclass(frozen=True, slots=True)
class ForecastProcess:
    """One process that a member starts."""

    ranks: tuple[int, ...]
    """Its ranks: several if it starts further processes itself; none if it has no ranks."""
    variables: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class ForecastMember:
    """One member of the gang."""

    name: str
    role: str
    is_spare: bool
    processes: tuple[ForecastProcess, ...]
    """Empty for a spare, which starts nothing until it takes the place of another member."""


@dataclass(frozen=True, slots=True)
class ForecastGroup:
    """One process group."""

    name: str
    world_size: int
    members: int
    master: str
    """The member with rank 0."""


def forecast_members(job: GangJob, point: RestorePoint | None) -> Iterator[ForecastMember]:
    """Forecast all members in order, as attempt 1 would start them. ``point``: the restore point, if one is known."""
    numbering = number_places(job.spec.roles)
    begun = changed(job, metadata=changed(job.metadata, uid=UID), status=_status(job, point))
    for name, member in layout(job.spec.roles).members.items():
        made: tuple[ForecastProcess, ...] = ()
        if not member.is_spare:
            ranks = numbering.ranks.get(name, ())
            started = launch.processes_to_start(begun, numbering, name, _report(name))
            made = tuple(
                ForecastProcess(ranks if one.rank is None else (one.rank,), tuple(map(_shown, one.env)))
                for one in started
            )
        yield ForecastMember(name, member.role.name, member.is_spare, made)


def groups(job: GangJob) -> tuple[ForecastGroup, ...]:
    """All process groups, in the order of the roles."""
    numbering = number_places(job.spec.roles)
    return tuple(
        ForecastGroup(name, numbering.world_size(name), len(places), places[0])
        for name, places in numbering.groups.items()
    )


def rule_text(rule: Rule) -> str:
    """Return the rule as a sentence: its conditions, and what it does."""
    terms: list[str] = []
    if rule.on_exit_codes is not None:
        codes = rule.on_exit_codes
        terms.append(f"exit code {'' if codes.operator == 'In' else 'not '}in {', '.join(map(str, codes.values))}")
    if rule.on_signals:
        terms.append(f"signal {' or '.join(rule.on_signals)}")
    if rule.on_pod_conditions:
        terms.append(f"pod condition {' or '.join(f'{one.type}={one.status}' for one in rule.on_pod_conditions)}")
    if rule.on_device_health is not None:
        health = rule.on_device_health
        of = f" of {' or '.join(health.resource_names)}" if health.resource_names else ""
        terms.append(f"device{of} {' or '.join(health.health)}")
    if rule.on_reasons:
        terms.append(f"reason {' or '.join(map(str, rule.on_reasons))}")
    if rule.on_log is not None:
        terms.append(f"a line of the log matches {rule.on_log.pattern!r}")
    of_roles = f", in role {' or '.join(rule.roles)}" if rule.roles else ""
    least = "" if rule.level == "Process" else f", at least level {rule.level}"
    return f"{' and '.join(terms)}{of_roles}: {rule.action}{least}"


def judge(job: GangJob, fault: Fault) -> tuple[Verdict, IncidentLevel]:
    """Return what the job's policy says of one fault, as if the gang had no history, and how much it replaces."""
    fresh = changed(job, status=Status())
    return verdict(job.spec, fault), level_of(Gang(0.0, fresh, Observed()), judge_fault(job.spec, fault))


def policy_texts(job: GangJob) -> tuple[str, ...]:
    """Return sentences about faults: the rules in order, then the defaults."""
    rules = job.spec.pod_failure_policy.rules
    found = [f"{rule.name or f'rules[{at}]'}: {rule_text(rule)}" for at, rule in enumerate(rules)]
    which = "no rule matches" if rules else "no rules"
    found.append(f"{which}: a disruption is not charged (Ignore), every other fault is (Count)")
    return (*found, *map(_start, job.spec.roles), _budget(job), _repeated(job), _hangs(job), _success(job))


def _start(role: Role) -> str:
    flag = unforkable_flag(role.worker.command)
    match role.start:
        case ExecStart():
            how = "executes the command anew, which imports everything (start Exec)"
        case _ if flag:
            how = f"executes the command anew: with {flag}, Python can't be forked from a template"
        case _ if _DROPS_HOOK.search(" ".join(role.worker.command)):
            how = "executes the command anew: it drops what PYTHONPATH had (write PYTHONPATH=FOLDER:$PYTHONPATH)"
        case ForkStart(preload=ModulesPreload(modules=modules)):
            how = f"forks each Python from a template that has imported {listed(modules)}"
            how += "" if parse_python(role.worker.command) else ", but not a pod's first start, whose Python is unknown"
        case _:
            how = "forks each Python from a template that has imported what the first start in the pod imported"
    return f"start: a restart of a {role.name} {how}"


def _budget(job: GangJob) -> str:
    budget, then = job.spec.recovery.budget, job.spec.recovery.on_exhausted
    if isinstance(budget, Unlimited):
        return "budget: restarts are not limited"
    ends = "the gang fails" if then == "Fail" else "the gang is held for inspection"
    return f"budget: {counted(budget.max_restarts, 'charged restart')} in {budget.window_seconds} s; after them {ends}"


def _repeated(job: GangJob) -> str:
    faults = counted(job.spec.recovery.replace_after, "fault")
    grace = job.spec.recovery.stop_grace_period_seconds
    return f"repeated faults: after {faults} of one member its pod is replaced; SIGKILL comes {grace} s after SIGTERM"


def _hangs(job: GangJob) -> str:
    progress = job.spec.progress
    if progress.timeout_seconds is None:
        return "hangs: not detected (progress.timeoutSeconds is not set)"
    what = (
        "the gang restarts"
        if progress.on_hang == "Restart"
        else "the status shows it and nothing restarts (onHang: Observe)"
    )
    return f"hangs: without progress ({progress.source.type}) for {progress.timeout_seconds} s, {what}"


def _success(job: GangJob) -> str:
    match job.spec.success_policy:
        case NeverSucceeds():
            return "success: never; an exit with 0 is a fault"
        case Roles(roles=roles):
            return f"success: when every process of {' and '.join(roles)} has exited with 0"
        case _:
            return "success: when every process has exited with 0"


def _status(job: GangJob, point: RestorePoint | None) -> Status:
    base = job.spec.network.base_port
    memory = base + 1 if tier_with(job.spec, "Peers") is not None else None
    masters = tuple(
        Master(process_group=one.name, address=f"<address of {one.master}>", port=base, memory_port=memory)
        for one in groups(job)
    )
    return Status(phase=GangPhase.RUNNING, attempt=1, masters=masters, restore_point=point)


def _report(member: str) -> Report:
    return Report(UID, member, 0, UID, "", 0, 1, Phase.READY)


def _shown(variable: tuple[str, str]) -> tuple[str, str]:
    """The variable, without the address and port that stand for those of the start."""
    name, value = variable
    if name in {"MASTER_PORT", "PET_MASTER_PORT"}:
        return name, PORT
    if name in {"JAX_COORDINATOR_ADDRESS", "GANG_MEMORY_ADDRESS"}:
        return name, f"{value.rpartition(':')[0]}:{PORT}"
    return variable
