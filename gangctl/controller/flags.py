"""The flags of the cluster's controller, each with its default from the environment: how the chart sets them."""

from __future__ import annotations

import argparse
import json
import os
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from gangctl import __version__
from gangctl.cluster.kube.leases.leadership import LeaseTiming
from gangctl.cluster.kube.settings import KubeSettings
from gangctl.telemetry import logs
from gangsidecar.wire import CONNECT_PATH

LEVELS: Final = ("debug", "info", "warning", "error")
LARGEST_PORT: Final = 65535

DESCRIPTION: Final = """\
The controller of GangJobs on Kubernetes. The Helm chart runs it with all of these set.

It looks after gangs while it holds the Lease NAME in its namespace; of several replicas one leads and the others wait,
with everything watched, and answer sidecars with the leader's address. SIGTERM ends it, hands the Lease over and leaves
gangs running. It needs the rights of the chart's ClusterRole, and the CRD of gangjobs.gangctl.io.
"""
EPILOG: Final = """\
Outside of a cluster it stands for election like any other; sidecars must be able to reach it at --pod-ip:

  python -m gangctl.controller.kube --kubeconfig ~/.kube/config --namespace gangctl-system --pod-ip 192.0.2.7

Traces of restarts are sent by OTLP over HTTP when OTEL_EXPORTER_OTLP_ENDPOINT is set, such as to
http://collector:4318; the other standard OTEL_* variables hold as well (_HEADERS, _TIMEOUT and _CERTIFICATE of the
exporter, OTEL_TRACES_SAMPLER, OTEL_RESOURCE_ATTRIBUTES, OTEL_BSP_*; times in milliseconds). What is wrong with one of
them is said in the log, and means no traces.

A flag beats its environment variable. Exit codes: 0 after SIGTERM or SIGINT, 1 if it can't run, 2 for wrong flags.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What one process was told."""

    settings: KubeSettings
    timing: LeaseTiming
    identity: str
    """In the election: the pod's name and something random, since a container that is started anew is another one."""
    pod_ip: str
    hub_port: int
    health_port: int
    kubeconfig: Path | None
    log_format: str
    log_level: str

    @property
    def host(self) -> str:
        """Where to listen: everywhere (empty), for a port-forward too; on a laptop only there."""
        return self.pod_ip if self.pod_ip.startswith("127.") or self.pod_ip == "::1" else ""

    @property
    def address(self) -> str:
        """Where sidecars reach this very process."""
        host = f"[{self.pod_ip}]" if ":" in self.pod_ip else self.pod_ip
        return f"wss://{host}:{self.hub_port}{CONNECT_PATH}"


def parse(arguments: Sequence[str] | None = None) -> Options:
    """Read flags and environment. What is wrong is said to people, and ends the process with exit code 2."""
    parser = _parser(os.environ)
    found = parser.parse_args(arguments)
    if not found.namespace:
        parser.error("--namespace (or POD_NAMESPACE) is needed: where its Lease, Secret and Service are")
    if not found.retry_period * 2 <= found.renew_deadline < found.lease_duration:
        parser.error(
            "2 * --retry-period <= --renew-deadline < --lease-duration must hold: a leader tries a few times to renew "
            "before it gives up, and gives up before another one may take its place"
        )
    url = found.url or f"wss://{found.name}.{found.namespace}.svc:{found.hub_port}{CONNECT_PATH}"
    server_name = urlsplit(url).hostname
    if not url.startswith("wss://") or not server_name:
        parser.error(f"--url {url!r} is no wss://HOST:PORT{CONNECT_PATH}")
    return Options(
        settings=KubeSettings(
            namespace=found.namespace,
            name=found.name,
            watch_namespace=found.watch_namespace,
            sidecar_image=found.sidecar_image,
            sidecar_image_pull_policy=found.sidecar_image_pull_policy,
            sidecar_resources=found.sidecar_resources,
            audience=found.audience,
            url=url,
            server_name=server_name,
        ),
        timing=LeaseTiming(found.lease_duration, found.renew_deadline, found.retry_period),
        identity=f"{found.pod_name}_{uuid.uuid4()}",
        pod_ip=found.pod_ip,
        hub_port=found.hub_port,
        health_port=found.health_port,
        kubeconfig=found.kubeconfig,
        log_format=found.log_format,
        log_level=found.log_level,
    )


def _parser(environment: Mapping[str, str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m gangctl.controller.kube",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )

    def add(group: Any, flag: str, variable: str, default: str, text: str, **more: Any) -> None:
        # A default that is a string is checked like a flag: a wrong environment variable is a wrong flag.
        shown = f"{text} (environment: {variable}; default: {default or 'none'})" if variable else text
        group.add_argument(flag, default=environment.get(variable) or default, help=shown, **more)

    place = parser.add_argument_group("where it is")
    add(place, "--namespace", "POD_NAMESPACE", "", "its own namespace, with its Lease, Secret and Service")
    add(place, "--name", "GANGCTL_NAME", "gangctl", "what the names of these begin with")
    add(place, "--pod-name", "POD_NAME", os.uname().nodename, "its name in the election")
    add(place, "--pod-ip", "POD_IP", "127.0.0.1", "where sidecars reach this process")
    kubeconfig = "the API server as kubectl knows it (default: KUBECONFIG, ~/.kube/config or the pod's service account)"
    place.add_argument("--kubeconfig", type=Path, help=kubeconfig)

    gangs = parser.add_argument_group("gangs and their pods")
    watched = "the only namespace whose GangJobs it looks after; all if empty"
    add(gangs, "--watch-namespace", "GANGCTL_WATCH_NAMESPACE", "", watched)
    image = "the image of gangctl's containers in the pods"
    add(gangs, "--sidecar-image", "GANGCTL_SIDECAR_IMAGE", f"ghcr.io/gangctl/sidecar:{__version__}", image)
    policies = ("Always", "IfNotPresent", "Never")
    policy = "when it is pulled"
    add(
        *(gangs, "--sidecar-image-pull-policy", "GANGCTL_SIDECAR_IMAGE_PULL_POLICY", "IfNotPresent", policy),
        choices=policies,
    )
    resources = "requests and limits of these containers, as JSON"
    add(gangs, "--sidecar-resources", "GANGCTL_SIDECAR_RESOURCES", "{}", resources, type=_mapping)
    add(gangs, "--audience", "GANGCTL_AUDIENCE", "gangctl.io", "whom the pods' tokens are for")
    add(gangs, "--url", "GANGCTL_URL", "", "what sidecars dial; wss://NAME.NAMESPACE.svc:HUB-PORT/v1/connect if empty")

    process = parser.add_argument_group("the process")
    plain = "(default: %(default)s)"
    process.add_argument("--hub-port", type=_port, default=8443, metavar="PORT", help=f"for sidecars, TLS {plain}")
    health = f"for /healthz and /readyz {plain}"
    process.add_argument("--health-port", type=_port, default=8080, metavar="PORT", help=health)
    process.add_argument("--log-format", choices=logs.FORMATS, default="text", help=plain)
    process.add_argument("--log-level", choices=LEVELS, default="info", help=plain)

    lease = parser.add_argument_group("leader election, in seconds")
    timing = LeaseTiming()
    duration = "after which another one takes the place of a leader that is gone (default: %(default)s)"
    lease.add_argument("--lease-duration", type=_whole_seconds, default=timing.duration, metavar="S", help=duration)
    deadline = "after which a leader that can't renew stops leading (default: %(default)s)"
    lease.add_argument("--renew-deadline", type=_seconds, default=timing.renew_deadline, metavar="S", help=deadline)
    period = "between two tries to renew, or two looks (default: %(default)s)"
    lease.add_argument("--retry-period", type=_seconds, default=timing.retry_period, metavar="S", help=period)
    return parser


def _mapping(text: str) -> Mapping[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no JSON: {error}") from error
    if not isinstance(found, dict) or found.keys() - {"requests", "limits", "claims"}:
        raise argparse.ArgumentTypeError('it is a container\'s resources, as in {"requests": {"cpu": "10m"}}')
    return found


def _port(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) <= LARGEST_PORT:
        raise argparse.ArgumentTypeError(f"{text!r} is no port")
    return int(text)


def _seconds(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds")
    return found


def _whole_seconds(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number of seconds, which is what a Lease holds")
    return int(text)
