"""``gangclient.run`` where no supervisor is, and the random states that each attempt begins with."""

from __future__ import annotations

import os
import random
import socket
import threading
from pathlib import Path

import numpy as np
import pytest

import gangclient
from gangclient._parking import RandomStates, find_channel


@pytest.fixture(autouse=True)
def _outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("GANG_")]:
        monkeypatch.delenv(name)


def test_outside_of_gangctl_it_calls_train_once() -> None:
    calls: list[gangclient.Client] = []

    def train(gang: gangclient.Client) -> str:
        calls.append(gang)
        gang.progress(1)
        assert (gang.number, gang.restore, gang.restart_reason) == (0, None, "")
        return "result"

    assert gangclient.run(train, abort=print, finalize=(print,)) == "result"
    assert len(calls) == 1


def test_an_exception_of_train_leaves_and_the_next_call_is_none_inside_of_it() -> None:
    def train(_gang: gangclient.Client) -> None:
        raise ValueError("its own")

    for _ in range(2):
        with pytest.raises(ValueError, match="its own"):
            gangclient.run(train)


def test_it_is_refused_inside_of_itself_and_in_another_thread() -> None:
    refused: list[RuntimeError] = []

    def call() -> None:
        try:
            gangclient.run(lambda _gang: None)
        except RuntimeError as error:
            refused.append(error)

    def train(_gang: gangclient.Client) -> None:
        call()
        thread = threading.Thread(target=call)
        thread.start()
        thread.join()

    gangclient.run(train)
    assert ["inside of" in str(error) for error in refused] == [True, False]
    assert "main thread" in str(refused[1])


@pytest.mark.parametrize("interrupt", ["", "AT_ONCE", "never"])
def test_another_interrupt_is_refused_before_anything_runs(interrupt: str) -> None:
    with pytest.raises(ValueError, match="at_progress"):
        gangclient.run(lambda _gang: pytest.fail("it ran"), interrupt=interrupt)


def test_random_states_are_those_of_the_first_call() -> None:
    random.seed(7)
    np.random.seed(7)  # noqa: NPY002 - the one that is global
    states = RandomStates()

    def draw() -> tuple[float, float]:
        return random.random(), float(np.random.random())  # noqa: NPY002

    first = draw()
    assert draw() != first
    states.restore()
    assert draw() == first


def variable(*, descriptor: str = "", inode: int = 0, file: int = -1) -> str:
    return f"{descriptor or file}:{inode or os.fstat(file).st_ino}"


def test_only_its_own_socket_is_a_channel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A variable that a child has inherited may have the number of any other file of it."""
    ours, theirs = socket.socketpair()
    with ours, theirs, (tmp_path / "file").open("w") as file:
        wrong = (
            "",
            "x:y",
            "7",
            "-1:5",
            f"{2**40}:1",
            variable(file=file.fileno()),
            variable(descriptor=str(file.fileno()), inode=os.fstat(ours.fileno()).st_ino),
            variable(descriptor=str(ours.fileno()), inode=1),
        )
        for text in wrong:
            monkeypatch.setenv("GANG_PARKING", text)
            assert find_channel() is None
            assert "GANG_PARKING" not in os.environ
        file.write("it is not touched")
