"""``gangctl classify``: a dry run of the failure policy."""

import argparse
from dataclasses import replace
from typing import Any, Final

from gangctl.api.gangjob import GangJob, NeverSucceeds
from gangctl.api.incident import IncidentLevel
from gangctl.api.names import member_name, parse_member_name
from gangctl.api.policy import Action, OnReason
from gangctl.api.reasons import Reason
from gangctl.cli.arguments import checked_member, exit_code, signal_number
from gangctl.cli.errors import ExitCode, UserError
from gangctl.cli.failures import (
    defaults_document,
    defaults_text,
    fault_of,
    parse_device_health,
    pod_condition,
    with_lines,
)
from gangctl.cli.manifests import load_manifest
from gangctl.cli.printers.output import print_document, print_out
from gangctl.cli.printers.text import clean
from gangctl.core.facts.evidence import Fault
from gangctl.core.policy.cause import Verdict
from gangctl.explain.forecast import judge

_EPILOG: Final = """\
examples:
  gangctl classify job.yaml --exit-code 78
  gangctl classify job.yaml --signal SIGKILL --member launcher-0
  gangctl classify job.yaml --exit-code 134 --log 'CUDA error: device-side assert triggered'
  gangctl classify job.yaml --reason OOMKilled
  gangctl classify job.yaml --condition DisruptionTarget:PreemptionByScheduler
  gangctl classify job.yaml --device-health nvidia.com/gpu=Unhealthy -o json
  gangctl classify --explain-defaults

It classifies one fault in isolation. A running gang may do more: a repeated fault of the same member replaces its pod,
an exhausted budget ends the gang, and a FailJob rule waits for stronger evidence (recovery.evidenceWindowSeconds).

exit codes: 0 classified, 2 bad input
"""
_REASONS: Final = (*OnReason, Reason.POD_DELETED, Reason.POD_FAILED, Reason.CONTAINER_RESTARTED, Reason.STUCK)
_EFFECTS: Final = {
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


_Answers = dict[str, tuple[Verdict, IncidentLevel]]
"""Member -> what the policy decides about its fault, and the level."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the verb's arguments."""
    parser.epilog = _EPILOG
    parser.add_argument("file", metavar="FILE", nargs="?", help="manifest of a GangJob; - reads stdin")
    parser.add_argument("--member", metavar="M", help="member at fault, such as worker-3 (default: one of each role)")
    parser.add_argument("-o", "--output", choices=["json", "yaml"], help="print JSON or YAML, for programs")
    parser.add_argument(
        "--log",
        metavar="LINE",
        action="append",
        default=[],
        help="the worker has printed this line before (with --exit-code or --signal; can be repeated)",
    )
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
        "--condition", metavar="TYPE[=STATUS][:REASON]", type=pod_condition, help="the pod has this condition"
    )
    fault.add_argument(
        "--device-health",
        metavar="RESOURCE=HEALTH",
        type=parse_device_health,
        help="a device of the pod is Unhealthy or Unknown",
    )
    fault.add_argument(
        "--explain-defaults",
        action="store_true",
        help="print what happens without rules, for each reason and for the failures that are known, with sources",
    )


def run(arguments: argparse.Namespace) -> int:
    """Print which rule matches the fault, or the defaults."""
    if arguments.explain_defaults:
        _explain(arguments)
        return ExitCode.OK
    if arguments.file is None:
        raise UserError("no manifest to classify the fault by; name a FILE, or use --explain-defaults")
    if arguments.log and arguments.exit_code is None and arguments.signal is None:
        raise UserError(
            "--log needs --exit-code or --signal: a line of the log is evidence beside the end of a process"
        )
    job = load_manifest(arguments.file)
    fault = with_lines(_fault(arguments), job.spec, arguments.log)
    members = (
        [checked_member(job, arguments.member)]
        if arguments.member
        else [member_name(role.name, 0) for role in job.spec.roles]
    )
    harmless = fault.exit_code == 0 and not isinstance(job.spec.success_policy, NeverSucceeds)
    answers = {} if harmless else {member: judge(job, replace(fault, member=member)) for member in members}
    if arguments.output is not None:
        print_document(_document(fault, answers), arguments.output)
    elif harmless:
        print_out("no fault: with this successPolicy, exit code 0 is success")
    else:
        _print_answers(job, fault, answers)
    return ExitCode.OK


def _explain(arguments: argparse.Namespace) -> None:
    if arguments.file is not None or arguments.member is not None or arguments.log:
        raise UserError("--explain-defaults takes no FILE, --member or --log: the defaults are the same for every gang")
    if arguments.output is not None:
        print_document(defaults_document(), arguments.output)
        return
    for line in defaults_text():
        print_out(line)


def _print_answers(job: GangJob, fault: Fault, answers: _Answers) -> None:
    print_out(f"fault:  {clean(fault.message)}")
    by_answer: dict[tuple[Verdict, IncidentLevel], list[str]] = {}
    for member, answer in answers.items():
        by_answer.setdefault(answer, []).append(parse_member_name(member)[0])
    for (verdict, level), roles in by_answer.items():
        if len(by_answer) > 1:
            print_out(f"\nfor a member of {', '.join(roles)}:")
        print_out(f"rule:   {clean(verdict.rule) if verdict.rule else 'none'}: {clean(verdict.why)}")
        print_out(f"action: {verdict.action}: {_EFFECTS[verdict.action]}")
        if verdict.action is not Action.FAIL_JOB:
            print_out(f"level:  {level}: {_LEVELS[level]}")
        elif window := job.spec.recovery.evidence_window_seconds:
            print_out(
                f"        unless evidence of a device or node fault arrives within {window} s (evidenceWindowSeconds)"
            )
    if not job.spec.pod_failure_policy.rules:
        print_out("\nThe manifest has no podFailurePolicy.rules: every fault except a disruption is counted.")


def _document(fault: Fault, answers: _Answers) -> dict[str, Any]:
    return {
        "fault": {"reason": str(fault.reason), "message": fault.message},
        "verdicts": [
            {
                "member": member,
                "rule": verdict.rule,
                "action": str(verdict.action),
                "level": str(level),
                "charged": verdict.action is Action.COUNT,
                "why": verdict.why,
            }
            for member, (verdict, level) in answers.items()
        ],
    }


def _fault(arguments: argparse.Namespace) -> Fault:
    return fault_of(
        exit_code=arguments.exit_code,
        signal=arguments.signal,
        condition=arguments.condition,
        device_health=arguments.device_health,
        reason=arguments.reason and Reason(arguments.reason),
    )
