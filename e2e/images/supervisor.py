"""The supervisor's static executable, built in Debian with the packages of containers/sidecar.Containerfile."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path

from e2e.cluster.progress import timed
from e2e.images.debian import Debian
from e2e.images.store import key

SOURCES = Path(__file__).resolve().parents[2] / "sidecar"
PLACE = "opt/gangctl/supervisor"
"""Where it is in the root folder in which it was built."""
KEPT = 5
"""How many versions of it stay in the cache."""
BUILD = f"/build/static/build.sh /{PLACE}; rm -r /build"

PACKAGES = """
apt-get update -qq
apt-get install -qq --no-install-recommends gcc libc6-dev libpython3.13-dev musl-tools >/dev/null
"""
"""With musl's compiler, for a worker of the tests."""

CROSS = """
dpkg --add-architecture arm64
apt-get update -qq
apt-get install -qq --no-install-recommends gcc-aarch64-linux-gnu libc6-dev-arm64-cross >/dev/null
mkdir /arm64
cd /arm64
apt-get download -qq libpython3.13-dev:arm64
dpkg-deb -x libpython3.13-dev_*.deb /arm64
rm libpython3.13-dev_*.deb
"""
FOR_ARM64 = f"""
export CC=aarch64-linux-gnu-gcc STRIP=aarch64-linux-gnu-strip LIBPYTHON=/arm64
{BUILD}
"""


class Supervisor:
    """Builds it, once for its content."""

    def __init__(self, debian: Debian) -> None:
        self._debian = debian

    def executable(self) -> Path:
        """The executable for this machine."""
        return self._built("supervisor", self.tools(), BUILD)

    def arm64(self) -> Path:
        """The executable for another architecture, which does not run here."""
        tools = self.tools()
        return self._built("arm64-supervisor", [*tools, self._packages("cross-tools", tools, CROSS)], FOR_ARM64)

    def tools(self) -> list[Path]:
        """The root folders that have a compiler, lowest first."""
        root, _ = self._debian.base()
        return [root, self._packages("static-tools", [root], PACKAGES)]

    def _packages(self, name: str, lower: list[Path], script: str) -> Path:
        made = key(name, *(one.name for one in lower), script)
        with ExitStack() as progress:
            if not (self._debian.store.folder / made).exists():
                progress.enter_context(timed(f"installing the packages of {name} into a root folder (a minute)"))
            return self._debian.folder(made, lower, script)

    def _built(self, name: str, lower: list[Path], script: str) -> Path:
        files = [
            path
            for folder in ("static", "gangsidecar")
            for path in sorted((SOURCES / folder).rglob("*"))
            if path.is_file() and path.suffix != ".pyc"
        ]
        content = [part for path in files for part in (str(path.relative_to(SOURCES)), path.read_bytes())]
        made = key(name, script, *(one.name for one in lower), *content)
        with tempfile.TemporaryDirectory() as work:
            prepared = Path(work)
            prepared.chmod(0o755)
            (prepared / PLACE).parent.mkdir(parents=True)
            for path in files:
                target = prepared / "build" / path.relative_to(SOURCES)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, target)
            folder, _ = self._debian.above(made, lower, script, prepared)
        self._debian.store.forget(name, newest=KEPT)
        return folder / PLACE
