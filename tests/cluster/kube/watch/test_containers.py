from __future__ import annotations

from typing import Any

import pytest

from gangctl.core.facts.world import SidecarEnd, StartFailure
from gangctl.kubernetes.containers import WORDS
from gangsidecar.wire import UNREACHED
from tests.cluster.kube.watch.test_projections import (
    BESIDE,
    SIDECAR,
    SPEC,
    WORKER,
    at,
    ended,
    read,
    running,
    stamp,
    waiting,
)

NOT_FOUND = (
    "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: "
    'unable to start container process: exec: "train": executable file not found in $PATH: unknown'
)


def never_ran(code: int = 128, reason: str = "StartError", message: str = NOT_FOUND) -> dict[str, Any]:
    times = {"startedAt": "1970-01-01T00:00:00Z", "finishedAt": stamp("10:05:00")}
    return {"terminated": {"exitCode": code, "reason": reason, "message": message, **times}}


def worker(state: dict[str, Any], last: dict[str, Any] | None = None, restarts: int = 0) -> dict[str, Any]:
    return {"name": "m", "restartCount": restarts, "state": state, "lastState": last or {}}


def failure(of_worker: dict[str, Any]) -> StartFailure | None:
    status = {"initContainerStatuses": [SIDECAR], "containerStatuses": [of_worker]}
    return read(status, BESIDE, **WORKER).pod.start_failure


def test_an_init_container_that_is_retried_is_no_restart_of_the_worker() -> None:
    retried = ended("fetch", 0, "Completed", restartCount=3, lastState=ended("fetch", 1, "Error")["state"])
    spec = {**SPEC, "initContainers": [*SPEC["initContainers"], {"name": "fetch"}]}
    status = {"initContainerStatuses": [SIDECAR, retried], "containerStatuses": [running("m", "10:00:09")]}
    one = read(status, spec, **WORKER).pod
    assert (one.restarts, one.started_at, one.reason, one.is_sound) == (0, at("10:00:09"), "", True)
    ours = running("gangctl", "10:00:06", restartCount=2)
    assert read({**status, "initContainerStatuses": [ours, retried]}, spec, **WORKER).pod.restarts == 2


def test_an_init_container_that_fails_is_named() -> None:
    end = ended("fetch", 1, "Error", message="")["state"]
    end["terminated"]["message"] = "no route to host"
    retried = waiting("fetch", "CrashLoopBackOff", restartCount=3, lastState=end)
    status = {"initContainerStatuses": [SIDECAR, retried], "containerStatuses": [waiting("m", "PodInitializing")]}
    one = read(status, **WORKER).pod
    assert (one.reason, one.start_failure, one.restarts) == ("CrashLoopBackOff", None, 0)
    assert one.detail == "container fetch ended with exit code 1: no route to host"


@pytest.mark.parametrize(
    "status",
    [
        worker({"waiting": {"reason": "RunContainerError", "message": NOT_FOUND}}, never_ran()),
        worker({"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s restarting failed"}}, never_ran()),
        worker({"waiting": {"reason": "PodInitializing"}}, never_ran(), restarts=2),
        worker(never_ran()),
    ],
    ids=["at once", "backing off", "all containers restart", "for good"],
)
def test_what_the_runtime_says_of_a_start_is_read_from_the_newest_end(status: dict[str, Any]) -> None:
    assert failure(status) == StartFailure("StartError", NOT_FOUND, 128)


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ({"reason": "CreateContainerError", "message": "no"}, StartFailure("CreateContainerError", "no")),
        ({"reason": "InvalidImageName", "message": "bad"}, StartFailure("InvalidImageName", "bad")),
        ({"reason": "ErrImagePull", "message": "denied"}, StartFailure("ErrImagePull", "denied")),
        (
            {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "a:b": ErrImagePull: denied'},
            StartFailure("ImagePullBackOff", "denied"),
        ),
        (
            {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "a:b"'},
            StartFailure("ImagePullBackOff"),
        ),
        ({"reason": "RunContainerError", "message": "no"}, StartFailure("RunContainerError", "no")),
        ({"reason": "ContainerCreating"}, None),
        ({"reason": "CrashLoopBackOff"}, None),
    ],
)
def test_what_the_kubelet_says_of_a_start_is_read(state: dict[str, str], expected: StartFailure | None) -> None:
    assert failure(worker({"waiting": state})) == expected


def test_an_exit_code_of_the_runtime_is_a_failed_start_and_one_of_the_worker_is_not() -> None:
    assert failure(worker(never_ran(127, "Error", ""))) == StartFailure("Error", "exit code 127", 127)
    cannot = "failed to start: exec format error"
    assert failure(worker(never_ran(127, "ContainerCannotRun", cannot))) == StartFailure(
        "ContainerCannotRun", cannot, 127
    )
    assert failure(worker(never_ran(1, "Error", ""))) is None
    assert failure(worker(never_ran(137, "OOMKilled", ""))) is None
    assert failure(worker({"running": {"startedAt": stamp("10:06:00")}}, never_ran())) is None


def test_a_long_message_keeps_its_end() -> None:
    found = failure(worker(never_ran(message=f"{'failed: ' * 900}{NOT_FOUND}")))
    assert found is not None
    assert len(found.message) == WORDS
    assert found.message.startswith("…")
    assert found.message.endswith("executable file not found in $PATH: unknown")


def test_the_words_of_the_runtime_are_the_reason_of_the_pod() -> None:
    other = waiting("log", "ImagePullBackOff")
    status = {"containerStatuses": [worker({"waiting": {"reason": "CrashLoopBackOff"}}, never_ran(), 1), other]}
    one = read({"initContainerStatuses": [SIDECAR], **status}, BESIDE, **WORKER).pod
    assert (one.reason, one.detail, one.restarts, one.started_at) == ("StartError", NOT_FOUND, 1, None)


def sidecar(**fields: Any) -> SidecarEnd | None:
    status = {"initContainerStatuses": [running("gangctl", "10:00:06", **fields)], "containerStatuses": []}
    return read(status, **WORKER).pod.sidecar_end


def test_a_sidecar_that_has_never_reached_the_controller_says_why() -> None:
    said = {**ended("gangctl", UNREACHED, "Error")["state"]["terminated"], "message": "the token can't be read\n"}
    found = sidecar(restartCount=1, lastState={"terminated": said})
    assert found is not None
    assert (found.said, found.at, found.unreached) == ("the token can't be read", at("10:05:00"), True)
    assert sidecar() is None


def test_a_sidecar_that_fails_otherwise_is_told_with_its_exit_code() -> None:
    killed = ended("gangctl", 137, "OOMKilled")["state"]
    found = sidecar(restartCount=1, lastState=killed)
    assert found is not None
    assert (found.said, found.unreached) == ("exit code 137 (OOMKilled)", False)
    broken = {
        "terminated": {**killed["terminated"], "exitCode": 1, "reason": "Error", "message": "no \x1b[2J" + "x" * 999}
    }
    found = sidecar(restartCount=1, lastState=broken)
    assert found is not None
    assert len(found.said) == WORDS
    assert sidecar(lastState=ended("gangctl", 0, "Completed")["state"]) is None


def test_a_worker_that_waits_for_an_init_container_tells_which() -> None:
    fetch, log = running("fetch", "10:00:09"), running("log", "10:00:08", started=False)
    spec = {
        **SPEC,
        "initContainers": [*SPEC["initContainers"], {"name": "log", "restartPolicy": "Always"}, {"name": "fetch"}],
    }

    def starting(*before: dict[str, Any], worker: dict[str, Any]) -> str:
        return read(
            {"initContainerStatuses": [SIDECAR, *before], "containerStatuses": [worker]}, spec, **WORKER
        ).pod.starting

    blocked = waiting("m", "PodInitializing")
    assert starting(log, worker=blocked) == "sidecar log has not started yet"
    assert starting({**log, "started": True}, fetch, worker=blocked) == "init container fetch still runs"
    assert starting({**log, "started": True}, ended("fetch", 0, "Completed"), worker=blocked) == ""
    assert starting(fetch, worker=running("m", "10:00:09")) == ""
