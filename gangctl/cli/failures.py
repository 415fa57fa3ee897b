"""Failures that the field has written about (``failures.yaml``), and what the default policy answers to each.

The rule: the table says what a failure looks like and means, and never what gangctl answers. ``default_answer`` asks
the policy with the functions of the controller, so the two can't differ.
"""

from __future__ import annotations

import json
import re
from argparse import ArgumentTypeError
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from importlib.resources import files
from itertools import groupby
from typing import Annotated, Any, Final

import yaml
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, model_validator
from pydantic.alias_generators import to_camel

from gangctl.api.gangjob import GangJob, Spec
from gangctl.api.incident import IncidentLevel
from gangctl.api.model import meanings
from gangctl.api.names import SIGNALS
from gangctl.api.policy import Action
from gangctl.api.reasons import Reason
from gangctl.cli.arguments import signal_number
from gangctl.core.facts.evidence import DEFAULTS, DISRUPTION_REASONS, Fault
from gangctl.core.policy.cause import Verdict
from gangctl.explain.forecast import judge
from gangctl.words.faults import exited
from gangsidecar.wire import Level, LogMatch

_CONDITION: Final = re.compile(r"(?P<type>[^=:\s]+)(=(?P<status>True|False|Unknown))?(:(?P<reason>\S+))?")
_ROLE: Final = {"name": "worker", "template": {"spec": {"containers": [{"name": "worker", "command": ["train"]}]}}}
NonEmpty = Annotated[str, Field(min_length=1)]

NO_FAULT: Final = "not a fault"


class Evidence(BaseModel):
    """The evidence that gangctl sees of a failure: one of these."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel)

    exit_code: Annotated[int, Field(ge=1, le=255)] | None = None
    signal: str | None = None
    reason: Reason | None = None
    container: Reason | None = None
    condition: str | None = None
    device_health: str | None = None
    log: str = ""
    """A line that was printed before; only beside an exit code or a signal."""

    @model_validator(mode="after")
    def _one(self) -> Evidence:
        kinds = self.model_fields_set - {"log"}
        if len(kinds) != 1 or (self.log and not kinds <= {"exit_code", "signal"}):
            raise ValueError("a failure needs one kind of evidence, and a line of the log stands beside an end")
        return self

    def fault(self) -> Fault:
        """The fault that the core makes of it, of no member."""
        return fault_of(
            exit_code=self.exit_code,
            signal=None if self.signal is None else signal_number(self.signal),
            container=self.container,
            condition=None if self.condition is None else pod_condition(self.condition),
            device_health=None if self.device_health is None else parse_device_health(self.device_health),
            reason=self.reason,
        )


class Failure(BaseModel):
    """One row: a failure that someone has written about."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: NonEmpty
    group: NonEmpty
    seen: NonEmpty
    evidence: Evidence | None = None
    """Absent: no fault reaches the policy."""
    means: NonEmpty
    more: str = ""
    """An action of gangctl beyond the policy's answer, or a limit."""
    rule: dict[str, Any] | None = None
    """A rule of ``podFailurePolicy`` that changes the answer."""
    source: NonEmpty
    tests: Annotated[tuple[NonEmpty, ...], Field(min_length=1)]


@cache
def documented_failures() -> tuple[Failure, ...]:
    """The rows of the package, in the order of their groups."""
    return TypeAdapter(tuple[Failure, ...]).validate_python(
        yaml.safe_load(files("gangctl.cli").joinpath("failures.yaml").read_text("utf-8"))
    )


def default_answer(fault: Fault, *rules: dict[str, Any], log: str = "") -> tuple[Verdict, IncidentLevel]:
    """The same in a gang of one role with these rules and else only defaults. ``log``: a line that was printed."""
    policy = {"podFailurePolicy": {"rules": list(rules)}} if rules else {}
    metadata = {"name": "any", "namespace": "any"}
    document = {"apiVersion": "gangctl.io/v1alpha1", "kind": "GangJob", "metadata": metadata}
    job = GangJob.model_validate({**document, "spec": {"roles": [_ROLE], **policy}})
    return judge(job, with_lines(fault, job.spec, [log]))


def fault_of(
    *,
    exit_code: int | None = None,
    signal: tuple[str, int] | None = None,
    container: Reason | None = None,
    condition: tuple[str, str, str] | None = None,
    device_health: tuple[str, str] | None = None,
    reason: Reason | None = None,
) -> Fault:
    """The fault that the core makes of one kind of evidence, of no member.

    Args:
        exit_code: a worker process exited with it.
        signal: ended a worker process; name and number.
        container: why a whole container ended, its supervisor with it.
        condition: of the pod; type, status and reason.
        device_health: resource and health of a device.
        reason: of the fault, if there is no other evidence.
    """
    if exit_code is not None:
        return Fault(Reason.EXIT_CODE, "", 0.0, exit_code=exit_code, message=exited(exit_code))
    if signal is not None:
        return Fault(Reason.SIGNAL, "", 0.0, signal=signal[1], message=f"ended by {signal[0]}")
    if container is not None:
        return Fault(container, "", 0.0, level=Level.CONTAINER, message=f"its container ended: {container}")
    if condition is not None:
        kind, state, why = condition
        its = DISRUPTION_REASONS.get(why, Reason.DISRUPTED) if kind == "DisruptionTarget" else Reason.POD_FAILED
        text = f"the pod has the condition {kind}={state}{f' ({why})' if why else ''}, which is {its}"
        return Fault(its, "", 0.0, conditions=(condition,), message=text)
    if device_health is not None:
        resource, health = device_health
        text = f"a device of {resource} is {health}"
        return Fault(Reason.DEVICE_LOST, "", 0.0, device="of the pod", resource=resource, health=health, message=text)
    assert reason is not None
    # The kernel's OOM killer sends SIGKILL, so an exit code rule for 137 matches as well.
    killed = SIGNALS["SIGKILL"] if reason is Reason.OOM_KILLED else None
    code = 1 if reason is Reason.EXIT_CODE_HIDDEN else None
    return Fault(reason, "", 0.0, signal=killed, exit_code=code, message=f"reason {reason}")


def with_lines(fault: Fault, spec: Spec, lines: Sequence[str]) -> Fault:
    """The same end of a worker process that has printed these lines, as the patterns of the policy find them."""
    found = [
        LogMatch(0, rule.on_log.pattern, line)
        for rule in spec.pod_failure_policy.rules
        if rule.on_log is not None
        for line in lines
        if re.search(rule.on_log.pattern, line)
    ]
    return replace(fault, lines=tuple(found))


def pod_condition(text: str) -> tuple[str, str, str]:
    """Type, status and reason of ``TYPE[=STATUS][:REASON]``, for argparse."""
    match = _CONDITION.fullmatch(text)
    if match is None:
        raise ArgumentTypeError(f"{text!r} instead of a condition such as DisruptionTarget=True")
    return match["type"], match["status"] or "True", match["reason"] or ""


def parse_device_health(text: str) -> tuple[str, str]:
    """Resource and health of ``RESOURCE=HEALTH``, for argparse."""
    resource, equals, health = text.rpartition("=")
    if not resource or not equals or health not in {"Unhealthy", "Unknown"}:
        raise ArgumentTypeError(f"{text!r} instead of RESOURCE=Unhealthy or RESOURCE=Unknown")
    return resource, health


def defaults_document() -> dict[str, Any]:
    """The whole table, for programs.

    Returns:
        ``{"reasons": [...], "failures": [...]}``, with the keys of the YAML file and of ``Default``, and ``answer``.
    """
    meaning = meanings(Reason)
    reasons = [
        {
            "reason": str(reason),
            "meaning": meaning[reason],
            "evidence": row.strength.name.capitalize(),
            "charged": row.charged,
            "level": str(row.level),
            "againstNode": row.against_node,
        }
        for reason, row in DEFAULTS.items()
    ]
    return {"reasons": reasons, "failures": [_as_object(one) for one in documented_failures()]}


def defaults_text() -> Iterator[str]:
    """The table as lines for a terminal."""
    yield f"{'REASON':<22}{'EVIDENCE':<12}{'CHARGED':<9}{'LEVEL':<11}NODE SUSPECTED"
    for reason, row in DEFAULTS.items():
        charged, suspected = ("yes" if one else "no" for one in (row.charged, row.against_node))
        yield f"{reason:<22}{row.strength.name.capitalize():<12}{charged:<9}{row.level:<11}{suspected}"
    for group, rows in groupby(documented_failures(), lambda one: one.group):
        yield from ("", group.upper())
        for one in rows:
            yield from ("", f"{one.name}: {one.seen}", f"  means   {one.means}", f"  answer  {_answer(one)}")
            if one.more:
                yield f"          {one.more}"
            if one.rule is not None:
                yield f"  rule    {rule_line(one.rule)}"
            yield f"  source  {one.source}"


def _answer(one: Failure) -> str:
    if one.evidence is None:
        return NO_FAULT
    fault = one.evidence.fault()
    verdict, level = default_answer(fault)
    return f"{fault.reason}, {'charged' if verdict.action is Action.COUNT else 'not charged'}, level {level}"


def rule_line(rule: dict[str, Any]) -> str:
    """The rule in one line of YAML, which JSON without its quotes is here."""
    return json.dumps(rule).replace('"', "")


def _as_object(one: Failure) -> dict[str, Any]:
    found = one.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return {**found, "answer": _answer(one)}
