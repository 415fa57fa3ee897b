"""The settings of traces: OpenTelemetry's standard environment variables, read and checked as a whole.

The rule: without an endpoint there are no traces. A wrong setting is one sentence in the log and no traces; the
controller must run all the same. Values of headers, and the user and query of a URL, are secrets: they must not be in a
sentence.

Source: opentelemetry.io/docs/specs/otel, "Environment Variable Specification" and "OTLP Exporter Configuration".
"""

from __future__ import annotations

import math
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit

PREFIX: Final = "OTEL_EXPORTER_OTLP_"
PROTOCOL: Final = "http/protobuf"
COMPRESSIONS: Final = ("none", "gzip", "deflate")
RATIOS: Final = ("traceidratio", "parentbased_traceidratio")
SAMPLERS: Final = ("always_on", "always_off", "parentbased_always_on", "parentbased_always_off", *RATIOS)
REFUSED: Final = tuple(f"OTEL_PYTHON_EXPORTER_OTLP_HTTP_{what}CREDENTIAL_PROVIDER" for what in ("TRACES_", ""))
"""Variables of the Python SDK for a session of one's own, which would not treat a redirection as a failure."""
OURS: Final = frozenset({"content-type", "content-length", "content-encoding", "host", "transfer-encoding"})
"""Headers that the exporter sets itself; another value would break every request."""
LONGEST_MILLISECONDS: Final = 86_400_000
"""A day. A thread cannot wait for much longer."""
LARGEST: Final = 1_000_000
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_SHOWN_LETTERS: Final = 40
_USER: Final = re.compile(r"//[^/?#]*@")

Environment = Mapping[str, str]
Pairs = tuple[tuple[str, str], ...]


class SettingError(ValueError):
    """A setting is wrong. The text is a sentence: what was found, and what is expected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSettings:
    """Where spans are sent, and how. Times are in seconds."""

    endpoint: str
    headers: Pairs
    timeout: float
    """For one batch, including retries."""
    compression: str
    certificate: str | None
    client_certificate: str | None
    client_key: str | None
    sampler: str
    ratio: float
    """The part of all traces that is exported, for samplers that need one."""
    resource: Pairs
    schedule_delay: float
    """A span waits at most this long before it is sent."""
    queue: int
    """The largest number of spans that wait; more are dropped."""
    batch: int

    @property
    def shown(self) -> str:
        """The endpoint without its secret parts."""
        return masked(self.endpoint)


def read(environment: Environment) -> TraceSettings | None:
    """The settings; None if traces are off.

    Raises:
        SettingError: a setting is wrong.
    """
    given = {name: value.strip() for name, value in environment.items() if name.startswith("OTEL_") and value.strip()}
    if given.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return None
    exporter = given.get("OTEL_TRACES_EXPORTER")
    if exporter == "none":
        return None
    endpoint = _endpoint(given)
    if exporter not in {None, "otlp"}:
        raise SettingError(f"OTEL_TRACES_EXPORTER is {exporter!r}, but only otlp and none are supported")
    if endpoint is None:
        if exporter is not None:
            raise SettingError(f"OTEL_TRACES_EXPORTER is {exporter!r}, but {PREFIX}ENDPOINT is not set")
        return None
    refused = next((one for one in REFUSED if one in given), None)
    if refused is not None:
        raise SettingError(f"{refused} is set, which is not supported; use {PREFIX}HEADERS for credentials")
    _, protocol = _of_traces(given, "PROTOCOL", PROTOCOL)
    if protocol != PROTOCOL:
        raise SettingError(f"{PREFIX}PROTOCOL is {protocol!r}; only {PROTOCOL} (often on port 4318) is supported")
    name, compression = _of_traces(given, "COMPRESSION", COMPRESSIONS[0])
    if compression not in COMPRESSIONS:
        raise SettingError(f"{name} is {compression!r}, which is not one of {', '.join(COMPRESSIONS)}")
    sampler, ratio = _sampler(given)
    queue = _whole(given, "OTEL_BSP_MAX_QUEUE_SIZE", 2048)
    batch = _whole(given, "OTEL_BSP_MAX_EXPORT_BATCH_SIZE", min(512, queue))
    if batch > queue:
        raise SettingError(f"OTEL_BSP_MAX_EXPORT_BATCH_SIZE is {batch}, more than OTEL_BSP_MAX_QUEUE_SIZE ({queue})")
    certificate, client_certificate, client_key = _certificates(given)
    return TraceSettings(
        endpoint=endpoint,
        headers=_headers(given),
        timeout=_milliseconds(*_of_traces(given, "TIMEOUT", "10000")) / 1000,
        compression=compression,
        certificate=certificate,
        client_certificate=client_certificate,
        client_key=client_key,
        sampler=sampler,
        ratio=ratio,
        resource=_resource(given),
        schedule_delay=_milliseconds("OTEL_BSP_SCHEDULE_DELAY", given.get("OTEL_BSP_SCHEDULE_DELAY", "5000")) / 1000,
        queue=queue,
        batch=batch,
    )


def masked(url: str) -> str:
    """The URL without user, password, query and fragment."""
    return _USER.sub("//***@", re.split("[?#]", url, maxsplit=1)[0])


def _of_traces(given: Environment, what: str, default: str) -> tuple[str, str]:
    """The variable that takes effect, and its value: the one for traces has priority over the general one."""
    names = (f"{PREFIX}TRACES_{what}", f"{PREFIX}{what}")
    name = next((one for one in names if one in given), names[1])
    return name, given.get(name, default)


def _endpoint(given: Environment) -> str | None:
    name, found = _of_traces(given, "ENDPOINT", "")
    if not found:
        return None
    if not _is_url(found):
        raise SettingError(f"{name} is {masked(found)!r}, not an http:// or https:// URL such as http://collector:4318")
    if "TRACES" in name:
        return found
    parts = urlsplit(found)
    return SplitResult(parts.scheme, parts.netloc, f"{parts.path.rstrip('/')}/v1/traces", parts.query, "").geturl()


def _is_url(text: str) -> bool:
    if not text.isascii() or not text.isprintable() or " " in text:
        return False
    try:
        parts = urlsplit(text)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:  # A port that is not a number, or a bracket that is not closed.
        return False


def _headers(given: Environment) -> Pairs:
    name, found = _of_traces(given, "HEADERS", "")
    headers = _pairs(name, found)
    for at, (key, value) in enumerate(headers, start=1):
        fits = value.isascii() and value.isprintable() and value == value.strip()
        if not fits or not _TOKEN.fullmatch(key) or key.lower() in OURS:
            raise SettingError(f"entry {at} of {name} is not a valid header; it is not shown, because it may be secret")
    return tuple((key.lower(), value) for key, value in headers)


def _resource(given: Environment) -> Pairs:
    found = dict(_pairs("OTEL_RESOURCE_ATTRIBUTES", given.get("OTEL_RESOURCE_ATTRIBUTES", "")))
    service = given.get("OTEL_SERVICE_NAME") or found.get("service.name") or "gangctl"
    return tuple({**found, "service.name": service}.items())


def _pairs(name: str, text: str) -> Pairs:
    """``NAME=VALUE,NAME=VALUE`` with values in percent-encoding."""
    pairs = []
    for at, entry in enumerate((one for one in text.split(",") if one.strip()), start=1):
        key, equals, value = entry.partition("=")
        if not equals or not key.strip():
            raise SettingError(f"entry {at} of {name} is not NAME=VALUE; it is not shown, because it may be secret")
        pairs.append((unquote(key.strip()), unquote(value.strip())))
    return tuple(pairs)


def _sampler(given: Environment) -> tuple[str, float]:
    sampler = given.get("OTEL_TRACES_SAMPLER", "parentbased_always_on").lower()
    if sampler not in SAMPLERS:
        raise SettingError(f"OTEL_TRACES_SAMPLER is {sampler!r}, which is not one of {', '.join(SAMPLERS)}")
    if sampler not in RATIOS:
        return sampler, 1.0
    found = given.get("OTEL_TRACES_SAMPLER_ARG", "1")
    ratio = _number(found)
    if ratio is None or not 0 <= ratio <= 1:
        raise SettingError(f"OTEL_TRACES_SAMPLER_ARG is {found!r}, but {sampler} needs a number from 0 to 1")
    return sampler, ratio


def _certificates(given: Environment) -> tuple[str | None, str | None, str | None]:
    """The files of the CA certificate, the client certificate and its key. They are read here to check them."""
    authority_name, authority = _of_traces(given, "CERTIFICATE", "")
    name, certificate = _of_traces(given, "CLIENT_CERTIFICATE", "")
    key_name, key = _of_traces(given, "CLIENT_KEY", "")
    if authority:
        try:
            ssl.create_default_context(cafile=authority)
        except OSError as error:
            raise SettingError(f"{authority_name} is {authority!r}, which cannot be read: {error}") from error
    if key and not certificate:
        raise SettingError(f"{key_name} is set, but {name} is not")
    if certificate:
        try:
            ssl.create_default_context().load_cert_chain(certificate, key or None, password=_no_password)
        except (OSError, ValueError) as error:
            raise SettingError(f"{name} is {certificate!r}, which cannot be used with its key: {error}") from error
    return authority or None, certificate or None, key or None


def _no_password() -> str:
    """Fail where OpenSSL would ask for the password on the terminal."""
    raise ValueError("the key needs a password")


def _milliseconds(name: str, text: str) -> float:
    found = _number(text)
    if found is None or not 0 < found <= LONGEST_MILLISECONDS:
        raise SettingError(
            f"{name} is {_short(text)}, not a number of milliseconds above 0 and at most {LONGEST_MILLISECONDS}"
        )
    return found


def _whole(given: Environment, name: str, default: int) -> int:
    text = given.get(name, str(default))
    # The digits are counted first: Python refuses to convert very many of them.
    found = int(text) if re.fullmatch("[0-9]{1,20}", text) else 0
    if not 1 <= found <= LARGEST:
        raise SettingError(f"{name} is {_short(text)}, not a whole number above 0 and at most {LARGEST}")
    return found


def _short(text: str) -> str:
    return repr(text if len(text) <= _SHOWN_LETTERS else f"{text[:_SHOWN_LETTERS]}...")


def _number(text: str) -> float | None:
    try:
        found = float(text)
    except ValueError:
        return None
    return found if math.isfinite(found) else None
