"""What ``gangctl convert`` makes, the API server accepts, and a converted Job trains."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.gangs import CHECKPOINTS, Gang
from gangctl.cli.main import main
from tests.annexes.convert.test_cases import CASES, words

pytestmark = pytest.mark.nightly

WORKER = f'echo "$RANK $WORLD_SIZE" > {CHECKPOINTS}/$RANK'


@pytest.mark.usefixtures("gangctl_installed")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
def test_the_api_server_accepts_what_convert_makes(
    case: Path, kubectl: Any, namespace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if main(["convert", *words(case)]) == 0:
        made = [one for one in yaml.safe_load_all(capsys.readouterr().out) if one["kind"] == "GangJob"]
        assert made
        for one in made:
            one["metadata"]["namespace"] = namespace
            kubectl("create", "--dry-run=server", "-f", "-", stdin=yaml.safe_dump(one))


def test_a_job_that_was_converted_runs(
    submit: Callable[[dict[str, Any]], Gang], shared_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    container = {
        "name": "main",
        "image": "gangctl/examples:e2e",
        "command": ["sh", "-c", WORKER],
        "volumeMounts": [{"name": "out", "mountPath": CHECKPOINTS}],
    }
    pod = {
        "restartPolicy": "Never",
        "containers": [container],
        "volumes": [{"name": "out", "hostPath": {"path": str(shared_dir)}}],
    }
    spec = {"completions": 3, "parallelism": 3, "completionMode": "Indexed", "template": {"spec": pod}}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "indexed"}, "spec": spec}
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
    assert main(["convert", str(tmp_path / "job.yaml")]) == 0
    submit(yaml.safe_load(capsys.readouterr().out)).ends("Succeeded", 60)
    assert [(shared_dir / str(rank)).read_text().split() for rank in range(3)] == [["0", "3"], ["1", "3"], ["2", "3"]]
