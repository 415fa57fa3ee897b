"""The table of failures: what is seen, what it means, and where that is written.

The rule: the table says what is known, and never what gangctl answers. ``answer`` asks the policy with the functions of
the controller, so the two can't differ.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Annotated, Any, Final

import yaml
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, model_validator
from pydantic.alias_generators import to_camel

from gangctl.api.gangjob import GangJob
from gangctl.api.incident import IncidentLevel
from gangctl.api.reasons import Reason
from gangctl.cli import evidence
from gangctl.cli.argument_types import signal_number
from gangctl.core.facts.evidence import Fault
from gangctl.core.policy.rules import Verdict
from gangctl.explain.forecast import judge

_ROLE: Final = {"name": "worker", "template": {"spec": {"containers": [{"name": "worker", "command": ["train"]}]}}}
Text = Annotated[str, Field(min_length=1)]


class Evidence(BaseModel):
    """What gangctl sees of a failure: one of these."""

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
        if self.exit_code is not None:
            return evidence.of_exit_code(self.exit_code)
        if self.signal is not None:
            return evidence.of_signal(signal_number(self.signal))
        if self.container is not None:
            return evidence.of_container(self.container)
        if self.condition is not None:
            return evidence.of_condition(evidence.condition(self.condition))
        if self.device_health is not None:
            return evidence.of_device_health(evidence.device_health(self.device_health))
        assert self.reason is not None
        return evidence.of_reason(self.reason)


class Failure(BaseModel):
    """One row: a failure that someone has written about."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Text
    group: Text
    seen: Text
    evidence: Evidence | None = None
    """Absent: no fault reaches the policy."""
    means: Text
    more: str = ""
    """What gangctl does beyond the policy's answer, or can't do."""
    rule: dict[str, Any] | None = None
    """A rule of ``podFailurePolicy`` that changes the answer."""
    source: Text
    tests: Annotated[tuple[Text, ...], Field(min_length=1)]


_ROWS: Final = TypeAdapter(tuple[Failure, ...])


@cache
def failures() -> tuple[Failure, ...]:
    """The rows of the package, in the order of their groups."""
    return _ROWS.validate_python(yaml.safe_load(files(__package__).joinpath("failures.yaml").read_text("utf-8")))


def answer(fault: Fault, *rules: dict[str, Any], log: str = "") -> tuple[Verdict, IncidentLevel]:
    """The same in a gang of one role with these rules and else only defaults. ``log``: a line that was printed."""
    policy = {"podFailurePolicy": {"rules": list(rules)}} if rules else {}
    metadata = {"name": "any", "namespace": "any"}
    document = {"apiVersion": "gangctl.io/v1alpha1", "kind": "GangJob", "metadata": metadata}
    job = GangJob.model_validate({**document, "spec": {"roles": [_ROLE], **policy}})
    return judge(job, evidence.with_lines(fault, job.spec, [log]))
