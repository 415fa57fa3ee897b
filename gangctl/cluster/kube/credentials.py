"""Where the API server is and who we are to it: a pod's service account, or a kubeconfig as kubectl reads it.

In a pod nothing but three files is needed, so nothing is imported for it: the generated client that a kubeconfig is
read with takes 50 MB of memory and a second.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import yaml

from gangctl.cluster.errors import Terminal

ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where the kubelet puts a pod's token, CA and namespace."""
TOKEN_SECONDS: Final = 60.0
"""After how long the token's file is read again: the kubelet replaces it long before it expires."""
LOADING_SECONDS: Final = 60.0
"""How long a credential plugin of a kubeconfig may take; it may ask a person."""


@dataclass(slots=True, kw_only=True)
class Credentials:
    """One API server, and how to speak to it as whom."""

    server: str
    """Its URL, without a slash at the end."""
    tls: ssl.SSLContext | None
    """None for plain HTTP."""
    namespace: str
    """The namespace that is meant where none is named."""
    server_name: str | None = None
    """The name in its certificate, where that isn't the host of the URL."""
    proxy: str | None = None
    authorization: Callable[[], str] = field(default=lambda: "")
    """The header of the same name; empty = none."""
    renew: Callable[[], Awaitable[None]]
    """Get the token anew, since the API server didn't take it.

    Raises:
        Terminal: there is none to be had.
    """


async def load(kubeconfig: Path | None, context: str | None) -> Credentials:
    """What kubectl would use: the kubeconfig named, ``KUBECONFIG``, ``~/.kube/config``, or the pod's service account.

    Raises:
        Terminal: there is none of them, or it can't be used; says which and why.
    """
    paths = os.environ.get("KUBECONFIG") or "~/.kube/config" if kubeconfig is None else str(kubeconfig)
    found = _existing(paths)
    if found:
        return await _of_kubeconfig(os.pathsep.join(map(str, found)), context)
    if kubeconfig is None and context is None and "KUBERNETES_SERVICE_HOST" in os.environ:
        return _of_account(ACCOUNT, os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"])
    raise Terminal(f"no cluster to speak to: there is no kubeconfig at {paths}; name one with --kubeconfig")


def _existing(paths: str) -> list[Path]:
    """``KUBECONFIG`` may name several files; those that are there are read as one."""
    named = (Path(path).expanduser() for path in paths.split(os.pathsep) if path)
    return [path for path in named if path.exists()]


def _of_account(account: Path, host: str, port: str) -> Credentials:
    token = _TokenFile(account / "token")
    try:
        token()
        namespace = (account / "namespace").read_text().strip()
        tls = _trusting(str(account / "ca.crt"))
    except (OSError, ssl.SSLError) as error:
        raise Terminal(
            f"the pod's service account can't be used: {error}; is automountServiceAccountToken off?"
        ) from error
    return Credentials(
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        tls=tls,
        namespace=namespace,
        authorization=token,
        renew=token.renew,
    )


class _TokenFile:
    """The Authorization header from a file that somebody keeps fresh."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._header = ""
        self._read_at = float("-inf")

    def __call__(self) -> str:
        now = time.monotonic()
        if now - self._read_at > TOKEN_SECONDS:
            try:
                self._header = f"Bearer {self._path.read_text().strip()}"
            except OSError:
                if not self._header:
                    raise
            self._read_at = now
        return self._header

    async def renew(self) -> None:
        self._read_at = float("-inf")


async def _of_kubeconfig(paths: str, context: str | None) -> Credentials:
    # Imported here because it is heavy, and neither a pod nor local mode needs it.
    from kubernetes_asyncio.client import Configuration  # noqa: PLC0415
    from kubernetes_asyncio.config import ConfigException, load_kube_config  # noqa: PLC0415

    found = Configuration()

    async def read() -> str:
        try:
            async with asyncio.timeout(LOADING_SECONDS):
                loader = await load_kube_config(config_file=paths, context=context, client_configuration=found)
        except (ConfigException, OSError, ValueError, TypeError, AssertionError, yaml.YAMLError) as error:
            raise Terminal(f"the kubeconfig {paths} can't be used: {error or 'it is incomplete'}") from error
        current = loader.current_context
        return "default" if current is None else current["context"].get("namespace") or "default"

    async def renew() -> None:
        await read()

    namespace = await read()
    server = found.host or ""
    certificates = found.ssl_ca_cert, found.cert_file, found.key_file
    return Credentials(
        server=server,
        tls=_tls(*certificates, verify=found.verify_ssl) if server.startswith("https:") else None,
        namespace=namespace,
        server_name=found.tls_server_name,
        proxy=found.proxy,
        authorization=lambda: found.api_key.get("BearerToken", ""),
        renew=renew,
    )


def _tls(authority: str | None, certificate: str | None, key: str | None, *, verify: bool) -> ssl.SSLContext:
    try:
        tls = _trusting(authority)
        if certificate:
            tls.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise Terminal(f"the kubeconfig's certificates can't be used: {error}") from error
    if not verify:
        tls.check_hostname = False
        tls.verify_mode = ssl.CERT_NONE
    return tls


def _trusting(authority: str | None) -> ssl.SSLContext:
    """A context that trusts this authority, without the strictness that is Python 3.13's default.

    Many clusters' own certificates lack extensions that RFC 5280 asks for, such as the authority key identifier.
    """
    context = ssl.create_default_context(cafile=authority)
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context
