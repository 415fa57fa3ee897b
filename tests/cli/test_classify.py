"""`gangctl classify`: the policy's answer, without a cluster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from gangctl.api.policy import OnReason
from gangctl.cli.main import main
from tests.cli.here import manifest

RULES = [
    {"name": "bad-config", "action": "FailJob", "onExitCodes": {"operator": "In", "values": [2, 78]}},
    {"name": "lost-gpu", "action": "Ignore", "level": "Pod", "onDeviceHealth": {"resourceNames": ["nvidia.com/gpu"]}},
    {"name": "preempted", "action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]},
    {"name": "killed", "action": "Count", "level": "Gang", "onSignals": ["SIGKILL", "SIGBUS"]},
    {"action": "FailJob", "roles": ["evaluator"], "onReasons": ["Hang"]},
    {"name": "xid", "action": "Count", "level": "Pod", "onLog": {"pattern": "Xid .*: (48|79)"}},
]


@pytest.fixture
def job(tmp_path: Path) -> str:
    document = manifest(podFailurePolicy={"rules": RULES})
    roles: list[dict[str, Any]] = document["spec"]["roles"]
    roles.append({**roles[0], "name": "evaluator"})
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(document))
    return str(path)


@pytest.mark.parametrize(
    ("fault", "rule", "action", "level"),
    [
        (["--exit-code", "78"], "bad-config", "FailJob", "Process"),
        (["--exit-code", "77"], None, "Count", "Process"),
        (["--exit-code", "137"], None, "Count", "Process"),
        (["--exit-code", "77", "--log", "step 7", "--log", "NVRM: Xid (PCI:0000:65:00): 79"], "xid", "Count", "Pod"),
        (["--signal", "TERM", "--log", "NVRM: Xid (PCI:0000:65:00): 48"], "xid", "Count", "Pod"),
        (["--exit-code", "77", "--log", "NVRM: Xid (PCI:0000:65:00): 13"], None, "Count", "Process"),
        (["--signal", "kill"], "killed", "Count", "Gang"),
        (["--signal", "7"], "killed", "Count", "Gang"),
        (["--device-health", "nvidia.com/gpu=Unhealthy"], "lost-gpu", "Ignore", "Pod"),
        (["--device-health", "amd.com/gpu=Unhealthy"], None, "Count", "Pod"),
        (["--condition", "DisruptionTarget"], "preempted", "Ignore", "Pod"),
        (["--condition", "DisruptionTarget=False"], None, "Ignore", "Pod"),
        (["--reason", "NodeLost"], None, "Ignore", "Pod"),
        (["--reason", "Hang", "--member", "worker-1"], None, "Count", "Process"),
        (["--reason", "Hang", "--member", "evaluator-0"], "rules[4]", "FailJob", "Process"),
    ],
)
def test_the_first_matching_rule_is_printed_with_its_consequence(
    capsys: pytest.CaptureFixture[str], job: str, fault: list[str], rule: str | None, action: str, level: str
) -> None:
    assert main(["classify", job, *fault, "-o", "json"]) == 0
    first = json.loads(capsys.readouterr().out)["verdicts"][0]
    assert (first["rule"], first["action"], first["level"]) == (rule, action, level)
    assert first["charged"] == (action == "Count")


@pytest.mark.parametrize("reason", list(OnReason))
def test_each_reason_that_a_rule_may_name_can_be_classified(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, reason: OnReason
) -> None:
    rule = {"name": "this", "action": "Ignore", "onReasons": [str(reason)]}
    (tmp_path / "job.yaml").write_text(json.dumps(manifest(["true"], 1, podFailurePolicy={"rules": [rule]})))
    assert main(["classify", str(tmp_path / "job.yaml"), "--reason", str(reason), "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["verdicts"][0]["rule"] == "this"


def test_roles_with_different_results_are_printed_separately(capsys: pytest.CaptureFixture[str], job: str) -> None:
    assert main(["classify", job, "--reason", "Hang"]) == 0
    out = capsys.readouterr().out
    assert "for a member of worker:" in out
    assert "for a member of evaluator:" in out
    assert "rules[4]: the reason is Hang" in out


def test_the_line_and_the_pattern_are_named(capsys: pytest.CaptureFixture[str], job: str) -> None:
    assert main(["classify", job, "--exit-code", "1", "--log", "Xid (0): 79"]) == 0
    assert "its log has the line 'Xid (0): 79', which matches 'Xid .*: (48|79)'" in capsys.readouterr().out


@pytest.mark.parametrize("fault", [["--reason", "Hang"], ["--condition", "DisruptionTarget"]])
def test_a_line_without_an_end_is_an_error(capsys: pytest.CaptureFixture[str], job: str, fault: list[str]) -> None:
    assert main(["classify", job, *fault, "--log", "Xid"]) == 2
    assert "--log needs --exit-code or --signal" in capsys.readouterr().err


def test_exit_code_0_is_no_fault(capsys: pytest.CaptureFixture[str], job: str) -> None:
    assert main(["classify", job, "--exit-code", "0"]) == 0
    assert "no fault" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--exit-code", "256"], "isn't an exit code: use a number from 0 to 255"),
        (["--signal", "SIGKIL"], "did you mean SIGKILL?"),
        (["--device-health", "gpu=Sick"], "RESOURCE=Unhealthy"),
        (["--reason", "Bored"], "invalid choice"),
        ([], "one of the arguments"),
    ],
)
def test_a_fault_that_does_not_exist_is_an_error(
    capsys: pytest.CaptureFixture[str], job: str, arguments: list[str], said: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["classify", job, *arguments])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("member", "said"),
    [
        ("worker-3", "did you mean"),
        ("launcher-0", "there are worker-0 to worker-2, evaluator-0"),
        ("worker", "worker-0"),
    ],
)
def test_a_member_that_does_not_exist_is_an_error(
    capsys: pytest.CaptureFixture[str], job: str, member: str, said: str
) -> None:
    assert main(["classify", job, "--exit-code", "1", "--member", member]) == 2
    err = capsys.readouterr().err
    assert f"has no member {member!r}" in err
    assert said in err
