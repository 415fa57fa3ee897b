"""What each case becomes: the GangJob, what is said, and the exit code.

The cases have the fields of manifests and scripts in public repositories, written anew and shortened.
`pytest tests/convert --regenerate` writes the expected files; read the diff.
"""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from gangctl.api.manifest import load_gangjob
from gangctl.cli.main import main

CASES = sorted(path for path in (Path(__file__).parent / "cases").iterdir() if path.suffix != ".out")


def words(case: Path) -> list[str]:
    """The arguments of `gangctl convert`."""
    return shlex.split(case.read_text()) if case.suffix == ".line" else [str(case)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
def test_a_case_becomes_what_its_file_says(
    case: Path, capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> None:
    code = main(["convert", *words(case)])
    said = capsys.readouterr()
    made = f"{said.out}# exit code {code}\n" + "".join(f"# {line}\n" for line in said.err.splitlines())
    expected = case.with_suffix(f"{case.suffix}.out")
    if request.config.getoption("--regenerate"):
        expected.write_text(made.replace(str(case), case.name))
    assert made.replace(str(case), case.name) == expected.read_text()
    if code == 0:
        job = load_gangjob(said.out, "the result")
        assert job.spec.roles
