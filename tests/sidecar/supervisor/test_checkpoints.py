"""Only complete steps exist."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from gangctl.core.policy.checkpoints import LAYOUTS
from gangsidecar.supervisor.lookups import scan
from gangsidecar.wire import MAX_FOUND, Tier

if TYPE_CHECKING:
    from pathlib import Path

NAMES = {
    "TorchDCP": "step-{}",
    "HuggingFace": "checkpoint-{}",
    "Megatron": "iter_{:07d}",
    "Orbax": "{}",
    "Lightning": "epoch=0-step={}.ckpt",
}


def tier(directory: Path, pattern: str = "step-{step}", complete: str = "DONE") -> Tier:
    return Tier("shared", str(directory), pattern, complete)


def write(directory: Path, name: str, *files: str) -> Path:
    folder = directory / name
    folder.mkdir(parents=True)
    for file in files:
        (folder / file).touch()
    return folder


def steps(*tiers: Tier, limit: int = MAX_FOUND) -> list[int]:
    found, error = scan(tiers, limit)
    assert error == ""
    return [one.step for one in found]


@pytest.mark.parametrize("name", sorted(LAYOUTS.keys() - {"Lightning"}))
def test_a_scan_finds_a_layouts_complete_steps_and_no_torn_one(name: str, tmp_path: Path) -> None:
    pattern, complete = LAYOUTS[name]
    for step in (90, 100):
        write(tmp_path, NAMES[name].format(step), complete, "weights")
    write(tmp_path, NAMES[name].format(110), "weights")
    assert steps(tier(tmp_path, pattern, complete)) == [100, 90]


def test_an_orbax_step_that_was_not_renamed_yet_does_not_exist(tmp_path: Path) -> None:
    write(tmp_path, "100.orbax-checkpoint-tmp", "_CHECKPOINT_METADATA")
    assert steps(tier(tmp_path, *LAYOUTS["Orbax"])) == []


def test_steps_are_ordered_by_number_not_by_name(tmp_path: Path) -> None:
    for step in (9, 10, 100):
        write(tmp_path, f"step-{step}", "DONE")
    assert steps(tier(tmp_path)) == [100, 10, 9]


def test_a_scan_lists_only_the_newest_steps(tmp_path: Path) -> None:
    for step in range(20):
        write(tmp_path, f"step-{step}", "DONE")
    assert steps(tier(tmp_path), limit=3) == [19, 18, 17]


def test_other_names_and_plain_files_are_no_steps(tmp_path: Path) -> None:
    for name in ("step-", "step-1a", "astep-1", "step-1.tmp", "step--1", "step-٣"):
        write(tmp_path, name, "DONE")
    (tmp_path / "step-5").touch()
    (tmp_path / "latest").symlink_to("nowhere")
    assert steps(tier(tmp_path)) == []


def test_the_marker_of_a_complete_step_must_be_a_file(tmp_path: Path) -> None:
    (write(tmp_path, "step-1") / "DONE").mkdir()
    assert steps(tier(tmp_path)) == []


def test_without_a_marker_a_step_is_a_file(tmp_path: Path) -> None:
    write(tmp_path, "step-1", "DONE")
    (tmp_path / "step-2").touch()
    assert steps(tier(tmp_path, complete="")) == [2]


def test_a_star_is_any_text_and_the_number_is_whole(tmp_path: Path) -> None:
    for name in ("model-120.pt", "old 7-9.pt", "x-3.pt.tmp", f"big-{'1' * 19}.pt", "a5.pt"):
        (tmp_path / name).touch()
    assert steps(tier(tmp_path, "*-{step}.pt", "")) == [120, 9]
    assert steps(tier(tmp_path, "*{step}*.pt", "")) == [120, 9, 5]


def test_the_files_of_lightning_are_steps(tmp_path: Path) -> None:
    names = (
        "epoch=0-step=90.ckpt",
        "best-epoch=00-val_loss=0.25-step=100.ckpt",
        "step=110.ckpt",
        "last.ckpt",
        "7.ckpt",
    )
    for name in (*names, "hparams.yaml"):
        (tmp_path / name).touch()
    write(tmp_path, "epoch=1-step=120.ckpt", "meta.pt")  # of all ranks' shards
    assert steps(tier(tmp_path, *LAYOUTS["Lightning"])) == [110, 100, 90]
    (tmp_path / "step=110-v1.ckpt").touch()
    (first, *_), _ = scan([tier(tmp_path, *LAYOUTS["Lightning"])])
    assert first.path == str(tmp_path / "step=110-v1.ckpt")


def test_the_same_number_with_other_zeros_is_one_step(tmp_path: Path) -> None:
    write(tmp_path, "step-7", "DONE")
    write(tmp_path, "step-0007")
    assert steps(tier(tmp_path)) == [7]


def test_a_step_written_again_has_another_marker(tmp_path: Path) -> None:
    folder = write(tmp_path, "step-1", "DONE")
    (before,), _ = scan([tier(tmp_path)])
    (again,), _ = scan([tier(tmp_path)])
    assert before == again
    (folder / "new").touch()
    os.utime(folder / "new", ns=(1, 1))
    (folder / "new").replace(folder / "DONE")
    (after,), _ = scan([tier(tmp_path)])
    assert after.marker != before.marker
    assert after.path == str(folder)


def test_a_scan_follows_links_to_other_steps_but_not_out_of_the_directory(tmp_path: Path) -> None:
    directory = tmp_path / "tier"
    write(directory, "kept", "DONE")
    (directory / "step-1").symlink_to("kept")
    (directory / "step-2").symlink_to(write(tmp_path, "elsewhere", "DONE"))
    assert steps(tier(directory)) == [1]


def test_a_missing_directory_holds_no_step(tmp_path: Path) -> None:
    assert scan([tier(tmp_path / "none")]) == ((), "")


def test_an_error_in_one_tier_is_reported_beside_the_steps_of_the_others(tmp_path: Path) -> None:
    write(tmp_path, "step-1", "DONE")
    (tmp_path / "file").touch()
    found, error = scan([tier(tmp_path / "file"), tier(tmp_path), tier(tmp_path, pattern="step")])
    assert [one.step for one in found] == [1]
    assert "Not a directory" in error
    assert "pattern 'step'" in error
