"""Address and credentials of the API server: from a kubeconfig as kubectl reads it, or from a pod's service account.

The generated client, which reads the kubeconfig, takes 50 MB of memory and a second to import. A pod needs only three
files, so it must never import that client.
"""

import asyncio
import os
import ssl
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import yaml

from gangctl.cluster.errors import Terminal

ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Directory with a pod's token, CA and namespace, which the kubelet mounts."""
TOKEN_SECONDS: Final = 60.0
"""Time after which the token's file is read again: the kubelet replaces it long before the token expires."""
LOADING_SECONDS: Final = 60.0
"""Time limit of a credential plugin in a kubeconfig, which may ask a person."""


@dataclass(slots=True, kw_only=True)
class Credentials:
    """Address of an API server, and the credentials for it."""

    server: str
    """URL without a slash at the end."""
    tls: ssl.SSLContext | None
    """None for plain HTTP."""
    namespace: str
    """The default namespace."""
    server_name: str | None = None
    """Host name in the certificate, if it isn't the host of the URL."""
    proxy: str | None = None
    """That of the kubeconfig; None: that of the environment, if any."""
    authorization: Callable[[], str] = field(default=lambda: "")
    """Returns the header of the same name; empty = none."""
    renew: Callable[[], Awaitable[None]]
    """Renews the token after the API server has refused it.

    Raises:
        Terminal: the token can't be renewed.
    """

    def proxy_to_use(self) -> str | None:
        """Return the address of the proxy for the API server, by the environment as for kubectl.

        Not by aiohttp's ``trust_env``, which also takes credentials from ``~/.netrc``.

        Raises:
            Terminal: it isn't an HTTP proxy.
        """
        from urllib.request import getproxies, proxy_bypass  # noqa: PLC0415 - slow, and local mode has no API server

        server, found = urlsplit(self.server), getproxies()
        needs_none = proxy_bypass(server.netloc) or _needs_no_proxy(server.hostname or "", found.get("no", ""))
        proxy = self.proxy or ("" if needs_none else found.get(server.scheme))
        if proxy and urlsplit(proxy).scheme not in {"http", "https"}:
            raise Terminal(f"the proxy {proxy} can't be used: gangctl speaks to http:// and https:// proxies only")
        return proxy or None


def _needs_no_proxy(host: str, networks: str) -> bool:
    """As Go has it: a loopback address needs none, and ``NO_PROXY`` may have networks, which Python passes over."""
    if host == "localhost":
        return True
    with suppress(ValueError):
        address = ip_address(host)
        excluded = [one.strip() for one in networks.split(",") if "/" in one]
        return address.is_loopback or any(address in ip_network(one, strict=False) for one in excluded)
    return False


async def load_credentials(kubeconfig: Path | None, context: str | None) -> Credentials:
    """Load what kubectl would use: that kubeconfig, ``KUBECONFIG``, ``~/.kube/config``, or the pod's service account.

    Raises:
        Terminal: none of them exists, or it can't be used; the text says which and why.
    """
    paths = kubeconfigs(kubeconfig)
    found = [path for path in paths if path.exists()]
    if found:
        return await _of_kubeconfig(os.pathsep.join(map(str, found)), context)
    if kubeconfig is None and context is None and "KUBERNETES_SERVICE_HOST" in os.environ:
        return _of_account(ACCOUNT, os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"])
    looked = os.pathsep.join(map(str, paths))
    raise Terminal(f"no cluster is configured: there is no kubeconfig at {looked}; name one with --kubeconfig")


def kubeconfigs(given: Path | None) -> list[Path]:
    """The kubeconfigs that are merged, of which some may not exist. ``given``: instead of those of ``KUBECONFIG``."""
    names = str(given) if given is not None else os.environ.get("KUBECONFIG") or "~/.kube/config"
    return [Path(os.path.expanduser(name)) for name in names.split(os.pathsep) if name]  # noqa: PTH111 - HOME may be unknown


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
    """The Authorization header from a token file that the kubelet keeps fresh."""

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
    # Imported here because it is slow, and neither a pod nor local mode needs it.
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
    """A context that trusts this authority, without the strict mode that is Python 3.13's default.

    The certificates of many clusters lack extensions that RFC 5280 requires, such as the authority key identifier.
    """
    context = ssl.create_default_context(cafile=authority)
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context
