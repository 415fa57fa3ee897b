"""Installs and starts the two programs of a pod, the sidecar and the supervisor, from the other distribution."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from gangctl.cluster.errors import Terminal
from gangctl.cluster.local.layout import PodFolder, StateDirectory
from gangctl.cluster.local.pod_record import ADDRESS, PodRecord
from gangctl.cluster.local.process import Process, spawn
from gangsidecar.wire import FRAMEWORK_SOCKET, SUPERVISOR_SOCKET, Compiler


@dataclass(frozen=True, slots=True)
class Programs:
    """Starts the programs with the controller's own Python and environment."""

    state: StateDirectory

    def install(self) -> None:
        """Put the supervisor and gangclient into the state directory.

        Raises:
            Terminal: they can't be written.
        """
        state = self.state.path
        command = (sys.executable, "-P", "-m", "gangsidecar.install", str(state))
        try:
            state.mkdir(mode=0o700, parents=True, exist_ok=True)
            done = subprocess.run(command, check=False, capture_output=True, text=True)  # noqa: S603 - our own program
        except OSError as error:
            raise Terminal(f"{state} can't be set up: {error}") from error
        if done.returncode != 0:
            raise Terminal(f"the supervisor can't be installed in {state}: {done.stderr.strip()}")

    def start_sidecar(self, pod: PodRecord, folder: PodFolder) -> Process:
        """Start the sidecar of a pod.

        Raises:
            OSError: it can't be started.
        """
        Path(pod.sockets).mkdir(mode=0o700, exist_ok=True)
        command = [
            *(sys.executable, "-P", "-m", "gangsidecar.agent"),
            *("--controller-file", str(self.state.url), "--token-file", str(folder.token), "--dir", pod.sockets),
        ]
        return spawn(command, os.environ, folder.path, folder.sidecar_log)

    def start_supervisor(self, pod: PodRecord, folder: PodFolder) -> Process:
        """Start the supervisor of a pod, which starts the worker on the controller's order.

        Raises:
            OSError: it can't be started.
        """
        sockets = Path(pod.sockets)
        sockets.mkdir(mode=0o700, exist_ok=True)
        flags = {
            "--socket": str(sockets / SUPERVISOR_SOCKET),
            "--state": str(folder.state_file),
            "--termination-log": str(folder.termination_log),
            "--gang": pod.gang,
            "--member": pod.member,
            "--incarnation": str(pod.incarnation),
            "--pod": pod.uid,
            "--address": ADDRESS,
            "--client-dir": str(self.state.client),
            # The others keep theirs in the user's home or in /tmp already, for longer than a gang lives.
            "--caches": Compiler.JAX.value,
            "--caches-dir": str(folder.caches),
            "--log": str(folder.supervisor_log),
        }
        words = [word for flag in flags.items() for word in flag]
        command = [sys.executable, "-IS", str(folder.program), "run", *words, "--", *pod.command]
        environment = {
            **os.environ,
            **pod.environment,
            "GANG_SOCKET": str(sockets / FRAMEWORK_SOCKET),
        }
        return spawn(command, environment, Path(pod.directory), folder.worker_log)
