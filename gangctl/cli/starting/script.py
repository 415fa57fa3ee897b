"""What a folder and a training script tell: which script it is, what it uses, and how it is started."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from gangctl.cli.starting.starter import Framework

MAX_BYTES: Final = 1 << 20
_LIKELY: Final = ("train.py", "main.py", "run.py", "pretrain.py", "finetune.py", "train.sh")
_TORCH: Final = re.compile(r"\btorch\.distributed\b|\binit_process_group\b|\bfrom torch import distributed\b")
_JAX: Final = re.compile(r"^\s*(?:import|from)\s+jax\b", re.MULTILINE)
_RANKS: Final = re.compile(r"\b(?:RANK|WORLD_SIZE|gangclient)\b")
_NO_NAME: Final = re.compile(r"[^a-z0-9]+")


def likely(folder: Path) -> str:
    """The script that most likely starts the training; empty if there is none."""
    found = next((name for name in _LIKELY if (folder / name).is_file()), "")
    scripts = sorted(path.name for path in folder.glob("*.py"))
    return found or (scripts[0] if len(scripts) == 1 else "")


def framework(text: str) -> Framework:
    """What the text of a script uses."""
    if _JAX.search(text):
        return Framework.JAX
    return Framework.TORCHRUN if _TORCH.search(text) else Framework.SCRIPT


def members(text: str, used: Framework) -> int:
    """How many members make sense: two show what a restart is; a script that knows no ranks is one process."""
    return 1 if used is Framework.SCRIPT and not _RANKS.search(text) else 2


def content(path: Path) -> str:
    """The text of a script; empty if it isn't text."""
    try:
        with path.open("rb") as file:
            return file.read(MAX_BYTES).decode("utf-8", errors="replace")
    except OSError:
        return ""


def command(script: str, arguments: Sequence[str], used: Framework, folder: Path) -> tuple[str, ...]:
    """The command that starts the script."""
    if used is Framework.TORCHRUN:
        if shutil.which("torchrun") or not shutil.which("python3"):
            return ("torchrun", script, *arguments)
        return ("python3", "-m", "torch.distributed.run", script, *arguments)
    if script.endswith(".py"):
        return ("python3", script, *arguments)
    if os.access(folder / script, os.X_OK):
        return (script if "/" in script else f"./{script}", *arguments)
    return ("sh", script, *arguments)


def gang_name(script: str) -> str:
    """A name for the gang."""
    name = _NO_NAME.sub("-", Path(script).stem.lower()).strip("-")[:42].strip("-")
    return name or "train"
