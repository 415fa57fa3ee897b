"""The examples of frameworks as tests and benchmarks submit them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import yaml

from e2e.gangs import CHECKPOINTS

EXAMPLES = Path(__file__).parents[2] / "examples"
IMAGE = "gangctl/examples-frameworks:e2e"


def document(name: str, example: str, variables: dict[str, str], folder: Path) -> dict[str, Any]:
    """An example, as it is but for names, the image, the script's place and its variables.

    Args:
        name: of the gang.
        example: such as ``frameworks/trainer``: its manifest without the ending.
        variables: more for the worker's environment.
        folder: where the script is put and checkpoints are written; all pods mount it.
    """
    folder.mkdir()
    folder.chmod(0o777)
    made: dict[str, Any] = yaml.safe_load((EXAMPLES / f"{example}.yaml").read_text())
    made["metadata"]["name"] = name
    pod = made["spec"]["roles"][0]["template"]["spec"]
    container = pod["containers"][0]
    script = Path(next(word for word in container["command"] if word.endswith(".py"))).name
    shutil.copy((EXAMPLES / example).with_name(script), folder)
    container |= {"name": "main", "image": IMAGE, "command": ["python3", f"{CHECKPOINTS}/{script}"]}
    container["env"] += [{"name": key, "value": value} for key, value in variables.items()]
    pod["volumes"][0]["hostPath"]["path"] = str(folder)
    return made
