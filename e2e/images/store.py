"""Images without a container engine: blobs by digest in a folder, and archives of them that containerd imports.

The format is the OCI image layout (opencontainers/image-spec, image-layout.md). Layers are tars without compression:
they stay on this machine.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

MEDIA = "application/vnd.oci.image."
PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
DIGEST = re.compile("[0-9a-f]{64}")
PAUSE = "localhost/gangctl-e2e/pause:1"
ALIAS = "e2e"
"""A second tag of every image, besides the one of its content, for manifests that do not change."""


@dataclass(frozen=True)
class Layer:
    """A tar among the blobs."""

    digest: str
    size: int


@dataclass(frozen=True, kw_only=True)
class Image:
    """A name, the layers from the lowest to the highest, and how a container starts."""

    name: str
    layers: tuple[Layer, ...]
    command: tuple[str, ...] = ()
    user: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)


class Store:
    """The blobs in a folder. A layer is found by a key of what it was made from."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.blobs = folder / "blobs"
        self.blobs.mkdir(parents=True, exist_ok=True)

    def known(self, key: str) -> Layer | None:
        """The layer with this key; None if the store does not have it."""
        record = self.folder / f"{key}.json"
        if not record.exists():
            return None
        layer = Layer(**json.loads(record.read_text()))
        return layer if self._blob(layer.digest).exists() else None

    def add(self, key: str, root: Path, *, owned_by_root: bool) -> Layer:
        """Store a folder's content as a layer. ``owned_by_root``: in the image, root owns all files."""
        owner = ["--owner=0", "--group=0"] if owned_by_root else []
        command = ["tar", "-C", str(root), "--sort=name", "--numeric-owner", *owner, "-cf", "-", "."]
        digest = hashlib.sha256()
        with tempfile.NamedTemporaryFile(dir=self.blobs, delete=False) as file:
            with subprocess.Popen(command, stdout=subprocess.PIPE) as packing:
                assert packing.stdout is not None
                while chunk := packing.stdout.read(1 << 20):
                    digest.update(chunk)
                    file.write(chunk)
            if packing.returncode != 0:
                raise RuntimeError(f"tar of {root} ended with {packing.returncode}")
            size = file.tell()
        layer = Layer(f"sha256:{digest.hexdigest()}", size)
        Path(file.name).rename(self._blob(layer.digest))
        record = self.folder / f"{key}.json"
        half = record.with_suffix(f".{os.getpid()}")
        half.write_text(json.dumps(asdict(layer)))
        half.rename(record)
        return layer

    def forget(self, what: str, newest: int) -> None:
        """Remove all layers of a kind but the newest ones, and their folders."""
        records = sorted(self.folder.glob(f"{what}-*.json"), key=lambda path: path.stat().st_mtime)
        for record in records[:-newest]:
            record.unlink()
            shutil.rmtree(record.with_suffix(""), ignore_errors=True)
        if records[:-newest]:
            used = {
                json.loads(path.read_text())["digest"].removeprefix("sha256:") for path in self.folder.glob("*.json")
            }
            for blob in self.blobs.iterdir():
                if blob.name not in used and DIGEST.fullmatch(blob.name):
                    blob.unlink()

    def write_archive(self, image: Image, out: IO[bytes], *, without: Collection[str] = ()) -> None:
        """Write the image as an archive, without the blobs that the reader has already."""
        config = json.dumps(_config(image)).encode()
        manifest = json.dumps(_manifest(image, config)).encode()
        index = json.dumps(_index(image, manifest)).encode()
        with tarfile.open(fileobj=out, mode="w|") as archive:
            _put(archive, "oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
            _put(archive, "index.json", index)
            for data in (config, manifest):
                _put(archive, f"blobs/sha256/{hashlib.sha256(data).hexdigest()}", data)
            for layer in dict.fromkeys(image.layers):
                if layer.digest not in without:
                    archive.add(self._blob(layer.digest), f"blobs/{layer.digest.replace(':', '/')}")

    def archive(self, image: Image, folder: Path) -> Path:
        """Write the whole image to a file, for users who load it themselves."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{image.name.rpartition('/')[2].replace(':', '-')}.tar"
        with path.open("wb") as file:
            self.write_archive(image, file)
        return path

    def _blob(self, digest: str) -> Path:
        return self.blobs / digest.removeprefix("sha256:")


def key(what: str, *parts: str | bytes) -> str:
    """A key for what is made from these parts."""
    digest = hashlib.sha256()
    for part in parts:
        data = part if isinstance(part, bytes) else part.encode()
        digest.update(f"{len(data)}:".encode() + data)
    return f"{what}-{digest.hexdigest()[:16]}"


def _described(kind: str, data: bytes) -> dict[str, Any]:
    return {"mediaType": MEDIA + kind, "digest": f"sha256:{hashlib.sha256(data).hexdigest()}", "size": len(data)}


def _config(image: Image) -> dict[str, Any]:
    environment = [PATH, *(f"{name}={value}" for name, value in image.environment.items())]
    machine = {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine]
    return {
        "architecture": machine,
        "os": "linux",
        "config": {"Entrypoint": list(image.command), "Env": environment, "User": image.user},
        "rootfs": {"type": "layers", "diff_ids": [layer.digest for layer in image.layers]},
    }


def _manifest(image: Image, config: bytes) -> dict[str, Any]:
    layers: Sequence[dict[str, Any]] = [
        {"mediaType": MEDIA + "layer.v1.tar", "digest": layer.digest, "size": layer.size} for layer in image.layers
    ]
    return {
        "schemaVersion": 2,
        "mediaType": MEDIA + "manifest.v1+json",
        "config": _described("config.v1+json", config),
        "layers": layers,
    }


def _index(image: Image, manifest: bytes) -> dict[str, Any]:
    def named(name: str) -> dict[str, Any]:
        names = {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name}
        return _described("manifest.v1+json", manifest) | {"annotations": names}

    names = dict.fromkeys([image.name, f"{image.name.rpartition(':')[0]}:{ALIAS}"])
    return {"schemaVersion": 2, "manifests": [named(name) for name in names]}


def _put(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    archive.addfile(info, io.BytesIO(data))
