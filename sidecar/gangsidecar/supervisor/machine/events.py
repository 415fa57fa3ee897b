"""The events that happen to a supervisor, and the effects that it must carry out."""

from __future__ import annotations

from gangsidecar import wire
from gangsidecar.wire.frozen import frozen


@frozen
class PodIdentity:
    """The pod of the supervisor, and the gang and member that it belongs to."""

    gang: str
    member: str
    incarnation: int
    pod: str
    address: str = ""


# Events. Directives, pings, the framework's messages and matches in the output are as on the wire.


@frozen
class Exited:
    """A process that Spawn started has ended and was reaped (or could not be executed)."""

    local_rank: int
    exit_code: int | None = None
    signal: int | None = None
    oom: bool = False
    hidden: bool = False
    message: str = ""


@frozen
class TreeGone:
    """No process of any worker is left, whatever session or parent it gave itself, but parked ones without a child."""


@frozen
class Parkable:
    """A spawned process says that it can park, or that it can't any more."""

    local_rank: int
    can: bool = True
    refusal: str = ""
    """Why its command keeps it from it, whatever it says; empty if it doesn't."""


@frozen
class Parked:
    """A process says that it has parked, for the stop of the worker of this attempt."""

    local_rank: int
    attempt: int


@frozen
class Started:
    """Every process of the newest Spawn was started."""

    warm_start: wire.WarmStart | None = None
    """The way, where they may be forks of a template."""


@frozen
class WarmStarted:
    """A process below the worker's command has started."""

    warm_start: wire.WarmStart
    """How those of this attempt have started so far."""


@frozen
class PortsFound:
    """The answer to FindPorts; empty if none is free."""

    attempt: int
    ports: tuple[int, ...]


@frozen
class RestoreSeen:
    """The answer to LookForRestore: the folder is there."""

    attempt: int


@frozen
class RestoreMissing:
    """The answer to LookForRestore: the folder isn't there, even after some retries."""

    attempt: int
    in_folder: bool = True
    """The folder around it is there and shows others; False: nothing is known of the step."""


@frozen
class StacksTaken:
    """The answer to TakeStacks: what is known by its time, maybe nothing."""

    attempt: int
    text: str


@frozen
class CheckEnded:
    """The process of a check has ended and was reaped (or could not be executed); others of it may be left."""

    turn: int
    exit_code: int | None = None
    signal: int | None = None
    detail: str = ""


@frozen
class Terminate:
    """SIGTERM reached the supervisor: its pod is to end."""


@frozen
class Tick:
    """The time of :func:`deadline` has come."""


Input = (
    wire.Directive
    | wire.Ping
    | wire.FrameworkMessage
    | wire.LogMatch
    | Exited
    | TreeGone
    | Parkable
    | Parked
    | Started
    | WarmStarted
    | PortsFound
    | RestoreSeen
    | RestoreMissing
    | StacksTaken
    | wire.Check
    | CheckEnded
    | Terminate
    | Tick
)


# Effects


@frozen
class Spawn:
    """Start these processes. The answers are Started, one Exited for each process, and TreeGone."""

    attempt: int
    run: wire.Run
    parked: tuple[int, ...] = ()
    """The local ranks whose process is parked: it goes on. If it can't be reached, it is killed, and has ended so."""


@frozen
class LookForRestore:
    """Look for this folder. The answer is RestoreSeen or, after some retries, RestoreMissing."""

    attempt: int
    restore: wire.Restore


@frozen
class FindPorts:
    """Look for a few free ports among ``base .. base + count - 1``. The answer is always PortsFound."""

    attempt: int
    base: int
    count: int


@frozen
class RunCheck:
    """Run this check. The answers are CheckEnded and TreeGone."""

    check: wire.Check


@frozen
class Signal:
    """Send this signal to every process of the worker's tree, but not to these processes and what is below them."""

    signum: int
    spared: tuple[int, ...] = ()


@frozen
class TakeStacks:
    """Take the stacks of the worker's processes, but not of parked ones. The answer is StacksTaken, by this time."""

    attempt: int
    by_ms: int
    first: int | None = None
    """The process to begin with; absent if none is suspected."""


@frozen
class Park:
    """Ask these processes to park: the worker of this attempt is being stopped, and SIGKILL comes so much later."""

    attempt: int
    local_ranks: tuple[int, ...]
    kill_ms: int
    reason: str = ""
    planned: bool = False


@frozen
class Refuse:
    """Let this process know that it will not be asked to park, and why."""

    local_rank: int
    why: str


@frozen
class SignalOne:
    """Send this signal to this one process and to what is below it."""

    signum: int
    local_rank: int


@frozen
class Kill:
    """SIGKILL this one process, which is parked."""

    local_rank: int


@frozen
class KillTree:
    """SIGKILL every process of the worker's tree but those that are parked, again and again until TreeGone."""


@frozen
class Save:
    """Keep the ends and checkpoints for the next session. It must never delay Send."""


@frozen
class Send:
    """The report has changed: send it, once for a batch of steps."""


@frozen
class Quit:
    """End with exit code 0, after the last report could be sent."""


Effect = (
    Spawn
    | LookForRestore
    | FindPorts
    | RunCheck
    | TakeStacks
    | Signal
    | SignalOne
    | Park
    | Refuse
    | Kill
    | KillTree
    | Save
    | Send
    | Quit
)
Effects = tuple[Effect, ...]
