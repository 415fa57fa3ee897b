"""What the machine must have before anything can be built: Debian packages, and a Go that is new enough.

apt-get installs packages, as root. A Go that is too old only fetches the right one, as a module, through the Go module
proxy. A machine without Go gets Debian's first.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from e2e.cluster import versions
from e2e.cluster.progress import timed


class Missing(Exception):  # noqa: N818 - the user sees its message, not its name
    """This machine lacks something; the message says what, and what to do."""


def require_root() -> None:
    """Check for root: nodes are made of namespaces and mounts.

    Raises:
        Missing: the user is not root.
    """
    if os.geteuid() != 0:
        raise Missing("a cluster of our own needs root (namespaces, mounts): sudo make e2e, or KUBECONFIG=... make e2e")


def install_packages(*names: str) -> None:
    """Install those of these Debian packages that are missing.

    Raises:
        Missing: there is no apt-get, or it failed.
    """
    found = subprocess.run(
        ["dpkg-query", "-W", "-f", "${db:Status-Abbrev}${Package}\n", *names],
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    installed = {line[3:].strip() for line in found.splitlines() if line.startswith("ii")}
    missing = sorted(set(names) - installed)
    if not missing:
        return
    if shutil.which("apt-get") is None:
        raise Missing(
            f"these Debian packages are missing, and there is no apt-get to install them: {' '.join(missing)}"
        )
    env = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    with versions.lock("packages"), timed(f"installing {' '.join(missing)}"):
        for command in (["update", "-qq"], ["install", "-qq", "--no-install-recommends", *missing]):
            done = subprocess.run(["apt-get", *command], capture_output=True, text=True, env=env, check=False)
        if done.returncode != 0:
            raise Missing(f"apt-get cannot install {' '.join(missing)}: {done.stderr.strip()[-500:]}")


def unpacked(package: str) -> Path:
    """The files of a Debian package, unpacked into the cache and not installed, so no service of it starts.

    Only for programs that need no other package.

    Raises:
        Missing: the package cannot be fetched.
    """
    kept = versions.cache() / "debian" / package
    if kept.exists():
        return kept
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise Missing(
            f"the Debian package {package} is needed, and there is no apt-get or no dpkg-deb to fetch and unpack it"
        )
    kept.parent.mkdir(parents=True, exist_ok=True)
    with timed(f"fetching Debian's {package}"), tempfile.TemporaryDirectory(dir=kept.parent) as work:
        if _apt_get(work, "download", "-qq", package) is not None:  # the lists may be old or missing
            error = _apt_get(work, "update", "-qq") or _apt_get(work, "download", "-qq", package)
            if error is not None:
                raise Missing(f"apt-get cannot download {package}: {error}")
        (archive,) = Path(work).glob("*.deb")
        subprocess.run(["dpkg-deb", "-x", archive, Path(work) / "files"], check=True)
        with contextlib.suppress(OSError):  # another test run does the same
            (Path(work) / "files").rename(kept)
    return kept


def _apt_get(folder: str, *words: str) -> str | None:
    """Run apt-get in a folder; its error output if it fails."""
    done = subprocess.run(["apt-get", *words], capture_output=True, text=True, check=False, cwd=folder)
    return done.stderr.strip()[-500:] if done.returncode else None


def go() -> Path:
    """A Go that is new enough: the installed one, or one from the module proxy, which the cache keeps.

    Raises:
        Missing: there is none, and none can be fetched.
    """
    installed = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin:/usr/lib/go/bin")
    if installed and _version(installed) >= _numbers(versions.GO):
        return Path(installed)
    kept = versions.cache() / f"go-{versions.GO}"
    if not (kept / "bin/go").exists():
        if installed is None:
            install_packages("golang-go")
        bootstrap = installed or shutil.which("go")
        if bootstrap is None:
            raise Missing(f"Go {versions.GO} or newer is needed, and Debian's golang-go brought none")
        with timed(f"fetching Go {versions.GO} through the module proxy"):
            _fetch(bootstrap, kept)
    return kept / "bin/go"


def _version(program: str) -> tuple[int, ...]:
    printed = subprocess.run([program, "version"], capture_output=True, text=True, check=False, env=_local()).stdout
    return _numbers(printed)


def _numbers(text: str) -> tuple[int, ...]:
    found = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", text)
    return tuple(int(part or 0) for part in found.groups()) if found else (0,)


def _local() -> dict[str, str]:
    return os.environ | {"GOTOOLCHAIN": "local"}


def _fetch(bootstrap: str, kept: Path) -> None:
    machine = {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine]
    module = f"golang.org/toolchain@v0.0.1-go{versions.GO}.linux-{machine}"
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [bootstrap, "mod", "download", "-json", module],
            cwd=folder,
            env=_local() | {"GO111MODULE": "on", "GOFLAGS": "-modcacherw", "GOMODCACHE": folder},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise Missing(
                f"Go {versions.GO} cannot be fetched from the module proxy: {(done.stderr or done.stdout)[-500:]}"
            )
        source = Path(json.loads(done.stdout)["Dir"])
        half = kept.with_suffix(".half")
        shutil.rmtree(half, ignore_errors=True)
        shutil.copytree(source, half)
        for path in half.rglob("_go.mod"):  # a module cannot contain the go.mod of another one
            path.rename(path.with_name("go.mod"))
        for program in (*half.glob("bin/*"), *half.glob("pkg/tool/*/*")):  # the files of a module are not executable
            program.chmod(0o755)
        half.rename(kept)
