"""The address of Jaeger's pages, to which the page and ``gangctl trace`` link."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

VARIABLE: Final = "OTEL_UI_URL"
"""The environment variable with the address."""
_FORBIDDEN: Final = frozenset(' <>"?#')


def is_address(text: str) -> bool:
    """Whether it is an http or https address to which the path of a trace can be added."""
    try:
        parts = urlsplit(text)
        is_url = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    return is_url and text.isascii() and text.isprintable() and not set(text) & _FORBIDDEN
