"""``gangctl classify``: a dry run of the failure policy."""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass, replace
from typing import Any, Final

from gangctl.api.gangjob import GangJob, NeverSucceeds
from gangctl.api.incident import IncidentLevel
from gangctl.api.names import member_name, parse_member_name
from gangctl.api.policy import Action
from gangctl.api.reasons import Reason
from gangctl.api.signals import SIGNALS
from gangctl.cli.argument_types import exit_code, signal_number
from gangctl.cli.errors import ExitCode, UserError
from gangctl.cli.manifests import load_manifest
from gangctl.cli.output import as_json, print_out
from gangctl.cli.text import clean
from gangctl.core.facts.evidence import DISRUPTION_REASONS, Fault
from gangctl.core.facts.gang import Gang
from gangctl.core.facts.world import Observed
from gangctl.core.policy.cause import judged
from gangctl.core.policy.ladder import level
from gangctl.core.policy.rules import Verdict, verdict

_EPILOG: Final = """\
examples:
  gangctl classify job.yaml --exit-code 78
  gangctl classify job.yaml --signal SIGKILL --member launcher-0
  gangctl classify job.yaml --reason OOMKilled
  gangctl classify job.yaml --condition DisruptionTarget:PreemptionByScheduler
  gangctl classify job.yaml --device-health nvidia.com/gpu=Unhealthy -o json

It classifies one fault in isolation. A running gang may do more: a repeated fault of the same member replaces its pod,
an exhausted budget ends the gang, and a FailJob rule waits for stronger evidence (recovery.evidenceWindowSeconds).

exit codes: 0 classified, 2 bad input
"""
_REASONS: Final = (
    Reason.OOM_KILLED,
    Reason.EVICTED,
    Reason.PREEMPTED,
    Reason.NODE_LOST,
    Reason.DEVICE_LOST,
    Reason.UNSCHEDULABLE,
    Reason.START_FAILED,
    Reason.HANG,
    Reason.REQUESTED,
    Reason.BARRIER_TIMEOUT,
    Reason.POD_DELETED,
    Reason.POD_FAILED,
    Reason.CONTAINER_RESTARTED,
    Reason.STUCK,
)
_CONDITION: Final = re.compile(r"(?P<type>[^=:\s]+)(=(?P<status>True|False|Unknown))?(:(?P<reason>\S+))?")
_SAID: Final = {
    Action.FAIL_JOB: "the gang fails",
    Action.IGNORE: "the gang recovers, the budget is not charged",
    Action.COUNT: "the gang recovers, the budget is charged",
}
_LEVELS: Final = {
    IncidentLevel.PROCESS: "every worker restarts inside its pod",
    IncidentLevel.CONTAINER: "the container of the member restarts, and every worker",
    IncidentLevel.POD: "the pod of the member is replaced, the other workers restart inside their pods",
    IncidentLevel.GANG: "every pod is replaced",
}


@dataclass(frozen=True, slots=True)
class _Answer:
    """What the policy decides about the fault of one member."""

    member: str
    verdict: Verdict
    level: IncidentLevel

    @property
    def key(self) -> tuple[Verdict, IncidentLevel]:
        return self.verdict, self.level


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the verb's arguments."""
    parser.epilog = _EPILOG
    parser.add_argument("file", metavar="FILE", help="manifest of a GangJob; - reads stdin")
    parser.add_argument("--member", metavar="M", help="member at fault, such as worker-3 (default: one of each role)")
    parser.add_argument("-o", "--output", choices=["json"], help="print JSON, for programs")
    fault = parser.add_mutually_exclusive_group(required=True)
    fault.add_argument("--exit-code", metavar="N", type=exit_code, help="a worker process exits with N (0 to 255)")
    fault.add_argument(
        "--signal", metavar="S", type=signal_number, help="a signal ends a worker process: SIGKILL, KILL or 9"
    )
    fault.add_argument(
        "--reason",
        metavar="REASON",
        choices=[str(one) for one in _REASONS],
        help=f"a fault with this reason: {', '.join(_REASONS)}",
    )
    fault.add_argument(
        "--condition", metavar="TYPE[=STATUS][:REASON]", type=_condition, help="the pod has this condition"
    )
    fault.add_argument(
        "--device-health", metavar="RESOURCE=HEALTH", type=_health, help="a device of the pod is Unhealthy or Unknown"
    )


def run(arguments: argparse.Namespace) -> int:
    """Print which rule matches the fault."""
    job = load_manifest(arguments.file)
    fault = _fault(arguments)
    members = [arguments.member] if arguments.member else [member_name(role.name, 0) for role in job.spec.roles]
    for member in members:
        _check(job, member)
    harmless = fault.exit_code == 0 and not isinstance(job.spec.success_policy, NeverSucceeds)
    answers = [] if harmless else [_answer(job, replace(fault, member=member)) for member in members]
    if arguments.output == "json":
        print_out(as_json(_document(fault, answers)))
    elif harmless:
        print_out("no fault: with this successPolicy, exit code 0 is success")
    else:
        _tell(job, fault, answers)
    return ExitCode.OK


def _answer(job: GangJob, fault: Fault) -> _Answer:
    said = verdict(job.spec, fault)
    return _Answer(fault.member, said, level(Gang(0.0, job, Observed()), judged(job.spec, fault)))


def _tell(job: GangJob, fault: Fault, answers: list[_Answer]) -> None:
    print_out(f"fault:  {clean(fault.message)}")
    by_answer: dict[tuple[Verdict, IncidentLevel], list[str]] = {}
    for answer in answers:
        by_answer.setdefault(answer.key, []).append(parse_member_name(answer.member)[0])
    for (said, at_least), roles in by_answer.items():
        if len(by_answer) > 1:
            print_out(f"\nfor a member of {', '.join(roles)}:")
        print_out(f"rule:   {clean(said.rule) if said.rule else 'none'}: {clean(said.why)}")
        print_out(f"action: {said.action}: {_SAID[said.action]}")
        if said.action is not Action.FAIL_JOB:
            print_out(f"level:  {at_least}: {_LEVELS[at_least]}")
        elif window := job.spec.recovery.evidence_window_seconds:
            print_out(
                f"        unless evidence of a device or node fault arrives within {window} s (evidenceWindowSeconds)"
            )
    if not job.spec.pod_failure_policy.rules:
        print_out("\nThe manifest has no podFailurePolicy.rules: every fault except a disruption is counted.")


def _document(fault: Fault, answers: list[_Answer]) -> dict[str, Any]:
    return {
        "fault": {"reason": str(fault.reason), "message": fault.message},
        "verdicts": [
            {
                "member": answer.member,
                "rule": answer.verdict.rule,
                "action": str(answer.verdict.action),
                "level": str(answer.level),
                "charged": answer.verdict.action is Action.COUNT,
                "why": answer.verdict.why,
            }
            for answer in answers
        ],
    }


def _check(job: GangJob, member: str) -> None:
    try:
        name, index = parse_member_name(member)
    except ValueError as error:
        raise UserError(f"--member: {error}") from None
    role = next((role for role in job.spec.roles if role.name == name), None)
    if role is None:
        raise UserError(f"--member: there is no role {name!r}, only {', '.join(one.name for one in job.spec.roles)}")
    count = role.replicas + role.spares
    if index >= count:
        raise UserError(f"--member: role {name} has {count} members, {name}-0 to {name}-{count - 1}")


def _fault(arguments: argparse.Namespace) -> Fault:
    """The fault that the core would make of this evidence."""
    if arguments.exit_code is not None:
        code = arguments.exit_code
        return Fault(Reason.EXIT_CODE, "", 0.0, exit_code=code, message=f"exit code {code}")
    if arguments.signal is not None:
        name, number = arguments.signal
        return Fault(Reason.SIGNAL, "", 0.0, signal=number, message=f"ended by {name}")
    if arguments.condition is not None:
        kind, state, why = arguments.condition
        reason = DISRUPTION_REASONS.get(why, Reason.DISRUPTED) if kind == "DisruptionTarget" else Reason.POD_FAILED
        text = f"the pod has the condition {kind}={state}{f' ({why})' if why else ''}, which is {reason}"
        return Fault(reason, "", 0.0, conditions=((kind, state, why),), message=text)
    if arguments.device_health is not None:
        resource, health = arguments.device_health
        text = f"a device of {resource} is {health}"
        return Fault(Reason.DEVICE_LOST, "", 0.0, device="of the pod", resource=resource, health=health, message=text)
    reason = Reason(arguments.reason)
    # The kernel's OOM killer sends SIGKILL, so an exit code rule for 137 matches as well.
    number = SIGNALS["SIGKILL"] if reason is Reason.OOM_KILLED else None
    return Fault(reason, "", 0.0, signal=number, message=f"reason {reason}")


def _condition(text: str) -> tuple[str, str, str]:
    match = _CONDITION.fullmatch(text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} instead of a condition such as DisruptionTarget=True")
    return match["type"], match["status"] or "True", match["reason"] or ""


def _health(text: str) -> tuple[str, str]:
    resource, equals, health = text.rpartition("=")
    if not resource or not equals or health not in {"Unhealthy", "Unknown"}:
        raise argparse.ArgumentTypeError(f"{text!r} instead of RESOURCE=Unhealthy or RESOURCE=Unknown")
    return resource, health
