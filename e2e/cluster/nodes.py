"""A node: a machine with containerd, a kubelet and kube-proxy, plugged into the control plane's bridge."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Mapping
from pathlib import Path

from e2e.cluster import addresses, programs, toolchain
from e2e.cluster.control_plane import HEALTH, ControlPlane
from e2e.cluster.machines import Machine, add_bridge, configure_device
from e2e.images.store import PAUSE, Image, Store
from tests.wait import until

PROGRAMS = ("containerd", "kubelet", "kube-proxy")
LOGIN_PACKAGES = ("dbus", "systemd")
BUS = """\
<busconfig>
  <type>system</type>
  <listen>unix:path=/run/dbus/system_bus_socket</listen>
  <policy context="default">
    <allow send_destination="*"/><allow receive_sender="*"/><allow own="*"/><allow user="*"/>
  </policy>
</busconfig>
"""
POD_BRIDGE = "cni0"
CONTAINERD = """\
version = 3
root = "{here}/containerd"
state = "{here}/state"
[grpc]
  address = "{here}/containerd.sock"
[ttrpc]
  address = "{here}/containerd.sock.ttrpc"
[plugins.'io.containerd.internal.v1.opt']
  path = "{here}/opt"  # not in the host's /opt
[plugins.'io.containerd.cri.v1.images']
  snapshotter = "overlayfs"
  use_local_image_pull = true
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = "{pause}"
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true  # root may lack CAP_SYS_RESOURCE
[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = ["/usr/lib/cni"]
  conf_dir = "{here}/cni"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
  BinaryName = "/usr/sbin/runc"
"""


class Node:
    """The node with this index, from 1; ``ahead``: by how many seconds its clock goes before the control plane's."""

    def __init__(self, index: int, control_plane: ControlPlane, kubelet: Mapping[str, object], ahead: int = 0) -> None:
        self.index = index
        self.name = f"node-{index}"
        self.control_plane = control_plane
        timed = programs.ready(clock=programs.SHIFTED) if ahead else control_plane.machine.programs
        self.machine = Machine(self.name, control_plane.home, timed, ahead)
        self.kubelet = kubelet

    def boot(self, init: Path) -> None:
        """Boot the machine, with its network and its configuration files."""
        machine, control_plane = self.machine, self.control_plane.machine
        machine.boot(init)
        pid = str(machine.first.pid)
        control_plane.net("ip", "link", "add", self.name, "type", "veth", "peer", "name", "eth0", "netns", pid)
        control_plane.net("ip", "link", "set", self.name, "master", addresses.BRIDGE, "up")
        add_bridge(machine, POD_BRIDGE)
        configure_device(machine, "lo", [])
        configure_device(machine, "eth0", [f"{addresses.node(self.index)}/24"])
        machine.net("ip", "route", "add", "default", "via", addresses.CONTROL)
        machine.net("sysctl", "-qw", "net.ipv4.ip_forward=1")
        others = [other for other in range(1, addresses.MAX_NODES + 1) if other != self.index]
        routes = [f"route add {addresses.pods(other)} via {addresses.node(other)}" for other in others]
        subprocess.run(
            ["nsenter", f"--net=/proc/{pid}/ns/net", "--", "ip", "-batch", "-"],
            input="\n".join(routes),
            text=True,
            check=True,
        )
        control_plane.net("ip", "route", "replace", addresses.pods(self.index), "via", addresses.node(self.index))
        self._write_settings()

    def up(self, store: Store, images: list[Image]) -> None:
        """Start its programs; ``images`` are those that it needs before its first pod."""
        here = self.machine.here
        self.machine.start("containerd", "-c", f"{here}/etc/containerd.toml")
        until(f"containerd on {self.name}", lambda: not self.ctr("version", check=False).returncode, every=0.1)
        for image in images:
            self.load(store, image)
        self._start_kubelet()
        self.machine.start("kube-proxy", f"--config={here}/etc/proxy.json")

    def heed_shutdowns(self, seconds: int) -> None:
        """Give its pods so long when the machine shuts down: logind starts, and the kubelet starts again."""
        toolchain.install_packages(*LOGIN_PACKAGES)
        machine, etc = self.machine, self.machine.here / "etc"
        (etc / "bus.xml").write_text(BUS)
        (etc / "login.conf").write_text(f"[Login]\nInhibitDelayMaxSec={2 * seconds}\n")
        machine.run("mkdir", "-p", "/run/dbus", "/run/user", "/run/systemd/system", "/run/systemd/logind.conf.d")
        machine.run("cp", str(etc / "login.conf"), "/run/systemd/logind.conf.d/")
        machine.start("dbus-daemon", f"--config-file={etc}/bus.xml", "--nofork")
        until(f"the bus of {self.name}", lambda: not self._on_the_bus("ListNames").returncode)
        machine.start("systemd-logind")
        until(f"logind on {self.name}", lambda: "login1" in self._on_the_bus("ListNames").stdout)
        settings = json.loads((etc / "kubelet.json").read_text()) | {"shutdownGracePeriod": f"{seconds}s"}
        (etc / "kubelet.json").write_text(json.dumps(settings, indent=1))
        machine.stop("kubelet")
        self._start_kubelet()
        until(f"the kubelet's lock on {self.name}", lambda: "kubelet" in self._inhibitors())

    def announce_shutdown(self) -> None:
        """Say on the bus what logind says when the machine shuts down. It needs systemd to say it itself."""
        words = ("--type=signal", "/org/freedesktop/login1", "org.freedesktop.login1.Manager.PrepareForShutdown")
        self.machine.run("dbus-send", "--system", *words, "boolean:true")

    def ctr(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run ctr against its containerd."""
        socket = f"{self.machine.here}/containerd.sock"
        return self.machine.run("ctr", "--address", socket, "--namespace", "k8s.io", *arguments, check=check)

    def load(self, store: Store, image: Image) -> None:
        """Import an image, without the layers that the node has already."""
        there = set(self.ctr("content", "ls", "-q").stdout.split())
        socket = f"{self.machine.here}/containerd.sock"
        command = ["ctr", "--address", socket, "--namespace", "k8s.io", "images", "import", "--local", "-"]
        with subprocess.Popen(
            self.machine.inside(*command),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=self.machine.env,
        ) as importing:
            assert importing.stdin is not None
            assert importing.stderr is not None
            with contextlib.suppress(BrokenPipeError):  # then ctr has ended, and its error output says why
                store.write_archive(image, importing.stdin, without=there)
                importing.stdin.close()
            error = importing.stderr.read().decode()
        if importing.returncode != 0:
            raise RuntimeError(f"{self.name}: import of {image.name}: {error.strip()}")

    def containers(self) -> list[str]:
        """The ids of its containers that run, or ran when its power was cut."""
        return [path.name for path in (self.machine.here / "state/io.containerd.runtime.v2.task/k8s.io").glob("*")]

    def _start_kubelet(self) -> None:
        self.machine.start(
            "kubelet",
            f"--config={self.machine.here}/etc/kubelet.json",
            f"--kubeconfig={self.control_plane.config(self.name)}",
            f"--hostname-override={self.name}",
            f"--node-ip={addresses.node(self.index)}",
            "--v=2",
        )

    def _on_the_bus(self, call: str) -> subprocess.CompletedProcess[str]:
        words = ("--dest=org.freedesktop.DBus", "/org/freedesktop/DBus", f"org.freedesktop.DBus.{call}")
        return self.machine.run("dbus-send", "--system", "--print-reply", *words, check=False)

    def _inhibitors(self) -> str:
        return self.machine.run("systemd-inhibit", "--list", "--no-pager", check=False).stdout

    def cut_off(self) -> None:
        """Pull its network cable: its processes go on, but nothing reaches it."""
        self.control_plane.machine.net("ip", "link", "set", self.name, "down")

    def plug_in(self) -> None:
        """Plug its network cable in again."""
        self.control_plane.machine.net("ip", "link", "set", self.name, "up")

    def _write_settings(self) -> None:
        here, pki = self.machine.here, self.control_plane.pki
        for folder in ("etc", "cni", "containerd", "state"):
            (here / folder).mkdir(parents=True, exist_ok=True)
        pki.issue(self.name, f"system:node:{self.name}", "system:nodes", names=[self.name, addresses.node(self.index)])
        self.control_plane.config(self.name).write_text(pki.kubeconfig(self.name, f"https://{addresses.CONTROL}:6443"))
        (here / "etc/containerd.toml").write_text(CONTAINERD.format(here=here, pause=PAUSE))
        (here / "cni/10-e2e.conflist").write_text(json.dumps(self._cni()))
        (here / "etc/kubelet.json").write_text(json.dumps(self._kubelet() | dict(self.kubelet), indent=1))
        (here / "etc/proxy.json").write_text(json.dumps(self._proxy(), indent=1))

    def _cni(self) -> dict[str, object]:
        addressing = {
            "type": "host-local",
            "dataDir": f"{self.machine.here}/ipam",
            "ranges": [[{"subnet": addresses.pods(self.index)}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        }
        bridge = {"type": "bridge", "bridge": POD_BRIDGE, "isGateway": True, "hairpinMode": True, "ipam": addressing}
        ports = {"type": "portmap", "capabilities": {"portMappings": True}}
        return {"cniVersion": "1.0.0", "name": "e2e", "plugins": [bridge, ports]}

    def _kubelet(self) -> dict[str, object]:
        pki = self.control_plane.pki.folder
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": addresses.node(self.index),
            "containerRuntimeEndpoint": f"unix://{self.machine.here}/containerd.sock",
            "cgroupDriver": "cgroupfs",
            "cgroupsPerQOS": False,  # leaves the host's own cgroups alone: that of a container is k8s.io/ID
            "enforceNodeAllocatable": [],
            "failCgroupV1": False,
            "featureGates": dict.fromkeys(HEALTH, True),
            "failSwapOn": False,
            "localStorageCapacityIsolation": False,
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": False},
                "x509": {"clientCAFile": f"{pki}/ca.crt"},
            },
            "authorization": {"mode": "AlwaysAllow"},
            "tlsCertFile": f"{pki}/{self.name}.crt",
            "tlsPrivateKeyFile": f"{pki}/{self.name}.key",
            "clusterDNS": [addresses.DNS],
            "clusterDomain": "cluster.local",
            "resolvConf": "",
            "evictionHard": {"memory.available": "100Mi"},
            "maxPods": 200,
            "volumePluginDir": f"{self.machine.here}/plugins",
            "nodeStatusUpdateFrequency": "5s",
            "nodeLeaseDurationSeconds": 8,  # renewed every 2 s
            "serializeImagePulls": False,
        }

    def _proxy(self) -> dict[str, object]:
        return {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "mode": "nftables",
            "hostnameOverride": self.name,
            "clientConnection": {"kubeconfig": str(self.control_plane.config("kube-proxy"))},
            "clusterCIDR": addresses.PODS,
            "conntrack": {"maxPerCore": 0},
            "healthzBindAddress": "",
            "metricsBindAddress": "",
        }
