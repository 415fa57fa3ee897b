"""Replica groups of torchft: one is killed, the other goes on without a restart, and the killed one heals from it."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from e2e import process_faults
from e2e.clusters import Cluster
from e2e.frameworks.examples import EXAMPLES
from e2e.gangs import CHECKPOINTS, Gang
from e2e.versions.test_versions import python
from tests.wait import until

Submit = Callable[[dict[str, Any]], Gang]
STEPS, ENOUGH, SECONDS = 500, 30, 300
RUNS = {"STEPS": str(STEPS), "SAME_BATCHES": "1"}


class Step(NamedTuple):
    """A step that a rank made, with so many replicas."""

    number: int
    replicas: int
    time: float


def steps(log: str) -> list[Step]:
    """The steps in a rank's log."""
    found = re.findall(r"step (\d+) of (\d+) at ([\d.]+)$", log, re.MULTILINE)
    return [Step(int(number), int(replicas), float(time)) for number, replicas, time in found]


def together(log: Callable[[], str], since: int = 0) -> int:
    """Wait until two replicas have made some steps together beyond this one; return the last of these."""
    made = partial(lambda: [one.number for one in steps(log()) if one.replicas == 2 and one.number > since])
    return until("steps of both replicas", lambda: found if len(found := made()) >= ENOUGH else None, SECONDS)[-1]


def check(survivor: str, killed: str, at: int, results: list[Path]) -> str:
    """Check that the survivor missed no step and the killed one did not begin anew; return the figures."""
    went_on, healed = steps(survivor), [one for one in steps(killed) if one.number > at]
    missed = [then.number for before, then in pairwise(went_on) if then.number != before.number + 1]
    alone = sum(one.replicas == 1 for one in went_on if one.number > at)
    assert missed == []
    assert went_on[-1].number == healed[-1].number == STEPS
    assert alone > 0
    first, tries = json.loads(results[0].read_text()), json.loads(results[1].read_text())["tries"]
    assert all(json.loads(result.read_text())["weights"] == first["weights"] for result in results)
    assert tries < STEPS
    longest = max(then.time - before.time for before, then in pairwise(went_on) if then.number > at - 1)
    return (
        f"the other missed {len(missed)} steps, repeated {first['tries'] - len(went_on)}, made {alone} alone and stood "
        f"still for {longest:.2f} s; the killed one made {tries} of {STEPS} again or together "
    )


def documents(environment: dict[str, str]) -> list[dict[str, Any]]:
    """The example, with more variables for the workers."""
    found: list[dict[str, Any]] = list(yaml.safe_load_all((EXAMPLES / "frameworks/torchft.yaml").read_text()))
    for one in found:
        if one["kind"] == "GangJob":
            container = one["spec"]["roles"][0]["template"]["spec"]["containers"][0]
            container["env"] += [{"name": name, "value": value} for name, value in environment.items()]
    return found


def on_the_cluster(one: dict[str, Any], namespace: str, folder: Path) -> dict[str, Any]:
    """A document of the example that runs this machine's Python, with torchft, in the tests' image."""
    pod = (one["spec"] if one["kind"] == "Deployment" else one["spec"]["roles"][0])["template"]["spec"]
    real, packages = python("torchft").resolve(), next(python("torchft").parents[1].glob("lib/python*/site-packages"))
    mounted = {"python": Path(sys.base_prefix), "packages": packages.parents[2], "checkpoints": folder}
    (container,) = pod["containers"]
    container |= {"name": "main", "image": "gangctl/examples:e2e"}
    container["command"][:1] = [str(real), str(packages.parents[2] / "bin/torchft_lighthouse")]
    if one["kind"] == "GangJob":
        container["command"] = [str(real), f"{CHECKPOINTS}/train_torchft.py"]
        pod["dnsConfig"] = {"searches": [f"torchft.{namespace}.svc.cluster.local"]}
    container.setdefault("env", []).append({"name": "PYTHONPATH", "value": str(packages)})
    paths = {name: CHECKPOINTS if name == "checkpoints" else str(path) for name, path in mounted.items()}
    container["volumeMounts"] = [{"name": name, "mountPath": path} for name, path in paths.items()]
    pod["volumes"] = [{"name": name, "hostPath": {"path": str(path)}} for name, path in mounted.items()]
    return one


@pytest.mark.nightly
def test_torchft_goes_on(
    cluster: Cluster, namespace: str, submit: Submit, shared_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Four pods; one rank of replica 1 is killed, so that gangctl restarts both of its ranks."""
    (shared_dir / "train_torchft.py").write_text((EXAMPLES / "frameworks/train_torchft.py").read_text())
    for name in "012":
        (shared_dir / name).mkdir()
    gangs = []
    for one in documents({**RUNS, "STEP_SECONDS": "0.05"}):
        if one["kind"] == "Service":
            cluster.kubectl("apply", "-n", namespace, "-f", "-", stdin=yaml.safe_dump(one))
        elif one["kind"] == "Deployment":
            made = yaml.safe_dump(on_the_cluster(one, namespace, shared_dir))
            cluster.kubectl("apply", "-n", namespace, "-f", "-", stdin=made)
        else:
            gangs.append(submit(on_the_cluster(one, namespace, shared_dir)))
    other, killed = gangs
    for gang in gangs:
        gang.runs(1, SECONDS)
    together(lambda: other.log("worker-0"))
    process_faults.kill(process_faults.worker(killed.uids()["worker-1"]))
    at = steps(killed.log("worker-0"))[-1].number
    killed.runs(2, SECONDS)
    together(lambda: other.log("worker-0"), at)
    first, second = (gang.log("worker-0") for gang in gangs if gang.ends("Succeeded", SECONDS))
    assert (other.status["attempt"], killed.status["attempt"]) == (1, 2)
    alone = yaml.safe_dump(on_the_cluster(documents(RUNS)[-1], namespace, shared_dir))
    alone = alone.replace("torchft-1", "alone").replace("/checkpoints/1", "/checkpoints/2")
    submit(yaml.safe_load(alone)).ends("Succeeded", SECONDS)
    with capsys.disabled():
        print(f"\n  {check(first, second, at, [shared_dir / name / 'result.json' for name in '012'])}", end="")
