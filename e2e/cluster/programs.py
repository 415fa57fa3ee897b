"""The programs of a cluster, built from Go modules: only sources are downloaded, through the Go module proxy.

    python -m e2e.cluster build

The first build takes about 10 minutes on two cores. After a change of a version, only that program is built. The
folders are in versions.py. A program appears there when it is complete, so an interrupted build continues.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from e2e.cluster import toolchain, versions
from e2e.cluster.progress import timed

VERSION_PACKAGE = "k8s.io/component-base/version"

ALL = (*versions.KUBERNETES_PROGRAMS, *versions.PROGRAMS)
CLIENTS = ("kubectl", "helm")
"""What the tests need for a cluster that is not our own."""
SHIFTED = "-shifted"
"""The clock of programs that add to it the seconds in CLOCK_AHEAD: all programs of this machine share its clock."""
SHIFT = """\
package time

import "syscall"

var ahead = func() int64 {
	text, _ := syscall.Getenv("CLOCK_AHEAD")
	seconds, _ := atoi(text)
	return int64(seconds)
}()
"""
"""A file of Go's package time. A variable is set before any program can ask for the time."""
READS_CLOCK = "\tsec, nsec, mono := runtimeNow()\n"


def ready(wanted: Collection[str] = ALL, clock: str = "") -> Path:
    """Build the wanted programs that are missing; the folder that has them.

    Raises:
        Missing: there is no Go and no way to get one, or a build fails.
    """
    folder = versions.binaries(clock)
    with versions.lock("programs"):
        folder.mkdir(parents=True, exist_ok=True)
        missing = [name for name in wanted if not (folder / name).exists()]
        _make([name for name in missing if not versions.built(name, clock).exists()], clock)
        for name in missing:
            (folder / name).hardlink_to(versions.built(name, clock))
    return folder


def on_demand(name: str) -> tuple[Path, Path]:
    """Build a program that no cluster needs, if it is missing: its file, and the folder with its module's manifests.

    Raises:
        Missing: there is no Go and no way to get one, or a build fails.
    """
    with versions.lock("programs"):
        if not versions.built(name).exists():
            _make([name])
        return versions.built(name), module(name)


def suite(name: str, package: str, replaced: Mapping[str, str] | None = None) -> tuple[Path, Path]:
    """Compile the tests of a package in the module of such a program: the executable, and the package's folder.

    ``replaced``: files of the module that are compiled with another content, by their paths in it.

    Raises:
        Missing: there is no Go and no way to get one, or they don't compile.
    """
    files = dict(replaced or {})
    content = hashlib.sha256(json.dumps(files).encode()).hexdigest()[:8] if files else "as-it-is"
    with versions.lock("programs"):
        sources = module(name)
        built = versions.built(name).with_name(f"{name}-{package.replace('/', '-')}-{versions.version(name)}-{content}")
        if not built.exists():
            with timed(f"compiling {package} of {name} (a minute or two)"), tempfile.TemporaryDirectory() as work:
                copied = Path(work) / "module"
                shutil.copytree(sources, copied, copy_function=shutil.copyfile)
                for path, text in files.items():
                    (copied / path).write_text(text)
                half = Path(work) / "suite"
                _run(toolchain.go(), copied / package, "test", "-c", "-ldflags", "-s -w", "-o", str(half), ".")
                built.parent.mkdir(exist_ok=True)
                shutil.copy2(half, built)
    return built, sources / package


def module(name: str) -> Path:
    """The folder with the sources of such a program's module, which is fetched if it is missing. Nothing is built.

    Raises:
        Missing: there is no Go and no way to get one, or the module can't be fetched.
    """
    path, _, version = versions.ON_DEMAND[name].partition("@")
    versions.cache().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=versions.cache()) as work:
        wanted = f"{path.partition('/cmd/')[0]}@{version}"
        return fetched(toolchain.go(), Path(work), wanted)


def fetched(go: Path, work: Path, module: str) -> Path:
    """The folder with the sources of a module, which is downloaded if it isn't there: ``k8s.io/api@v0.37.2``."""
    return Path(json.loads(_run(go, work, "mod", "download", "-json", module))["Dir"])


def _make(names: Collection[str], clock: str = "") -> None:
    if not names:
        return
    go = toolchain.go()
    versions.built("kubectl").parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=versions.cache()) as made:
        out, flags = Path(made), _shifted(go, Path(made)) if clock else []
        if kubernetes := [name for name in names if name in versions.KUBERNETES_PROGRAMS]:
            with timed(f"building Kubernetes {versions.KUBERNETES} from its Go modules (about 4 minutes on two cores)"):
                _build_kubernetes(go, kubernetes, out, flags)
        for name in names:
            if package := (versions.PROGRAMS | versions.ON_DEMAND).get(name):
                with timed(f"building {package.rpartition('/cmd/')[0] or package}: {name} (a minute or two)"):
                    _build(go, name, package, out, flags)
            (out / name).rename(versions.built(name, clock))


def _shifted(go: Path, folder: Path) -> list[str]:
    """The flags that compile Go's own package with the shift of the clock; its files are in the folder."""
    there = Path(_run(go, folder, "env", "GOROOT").strip()) / "src/time"
    now = (there / "time.go").read_text().replace(READS_CLOCK, f"{READS_CLOCK}\tsec += ahead\n")
    replaced = {}
    for name, text in (("time.go", now), ("ahead.go", SHIFT)):
        (folder / name).write_text(text)
        replaced[str(there / name)] = str(folder / name)
    (folder / "overlay.json").write_text(json.dumps({"Replace": replaced}))
    return ["-overlay", str(folder / "overlay.json")]


def _run(go: Path, folder: Path, *command: str) -> str:
    env = os.environ | {"CGO_ENABLED": "0", "GOFLAGS": "-trimpath -buildvcs=false", "GOTOOLCHAIN": "local"}
    done = subprocess.run([go, *command], cwd=folder, env=env, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise toolchain.Missing(f"go {' '.join(command[:3])} failed: {done.stderr.strip()[-2000:]}")
    return done.stdout


def _build(go: Path, name: str, package: str, out: Path, flags: Sequence[str]) -> None:
    path, _, version = package.partition("@")
    with tempfile.TemporaryDirectory(dir=versions.cache()) as work:
        at = Path(work)
        if name in versions.AS_THEY_ARE:
            module, _, below = path.partition("/cmd/")
            folder = fetched(go, at, f"{module}@{version}")
            _run(go, folder, "build", *flags, "-ldflags", "-s -w", "-o", str(out / name), f"./cmd/{below}")
            return
        (at / "go.mod").write_text(f"module build/{name}\n\ngo {_language(versions.GO)}\n")
        _run(go, at, "get", "-tool", f"{path}@{version}")
        _run(go, at, "mod", "tidy")
        _run(go, at, "build", *flags, "-ldflags", "-s -w", "-o", str(out / name), path)


def _build_kubernetes(go: Path, names: list[str], out: Path, flags: Sequence[str]) -> None:
    """Its go.mod points to folders of its repository. The same sources are published as modules v0.x: use those."""
    version = versions.KUBERNETES
    published = "v0." + version.partition(".")[2]
    with tempfile.TemporaryDirectory(dir=versions.cache()) as work:
        at = Path(work)
        described = json.loads(_run(go, at, "mod", "download", "-json", f"k8s.io/kubernetes@v{version}"))
        staging = re.findall(r"^\s*(k8s\.io/\S+) => \./staging", Path(described["GoMod"]).read_text(), re.MULTILINE)
        language = _language(versions.GO)
        tools = [f"k8s.io/kubernetes/cmd/{name}" for name in names]
        lines = [
            "module build/kubernetes",
            f"go {language}",
            f"godebug default=go{language.removesuffix('.0')}",
            f"require k8s.io/kubernetes v{version}",
            *(f"replace {module} => {module} {published}" for module in staging),
            *(f"tool {tool}" for tool in tools),
        ]
        (at / "go.mod").write_text("\n\n".join(lines) + "\n")
        _run(go, at, "mod", "tidy")
        settings = {
            "gitVersion": f"v{version}",
            "gitMajor": version.split(".")[0],
            "gitMinor": version.split(".")[1],
            "gitTreeState": "clean",
        }
        linked = " ".join(["-s", "-w", *(f"-X {VERSION_PACKAGE}.{key}={value}" for key, value in settings.items())])
        _run(go, at, "build", *flags, "-ldflags", linked, "-o", f"{out}/", *tools)


def _language(version: str) -> str:
    """1.26.8 -> 1.26.0."""
    major, minor, *_ = version.split(".")
    return f"{major}.{minor}.0"
