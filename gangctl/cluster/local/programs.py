"""The two programs of a pod: how they are installed and started. What they do is the other distribution's business."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from gangctl.cluster.errors import Terminal
from gangctl.cluster.local.atomic_files import write
from gangctl.cluster.local.layout import PodFolder, StateDirectory
from gangctl.cluster.local.pod_record import ADDRESS, PodRecord
from gangctl.cluster.local.process import Process, spawn


@dataclass(frozen=True, slots=True)
class Programs:
    """Starts them, with the controller's own Python and environment."""

    state: StateDirectory

    def install(self) -> None:
        """Put the supervisor and the framework's client into the state directory.

        Raises:
            Terminal: that is impossible.
        """
        state = self.state
        command = (sys.executable, "-P", "-m", "gangsidecar.bundle", str(state.program))
        try:
            state.client.mkdir(mode=0o700, parents=True, exist_ok=True)
            built = subprocess.run(command, check=False, capture_output=True, text=True)  # noqa: S603 - our own program
            client = find_spec("gangsidecar.client")
            if built.returncode != 0 or client is None or client.origin is None:
                raise Terminal(
                    f"{state.program} can't be built: {built.stderr.strip() or 'gangsidecar is not installed'}"
                )
            write(state.client / "gangclient.py", Path(client.origin).read_bytes(), durable=False)
        except OSError as error:
            raise Terminal(f"{state.path} can't be set up: {error}") from error

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
        """Start the supervisor of a pod, which starts the worker when it is told to.

        Raises:
            OSError: it can't be started.
        """
        sockets = Path(pod.sockets)
        sockets.mkdir(mode=0o700, exist_ok=True)
        flags = {
            "--socket": str(sockets / "supervisor.sock"),
            "--state": str(folder.memory),
            "--gang": pod.gang,
            "--member": pod.member,
            "--incarnation": str(pod.incarnation),
            "--pod": pod.uid,
            "--address": ADDRESS,
            "--client-dir": str(self.state.client),
        }
        words = [word for flag in flags.items() for word in flag]
        command = [sys.executable, "-IS", str(folder.program), "run", *words, "--", *pod.command]
        environment = {**os.environ, **pod.environment, "GANG_SOCKET": str(sockets / "gang.sock")}
        return spawn(command, environment, Path(pod.directory), folder.worker_log)
