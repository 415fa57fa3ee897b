"""The connection between the supervisor and a template: lines of JSON over a unix socket, with files."""

from __future__ import annotations

import array
import json
import os
import re
import socket
from collections.abc import Mapping
from typing import Any

PARKING = "GANG_PARKING"
"""The variable with the :func:`address` of the socket on which a worker's process parks."""
WARM_STARTS = "GANG_WARM_STARTS"
"""The variable with the path of the socket on which interpreters ask for a fork; see ``hook``."""
ONE_THREAD = ("OPENBLAS_NUM_THREADS",)
"""Set to 1 for the template: OpenBLAS starts its threads as it is loaded. A child sets the number that a start has."""
ONLY_TEMPLATE = {
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
    **dict.fromkeys(ONE_THREAD, "1"),
}
"""Variables of the template alone. Without the first, asking whether there is a GPU spoils CUDA for every child;
without the second, pyarrow starts a thread as it is loaded, which jemalloc gives up at a fork anyway."""
READ_EARLY = re.compile("(LD_|MALLOC_|GLIBC_|PYTHON|LC_).*|LANG|LANGUAGE", re.DOTALL)
"""Variables that the loader, the C library or the interpreter reads before any program."""
ROOM = socket.CMSG_LEN(253 * array.array("i").itemsize)
"""Bytes for the files that come with a line: the kernel passes no more of them."""
_PIECE = 1 << 16


def depends_on_folder(environment: Mapping[str, str]) -> bool:
    """Return whether PYTHONPATH has an empty or relative entry: ``site`` makes it absolute as Python starts."""
    path = environment.get("PYTHONPATH", "")
    return bool(path) and not all(map(os.path.isabs, path.split(os.pathsep)))


def address(link: socket.socket) -> str:
    """The descriptor of a socket and what the kernel knows it by: a number alone may be another file's in a child."""
    return f"{link.fileno()}:{os.fstat(link.fileno()).st_ino}"


def send(link: socket.socket, **message: Any) -> None:
    """Send one line. OSError: the other side is gone."""
    link.sendall(json.dumps(message).encode() + b"\n")


def send_with(link: socket.socket, files: list[int], **message: Any) -> None:
    """Send one line with files. OSError: the other side is gone."""
    data = json.dumps(message).encode() + b"\n"
    sent = link.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))])
    link.sendall(data[sent:])


def files_in(ancillary: list[tuple[int, int, bytes]]) -> list[int]:
    """Return the files that came with a message."""
    files = array.array("i")
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            files.frombytes(data[: len(data) - len(data) % files.itemsize])
    return list(files)


def receive(link: socket.socket) -> tuple[str, list[int]]:
    """Return the next line, and the files that came with it. An empty line means that the other side is gone.

    A side sends its next line only after the answer, so nothing of it can be in the last piece.
    """
    pieces: list[bytes] = []
    files: list[int] = []
    while not pieces or not pieces[-1].endswith(b"\n"):
        try:
            piece, ancillary, _, _ = link.recvmsg(_PIECE, ROOM, socket.MSG_CMSG_CLOEXEC)
        except ConnectionError:
            piece, ancillary = b"", []
        files += files_in(ancillary)
        if not piece:
            for file in files:
                os.close(file)
            return "", []
        pieces.append(piece)
    return b"".join(pieces).decode(), files
