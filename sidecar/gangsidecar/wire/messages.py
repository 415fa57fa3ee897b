"""The messages between controller, sidecar and supervisor, as frozen values.

Durations and ages are integer milliseconds. No message carries a wall time: what happened is an *age* at the moment of
sending, so the clocks of different machines are never compared.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Any, TypeVar

from gangsidecar.wire.frozen import frozen

_T = TypeVar("_T")

MAX_LOG_PATTERNS = 8
"""That one Run has, and so the most matches of one attempt."""
LOG_LINE = 200
"""Characters of a line that are reported."""
MAX_VERIFIED = 16
"""At most so many newest verified steps are remembered: no restart that needs one goes further back."""
MAX_FOUND = 64
"""At most so many newest complete steps of a tier are listed: no restart goes further back."""
MAX_CHECKED = 32
"""So many newest results of checks of one attempt are reported."""
CHECK_CANT_TELL = 3
"""Exit code of a check that can't tell here. It counts as passed."""
CHECK_CORRUPT = 4
"""Exit code of a check that has failed by a wrong result: what was computed before may be wrong as well."""
CHECK_DETAIL = 300
"""Characters of what a check says that are reported."""


@frozen
class Restore:
    """The restore point: a checkpoint step that every rank can load."""

    step: int
    tier: str
    path: str = ""
    """The folder, for a tier that is scanned: the supervisor checks that it is there before it starts the worker.
    Empty for a Member tier: each member's own registration knows its path."""


@frozen
class Process:
    """One process that Run starts: the user's command with this environment added to the container's own."""

    local_rank: int
    env: tuple[tuple[str, str], ...]
    rank: int | None = None


@frozen
class Source:
    """A source of progress, beside the framework API; one of the two is not empty."""

    pattern: str = ""
    """A regular expression with a group ``step``. It is searched in each line of the worker's output."""
    file: str = ""
    """A file whose modification time changes with each step."""


@frozen
class Run:
    """The part that Run adds to a directive. It names the session that reported Ready; another session refuses it."""

    session: str
    processes: tuple[Process, ...]
    restore: Restore | None = None
    checkpointed: bool = False
    """The job has checkpoint tiers: registrations above the restore point (all, if there is none) are dropped."""
    process_tier: str = ""
    """The tier of what processes have in memory: what a rank has registered there counts while its process lives."""
    hosts: tuple[str, ...] = ()
    """Lines of the attempt's host file: ``10.0.3.7 slots=8``."""
    source: Source | None = None
    log_patterns: tuple[str, ...] = ()
    """Regular expressions that are searched for in each line of the worker's output."""


@frozen
class LogMatch:
    """The first line of the worker's output in which this pattern was found.

    It names the pattern and not its number: the policy may have changed since the worker was started.
    """

    attempt: int
    pattern: str
    line: str
    """Printable ASCII, with all else escaped. Of a longer line, the part with the match."""


@frozen
class RankBehind:
    """The newest report of the rank that is furthest behind the others of its pod."""

    rank: int
    step: int
    age_ms: int
    phase: str = "Step"
    """Startup, Step, Checkpoint or Evaluation."""
    pid: int | None = None
    """Its process, as it is seen in the worker's container, if the framework says it."""


@frozen
class Tier:
    """A Shared checkpoint tier that is a directory."""

    name: str
    directory: str
    pattern: str
    """Name of a step's folder, or of its file, with ``{step}``; a * is any text."""
    complete: str = ""
    """The file in the folder that marks it complete; empty = a step is a file, and complete when it is there."""


@frozen
class Scan:
    """A stateless query to one member, after every pod has stopped: which complete steps can it see?"""

    attempt: int
    tiers: tuple[Tier, ...]
    timeout_ms: int = 30_000


@frozen
class Found:
    """A complete step in a scanned tier."""

    tier: str
    step: int
    path: str
    marker: str
    """Identity of what marks it complete. It changes when the step is written again."""


@frozen
class Scanned:
    """The answer to a Scan: per tier at most :data:`MAX_FOUND` newest complete steps, newest first."""

    attempt: int
    pod: str
    found: tuple[Found, ...] = ()
    error: str = ""


@frozen
class Check:
    """Run this command of the job in the worker's place, before the attempt starts: no worker runs meanwhile.

    Sent again, it does no harm: each turn of an attempt is run once in a session.
    """

    attempt: int
    turn: int
    """The number of the turn within the attempt. A member takes part in one check at a time."""
    name: str
    timeout_ms: int
    command: tuple[str, ...] = ()
    """Empty: a program of gangctl's own."""
    builtin: str = ""
    """Its name."""
    args: tuple[str, ...] = ()
    """Its arguments."""
    rank: int = 0
    """Of the member, among those that are checked together."""
    size: int = 1
    """Their number."""
    host: str = ""
    """The address of their rank 0."""
    port: int = 0
    """A port that was free there."""


@frozen
class Checked:
    """The end of a check. Neither an exit code nor a signal: it took too long and was killed."""

    attempt: int
    turn: int
    name: str
    took_ms: int
    exit_code: int | None = None
    signal: int | None = None
    detail: str = ""
    """The last line that it printed on standard output; printable ASCII, with all else escaped."""


def step_name(pattern: str) -> re.Pattern[str]:
    """Compile what the names of a tier's steps match; the first group is the step. ValueError: not one ``{step}``."""
    if pattern.count("{step}") != 1 or "/" in pattern:
        raise ValueError(f"pattern {pattern!r}: expected a name with {{step}} once")
    # A * is any text, of which no digit belongs to the number beside it.
    before, after = (re.escape(text).replace(r"\*", ".*") for text in pattern.split("{step}"))
    before += "(?<![0-9])" if before.endswith("*") else ""
    after = f"(?![0-9]){after}" if after.startswith(".*") else after
    # 18 digits are below 2**63, which is what a message can carry.
    return re.compile(f"{before}([0-9]{{1,18}}){after}")


class Verb(StrEnum):
    """The state that the controller wants of a member."""

    HOLD = "Hold"
    """Stop what runs, kill the whole tree, report Ready, wait."""
    RUN = "Run"
    """Start the worker of this attempt, once."""
    FINISH = "Finish"
    """Stop what runs, then end with exit code 0."""


_VERBS = (Verb.HOLD, Verb.RUN, Verb.FINISH)


class Phase(StrEnum):
    """The supervisor's phase in the attempt of its report."""

    IDLE = "Idle"
    """A new session: no directive has arrived, nothing runs."""
    STOPPING = "Stopping"
    """A worker of an older attempt (or of this one, with Finish) is being stopped."""
    READY = "Ready"
    """No process of any worker is left, and none will start without Run of this attempt."""
    RUNNING = "Running"
    """The worker of this attempt was started; ``ends`` lists those of its processes that have ended."""
    STUCK = "Stuck"
    """SIGKILL was sent and a process is still there (state D)."""
    DONE = "Done"
    """Finish was carried out: nothing runs, and the supervisor is about to end with 0."""


class Level(StrEnum):
    """The extent of a restart, from least to most."""

    PROCESS = "Process"
    CONTAINER = "Container"
    POD = "Pod"
    GANG = "Gang"


@frozen
class End:
    """The end of one process of a worker. Exactly one of ``exit_code`` and ``signal`` is set."""

    attempt: int
    local_rank: int
    age_ms: int
    rank: int | None = None
    exit_code: int | None = None
    signal: int | None = None
    stopped: bool = False
    """It came after a stop (a directive, a SIGTERM to the supervisor, fencing): never a fault, never a success."""
    oom: bool = False
    hidden: bool = False
    """A launcher (torchrun) hid the exit code of its child, and left no error file."""
    message: str = ""
    """A sentence of the supervisor: ``No such file or directory: trainn.py``."""


@frozen
class Checkpoint:
    """A checkpoint that one rank has completed and registered through the framework API."""

    tier: str
    step: int
    rank: int
    attempt: int
    path: str = ""
    earlier_boot: bool = False
    """Registered before the node's last boot, and not known to be on a disk."""


@frozen
class Dropped:
    """A rank has begun to write this step again, or has deleted it: it doesn't exist until it is completed again."""

    tier: str
    step: int
    rank: int
    attempt: int


@frozen
class Verified:
    """A framework has found the checkpoint of this step to be right, for all ranks and in all tiers."""

    attempt: int
    step: int


@frozen
class Progress:
    """The newest progress of a member in an attempt; ages count from the call to the framework API."""

    attempt: int
    step: int
    age_ms: int
    phase: str = "Step"
    """Startup, Step, Checkpoint or Evaluation."""
    first_step: int | None = None
    first_age_ms: int | None = None
    """Step and age of this attempt's first ``Step`` report; absent while there is none."""
    first_ms: int | None = None
    """The duration of the first step, as the framework measured it: the longest of the ranks."""
    every: int | None = None
    """The widest gap between two steps that a rank has reported; absent while it is unknown."""
    uncounted: bool = False
    """Steps are unknown (``step`` and ``first_step`` say nothing), but one was made at these ages."""
    own_ms: int | None = None
    """Median of the last 50 steps of the member's slowest rank, without waiting for others; absent until it has
    reported as many in this attempt."""
    own_rank: int | None = None
    """This rank."""
    behind: RankBehind | None = None
    """The member's rank that is furthest behind its others; absent if all have made the same step."""


class Milestone(StrEnum):
    """What a rank has behind it on the way from the start of its worker to its first step."""

    LAUNCH = "Launch"
    """A launcher or a shell has started its interpreter."""
    IMPORTS = "Imports"
    """The interpreter, which was executed, has imported what it needs: the time during imports alone."""
    RENDEZVOUS = "Rendezvous"
    """It has joined the process group."""
    CHECKPOINT_LOAD = "CheckpointLoad"
    """It has loaded the restore point."""


@frozen
class Reached:
    """A rank has reached a milestone; of the member's ranks, the one that did so last."""

    attempt: int
    milestone: Milestone
    age_ms: int
    milliseconds: int | None = None
    """The duration, if it was measured; else it begins where what came before it ended."""
    rank: int | None = None


@frozen
class WarmStart:
    """The ways in which the processes of an attempt were started, where some can be forked or can go on."""

    attempt: int
    forked: int
    """The number of forks of the template."""
    executed: int
    obstacle: str = ""
    """Why the newest of the others were executed, in a sentence."""
    template_bytes: int = 0
    """Memory that the template alone used."""
    not_imported: str = ""
    """Modules that the role names and the template could not import, with their errors."""
    went_on: int = 0
    """The number that went on in the process of the attempt before."""
    late_after_seconds: int = 0
    """The forks have made no first step within this time, so the next attempt is executed; 0: they aren't late."""


@frozen
class Imports:
    """What a worker imports by its first step, as its supervisor has learnt it.

    The controller passes it on to supervisors of the same role that have run nothing yet.
    """

    gang: str
    pod: str
    """UID of the pod in which it was learnt."""
    command: tuple[str, ...]
    """The interpreter's path and its flags, then a script or ``-m`` and a module; none of their arguments."""
    modules: tuple[str, ...]
    """In the order in which their imports were done. Among them, after ``=``, are variables that the program changed
    then; before them, after ``!``, modules of its own."""
    environment: tuple[tuple[str, str], ...] = ()
    """Of the variables that are read before any program: those that the interpreter had, and its container hasn't."""
    folder: str = ""
    """The interpreter's working directory, if its PYTHONPATH depends on it."""
    beside: bool = False
    """From the controller: the gang trains meanwhile."""


@frozen
class Stacks:
    """The stacks of the processes of a worker that hung, just before its stop."""

    attempt: int
    text: str
    """Lines of printable ASCII; empty if nothing was found in time."""


@frozen
class Request:
    """A framework asks for a restart of the gang."""

    attempt: int
    age_ms: int
    reason: str
    rank: int | None = None
    level: Level = Level.PROCESS
    exclude_node: bool = False


@frozen
class Corruption:
    """A framework has found that a rank computes wrongly, and that what was saved since then may be wrong."""

    attempt: int
    age_ms: int
    since_step: int
    """The first step whose checkpoint may be wrong."""
    reason: str
    rank: int
    """The rank at fault, which may be another member's: one of the process group of the rank that found it."""


@frozen
class Report:
    """The whole small state of one member, as its supervisor sees it. Never a delta."""

    gang: str
    """UID of the GangJob."""
    member: str
    incarnation: int
    pod: str
    """UID of the pod."""
    session: str
    """Random id of this start of the supervisor."""
    seq: int
    """Grows with every report of a session. The controller ignores an older one."""
    attempt: int
    """That of the newest directive; 0 before the first."""
    phase: Phase
    terminating: bool = False
    """The supervisor got SIGTERM: its pod is to end."""
    ends: tuple[End, ...] = ()
    checkpoints: tuple[Checkpoint, ...] = ()
    missing_step: int | None = None
    """RestorePointMissing: the pod can't see this step of a Run directive, so nothing was started."""
    missing_attempt: int = 0
    """The attempt of that Run. Both stay until the next Run: while the gang gathers, the controller counts them."""
    missing_folder: bool = False
    """Nor does the folder that should hold the step show anything: nothing is known of the step."""
    progress: Progress | None = None
    request: Request | None = None
    address: str = ""
    """The address at which peers reach this member (the pod's IP)."""
    ports: tuple[int, ...] = ()
    """Free ports for MASTER_PORT, as of Ready."""
    phase_age_ms: int = 0
    """Age of the current phase: Ready counts from the end of the last process, Running from the last exec."""
    stop_ms: int | None = None
    """The duration of the last stop, from the directive's arrival to the last process gone."""
    killed_ms: int | None = None
    """The time from the beginning of the stop to SIGKILL; absent if the worker ended within its grace."""
    reached: tuple[Reached, ...] = ()
    """The milestones of an attempt, one of a kind."""
    fencing: int = 0
    """The newest ``Directive.fencing`` that the supervisor goes by."""
    sent_ms: int = 0
    """The supervisor's own clock as it sent this. Only a Ping returns it; no peer computes with it."""
    dropped: tuple[Dropped, ...] = ()
    """Steps that a rank has begun to write again, or has deleted, and not completed since."""
    warm_start: WarmStart | None = None
    """The start of the newest worker; absent if it has no other way to start than to execute its command."""
    stacks: Stacks | None = None
    """Those of the worker that was stopped last, if a directive asked for them."""
    log_matches: tuple[LogMatch, ...] = ()
    """The patterns of the newest Run that were found in the output of its worker."""
    ran: int = 0
    """The newest attempt whose worker this session has started; 0 if there is none."""
    corruption: Corruption | None = None
    verified: tuple[Verified, ...] = ()
    """The newest steps that were verified in the attempt that ran last, newest first."""
    checks: tuple[Checked, ...] = ()
    """Those that have ended in the attempt of this report, newest last."""


@frozen
class Directive:
    """The state that the controller wants of one member now, not a command. Sending it twice does no harm."""

    gang: str
    pod: str
    attempt: int
    verb: Verb
    reason: str = ""
    """Why, in a sentence. The framework gets it."""
    planned: bool = False
    """No fault caused it: the worker may use the grace for a last checkpoint."""
    grace_ms: int = 15_000
    """From SIGTERM to SIGKILL of the whole tree."""
    base_port: int = 29400
    port_count: int = 64
    isolation_ms: int | None = None
    """Stop the worker this long after the newest report that a controller has heard; absent = never."""
    orphan_ms: int = 600_000
    """End (with 0) after this long without a controller and without a live worker."""
    fencing: int = 0
    """The number of these values of ``grace_ms`` and ``isolation_ms``."""
    stacks: bool = False
    """The gang hangs: report the worker's stacks, taken before anything ends it."""
    run: Run | None = None

    @property
    def order(self) -> tuple[int, int]:
        """(attempt, Hold < Run < Finish): a member obeys only a directive that is greater than the one it has."""
        return self.attempt, _VERBS.index(self.verb)


@frozen
class Ping:
    """The controller is there. The report that it got prolongs the lease of the worker."""

    heard_ms: int = 0
    """``sent_ms`` of the newest report that the controller has heard; 0 = it has heard none."""


@frozen
class Watching:
    """The number of readers of the framework API that act on a stop of this attempt before its signal."""

    attempt: int
    readers: int


FrameworkMessage = Checkpoint | Dropped | Reached | Progress | Request | Corruption | Verified | Watching
"""A call to the framework API, from the sidecar to the supervisor, which folds it into its report."""

Message = Report | Scanned | Directive | Scan | Check | Ping | Imports | FrameworkMessage
"""Report and Scanned go from the supervisor to the controller; Directive, Scan, Check and Ping go the other way;
Imports go both ways."""


def copied(value: _T, **changes: Any) -> _T:
    """What ``dataclasses.replace`` returns, ten times as fast: no message computes a field or checks itself."""
    made = object.__new__(type(value))
    made.__dict__.update(value.__dict__, **changes)
    return made


def aged(report: Report, by_ms: int) -> Report:
    """The same report, ``by_ms`` milliseconds later: every age has grown by as much."""
    if by_ms <= 0:
        return report
    progress = report.progress
    if progress is not None:
        first, last = progress.first_age_ms, progress.behind
        progress = copied(
            progress,
            age_ms=progress.age_ms + by_ms,
            first_age_ms=None if first is None else first + by_ms,
            behind=None if last is None else copied(last, age_ms=last.age_ms + by_ms),
        )
    request = report.request
    if request is not None:
        request = copied(request, age_ms=request.age_ms + by_ms)
    corruption = report.corruption
    if corruption is not None:
        corruption = copied(corruption, age_ms=corruption.age_ms + by_ms)
    return copied(
        report,
        ends=tuple(copied(end, age_ms=end.age_ms + by_ms) for end in report.ends),
        progress=progress,
        request=request,
        corruption=corruption,
        phase_age_ms=report.phase_age_ms + by_ms,
        reached=tuple(copied(one, age_ms=one.age_ms + by_ms) for one in report.reached),
    )
