"""A real OTLP receiver over HTTP, with the standard's own protobuf, and with faults on request."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span as Received


@dataclass
class Receiver:
    """A receiver, and what it received."""

    url: str = ""
    requests: int = 0
    spans: list[Received] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    resource: dict[str, Any] = field(default_factory=dict)
    answer: Callable[[], Awaitable[web.Response | None]] | None = None
    """Called for each request: returns another answer, or None to accept the request."""

    @property
    def names(self) -> Counter[str]:
        return Counter(span.name for span in self.spans)

    def named(self, name: str) -> Received:
        """The only span of this name."""
        (found,) = [span for span in self.spans if span.name == name]
        return found

    def differing(self) -> list[str]:
        """Names of spans that arrived twice with different content."""
        contents: dict[bytes, set[bytes]] = {}
        for span in self.spans:
            contents.setdefault(span.span_id, set()).add(span.SerializeToString(deterministic=True))
        return [span.name for span in self.spans if len(contents[span.span_id]) > 1]

    async def take(self, request: web.Request) -> web.Response:
        """One request."""
        self.requests += 1
        body = await request.read()
        if self.answer is not None:
            other = await self.answer()
            if other is not None:
                return other
        match request.headers.get("Content-Encoding"):
            case "gzip" if body[:2] == b"\x1f\x8b":  # Otherwise aiohttp has decompressed it.
                body = gzip.decompress(body)
            case "deflate" if body[:1] == b"\x78":
                body = zlib.decompress(body)
        self.paths.append(request.path)
        self.headers.append({name.lower(): value for name, value in request.headers.items()})
        for of_resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            self.resource = attributes(of_resource.resource.attributes)
            for of_scope in of_resource.scope_spans:
                self.spans += of_scope.spans
        return web.Response(
            body=ExportTraceServiceResponse().SerializeToString(), content_type="application/x-protobuf"
        )


def attributes(pairs: Any) -> dict[str, Any]:
    """Attributes as a dictionary."""
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}


@asynccontextmanager
async def receiving() -> AsyncIterator[Receiver]:
    """A receiver that listens."""
    found = Receiver()
    application = web.Application()
    application.router.add_post("/{path:.*}", found.take)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        found.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield found
    finally:
        await runner.cleanup()


async def hangs() -> web.Response | None:
    """An answer that never comes."""
    await asyncio.Event().wait()
    return None
