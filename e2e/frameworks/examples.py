"""The examples of frameworks as tests and benchmarks submit them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import yaml

from e2e.gangs import CHECKPOINTS

EXAMPLES = Path(__file__).parents[2] / "examples"
IMAGE = "gangctl/examples-frameworks:e2e"


def document(
    name: str, example: str, variables: dict[str, str], folder: Path, script: Path | None = None
) -> dict[str, Any]:
    """An example, as it is but for names, the image, the script's place and its variables.

    Args:
        name: of the gang.
        example: such as ``frameworks/trainer``: its manifest without the ending.
        variables: more for the worker's environment.
        folder: where the script is put and checkpoints are written; all pods mount it.
        script: another than the example's.
    """
    folder.mkdir()
    folder.chmod(0o777)
    made: dict[str, Any] = yaml.safe_load((EXAMPLES / f"{example}.yaml").read_text())
    made["metadata"]["name"] = name
    pod = made["spec"]["roles"][0]["template"]["spec"]
    container = pod["containers"][0]
    named = Path(next(word for word in container["command"] if word.endswith(".py"))).name
    copied = Path(shutil.copy(script or (EXAMPLES / example).with_name(named), folder))
    container |= {"name": "main", "image": IMAGE, "command": ["python3", f"{CHECKPOINTS}/{copied.name}"]}
    container["env"] += [{"name": key, "value": value} for key, value in variables.items()]
    pod["volumes"][0]["hostPath"]["path"] = str(folder)
    return made
