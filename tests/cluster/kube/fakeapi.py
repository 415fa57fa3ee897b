"""A fake API server, for faults that a real one can't be made to have: errors, broken and silent streams, lost history.

It stores objects, serves them in pages and by watches, and checks version and UID of writes. It knows no schema. Of
label selectors it knows ``key=value``, ``key!=value`` and ``!key``; to a watch, an object that is not selected any more
is deleted, as with a real server.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from gangctl.cluster.kube.client import Client
from gangctl.cluster.kube.credentials import Credentials

Object = dict[str, Any]
Fault = Callable[[web.Request], Awaitable[web.StreamResponse | None]]
"""Answers a request instead of the server; None = the server answers."""

APPLY = "application/apply-patch+yaml"
_PATH = re.compile(
    r"/(?:api/v1|apis/[^/]+/[^/]+)(?:/namespaces/(?P<namespace>[^/]+))?/(?P<plural>[^/]+)(?:/(?P<name>[^/]+))?"
    r"(?P<below>/status|/eviction)?"
)


def status(code: int, reason: str, message: str) -> web.Response:
    """An error as the API server sends it."""
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason}
    return web.json_response({**body, "message": message}, status=code)


def selects(selector: str, value: Object) -> bool:
    """Whether a label selector selects the object. One of a mere key selects all: no test needs it."""
    labels = value.get("metadata", {}).get("labels") or {}
    for term in filter(None, selector.split(",")):
        key, _, wanted = term.partition("=")
        if key.startswith("!"):
            if key[1:] in labels:
                return False
        elif key.endswith("!"):
            if labels.get(key[:-1]) == wanted:
                return False
        elif wanted and labels.get(key) != wanted:
            return False
    return True


@dataclass
class FakeApi:
    """The server: its objects, the requests it got, and the faults."""

    url: str = ""
    objects: dict[tuple[str, str, str], Object] = field(default_factory=dict)
    """By plural, namespace and name."""
    requests: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    """Method, path and query of all requests."""
    headers: list[dict[str, str]] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    """The first one with an answer wins."""
    history: list[tuple[int, str, str, Object]] = field(default_factory=list)
    """Version, plural, type and object of each event."""
    forgotten: int = 0
    """History up to this version is lost."""
    held: str = ""
    """Why a disruption budget allows no eviction; empty = it allows each."""
    _versions: Iterator[int] = field(default_factory=lambda: itertools.count(101))
    _version: int = 100
    _told: asyncio.Condition = field(default_factory=asyncio.Condition)
    _cut: int = 0

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[Client]:
        """Listen, and yield a client."""
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", self._handle)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            async with Client(self.credentials()) as client:
                yield client
                await self.cut()
        finally:
            await runner.cleanup()

    def credentials(self) -> Credentials:
        async def renew() -> None:
            return

        return Credentials(server=self.url, tls=None, namespace="default", renew=renew)

    def watches(self) -> int:
        """Number of watch requests."""
        return sum("watch" in query for _, _, query in self.requests)

    def count(self, method: str, plural: str) -> int:
        """Number of requests with this method and plural."""
        return sum(one == method and f"/{plural}" in path for one, path, _ in self.requests)

    async def put(self, plural: str, value: Object) -> Object:
        """Store an object and send it to the watches."""
        metadata = value["metadata"]
        key = (plural, metadata.get("namespace", ""), metadata["name"])
        stored = self.objects.get(key)
        kind = "ADDED" if stored is None else "MODIFIED"
        metadata.setdefault("uid", str(uuid.uuid4()) if stored is None else stored["metadata"]["uid"])
        return await self._record(key, kind, value)

    async def remove(self, plural: str, namespace: str, name: str) -> None:
        """Delete an object and send that to the watches."""
        key = (plural, namespace, name)
        value = self.objects[key]
        await self._record(key, "DELETED", value)
        del self.objects[key]

    async def bookmark(self, plural: str) -> None:
        """Send a bookmark to the watches."""
        async with self._told:
            self._version = next(self._versions)
            value = {"kind": "Bookmark", "metadata": {"resourceVersion": str(self._version)}}
            self.history.append((self._version, plural, "BOOKMARK", value))
            self._told.notify_all()

    async def send_event(self, plural: str, kind: str, value: Object) -> None:
        """Send an event to the watches, whatever is stored."""
        async with self._told:
            self._version = next(self._versions)
            self.history.append((self._version, plural, kind, value))
            self._told.notify_all()

    async def cut(self) -> None:
        """Close all open watches."""
        async with self._told:
            self._cut += 1
            self._told.notify_all()

    def forget(self) -> None:
        """Make all versions up to now expire."""
        self.forgotten = self._version

    async def _record(self, key: tuple[str, str, str], kind: str, value: Object) -> Object:
        async with self._told:
            self._version = next(self._versions)
            made: Object = json.loads(json.dumps(value))
            made["metadata"]["resourceVersion"] = str(self._version)
            self.objects[key] = made
            self.history.append((self._version, key[0], kind, made))
            self._told.notify_all()
            return made

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append((request.method, request.path, dict(request.query)))
        self.headers.append(dict(request.headers))
        for fault in tuple(self.faults):
            answer = await fault(request)
            if answer is not None:
                return answer
        match = _PATH.fullmatch(request.path)
        assert match is not None, request.path
        plural, namespace, name = match["plural"], match["namespace"] or "", match["name"]
        if request.method == "POST" and match["below"] != "/eviction":
            return await self._create(request, plural, namespace)
        if name is None and request.method == "DELETE":
            return await self._delete_collection(request, plural, namespace)
        if name is None:
            return await (self._watch if "watch" in request.query else self._list)(request, plural, namespace)
        stored = self.objects.get((plural, namespace, name))
        if request.content_type == APPLY:
            wanted = await request.json()
            kept = {} if stored is None else {**stored, "metadata": {**stored["metadata"], **wanted["metadata"]}}
            return web.json_response(await self.put(plural, {**wanted, **kept, "spec": wanted["spec"]}))
        if stored is None:
            return status(404, "NotFound", f'{plural} "{name}" not found')
        if request.method == "GET":
            return web.json_response(stored)
        if match["below"] == "/eviction":
            return await self._evict(request, stored)
        return await self._change(request, stored, (plural, namespace, name))

    async def _list(self, request: web.Request, plural: str, namespace: str) -> web.Response:
        selector = request.query.get("labelSelector", "")
        found = [
            one
            for key, one in self.objects.items()
            if key[0] == plural and namespace in {"", key[1]} and selects(selector, one)
        ]
        limit, at = int(request.query.get("limit", 0)), int(request.query.get("continue", 0))
        part = found[at : at + limit] if limit else found
        metadata = {"resourceVersion": str(self._version)}
        if limit and at + limit < len(found):
            metadata["continue"] = str(at + limit)
        return web.json_response({"metadata": metadata, "items": part})

    async def _delete_collection(self, request: web.Request, plural: str, namespace: str) -> web.Response:
        """Delete what a label selector of ``a=b`` and ``a!=b`` finds."""
        for key, one in tuple(self.objects.items()):
            labels = one["metadata"].get("labels", {})
            terms = [term.partition("=") for term in request.query["labelSelector"].split(",")]
            if key[:2] == (plural, namespace) and all(
                (labels.get(label.removesuffix("!")) == value) != label.endswith("!") for label, _, value in terms
            ):
                await self.remove(*key)
        return web.json_response({"kind": "Status", "status": "Success"})

    async def _watch(self, request: web.Request, plural: str, namespace: str) -> web.StreamResponse:
        at, cut = int(request.query["resourceVersion"]), self._cut
        selector = request.query.get("labelSelector", "")
        if at < self.forgotten:
            return status(410, "Expired", "too old resource version")
        stream = web.StreamResponse()
        await stream.prepare(request)
        while self._cut == cut:
            # A test may shorten the history while this is sent.
            for version, about, kind, value in [one for one in self.history if one[0] > at and one[1] == plural]:
                within = value.get("metadata", {}).get("namespace", namespace)  # A bookmark has none.
                shown = self._shown(selector, version, about, kind, value)
                if namespace in {"", within} and shown:
                    line = json.dumps({"type": shown, "object": value}, separators=(",", ":"))
                    await stream.write(line.encode() + b"\n")
            at = self._version
            async with self._told:
                await self._told.wait_for(lambda: self._version > at or self._cut != cut)  # noqa: B023 - awaited here
        return stream

    def _shown(self, selector: str, version: int, plural: str, kind: str, value: Object) -> str:
        """The type of the event for a watch with this selector; empty = it isn't sent."""
        if not selector or kind == "BOOKMARK":
            return kind
        uid = value.get("metadata", {}).get("uid")
        before = [
            one
            for at, about, _, one in self.history
            if at < version and about == plural and one.get("metadata", {}).get("uid") == uid
        ]
        was, is_now = bool(before) and selects(selector, before[-1]), selects(selector, value)
        if is_now:
            return kind if was or kind == "DELETED" else "ADDED"
        return "DELETED" if was else ""

    async def _create(self, request: web.Request, plural: str, namespace: str) -> web.Response:
        value = await request.json()
        name = value["metadata"]["name"]
        if (plural, namespace, name) in self.objects:
            return status(409, "AlreadyExists", f'{plural} "{name}" already exists')
        if "dryRun" in request.query:
            return web.json_response(value, status=201)
        return web.json_response(await self.put(plural, value), status=201)

    async def _evict(self, request: web.Request, stored: Object) -> web.Response:
        wanted, metadata = await request.json(), stored["metadata"]
        if wanted["deleteOptions"]["preconditions"]["uid"] != metadata["uid"]:
            return status(409, "Conflict", "Precondition failed: UID in precondition")
        if self.held:
            causes = [{"reason": "DisruptionBudget", "message": self.held}]
            body = {"kind": "Status", "status": "Failure", "code": 429, "reason": "TooManyRequests"}
            message = "Cannot evict pod as it would violate the pod's disruption budget."
            return web.json_response({**body, "message": message, "details": {"causes": causes}}, status=429)
        ending = {**stored, "metadata": {**metadata, "deletionTimestamp": "2026-11-23T10:00:00Z"}}
        await self.put("pods", ending)
        return web.json_response({"kind": "Status", "status": "Success"}, status=201)

    async def _change(self, request: web.Request, stored: Object, key: tuple[str, str, str]) -> web.Response:
        wanted, metadata = await request.json(), stored["metadata"]
        if (
            request.method == "PATCH" and key[0] == "events"
        ):  # a merge patch without a version, as the real one accepts it
            return web.json_response(await self.put(key[0], {**stored, **wanted}) if wanted else stored)
        if request.method == "DELETE":
            if wanted.get("preconditions", {}).get("uid", metadata["uid"]) != metadata["uid"]:
                return status(409, "Conflict", "Precondition failed: UID in precondition")
            await self.remove(*key)
            return web.json_response({"kind": "Status", "status": "Success"})
        if request.method == "PATCH" and key[0] == "nodes":  # a strategic patch of conditions
            kinds = {one["type"]: one for of in (stored, wanted) for one in of.get("status", {}).get("conditions", [])}
            conditions = {"conditions": list(kinds.values())}
            return web.json_response(await self.put(key[0], {**stored, "status": {**stored["status"], **conditions}}))
        given = wanted["metadata"]
        if request.method == "PATCH" and key[0] == "pods" and request.path.endswith("/status"):  # of metadata
            if given["uid"] != metadata["uid"]:
                return status(409, "Conflict", "the UID in the precondition does not match the UID in record")
            merged = {
                kind: {**metadata.get(kind, {}), **given[kind]} for kind in ("labels", "annotations") if kind in given
            }
            kept = {
                kind: {name: one for name, one in found.items() if one is not None} for kind, found in merged.items()
            }
            return web.json_response(await self.put(key[0], {**stored, "metadata": {**metadata, **kept}}))
        if (given.get("resourceVersion", metadata["resourceVersion"]), given.get("uid", metadata["uid"])) != (
            metadata["resourceVersion"],
            metadata["uid"],
        ):
            return status(409, "Conflict", "the object has been modified")
        if key[0] in {"secrets", "leases", "configmaps"}:
            return web.json_response(await self.put(key[0], wanted))
        below = "status" if request.path.endswith("/status") else "spec"
        return web.json_response(await self.put(key[0], {**stored, below: {**stored.get(below, {}), **wanted[below]}}))


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[FakeApi, Client]]:
    """A server and a client."""
    api = FakeApi()
    async with api.serve() as client:
        yield api, client
