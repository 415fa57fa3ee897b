"""A forked rank waits until the first rank listens, for a moment at most, and only where PyTorch's store is used."""

from __future__ import annotations

import inspect
import socket
import sys
import threading
import time
from types import ModuleType

import pytest

from gangclient import _parking
from gangsidecar.start import template
from gangsidecar.start.template import wait_for_first_agent, wait_for_first_rank
from tests import ipv6
from tests.wait import SECONDS

FOREVER = 3600.0


@pytest.fixture
def distributed(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch's module is imported."""
    monkeypatch.setitem(sys.modules, template.STORE_USER, ModuleType(template.STORE_USER))


def bound(address: str = "127.0.0.1") -> tuple[socket.socket, dict[str, str]]:
    """A socket that does not listen yet, and the environment of rank 1."""
    one = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    one.bind((address, 0))
    return one, {"RANK": "1", "MASTER_ADDR": address, "MASTER_PORT": str(one.getsockname()[1])}


@pytest.mark.usefixtures("distributed")
@pytest.mark.parametrize("address", [*ipv6.EACH, "localhost"])
def test_it_waits_until_the_first_rank_listens(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template, "FIRST_RANK_SECONDS", SECONDS)
    server, environment = bound(address)
    with server:
        waiting = threading.Thread(target=wait_for_first_rank, args=(environment,))
        waiting.start()
        server.listen()
        waiting.join(SECONDS)
        assert not waiting.is_alive()
        server.settimeout(SECONDS)
        connection, _ = server.accept()
        with connection:
            connection.settimeout(SECONDS)
            assert connection.recv(1) == b""  # It says nothing, and closes.


@pytest.mark.usefixtures("distributed")
def test_it_gives_up_soon() -> None:
    server, environment = bound()
    with server:
        began = time.monotonic()
        wait_for_first_rank(environment)
        assert time.monotonic() - began >= template.FIRST_RANK_SECONDS


@pytest.mark.usefixtures("distributed")
@pytest.mark.parametrize(
    "other",
    [
        {"RANK": "0"},
        {"RANK": ""},
        {"MASTER_ADDR": ""},
        {"MASTER_ADDR": "a-name-of-nothing.invalid"},
        {"MASTER_ADDR": "a" * 64},
        {"MASTER_PORT": "none"},
        {"MASTER_PORT": "99999999999999999999"},
    ],
)
def test_it_does_not_wait_for_what_it_can_not_look_for(other: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template, "FIRST_RANK_SECONDS", FOREVER)
    server, environment = bound()
    with server:
        wait_for_first_rank({**environment, **other})


def test_it_does_not_wait_without_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    assert template.STORE_USER not in sys.modules
    monkeypatch.setattr(template, "FIRST_RANK_SECONDS", FOREVER)
    server, environment = bound()
    with server:
        wait_for_first_rank(environment)


TORCHRUN = ["/usr/bin/python3", "/usr/bin/torchrun", "train.py"]
ITS_STORE = {"RANK": "PET_NODE_RANK", "MASTER_ADDR": "PET_MASTER_ADDR", "MASTER_PORT": "PET_MASTER_PORT"}


@pytest.mark.usefixtures("distributed")
@pytest.mark.parametrize(
    ("words", "with_flags"),
    [
        (TORCHRUN, False),
        (["python3", "-u", "-m", "torch.distributed.run", "train.py"], False),
        (["python3", "torchrun", "--nnodes=2", "--node_rank=1", "--master-addr", "localhost", "--master-port"], True),
    ],
)
def test_torchrun_waits_until_the_one_of_the_first_pod_listens(words: list[str], *, with_flags: bool) -> None:
    server, environment = bound()
    given = {} if with_flags else of_torchrun(environment)
    with server:
        words = [*words, environment["MASTER_PORT"], "train.py"] if with_flags else words
        waiting = threading.Thread(target=wait_for_first_agent, args=(words, given))
        waiting.start()
        server.listen()
        server.settimeout(SECONDS)
        server.accept()[0].close()
        waiting.join(SECONDS)
        assert not waiting.is_alive()


@pytest.mark.usefixtures("distributed")
@pytest.mark.parametrize(
    ("words", "other"),
    [
        (TORCHRUN, {"RANK": "0"}),
        (["/usr/bin/python3", "/usr/bin/pip", "install", "torchrun"], {}),
        ([*TORCHRUN[:2], "--rdzv-endpoint=elsewhere:29400", "train.py"], {}),
        ([*TORCHRUN[:2], "--node-rank", "0", "train.py"], {}),
        (TORCHRUN, {"MASTER_ADDR": "a-name-of-nothing.invalid"}),
        (TORCHRUN, {"MASTER_PORT": "99999999999999999999"}),
    ],
)
def test_no_other_program_waits_for_it(
    words: list[str], other: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(template, "AGENT_SECONDS", FOREVER)
    server, environment = bound()
    with server:
        wait_for_first_agent(words, of_torchrun({**environment, **other}))


@pytest.mark.usefixtures("distributed")
def test_a_torchrun_that_can_not_be_imported_is_left_to_say_so_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_name: str) -> None:
        raise RuntimeError("a library of it is missing")

    monkeypatch.setattr("importlib.import_module", broken)
    server, environment = bound()
    with server:
        server.listen()
        wait_for_first_agent(TORCHRUN, of_torchrun(environment))
        server.settimeout(SECONDS)
        server.accept()[0].close()


def of_torchrun(environment: dict[str, str]) -> dict[str, str]:
    """What torchrun itself has in its environment, where a rank has these."""
    return {ITS_STORE[name]: value for name, value in environment.items()}


def test_a_process_that_goes_on_waits_in_the_same_way() -> None:
    # gangclient and the sidecar are distributions of their own.
    for name in ("wait_for_first_rank", "wait_for_listener"):
        assert inspect.getsource(getattr(_parking, name)) == inspect.getsource(getattr(template, name))
    for name in ("STORE_USER", "FIRST_RANK_SECONDS", "AGAIN_SECONDS"):
        assert getattr(_parking, name) == getattr(template, name)
