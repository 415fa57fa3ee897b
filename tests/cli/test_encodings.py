"""Locales without UTF-8, and names that are no UTF-8."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.cli.here import Here, here, manifest
from tests.wait import SECONDS

SPEAKS = ("sh", "-c", 'echo "grüße $RANK"; pwd')
NAME = "wörk"


def _gangctl(folder: Here, directory: bytes, *words: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "gangctl", *words],
        check=False,
        cwd=directory,
        env=folder.env(**environment),
        capture_output=True,
        timeout=SECONDS,
    )


@pytest.mark.parametrize(
    "locale",
    [
        pytest.param({"LC_ALL": "C", "PYTHONUTF8": "0"}, marks=pytest.mark.nightly),
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"},
    ],
)
def test_a_locale_without_utf_8_runs_a_manifest_and_a_path_that_need_it(folder: Here, locale: dict[str, str]) -> None:
    directory = folder.path / NAME
    directory.mkdir()
    folder.write(manifest(SPEAKS, 1), f"{NAME}/jöb.yaml")
    there = os.fsencode(directory)
    done = _gangctl(folder, there, "run", "jöb.yaml", "--logs", **locale)
    assert done.returncode == 0, done.stderr
    assert "g has succeeded" in done.stdout.decode("ascii")
    assert _gangctl(folder, there, "status", "g", **locale).returncode == 0
    assert _gangctl(folder, there, "logs", "g", **locale).stdout.decode() == f"grüße 0\n{directory}\n"


def test_a_working_directory_that_is_no_utf_8_is_an_error_in_one_line(folder: Here) -> None:
    directory = os.fsencode(folder.path) + b"/w\xf6rk"
    os.mkdir(directory)  # noqa: PTH102 - a Path has no bytes
    path = folder.write(manifest(SPEAKS, 1))
    done = _gangctl(folder, directory, "run", str(path))
    assert done.returncode == 2
    assert "isn't UTF-8, but a gang keeps it as text; run it elsewhere" in done.stderr.decode()
    assert done.stderr.count(b"\n") <= 2
    assert _gangctl(folder, directory, "status").returncode == 0


@pytest.fixture(scope="module")
def restarted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Here]:
    """With a gang that has succeeded after a restart; verbs only read it."""
    with here(tmp_path_factory.mktemp("restarted")) as one:
        one.write(manifest(("sh", "-c", "[ $GANG_ATTEMPT = 1 ] && exit 3; true"), 1))
        assert one.run().wait() == 0
        yield one


@pytest.mark.parametrize("verb", [pytest.param("trace", marks=pytest.mark.nightly), "timeline"])
@pytest.mark.parametrize(
    ("locale", "is_ascii"),
    [
        ({"LC_ALL": "C"}, True),
        ({"LC_ALL": "POSIX"}, True),
        ({"LC_ALL": "C.UTF-8"}, False),
        ({"LC_ALL": "C", "PYTHONIOENCODING": "utf-8"}, False),
        ({"LC_ALL": "", "LC_CTYPE": "C.UTF-8", "LANG": "C"}, False),
    ],
)
def test_drawings_are_ascii_where_the_locale_is(
    restarted: Here, locale: dict[str, str], verb: str, *, is_ascii: bool
) -> None:
    done = _gangctl(restarted, os.fsencode(restarted.path), verb, "g", **locale)
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii() == is_ascii
