"""The control plane: a machine with etcd, the API server, the controller manager, the scheduler and the cluster's DNS.

DNS has the usual service address, but it runs here and not in a pod, so it survives the loss of a node.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

from e2e.cluster import addresses, versions
from e2e.cluster.machines import Machine, add_bridge, configure_device
from e2e.cluster.pki import PKI
from tests.wait import until

ETCD = "http://127.0.0.1:2379"
PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "coredns")
COREFILE = """\
.:53 {
    errors
    health 127.0.0.1:8181
    kubernetes cluster.local in-addr.arpa {
        kubeconfig KUBECONFIG
        ttl 1
    }
}
"""

GROUPS = "GenericWorkload"
"""The feature gate of PodGroups, for the programs that know them."""
TOPOLOGY = "TopologyAwareWorkloadScheduling"
"""That of the topology which a PodGroup asks for."""
HEALTH = ["ResourceHealthStatus"] if versions.minor() < 36 else []
"""That of the health of devices in pods, where it is off by default."""
SERVED = {36: "v1alpha2", 37: "v1beta1"}
"""The version of PodGroups that is turned on, by the minor version of Kubernetes; earlier ones have none."""

AUDIT_POLICY = """
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  verbs: [create, update, patch, delete, deletecollection]
  resources:
  - {group: "", resources: [pods, pods/status, services]}
  - {group: batch}
  - {group: gangctl.io}
  - {group: jobset.x-k8s.io}
- level: None
"""

OUTBOUND = (
    "add table ip outbound",
    "add chain ip outbound post { type nat hook postrouting priority srcnat ; }",
    "add rule ip outbound post oifname entrance masquerade",
)
"""Lets pods reach the host's end of the link. The host has no routes to pods, so their packets get the address of the
entrance."""


class ControlPlane:
    """The control plane of a cluster in a folder."""

    def __init__(self, home: Path, programs: Path, number: int, api_arguments: Sequence[str] = ()) -> None:
        self.home = home
        self.machine = Machine("control", home, programs)
        self.pki = PKI(home / "pki")
        self.number = number
        self.api_arguments = api_arguments

    @property
    def audit(self) -> Path:
        """Who wrote jobs, gangs and their pods: a line of JSON for each request."""
        return self.home / "audit.log"

    @property
    def admin(self) -> Path:
        """The kubeconfig of the administrator."""
        return self.home / "admin.kubeconfig"

    def config(self, name: str) -> Path:
        """The kubeconfig of a component of the cluster."""
        return self.home / "pki" / f"{name}.kubeconfig"

    def prepare(self) -> None:
        """Write keys, certificates and kubeconfigs."""
        pki = self.pki
        pki.prepare()
        pki.issue(
            "apiserver",
            "kube-apiserver",
            names=[
                "kubernetes",
                "kubernetes.default",
                "kubernetes.default.svc",
                "localhost",
                "127.0.0.1",
                addresses.CONTROL,
                addresses.FIRST_SERVICE,
                addresses.entrance(self.number),
            ],
        )
        pki.issue("admin", "admin", "system:masters")
        for name in ("kube-controller-manager", "kube-scheduler", "kube-proxy"):
            pki.issue(name, f"system:{name}")
            self.config(name).write_text(pki.kubeconfig(name, f"https://{addresses.CONTROL}:6443"))
        pki.issue("coredns", "coredns", "system:masters")
        self.config("coredns").write_text(pki.kubeconfig("coredns", f"https://{addresses.CONTROL}:6443"))
        (self.home / "audit.yaml").write_text(AUDIT_POLICY)
        self.admin.write_text(pki.kubeconfig("admin", f"https://{addresses.entrance(self.number)}:6443"))

    def boot(self, init: Path) -> None:
        """Boot the machine, with the bridge that nodes are plugged into and the link to the host."""
        machine = self.machine
        machine.boot(init)
        configure_device(machine, "lo", [])
        add_bridge(machine, addresses.BRIDGE)
        configure_device(machine, addresses.BRIDGE, [f"{addresses.CONTROL}/24"])
        machine.net("sysctl", "-qw", "net.ipv4.ip_forward=1")
        device = addresses.link(self.number)
        _ip("link", "set", addresses.link_peer(self.number), "netns", str(machine.first.pid), "name", "entrance")
        configure_device(machine, "entrance", [f"{addresses.entrance(self.number)}/30"])
        _ip("addr", "add", f"{addresses.around(self.number)}/30", "dev", device)
        _ip("link", "set", device, "up")
        for rule in OUTBOUND:
            machine.net("nft", *rule.split())

    def start(self, program: str) -> None:
        """Start one of its programs unless it runs already, and wait until etcd serves: the others fail without it.

        Raises:
            TimeoutError: etcd does not serve: its log says why.
        """
        if self.machine.program(program) is not None:
            return
        self.machine.start(program, *self._arguments(program))
        if program == "etcd":
            health = ("kubectl", f"--server={ETCD}", "get", "--raw", "/health")
            until(f"etcd (see {self.machine.log})", lambda: not self.machine.run(*health, check=False).returncode, 30.0)

    def stop(self, program: str) -> None:
        """Kill one of its programs."""
        self.machine.stop(program)

    def up(self) -> None:
        """Start all programs, and wait until the API server is ready."""
        for program in PROGRAMS[:2]:
            self.start(program)
        self.ready()
        self._dns()
        for program in PROGRAMS[2:]:
            self.start(program)

    def ready(self, seconds: float = 60.0) -> None:
        """Wait for the API server.

        Raises:
            TimeoutError: it is not ready in time.
        """

        def answers() -> bool:
            return not self.kubectl("get", "--raw", "/readyz", check=False).returncode

        until("the API server", answers, seconds, every=0.1)

    def kubectl(self, *arguments: str, text: str | None = None, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run kubectl as administrator."""
        program = self.machine.programs / "kubectl"
        done = subprocess.run(
            [program, "--kubeconfig", self.admin, *arguments], input=text, capture_output=True, text=True, check=False
        )
        if check and done.returncode != 0:
            raise RuntimeError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
        return done

    def _dns(self) -> None:
        labels = {"k8s-app": "kube-dns"}
        ports = [{"name": "dns", "port": 53, "protocol": "UDP"}, {"name": "dns-tcp", "port": 53, "protocol": "TCP"}]
        service = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "kube-dns", "namespace": "kube-system", "labels": labels},
            "spec": {"clusterIP": addresses.DNS, "ports": ports},
        }
        endpoints = {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": "kube-dns-control",
                "namespace": "kube-system",
                "labels": labels | {"kubernetes.io/service-name": "kube-dns"},
            },
            "addressType": "IPv4",
            "ports": ports,
            "endpoints": [{"addresses": [addresses.CONTROL], "conditions": {"ready": True}}],
        }
        for one in (service, endpoints):
            self.kubectl("apply", "-f", "-", text=json.dumps(one))
        (self.home / "pki/Corefile").write_text(COREFILE.replace("KUBECONFIG", str(self.config("coredns"))))

    def _arguments(self, program: str) -> list[str]:
        pki = self.pki.folder
        match program:
            case "etcd":
                return ["--data-dir", f"{self.machine.here}/etcd", "--unsafe-no-fsync", "--log-level", "warn"]
            case "kube-apiserver":
                return [
                    f"--etcd-servers={ETCD}",
                    "--secure-port=6443",
                    f"--advertise-address={addresses.CONTROL}",
                    f"--service-cluster-ip-range={addresses.SERVICES}",
                    f"--tls-cert-file={pki}/apiserver.crt",
                    f"--tls-private-key-file={pki}/apiserver.key",
                    f"--client-ca-file={pki}/ca.crt",
                    f"--kubelet-client-certificate={pki}/admin.crt",
                    f"--kubelet-client-key={pki}/admin.key",
                    f"--kubelet-certificate-authority={pki}/ca.crt",
                    "--kubelet-preferred-address-types=InternalIP",
                    f"--service-account-key-file={pki}/sa.key",
                    f"--service-account-signing-key-file={pki}/sa.key",
                    "--service-account-issuer=https://kubernetes.default.svc",
                    "--authorization-mode=Node,RBAC",
                    "--enable-admission-plugins=NodeRestriction",
                    "--allow-privileged=true",
                    f"--audit-policy-file={self.home}/audit.yaml",
                    f"--audit-log-path={self.audit}",
                    *_gates(*HEALTH, *_of_groups(GROUPS, TOPOLOGY)),
                    *(f"--runtime-config=scheduling.k8s.io/{served}=true" for served in _served()),
                    "--enable-aggregator-routing=true",  # webhooks on this machine, which has no kube-proxy
                    *self.api_arguments,
                ]
            case "kube-controller-manager":
                return [
                    *self._client_of("kube-controller-manager"),
                    f"--service-account-private-key-file={pki}/sa.key",
                    f"--root-ca-file={pki}/ca.crt",
                    "--use-service-account-credentials",
                    f"--flex-volume-plugin-dir={self.machine.here}/plugins",  # not in the host's /usr/libexec
                    "--node-monitor-period=1s",  # a dead node is noticed in seconds: tests wait for it
                    "--node-monitor-grace-period=12s",
                    *_gates(*_of_groups(GROUPS)),
                ]
            case "kube-scheduler":
                gang = ["GangScheduling"] if versions.minor() == 36 else []  # GenericWorkload includes it since 1.37
                return [*self._client_of("kube-scheduler"), *_gates(*_of_groups(GROUPS, TOPOLOGY, *gang))]
            case _:
                return ["-conf", f"{pki}/Corefile"]

    def _client_of(self, name: str) -> list[str]:
        kinds = ("kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig")
        return [
            *(f"--{kind}={self.config(name)}" for kind in kinds),
            "--leader-elect=false",
            "--bind-address=127.0.0.1",
        ]


def _served() -> list[str]:
    """The version of PodGroups, if there is one."""
    return [SERVED[versions.minor()]] if versions.minor() in SERVED else []


def _of_groups(*gates: str) -> tuple[str, ...]:
    """These gates of PodGroups, if the version has them."""
    return gates if _served() else ()


def _gates(*names: str) -> list[str]:
    """The flag that turns these gates on."""
    return [f"--feature-gates={','.join(f'{name}=true' for name in names)}"] if names else []


def _ip(*command: str) -> None:
    subprocess.run(["ip", *command], check=True, capture_output=True, text=True)
