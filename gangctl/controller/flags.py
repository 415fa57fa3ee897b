"""The flags of the cluster's controller. The chart sets them by environment variables, which are their defaults."""

import argparse
import json
import os
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
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
RELAYS: Final = "the file with a token of this account for the audience AUDIENCE/relay; with it, every replica relays"
PRINTED: Final = "whether the logs of workers at fault are read, so that incidents tell what they printed last"
DESCRIPTION: Final = """\
The controller of GangJobs on Kubernetes. The Helm chart sets all of these flags.

It controls gangs while it holds the Lease NAME in its namespace. Of several replicas one leads; the others watch
everything too, and answer sidecars with the leader's address; with --relay-token, they keep the sidecars' connections
and relay. On SIGTERM it releases the Lease and ends; gangs keep
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
    relay_token: Path | None
    """The file with the token that it shows to the leader; None: replicas do not relay."""
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
    given = vars(found) | {"url": url, "server_name": server_name}
    return Options(
        settings=KubeSettings(**{one.name: given[one.name] for one in fields(KubeSettings)}),
        companions={one.name: said for one in companions() if (said := given[one.name.replace("-", "_")]) != "false"},
        timing=LeaseTiming(found.lease_duration, found.renew_deadline, found.retry_period),
        identity=f"{found.pod_name}_{uuid.uuid4()}",
        **{
            one.name: given[one.name] for one in fields(Options) if one.name in vars(found) and one.name != "companions"
        },
    )


def _parser(environment: Mapping[str, str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m gangctl.controller.kube",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )

    def add(group: Any, flag: str, default: str, text: str, variable: str = "", **more: Any) -> None:
        # argparse checks a default that is a string like a flag, so a wrong variable is reported like a wrong flag.
        variable = variable or f"GANGCTL_{flag[2:].replace('-', '_').upper()}"
        shown = f"{text} (environment: {variable}; default: {default or 'none'})"
        group.add_argument(flag, default=environment.get(variable) or default, help=shown, **more)

    def add_switch(group: Any, flag: str, default: str, text: str) -> None:
        add(group, flag, default, text, type=_switch, metavar="{true,false}")

    place = parser.add_argument_group("this replica")
    add(place, "--namespace", "", "the namespace of its Lease, Secret and Service", "POD_NAMESPACE")
    add(place, "--name", "gangctl", "the name of the Lease and the prefix of the other names")
    add(place, "--pod-name", os.uname().nodename, "its name in the election", "POD_NAME")
    add(place, "--pod-ip", "127.0.0.1", "the address at which sidecars reach this process", "POD_IP")
    kubeconfig = "path of a kubeconfig (default: KUBECONFIG, ~/.kube/config or the pod's service account)"
    place.add_argument("--kubeconfig", type=Path, help=kubeconfig)

    gangs = parser.add_argument_group("gangs and their pods")
    watched = "the only namespaces whose GangJobs it controls, separated by commas; all if empty"
    add(gangs, "--watch-namespaces", "", watched, type=_namespaces)
    selector = "label selector of the only GangJobs that it controls, as kubectl takes it; all if empty"
    add(gangs, "--selector", "", selector, type=str.strip)
    add(gangs, "--sidecar-image", "", "the image of gangctl's containers in the pods")
    policies, policy = ("Always", "IfNotPresent", "Never"), "the pull policy of that image"
    add(gangs, "--sidecar-image-pull-policy", "IfNotPresent", policy, choices=policies)
    resources = "requests and limits of these containers, as JSON"
    add(gangs, "--sidecar-resources", "{}", resources, type=_resources)
    context = "fields of their securityContext, as JSON, that replace gangctl's own"
    add(gangs, "--sidecar-security-context", "{}", context, type=_object)
    add(gangs, "--sidecar-pull-secrets", "", PULL_SECRETS, type=_names)
    add(gangs, "--node-signals", "[]", SIGNALS, type=_signals)
    add_switch(gangs, "--kueue", "false", QUEUED)
    add_switch(gangs, "--worker-output", "true", PRINTED)
    for one in companions():
        add(gangs, f"--{one.name}", "false", one.meaning, choices=one.choices)
    add(gangs, "--audience", "gangctl.io", "the audience of the pods' tokens")
    url = f"the URL that sidecars dial; wss://NAME.NAMESPACE.svc:HUB-PORT{CONNECT_PATH} if empty"
    add(gangs, "--url", "", url)

    process = parser.add_argument_group("the process")
    tls = "the Secret with ca.crt, tls.crt and tls.key, which it follows and never writes; its own, NAME-tls, if empty"
    add(process, "--tls-secret", "", tls)

    def add_port(flag: str, default: int, text: str) -> None:
        process.add_argument(flag, type=_port, default=default, metavar="PORT", help=f"{text} (default: %(default)s)")

    add_port("--hub-port", 8443, "for sidecars, TLS")
    add_port("--health-port", 8080, "for /healthz and /readyz")
    add_port("--metrics-port", 8444, "for /metrics")
    secure = "whether /metrics needs HTTPS and the token of a user who may get this URL"
    add_switch(process, "--metrics-secure", "true", secure)
    add_port("--page-port", 8445, "for the page of gangs, TLS")
    add_switch(process, "--page", "false", "whether that page is served, to users who may get the URL /ui")
    add(process, "--relay-token", "", RELAYS, type=_file)
    process.add_argument("--log-format", choices=logs.FORMATS, default="text", help="(default: %(default)s)")
    process.add_argument("--log-level", choices=LOG_LEVELS, default="info", help="(default: %(default)s)")

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


def _switch(text: str) -> bool:
    if text not in {"true", "false"}:
        raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false")
    return text == "true"


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


def _file(text: str) -> Path | None:
    return Path(text) if text else None


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
