"""The built-in checks with the newest PyTorch and without a GPU: products of a CPU, and sums by gloo."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from e2e.versions.test_versions import SECONDS, python
from gangsidecar import install
from gangsidecar.supervisor.checks import BUILTIN
from tests.ports import free_port

FLIP, SLOW = 4, 1


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("archive") / "supervisor.pyz"
    install.build_archive(path)
    return path


def together(archive: Path, *words: str, ranks: int = 2, flips: Path | None = None) -> list[tuple[int, str]]:
    """Run a check in so many ranks; the exit code and the last line of each. ``flips``: exists where a bit flips."""
    port = free_port()
    started = []
    for rank in range(ranks):
        fault = ["--inject-fault", str(flips)] if flips is not None and rank == ranks - 1 else []
        place = {"RANK": rank, "SIZE": ranks, "HOST": "127.0.0.1", "PORT": port}
        environment = {**os.environ, **{f"GANG_CHECK_{name}": str(value) for name, value in place.items()}}
        command = [str(python("newest")), "-c", BUILTIN, str(archive), *words, *fault]
        started.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True))
    try:
        return [(one.returncode, said.splitlines()[-1]) for one in started for said in [_output(one)]]
    finally:
        for one in started:
            one.kill()
            one.communicate()


def _output(process: subprocess.Popen[Any]) -> str:
    return str(process.communicate(timeout=SECONDS)[0])


def test_a_product_of_the_cpu_is_exact_and_a_bit_that_flips_is_found(archive: Path, tmp_path: Path) -> None:
    ((code, said),) = together(archive, "MatMul", "--seconds", "0", ranks=1)
    assert (code, said) == (0, "1 products each on cpu are exact to the bit: digest 38094e8e36757240")
    flips = tmp_path / "flips"
    flips.touch()
    ((code, said),) = together(archive, "MatMul", "--seconds", "0", ranks=1, flips=flips)
    assert code == FLIP
    assert said.startswith("a product on cpu differs from the stored one")


def test_gloo_passes_and_finds_a_slow_link_and_a_wrong_sum(archive: Path, tmp_path: Path) -> None:
    found = together(archive, "AllReduce", "--mib", "4", "--floor", "0.01", "--wait", "120")
    assert [code for code, _ in found] == [0, 0]
    assert all("through each rank of 2 by gloo" in said for _, said in found)
    found = together(archive, "AllReduce", "--mib", "4", "--floor", "1e9", "--wait", "120")
    assert [code for code, _ in found] == [SLOW, SLOW]
    flips = tmp_path / "flips"
    flips.touch()
    found = together(archive, "AllReduce", "--mib", "4", "--wait", "120", flips=flips)
    assert [code for code, _ in found] == [FLIP, FLIP]
    assert all(said.startswith("the sum over 2 ranks is wrong: 4 to 3") for _, said in found)
