"""Images that lack what a supervisor might need: no Python, another C library, no file but the worker."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from e2e.cluster import toolchain
from e2e.images.debian import Debian
from e2e.images.store import Layer, key
from e2e.images.supervisor import Supervisor

WORKER = Path(__file__).with_name("hello.c")
COMPILE = """
mkdir -p /workers/static /workers/musl/lib
gcc -O2 -s -static -o /workers/static/worker /hello.c
musl-gcc -O2 -s -o /workers/musl/worker /hello.c
cp -L /lib/ld-musl-*.so.1 /workers/musl/lib/
"""
NO_PYTHON = "rm -r /usr/bin/python3* /usr/lib/python3* /usr/local/bin/python /usr/share/python3"
FAKES = {
    "python": "echo 'Python 2.7.18' >&2; exit 1",
    "python2": "echo 'Python 2.7.18' >&2; exit 1",
    "python3": "echo 'Python 3.4.10' >&2; exit 1",
}
"""Programs that must not be taken for an interpreter of the supervisor."""
APPLETS = ("sh", "sleep")
NAMES = ("busybox", "scratch", "musl", "no-python", "old-python")


class Bare:
    """The layers of these images, lowest first. All but busybox's have the program ``/worker``."""

    def __init__(self, debian: Debian, supervisor: Supervisor) -> None:
        self._debian = debian
        self._supervisor = supervisor

    def layers(self, name: str) -> tuple[Layer, ...]:
        """The layers of the image with this name."""
        makers = {
            "busybox": self._busybox,
            "scratch": self._scratch,
            "musl": self._musl,
            "no-python": self._no_python,
            "old-python": self._old_python,
        }
        return makers[name]()

    def workers(self) -> Path:
        """A folder with the roots ``static`` and ``musl``, which have the worker."""
        lower = self._supervisor.tools()
        name = key("workers", lower[-1].name, COMPILE, WORKER.read_bytes())
        with tempfile.TemporaryDirectory() as work:
            shutil.copy(WORKER, work)
            return self._debian.folder(name, lower, COMPILE, Path(work)) / "workers"

    def _scratch(self) -> tuple[Layer, ...]:
        return (self._from(self.workers() / "static"),)

    def _musl(self) -> tuple[Layer, ...]:
        return (self._from(self.workers() / "musl"),)

    def ping(self) -> Layer:
        """A layer with this program alone, for an image that has the rest."""
        return self._applets("usr/bin", "ping")

    def _busybox(self) -> tuple[Layer, ...]:
        return (self._applets("bin", *APPLETS),)

    def _applets(self, place: str, *names: str) -> Layer:
        (program,) = toolchain.unpacked("busybox-static").glob("**/bin/busybox")
        with tempfile.TemporaryDirectory() as work:
            folder = Path(work) / "root" / place
            folder.mkdir(parents=True)
            shutil.copy(program, folder)
            for name in names:
                (folder / name).symlink_to("busybox")
            return self._from(Path(work) / "root")

    def _no_python(self) -> tuple[Layer, ...]:
        root, base = self._debian.base()
        _, without = self._debian.above(key("no-python", root.name, NO_PYTHON), [root], NO_PYTHON)
        return base, without, *self._scratch()

    def _old_python(self) -> tuple[Layer, ...]:
        with tempfile.TemporaryDirectory() as work:
            folder = Path(work) / "root/usr/local/bin"
            folder.mkdir(parents=True)
            for name, script in FAKES.items():
                (folder / name).write_text(f"#!/bin/sh\n{script}\n")
                (folder / name).chmod(0o755)
            return *self._no_python(), self._from(Path(work) / "root")

    def _from(self, root: Path) -> Layer:
        files = [path for path in sorted(root.rglob("*")) if path.is_file()]
        name = key("bare", *(part for path in files for part in (str(path.relative_to(root)), path.read_bytes())))
        return self._debian.store.known(name) or self._debian.store.add(name, root, owned_by_root=True)
