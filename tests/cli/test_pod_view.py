"""The view of a gang of a cluster shows its pods, and claims nothing that only supervisors report."""

from __future__ import annotations

import json

from gangctl.api.stored import read_stored
from gangctl.cli.targets.kube import view_from_pods
from gangctl.cluster.kube.projections import PODS
from gangctl.story.words import state
from tests.cli.kube import job, pod


def test_the_state_of_a_member_is_what_kubectl_shows_of_its_pod() -> None:
    pulling = pod("worker-1", phase="Pending")
    pulling["status"]["containerStatuses"] = [
        {"name": "main", "restartCount": 0, "state": {"waiting": {"reason": "ImagePullBackOff"}}}
    ]
    found = [one for raw in (pod("worker-0"), pulling) if (one := PODS.item(json.dumps(raw).encode())) is not None]
    members = view_from_pods(read_stored(job()).job, found, 0.0).snapshot.members
    assert [state(one) for one in members] == ["Running", "ImagePullBackOff"]
    assert not any(one.connected or one.phase or one.attempt for one in members)
