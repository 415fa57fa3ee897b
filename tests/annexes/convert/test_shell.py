"""What gangctl convert takes from a line of a script is what bash takes from it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gangctl.annexes.convert import converter
from gangctl.annexes.convert.fields import ConvertError

PIECES = (
    *(
        "a",
        "b.py",
        "--c=d",
        "1e-3",
        " ",
        "  ",
        "'",
        '"',
        "$A",
        "${B}",
        '"$A"',
        "$(echo x y)",
        "`echo z`",
        "\\",
        "\\\n",
        "#",
    ),
    *(
        ";",
        "|",
        "&",
        "&&",
        "<",
        ">",
        "(",
        ")",
        "*",
        "?",
        "[a]",
        "{a,b}",
        "~",
        "!",
        "=",
        "'c d'",
        '"e f"',
        "\n",
        "\t",
        ":",
    ),
)


def by_bash(text: str, folder: Path) -> tuple[list[str], str] | None:
    """The words that srun gets, and the B in its environment; None if it isn't called once, or anything is told."""
    srun = 'srun() { printf "%s\\0" "$@" "B=$(printenv B)" >>"$CALLS"; echo >>"$CALLS"; }\n'
    calls = folder / "calls"
    calls.write_text("")
    environment = {"PATH": "/usr/bin:/bin", "CALLS": str(calls), "HOME": "/home"}
    ended = subprocess.run(
        ["bash", "-c", srun + text], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    words = calls.read_text().split("\0")
    return None if ended.stderr or words[-1:] != ["\n"] else (words[:-2], words[-2])


@settings(max_examples=400, deadline=None, derandomize=True)
@given(st.lists(st.sampled_from(PIECES), max_size=12), st.lists(st.sampled_from(PIECES), max_size=5))
def test_a_line_that_needs_no_edit_means_the_same(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[str], value: list[str]
) -> None:
    text = f"A={''.join(value)}\nexport B='y  z'\nsrun python {''.join(pieces)}\n"
    means_the_same(text, tmp_path_factory.mktemp("bash"))


@settings(max_examples=400, deadline=None, derandomize=True)
@given(
    st.sampled_from(("A=1", "A='x  y'", "L=(1 $A)", "L=x", "A=2\nL=('a  b' $A)\nA=3", "L=([2]=x)")),
    st.sampled_from(("L", "L+", "declare -a L", "readonly L", "declare -A L")),
    st.lists(
        st.sampled_from(("a", "--c=d", "'c d'", '"e  f"', "$A", "#", "\n", "# it's\n", "\\\n", *PIECES)), max_size=5
    ),
    st.lists(st.sampled_from(('"${L[@]}"', "${L[@]}", "${L[*]}", '"${L[*]}"', "$L", "${L}", "$A", "a")), max_size=3),
)
def test_an_array_that_needs_no_edit_means_the_same(
    tmp_path_factory: pytest.TempPathFactory, before: str, assigned: str, items: list[str], words: list[str]
) -> None:
    text = f"export B='y  z'\n{before}\n{assigned}=({' '.join(items)})\nsrun python {' '.join(words)}\n"
    means_the_same(text, tmp_path_factory.mktemp("bash"))


def means_the_same(text: str, folder: Path) -> None:
    """Compare what srun gets from bash with the result, if that needs no edit."""
    try:
        made = converter.of_sbatch(text, "", "image")
    except ConvertError:
        return
    if made.needs_edit:
        return
    container = made.document["spec"]["roles"][0]["template"]["spec"]["containers"][0]
    words = by_bash(text, folder)
    exported = "".join(one["value"] for one in container.get("env", ()) if one["name"] == "B")
    assert words == (container["command"], f"B={exported}"), text
