"""A fake cluster: an API server, kubelets, kernels, sidecars and a network, in virtual time. It is a fake and says so.

The core and the machine in it are the real ones. Everything else is what :mod:`tests.simulation.moves` lets happen and
:mod:`tests.simulation.faults` lets go wrong. A universe is a few dictionaries of frozen values: cheap to copy.

What it assumes:

- A connection is ordered, as TCP is. Within a session reports may be late, repeated or reordered. A connection that
  has lost a message ends eventually.
- A controller refuses connections of pods that it doesn't see. It keeps a connection when its pod vanishes or its
  supervisor is silent.
- A controller's view is at most 10 s old when time passes. After a jump of time, only the optimistic lock protects a
  write.
- A worker on a lost node doesn't write to a shared directory. No timer binds a process that survives SIGKILL: while
  it is cut off with ``isolationTimeoutSeconds``, it is exempt from invariant 1.
- No checkpoint is deleted between the scan and the start of the last worker.
- A framework says Begun before it overwrites a part, and writes the file that marks a step complete last.
- Roles don't change while two controllers act.
- The search leaves out what only delays or repeats, messages for users, the brake, and one-way links.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from gangctl.api.gangjob import GangJob, Role, Spec
from gangctl.api.roles import Member, layout
from gangctl.api.status import GangPhase, Status
from gangctl.core.facts.gang import holders, roles_of, started_roles
from gangctl.core.facts.world import NO_QUEUE, Pod, Queue
from gangsidecar.supervisor import machine
from gangsidecar.supervisor.machine import history as histories
from gangsidecar.wire import Phase
from tests.simulation import checks, invariants, parking, power, restored, sidecars, sizes, truth
from tests.simulation import kept as keeping
from tests.simulation.disks import Disk
from tests.simulation.engine import Engine
from tests.simulation.invariants import Change
from tests.simulation.setups import Setup
from tests.simulation.values import CHILD, Box, Ghost, Leader, Proc, Relay, Signal, seconds
from tests.simulation.violations import require

SIGKILL, SIGTERM = 9, 15


@dataclass(slots=True)
class Universe:
    """The state of everything."""

    engine: Engine
    setup: Setup
    spec: Spec
    status: Status
    pods: dict[str, Pod]
    boxes: dict[str, Box]
    leaders: dict[int, Leader]
    now: int = 0
    generation: int = 1
    version: int = 0
    lost: frozenset[str] = frozenset()
    signals: frozenset[Signal] = frozenset()
    disk: Disk = field(default_factory=Disk)
    ghost: Ghost = field(default_factory=Ghost)
    changes: Counter[Change] = field(default_factory=Counter, compare=False)
    """How often each change of the lifecycle was stored."""
    power: Counter[str] = field(default_factory=Counter, compare=False)
    """How often each mechanism was reached."""
    struck: Counter[tuple[str, str]] = field(default_factory=Counter, compare=False)
    """How often each kind of fault struck in each phase."""
    newest_leader: int = 0
    skew: int = 0
    """How far the wall clocks have been set, in milliseconds."""
    creation_fails: bool = False
    starts_fail: bool = False
    mounts_fail: bool = False
    """New pods start without the shared directory."""
    phase_at: int = 0
    """When the stored phase began, or its time was written anew."""
    phase_skew: int = 0
    """How far the clock was set of the controller that stored that."""
    node_skew: int = 0
    """How far the clocks of nodes that pods are started on are off, in milliseconds."""
    unreachable: bool = False
    """No member reaches a controller."""
    leaderless: bool = False
    """No controller can lead."""
    parks: bool = False
    """The scripts can restart inside their processes."""
    sick: frozenset[str] = frozenset()
    """Nodes on which every check fails."""
    checks_fail: bool = False
    """Every check fails."""
    queue: Queue = NO_QUEUE
    scarce: bool = False
    """The queue gives as little quota as it may."""

    relays: tuple[Relay, ...] = ()
    """Absent where sidecars connect to the leader itself."""

    def copy(self) -> Universe:
        """A universe that goes its own way from here."""
        return replace(self, pods=dict(self.pods), boxes=dict(self.boxes), leaders=dict(self.leaders))

    # Looking at it

    @property
    def wall(self) -> float:
        """What wall clocks show, in seconds since the epoch."""
        return seconds(self.now + self.skew)

    def clock(self, leader: Leader) -> int:
        """What the clock of a controller shows, in milliseconds."""
        return self.now + leader.skew

    @property
    def host(self) -> Leader | None:
        """The controller that sidecars and relays are sent to: the newest, if it is there and awake."""
        leader = self.leaders.get(self.newest_leader)
        return None if leader is None or leader.frozen else leader

    @property
    def listens(self) -> bool:
        """Whether a member that the network reaches can connect: not while all replicas are frozen, if they relay."""
        return not self.unreachable and not (self.relays and all(one.frozen for one in self.relays))

    @property
    def members(self) -> Mapping[str, Member]:
        """All members by name."""
        return layout(self.spec.roles).members

    @property
    def roles(self) -> tuple[Role, ...]:
        """The roles with the size of the attempt that was started last."""
        return roles_of(self.spec, self.status)

    @property
    def places(self) -> Mapping[str, Member]:
        """The places that must be filled."""
        return layout(self.roles).places

    def group_of(self, member: str) -> str:
        """The member's process group."""
        role = member.rpartition("-")[0]
        return next(one.group for one in self.spec.roles if one.name == role)

    def job_of(self, spec: Spec, generation: int, status: Status) -> GangJob:
        """The GangJob as a controller has seen it."""
        metadata = self.setup.job.metadata.model_copy(update={"generation": generation})
        return self.setup.job.model_copy(update={"metadata": metadata, "spec": spec, "status": status})

    # The API server

    def store(self, leader: Leader, status: Status) -> None:
        """A status write arrives and is not refused."""
        old = self.status
        invariants.stored(self, leader, old, status)
        power.stored(self, leader, old, status)
        checks.stored(self, old, status)
        sizes.stored(self, leader, old, status)
        change = Change.of(old, status)
        if change is not None:
            self.changes[change] += 1
        if change is not None or status.phase_time != self.status.phase_time:
            self.phase_at, self.phase_skew = leader.thought_at, leader.skew
        self.status = self.engine.stored(status)
        self.version += 1
        stored = (status.attempt, str(status.phase))
        if stored not in self.ghost.stored:
            self.ghost = self.ghost._replace(stored=self.ghost.stored | {stored})
        if change is not None and status.phase is GangPhase.RUNNING:
            truth.started(self, leader, status)
        elif set(started_roles(status)).difference(started_roles(old)):
            truth.roles_started(self, leader)

    def change_spec(self, **update: Any) -> None:
        """The user changes something."""
        self.spec = self.spec.model_copy(update=update)
        self.generation += 1
        self.version += 1
        self.note_policy()

    def note_policy(self) -> None:
        """What the invariants go by is the loosest policy that was ever in force."""
        recovery, ghost = self.spec.recovery, self.ghost
        grace = recovery.lost_pod_grace_seconds if ghost.grace is None else ghost.grace
        self.ghost = ghost._replace(
            isolated=ghost.isolated or recovery.isolation_timeout_seconds is not None,
            grace=min(grace, recovery.lost_pod_grace_seconds),
        )

    def create_pod(self, member: str, incarnation: int) -> None:
        """Create a pod; the name that is taken makes it harmless."""
        if any((pod.member, pod.incarnation) == (member, incarnation) for pod in self.pods.values()):
            return
        uid = f"{member}.{incarnation}"
        while uid in self.boxes or uid in dict(self.ghost.gone_since):
            uid += "'"
        name = f"g-{member}-{incarnation}"
        self.pods[uid] = Pod(name, uid, member, incarnation, created_at=self.wall)
        invariants.made(self, member, incarnation)

    def delete_pod(self, uid: str) -> None:
        """Begin to delete a pod gracefully."""
        self.pods[uid] = replace(self.pods[uid], deleting=True)
        self.note_lost(uid)

    def remove_pod(self, uid: str) -> None:
        """The pod's object is gone from the API. What no controller has known for long goes with it."""
        pod = self.pods.pop(uid)
        box = self.boxes.get(uid)
        truth.forget(self, uid)
        if box is not None and not pod.terminated:
            self._gone(uid)
        if box is None or box.exited:
            self.boxes.pop(uid, None)

    def note_lost(self, uid: str) -> None:
        """A pod that is deleted on a node that doesn't answer begins to be lost."""
        pod = self.pods[uid]
        if pod.deleting and pod.node in self.lost and uid in self.boxes:
            self._gone(uid)

    def node_is_back(self, node: str) -> None:
        """A node answers again: what was only missed is there; what has been lost stays lost until it has ended."""
        self.lost -= {node}
        back = {uid for uid, pod in self.pods.items() if pod.node == node and not invariants.is_lost(self, uid)}
        self.ghost = self.ghost._replace(excused=self.status.attempt)
        kept = tuple(entry for entry in self.ghost.gone_since if entry[0] not in back)
        self.ghost = self.ghost._replace(gone_since=kept)

    def _gone(self, uid: str) -> None:
        if uid not in dict(self.ghost.gone_since):
            self.ghost = self.ghost._replace(gone_since=(*self.ghost.gone_since, (uid, self.now)))

    # Supervisors

    def feed(self, uid: str, first: machine.Input) -> None:
        """One event for a supervisor's machine, and what its effects lead to at once."""
        events: deque[machine.Input] = deque([first])
        while events:
            box, event = self.boxes[uid], events.popleft()
            if box.machine is None:
                return
            after, effects = self.engine.step(box.machine, self.now, event)
            invariants.stepped(box.machine, after)
            power.stepped(self, event, box.machine, after)
            invariants.said_ready(box, after)
            if after.phase is Phase.READY and after.directive is not None:
                said = (after.session, after.directive.attempt)
                if said not in self.ghost.ready:
                    self.ghost = self.ghost._replace(ready=self.ghost.ready | {said})
            self.boxes[uid] = box._replace(machine=after)
            parking.kept(self, uid)
            for effect in effects:
                events.extend(self._carry_out(uid, effect))

    def _carry_out(self, uid: str, effect: machine.Effect) -> list[machine.Input]:
        box = self.boxes[uid]
        match effect:
            case machine.Spawn():
                return self._spawn(uid, effect)
            case machine.LookForRestore():
                self.boxes[uid] = box._replace(inbox=(*box.inbox, effect))
            case machine.FindPorts(attempt):
                return [machine.PortsFound(attempt, (29400, 29401))]
            case machine.Signal():
                self.boxes[uid] = box._replace(procs=parking.signalled(box, effect))
            case machine.Park():
                self.boxes[uid] = box._replace(procs=parking.asked(box, effect))
            case machine.Kill(local_rank):
                return parking.ended(self, uid, local_rank)
            case machine.RunCheck(check):
                checks.begin(self, uid, check)
            case machine.KillTree():
                truth.killed(self, box)
                checks.killed(self, uid)
                return parking.killed(self, uid)
            case machine.Save():
                assert box.machine is not None
                lasting = replace(box.machine.history, checkpoints=machine.lasting_checkpoints(box.machine))
                self.boxes[uid] = box._replace(history=lasting, ran=box.machine.ran_in_pod)
            case machine.Send():
                sidecars.report(self, uid)
            case machine.Quit():
                self.boxes[uid] = box._replace(ending=True)
        return []

    def _spawn(self, uid: str, effect: machine.Spawn) -> list[machine.Input]:
        box = self.boxes[uid]
        assert box.machine is not None
        invariants.spawned(self, box, effect)
        require(box.check is None, 16, f"{uid} starts its worker, and a check runs in it")
        self.ghost = self.ghost._replace(spawned=self.ghost.spawned | {(box.machine.session, effect.attempt)})
        parked = box.parked
        parking.goes_on(self, uid, effect)
        box = self.boxes[uid]
        procs = [
            keeping.started(self, effect.run, parked, Proc(effect.attempt, process.local_rank, process.rank))
            for process in effect.run.processes
        ]
        if not self.engine.searching:
            procs.append(Proc(effect.attempt, CHILD, None))
        if box.unable and not effect.parked:
            self.boxes[uid] = box._replace(unable=False)
            failed = [machine.Exited(one.local_rank, 127, message="no such file") for one in effect.run.processes]
            return [*failed, machine.TreeGone()]
        self.boxes[uid] = box = box._replace(procs=tuple(procs))
        self.boxes[uid] = restored.loaded(self, box, effect.run)
        invariants.one_attempt(self)
        can = [one.local_rank for one in effect.run.processes if self.parks and one.local_rank not in effect.parked]
        return [machine.Started(), *map(machine.Parkable, can)]

    def died(
        self, uid: str, proc: Proc, code: int | None, signum: int | None, *, oom: bool = False
    ) -> list[machine.Input]:
        """A process is gone; the supervisor reaps it before anything else."""
        box = self.boxes[uid]
        procs = tuple(one for one in box.procs if one != proc)
        state = box.machine
        self.boxes[uid] = box._replace(procs=procs)
        if state is None:
            return []
        natural = not proc.termed and state.stop is None and state.terminated_at is None
        if code == 0 and natural and proc.local_rank != CHILD:
            truth.finished(self, self.boxes[uid], (proc.attempt, box.member, proc.local_rank))
        exited: list[machine.Input] = (
            [] if proc.local_rank == CHILD else [machine.Exited(proc.local_rank, code, signum, oom=oom)]
        )
        return exited if procs else [*exited, machine.TreeGone()]

    def end_process(self, uid: str, proc: Proc, code: int | None, signum: int | None, *, oom: bool = False) -> None:
        """A process ends, by itself or by a signal."""
        for event in self.died(uid, proc, code, signum, oom=oom):
            self.feed(uid, event)

    def begin_session(self, uid: str) -> None:
        """A supervisor starts in a box; what an earlier one has left is killed before it says anything."""
        box = self.boxes[uid]
        number, rebooted = box.sessions + 1, box.boots != box.known_boots
        identity = machine.PodIdentity(
            self.setup.job.metadata.uid, box.member, box.incarnation, uid, f"10.0.0.{len(uid)}"
        )
        state = machine.start_session(
            identity,
            f"{uid}/{number}",
            self.now,
            histories.ends(box.history, self.now),
            tuple(replace(one, earlier_boot=one.earlier_boot or rebooted) for one in box.history.checkpoints),
            box.history.dropped,
            ran=box.ran,
        )
        self.boxes[uid] = box._replace(
            machine=self.engine.keep(state),
            sessions=number,
            known_boots=box.boots,
            history=state.history,
            procs=(),
            check=None,
            parked=(),
            inbox=(),
            ending=False,
        )
        if self.status.phase is GangPhase.RUNNING and box.member in holders(self.spec, self.status).values():
            self.ghost = self.ghost._replace(excused=self.status.attempt)
        sidecars.report(self, uid)
        kept = tuple(message for message in (box.kept, box.kept_scan) if message is not None)
        if kept:
            self.boxes[uid] = self.boxes[uid]._replace(down=(*kept, *self.boxes[uid].down))


def new_universe(setup: Setup, engine: Engine) -> Universe:
    """A gang that was just submitted, before a controller has looked at it."""
    u = Universe(engine, setup, setup.job.spec, engine.keep(setup.job.status), {}, {}, {}, queue=setup.queue)
    u.note_policy()
    return u
