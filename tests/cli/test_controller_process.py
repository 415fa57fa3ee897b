"""The controller as a child: started again when it dies, given up when it can't live, ended when we end."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gangctl.cli.local import controller_process
from gangctl.cli.local.controller_process import ControllerFailedError, ControllerProcess
from gangctl.cluster.local.layout import StateDirectory
from tests.wait import SECONDS


async def test_a_controller_that_cannot_live_is_given_up_with_its_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller_process, "FIRST_PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(controller_process, "MOST_QUICK_DEATHS", 3)
    (tmp_path / "gangs").write_text("this is no folder")
    said: list[str] = []
    with pytest.raises(ControllerFailedError, match=r"died 3 times in a row.*gangs.*controller\.log"):
        async with asyncio.timeout(SECONDS):
            await ControllerProcess(StateDirectory(tmp_path), said.append).run()
    assert len(said) == 2
    assert all("the controller died with exit code 1; workers continue to train" in text for text in said)
