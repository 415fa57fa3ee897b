"""Failed starts: what the cluster says of a container that can't start, and which starts can never work.

The rule: users read the words of the container runtime at the first failure. A start can't work if the image lacks what
is to be run, or can't run it: each try of it fails in the same way, on every node. Whatever may be mended from outside
(a pull, a Secret, a device, a node) is waited for. What isn't known here must count as that.
"""

from __future__ import annotations

import re
from typing import Final

from gangctl.core.facts.world import Pod, StartFailure

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
_SAME: Final = {"ErrImagePull": "ImagePullBackOff", "CrashLoopBackOff": "its containers end again and again"}
"""Kubernetes' words that alternate while one thing is wrong, or that say little."""
_ADVICE: Final = {
    "ImagePullBackOff": "check the image's name, its registry and imagePullSecrets",
    "ErrImageNeverPull": "load the image onto the node, or change imagePullPolicy",
    "CreateContainerConfigError": "create what the template refers to, or correct the template",
}
_REJECTED: Final = {
    "UnexpectedAdmissionError": "check the device plugin on that node, and its log",
    "OutOf": "compare the node's allocatable with what its pods request: kubectl describe node",
    "TopologyAffinityError": "no NUMA node had all that it asks for: check the kubelet's topologyManagerPolicy",
    "NodeAffinity": "the node's labels no longer match the template",
}
"""Reasons of a kubelet that does not take a pod which the scheduler has given it, by how they begin -> what to check.

OutOf is followed by a resource: OutOfcpu, OutOfnvidia.com/gpu. Source: Kubernetes, pkg/kubelet/lifecycle and cm.
"""
_CORRECT: Final = "correct image, command or securityContext in the template"
_TOO_LONG: Final = re.compile(r"argument list too long", re.IGNORECASE)
_SHORTEN: Final = (
    "shorten env, args or command in the template; enableServiceLinks: false leaves out the variables of all Services"
)
_OURS: Final = re.compile(r'exec: "/run/gang/supervisor": permission denied', re.IGNORECASE)
"""The worker's container could not execute gangctl's supervisor, which every user may: the node is to blame."""
_REMOUNT: Final = (
    "its node may have mounted the kubelet's folder noexec, and gangctl's supervisor lies there, in an emptyDir: "
    "mount it without noexec"
)


def cannot_work(failure: StartFailure | None) -> bool:
    """Whether a start that failed like this fails in each try."""
    if failure is None:
        return False
    if failure.reason == "InvalidImageName" or failure.exit_code in NOT_EXECUTABLE:
        return True
    return _WORDS.search(failure.message) is not None


def correction(failure: StartFailure | None) -> str:
    """What makes a start possible that can't work as it is."""
    message = "" if failure is None else failure.message
    if _TOO_LONG.search(message):
        return _SHORTEN
    return _REMOUNT if _OURS.search(message) else _CORRECT


def told(pod: Pod) -> str:
    """Why the pod can't start or has ended, in the cluster's words: ``StartError: exec: "train": not found``."""
    reason = _SAME.get(pod.reason, pod.reason)
    return f"{reason}: {pod.detail}" if pod.detail else reason


def rejection(pod: Pod) -> str:
    """Why its node did not take the pod, and what to check; empty if it did take it, or if that isn't known."""
    todo = checks(pod.reason)
    return f"its node {pod.node} rejected its pod: {told(pod)}; {todo}" if todo else ""


def checks(reason: str) -> str:
    """What to check after a kubelet has rejected a pod for this reason; empty if it is none of those."""
    return next((todo for known, todo in _REJECTED.items() if reason.startswith(known)), "")


def advice(pod: Pod) -> str:
    """What a user can do about it; empty if that isn't known."""
    if cannot_work(pod.start_failure):
        return correction(pod.start_failure)
    return _ADVICE.get(_SAME.get(pod.reason, pod.reason), "")
