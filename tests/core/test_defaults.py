"""The defaults are a promise: what is charged, replaced and suspected is changed here on purpose, or not at all."""

from __future__ import annotations

import pytest

from gangctl.api.gangjob import GangJob
from gangctl.api.reasons import Reason
from gangctl.core.facts.evidence import DEFAULTS, VAGUE_REASONS, Fault
from gangctl.core.facts.fitness import NODE_EVIDENCE
from gangctl.core.facts.gang import Gang
from gangctl.core.facts.world import Observed
from gangctl.core.policy.cause import judge_fault, verdict
from gangctl.core.policy.recovery import level_of
from gangctl.words.faults import code_text
from tests.core.world import MANIFEST

STABLE = {
    "DeviceLost": ("Count", "Pod"),
    "Corruption": ("Count", "Pod"),
    "CheckFailed": ("Count", "Pod"),
    "NodeLost": ("Ignore", "Pod"),
    "NodeUnhealthy": ("Ignore", "Pod"),
    "NodeDrained": ("Ignore", "Pod"),
    "DeviceTainted": ("Ignore", "Pod"),
    "Evicted": ("Ignore", "Pod"),
    "StorageExceeded": ("Count", "Pod"),
    "Preempted": ("Ignore", "Pod"),
    "Disrupted": ("Ignore", "Pod"),
    "PodDeleted": ("Ignore", "Pod"),
    "PodFailed": ("Count", "Pod"),
    "ContainerRestarted": ("Count", "Container"),
    "ExitCode": ("Count", "Process"),
    "ExitCodeHidden": ("Count", "Process"),
    "Signal": ("Count", "Process"),
    "OOMKilled": ("Count", "Process"),
    "StartFailed": ("Count", "Process"),
    "Stuck": ("Count", "Pod"),
    "RestorePointMissing": ("Count", "Pod"),
    "Hang": ("Count", "Process"),
    "DeviceDegraded": ("Ignore", "Pod"),
    "Requested": ("Count", "Process"),
    "RestartRequested": ("Ignore", "Process"),
    "Growing": ("Ignore", "Process"),
    "QuotaReclaimed": ("Ignore", "Process"),
}
"""Reason -> action and level without a rule."""
WEAKEST_FIRST = (
    {
        "Stuck",
        "RestorePointMissing",
        "Hang",
        "DeviceDegraded",
        "Requested",
        "RestartRequested",
        "Growing",
        "QuotaReclaimed",
    },
    {"ExitCode", "ExitCodeHidden", "Signal", "OOMKilled", "StartFailed"},
    {"PodFailed", "ContainerRestarted"},
    {"NodeDrained", "DeviceTainted", "Evicted", "StorageExceeded", "Preempted", "Disrupted", "PodDeleted"},
    {"NodeLost", "NodeUnhealthy"},
    {"DeviceLost", "Corruption", "CheckFailed"},
)


def fault(reason: str) -> Fault:
    """One piece of evidence; a process that ended has a code."""
    return Fault(Reason(reason), "worker-1", 0.0, exit_code=1 if reason in WEAKEST_FIRST[1] else None)


def test_every_default_is_in_the_list() -> None:
    assert set(DEFAULTS) == set(STABLE)


@pytest.mark.parametrize("reason", STABLE)
def test_a_fault_without_a_rule_is_answered_as_promised(reason: str) -> None:
    job = GangJob.model_validate(MANIFEST)
    one = fault(reason)
    found = verdict(job.spec, one).action, level_of(Gang(0.0, job, Observed()), judge_fault(job.spec, one))
    assert found == STABLE[reason]


def test_evidence_outranks_as_promised() -> None:
    strengths = [{fault(reason).strength for reason in tier} for tier in WEAKEST_FIRST]
    assert all(len(tier) == 1 for tier in strengths)
    assert [max(tier) for tier in strengths] == sorted(max(tier) for tier in strengths)
    assert len({max(tier) for tier in strengths}) == len(WEAKEST_FIRST)


def test_what_is_vague_and_what_speaks_against_a_node_is_as_promised() -> None:
    assert {"Disrupted", "PodDeleted", "PodFailed", "ContainerRestarted"} == VAGUE_REASONS
    assert {"CheckFailed", "Corruption", "NodeLost", "NodeUnhealthy", "Stuck"} == NODE_EVIDENCE
    unclear = {"ContainerRestarted", "ExitCodeHidden", "Hang", "PodFailed", "Requested", "Signal"}
    assert {reason for reason, row in DEFAULTS.items() if row.unclear} == unclear


@pytest.mark.parametrize("code", [1, 127, 128, 160, 255])
def test_an_exit_code_that_stands_for_no_signal_is_told_alone(code: int) -> None:
    assert code_text(code) == f"exit code {code}"


@pytest.mark.parametrize(("code", "name"), [(129, "SIGHUP"), (134, "SIGABRT"), (139, "SIGSEGV"), (159, "SIGSYS")])
def test_an_exit_code_of_128_and_a_signal_is_told_with_its_name(code: int, name: str) -> None:
    assert code_text(code) == f"exit code {code} (128 + {name})"
