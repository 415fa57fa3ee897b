"""The kubelets of the simulated world: they start containers, restart them, and end them."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from gangctl.core.facts.world import LastWords, StartFailure
from gangsidecar.supervisor import machine
from gangsidecar.supervisor.machine import history as histories
from gangsidecar.wire import from_words, to_words
from tests.simulation import sidecars
from tests.simulation.universe import Universe
from tests.simulation.values import Box, seconds

GRACE_MS: Final = 150_000
STUCK_RETRY_MS: Final = 10_000


def kubelet_time(u: Universe) -> float:
    """What the clock of a node shows."""
    return seconds(u.now + u.skew + u.node_skew)


def start_pod(u: Universe, uid: str) -> None:
    """The pod finds a node, and its containers start."""
    at = kubelet_time(u)
    pod = replace(u.pods[uid], node=f"node-{uid}", scheduled_at=at, started_at=at)
    u.pods[uid] = pod
    u.boxes[uid] = Box(uid, pod.member, pod.incarnation, pod.node, unmounted=u.mounts_fail)
    u.begin_session(uid)


def crash_supervisor(u: Universe, uid: str) -> None:
    """The supervisor is killed. As PID 1 it takes its container along; else its processes run on."""
    box = u.boxes[uid]
    procs = box.procs if u.setup.local else tuple(proc for proc in box.procs if proc.stuck)
    u.boxes[uid] = box._replace(machine=None, inbox=(), procs=procs, check=None, parked=(), ending=False)
    if uid in u.pods:
        u.pods[uid] = replace(u.pods[uid], started_at=None)
    if not u.setup.restarts_containers:
        end_containers(u, uid)


def end_for_good(u: Universe, uid: str) -> None:
    """The container ends, and can't be started again in its pod, however often that is tried: a device is gone."""
    words = last_words(u, u.boxes[uid], killed=True)
    crash_supervisor(u, uid)
    sidecars.cut(u, uid)  # A supervisor that reports no more does not count as connected.
    u.boxes[uid] = u.boxes[uid]._replace(dead=True)
    pod = u.pods.get(uid)
    if pod is not None:
        words = words or pod.last_words
        why = StartFailure("RunContainerError", "the device is gone")
        u.pods[uid] = replace(pod, ended_at=kubelet_time(u), reason=why.reason, start_failure=why, last_words=words)


def restart_container(u: Universe, uid: str) -> None:
    """The container is started again in its pod. A supervisor kills what is left, and speaks when nothing is."""
    box = u.boxes[uid]
    stuck = tuple(proc for proc in box.procs if proc.stuck)
    if stuck:
        u.boxes[uid] = box._replace(procs=stuck)
        return
    pod = u.pods.get(uid)
    if pod is not None:
        at, words = kubelet_time(u), last_words(u, box, killed=True) or pod.last_words
        u.pods[uid] = replace(pod, restarts=pod.restarts + 1, started_at=at, ended_at=at, last_words=words)
    u.begin_session(uid)


def show_end(u: Universe, uid: str) -> None:
    """The cluster shows that every container of a pod has ended, and what its supervisor left."""
    pod, box = u.pods[uid], u.boxes[uid]
    words = last_words(u, box, killed=False) or pod.last_words
    reason = pod.reason if pod.reason == "Evicted" else "Completed"
    u.pods[uid] = replace(pod, terminated=True, reason=reason, last_words=words)


def last_words(u: Universe, box: Box, *, killed: bool) -> LastWords | None:
    """What is in the termination message. One that was killed could not write it anew, so its ages are too young."""
    ends = from_words(to_words(histories.ends(box.history, u.now)))
    if killed:
        ends = tuple(replace(end, age_ms=0) for end in ends)
    return LastWords(float(int(kubelet_time(u))), ends) if ends else None


def end_containers(u: Universe, uid: str) -> None:
    """Every container has ended for good."""
    sidecars.cut(u, uid)
    box = u.boxes[uid]
    stuck = tuple(proc for proc in box.procs if proc.stuck)
    again = u.now + STUCK_RETRY_MS if stuck else box.kill_at
    u.boxes[uid] = box._replace(
        machine=None, inbox=(), procs=stuck, check=None, parked=(), ending=False, exited=not stuck, kill_at=again
    )
    if not stuck and uid not in u.pods:
        del u.boxes[uid]


def ask_to_end(u: Universe, uid: str) -> None:
    """The kubelet has seen that the pod is to go: SIGTERM, and SIGKILL later."""
    u.boxes[uid] = u.boxes[uid]._replace(kill_at=u.now + GRACE_MS)
    if u.boxes[uid].machine is None:
        end_containers(u, uid)
    else:
        u.feed(uid, machine.Terminate())
