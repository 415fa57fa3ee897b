"""Debian root file systems, made by debootstrap from the mirror that this machine's apt uses."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from e2e.cluster import versions
from e2e.cluster.progress import timed
from e2e.cluster.toolchain import Missing
from e2e.images.store import Layer, Store, key

SUITE = "trixie"
"""Its Python is 3.13, as in the released images."""

PRUNED = ("var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/locale", "usr/share/man", "var/log")

INSTALL = """
mount -t overlay overlay -o "lowerdir=$LOWER,upperdir=$UPPER,workdir=$WORK" "$ROOT"
mount -t proc proc "$ROOT/proc"
mount -t tmpfs tmpfs "$ROOT/tmp"
cp /etc/resolv.conf "$ROOT/tmp/resolv.conf"
touch "$ROOT/etc/resolv.conf"
mount --bind "$ROOT/tmp/resolv.conf" "$ROOT/etc/resolv.conf"
exec chroot "$ROOT" sh -ec "$SCRIPT"
"""


class Debian:
    """The root file systems in a store's folder."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def base(self) -> tuple[Path, Layer]:
        """Minimal Debian with python3: its root folder, and its layer.

        Raises:
            Missing: debootstrap failed.
        """
        name = key("debian", SUITE, "python3", *PRUNED)
        root = self.store.folder / name
        with versions.lock("images"):
            if not root.exists():
                _debootstrap(root)
            return root, self.store.known(name) or self.store.add(name, root, owned_by_root=False)

    def above(self, name: str, lower: list[Path], script: str, prepared: Path | None = None) -> tuple[Path, Layer]:
        """What a shell script changes when root runs it in the lower root folders: as a folder, and as a layer.

        ``prepared``: a folder whose content is added before the script runs, and belongs to the layer.

        Raises:
            Missing: the script failed.
        """
        root = self.folder(name, lower, script, prepared)
        with versions.lock("images"):
            return root, self.store.known(name) or self.store.add(name, root, owned_by_root=False)

    def folder(self, name: str, lower: list[Path], script: str, prepared: Path | None = None) -> Path:
        """The same as a folder only, for what is no part of an image.

        Raises:
            Missing: the script failed.
        """
        root = self.store.folder / name
        with versions.lock("images"):
            if not root.exists():
                _run(root, lower, script, prepared)
        return root


def _debootstrap(root: Path) -> None:
    half = root.with_suffix(".half")
    shutil.rmtree(half, ignore_errors=True)
    with timed(f"making a Debian {SUITE} root file system with python3 (about a minute)"):
        command = ["debootstrap", "--variant=minbase", "--include=python3", SUITE, str(half), mirror()]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=_environment())
        if done.returncode != 0:
            raise Missing(f"{' '.join(command)}: {(done.stdout + done.stderr).strip()[-1000:]}")
        prune(half)
    (half / "usr/local/bin/python").symlink_to("/usr/bin/python3")
    half.rename(root)


def _run(root: Path, lower: list[Path], script: str, prepared: Path | None) -> None:
    work, mount, half = (root.with_suffix(end) for end in (".work", ".mount", ".half"))
    for folder in (work, mount, half):
        shutil.rmtree(folder, ignore_errors=True)
    for folder in (work, mount):
        folder.mkdir()
    if prepared is None:
        half.mkdir()
    else:
        shutil.copytree(prepared, half, symlinks=True)
    command = ["unshare", "--mount", "--pid", "--fork", "--propagation", "private", "sh", "-ec", INSTALL]
    env = _environment() | {
        "LOWER": ":".join(str(one) for one in reversed(lower)),
        "UPPER": str(half),
        "WORK": str(work),
        "ROOT": str(mount),
        "SCRIPT": script,
        "TMPDIR": "/tmp",  # that of the host may not exist in the root folder
        "DEBIAN_FRONTEND": "noninteractive",
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    }
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    shutil.rmtree(work)
    mount.rmdir()
    if done.returncode != 0:
        raise Missing(f"{root.name}: {(done.stdout + done.stderr).strip()[-2000:]}")
    prune(half)
    _mark_deleted(half)
    half.rename(root)


def mirror() -> str:
    """The mirror from which this machine's apt gets Debian.

    Raises:
        Missing: apt has no Debian archive among its sources.
    """
    sites = _debian_sites()
    if not sites:  # apt knows the origin of an archive only when it has its lists
        subprocess.run(["apt-get", "update", "-qq"], capture_output=True, check=False)
        sites = _debian_sites()
    if not sites:
        raise Missing(
            f"debootstrap needs a mirror with Debian {SUITE}, and apt has no Debian archive:"
            " add one to its sources (see sources.list(5)), and run `apt-get update`"
        )
    return sites[0]


def _debian_sites() -> list[str]:
    command = ["apt-get", "indextargets", "--format", "$(SITE)", "Created-By: Packages", "Origin: Debian"]
    found = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    return [site for site in found.splitlines() if not site.endswith("-security")]


def prune(root: Path) -> None:
    """Remove what no container needs."""
    for name in PRUNED:
        folder = root / name
        if folder.is_dir():
            shutil.rmtree(folder)
            folder.mkdir()


def _environment() -> dict[str, str]:
    """The environment of debootstrap: it uses the same HTTP proxy as apt."""
    printed = subprocess.run(
        ["apt-config", "shell", "PROXY", "Acquire::http::Proxy"], capture_output=True, text=True, check=False
    ).stdout.strip()
    proxy = printed.removeprefix("PROXY=").strip("'")
    return os.environ | ({"http_proxy": proxy} if proxy else {})


def _mark_deleted(layer: Path) -> None:
    """Turn the marks of deleted files from an overlay's (a device 0:0) into an image's (an empty file `.wh.NAME`)."""
    for folder, _, files in os.walk(layer):
        for file in files:
            path = Path(folder) / file
            if path.is_char_device() and path.lstat().st_rdev == 0:
                path.unlink()
                (path.parent / f".wh.{file}").touch()
