"""Where the kernel tells about the memory of this process' cgroup."""

from __future__ import annotations

from collections.abc import Iterator


def memory_folders() -> Iterator[str]:
    """Folders in which the files of the memory controller may be, of version 2 or 1, the likeliest first.

    In a container the path may be the host's, while what is mounted is the container's own group.
    """
    try:
        with open("/proc/self/cgroup", encoding="utf-8", errors="replace") as file:
            lines = file.read().splitlines()
    except OSError:
        return
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers == "":
            yield f"/sys/fs/cgroup{path}"
            yield "/sys/fs/cgroup"
        elif "memory" in controllers.split(","):
            yield f"/sys/fs/cgroup/memory{path}"
            yield "/sys/fs/cgroup/memory"
