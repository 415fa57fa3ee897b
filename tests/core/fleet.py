"""The pods of a large gang and their supervisors, for tests of what grows with the members."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from gangctl.api.gangjob import GangJob
from gangctl.api.model import changed
from gangctl.api.names import pod_name
from gangctl.api.roles import number_places
from gangctl.api.status import GangPhase, Status
from gangctl.core.facts.gang import Gang
from gangctl.core.facts.world import Heard, Observed, Pod
from gangctl.core.lifecycle.decide import decide
from gangctl.core.lifecycle.plan import Plan
from gangctl.core.policy.pods import CreatePod, DeletePod
from gangsidecar.wire import Checkpoint, Found, Phase, Progress, Report, Scanned
from tests.core.storing import WORST, stored_again
from tests.core.world import START

LONG_PATH = "/checkpoints/" + "p" * 240


class Fleet:
    """The pods of a large gang, and their supervisors, which do at once what they are told."""

    def __init__(self, spec: dict[str, Any], limit: int = WORST) -> None:
        template = {"spec": {"containers": [{"name": "worker", "command": ["train"]}]}}
        roles = [{"name": "worker", "template": template, **role} for role in spec.pop("roles")]
        self.job = GangJob.model_validate(
            {
                "apiVersion": "gangctl.io/v1alpha1",
                "kind": "GangJob",
                "metadata": {"name": "g", "uid": "u"},
                "spec": {"roles": roles, **spec},
            }
        )
        self.now = START
        self.limit = limit
        self.largest = 0
        self.pods: dict[str, Pod] = {}
        self.heard: dict[str, Heard] = {}
        self.lost_nodes: dict[str, float] = {}
        self.node = "node-{}"
        self.step = 0
        self.told: dict[str, object] = {}
        """Pod -> what its supervisor did last."""
        self.registered = 0
        """Steps that every rank has registered."""
        self.starts: Callable[[str], bool] = lambda _member: True
        """Whether a member's new pod starts."""
        self.speaks: Callable[[str], bool] = lambda _member: True
        """Whether a member's supervisor connects."""

    @property
    def status(self) -> Status:
        """The stored status."""
        return self.job.status

    def look(self) -> Observed:
        """What the controller sees."""
        tiers = () if self.job.spec.checkpoint is None else self.job.spec.checkpoint.tiers
        shared = [tier for tier in tiers if tier.source.type == "Directory"]
        found = tuple(
            Found(tier.name, step, f"{LONG_PATH}/{step}", "m" * 60)
            for tier in shared
            for step in range(self.step, max(0, self.step - 64), -1)
        )
        return Observed(
            pods=tuple(self.pods.values()),
            heard=tuple(self.heard.values()),
            lost_nodes=self.lost_nodes,
            scanned=Scanned(self.status.attempt, "u0", found[:64]) if shared else None,
            scanned_at=self.now,
            listening_since=START - 3600,
        )

    def turn(self) -> Plan:
        """One decision, stored and carried out."""
        plan = decide(self.now, self.job, self.look())
        if plan.status is not None:
            self.largest = max(self.largest, len(plan.status.model_dump_json(by_alias=True, exclude_none=True)))
            self.job = changed(self.job, status=stored_again(plan.status, self.limit))
        for action in plan.actions:
            match action:
                case CreatePod():
                    self._create(action)
                case DeletePod():
                    self.delete(action.uid)
                case _:
                    pass
        return plan

    def delete(self, uid: str) -> None:
        """The pod is gone at once, without a word."""
        self.pods.pop(uid, None)
        self.heard.pop(uid, None)

    def _create(self, action: CreatePod) -> None:
        name = pod_name("g", action.member, action.incarnation)
        node = self.node.format(action.member)
        self.pods[name] = Pod(name, name, action.member, action.incarnation, node, self.now, self.now)
        if self.starts(action.member):
            self.pods[name] = replace(self.pods[name], started_at=self.now)

    def obey(self) -> None:
        """Every supervisor that speaks does what the status says."""
        gang = Gang(self.now, self.job, self.look())
        running = self.status.phase is GangPhase.RUNNING
        places = {holder: place for place, holder in gang.holders.items()}
        ranks = number_places(self.job.spec.roles).ranks
        for member, pod in gang.pods.items():
            if pod.started_at is None or not self.speaks(member):
                continue
            runs = running and member in gang.holding
            phase = Phase.RUNNING if runs else Phase.READY
            old = self.heard.get(pod.uid)
            state = (phase, self.status.attempt, self.step, self.registered)
            if old is not None and old.connected and self.told.get(pod.uid) == state:
                continue
            self.told[pod.uid] = state
            ends = () if old is None or runs else tuple(end for end in old.report.ends if not end.stopped)
            self.heard[pod.uid] = Heard(
                Report(
                    gang="u",
                    member=member,
                    incarnation=pod.incarnation,
                    pod=pod.uid,
                    session="s",
                    seq=1,
                    attempt=self.status.attempt,
                    phase=phase,
                    ends=ends[-2:],
                    checkpoints=tuple(
                        Checkpoint("api", step, rank, 1, f"{LONG_PATH}/{step}")
                        for step in range(1, self.registered + 1)
                        for rank in ranks.get(places.get(member, ""), ())
                    ),
                    progress=Progress(self.status.attempt, self.step, 10, first_step=1, first_age_ms=20)
                    if runs
                    else None,
                    address=f"10.0.{len(member)}.{pod.incarnation}" + "x" * 60,
                    ports=(29400,),
                ),
                self.now,
            )

    def settle(self, turns: int = 25) -> None:
        """Let the gang come to rest."""
        for _ in range(turns):
            plan = self.turn()
            self.obey()
            if plan.status is not None or plan.actions:
                self.now += 1
            elif self.status.phase in {GangPhase.RUNNING, GangPhase.HELD, GangPhase.SUSPENDED}:
                return
            else:
                self.now += min(600, plan.requeue_after or 10)

    def report(self, members: list[str], **changes: Any) -> None:
        """Change the reports of these members."""
        uids = {pod.member: uid for uid, pod in self.pods.items() if uid in self.heard}
        for member in members:
            one = self.heard[uids[member]]
            self.heard[uids[member]] = Heard(replace(one.report, **changes), self.now)
            self.told.pop(uids[member], None)

    def pod(self, members: list[str], **changes: Any) -> None:
        """Change the newest pods of these members."""
        uids = {pod.member: uid for uid, pod in self.pods.items()}
        for member in members:
            self.pods[uids[member]] = replace(self.pods[uids[member]], **changes)
