"""Failed starts: what the cluster says of a container that can't start, and which starts can never work.

The rule: users read the words of the container runtime at the first failure. A start can't work if the image lacks what
is to be run, or can't run it: each try of it fails in the same way, on every node. Whatever may be mended from outside
(a pull, a Secret, a device, a node) is waited for. What isn't known here must count as that.
"""

from __future__ import annotations

import re
from typing import Final

from gangctl.core.facts.world import Pod, StartFailure
from gangctl.words.faults import pod_rejected
from gangctl.words.message import Message
from gangctl.words.starts import ADVICE, REJECTED, SAME, Correction

NEVER_MADE: Final = frozenset({"InvalidImageName", "CreateContainerError", "CreateContainerConfigError"})
"""Reasons of a start for which no container was made: the kubelet doesn't count its tries."""
NOT_EXECUTABLE: Final = frozenset({126, 127})
"""Exit codes of a runtime, or of a shell, for a command that can't be executed."""
_WORDS: Final = re.compile(
    r'exec: "[^"]*": '  # runc: executable file not found in $PATH, permission denied, no such file, is a directory
    r"|exec format error"  # of another architecture
    r"|executable file \S+ not found"  # crun
    r"|open executable: "  # crun
    r"|exec user process caused"  # runc before 1.1: the interpreter of a script is missing
    r"|error finding executable"  # gVisor
    r"|argument list too long"
    r"|chdir to cwd "  # runc and containerd: workingDir is a file, or can't be entered
    r"|no matching entries in passwd file"  # the user that the image or the securityContext names
    r"|unable to find user"
    r"|runAsNonRoot and image will run as root"
    r"|cannot verify user is non-root",
    re.IGNORECASE,
)
"""What container runtimes say of a start that can't work: they have no codes for it."""
_TOO_LONG: Final = re.compile(r"argument list too long", re.IGNORECASE)
_OURS: Final = re.compile(r'exec: "/run/gang/supervisor": permission denied', re.IGNORECASE)
"""The worker's container could not execute gangctl's supervisor, which every user may: the node is to blame."""


def cannot_work(failure: StartFailure | None) -> bool:
    """Whether a start that failed like this fails in each try."""
    if failure is None:
        return False
    if failure.reason == "InvalidImageName" or failure.exit_code in NOT_EXECUTABLE:
        return True
    return _WORDS.search(failure.message) is not None


def correction(failure: StartFailure | None) -> Correction:
    """Return what makes a start possible that can't work as it is."""
    message = "" if failure is None else failure.message
    if _TOO_LONG.search(message):
        return Correction.SHORTEN
    return Correction.REMOUNT if _OURS.search(message) else Correction.TEMPLATE


def reason_of(pod: Pod) -> str:
    """Return why the pod can't start or has ended, as the cluster says it: ``StartError: exec: "train": not found``."""
    reason = SAME.get(pod.reason, pod.reason)
    return f"{reason}: {pod.detail}" if pod.detail else reason


def rejection(pod: Pod) -> Message | None:
    """Return why its node did not take the pod, and what to check; None if it did, or if that isn't known."""
    todo = checks(pod.reason)
    return pod_rejected(pod.node, reason_of(pod), todo) if todo else None


def checks(reason: str) -> str:
    """Return what to check after a kubelet has rejected a pod for this reason; empty if that isn't known."""
    return next((todo for known, todo in REJECTED.items() if reason.startswith(known)), "")


def advice(pod: Pod) -> str:
    """Return what a user can do about a pod that can't start; empty if that isn't known."""
    if cannot_work(pod.start_failure):
        return correction(pod.start_failure)
    return ADVICE.get(SAME.get(pod.reason, pod.reason), "")
