"""The world as decide() sees it: pods, nodes, devices, queues, and the reports of the sidecars. Frozen values.

What the queue that a gang names says: whether the gang may have its pods now. Frozen values.

The rule: only the queue admits. Where it isn't known what the queue says, nothing starts and nothing stops.

What decide() sees of the world: pods, nodes, devices, and the reports of the sidecars. Frozen values.

All times are seconds since the epoch on the clock of the controller's term, also where a node wrote another time.
Reports contain ages; ``Heard`` turns them into times.

Gaps: how long it took a pod from one report of progress to the next, as far as this controller has heard both.

    gap     = time of the newer progress - time of the older one
    counted <=> both are of the same attempt and session and came on one connection, steps are known, the newer one
                has another step or phase, and the older one is of phase Step: the other phases have their own timeouts

Several steps that one message folds make one gap, which is as long as all of them: it errs to the safe side. What a
controller has not heard must not count: neither a time without a connection nor one without a controller.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import Final, NamedTuple

from gangctl.core.facts.printed import OutputRead
from gangctl.words.faults import device_health
from gangctl.words.message import Message
from gangsidecar.wire import End, Phase, Report, Scanned

# What a node shows, as decide() sees it


class NodeAnswer(StrEnum):
    """What is done about a signal that a node shows, the strongest first."""

    LEAVE = "Leave"
    """The node is at fault: the gang's pods leave it at once, as after any fault."""
    DRAIN = "Drain"
    """The node is about to go: the gang's pods leave it at once, after all ranks have had time to save."""
    LEAVE_AT_RESTART = "LeaveAtRestart"
    """The gang's pods leave it when the gang restarts for another reason."""
    NOTE = "Note"
    """The status tells of it."""


class Shortage(NamedTuple):
    """A node has fewer healthy devices of a resource than it has devices."""

    resource: str
    allocatable: int
    """How many of them pods may have, as its kubelet says; 0 also while there is no device plugin."""


class NodeSignal(NamedTuple):
    """A condition, taint, label or amount which says that something is wrong with a node."""

    answer: NodeAnswer
    what: str
    """As it is written at the node: ``condition XIDErrors=True``."""
    since: float
    """When it came, as far as this controller knows; 0 if it may be of any age."""
    shortage: Shortage | None = None
    """It counts only against pods that have more of these devices than are allocatable."""
    pod: str = ""
    """UID of the only pod that it counts against, since it is about a device of that pod; empty = all on the node."""


class NodeState(NamedTuple):
    """What a node shows beside that it answers."""

    signals: tuple[NodeSignal, ...] = ()
    """The strongest answer first."""
    cordoned: bool = False
    """It takes no new pods (``spec.unschedulable``)."""


# What the queue that a gang names says


@dataclass(frozen=True, slots=True)
class Workload:
    """What the gang asks the queue for, as it is stored, and what the queue has answered."""

    queue: str
    """The queue that it waits in, or waited in."""
    roles_hash: str
    """Of the roles whose pods it asks for."""
    priority_class: str = ""
    admitted: bool = False
    """Whether the pods may be there: quota is reserved, every check has passed, and it isn't evicted."""
    reserved: bool = False
    """Whether quota is reserved for it."""
    evicted: bool = False
    """Whether the queue wants the quota back, or has it back."""
    ready: bool = False
    """Whether the queue was told that all pods run."""
    ended: bool = False
    """Whether the queue was told that the gang has ended."""
    said: str = ""
    """Why it isn't admitted, in the queue's words."""
    name: str = ""
    pods: Mapping[str, int] = field(default_factory=dict)
    """Role -> for how many pods it has quota once it is admitted; a role that isn't named has it for all."""
    places_pods: bool = False
    """Whether the queue says for each pod in which domain of its topology it is placed."""

    @property
    def gives(self) -> bool:
        """Whether its quota may be used."""
        return self.admitted and not self.ended


@dataclass(frozen=True, slots=True)
class Queue:
    """The queue of a gang."""

    name: str = ""
    """Empty = the gang names none, and its pods are created at once."""
    priority_class: str = ""
    """The priority class of the queue that the gang names."""
    known: bool = True
    """Whether ``workload`` is known: not while it can't be read."""
    known_since: float = 0.0
    """Since when, in seconds since the epoch."""
    workload: Workload | None = None
    """None = the queue wasn't asked."""
    more: tuple[Workload, ...] = ()
    """What was asked later, for members by which the gang grows, the oldest first (``policy/quota.py``)."""


NO_QUEUE: Final = Queue()


# What decide() sees of the world


CLAIM: Final = "claim:"
"""What the resource of a device starts with if a resource claim of the pod has it (Dynamic Resource Allocation)."""


@dataclass(frozen=True, slots=True)
class Device:
    """The health of one device that a pod was given."""

    resource: str
    """Of a device plugin: nvidia.com/gpu. Of a resource claim: claim:NAME, or claim:NAME/REQUEST."""
    name: str
    """Of a device plugin: its own. Of a claim: DRIVER/POOL/DEVICE, or its first CDI name."""
    health: str = "Healthy"
    """Healthy, Unhealthy or Unknown."""
    message: str = field(default="", compare=False)
    """What its driver says of its health, bounded. Not compared: a text that counts must not wake the gang."""

    def described(self) -> Message:
        """Return device and health in words."""
        return device_health(self.name, self.resource, self.health, self.message)

    @property
    def is_claimed(self) -> bool:
        """Whether it belongs to a resource claim of the pod."""
        return self.resource.startswith(CLAIM)


@dataclass(frozen=True, slots=True)
class LastWords:
    """What a supervisor left in the termination message of its container: how the worker's processes ended."""

    at: float
    """When the container ended, as its kubelet says, in whole seconds."""
    ends: tuple[End, ...] = ()
    """Those of the newest attempt that had any. Their ages count back from ``at``; they may be older: a supervisor that
    is killed can't write them anew."""


@dataclass(frozen=True, slots=True)
class StartFailure:
    """The newest start of the worker's container, in which none of its processes ran: why, as the cluster says."""

    reason: str
    """StartError, RunContainerError, CreateContainerError, CreateContainerConfigError, ImagePullBackOff,
    InvalidImageName ...; Error where there is an exit code alone."""
    message: str = ""
    """The words of the container runtime, or of the kubelet, bounded."""
    exit_code: int | None = None
    """Absent if no container was made."""


@dataclass(frozen=True, slots=True)
class SidecarEnd:
    """How gangctl's sidecar ended: one that has never reached the controller can't tell it otherwise."""

    at: float
    """As its kubelet says, in whole seconds."""
    said: str
    """Why, or with which exit code; bounded."""
    unreached: bool = False
    """Whether it ended because no sidecar of its pod had reached the controller until then."""


@dataclass(frozen=True, slots=True)
class Pod:
    """A projection of one pod of the gang."""

    name: str
    uid: str
    member: str
    incarnation: int
    node: str = ""
    """Empty while it isn't scheduled."""
    created_at: float = 0.0
    scheduled_at: float | None = None
    """When its condition PodScheduled became True; absent before."""
    started_at: float | None = None
    """When the last of the worker's container and gangctl's sidecar was started (``state.running.startedAt``); absent
    while one of them doesn't run: it waits for an image, is between two starts, or has ended."""
    ended_at: float | None = None
    """When the newest end of the worker's container was (``finishedAt`` of ``state`` or ``lastState``, which
    knows whole seconds); absent if none has ended. It is seen a moment after the next session has spoken."""
    ended_reason: str = ""
    """What Kubernetes says of that end: OOMKilled, Error, Completed."""
    last_words: LastWords | None = None
    """The newest of the worker's container. They outlive the supervisor, its connection and every controller."""
    start_failure: StartFailure | None = None
    """How the newest start of the worker's container failed; absent if it didn't, or if nothing is known of one."""
    restarts: int = 0
    """The highest ``restartCount`` of the worker's container and gangctl's. A user's init container that is tried
    again and again is the user's matter."""
    deleting: bool = False
    """It has a deletion timestamp. On a node that doesn't answer that may stay so until the node is back."""
    terminated: bool = False
    """Nothing of it runs nor will, and its kubelet said so: no container is running, and its phase is Succeeded or
    Failed, or it is being deleted and each of its containers has ended. Never because its node is silent (other
    controllers write the phase of such a pod), and never because all containers end for a moment when all are
    restarted."""
    reason: str = ""
    """Why it ended or can't start, in Kubernetes' words: the pod's own reason (Evicted, NodeShutdown), else that of a
    container that waits (ErrImagePull, ImagePullBackOff, CreateContainerConfigError, CrashLoopBackOff), else that of
    one that has ended (OOMKilled, Error), else what its condition PodScheduled says while it is False (a sentence).
    Empty while nothing is wrong, ContainerCreating and PodInitializing included."""
    detail: str = ""
    """What the cluster says beside that reason, bounded, with the name of the container if it isn't the worker's."""
    starting: str = ""
    """What the worker's container waits for while nothing is wrong, as ``init container fetch runs``; empty if that is
    an image or a volume, if the container was started, or if it isn't known."""
    sidecar_end: SidecarEnd | None = None
    """The newest end of gangctl's sidecar, if it came by itself and with an error."""
    conditions: tuple[tuple[str, str, str], ...] = ()
    """(type, status, reason) of its conditions, DisruptionTarget among them: rules can match them."""
    ready_at: float | None = None
    """When its condition Ready became True; absent while it isn't, and where no kubelet says it."""
    devices: tuple[Device, ...] = ()
    is_sound: bool = field(init=False, compare=False, repr=False)
    """It didn't end, doesn't end, and no device of it is unhealthy: nothing here can be a defect."""
    is_doubtful: bool = field(init=False, compare=False, repr=False)
    """The health of a device is unknown, which is a fault only where a rule says so. That of all claimed devices is, if
    their driver tells none."""

    def __post_init__(self) -> None:
        """Derive once what each look at the gang asks for."""
        ends = self.deleting or self.terminated or self.ended_at is not None or self.last_words is not None
        disrupted = any(kind == "DisruptionTarget" for kind, _, _ in self.conditions)
        health = {device.health for device in self.devices}
        object.__setattr__(self, "is_sound", "Unhealthy" not in health and not ends and not disrupted)
        object.__setattr__(self, "is_doubtful", "Unknown" in health)

    @property
    def is_ready(self) -> bool:
        """Whether it gets requests, as its kubelet says. A pod on this machine has no kubelet that says it."""
        shown = next((state for kind, state, _ in self.conditions if kind == "Ready"), "True")
        return shown == "True" and not self.deleting and not self.terminated

    @property
    def is_evicted(self) -> bool:
        """Whether its kubelet has evicted it."""
        return self.terminated and self.reason == "Evicted"


class RankPart(NamedTuple):
    """A rank's part of a checkpoint: what decides whether its step is complete. Most ranks have equal ones."""

    step: int
    attempt: int
    earlier_boot: bool
    has_path: bool


class Registered(NamedTuple):
    """What the ranks of one pod have registered in one tier."""

    parts: Mapping[int, tuple[RankPart, ...]]
    """Of each rank that has registered anything, in order."""
    ranks: tuple[int, ...]
    """These ranks, ascending."""
    kinds: frozenset[tuple[RankPart, ...]]
    """What they have registered, without saying who. Equal ones are one object: those of most pods are equal."""


class Gaps(NamedTuple):
    """The times between two steps that a pod reported in an attempt, as this controller has heard them."""

    attempt: int = -1
    seen: int = 0
    longest: float = 0.0
    """In seconds."""


NO_GAPS: Final = Gaps()


@dataclass(frozen=True, slots=True)
class Heard:
    """The newest report of a pod's supervisor."""

    report: Report
    at: float
    """When it arrived."""
    connected: bool = True
    since: float = 0.0
    """When its connection began to report, or that of its last report where there is none now."""
    gaps: Gaps = NO_GAPS
    """Between the steps that it has reported; ``facts/world.py`` keeps them."""
    is_quiet: bool = field(init=False, compare=False, repr=False)
    """Nothing here can be a fault, a defect or a success, whatever the attempt is: no worker ended but by a stop."""
    ends: tuple[tuple[End, float], ...] = field(init=False, compare=False, repr=False)
    """The ends of processes that it reports, and when each was."""
    phase_since: float = field(init=False, compare=False, repr=False)
    """When the supervisor's phase began."""
    ready_for: int = field(init=False, compare=False, repr=False)
    """The attempt that it is ready to run; -1 if it isn't ready."""
    done_in: int = field(init=False, compare=False, repr=False)
    """The attempt in which it came to its end; -1 if it goes on."""
    running: int = field(init=False, compare=False, repr=False)
    """The attempt that it runs and of which no process has ended; -1 if there is none."""
    step_attempt: int = field(init=False, compare=False, repr=False)
    """The attempt that it has reported progress of; -1 if it reports none."""
    step: int | None = field(init=False, compare=False, repr=False)
    """The newest step that it has reported; None if it reports none, or progress without steps."""
    step_time: float = field(init=False, compare=False, repr=False)
    """When it made that progress; 0 if it reports none."""
    registered: Mapping[str, Registered] = field(init=False, compare=False, repr=False)
    """Tier -> what its ranks have registered there."""

    def __post_init__(self) -> None:
        """Derive once what each look at the gang asks for."""
        one = self.report
        goes_on = not one.terminating and one.phase is not Phase.STUCK and one.phase is not Phase.DONE
        asks = any(said is not None for said in (one.request, one.corruption, one.missing_step))
        quiet = goes_on and not asks and all(end.stopped for end in one.ends)
        object.__setattr__(self, "is_quiet", quiet)
        object.__setattr__(self, "registered", _registered(one) if one.checkpoints else _NONE)
        object.__setattr__(self, "ends", tuple([(end, self.ago(end.age_ms)) for end in one.ends]))
        object.__setattr__(self, "phase_since", self.ago(one.phase_age_ms))
        object.__setattr__(self, "ready_for", one.attempt if one.phase is Phase.READY else -1)
        object.__setattr__(self, "done_in", one.attempt if one.phase is Phase.DONE else -1)
        newest_end = max((end.attempt for end in one.ends), default=-1)
        runs = one.phase is Phase.RUNNING and newest_end < one.attempt
        object.__setattr__(self, "running", one.attempt if runs else -1)
        progress = one.progress
        object.__setattr__(self, "step_attempt", -1 if progress is None else progress.attempt)
        object.__setattr__(self, "step", None if progress is None or progress.uncounted else progress.step)
        object.__setattr__(self, "step_time", 0.0 if progress is None else self.ago(progress.age_ms))

    def ago(self, age_ms: float) -> float:
        """When something happened that the report tells the age of."""
        return ago(self.at, age_ms)


def ago(at: float, age_ms: float) -> float:
    """When something happened that a report tells the age of: ages become times here, and only here."""
    return at - age_ms / 1000


_NONE: Final[Mapping[str, Registered]] = {}


def _registered(report: Report) -> Mapping[str, Registered]:
    tiers: dict[str, dict[int, tuple[RankPart, ...]]] = {}
    for one in report.checkpoints:
        parts = tiers.setdefault(one.tier, {})
        parts[one.rank] = (*parts.get(one.rank, ()), RankPart(one.step, one.attempt, one.earlier_boot, bool(one.path)))
    return {
        tier: Registered(parts, tuple(sorted(parts)), _shared(frozenset(parts.values())))
        for tier, parts in tiers.items()
    }


@lru_cache(4096)
def _shared(kinds: frozenset[tuple[RankPart, ...]]) -> frozenset[tuple[RankPart, ...]]:
    """The same object for equal ones."""
    return kinds


@dataclass(frozen=True, slots=True)
class Brake:
    """What all gangs together show: the controller suspects itself, or what gangs share (``policy/brake.py``)."""

    since: float | None = None
    """Since when so many members have been silent that silence counts for nothing; None while it counts."""
    silent: int = 0
    expected: int = 0
    """How many members were silent then, and how many should have been connected."""
    released: float = 0.0
    """When silence began to count again in this term; 0 if it always has."""
    waves: frozenset[str] = frozenset()
    """Reasons for which many gangs fail at once."""


class Replica(NamedTuple):
    """Another gang of the replica group."""

    name: str
    phase: str
    available_at: float | None = 0.0
    """When it became available, or will if nothing changes; None while it isn't, and that can't be told. 0 if it takes
    no turns."""
    has_pods: bool = True
    """Whether it has started, or all its pods have."""
    charged: tuple[float, ...] = ()
    """Times of its charged restarts."""


@dataclass(frozen=True, slots=True)
class Observed:
    """One consistent look at the world of one gang."""

    pods: tuple[Pod, ...] = ()
    heard: tuple[Heard, ...] = ()
    """At most one a pod UID."""
    lost_nodes: Mapping[str, float] = field(default_factory=dict)
    """Nodes that don't answer, and since when this leader's own fresh watch has shown them so."""
    nodes: Mapping[str, NodeState] = field(default_factory=dict)
    """Nodes that show anything beside that they answer."""
    unfavoured_nodes: frozenset[str] = frozenset()
    """Nodes that new pods of the gang rather avoid, since gangs have met faults there."""
    scanned: Scanned | None = None
    """The newest answer to a Scan."""
    scanned_at: float = 0.0
    """When it arrived."""
    listening_since: float = 0.0
    """Since when this leader has listened without a break: with fresh watches, without the loss of a relay that has
    members of the gang, and without the brake."""
    refused: tuple[str, ...] | None = ()
    """Why the cluster takes no pods of this gang, in its own words: what the dry run of a pod, or the creation of one,
    was answered. Empty = it takes them; None = that isn't known yet, so it is as the status has it."""
    brake: Brake = field(default_factory=Brake)
    queue: Queue = NO_QUEUE
    """What the queue says that the gang names."""
    group: tuple[Replica, ...] = ()
    """The other gangs of its group, if the gang asks for a planned restart (``policy/requests.py``)."""
    output: OutputRead | None = None
    """What the worker printed that was asked for last."""
    watching_since: float | None = None
    """``listening_since`` without regard to relays and to the brake; None = it is the same."""
    relayed_since: float = 0.0
    """When the last relay with members of the gang was lost: the silence before it says nothing about them."""
    unstored: str = ""
    """Why the newest status of the gang can't be stored: until it can, nothing is done for it. Empty = it can."""
    gangs: int = 1
    """How many gangs the controller manages."""


# Gaps


def gaps(before: Heard | None, report: Report, at: float) -> Gaps:
    """What is known of a pod's gaps once this report has arrived; another attempt begins anew."""
    new = report.progress
    if new is None or before is None or before.step_attempt != new.attempt:
        return Gaps(-1 if new is None else new.attempt)
    old, seen = before.report.progress, before.gaps
    if old is None or old.uncounted or new.uncounted or old.phase != "Step":
        return seen
    goes_on = before.connected and before.report.session == report.session
    if not goes_on or (old.step, old.phase) == (new.step, new.phase):
        return seen
    gap = ago(at, new.age_ms) - before.step_time
    return Gaps(new.attempt, seen.seen + 1, max(seen.longest, gap))
