"""What the faults of a drawn life are: which come together, which come late, and which are mended again."""

from __future__ import annotations

from typing import NamedTuple

STUBBORN, CUT_OFF, KILLED = "a worker ignores SIGTERM", "a member is cut off", "a worker is killed"
MINUTES, SUSPEND = "minutes pass", "the user suspends or resumes"

ENDING = frozenset({"a worker finishes", "all workers finish", "a worker exits with a fatal code"})
"""A gang that has ended has no more attempts: these come mostly towards the end of a life."""
RESTARTING = ("a worker is killed", "a worker exits with 1", "a supervisor crashes", "a framework asks for a restart")
"""What leads to another attempt and to nothing else: lives are long."""
POLICY = ("the isolation time changes", "the policy changes")
REMEDIES = {
    "a member is cut off": "a member is reached again",
    "a member isn't heard": "a member is reached again",
    "a member doesn't hear": "a member is reached again",
    "a node is lost": "a node comes back",
    "a kubelet is away": "a node comes back",
    **{
        name: name
        for name in (
            "no member reaches a controller, or all do again",
            "no controller leads, or one does again",
            "pods can or can't be created",
            "pods can or can't be started",
            "the user suspends or resumes",
        )
    },
}
"""What lasts is mostly mended a few faults later: else nothing else would happen in a life."""


class Theme(NamedTuple):
    """Faults that make more of each other."""

    faults: tuple[str, ...]
    setups: tuple[str, ...] = ()
    """The gangs for which they do; none = any small one."""
    is_story: bool = False
    """They come one soon after the other, aimed at one member; those of ``RESTARTING`` are aimed at another."""
    remedies: tuple[str, ...] = ()
    """What follows a story."""


THEMES = (
    Theme(
        (
            "a member is cut off",
            "a worker is killed",
            "a worker ignores SIGTERM",
            "a pod is deleted",
            "the policy changes",
        )
    ),
    Theme(("a member isn't heard", "a worker ignores SIGTERM", "a worker is killed", "half a minute passes")),
    Theme(
        ("all workers finish", "no controller leads, or one does again", "a quarter of an hour passes", "minutes pass")
    ),
    Theme(("a worker finishes", "a finished pod is deleted", "the controller crashes", "a pod is evicted")),
    Theme(("a kubelet is away", "the controller crashes", "a connection ends", "half a minute passes")),
    Theme(("a kubelet is away", "a pod is garbage collected", "a worker is killed", "half a minute passes")),
    Theme(
        (
            "no member reaches a controller, or all do again",
            "the controller crashes",
            "minutes pass",
            "a worker is killed",
        )
    ),
    Theme(
        ("a pod is deleted by force", "a member is cut off", "the clocks are set forward", "the clocks are set back")
    ),
    Theme(
        ("a controller with another clock leads", "a pod is deleted by force", "minutes pass", "a member is cut off")
    ),
    Theme(("the clocks of nodes are off", "a supervisor crashes", "a pod is deleted", "minutes pass")),
    Theme(("train", "a worker is killed", "a member doesn't see new files", "the newest step is deleted")),
    Theme(("train", "a framework verifies a checkpoint", "a framework finds corruption", KILLED), ("verifying",)),
    Theme(("train", "a framework finds corruption", "a member doesn't see new files", "the newest step is deleted")),
    Theme(  # The report goes with its pod, before or after the status has it.
        (
            "train",
            "a framework finds corruption",
            KILLED,
            "the controller crashes",
            "a pod is deleted by force",
            MINUTES,
        ),
        ("spare", "duo", "pair"),
        is_story=True,
    ),
    Theme(("the roles change", "the user suspends or resumes", "the controller crashes", "a pod is deleted")),
    Theme(  # The drained member has the time to save; an echo cuts the stop of the others short.
        (STUBBORN, "a pod is deleted", CUT_OFF, KILLED, MINUTES),
        ("fenced",),
        is_story=True,
        remedies=("a member is reached again", MINUTES),
    ),
    Theme(  # A member that is cut off never hears of another isolation time.
        (STUBBORN, "a node is lost", KILLED, *POLICY, MINUTES),
        ("fenced", "spare", "duo", "trio"),
        is_story=True,
        remedies=("a node comes back", MINUTES),
    ),
    Theme(  # What is sent to it still arrives when nothing of it is heard any more.
        (STUBBORN, "a member isn't heard", "a kubelet is away", KILLED, MINUTES),
        ("fenced",),
        is_story=True,
        remedies=("a node comes back", "a member is reached again", MINUTES),
    ),
    Theme(  # A pod that has never run is silent, and its successor has its incarnation.
        (
            SUSPEND,
            MINUTES,
            SUSPEND,
            "a kubelet is away",
            "a member isn't heard",
            "half a minute passes",
            "a pod is deleted by force",
            MINUTES,
        ),
        ("duo", "trio"),
        is_story=True,
        remedies=("a member is reached again", MINUTES),
    ),
    Theme(  # Memory goes with its pods.
        ("train", "a sidecar crashes", KILLED, SUSPEND, MINUTES, SUSPEND, MINUTES),
        ("spare",),
        is_story=True,
    ),
)
CROWD = (
    "all workers end at once",
    "all workers end at once",
    "the pods of all members are deleted",
    "a worker is killed",
    "the controller crashes",
    "another controller leads",
    "a node is lost",
    "a node comes back",
    "minutes pass",
)
"""What strikes a large gang."""
