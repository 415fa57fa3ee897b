"""How a gang recovers: deadlines and the restart budget, checkpoints, progress and hangs, requested restarts."""

import re
from enum import StrEnum
from typing import Annotated, Literal, TypedDict

from pydantic import Field, Tag

from gangctl.api.model import YEAR, Constraint, Model, PositiveSeconds, RuleName, Seconds, TierName, kind, unique_names


class Windowed(Model):
    """At most `maxRestarts` charged restarts within `windowSeconds`."""

    type: Literal["Windowed"] = "Windowed"
    max_restarts: Annotated[int, Field(ge=0, le=200)] = 10
    """Charged restarts within the window. If 0, the first charged fault ends the gang."""
    window_seconds: PositiveSeconds = 3600
    """Length of the sliding window in seconds. Choose more than maxRestarts failing attempts take."""


class Unlimited(Model):
    """Restarts are counted but not limited."""

    type: Literal["Unlimited"]


Budget = Annotated[
    Annotated[Windowed, Tag("Windowed")] | Annotated[Unlimited, Tag("Unlimited")],
    kind("type", "Windowed"),
]


class BuiltinCheck(StrEnum):
    """A check that gangctl brings along. `gangsidecar/start/checks.py` has the programs and their arguments."""

    MEMORY = "Memory"
    DISK = "Disk"
    MAT_MUL = "MatMul"
    DEVICE_COPY = "DeviceCopy"
    ALL_REDUCE = "AllReduce"
    CLOCK_SKEW = "ClockSkew"
    MOUNT = "Mount"


class CheckSpec(Model):
    """A check that runs in the worker containers after workers have stopped, before an attempt starts."""

    constraints = (
        Constraint(
            "exactly one of command and builtin must be set",
            lambda check: bool(check.command) != (check.builtin is not None),
            "(has(self.command) && self.command.size() > 0) != has(self.builtin)",
            ("command", "builtin"),
        ),
        Constraint(
            "args are those of a builtin check; those of a command belong to the command",
            lambda check: not check.args or check.builtin is not None,
            "!has(self.args) || self.args.size() == 0 || has(self.builtin)",
            ("args", "builtin"),
        ),
    )

    name: RuleName
    """Name, unique in the gang. The check gets it in GANG_CHECK."""
    when: Literal["Start", "NewPod", "Fault", "Suspect"]
    """Start: before the first attempt after a start or a resume. NewPod: in pods that have run no worker. Fault: after
    a fault that names no culprit, such as a hang. Suspect: after any fault, on a node that it or an earlier fault
    counts against."""
    scope: Literal["Member", "Pair", "Gang"] = "Member"
    """Member: each member by itself. Pair: two members on different nodes. Gang: all together."""
    command: Annotated[tuple[Annotated[str, Field(max_length=32_768)], ...], Field(max_length=64)] = ()
    """Command, with a worker's environment, user and working directory. GANG_CHECK_RANK, GANG_CHECK_SIZE,
    GANG_CHECK_HOST and GANG_CHECK_PORT have its rank, the number of members that are checked together, and the address
    of rank 0. Exit code 0: passed. 3: cannot tell, as passed. Any other end: failed; 4: by a wrong result, so no step
    after the newest verified one is restored. The last line of standard output is the detail."""
    builtin: BuiltinCheck | None = None
    """Check of gangctl. If absent, command is run."""
    args: Annotated[tuple[Annotated[str, Field(max_length=1024)], ...], Field(max_length=16)] = ()
    """Arguments of the builtin."""
    timeout_seconds: Annotated[int, Field(ge=1, le=3600)] = 60
    """Seconds after which the check is killed and has failed."""
    on_failure: Literal["Replace", "Note", "Hold"] = "Replace"
    """Replace: members that fail get pods on other nodes, in the same restart. Note: the gang goes on. Hold: the gang
    is held. If the check itself counts as faulty, no pod is replaced, and only Hold holds the gang."""
    verifies_after_steps: Annotated[int, Field(ge=0, le=2**53)] | None = None
    """Exit code 0 of all members that ran verifies checkpoints this much older than the last step. If absent, 0 for
    MatMul, else never."""

    @property
    def verifies_after(self) -> int | None:
        """The same, with its default."""
        is_default = self.verifies_after_steps is None and self.builtin is BuiltinCheck.MAT_MUL
        return 0 if is_default else self.verifies_after_steps


class Recovery(Model):
    """Deadlines, grace periods and the restart budget."""

    constraints = (unique_names("checks"),)

    budget: Budget = Field(default_factory=Windowed)
    """How many charged restarts the gang may have."""
    evidence_window_seconds: Annotated[int, Field(ge=0, le=300)] = 5
    """Seconds after a fault before it can end or hold the gang, for stronger evidence such as a lost device."""
    stop_grace_period_seconds: Seconds = 3
    """Seconds from SIGTERM to SIGKILL of a worker's process tree after a fault."""
    planned_stop_grace_period_seconds: Seconds = 120
    """Seconds from SIGTERM to SIGKILL for stops without a failure (suspend, restartToken, drain, preemption), for a
    last checkpoint."""
    coalesce_seconds: Annotated[int, Field(ge=0, le=600)] = 0
    """Seconds that a gang waits after a disruption, so that further drains join its restart. A restart by hand ends the
    wait."""
    barrier_timeout_seconds: PositiveSeconds = 600
    """Seconds that the gang waits for members, after their pods have started and grace periods and waits by choice are
    over. The first timeout replaces the missing members, the second all; after the third, onExhausted applies."""
    pod_start_timeout_seconds: PositiveSeconds = 1800
    """Seconds from a pod's scheduling to its supervisor's first message, or from a restart to the start of its ended
    containers, after which the pod is replaced."""
    scheduling_timeout_seconds: PositiveSeconds | None = None
    """Seconds that pods may wait to be scheduled, before onExhausted applies. If absent, there is no limit."""
    replacement_timeout_seconds: PositiveSeconds = 1800
    """Seconds that a replacement pod may take, before onReplacementTimeout applies."""
    on_replacement_timeout: Literal["Hold", "Suspend", "Fail"] = "Hold"
    """Hold: all pods stay for inspection. Suspend: the pods are deleted. Fail: the gang fails."""
    shrink_after_seconds: Seconds = 300
    """Seconds that an attempt waits for the replacement of a lost member before it starts with fewer (minReplicas)."""
    grow_after_seconds: PositiveSeconds = 600
    """Seconds after a change of size before the gang stops, after a checkpoint, to start with more members. Doubles
    with each such stop within an hour."""
    lost_pod_grace_seconds: Seconds = 30
    """Seconds from the end of its grace period until the pod of a lost node counts as dead."""
    isolation_timeout_seconds: Annotated[int, Field(ge=10, le=YEAR)] | None = None
    """Seconds without the controller after which a supervisor stops its worker (strict fencing). If absent, workers
    train on."""
    orphan_timeout_seconds: Annotated[int, Field(ge=5, le=YEAR)] = 600
    """Seconds without the controller after which a supervisor without a worker exits."""
    replace_after: Annotated[int, Field(ge=1, le=100)] = 2
    """Faults of a member within the budget's window after which its pod is replaced."""
    avoid_node_seconds: Seconds = 3600
    """Seconds that a replacement pod avoids the old pod's node: strictly if the node was at fault, otherwise by
    preference."""
    pod_disruption_budget: Literal["OnePod", "None"] = "OnePod"
    """OnePod: gangctl creates a PodDisruptionBudget, so a drain evicts one pod at a time. None: gangctl creates none;
    delete an existing budget yourself."""
    on_exhausted: Literal["Fail", "Hold"] = "Fail"
    """Applies when the budget is exhausted or no restart helps. Fail: the gang fails. Hold: pods stay without workers
    until restartToken changes or holdTimeoutSeconds have passed."""
    hold_timeout_seconds: PositiveSeconds | None = None
    """Seconds that a gang is held before it fails. If absent, there is no limit."""
    checks: Annotated[tuple[CheckSpec, ...], Field(max_length=8)] = ()
    """Checks in the worker containers, one after the other, while no worker runs and before an attempt starts. Parked
    processes and templates keep their memory meanwhile."""


# Checkpoints: where they are stored, and when gangctl falls back to an older one.


class DirectorySource(Model):
    """gangctl lists a directory and knows complete steps by the layout."""

    constraints = (
        Constraint(
            "layout Pattern needs pattern, such as step-{step} with complete: DONE, or model-{step}.pt for files",
            lambda source: source.layout != "Pattern" or bool(source.pattern),
            "self.layout != 'Pattern' || has(self.pattern)",
            ("layout", "pattern"),
        ),
        Constraint(
            "pattern and complete belong to layout Pattern, because the other layouts define their own",
            lambda source: source.layout == "Pattern" or (source.pattern is None and source.complete is None),
            "self.layout == 'Pattern' || (!has(self.pattern) && !has(self.complete))",
            ("layout", "pattern", "complete"),
        ),
    )

    type: Literal["Directory"]
    directory: Annotated[str, Field(min_length=1, max_length=1024)]
    """Directory of the steps, in the worker container."""
    layout: Literal["TorchDCP", "HuggingFace", "Lightning", "Megatron", "Orbax", "Pattern"]
    """Library that writes the checkpoints, or Pattern."""
    pattern: Annotated[str, Field(pattern=r"^[^/{}]*\{step\}[^/{}]*$", max_length=255)] | None = None
    """Name of a step's subdirectory or file; * is any text."""
    complete: Annotated[str, Field(min_length=1, max_length=255)] | None = None
    """File that the framework writes last into a complete step. If absent, a step is a file that the framework renames
    when complete."""


class ApiSource(Model):
    """Each rank registers complete checkpoints with the sidecar's API."""

    type: Literal["API"]


class Tier(Model):
    """A storage tier for checkpoints."""

    constraints = (
        Constraint(
            "a tier with scope Member, Peers or Process needs source type API, because only the framework knows "
            "which checkpoints the members hold",
            lambda tier: tier.scope == "Shared" or isinstance(tier.source, ApiSource),
            "self.scope == 'Shared' || self.source.type == 'API'",
            ("source.type", "scope"),
        ),
        Constraint(
            "reshardable needs scope Shared or Process, because the memory of members has parts for their ranks only",
            lambda tier: tier.scope in {"Shared", "Process"} or not tier.reshardable,
            "self.scope == 'Shared' || self.scope == 'Process' || !self.reshardable",
            ("reshardable", "scope"),
        ),
    )

    name: TierName
    """Name, unique in the gang, by which the framework registers checkpoints."""
    scope: Literal["Shared", "Peers", "Member", "Process"]
    """Shared: every member can read it. Member: only the member that wrote the checkpoint, until its pod ends. Peers:
    as Member, with copies at other members (gangclient.memory). Process: state of processes that survive a restart,
    equal on all ranks (gangclient.pytorch.KeptState)."""
    source: Annotated[DirectorySource | ApiSource, Field(discriminator="type")]
    """How gangctl finds complete steps."""
    reshardable: bool = False
    """Whether a gang of any size can load what a gang of another size has written."""


class RestoreSpec(Model):
    """Which checkpoints a restart may load."""

    trust: Literal["Any", "Verified"] = "Any"
    """Any: every complete step. Verified: only steps that the framework or a later check has verified. A requested step
    needs no verification."""


class CheckpointSpec(Model):
    """Where checkpoints are stored."""

    constraints = (
        unique_names("tiers"),
        Constraint(
            "only one tier may have scope Peers, and one scope Process, because a rank keeps its parts in one memory",
            lambda checkpoint: all(
                sum(one.scope == scope for one in checkpoint.tiers) <= 1 for scope in ("Peers", "Process")
            ),
            "self.tiers.filter(tier, tier.scope == 'Peers').size() <= 1 && "
            "self.tiers.filter(tier, tier.scope == 'Process').size() <= 1",
            ("tiers", "scope"),
        ),
    )

    fallback_after: Annotated[int, Field(ge=1, le=100)] = 3
    """Restarts in a row from one restore point without a further step, after which the next older step is used. If no
    rank reports steps, attempts under 10 minutes without a newer checkpoint count, at least two."""
    restore: RestoreSpec = Field(default_factory=RestoreSpec)
    """Which checkpoints a restart may load."""
    tiers: Annotated[tuple[Tier, ...], Field(min_length=1, max_length=4)]
    """Storage tiers. A restart uses the newest step that every rank can load, and for the same step rather a Member,
    Peers or Process tier."""


# Progress: how it is measured, and when missing progress counts as a hang.


def _finds_step(pattern: str) -> bool:
    try:
        return "step" in re.compile(pattern).groupindex
    except (re.error, OverflowError, RecursionError):
        return False


class ApiProgress(Model):
    """Ranks report steps to the sidecar's API."""

    type: Literal["API"] = "API"


class LogProgress(Model):
    """A pattern finds steps in the worker's output."""

    constraints = (
        Constraint(
            "the pattern must be a Python regular expression with a group named step, such as step (?P<step>[0-9]+)",
            lambda source: _finds_step(source.pattern),
            "self.pattern.contains('(?P<step>')",
            ("pattern",),
            only_submitted=True,
        ),
    )

    type: Literal["Log"]
    pattern: Annotated[str, Field(min_length=1, max_length=1024)]
    """Python regular expression, searched in the first 8192 bytes of each line of standard output and standard error.
    Its group step matches digits. A carriage return also ends a line. Sets PYTHONUNBUFFERED=1 unless the worker sets
    it."""


class FileProgress(Model):
    """Each change of a file's modification time is progress; steps are unknown."""

    type: Literal["File"]
    path: Annotated[str, Field(min_length=1, max_length=1024)]
    """File in the worker container that a rank touches at each step."""


ProgressSource = Annotated[
    Annotated[ApiProgress, Tag("API")] | Annotated[LogProgress, Tag("Log")] | Annotated[FileProgress, Tag("File")],
    kind("type", "API"),
]


class Adaptive(Model):
    """A deadline that follows the longest time between two steps."""

    factor: Annotated[int, Field(ge=2, le=1000)] = 10
    """Multiple of the longest time between two reported steps, at least 15 seconds and at most timeoutSeconds."""


class ProgressSpec(Model):
    """How progress is measured, and when missing progress counts as a hang."""

    constraints = (
        Constraint(
            "adaptive needs timeoutSeconds, because that is in force until enough steps were seen and never exceeded",
            lambda progress: progress.adaptive is None or progress.timeout_seconds is not None,
            "!has(self.adaptive) || has(self.timeoutSeconds)",
            ("adaptive", "timeoutSeconds"),
        ),
    )

    source: ProgressSource = Field(default_factory=ApiProgress)
    """Source of progress, in addition to the API. A change applies from the next attempt."""
    timeout_seconds: PositiveSeconds | None = None
    """Seconds without progress of any rank, or of a rank that the others leave behind, after which the gang counts as
    hung. If absent, hangs are not detected."""
    adaptive: Adaptive | None = None
    """Shortens timeoutSeconds once an attempt has shown 8 times between steps and has passed earlier attempts. If
    absent, timeoutSeconds applies."""
    startup_timeout_seconds: PositiveSeconds | None = None
    """Seconds from a worker's start to its first step after which the gang counts as hung. If absent, 1800, or
    timeoutSeconds if longer."""
    checkpoint_timeout_seconds: PositiveSeconds | None = None
    """Seconds without progress in phase Checkpoint after which the gang counts as hung. If absent, 1800, or
    timeoutSeconds if longer."""
    evaluation_timeout_seconds: PositiveSeconds | None = None
    """Seconds without progress in phase Evaluation after which the gang counts as hung. If absent, 3600, or
    timeoutSeconds if longer."""
    on_hang: Literal["Observe", "Restart"] = "Observe"
    """Observe: the condition Degraded and an Event report the hang. Restart: it is a fault with reason Hang."""

    def timeout_of(self, phase: str) -> int | None:
        """The seconds without progress that this phase of the training may take; None if it has no timeout of its own.

        It counts only where there is a ``timeout_seconds``.
        """
        known = {
            "Startup": (self.startup_timeout_seconds, 1800),
            "Checkpoint": (self.checkpoint_timeout_seconds, 1800),
            "Evaluation": (self.evaluation_timeout_seconds, 3600),
        }
        if phase not in known:
            return None
        own, least = known[phase]
        return max(least, self.timeout_seconds or 0) if own is None else own


# Requested restarts: which restore point the next attempt starts from.


class RestartFrom(Model):
    """Which restore point a requested restart starts from."""

    constraints = (
        Constraint(
            "type Step needs step, and no other type takes it",
            lambda asked: (asked.type == "Step") == (asked.step is not None),
            "(self.type == 'Step') == has(self.step)",
            ("type", "step"),
        ),
        Constraint(
            "types Beginning and Step need restartToken, because they count for that token only",
            lambda asked: asked.type == "Newest" or bool(asked.restart_token),
            "self.type == 'Newest' || self.restartToken != ''",
            ("type", "restartToken"),
        ),
    )

    type: Literal["Newest", "Beginning", "Step"] = "Newest"
    """Newest: the newest step that every rank can load. Beginning: no checkpoint. Step: `step`. Checkpoints beyond the
    start are not used until they are written again."""
    step: Annotated[int, Field(ge=0, le=2**53)] | None = None
    """Step to start from. Only with type Step."""
    restart_token: Annotated[str, Field(max_length=253)] = ""
    """The spec.restartToken that this belongs to. Other restarts ignore it."""


class SpecChanges(TypedDict, total=False):
    """Fields of the spec that the command line changes in a stored gang."""

    suspend: bool
    restart_token: str
    restart_from: RestartFrom
