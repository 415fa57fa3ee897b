from __future__ import annotations

import pytest

from gangctl.core.facts.fitness import cannot_work, correction
from gangctl.core.facts.world import StartFailure

RUNC = "failed to create containerd task: OCI runtime create failed: runc create failed: unable to start container"


@pytest.mark.parametrize(
    ("reason", "message", "code"),
    [
        ("StartError", f'{RUNC} process: exec: "train": executable file not found in $PATH: unknown', 128),
        ("StartError", f'{RUNC} process: exec: "/train": stat /train: no such file or directory: unknown', 128),
        ("StartError", f'{RUNC} process: exec: "/etc/passwd": permission denied: unknown', 128),
        ("StartError", f'{RUNC} process: exec: "/usr": is a directory: permission denied: unknown', 128),
        ("RunContainerError", "exec /train: exec format error", None),
        ("StartError", "standard_init_linux.go:228: exec user process caused: no such file or directory", 128),
        ("CreateContainerError", "container create failed: executable file `train` not found in $PATH: No such", None),
        ("CreateContainerError", "container create failed: open executable: Permission denied", None),
        ("StartError", 'starting container: error finding executable "train" in PATH [/bin]', 128),
        ("CreateContainerError", "unable to find user nobody2: no matching entries in passwd file", None),
        ("CreateContainerConfigError", "container has runAsNonRoot and image will run as root (pod: p)", None),
        ("InvalidImageName", "couldn't parse image name", None),
        ("ContainerCannotRun", "", 127),
        ("Error", "exit code 126", 126),
    ],
)
def test_a_start_that_can_never_work_is_known(reason: str, message: str, code: int | None) -> None:
    assert cannot_work(StartFailure(reason, message, code))


@pytest.mark.parametrize(
    ("reason", "message", "code"),
    [
        (
            "StartError",
            f"{RUNC} process: error during container init: error running prestart hook #0: exit status 1",
            128,
        ),
        ("StartError", f'{RUNC} process: error mounting "/dev/infiniband": no such file or directory', 128),
        ("StartError", "failed to create shim task: context deadline exceeded", 128),
        ("StartError", "", 128),
        ("CreateContainerConfigError", 'secret "wandb" not found', None),
        ("CreateContainerError", "context deadline exceeded", None),
        ("ImagePullBackOff", 'failed to pull "a": permission denied: no such file or directory', None),
        ("ErrImageNeverPull", "Container image is not present with pull policy of Never", None),
    ],
)
def test_what_may_be_mended_is_not_given_up(reason: str, message: str, code: int | None) -> None:
    assert not cannot_work(StartFailure(reason, message, code))


@pytest.mark.parametrize(
    ("program", "said", "todo"),
    [
        ("/run/gang/supervisor", "permission denied", "without noexec"),
        ("/run/gang/supervisor", "no such file or directory", "correct image, command"),
        ("/run/gang/supervisor/train", "permission denied", "correct image, command"),
        ("train", "permission denied", "correct image, command"),
    ],
)
def test_only_our_own_program_that_may_not_be_executed_speaks_of_the_node(program: str, said: str, todo: str) -> None:
    failure = StartFailure("StartError", f'{RUNC} process: exec: "{program}": {said}: unknown', 128)
    assert cannot_work(failure)
    assert todo in correction(failure)


def test_a_pod_whose_start_did_not_fail_can_work() -> None:
    assert not cannot_work(None)
