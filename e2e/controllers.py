"""Controllers as local processes behind a proxy, so that tests can freeze them, or kill them at a chosen moment.

Meanwhile the Deployment is scaled to zero, and an EndpointSlice of the test directs the Service to these processes.
Sidecars only see that one controller has gone and that another one answers.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

NAMESPACE: Final = "gangctl-system"
NAME: Final = "gangctl"
SLICE: Final = "gangctl-e2e"
FIRST_PORT: Final = 18443
HEALTH: Final = 100
"""The port of the probes is the port of the hub plus this."""
METRICS: Final = 200
"""The same for the port of the metrics."""
CUT: Final = "table inet gangctl-e2e"
CUTTING: Final = f"""
add {CUT}
add set inet gangctl-e2e cut {{ type gid; }}
add chain inet gangctl-e2e out {{ type filter hook output priority 0; }}
add rule inet gangctl-e2e out meta skgid @cut drop
"""
"""What the sockets of a group in this set send is lost. Each controller has a group of its own: the port of its hub."""


@dataclass
class Controller:
    """One controller."""

    name: str
    process: asyncio.subprocess.Process
    port: int
    log: Path

    def freeze(self) -> None:
        """SIGSTOP."""
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        with suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL, now."""
        with suppress(ProcessLookupError):
            self.process.kill()


@dataclass
class LocalControllers:
    """Local controllers: their address for pods, and how they are started."""

    kubectl: Any
    """``kubectl(*words, stdin="")`` returns what it prints."""
    address: str
    enter: Sequence[str]
    """The prefix of a command that makes it run where ``address`` is."""
    folder: Path
    sidecar_image: str
    controllers: list[Controller]

    async def start(self, name: str, server: str, **environment: str) -> Controller:
        """Start a controller that uses the API server at ``server``. It replaces an ended one of the same name.

        Its metrics are plain HTTP, unless ``environment`` sets GANGCTL_METRICS_SECURE.
        """
        environment = {"GANGCTL_METRICS_SECURE": "false"} | environment
        kubeconfig = self.folder / f"{name}.kubeconfig"
        kubeconfig.write_text(json.dumps(self._kubeconfig(server)))
        kubeconfig.chmod(0o600)
        names = [one.name for one in self.controllers if one.name != name]
        port = FIRST_PORT + (len(names) if len(names) == len(self.controllers) else self._at(name))
        log = self.folder / f"{name}.log"
        words = (
            *(*self.enter, "setpriv", f"--regid={port}", "--clear-groups", "--"),
            *(sys.executable, "-P", "-m", "gangctl.controller.kube", "--kubeconfig", str(kubeconfig)),
            *("--namespace", NAMESPACE, "--name", NAME, "--pod-name", name, "--pod-ip", self.address),
            *("--hub-port", str(port), "--health-port", str(port + HEALTH), "--metrics-port", str(port + METRICS)),
            *("--url", f"wss://{NAME}.{NAMESPACE}.svc:8443/v1/connect", "--sidecar-image", self.sidecar_image),
        )
        with log.open("ab") as file:
            process = await asyncio.create_subprocess_exec(
                *words, stdin=asyncio.subprocess.DEVNULL, stdout=file, stderr=file, env=os.environ | environment
            )
        found = Controller(name, process, port, log)
        if port - FIRST_PORT < len(self.controllers):
            self.controllers[port - FIRST_PORT] = found
        else:
            self.controllers.append(found)
            slice_of = self._slice(f"{SLICE}-{len(self.controllers)}", port)
            self.kubectl("apply", "-f", "-", stdin=json.dumps(slice_of))
        return found

    def cut_off(self, one: Controller) -> None:
        """Lose what it sends to the API server, to the other controllers and to sidecars: acknowledgements too."""
        self._nft(f"{CUTTING}add element inet gangctl-e2e cut {{ {one.port} }}")

    def reach(self) -> None:
        """Let all be reached again."""
        self._nft(f"add {CUT}\ndelete {CUT}")

    def _nft(self, rules: str) -> None:
        subprocess.run([*self.enter, "nft", "-f", "-"], input=rules, text=True, check=True, capture_output=True)

    def _at(self, name: str) -> int:
        return next(at for at, one in enumerate(self.controllers) if one.name == name)

    def _slice(self, name: str, port: int) -> dict[str, Any]:
        return {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"kubernetes.io/service-name": NAME}},
            "addressType": "IPv4",
            "ports": [{"name": "hub", "port": port, "protocol": "TCP"}],
            "endpoints": [{"addresses": [self.address], "conditions": {"ready": True}}],
        }

    def _kubeconfig(self, server: str) -> dict[str, Any]:
        token = self.kubectl("create", "token", NAME, "-n", NAMESPACE, "--duration=8h").strip()
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "e2e",
            "clusters": [{"name": "e2e", "cluster": {"server": server}}],
            "users": [{"name": "e2e", "user": {"token": token}}],
            "contexts": [{"name": "e2e", "context": {"cluster": "e2e", "user": "e2e", "namespace": NAMESPACE}}],
        }


@asynccontextmanager
async def local_controllers(
    kubectl: Any, address: str, enter: Sequence[str], folder: Path, sidecar_image: str
) -> AsyncIterator[LocalControllers]:
    """Take the place of the Deployment until the end of the block."""
    service = json.loads(kubectl("get", "service", NAME, "-n", NAMESPACE, "-o", "json"))
    replicas = kubectl("get", "deployment", NAME, "-n", NAMESPACE, "-o", "jsonpath={.spec.replicas}")
    kubectl("scale", "deployment", NAME, "-n", NAMESPACE, "--replicas=0")
    kubectl("wait", "--for=delete", "pod", "-n", NAMESPACE, "-l", f"app.kubernetes.io/name={NAME}", "--timeout=60s")
    patch = [{"op": "remove", "path": "/spec/selector"}]
    kubectl("patch", "service", NAME, "-n", NAMESPACE, "--type=json", "-p", json.dumps(patch))
    kubectl("delete", "endpointslice", "-n", NAMESPACE, "-l", f"kubernetes.io/service-name={NAME}")
    found = LocalControllers(kubectl, address, enter, folder, sidecar_image, [])
    try:
        yield found
    finally:
        found.reach()
        for one in found.controllers:
            one.thaw()
            one.kill()
            await one.process.wait()
        for at, _ in enumerate(found.controllers, 1):
            kubectl("delete", "endpointslice", f"{SLICE}-{at}", "-n", NAMESPACE, "--ignore-not-found")
        selector = [{"op": "add", "path": "/spec/selector", "value": service["spec"]["selector"]}]
        kubectl("patch", "service", NAME, "-n", NAMESPACE, "--type=json", "-p", json.dumps(selector))
        kubectl("scale", "deployment", NAME, "-n", NAMESPACE, f"--replicas={replicas}")
        kubectl("rollout", "status", "deployment", NAME, "-n", NAMESPACE, "--timeout=120s")
