"""Images as the containers of Slurm name them (pyxis and enroot): ``[docker://][USER@][REGISTRY#]IMAGE[:TAG]``."""

from __future__ import annotations

from typing import Final

from gangctl.convert.fields import Notes

OPTION: Final = "container-image"
MISSING: Final = {
    "container-mounts": "is not carried over: mount volumes in the template",
    "container-workdir": "is not carried over: set workingDir of the container in the template",
    "container-env": "is not carried over: set env of the container in the template",
}
"""Options for the container that need an edit, and what becomes of them."""


def image(given: str, flag: str, instead: str, notes: Notes) -> str:
    """The image as Kubernetes names it; empty if there is none.

    Args:
        given: as Slurm names it; empty = not at all.
        flag: the option that names it, for the notes.
        instead: the image that the user names in the call of gangctl convert; empty = none.
        notes: get what becomes of it.
    """
    path = f"{flag}={given}"
    if not given or instead:
        if given:
            notes.add(path, f"goes: --image names {instead}")
        return instead
    if given.startswith(("/", "./", "../", "~", "$")) or given.endswith(".sqsh"):
        notes.add(path, "is a file of enroot: push it to a registry as an image, and name that (--image)", is_edit=True)
        return ""
    name = given.removeprefix("docker://").rpartition("@")[2] if "@sha256:" not in given else given
    name = name.removeprefix("docker://").replace("#", "/", 1)
    notes.add(path, f"became the image {name}")
    return name
