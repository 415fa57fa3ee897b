"""The command line as a whole: help, unknown words, errors in one line."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from contextvars import copy_context
from pathlib import Path

import pytest
import yaml

from gangctl.api.crd import crd
from gangctl.cli.command_name import as_typed, remember_target
from gangctl.cli.main import main
from gangctl.cli.registry import verbs

VERBS = [
    "init",
    "check",
    "run",
    "status",
    "trace",
    "timeline",
    "restart",
    "suspend",
    "resume",
    "stop",
    "delete",
    "rerun",
    "inject",
    "classify",
    "convert",
    "completion",
    "crd",
    "version",
]


def test_help_names_every_verb_and_imports_nothing_heavy() -> None:
    script = """
import sys
from gangctl.cli.command_name import as_typed, remember_target
from gangctl.cli.main import main
from gangctl.cli.registry import verbs
assert main(["--help"]) == 0
heavy = {"pydantic", "rich", "aiohttp", "yaml", "asyncio"} & set(sys.modules)
assert not heavy, heavy
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert all(f"\n  {verb} " in done.stdout for verb in VERBS)


def test_the_help_lists_the_verb_of_an_annex_at_its_place(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    assert out.index("\n  classify ") < out.index("\n  convert ") < out.index("\n  crd ")


@pytest.mark.parametrize("verb", verbs())
def test_the_reference_has_each_verb_and_the_help_the_permissions_of_those_with_a_target(verb: str) -> None:
    table = (Path(__file__).parents[2] / "docs/reference/cli.md").read_text().partition("## What is wrong")[0]
    assert re.search(rf"^\| (`\w+`, )*`{verb}`", table, re.MULTILINE)
    parser = argparse.ArgumentParser()
    verbs()[verb].load().configure(parser)
    if "--context" in parser.format_usage():
        assert re.search(r"Permissions?\b[^:]*:\s+(get|list)", parser.format_help())


@pytest.mark.parametrize(
    ("verb", "state", "pods"),
    [
        ("restart", "until the new attempt runs", False),
        ("suspend", "until no pod is left", True),
        ("resume", "until the gang runs", False),
    ],
)
def test_the_help_says_what_a_verb_waits_for_and_whether_it_lists_pods(verb: str, state: str, *, pods: bool) -> None:
    parser = argparse.ArgumentParser()
    verbs()[verb].load().configure(parser)
    text = " ".join(parser.format_help().split())
    assert state in text
    assert ("list pods" in text) is pods


@pytest.mark.parametrize("verb", verbs())
def test_a_command_in_a_text_gets_the_target_if_its_verb_has_one(verb: str) -> None:
    parser = argparse.ArgumentParser()
    verbs()[verb].load().configure(parser)
    with_target = copy_context()
    with_target.run(remember_target, {"state_dir": "here"})
    expected = f"gangctl {verb} --state-dir here x"
    assert (with_target.run(as_typed, f"gangctl {verb} x") == expected) == ("--state-dir" in parser.format_usage())


def test_a_target_is_not_given_twice_and_a_state_directory_is_not_for_kubectl() -> None:
    here = copy_context()
    here.run(remember_target, {"namespace": "a", "context": "b c", "state_dir": "d"})
    text = "gangctl status -A; kubectl describe pod x -n other, kubectl cordon n1"
    expected = (
        "gangctl status --context 'b c' --state-dir d -A; kubectl describe --context 'b c' pod x -n other, "
        "kubectl cordon -n a --context 'b c' n1"
    )
    assert here.run(as_typed, text) == expected
    assert here.run(as_typed, expected) == expected


@pytest.mark.parametrize("verb", VERBS)
def test_the_help_of_each_verb_teaches_with_an_example(capsys: pytest.CaptureFixture[str], verb: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main([verb, "--help"])
    assert ended.value.code == 0
    assert f"gangctl {verb}" in capsys.readouterr().out


def test_a_verb_that_does_not_exist_gives_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["statsu"]) == 2
    assert capsys.readouterr().err == "error: there is no verb 'statsu': did you mean 'status'?\n"


def test_a_gang_that_does_not_exist_is_an_error_in_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for verb in (
        ["status"],
        ["trace"],
        ["timeline"],
        ["restart"],
        ["suspend"],
        ["resume"],
        ["stop"],
        ["delete"],
        ["rerun"],
        ["inject", "--kill-controller"],
    ):
        assert main([*verb, "demo", "--state-dir", str(tmp_path)]) == 2
        err = capsys.readouterr().err
        assert err.startswith("error: there is no gang 'demo'")
        assert err.count("\n") == 1


def test_a_name_that_leaves_the_state_directory_is_rejected(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["status", "../../etc", "--state-dir", str(tmp_path)]) == 2
    assert "is not a valid name of a gang" in capsys.readouterr().err


def test_the_crd_is_printed_as_yaml(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["crd"]) == 0
    assert yaml.safe_load(capsys.readouterr().out) == crd()


def test_without_a_verb_the_help_is_shown_and_it_is_bad_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "usage: gangctl VERB" in capsys.readouterr().out


def test_a_folder_as_a_manifest_is_an_error(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["classify", str(tmp_path), "--exit-code", "1"]) == 2
    assert capsys.readouterr().err == f"error: {tmp_path} can't be read: Is a directory\n"


def test_control_characters_of_a_file_name_are_written_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["classify", "no\x1b[31m\nsuch.yaml", "--exit-code", "1"]) == 2
    err = capsys.readouterr().err
    assert "\x1b" not in err
    assert "doesn't exist" in err
    assert main(["classify", "no\x9b31m\u202esuch.yaml", "--exit-code", "1"]) == 2
    assert r"no\x9b31m\u202esuch.yaml" in capsys.readouterr().err


def test_a_disk_that_is_full_is_no_bug() -> None:
    words = [sys.executable, "-m", "gangctl", "crd"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "error: nothing more can be written: No space left on device\n")


def test_help_of_a_verb_is_the_same_as_its_help_option(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["run", "--help"])
    expected = capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        main(["help", "run"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == expected
    assert main(["help", "rum"]) == 2
    assert "did you mean 'run'?" in capsys.readouterr().err


def test_an_option_may_stand_between_the_arguments(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["g", "--tail", "3", "worker-0"], ["--tail", "3", "g", "worker-0"], ["g", "worker-0", "--tail", "3"]):
        assert main(["logs", *words, "--state-dir", str(tmp_path)]) == 2
        assert "there is no gang 'g'" in capsys.readouterr().err
    assert main(["inject", "g", "--signal", "KILL", "worker-0", "--state-dir", str(tmp_path)]) == 2
    assert "there is no gang 'g'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["logs", "g", "--tail", "3", "worker-0", "worker-1"], "unrecognized arguments: worker-1"),
        (["logs", "g", "--tial", "3", "worker-0"], "unrecognized arguments: --tial"),
        (["restart"], "the following arguments are required: NAME"),
        (["inject", "g", "--rank", "1", "worker-0"], "one of the arguments --signal --exit-code"),
        (["check", "a", "--member", "m", "b"], "unrecognized arguments: b"),
    ],
)
def test_arguments_that_are_too_many_or_unknown_are_refused(
    capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_a_home_that_is_not_known_is_no_bug(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KUBECONFIG", "~nosuchuser/config")
    assert main(["status", "g", "-n", "research"]) == 2
    assert "there is no kubeconfig at ~nosuchuser/config" in capsys.readouterr().err


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_stream_that_is_closed_is_no_bug(closed: str) -> None:
    done = subprocess.run(
        ["sh", "-c", f"exec '{sys.executable}' -m gangctl version {closed}"], capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")
