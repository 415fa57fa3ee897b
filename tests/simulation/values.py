"""What the simulated world is made of: frozen values. The core's and the machine's own types are the real ones.

What changes with every move is a named tuple: of these a changed copy is made quickly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from gangctl.api.gangjob import Spec
from gangctl.api.status import Status
from gangctl.controller.relaying import NO_LINK_LOST, LostLinks
from gangctl.core.facts.world import NO_QUEUE, Heard, NodeAnswer, Pod, Queue
from gangctl.core.lifecycle.directive import Begun
from gangctl.core.lifecycle.plan import Plan, PlannedAction
from gangctl.core.policy.brake import BrakeState
from gangsidecar.supervisor import machine
from gangsidecar.supervisor.machine import events
from gangsidecar.supervisor.machine.history import History
from gangsidecar.wire import Check, Directive, Ping, Report, Scan, Scanned
from tests.simulation.disks import Line

if TYPE_CHECKING:
    from tests.simulation.universe import Universe

START_MS: Final = 1_000_000_000
CHILD: Final = -1
"""The local rank of a process that a worker started in a session of its own."""


def seconds(ms: int) -> float:
    """Virtual milliseconds as the controller's clock has them."""
    return (START_MS + ms) / 1000


Fault = Callable[["Universe", int], None]
"""What goes wrong in a world, aimed at one of its members."""
Ended = tuple[int, str, int]
"""(attempt, member, local rank) of a process that ended with 0 before anything was stopped."""


@dataclass(frozen=True, slots=True)
class Proc:
    """A process in the fake kernel."""

    attempt: int
    local_rank: int
    rank: int | None
    termed: bool = False
    """SIGTERM has reached it."""
    stubborn: bool = False
    """It ignores SIGTERM."""
    stuck: bool = False
    """Not even SIGKILL ends it."""
    asked: bool = False
    """It was told to park."""
    torn: bool = False
    """Its state is between two steps, and no use to another attempt."""
    holds: Line | None = None
    """The state that it has offered as it parked, as long as it has it."""


@dataclass(frozen=True, slots=True)
class Up:
    """A message on its way to a controller. Of reports only a newer one than the last is taken."""

    order: int
    sent: int
    body: Report | Scanned


class Box(NamedTuple):
    """What is in one pod: a supervisor with its processes, a sidecar with its connection. It outlives the API's pod."""

    pod: str
    member: str
    incarnation: int
    node: str
    machine: machine.State | None = None
    """Of the supervisor; absent while it isn't there."""
    sessions: int = 0
    procs: tuple[Proc, ...] = ()
    parked: tuple[Proc, ...] = ()
    """Processes that have left what they trained: they run nothing, and wait. They are none of ``procs``."""
    parked_at: int = 0
    inbox: tuple[events.LookForRestore, ...] = ()
    """What the machine asked for and hasn't been told yet."""
    history: History = History()
    """The file on the pod's volume."""
    ran: int = 0
    """The newest attempt that was started, in that file."""
    ending: bool = False
    """The machine has asked for Quit."""
    exited: bool = False
    """Every container has ended for good."""
    kill_at: int | None = None
    """When the kubelet loses patience."""
    step: int = 0
    """What its worker has trained up to."""
    poisoned: bool = False
    """Its worker was started from a step that can be seen but not loaded."""
    blind: bool = False
    """It doesn't see new files of the shared file system."""
    line: Line = ()
    """How its worker's state came about."""
    boots: int = 0
    """How often its node has started again under it."""
    known_boots: int = 0
    """The same when its supervisor started last: after another boot it believes no registration of before."""
    unmounted: bool = False
    """The shared directory isn't there."""
    check: Check | None = None
    """The check whose process runs."""
    hangs: bool = False
    """No check ends here by itself."""
    unable: bool = False
    """Its command can't be executed."""
    dead: bool = False
    """Its container has ended, and can't be started again."""
    # The sidecar.
    link: int | None = None
    """The controller that it is connected to, be it by way of a relay."""
    relay: int | None = None
    """The relay that it is connected to."""
    held: tuple[tuple[Report | Scanned, int], ...] = ()
    """What that holds of it: the newest message of each kind, and when it was sent."""
    cut_off: bool = False
    """The network is gone."""
    mute: bool = False
    """What it sends is lost, and what it is sent still arrives."""
    deaf: bool = False
    """What it is sent is lost, and what it sends still arrives."""
    heard_at: int = 0
    """When a controller took a report of it last, or when it connected."""
    silent: bool = False
    """It has reported on this connection and not for long: it doesn't count as connected, and is told what follows."""
    broken: bool = False
    """A message was lost: this connection can only end."""
    newest: tuple[Report, int] | None = None
    """The supervisor's newest report and when it came; kept when the supervisor is gone."""
    kept: Directive | None = None
    kept_scan: Scan | None = None
    """The newest of each on this connection: what a supervisor that comes anew is handed."""
    told: Directive | None = None
    """What the hub has sent last on this connection."""
    up: tuple[Up, ...] = ()
    down: tuple[Directive | Scan | Check | Ping, ...] = ()
    order: int = 0
    seq: int = 0
    """The number of its supervisor's newest report."""

    @property
    def is_reached(self) -> bool:
        """Whether the network carries both what it sends and what it is sent."""
        return not (self.cut_off or self.mute or self.deaf)

    @property
    def is_connected(self) -> bool:
        """Whether its sidecar has a connection, be it to a relay without a link."""
        return self.link is not None or self.relay is not None

    @property
    def is_heard(self) -> bool:
        """Whether it counts as connected."""
        return self.link is not None and not self.silent


class Relay(NamedTuple):
    """A replica that keeps connections of sidecars."""

    link: int | None = None
    """The controller that it is linked to."""
    frozen: bool = False


class Signal(NamedTuple):
    """Something that a node shows."""

    node: str
    answer: NodeAnswer
    at: int
    """When it came."""
    skew: int
    """How far the wall clocks were set then."""
    dated: bool
    """Whether that is written."""


class Seen(NamedTuple):
    """The same, as a controller sees it."""

    signal: Signal
    since: float
    """In seconds by its own clock; 0 = it isn't known."""


class Leader(NamedTuple):
    """A controller process: all that it has in memory."""

    number: int
    skew: int
    """How far the wall clocks had been set when its term began: its own clock goes on from there."""
    began: int
    since: int
    """The same by its own clock."""
    status: Status
    version: int
    spec: Spec
    generation: int
    written: tuple[Pod, ...]
    """The pods as they are stored, with the times of other clocks."""
    pods: tuple[Pod, ...]
    """The same with the times at which it saw them change."""
    lost: frozenset[tuple[str, int]]
    """Nodes that don't answer, and since when it sees that."""
    signals: frozenset[Seen]
    synced: tuple[int, ...]
    """When its watches of the gang, of pods and of nodes last delivered."""
    heard: tuple[Heard, ...] = ()
    orders: tuple[tuple[str, int], ...] = ()
    """Pod UID -> the order of its newest report that was taken."""
    scanned: Scanned | None = None
    scanned_at: float = 0.0
    refused: tuple[str, ...] | None = None
    """What the API server has against the gang's pods; None = it wasn't asked yet."""
    begun: Begun | None = None
    """What the attempt that it told last to run began with."""
    plan: Plan | None = None
    """Decided, not yet written."""
    todo: tuple[PlannedAction, ...] = ()
    """Written, not yet done."""
    wake_at: int | None = None
    dirty: bool = True
    """Something has changed since it decided last."""
    frozen: bool = False
    brake: BrakeState = BrakeState()
    thought_at: int = 0
    """When it decided last."""
    woken: tuple[int, ...] = ()
    """When it decided last, again and again, because its plans asked for it and nothing had changed."""
    corrupt: int | None = None
    """The first step that the workers that ran last don't trust, as it knew when it decided last."""
    looked: frozenset[str] = frozenset()
    """The pods that it saw when it decided last."""
    feared: frozenset[str] = frozenset()
    """The nodes that it saw as lost when it decided last."""
    reached: frozenset[str] = frozenset()
    """The sessions that were connected when it decided what it is about to write."""
    ends: tuple[tuple[Ended, int], ...] = ()
    """Which processes it knows to have finished, and since when: for the invariants, not for the core."""
    queue: Queue = NO_QUEUE
    """What it knows of the gang's queue."""
    lost_links: LostLinks = NO_LINK_LOST
    """The links with sidecars of the gang that have ended."""


class Ghost(NamedTuple):
    """What only the invariants know: how it really was."""

    finished: frozenset[Ended] = frozenset()
    witnessed: frozenset[Ended] = frozenset()
    """Those that a controller knew of, and had the time to store."""
    perished: frozenset[Ended] = frozenset()
    """Those that nothing can know any more: their pod was lost before a controller heard of them."""
    ran: tuple[int, tuple[tuple[str, str], ...]] = (0, ())
    """The newest attempt that was started, and (place, holder) in it."""
    started_at: int = 0
    trained_at: int = 0
    """When a rank made a step last."""
    trained_since: int = 0
    """When a rank made the first step after the beginning."""
    trained_before: int = 0
    """When a rank made a step at an earlier moment."""
    gap: tuple[int, int, float] = (0, 0, 0.0)
    """The longest time between two steps of a rank, in seconds, that this controller has heard of in this attempt."""
    lost: frozenset[str] = frozenset()
    """Pods that were silent and lost for the whole grace, and connected then."""
    excused: int = 0
    """The attempt in which a lost node came back or a container was restarted: a controller may see that late."""
    heard: tuple[tuple[str, int], ...] = ()
    """The sessions that a controller has heard to run the attempt, and when it did first."""
    unbound: frozenset[str] = frozenset()
    """Pods that were cut off with a process that is stuck when an attempt was started: they may be reached again."""
    isolated: bool = False
    """An isolation timeout was in force at some time."""
    grace: int | None = None
    """The shortest grace for lost pods that was in force at any time, in seconds."""
    spawned: frozenset[tuple[str, int]] = frozenset()
    """(session, attempt) of every start of a worker."""
    ready: frozenset[tuple[str, int]] = frozenset()
    """(session, attempt) of every Ready that was said."""
    killed: frozenset[tuple[str, int]] = frozenset()
    """(member, attempt) of every worker that SIGTERM had not ended when SIGKILL came."""
    stored: frozenset[tuple[int, str]] = frozenset()
    """(attempt, phase) of every status that was ever stored."""
    gone_since: tuple[tuple[str, int], ...] = ()
    """Pod UID -> since when it is vanished, or deleted on a lost node."""
    trunk: Line = ()
    """The furthest state of the attempt that was started last; it begins as what that attempt restores."""
    was_restored: bool = False
    """An attempt was started from a step."""
    was_whole: bool = False
    """A step was once complete for every rank."""
    hidden: frozenset[tuple[str, int]] = frozenset()
    """Tier and step that lay in a directory which was away when the gang went back behind them: they may come back."""
    accused: frozenset[tuple[int, str]] = frozenset()
    """(attempt, member) of every member that was said to compute wrongly."""
    tainted: frozenset[Line] = frozenset()
    """States of the training from which on nothing is trusted, as far as a controller knew when a status was stored."""
    verified: frozenset[Line] = frozenset()
    """States of the training whose checkpoints were verified."""
    unchecked: frozenset[tuple[int, str, int]] = frozenset()
    """(attempt, member, incarnation) of every pod that really did not pass a check."""
    spoiled: frozenset[tuple[str, Line]] = frozenset()
    """Pod UID and state of the training: the first ones that a pod on a sick node has made."""
    wrong: frozenset[tuple[str, int, int]] = frozenset()
    """(pod UID, attempt, turn) of every check that has found wrong results."""
    sizes: tuple[tuple[int, int], ...] = ()
    """(attempt, places) of every attempt that was started."""
    grown: tuple[int, ...] = ()
    """When the gang was stopped to grow, within the last hour."""
    gone_unheard: bool = False
    """A part of the restore point is gone, and the pod that could have told is gone as well."""
