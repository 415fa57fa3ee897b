"""`gangctl run` keeps what JAX compiles for as long as the gang exists."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.cli.here import Here, manifest
from tests.wait import until

TELLS = ("sh", "-c", 'echo "$JAX_COMPILATION_CACHE_DIR" > "$GANG_MEMBER.cache"; exec sleep 1000')


def told(folder: Here) -> set[str]:
    """Where the workers keep it, once all of them have said so."""

    def found() -> list[str]:
        texts = [path.read_text() for path in folder.path.glob("*.cache")]
        return texts if len(texts) == 3 and all(texts) else []

    return set(until("every member tells its cache", found))


@pytest.mark.nightly
def test_all_members_share_one_folder_which_goes_with_the_gang(folder: Here) -> None:
    folder.write(manifest(TELLS))
    run = folder.run()
    (text,) = told(folder)
    cache = Path(text.strip())
    assert cache.parent.parent == folder.state.gang("g").path
    (cache / "jit_step-cache").write_bytes(b"compiled")
    run.signal(signal.SIGINT)
    assert run.wait() == 130
    assert not cache.parent.exists()


def test_the_folder_of_the_manifest_wins(folder: Here) -> None:
    written = manifest(TELLS)
    container = written["spec"]["roles"][0]["template"]["spec"]["containers"][0]
    container["env"] = [{"name": "JAX_COMPILATION_CACHE_DIR", "value": "/elsewhere"}]
    folder.write(written)
    folder.run()
    assert told(folder) == {"/elsewhere\n"}
