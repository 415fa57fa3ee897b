"""Where final spans go: nowhere, or to the collector that OpenTelemetry's standard variables name.

The rule: without an endpoint there are no traces. A setting that can't work is one sentence in the log and no traces;
the controller must run all the same. Values of headers, and the user and query of a URL, are secrets: they must not be
in a log. The SDK reads all other variables itself.

Source: opentelemetry.io/docs/specs/otel, "Environment Variable Specification" and "OTLP Exporter Configuration".
"""

import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote, urlsplit

from gangctl.story.incidents import is_address
from gangctl.story.spans import Span

OTLP: Final = "OTEL_EXPORTER_OTLP_"
PROTOCOL: Final = "http/protobuf"
REFUSED_NAMES: Final = tuple(f"OTEL_PYTHON_EXPORTER_OTLP_HTTP_{what}CREDENTIAL_PROVIDER" for what in ("TRACES_", ""))
"""Variables of the Python SDK for a session of the user's, which would not treat a redirection as a failure."""
RESERVED_HEADERS: Final = frozenset({"content-type", "content-length", "content-encoding", "host", "transfer-encoding"})
"""Headers that the exporter sets itself; another value would break every request."""
DAY_MILLISECONDS: Final = 86_400_000
LARGEST_QUEUE: Final = 1_000_000
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_SHOWN_LETTERS: Final = 40


@dataclass(frozen=True, slots=True)
class SpanCounts:
    """Spans of this process by outcome."""

    exported: int = 0
    failed: int = 0
    """Lost: the collector did not accept them."""
    dropped: int = 0
    """Lost: too many were waiting."""


class Exporter:
    """Takes final spans, and drops them: where traces are off. Only ``close`` waits."""

    def export(self, span: Span) -> None:
        """Send a span that has ended, in the background."""

    def counts(self) -> SpanCounts:
        """The outcomes so far."""
        return SpanCounts()

    async def close(self) -> None:
        """Send the spans that wait, for a limited time."""


class SettingError(ValueError):
    """A setting is wrong. The text is a sentence: what was found, and what is expected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Collector:
    """The settings that are checked, since a mistake in them shows a secret or loses every span."""

    endpoint: str
    headers: Mapping[str, str]
    timeout: float
    """Seconds for one batch, including retries. The SDK would read the variable's milliseconds as seconds."""
    secrets: tuple[str, ...]
    """Values of headers, and the secret parts of the endpoint, in the forms in which they may be logged."""
    queue: int
    """The largest number of spans that wait; more are dropped."""
    batch: int

    @property
    def shown(self) -> str:
        """The endpoint without its secret parts."""
        return mask_url(self.endpoint)


def collector(environment: Mapping[str, str]) -> Collector | None:
    """Return the collector that the environment names; None if traces are off.

    Raises:
        SettingError: a setting is wrong.
    """
    given = {name: value.strip() for name, value in environment.items() if name.startswith("OTEL_") and value.strip()}
    exporter = given.get("OTEL_TRACES_EXPORTER")
    if given.get("OTEL_SDK_DISABLED", "").lower() == "true" or exporter == "none":
        return None
    if exporter not in {None, "otlp"}:
        raise SettingError(f"OTEL_TRACES_EXPORTER is {exporter!r}, but only otlp and none are supported")
    name, endpoint = _of_traces(given, "ENDPOINT", "")
    if not endpoint:
        if exporter is not None:
            raise SettingError(f"OTEL_TRACES_EXPORTER is {exporter!r}, but {OTLP}ENDPOINT is not set")
        return None
    if not is_address(endpoint, forbidden=" "):
        raise SettingError(
            f"{name} is {mask_url(endpoint)!r}, not an http:// or https:// URL such as http://collector:4318"
        )
    if "TRACES" not in name:
        parts = urlsplit(endpoint)
        endpoint = parts._replace(path=f"{parts.path.rstrip('/')}/v1/traces", fragment="").geturl()
    if refused := next((one for one in REFUSED_NAMES if one in given), None):
        raise SettingError(f"{refused} is set, which is not supported; use {OTLP}HEADERS for credentials")
    if (protocol := _of_traces(given, "PROTOCOL", PROTOCOL)[1]) != PROTOCOL:
        raise SettingError(f"{OTLP}PROTOCOL is {protocol!r}; only {PROTOCOL} (often on port 4318) is supported")
    _check_tls(given)
    queue = _number("OTEL_BSP_MAX_QUEUE_SIZE", given.get("OTEL_BSP_MAX_QUEUE_SIZE", "2048"), LARGEST_QUEUE)
    batch = given.get("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", str(min(512, queue)))
    named = _of_traces(given, "HEADERS", "")
    headers = _headers(*named)
    values = (entry.partition("=")[2].strip() for entry in named[1].split(","))
    return Collector(
        endpoint=endpoint,
        headers=headers,
        secrets=(*values, *headers.values(), *re.findall(r"(?<=//)[^/?#]*(?=@)|(?<=\?).+", endpoint)),
        timeout=_number(*_of_traces(given, "TIMEOUT", "10000"), DAY_MILLISECONDS) / 1000,
        queue=queue,
        batch=_number("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", batch, queue),
    )


def mask_url(url: str) -> str:
    """Mask user, password, query and fragment of a URL."""
    return re.sub(r"//[^/?#]*@", "//***@", re.split("[?#]", url, maxsplit=1)[0])


def _of_traces(given: Mapping[str, str], what: str, default: str) -> tuple[str, str]:
    """The variable that takes effect, and its value: the one for traces has priority over the general one."""
    names = (f"{OTLP}TRACES_{what}", f"{OTLP}{what}")
    name = next((one for one in names if one in given), names[1])
    return name, given.get(name, default)


def _headers(name: str, text: str) -> Mapping[str, str]:
    """``NAME=VALUE,NAME=VALUE`` with values in percent-encoding."""
    headers = {}
    for at, entry in enumerate((one for one in text.split(",") if one.strip()), start=1):
        key, equals, value = (unquote(part.strip()) for part in entry.partition("="))
        if not equals or not key:
            raise SettingError(f"entry {at} of {name} is not NAME=VALUE; it is not shown, because it may be secret")
        fits = value.isascii() and value.isprintable() and value == value.strip()
        if not fits or not _TOKEN.fullmatch(key) or key.lower() in RESERVED_HEADERS:
            raise SettingError(f"entry {at} of {name} is not a valid header; it is not shown, because it may be secret")
        headers[key.lower()] = value
    return headers


def _check_tls(given: Mapping[str, str]) -> None:
    """Load the files for TLS: if they can't be used, the SDK loses every span and doesn't give the reason."""
    files = [_of_traces(given, what, "")[1] for what in ("CERTIFICATE", "CLIENT_CERTIFICATE", "CLIENT_KEY")]
    authority, certificate, key = files
    try:
        context = ssl.create_default_context(cafile=authority or None)
        if certificate or key:
            context.load_cert_chain(certificate, key or None, password=_no_password)
    except (OSError, ValueError) as error:
        named = ", ".join(filter(None, files))
        raise SettingError(f"the files for TLS of {OTLP}* can't be used ({named}): {error}") from error


def _no_password() -> str:
    """Fail where OpenSSL would ask for the password on the terminal."""
    raise ValueError("the key needs a password")


def _number(name: str, text: str, largest: int) -> int:
    # The digits are counted first: Python refuses to convert very many of them.
    found = int(text) if re.fullmatch("[0-9]{1,20}", text) else 0
    if not 1 <= found <= largest:
        shown = text if len(text) <= _SHOWN_LETTERS else f"{text[:_SHOWN_LETTERS]}..."
        raise SettingError(f"{name} is {shown!r}, not a whole number above 0 and at most {largest}")
    return found
