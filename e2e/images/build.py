"""Builds the images of the tests, each one once for its content.

The lowest layer of all images is Debian with Python, so a node gets it once. The next one has the dependencies, and the
last one our code: after a change of the code, a small layer is built in seconds.

    python -m e2e.images.build [--torch] [--archives FOLDER]
"""

from __future__ import annotations

import argparse
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

from e2e.cluster import toolchain, versions
from e2e.cluster.progress import announce, timed
from e2e.images.bare import NAMES, Bare
from e2e.images.debian import Debian
from e2e.images.store import PAUSE, Image, Layer, Store, key
from e2e.images.supervisor import Supervisor
from gangsidecar.install import install

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
REPOSITORY = "docker.io/gangctl"
"""Never pulled: the images are loaded on the nodes. Manifests of tests name them without the registry."""

BASH = "docker.io/library/bash:latest"

SITE = "opt/gangctl/lib"
INSTALLED = "opt/gangctl/pod"
WORKSPACE = "opt/gangctl/examples"
PACKAGES = "usr/local/lib/python3.13/dist-packages"
FRAMEWORKS = HERE.parent / "frameworks" / "requirements.txt"
EXAMPLES = ("train_plain.py", "train_torch.py")
COMPILE = "python3 -m compileall -q -j 2 --invalidation-mode unchecked-hash"
CODE_KEPT = 5
"""How many versions of our code stay in the cache."""

TORCH = """
apt-get update -qq
apt-get install -qq --no-install-recommends python3-torch
python3 -c 'import torch.distributed'
"""


class Images:
    """All images, from the working tree."""

    def __init__(self) -> None:
        self.store = Store(versions.cache() / "images")
        self.debian = Debian(self.store)
        self.supervisor = Supervisor(self.debian)
        self.bare = Bare(self.debian, self.supervisor)

    def made(self, name: str) -> Image:
        """Build the image with this name below the repository."""
        makers = {
            "controller": self.controller,
            "sidecar": self.sidecar,
            "examples": self.examples,
            "examples-torch": self.examples_torch,
            "examples-frameworks": self.examples_frameworks,
            "bash": self.bash,
        }
        return makers[name]() if name in makers else self._bare(name)

    def pause(self) -> Image:
        """The sandbox of every pod."""
        return Image(name=PAUSE, layers=(self._program(),), command=("/pause",))

    def controller(self) -> Image:
        """The controller, with the command line."""
        layers, tag = self._ours("controller", [ROOT / "client", ROOT / "sidecar", ROOT])
        return _ours("controller", tag, layers, ("python", "-m", "gangctl.controller.kube"))

    def sidecar(self) -> Image:
        """The sidecar, with the supervisor."""
        sources = [ROOT / "client", ROOT / "sidecar"]
        (*below, code), _ = self._ours("sidecar", sources)
        layers = (*below, self._installed(sources), code)
        return _ours("sidecar", _tag(*layers), layers, ("python", "-m", "gangsidecar.agent"))

    def examples(self) -> Image:
        """The least that a user's image has: Python, with the examples."""
        _, base = self.debian.base()
        layer = self._scripts()
        return Image(name=f"{REPOSITORY}/examples:{_tag(base, layer)}", layers=(base, layer))

    def examples_torch(self) -> Image:
        """The same image with Debian's PyTorch: 1.6 GB."""
        root, base = self.debian.base()
        name = key("torch", base.digest, TORCH)
        with ExitStack() as progress:
            if not (self.store.folder / name).exists():
                progress.enter_context(timed("making an image with PyTorch (a minute or two)"))
            _, torch = self.debian.above(name, [root], TORCH)
        layers = (base, torch, self._custom(), self._scripts())
        return Image(name=f"{REPOSITORY}/examples-torch:{_tag(*layers)}", layers=layers)

    def examples_frameworks(self) -> Image:
        """The image with PyTorch, and what requirements.txt of e2e/frameworks has from the package index above it."""
        below = self.examples_torch()
        name = key("frameworks", FRAMEWORKS.read_bytes(), PACKAGES)
        layer = self.store.known(name)
        if layer is None:
            with tempfile.TemporaryDirectory() as work, timed("fetching packages of frameworks"):
                root = Path(work)
                root.chmod(0o755)
                _install(FRAMEWORKS, root / PACKAGES)
                layer = self.store.add(name, root, owned_by_root=True)
        layers = (*below.layers, layer)
        return Image(name=f"{REPOSITORY}/examples-frameworks:{_tag(*layers)}", layers=layers)

    def bash(self) -> Image:
        """The image that JobSet's tests name: bash, with busybox's ping."""
        _, base = self.debian.base()
        return Image(name=BASH, layers=(base, self.bare.ping()))

    def _bare(self, name: str) -> Image:
        layers = self.bare.layers(name)
        return Image(name=f"{REPOSITORY}/{name}:{_tag(*layers)}", layers=layers)

    def init(self) -> Path:
        """The program that waits and reaps children, as a file of the host."""
        self._program()
        return self._program_folder() / "pause"

    def _program_folder(self) -> Path:
        return self.store.folder / key("pause", (HERE / "pause.c").read_bytes())

    def _program(self) -> Layer:
        folder = self._program_folder()
        with versions.lock("images"):
            if not (folder / "pause").exists():
                half = folder.with_suffix(".half")
                half.mkdir(parents=True, exist_ok=True)
                subprocess.run(["gcc", "-O2", "-s", "-static", "-o", half / "pause", HERE / "pause.c"], check=True)
                half.rename(folder)
            return self.store.known(folder.name) or self.store.add(folder.name, folder, owned_by_root=True)

    def _ours(self, name: str, sources: list[Path]) -> tuple[tuple[Layer, ...], str]:
        root, base = self.debian.base()
        requirements = ROOT / "containers" / f"requirements-{name}.txt"
        needed = key(f"{name}-needs", base.digest, requirements.read_bytes(), COMPILE, SITE)
        with tempfile.TemporaryDirectory() as work:
            prepared = Path(work)
            if not (self.store.folder / needed).exists():
                with timed(f"fetching the dependencies of the {name}"):
                    _install(requirements, prepared / SITE)
            below, dependencies = self.debian.above(needed, [root], f"{COMPILE} /{SITE}", prepared)
        packages = " ".join(f"/{SITE}/{_package(source).name}" for source in sources)
        content = tuple(_content(sources))
        own = key(f"{name}-code", needed, packages, *content)
        with tempfile.TemporaryDirectory() as work:
            prepared = Path(work)
            if not (self.store.folder / own).exists():
                _install_ours(sources, prepared / SITE)
                if tuple(_content(sources)) != content:
                    raise SystemExit(f"the sources changed while the image of the {name} was made: run it again")
            _, code = self.debian.above(own, [root, below], f"{COMPILE} {packages}", prepared)
        self.store.forget(f"{name}-code", newest=CODE_KEPT)
        return (base, dependencies, code), own.rpartition("-")[2][:12]

    def _installed(self, sources: list[Path]) -> Layer:
        """The folder that the supervisor copies into a pod."""
        executable = self.supervisor.executable()
        name = key("installed", executable.read_bytes(), *_content(sources))
        if known := self.store.known(name):
            return known
        with tempfile.TemporaryDirectory() as work:
            root = Path(work)
            root.chmod(0o755)
            folder = root / INSTALLED
            folder.mkdir(parents=True)
            install(folder, executable)
            layer = self.store.add(name, root, owned_by_root=True)
        self.store.forget("installed", newest=CODE_KEPT)
        return layer

    def _scripts(self) -> Layer:
        files = [path for name in EXAMPLES if (path := ROOT / "examples" / name).exists()]
        name = key("examples", *(part for path in files for part in (path.name, path.read_bytes())))
        return self._files(name, {f"{WORKSPACE}/{path.name}": path for path in files})

    def _custom(self) -> Layer:
        source = HERE / "sitecustomize.py"
        return self._files(
            key("sitecustomize", source.read_bytes()),
            {"usr/lib/python3.13/sitecustomize.py": source},
        )

    def _files(self, name: str, files: dict[str, Path]) -> Layer:
        if known := self.store.known(name):
            return known
        with tempfile.TemporaryDirectory() as work:
            root = Path(work)
            root.chmod(0o755)
            for target, source in files.items():
                (root / target).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, root / target)
            return self.store.add(name, root, owned_by_root=True)


def _ours(name: str, tag: str, layers: tuple[Layer, ...], command: tuple[str, ...]) -> Image:
    environment = {"PYTHONPATH": f"/{SITE}", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1"}
    return Image(
        name=f"{REPOSITORY}/{name}:{tag}", layers=layers, command=command, user="65532:65532", environment=environment
    )


def _tag(*layers: Layer) -> str:
    return key("tag", *(layer.digest for layer in layers))[4:16]


def _package(source: Path) -> Path:
    return next(path for name in ("gangclient", "gangsidecar", "gangctl") if (path := source / name).is_dir())


def _content(sources: list[Path]) -> Iterable[str | bytes]:
    """What the wheels are built from."""
    for source in sources:
        package = _package(source)
        files = [
            ROOT / "VERSION",
            source / "pyproject.toml",
            *(path for path in sorted(package.rglob("*")) if path.suffix != ".pyc"),
        ]
        for path in files:
            if path.is_file():
                yield str(path.relative_to(ROOT))
                yield path.read_bytes()


def _install(requirements: Path, target: Path) -> None:
    """Install the pinned dependencies for the image's Python, without running that Python."""
    machine = platform.machine()
    platforms = [
        f"--platform={kind}_{machine}"
        for kind in ("manylinux2014", "manylinux_2_17", "manylinux_2_27", "manylinux_2_28", "manylinux_2_34")
    ]
    _pip(
        *("install", "--no-deps", "--require-hashes", "--only-binary=:all:", "--no-compile"),
        *(
            "--python-version=3.13",
            "--implementation=cp",
            *platforms,
            f"--target={target}",
            f"--requirement={requirements}",
        ),
    )


def _install_ours(sources: list[Path], target: Path) -> None:
    """Install our wheels as the released images do."""
    with tempfile.TemporaryDirectory() as wheels:
        _pip("wheel", "--no-deps", "--no-build-isolation", f"--wheel-dir={wheels}", *map(str, sources))
        found = [str(path) for path in Path(wheels).glob("*.whl")]
        _pip("install", "--no-deps", "--no-compile", "--no-index", f"--target={target}", *found)


def _pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise toolchain.Missing(f"pip {arguments[0]}: {done.stderr.strip()[-2000:]}")


def main() -> None:
    """Build all images."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--torch", action="store_true", help="build the image with PyTorch as well")
    flags.add_argument("--archives", type=Path, help="write an archive of each image into this folder")
    options = flags.parse_args()
    toolchain.require_root()
    toolchain.install_packages(*versions.PACKAGES)
    images = Images()
    wanted = ["controller", "sidecar", "examples", *NAMES, *(["examples-torch"] if options.torch else [])]
    for image in map(images.made, wanted):
        announce(image.name)
        if options.archives is not None:
            announce(str(images.store.archive(image, options.archives)))


if __name__ == "__main__":
    main()
