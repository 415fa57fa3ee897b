"""Roles that wait for others: what must not be taken for a fault of theirs."""

from __future__ import annotations

from gangctl.api.status import GangPhase
from gangctl.core.facts.gang import started_roles
from tests.core.scenario import sentence
from tests.core.world import World

ROLES = """
roles: [{name: server, replicas: 1}, {name: worker, replicas: 1, dependsOn: [{name: server}]}]
progress: {timeoutSeconds: 60, startupTimeoutSeconds: 60, onHang: Restart}
recovery: {barrierTimeoutSeconds: 60}
"""

PROBED = """
roles:
- name: server
  replicas: 1
  template:
    spec:
      containers:
      - {name: t, command: [serve], readinessProbe: {tcpSocket: {port: 80}, periodSeconds: 5, failureThreshold: 2}}
- {name: worker, replicas: 1, dependsOn: [{name: server}]}
"""


def says(made: World, *sentences: str) -> None:
    for one in sentences:
        sentence(made, one)
        while made.decide().status is not None:
            pass


def test_a_role_that_waits_neither_hangs_nor_is_late() -> None:
    made = World()
    made.submit(ROLES)
    says(made, "1 s pass", "every pod starts", "Ready of the pod of server-0 is False")
    says(made, "everyone is Ready", "server-0 runs")
    for _ in range(30):
        says(made, "10 s pass", "Ready of the pod of server-0 is False")
        assert (made.job.status.phase, made.job.status.attempt) == (GangPhase.RUNNING, 1)
    says(made, "Ready of the pod of server-0 is True", "everyone runs")
    assert (made.job.status.phase, made.job.status.attempt) == (GangPhase.RUNNING, 1)
    says(made, "100 s pass")
    assert made.job.status.incidents[0].cause.reason == "Hang"


def test_after_a_restart_ready_may_be_that_of_the_attempt_before() -> None:
    """The probe gets the time to fail: 2 times 5 s, 1 s for an answer, and a margin."""
    made = World()
    made.submit(PROBED)
    says(made, "1 s pass", "every pod starts", "everyone is Ready", "server-0 runs")
    says(made, "Ready of the pod of server-0 is True")
    says(made, "everyone runs", "10 s pass", "worker-0 ends with 1", "everyone is Ready", "server-0 runs", "10 s pass")
    assert (made.job.status.phase, made.job.status.attempt) == (GangPhase.RUNNING, 2)
    assert started_roles(made.job.status) == ()
    says(made, "10 s pass")
    assert started_roles(made.job.status) == ("worker",)
