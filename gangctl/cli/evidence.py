"""Evidence as a user writes it (an exit code, a signal, a condition), and the fault that the core makes of it."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from gangctl.api.gangjob import Spec
from gangctl.api.reasons import Reason
from gangctl.api.signals import SIGNALS
from gangctl.core.facts.evidence import DISRUPTION_REASONS, Fault
from gangctl.words.faults import exited
from gangsidecar.wire import Level, LogMatch

_CONDITION: Final = re.compile(r"(?P<type>[^=:\s]+)(=(?P<status>True|False|Unknown))?(:(?P<reason>\S+))?")


def of_exit_code(code: int) -> Fault:
    """A worker process exited with a code from 0 to 255."""
    return Fault(Reason.EXIT_CODE, "", 0.0, exit_code=code, message=exited(code))


def of_signal(signal: tuple[str, int]) -> Fault:
    """A signal, by name and number, ended a worker process."""
    name, number = signal
    return Fault(Reason.SIGNAL, "", 0.0, signal=number, message=f"ended by {name}")


def of_reason(reason: Reason) -> Fault:
    """A fault with this reason."""
    # The kernel's OOM killer sends SIGKILL, so an exit code rule for 137 matches as well.
    signal = SIGNALS["SIGKILL"] if reason is Reason.OOM_KILLED else None
    code = 1 if reason is Reason.EXIT_CODE_HIDDEN else None
    return Fault(reason, "", 0.0, signal=signal, exit_code=code, message=f"reason {reason}")


def of_container(reason: Reason) -> Fault:
    """A whole container ended, its supervisor with it."""
    return Fault(reason, "", 0.0, level=Level.CONTAINER, message=f"its container ended: {reason}")


def of_condition(condition: tuple[str, str, str]) -> Fault:
    """The pod has a condition: type, status, reason."""
    kind, state, why = condition
    reason = DISRUPTION_REASONS.get(why, Reason.DISRUPTED) if kind == "DisruptionTarget" else Reason.POD_FAILED
    text = f"the pod has the condition {kind}={state}{f' ({why})' if why else ''}, which is {reason}"
    return Fault(reason, "", 0.0, conditions=(condition,), message=text)


def of_device_health(device: tuple[str, str]) -> Fault:
    """A device of a resource has this health."""
    resource, health = device
    text = f"a device of {resource} is {health}"
    return Fault(Reason.DEVICE_LOST, "", 0.0, device="of the pod", resource=resource, health=health, message=text)


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


def condition(text: str) -> tuple[str, str, str]:
    """Type, status and reason of ``TYPE[=STATUS][:REASON]``.

    Raises:
        ArgumentTypeError: the text is no condition.
    """
    match = _CONDITION.fullmatch(text)
    if match is None:
        raise ArgumentTypeError(f"{text!r} instead of a condition such as DisruptionTarget=True")
    return match["type"], match["status"] or "True", match["reason"] or ""


def device_health(text: str) -> tuple[str, str]:
    """Resource and health of ``RESOURCE=HEALTH``.

    Raises:
        ArgumentTypeError: the text names no resource or no such health.
    """
    resource, equals, health = text.rpartition("=")
    if not resource or not equals or health not in {"Unhealthy", "Unknown"}:
        raise ArgumentTypeError(f"{text!r} instead of RESOURCE=Unhealthy or RESOURCE=Unknown")
    return resource, health
