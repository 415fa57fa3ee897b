"""The settings of traces: OpenTelemetry's standard environment variables, read and checked as a whole.

The rule: without an endpoint there are no traces; what is wrong is said in one sentence and means no traces either,
never a controller that doesn't run. Values of headers are secrets, as are a URL's user and query: no sentence has them.
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
"""Python's own way to bring a session, which would not see a redirection as a failure."""
OURS: Final = frozenset({"content-type", "content-length", "content-encoding", "host", "transfer-encoding"})
"""Headers that the exporter writes; another value of them would spoil every request."""
LONGEST_MILLISECONDS: Final = 86_400_000
"""A day; waiting for much longer is more than a thread can do."""
LARGEST: Final = 1_000_000
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_SHOWN_LETTERS: Final = 40
_USER: Final = re.compile(r"//[^/?#]*@")

Environment = Mapping[str, str]
Pairs = tuple[tuple[str, str], ...]


class SettingError(ValueError):
    """A sentence: what was seen, and what it should be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSettings:
    """Where spans are sent, and how. Times in seconds."""

    endpoint: str
    headers: Pairs
    timeout: float
    """For one batch, with all tries."""
    compression: str
    certificate: str | None
    client_certificate: str | None
    client_key: str | None
    sampler: str
    ratio: float
    """Of the traces that are sent, where the sampler asks for one."""
    resource: Pairs
    schedule_delay: float
    """A span is sent at most so long after it was made."""
    queue: int
    """So many spans wait at most; more are dropped."""
    batch: int

    @property
    def shown(self) -> str:
        """The endpoint without what may be secret."""
        return masked(self.endpoint)


def read(environment: Environment) -> TraceSettings | None:
    """The settings; None if no traces are wanted.

    Raises:
        SettingError: one of them is wrong.
    """
    given = {name: value.strip() for name, value in environment.items() if name.startswith("OTEL_") and value.strip()}
    if given.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return None
    exporter = given.get("OTEL_TRACES_EXPORTER")
    if exporter == "none":
        return None
    endpoint = _endpoint(given)
    if exporter not in {None, "otlp"}:
        raise SettingError(f"OTEL_TRACES_EXPORTER is {exporter!r}, which isn't otlp or none")
    if endpoint is None:
        if exporter is not None:
            raise SettingError(f"OTEL_TRACES_EXPORTER is {exporter!r}, but {PREFIX}ENDPOINT isn't set")
        return None
    refused = next((one for one in REFUSED if one in given), None)
    if refused is not None:
        raise SettingError(f"{refused} is set, which isn't supported; {PREFIX}HEADERS can carry credentials")
    _, protocol = _of_traces(given, "PROTOCOL", PROTOCOL)
    if protocol != PROTOCOL:
        raise SettingError(f"{PREFIX}PROTOCOL is {protocol!r}; only {PROTOCOL} (often on port 4318) is spoken")
    name, compression = _of_traces(given, "COMPRESSION", COMPRESSIONS[0])
    if compression not in COMPRESSIONS:
        raise SettingError(f"{name} is {compression!r}, which isn't one of {', '.join(COMPRESSIONS)}")
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
    """The variable that counts, and its value: the one for traces beats the one for everything."""
    names = (f"{PREFIX}TRACES_{what}", f"{PREFIX}{what}")
    name = next((one for one in names if one in given), names[1])
    return name, given.get(name, default)


def _endpoint(given: Environment) -> str | None:
    name, found = _of_traces(given, "ENDPOINT", "")
    if not found:
        return None
    if not _is_url(found):
        raise SettingError(f"{name} is {masked(found)!r}, no http:// or https:// URL such as http://collector:4318")
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
    except ValueError:  # a port that is no number, a bracket that isn't closed
        return False


def _headers(given: Environment) -> Pairs:
    name, found = _of_traces(given, "HEADERS", "")
    headers = _pairs(name, found)
    for at, (key, value) in enumerate(headers, start=1):
        fits = value.isascii() and value.isprintable() and value == value.strip()
        if not fits or not _TOKEN.fullmatch(key) or key.lower() in OURS:
            raise SettingError(f"entry {at} of {name} can't be a header; it is not shown, since it may be secret")
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
            raise SettingError(
                f"entry {at} of {name} is no NAME=VALUE, as in NAME=VALUE,NAME=VALUE; it is not shown, since it may be "
                "secret"
            )
        pairs.append((unquote(key.strip()), unquote(value.strip())))
    return tuple(pairs)


def _sampler(given: Environment) -> tuple[str, float]:
    sampler = given.get("OTEL_TRACES_SAMPLER", "parentbased_always_on").lower()
    if sampler not in SAMPLERS:
        raise SettingError(f"OTEL_TRACES_SAMPLER is {sampler!r}, which isn't one of {', '.join(SAMPLERS)}")
    if sampler not in RATIOS:
        return sampler, 1.0
    found = given.get("OTEL_TRACES_SAMPLER_ARG", "1")
    ratio = _number(found)
    if ratio is None or not 0 <= ratio <= 1:
        raise SettingError(f"OTEL_TRACES_SAMPLER_ARG is {found!r}, no number from 0 to 1, which {sampler} needs")
    return sampler, ratio


def _certificates(given: Environment) -> tuple[str | None, str | None, str | None]:
    """Files: the authority's certificate, the client's, and its key. They are read here to see that they can be."""
    authority_name, authority = _of_traces(given, "CERTIFICATE", "")
    name, certificate = _of_traces(given, "CLIENT_CERTIFICATE", "")
    key_name, key = _of_traces(given, "CLIENT_KEY", "")
    if authority:
        try:
            ssl.create_default_context(cafile=authority)
        except OSError as error:
            raise SettingError(f"{authority_name} is {authority!r}, which can't be read: {error}") from error
    if key and not certificate:
        raise SettingError(f"{key_name} is set, but {name} isn't")
    if certificate:
        try:
            ssl.create_default_context().load_cert_chain(certificate, key or None, password=_no_password)
        except (OSError, ValueError) as error:
            raise SettingError(f"{name} is {certificate!r}, which can't be used with its key: {error}") from error
    return authority or None, certificate or None, key or None


def _no_password() -> str:
    """Nobody is there to be asked, which OpenSSL would do on the terminal."""
    raise ValueError("the key needs a password")


def _milliseconds(name: str, text: str) -> float:
    found = _number(text)
    if found is None or not 0 < found <= LONGEST_MILLISECONDS:
        raise SettingError(
            f"{name} is {_short(text)}, no number of milliseconds above 0 and at most {LONGEST_MILLISECONDS}"
        )
    return found


def _whole(given: Environment, name: str, default: int) -> int:
    text = given.get(name, str(default))
    # The digits are counted first: Python refuses to read very many of them.
    found = int(text) if re.fullmatch("[0-9]{1,20}", text) else 0
    if not 1 <= found <= LARGEST:
        raise SettingError(f"{name} is {_short(text)}, no whole number above 0 and at most {LARGEST}")
    return found


def _short(text: str) -> str:
    return repr(text if len(text) <= _SHOWN_LETTERS else f"{text[:_SHOWN_LETTERS]}...")


def _number(text: str) -> float | None:
    try:
        found = float(text)
    except ValueError:
        return None
    return found if math.isfinite(found) else None
