"""The examples of a gate in a pipeline: a Job, an analysis of Argo Rollouts, and the order of Flux.

Neither Argo nor Flux runs in a test: their fields are the documented ones. The gate runs on a cluster in e2e.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import yaml

from gangctl.annexes.node_records import gate_verb
from gangctl.api.pod_fields import unknown_fields

ROOT = Path(__file__).parents[3]


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((ROOT / "examples" / "rollout" / name).read_text()))


def gate_of(job: dict[str, Any]) -> argparse.Namespace:
    """The arguments of the gate in a Job's spec, which must not be tried again."""
    assert (job["backoffLimit"], job["template"]["spec"]["restartPolicy"]) == (0, "Never")
    assert list(unknown_fields(job["template"], ())) == []
    (container,) = job["template"]["spec"]["containers"]
    assert container["command"][:4] == ["python", "-m", "gangctl", "gate"]
    parser = argparse.ArgumentParser()
    gate_verb.configure(parser)
    found = parser.parse_args([*container["command"][4:], *container["args"]])
    gate_verb.check_sides(found)
    return found


def test_the_job_may_read_what_the_gate_reads() -> None:
    account, *bindings, job = documents("gate.yaml")
    assert gate_of(job["spec"]).watch
    assert job["spec"]["template"]["spec"]["serviceAccountName"] == account["metadata"]["name"]
    roles = [one["roleRef"]["name"] for one in bindings]
    assert roles == ["gangctl-explainer", "gangctl-node-records-reader"]
    chart = "".join(path.read_text() for path in (ROOT / "charts" / "gangctl" / "templates").glob("*role*.yaml"))
    assert "gangctl-explainer" in chart
    assert "-node-records-reader" in chart
    assert {one["subjects"][0]["name"] for one in bindings} == {account["metadata"]["name"]}


def test_the_analysis_passes_each_of_its_arguments_on() -> None:
    (template,) = documents("argo-rollouts.yaml")
    (metric,) = template["spec"]["metrics"]
    found = gate_of(metric["provider"]["job"]["spec"])
    given = {found.candidate_image, found.baseline_image, found.gangs}
    assert given == {f"{{{{args.{one['name']}}}}}" for one in template["spec"]["args"]}


def test_flux_changes_all_nodes_only_after_the_gate() -> None:
    found = {one["metadata"]["name"]: one["spec"] for one in documents("flux.yaml")}
    after = {name: [one["name"] for one in spec.get("dependsOn", ())] for name, spec in found.items()}
    assert after == {"driver-canary": [], "driver-gate": ["driver-canary"], "driver-all": ["driver-gate"]}
    assert all(found[name]["wait"] for name in ("driver-canary", "driver-gate")), "a Job that fails is waited for"
