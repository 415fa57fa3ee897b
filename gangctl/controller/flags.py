"""The flags of the cluster's controller. The chart sets them by environment variables, which are their defaults."""

from __future__ import annotations

import argparse
import json
import os
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from gangctl.cluster.kube.election import LeaseTiming
from gangctl.cluster.kube.settings import KubeSettings
from gangctl.controller.companions import companions
from gangctl.kubernetes.signals import SignalRow, rows_with
from gangctl.telemetry import logs
from gangsidecar.wire import CONNECT_PATH

LOG_LEVELS: Final = ("debug", "info", "warning", "error")
LARGEST_PORT: Final = 65535
_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")

SIGNALS: Final = "rows of the table of node signals as JSON, which add to the default ones or replace them by name"
QUEUED: Final = "whether a GangJob with the label kueue.x-k8s.io/queue-name waits until Kueue admits it"
PULL_SECRETS: Final = "pull secrets for that image in the namespaces of gangs, separated by commas"
PRINTED: Final = "whether the logs of workers at fault are read, so that incidents tell what they printed last"
DESCRIPTION: Final = """\
The controller of GangJobs on Kubernetes. The Helm chart sets all of these flags.

It controls gangs while it holds the Lease NAME in its namespace. Of several replicas one leads; the others watch
everything too, and answer sidecars with the leader's address. On SIGTERM it releases the Lease and ends; gangs keep
running. It needs the permissions of the chart's ClusterRole, and the CRD gangjobs.gangctl.io.
"""
EPILOG: Final = """\
Outside of a cluster it stands for election like any replica. Sidecars must be able to reach it at --pod-ip:

  python -m gangctl.controller.kube --kubeconfig ~/.kube/config --namespace gangctl-system --pod-ip 192.0.2.7 \
    --sidecar-image registry.example/gangctl/sidecar:0.1.0

It exports traces of restarts by OTLP over HTTP if OTEL_EXPORTER_OTLP_ENDPOINT is set, for example to
http://collector:4318. It respects the other standard OTEL_* variables too (_HEADERS, _TIMEOUT and _CERTIFICATE of the
exporter, OTEL_TRACES_SAMPLER, OTEL_RESOURCE_ATTRIBUTES, OTEL_BSP_*; times in milliseconds). If one of them is wrong,
the log gives the reason, and there are no traces, or OpenTelemetry's default applies.

A flag has priority over its environment variable. Exit codes: 0 after SIGTERM or SIGINT, 1 if it cannot run, 2 for
wrong flags.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The settings of one process."""

    settings: KubeSettings
    companions: Mapping[str, str]
    """The names of those that run, and what their flags say."""
    timing: LeaseTiming
    identity: str
    """Its name in the election: the pod's name and a random part, since a restarted container is another candidate."""
    pod_ip: str
    hub_port: int
    health_port: int
    metrics_port: int
    metrics_secure: bool
    """Whether scrapes go over TLS, and the API server says who may scrape."""
    page_port: int
    page: bool
    kubeconfig: Path | None
    log_format: str
    log_level: str

    @property
    def host(self) -> str:
        """The address to listen on: all (empty), or loopback alone if the pod IP is a loopback address."""
        return self.pod_ip if self.pod_ip.startswith("127.") or self.pod_ip == "::1" else ""

    @property
    def address(self) -> str:
        """The URL at which sidecars reach this process."""
        host = f"[{self.pod_ip}]" if ":" in self.pod_ip else self.pod_ip
        return f"wss://{host}:{self.hub_port}{CONNECT_PATH}"


def parse(arguments: Sequence[str] | None = None) -> Options:
    """Read flags and environment. A wrong one prints a sentence and ends the process with exit code 2."""
    parser = _parser(os.environ)
    found = parser.parse_args(arguments)
    if not found.namespace:
        parser.error("--namespace (or POD_NAMESPACE) is required: the namespace of its Lease, Secret and Service")
    if not found.sidecar_image:
        parser.error(
            "--sidecar-image (or GANGCTL_SIDECAR_IMAGE) is required: the image of gangctl's containers in pods"
        )
    if not found.retry_period * 2 <= found.renew_deadline < found.lease_duration:
        parser.error(
            "2 * --retry-period <= --renew-deadline < --lease-duration must hold: a leader retries a few times before "
            "it gives up, and it gives up before another replica can take over"
        )
    url = found.url or f"wss://{found.name}.{found.namespace}.svc:{found.hub_port}{CONNECT_PATH}"
    server_name = urlsplit(url).hostname
    if not url.startswith("wss://") or not server_name:
        parser.error(f"--url {url!r} is not wss://HOST:PORT{CONNECT_PATH}")
    return Options(
        settings=KubeSettings(
            namespace=found.namespace,
            name=found.name,
            watch_namespaces=found.watch_namespaces,
            selector=found.selector,
            sidecar_image=found.sidecar_image,
            sidecar_image_pull_policy=found.sidecar_image_pull_policy,
            sidecar_resources=found.sidecar_resources,
            sidecar_security_context=found.sidecar_security_context,
            sidecar_pull_secrets=found.sidecar_pull_secrets,
            tls_secret=found.tls_secret,
            audience=found.audience,
            node_signals=found.node_signals,
            kueue=found.kueue == "true",
            worker_output=found.worker_output == "true",
            url=url,
            server_name=server_name,
        ),
        companions={
            one.name: said for one in companions() if (said := getattr(found, one.name.replace("-", "_"))) != "false"
        },
        timing=LeaseTiming(found.lease_duration, found.renew_deadline, found.retry_period),
        identity=f"{found.pod_name}_{uuid.uuid4()}",
        pod_ip=found.pod_ip,
        hub_port=found.hub_port,
        health_port=found.health_port,
        metrics_port=found.metrics_port,
        metrics_secure=found.metrics_secure == "true",
        page_port=found.page_port,
        page=found.page == "true",
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
        # argparse checks a default that is a string like a flag, so a wrong variable is reported like a wrong flag.
        shown = f"{text} (environment: {variable}; default: {default or 'none'})" if variable else text
        group.add_argument(flag, default=environment.get(variable) or default, help=shown, **more)

    place = parser.add_argument_group("this replica")
    add(place, "--namespace", "POD_NAMESPACE", "", "the namespace of its Lease, Secret and Service")
    add(place, "--name", "GANGCTL_NAME", "gangctl", "the name of the Lease and the prefix of the other names")
    add(place, "--pod-name", "POD_NAME", os.uname().nodename, "its name in the election")
    add(place, "--pod-ip", "POD_IP", "127.0.0.1", "the address at which sidecars reach this process")
    kubeconfig = "path of a kubeconfig (default: KUBECONFIG, ~/.kube/config or the pod's service account)"
    place.add_argument("--kubeconfig", type=Path, help=kubeconfig)

    gangs = parser.add_argument_group("gangs and their pods")
    watched = "the only namespaces whose GangJobs it controls, separated by commas; all if empty"
    add(gangs, "--watch-namespaces", "GANGCTL_WATCH_NAMESPACES", "", watched, type=_namespaces)
    selector = "label selector of the only GangJobs that it controls, as kubectl takes it; all if empty"
    add(gangs, "--selector", "GANGCTL_SELECTOR", "", selector, type=str.strip)
    add(gangs, "--sidecar-image", "GANGCTL_SIDECAR_IMAGE", "", "the image of gangctl's containers in the pods")
    policies = ("Always", "IfNotPresent", "Never")
    policy = "the pull policy of that image"
    add(
        *(gangs, "--sidecar-image-pull-policy", "GANGCTL_SIDECAR_IMAGE_PULL_POLICY", "IfNotPresent", policy),
        choices=policies,
    )
    resources = "requests and limits of these containers, as JSON"
    add(gangs, "--sidecar-resources", "GANGCTL_SIDECAR_RESOURCES", "{}", resources, type=_resources)
    context = "fields of their securityContext, as JSON, that replace gangctl's own"
    add(gangs, "--sidecar-security-context", "GANGCTL_SIDECAR_SECURITY_CONTEXT", "{}", context, type=_object)
    add(gangs, "--sidecar-pull-secrets", "GANGCTL_SIDECAR_PULL_SECRETS", "", PULL_SECRETS, type=_names)
    add(gangs, "--node-signals", "GANGCTL_NODE_SIGNALS", "[]", SIGNALS, type=_signals)
    add(gangs, "--kueue", "GANGCTL_KUEUE", "false", QUEUED, choices=("true", "false"))
    add(gangs, "--worker-output", "GANGCTL_WORKER_OUTPUT", "true", PRINTED, choices=("true", "false"))
    for one in companions():
        variable = f"GANGCTL_{one.name.replace('-', '_').upper()}"
        add(gangs, f"--{one.name}", variable, "false", one.meaning, choices=one.choices)
    add(gangs, "--audience", "GANGCTL_AUDIENCE", "gangctl.io", "the audience of the pods' tokens")
    add(
        gangs,
        "--url",
        "GANGCTL_URL",
        "",
        f"the URL that sidecars dial; wss://NAME.NAMESPACE.svc:HUB-PORT{CONNECT_PATH} if empty",
    )

    process = parser.add_argument_group("the process")
    tls = "the Secret with ca.crt, tls.crt and tls.key, which it follows and never writes; its own, NAME-tls, if empty"
    add(process, "--tls-secret", "GANGCTL_TLS_SECRET", "", tls)
    plain = "(default: %(default)s)"
    process.add_argument("--hub-port", type=_port, default=8443, metavar="PORT", help=f"for sidecars, TLS {plain}")
    health = f"for /healthz and /readyz {plain}"
    process.add_argument("--health-port", type=_port, default=8080, metavar="PORT", help=health)
    scraped = f"for /metrics {plain}"
    process.add_argument("--metrics-port", type=_port, default=8444, metavar="PORT", help=scraped)
    secure = "whether /metrics needs HTTPS and the token of a user who may get this URL"
    add(process, "--metrics-secure", "GANGCTL_METRICS_SECURE", "true", secure, choices=("true", "false"))
    seen = "for the page of gangs, TLS"
    process.add_argument("--page-port", type=_port, default=8445, metavar="PORT", help=f"{seen} {plain}")
    shown = "whether that page is served, to users who may get the URL /ui"
    add(process, "--page", "GANGCTL_PAGE", "false", shown, choices=("true", "false"))
    process.add_argument("--log-format", choices=logs.FORMATS, default="text", help=plain)
    process.add_argument("--log-level", choices=LOG_LEVELS, default="info", help=plain)

    _add_lease(parser)
    return parser


def _add_lease(parser: argparse.ArgumentParser) -> None:
    lease = parser.add_argument_group("leader election, in seconds")
    timing = LeaseTiming()
    duration = "after this time another replica replaces a leader that is gone (default: %(default)s)"
    lease.add_argument("--lease-duration", type=_whole_seconds, default=timing.duration, metavar="S", help=duration)
    deadline = "after this time a leader that cannot renew its Lease stops leading (default: %(default)s)"
    lease.add_argument("--renew-deadline", type=_seconds, default=timing.renew_deadline, metavar="S", help=deadline)
    period = "between two attempts to renew or to acquire the Lease (default: %(default)s)"
    lease.add_argument("--retry-period", type=_seconds, default=timing.retry_period, metavar="S", help=period)


def _object(text: str) -> Mapping[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise argparse.ArgumentTypeError(f"{text!r} is not a JSON object")
    return found


def _resources(text: str) -> Mapping[str, Any]:
    found = _object(text)
    if found.keys() - {"requests", "limits", "claims"}:
        raise argparse.ArgumentTypeError('it must be the resources of a container, as in {"requests": {"cpu": "10m"}}')
    return found


def _signals(text: str) -> tuple[SignalRow, ...]:
    try:
        return rows_with(json.loads(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"rows of node signals can't be read: {error}") from error


def _names(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(one.strip() for one in text.split(",") if one.strip()))


def _namespaces(text: str) -> tuple[str, ...]:
    found = _names(text)
    for one in found:
        if not _LABEL.fullmatch(one):
            raise argparse.ArgumentTypeError(f"{one!r} is not the name of a namespace")
    return found


def _port(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) <= LARGEST_PORT:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port")
    return int(text)


def _seconds(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number of seconds")
    return found


def _whole_seconds(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of seconds, which a Lease needs")
    return int(text)
