"""Which rule catches what: the matching of `podFailurePolicy`, as a table."""

from __future__ import annotations

from typing import Any

import pytest

from gangctl.api.gangjob import Action, GangJob, RuleLevel
from gangctl.api.reasons import Reason
from gangctl.core.facts.evidence import Fault
from gangctl.core.policy.cause import Verdict, verdict
from tests.core.world import MANIFEST

DISRUPTED = (("DisruptionTarget", "True", "PreemptionByScheduler"),)
CODES = {"onExitCodes": {"operator": "In", "values": [2, 137]}}


def judged(fault: Fault, *rules: dict[str, Any]) -> Verdict:
    """What these rules say of the fault, in a gang of workers and chiefs."""
    role = MANIFEST["spec"]["roles"][0]
    spec = {"roles": [role, {**role, "name": "chief"}], "podFailurePolicy": {"rules": list(rules)}}
    return verdict(GangJob.model_validate({**MANIFEST, "spec": spec}).spec, fault)


def fault(reason: Reason, member: str = "worker-1", **more: Any) -> Fault:
    """One piece of evidence."""
    return Fault(reason, member, 0.0, **more)


def exited(code: int, member: str = "worker-1") -> Fault:
    """A worker ended by itself."""
    return fault(Reason.EXIT_CODE, member, exit_code=code)


def killed(number: int) -> Fault:
    """A worker was ended by a signal."""
    return fault(Reason.SIGNAL, signal=number)


NOT_IN = {"onExitCodes": {"operator": "NotIn", "values": [1, 2]}}
OF_CHIEF = {**CODES, "roles": ["chief"]}
OF_T = {"onExitCodes": {"containerName": "t", "operator": "In", "values": [2]}}
OF_LOGS = {"onExitCodes": {"containerName": "logs", "operator": "In", "values": [2]}}
BUS = {"onSignals": ["SIGBUS", "SIGKILL"]}
EVICTED = {"onPodConditions": [{"type": "DisruptionTarget"}]}
NOT_EVICTED = {"onPodConditions": [{"type": "DisruptionTarget", "status": "False"}]}
SICK = {"onDeviceHealth": {"health": ["Unhealthy"]}}
SICK_GPU = {"onDeviceHealth": {"resourceNames": ["nvidia.com/gpu"], "health": ["Unhealthy"]}}
BOTH = {**CODES, **EVICTED}
UNHEALTHY = {"device": "nic-0", "resource": "nic", "health": "Unhealthy"}


@pytest.mark.parametrize(
    ("rule", "seen", "matches"),
    [
        pytest.param(CODES, exited(2), True, id="a code that is listed"),
        pytest.param(CODES, exited(3), False, id="a code that isn't listed"),
        pytest.param(CODES, killed(9), True, id="128+n is a process that signal n ended"),
        pytest.param(CODES, exited(137), True, id="128+n is an exit code, too"),
        pytest.param(CODES, killed(15), False, id="128+n of another signal"),
        pytest.param(CODES, fault(Reason.OOM_KILLED, signal=9), True, id="128+n of the signal of an out of memory"),
        pytest.param(CODES, fault(Reason.NODE_LOST), False, id="a lost node has no exit code"),
        pytest.param(NOT_IN, exited(3), True, id="NotIn: a code that isn't listed"),
        pytest.param(NOT_IN, exited(2), False, id="NotIn: a code that is listed"),
        pytest.param(NOT_IN, killed(9), True, id="NotIn: a signal"),
        pytest.param(NOT_IN, fault(Reason.POD_DELETED), False, id="NotIn: no exit code at all"),
        pytest.param(OF_CHIEF, exited(2), False, id="another role's member"),
        pytest.param(OF_CHIEF, exited(2, "chief-0"), True, id="the role's member"),
        pytest.param(OF_T, exited(2), True, id="the worker container by its name"),
        pytest.param(OF_LOGS, exited(2), False, id="another container of the pod"),
        pytest.param(BUS, killed(7), True, id="a signal that is listed"),
        pytest.param(BUS, killed(11), False, id="a signal that isn't listed"),
        pytest.param(BUS, exited(135), False, id="onSignals is not for exit codes"),
        pytest.param(EVICTED, fault(Reason.PREEMPTED, conditions=DISRUPTED), True, id="a condition of the pod"),
        pytest.param(EVICTED, exited(2), False, id="no condition"),
        pytest.param(NOT_EVICTED, fault(Reason.PREEMPTED, conditions=DISRUPTED), False, id="another status of it"),
        pytest.param(BOTH, exited(2), False, id="all matchers must hold: one doesn't"),
        pytest.param(BOTH, fault(Reason.EXIT_CODE, exit_code=2, conditions=DISRUPTED), True, id="all matchers hold"),
        pytest.param(SICK, fault(Reason.DEVICE_LOST, **UNHEALTHY), True, id="any device"),
        pytest.param(SICK_GPU, fault(Reason.DEVICE_LOST, **UNHEALTHY), False, id="a device of another resource"),
        pytest.param(SICK, exited(2), False, id="no device"),
        pytest.param({"onReasons": ["OOMKilled"]}, fault(Reason.OOM_KILLED, signal=9), True, id="a reason"),
        pytest.param({"onReasons": ["OOMKilled"]}, killed(9), False, id="another reason"),
        pytest.param({"onReasons": ["Hang"]}, fault(Reason.HANG, member=""), True, id="a fault of no member"),
        pytest.param({"onReasons": ["Hang"], "roles": ["worker"]}, fault(Reason.HANG, member=""), False, id="no role"),
    ],
)
def test_a_rule_matches_what_it_names(rule: dict[str, Any], seen: Fault, *, matches: bool) -> None:
    said = judged(seen, {"name": "it", "action": "FailJob", **rule})
    assert (said.rule == "it") is matches
    assert (said.action is Action.FAIL_JOB) is matches
    assert said.why


def test_the_first_rule_that_matches_wins() -> None:
    rules = [{"name": "first", "action": "Ignore", **NOT_IN}, {"name": "second", "action": "FailJob", **CODES}]
    assert judged(exited(137), *rules).rule == "first"
    assert judged(exited(2), *rules).rule == "second"


def test_a_verdict_names_a_nameless_rule_by_its_index() -> None:
    assert judged(exited(2), {"action": "Count", **BUS}, {"action": "Count", **CODES}).rule == "rules[1]"


def test_a_rule_sets_the_least_level() -> None:
    assert judged(exited(2), {"action": "Count", "level": "Gang", **CODES}).level is RuleLevel.GANG


@pytest.mark.parametrize("reason", ["Evicted", "Preempted", "Disrupted", "NodeLost", "PodDeleted", "RestartRequested"])
def test_the_default_does_not_charge_a_disruption(reason: str) -> None:
    assert judged(fault(Reason(reason))).action is Action.IGNORE


@pytest.mark.parametrize(
    "reason", ["ExitCode", "Signal", "DeviceLost", "ContainerRestarted", "PodFailed", "StartFailed"]
)
def test_the_default_counts_other_faults(reason: str) -> None:
    assert judged(fault(Reason(reason))).action is Action.COUNT


def test_a_rule_can_charge_a_disruption() -> None:
    seen = fault(Reason.PREEMPTED, conditions=DISRUPTED)
    assert judged(seen, {"name": "spot", "action": "Count", **EVICTED}).action is Action.COUNT
