"""examples/serving: the Service selects rank 0 of each replica, in every incarnation, and no other pod."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from gangctl.api.gangjob import GangJob
from gangctl.api.roles import number_places
from gangctl.cluster.kube.pod_builder import build_pod
from gangctl.core.policy.pods import CreatePod
from tests.cluster.kube.pod.podcases import CONTACT, SETTINGS

EXAMPLES = Path(__file__).parents[4] / "examples" / "serving"
SERVICE: dict[str, Any] = yaml.safe_load((EXAMPLES / "service.yaml").read_text())


@pytest.mark.parametrize("replica", ["a", "b"])
def test_the_service_selects_the_pods_of_rank_0_only_by_a_port_that_the_probe_asks(replica: str) -> None:
    document = yaml.safe_load((EXAMPLES / f"replica-{replica}.yaml").read_text())
    document["metadata"] |= {"namespace": "default", "uid": "0aa2c5b4-8c1d-4b0e-9d5e-7d6f3f1f2a11"}
    job = GangJob.model_validate(document)
    assert number_places(job.spec.roles).ranks == {"front-0": (0,), "back-0": (1,)}
    selected = []
    for member in ("front-0", "back-0"):
        for incarnation in (0, 4):
            pod = build_pod(job, CreatePod(member, incarnation), SETTINGS, CONTACT, restart_all=True)
            if SERVICE["spec"]["selector"].items() <= pod["metadata"]["labels"].items():
                selected.append((member, incarnation))
                (worker,) = [one for one in pod["spec"]["containers"] if one["name"] == "server"]
                (port,) = SERVICE["spec"]["ports"]
                assert port["targetPort"] in [one["name"] for one in worker["ports"]]
                probe = worker["readinessProbe"]
                assert probe["httpGet"]["port"] == port["targetPort"]
                assert job.spec.rolling is not None
                fails_after = probe["periodSeconds"] * probe["failureThreshold"] + probe["timeoutSeconds"]
                assert job.spec.rolling.min_ready_seconds > fails_after
    assert selected == [("front-0", 0), ("front-0", 4)]
