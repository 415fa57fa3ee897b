"""Waits for a state of an object by a watch, without polling."""

from __future__ import annotations

import json
import select
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
CHUNK = 1 << 16


def watch_until(
    kubectl: Path,
    env: Mapping[str, str],
    words: tuple[str, ...],
    holds: Callable[[dict[str, Any]], T | None],
    seconds: float,
) -> T:
    """Watch what `kubectl get WORDS` shows until a condition holds for an object; what the condition found.

    A condition that returns None or False does not hold. A watch that ends, because its server was restarted for
    example, begins again.

    Raises:
        TimeoutError: the condition did not hold in time; the message has the last object.
    """
    end = time.monotonic() + seconds
    last: dict[str, Any] = {}
    while time.monotonic() < end:
        command = [str(kubectl), "get", *words, "-o", "json", "--watch"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env) as watching:
            try:
                for seen in _objects(watching, end):
                    last = seen
                    found = holds(seen)
                    if found is not None and found is not False:
                        return found
            finally:
                watching.kill()
    raise TimeoutError(f"kubectl get {' '.join(words)}: not within {seconds:.0f} s; last: {json.dumps(last)[-2000:]}")


def _objects(watching: subprocess.Popen[bytes], end: float) -> Iterator[dict[str, Any]]:
    assert watching.stdout is not None
    decoder, text, waiting = json.JSONDecoder(), "", select.poll()  # Unlike select(), it takes files over 1023.
    waiting.register(watching.stdout, select.POLLIN)
    while (left := end - time.monotonic()) > 0:
        if not waiting.poll(left * 1000):
            return
        chunk = watching.stdout.read1(CHUNK)  # type: ignore[attr-defined]
        if not chunk:
            return
        text += chunk.decode()
        while text := text.lstrip():
            try:
                seen, at = decoder.raw_decode(text)
            except ValueError:
                break  # the rest has not arrived yet
            text = text[at:]
            yield seen
