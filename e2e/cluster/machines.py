"""A machine of the cluster: a PID, a mount and a network namespace of its own, held by one first process.

All its processes are in the PID namespace, containers too. One signal to the first process cuts the power; stopping all
processes in the namespace freezes the machine. Nothing of it can be left behind: the namespaces end with the process.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from e2e.cluster import processes
from e2e.cluster.processes import Process, Registry
from tests.wait import until

MOUNTS = """
set -e
mount --make-rprivate /
mount -t tmpfs tmpfs /run
mkdir -p /run/netns /run/lock /run/host
mount --rbind /var/lib /run/host
mount -t tmpfs tmpfs /var/lib
ln -s /run/host/* /var/lib/
for at in "$HERE"/mounts/*; do
  target=$(echo "${at##*/}" | sed 's#+#/#g')
  if [ -L "$target" ]; then rm "$target"; fi
  mkdir -p "$target"
  mount --bind "$at" "$target"
done
mount --make-rshared /var/lib/kubelet
touch "$HERE/up"
exec "$HERE/init"
"""
"""The mount namespace of a machine.

A mount point in a folder of the host is not private: when anyone on the host removes that folder, Linux detaches the
mount in every namespace (since 3.18), and removing it is allowed because nothing is mounted there on the host. So the
mount points are in a tmpfs of the machine, where the host's /var/lib is a set of symbolic links.
"""
PRIVATE = ("/var/lib/kubelet", "/var/lib/cni", "/var/log")
"""Folders that each node must have for itself: the kubelet and CNI use these fixed paths."""


class Machine:
    """One machine by its name; ``home`` is the folder of the cluster, ``programs`` the folder of its programs.

    ``ahead``: by how many seconds the clock of its programs goes before, where they have a clock that can be shifted.
    """

    def __init__(self, name: str, home: Path, programs: Path, ahead: int = 0) -> None:
        self.name = name
        self.here = home / name
        self.log = home / "log"
        self.programs = programs
        self.ahead = ahead
        self.registry = Registry(home / "pid")

    @property
    def init(self) -> Process | None:
        """The first process; None while the machine is off."""
        return self.registry.find(self.name)

    @property
    def first(self) -> Process:
        """The first process.

        Raises:
            RuntimeError: the machine is off.
        """
        if (init := self.init) is None:
            raise RuntimeError(f"{self.name} is off")
        return init

    @property
    def env(self) -> dict[str, str]:
        """The environment of its programs."""
        return os.environ | {
            "PATH": f"{self.programs}:/usr/sbin:/sbin:{os.environ['PATH']}:/usr/lib/systemd",
            "CONTAINER_RUNTIME_ENDPOINT": f"unix://{self.here}/containerd.sock",  # for crictl
            "CLOCK_AHEAD": str(self.ahead),
        }

    def boot(self, init: Path) -> None:
        """Boot it; ``init`` is a program that only waits and reaps children."""
        self.here.mkdir(parents=True, exist_ok=True)
        self.log.mkdir(parents=True, exist_ok=True)
        for folder in PRIVATE:
            host_path(self, folder).mkdir(parents=True, exist_ok=True)
        up = self.here / "up"
        up.unlink(missing_ok=True)
        link = self.here / "init"
        link.unlink(missing_ok=True)
        link.symlink_to(init)
        holder = processes.start(
            self.log / f"{self.name}.log",
            *("unshare", "--fork", "--pid", "--mount-proc", "--mount", "--net", "--propagation", "private"),
            *("sh", "-c", MOUNTS),
            env=self.env | {"HERE": str(self.here)},
        )
        until(f"the namespaces of {self.name} (see {self.log})", lambda: up.exists() and bool(holder.children))
        self.registry.keep(self.name, holder.children[0])
        self.registry.keep(f"{self.name}.holder", holder)

    def inside(self, *command: str) -> list[str]:
        """The command line that runs this command on the machine."""
        return ["nsenter", "--target", str(self.first.pid), "--net", "--mount", "--pid", "--", *command]

    def run(self, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a command on it, and wait for its end."""
        done = subprocess.run(self.inside(*command), env=self.env, capture_output=True, text=True, check=False)
        if check and done.returncode != 0:
            raise RuntimeError(f"{self.name}: {' '.join(command)}: {done.stderr.strip()}")
        return done

    def net(self, *command: str) -> None:
        """Run a command in its network namespace only: process ids are those of the host."""
        subprocess.run(["nsenter", f"--net=/proc/{self.first.pid}/ns/net", "--", *command], check=True, env=self.env)

    def start(self, program: str, *arguments: str, env: Mapping[str, str] | None = None) -> None:
        """Start one of its programs in the background. ``env``: variables that only this one gets."""
        command = self.inside(program, *arguments)
        entered = processes.start(self.log / f"{self.name}-{program}.log", *command, env=self.env | dict(env or {}))
        self.registry.keep(f"{self.name}.{program}", entered)

    def program(self, program: str) -> Process | None:
        """The process of a program that was started here: the child of the nsenter that waits outside."""
        entered = self.registry.find(f"{self.name}.{program}")
        return next(iter(entered.children), None) if entered else None

    def stop(self, program: str, number: signal.Signals = signal.SIGKILL) -> None:
        """End one of its programs, and wait for its end: of all its threads, so that its ports and locks are free."""
        if found := self.program(program):
            found.send(number)
            until(f"the end of {program} on {self.name}", lambda: not found.alive)

    def everything(self) -> list[Process]:
        """All its processes, also those in containers."""
        return processes.inside(init) if (init := self.init) else []

    def mount_points(self) -> set[str]:
        """Where something is mounted in its mount namespace."""
        mounts = Path(f"/proc/{self.first.pid}/mountinfo").read_text()
        return {line.split()[4] for line in mounts.splitlines()}

    def kill(self) -> None:
        """Cut its power: every process on it ends at once, without notice."""
        init = self.init
        if init is None:
            return
        self.thaw()
        before = self.everything()
        init.send(signal.SIGKILL)
        until(f"the end of {self.name}", lambda: not any(process.alive for process in before))

    def freeze(self) -> None:
        """Stop all its processes, as when a hypervisor pauses it: nothing answers, nothing ends."""
        first = self.first
        while running := [one for one in self.everything() if one != first and not _stopped(one)]:
            for process in running:  # again, because a process may fork just before it is stopped
                process.send(signal.SIGSTOP)

    def thaw(self) -> None:
        """Continue all its processes."""
        entered = [self.registry.find(name) for name in self.registry.names() if name.startswith(f"{self.name}.")]
        for process in [*self.everything(), *(one for one in entered if one)]:
            process.send(signal.SIGCONT)


def host_path(machine: Machine, path: str) -> Path:
    """Where the host has a private folder of a machine."""
    private = next(folder for folder in PRIVATE if path.startswith(folder))
    return machine.here / "mounts" / private.replace("/", "+") / path.removeprefix(private).strip("/")


def _stopped(process: Process) -> bool:
    try:
        state = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state in {"T", "t", "Z", "X"}


def add_bridge(machine: Machine, name: str) -> None:
    """Add a bridge with a hardware address of its own.

    By default a bridge has the lowest address of its ports. That one changes when ports come and go, and for seconds
    its neighbours send to the wrong address.
    """
    machine.net("ip", "link", "add", name, "address", "02:00:00:67:61:6e", "type", "bridge")


def configure_device(machine: Machine, device: str, addresses: Sequence[str]) -> None:
    """Give a network device its addresses, and bring it up."""
    for address in addresses:
        machine.net("ip", "addr", "add", address, "dev", device)
    machine.net("ip", "link", "set", device, "up")
