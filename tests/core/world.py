"""A world for scenario files: pods that do what the file says, a clock that moves when it says so.

It is a fake, for scenarios only: whatever happens in it is written in the file. The core that decides is the real one.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import yaml

from gangctl.api.gangjob import GangJob
from gangctl.core.facts.printed import OutputRead
from gangctl.core.facts.world import NO_QUEUE, Brake, Heard, NodeState, Observed, Pod, Queue, Replica, gaps
from gangctl.core.lifecycle.decide import decide
from gangctl.core.lifecycle.directive import Directives, directives
from gangctl.core.lifecycle.plan import AskScan, DeleteGang, Plan
from gangctl.core.policy.admission import TellQueue
from gangctl.core.policy.brake import apply_brake
from gangctl.core.policy.pods import CreatePod, DeletePod
from gangsidecar.wire import Directive, End, Phase, Report, Scanned, aged
from tests.core import queues

START = 1_000_000.0
MANIFEST: dict[str, Any] = {
    "apiVersion": "gangctl.io/v1alpha1",
    "kind": "GangJob",
    "metadata": {"name": "g", "uid": "uid-g"},
    "spec": {
        "roles": [
            {
                "name": "worker",
                "replicas": 2,
                "template": {"spec": {"containers": [{"name": "t", "command": ["train"]}]}},
            }
        ]
    },
}


@dataclass
class World:
    """One gang in its world."""

    job: GangJob = field(default_factory=lambda: GangJob.model_validate(MANIFEST))
    now: float = START
    pods: dict[str, Pod] = field(default_factory=dict)
    heard: dict[str, Heard] = field(default_factory=dict)
    unheard: dict[str, Heard] = field(default_factory=dict)
    """What supervisors said to a controller that is gone."""
    lost: dict[str, float] = field(default_factory=dict)
    """Nodes that don't answer, and since when the controller sees it."""
    nodes: dict[str, NodeState] = field(default_factory=dict)
    unfavoured: frozenset[str] = frozenset()
    scanned: Scanned | None = None
    scanned_at: float = 0.0
    listening_since: float = START - 3600
    relayed_since: float = 0.0
    refused: tuple[str, ...] | None = ()
    brake: Brake = field(default_factory=Brake)
    queue: Queue = NO_QUEUE
    group: dict[str, Replica] = field(default_factory=dict)
    output: OutputRead | None = None
    directives: Directives | None = None
    """What the controller's hub tells."""
    gangs: int = 1
    """How many gangs the controller manages."""

    # What the file says of the job

    def submit(self, text: str) -> None:
        """A spec in YAML, laid over a gang of two workers; a role needs only name and replicas."""
        spec = {**MANIFEST["spec"], **(yaml.safe_load(text) or {})}
        spec["roles"] = [{**MANIFEST["spec"]["roles"][0], **role} for role in spec["roles"]]
        metadata = {**MANIFEST["metadata"], "generation": self.job.metadata.generation + bool(self.job.status.phase)}
        self.job = GangJob.model_validate({**MANIFEST, "metadata": metadata, "spec": spec, "status": self.job.status})

    # What the file says of pods

    def pod(self, member: str, **change: Any) -> None:
        """The member's newest pod changes."""
        uid = self.newest(member)
        self.pods[uid] = replace(self.pods[uid], **change)

    def newest(self, member: str) -> str:
        """UID of the member's newest pod; ``worker-1.0`` names an incarnation."""
        name, _, incarnation = member.partition(".")
        found = [
            pod
            for pod in self.pods.values()
            if pod.member == name and (not incarnation or pod.incarnation == int(incarnation))
        ]
        return max(found, key=lambda pod: pod.incarnation).uid

    def starts(self, member: str, node: str = "") -> None:
        """Its containers are started."""
        uid = self.newest(member)
        old = self.pods[uid]
        self.pods[uid] = replace(
            old, node=node or old.node or f"node-{old.member}", scheduled_at=self.now, started_at=self.now
        )

    # What the file says of supervisors

    def says(self, member: str, phase: Phase, attempt: int, **more: Any) -> None:
        """The supervisor of the member's newest pod sends a report."""
        uid = self.newest(member)
        pod = self.pods[uid]
        old = self.heard.get(uid)
        base = (
            old.report
            if old is not None
            else Report(
                gang=self.job.metadata.uid,
                member=pod.member,
                incarnation=pod.incarnation,
                pod=uid,
                session=f"session-{uid}",
                seq=0,
                attempt=0,
                phase=Phase.IDLE,
                address=f"10.0.0.{int(pod.member.rpartition('-')[2]) + 1}",
                ports=(29400, 29401),
            )
        )
        passed = 0 if old is None else round((self.now - old.at) * 1000)
        told = aged(base, passed)
        same = old is not None and (base.phase, base.attempt) == (phase, attempt)
        age = told.phase_age_ms if same else 0
        new = {"seq": base.seq + 1, "phase": phase, "attempt": attempt, "phase_age_ms": age, **more}
        if phase is Phase.RUNNING:
            new.setdefault("ran", attempt)
        since = old.since if old is not None and old.connected else self.now
        report = replace(told, **new)
        self.heard[uid] = Heard(report, self.now, since=since, gaps=gaps(old, report, self.now))

    def again(self, member: str, **more: Any) -> None:
        """The supervisor says the same with something added."""
        report = self.heard[self.newest(member)].report
        self.says(member, report.phase, report.attempt, **more)

    def beats(self) -> None:
        """Every supervisor that is connected says that all is as it was, which it does all the time."""
        for uid, one in self.heard.items():
            if one.connected:
                report = aged(one.report, round((self.now - one.at) * 1000))
                self.heard[uid] = replace(one, report=report, at=self.now)

    def ends(self, member: str, **end: Any) -> None:
        """A process of the member's worker ends."""
        report = self.heard[self.newest(member)].report
        attempt = end.pop("attempt", report.attempt)
        one = End(attempt, end.pop("local_rank", 0), end.pop("age_ms", 0), **end)
        self.again(member)
        self.again(member, ends=(*self.heard[self.newest(member)].report.ends, one))

    @property
    def told(self) -> int:
        """The revision of what supervisors are told to do without a controller."""
        return 0 if self.job.status.fencing is None else self.job.status.fencing.revision

    # What is decided and told

    def said(self, member: str) -> Directive | None:
        """What the supervisor of the member's newest pod is told."""
        return self.said_to(self.newest(member))

    def said_to(self, uid: str) -> Directive | None:
        """What the supervisor of this pod is told."""
        return self.publish()(self.heard[uid].report)

    def publish(self) -> Directives:
        """What is stored is what directives follow from."""
        self.directives = directives(lambda _gang: tuple(self.pods.values()), self.job, self.directives)
        return self.directives

    def observed(self) -> Observed:
        """The world as decide() sees it."""
        return apply_brake(self.really_observed(), self.brake, self.now)

    def really_observed(self) -> Observed:
        """The world as it is, whatever the brake."""
        return Observed(
            pods=tuple(sorted(self.pods.values(), key=lambda pod: pod.name)),
            heard=tuple(self.heard.values()),
            lost_nodes={node: max(at, self.listening_since) for node, at in self.lost.items()},
            nodes=self.nodes,
            unfavoured_nodes=self.unfavoured,
            scanned=self.scanned,
            scanned_at=self.scanned_at,
            listening_since=max(self.listening_since, self.relayed_since),
            watching_since=self.listening_since,
            relayed_since=self.relayed_since,
            refused=self.refused,
            queue=self.queue,
            group=tuple(self.group.values()),
            output=self.output,
            gangs=self.gangs,
        )

    def decide(self) -> Plan:
        """Decide and apply at once."""
        plan = self.plan()
        self.apply(plan)
        return plan

    def plan(self) -> Plan:
        """Decide, and do nothing about it."""
        plan = decide(self.now, self.job, self.observed())
        assert plan == decide(self.now, self.job, self.observed()), "the same inputs gave another plan"
        return plan

    def apply(self, plan: Plan) -> None:
        """Do what was decided: status first, then the rest."""
        if plan.status is not None:
            # Through JSON, as the status is stored in the world outside.
            stored = self.job.model_copy(update={"status": plan.status})
            self.job = GangJob.model_validate_json(stored.model_dump_json(by_alias=True, exclude_none=True))
            assert self.job.status == plan.status, "it is read back as another status"
        for action in plan.actions:
            match action:
                case CreatePod(member, incarnation):
                    if self.refused:
                        continue
                    uid = f"{member}.{incarnation}"
                    self.pods[uid] = Pod(f"g-{member}-{incarnation}", uid, member, incarnation, created_at=self.now)
                case DeletePod(_, uid):
                    if self.pods[uid].terminated:
                        del self.pods[uid]
                    else:
                        self.pods[uid] = replace(self.pods[uid], deleting=True)
                case TellQueue() as tell:
                    queues.told(self, tell)
                case DeleteGang() | AskScan():
                    pass
        self.publish()
