"""Programs that are not in Python: examples/languages on a cluster, and a client made from the document of the API."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e import process_faults
from e2e.cluster import toolchain
from e2e.clusters import Cluster
from e2e.conftest import uncaptured
from e2e.gangs import CHECKPOINTS, Gang
from gangsidecar.agent import operations
from tests.cli.here import Here, here, manifest
from tests.cli.test_run_languages import expected
from tests.wait import until

EXAMPLES = Path(__file__).parents[2] / "examples" / "languages"
PROGRAM = Path(__file__).with_name("generated")
GENERATOR = "github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen@v2.8.2"
STEPS = 300


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Here]:
    """A folder for gangs of this machine."""
    with here(tmp_path) as one:
        yield one


def go(*words: str, folder: Path) -> str:
    """What Go prints; its programs are static."""
    command = [str(toolchain.go()), *words]
    return subprocess.run(
        command, cwd=folder, env={**os.environ, "CGO_ENABLED": "0"}, check=True, stdout=subprocess.PIPE, text=True
    ).stdout


@pytest.mark.parametrize("language", ["c", "go"])
def test_a_program_without_any_library_restarts_in_an_empty_image(
    language: str,
    submit: Callable[[dict[str, Any]], Gang],
    cluster: Cluster,
    request: pytest.FixtureRequest,
    shared_dir: Path,
) -> None:
    source, program = EXAMPLES / f"train.{language}", shared_dir / "train"
    if language == "c":
        subprocess.run(["cc", "-O2", "-static", "-o", program, source], check=True)
    else:
        go("build", "-o", str(program), str(source), folder=shared_dir)
    document = yaml.safe_load((EXAMPLES / "languages.yaml").read_text())
    pod = document["spec"]["roles"][0]["template"]["spec"]
    with uncaptured(request.config):
        pod["containers"][0] |= {"image": cluster.image("scratch"), "command": [f"{CHECKPOINTS}/train"]}
    pod["containers"][0]["env"].append({"name": "STEPS", "value": str(STEPS)})
    pod["volumes"][0]["hostPath"]["path"] = str(shared_dir)
    gang = submit(document)
    until("a checkpoint", lambda: all((shared_dir / f"step-30/rank-{rank}").exists() for rank in range(2)), 120)
    process_faults.kill(process_faults.worker(gang.uids()["worker-1"]))
    assert gang.runs(2)["restorePoint"]["step"] >= 20
    gang.ends()
    assert [int((shared_dir / f"result-{rank}").read_text()) for rank in range(2)] == [
        expected(rank, STEPS) for rank in range(2)
    ]


def test_a_client_that_is_generated_from_the_document_speaks_to_a_real_sidecar(folder: Here) -> None:
    sources = folder.path / "sources"
    shutil.copytree(PROGRAM, sources)
    (sources / "gang").mkdir()
    (sources / "openapi.json").write_text(json.dumps(operations.document()))
    made = go("run", GENERATOR, "-generate", "types,client", "-package", "gang", "openapi.json", folder=sources)
    (sources / "gang/gang.go").write_text(made)
    go("build", "-o", "../program", ".", folder=sources)
    tier = {"name": "shared", "scope": "Shared", "source": {"type": "API"}}
    folder.write(manifest(("./program",), replicas=1, checkpoint={"tiers": [tier]}))
    assert folder.run().wait() == 0
    log = (folder.path / ".gangctl/gangs/g/pods/g-worker-0-0/worker.log").read_text()
    said = re.findall(r"generated: (.*)", log)
    unknown = next(line for line in said if line.startswith("unknown"))
    assert unknown.startswith("unknown 422 TierUnknown ")
    assert "nowhere" in unknown
    assert [line for line in said if line != unknown] == [
        "attempt 200 1 Running",
        "progress 200",
        "checkpoint 200",
        "asked 202 2",
        "attempt 200 2 Running",
        "restore 7 shared",
        "loaded 200",
        "refused 409 AttemptOver",
    ]
