"""Decode the API server's answers: from bytes straight to small values with the needed fields only.

The rule: an object that can't be read must never block the others. It is logged once for each version, and left out. A
user can nest a pod template so deeply that no parser takes the answer that it is in, and ``managedFields`` is then
nested as deeply: such a field of the metadata, spec or status is read as :data:`TOO_DEEP`.
"""

import json
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel

from gangctl.cluster.errors import ClusterError, Retryable
from gangctl.cluster.kube.client import status_error
from gangctl.kubernetes.schema import Raw

log = logging.getLogger(__name__)

_TYPE: Final = re.compile(rb'\s*\{\s*"type"\s*:\s*"([A-Z]+)"')
_MAX_LOGGED: Final = 1000
"""Maximum number of unreadable objects that are remembered as logged."""
_TOKEN: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[{\]}]', re.DOTALL)
_MAX_DEPTH: Final = 200
"""Levels of nesting in a field. pydantic reads about as many, and writes 255."""
TOO_DEEP: Final = f"nested deeper than {_MAX_DEPTH} levels"
"""Stands in place of a field that is."""
_IN_OBJECT, _IN_EVENT, _IN_PAGE = 3, 4, 5
"""How deep the fields of an object's metadata, spec and status are nested in the answers that have it."""


class WatchedObject(Protocol):
    """The value that is kept of an object."""

    @property
    def uid(self) -> str:
        """UID of the object."""

    @property
    def resource_version(self) -> str:
        """Version of the object."""


T = TypeVar("T", bound=WatchedObject)
V = TypeVar("V")
M = TypeVar("M")


class _ListMetadata(Raw):
    resource_version: str = ""
    continue_: str = ""

    model_config = ConfigDict(alias_generator=lambda name: "continue" if name == "continue_" else to_camel(name))


class _List(Raw, Generic[M]):
    metadata: _ListMetadata = _ListMetadata()
    items: tuple[M, ...] | None = None


class _Event(Raw, Generic[M]):
    object: M


class _Version(Raw):
    uid: str = ""
    resource_version: str = ""


class _Versioned(Raw):
    metadata: _Version = _Version()


@dataclass(frozen=True, slots=True)
class ListPage(Generic[V]):
    """One page of a list, or all of it."""

    items: tuple[V, ...]
    resource_version: str
    continue_token: str
    """The ``continue`` token of the next page; empty = this is the last one."""


@dataclass(frozen=True, slots=True)
class WatchEvent(Generic[T]):
    """An event of a watch."""

    resource_version: str
    """The watch has shown all changes up to this version."""
    item: T | None = None
    """The object as it is now; None for a bookmark, a deleted object, or one that can't be read."""
    gone_uid: str = ""
    """UID of an object that was deleted, or can no longer be read."""


class Decoder(Generic[V]):
    """Decodes objects of one kind, one by one and in lists."""

    def __init__(self, model: type[Any], project: Callable[[Any], V]) -> None:
        """``model``: the decoded fields; ``project``: makes the value to keep, or raises ValueError."""
        self._model: TypeAdapter[Any] = TypeAdapter(model)
        self._list: TypeAdapter[_List[Any]] = TypeAdapter(_List[model])  # type: ignore[valid-type]
        self._project = project
        self._logged: dict[tuple[str, str], None] = {}

    def item(self, body: bytes) -> V | None:
        """One object; None if it can't be read."""
        try:
            return self._projected(self._model.validate_json(body))
        except ValidationError:
            return self._validated(_parsed(body, _IN_OBJECT))

    def page(self, body: bytes) -> ListPage[V]:
        """One page of a list, without the objects that can't be read.

        Raises:
            Retryable: the answer isn't a list.
        """
        try:
            raw = self._list.validate_json(body)
            found = [self._projected(one) for one in raw.items or ()]
            head = raw.metadata
        except ValidationError:
            parsed = _parsed(body, _IN_PAGE)
            head = _ListMetadata.model_validate(parsed.get("metadata") or {})
            found = [self._validated(one) for one in parsed.get("items") or ()]
        return ListPage(tuple(one for one in found if one is not None), head.resource_version, head.continue_)

    def _validated(self, parsed: Any) -> V | None:
        if isinstance(parsed, dict):
            parsed = {key: _shallow(part) for key, part in parsed.items()}
        try:
            return self._projected(self._model.validate_python(parsed))
        except ValidationError as error:
            self._log_unreadable(parsed, error)
            return None

    def _projected(self, raw: Any) -> V | None:
        try:
            return self._project(raw)
        except ValueError as error:
            self._log_unreadable(raw.model_dump() if isinstance(raw, BaseModel) else raw, error)
            return None

    def _log_unreadable(self, parsed: Any, error: ValueError) -> None:
        metadata = parsed.get("metadata") if isinstance(parsed, dict) else None
        found = metadata if isinstance(metadata, dict) else {}
        version = str(found.get("resourceVersion") or found.get("resource_version"))
        name = f"{found.get('namespace') or ''}/{found.get('name')}"
        if self._is_new(str(found.get("uid")), version):
            log.warning("%s can't be read and is ignored: %s", name, first_error(error))

    def _is_new(self, uid: str, version: str) -> bool:
        if (uid, version) in self._logged:
            return False
        self._logged[uid, version] = None
        if len(self._logged) > _MAX_LOGGED:
            del self._logged[next(iter(self._logged))]
        return True


class WatchDecoder(Decoder[T]):
    """Decodes objects of one kind that is watched."""

    def __init__(self, model: type[Any], project: Callable[[Any], T]) -> None:
        """``model``: the decoded fields; ``project``: makes the value to keep, or raises ValueError."""
        super().__init__(model, project)
        self._event: TypeAdapter[_Event[Any]] = TypeAdapter(_Event[model])  # type: ignore[valid-type]

    def event(self, line: bytes) -> WatchEvent[T]:
        """One event of a watch.

        Raises:
            Retryable: the event is cut off.
            ClusterError: the event is an error of the API server.
        """
        match = _TYPE.match(line)
        kind = match[1].decode() if match is not None else str(_parsed(line, _IN_EVENT).get("type"))
        if kind == "ERROR":
            raise _error(_parsed(line, _IN_EVENT).get("object"))
        if kind == "BOOKMARK":
            return WatchEvent(_version(line).resource_version)
        try:
            item = self._projected(self._event.validate_json(line).object)
        except ValidationError:
            item = self._validated(_parsed(line, _IN_EVENT).get("object"))
        if item is not None and kind != "DELETED":
            return WatchEvent(item.resource_version, item)
        version = _version(line)
        return WatchEvent(version.resource_version, gone_uid=version.uid)


def first_error(error: ValueError) -> str:
    """The first problem, in one line."""
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors(include_url=False)[0]
    return f"{'.'.join(map(str, first['loc'])) or 'JSON'}: {first['msg']}"


def _parsed(body: bytes, level: int) -> dict[str, Any]:
    """The answer as JSON values. ``level``: of the fields of its objects."""
    try:
        try:
            parsed = json.loads(body)
        except RecursionError:
            parsed = json.loads(_without_deep_fields(body, level))
    except ValueError as error:
        raise Retryable(f"the API server's answer is cut off or isn't JSON: {error}") from error
    if not isinstance(parsed, dict):
        raise Retryable("the API server's answer isn't an object")
    return parsed


def _shallow(part: Any) -> Any:
    """A part of an object without those of its fields that are nested too deeply."""
    if not isinstance(part, dict):
        return TOO_DEEP if _is_deep(part) else part
    return {key: TOO_DEEP if _is_deep(value) else value for key, value in part.items()}


def _is_deep(value: Any) -> bool:
    layer = [value]
    for _ in range(_MAX_DEPTH + 1):
        layer = [
            inner
            for one in layer
            if isinstance(one, dict | list)
            for inner in (one.values() if isinstance(one, dict) else one)
        ]
    return bool(layer)


def _without_deep_fields(body: bytes, level: int) -> bytes:
    """The JSON text with :data:`TOO_DEEP` in place of each value at this level that is nested too deeply."""
    parts: list[bytes] = []
    kept = began = depth = deepest = 0
    for token in _TOKEN.finditer(body):
        match token[0][:1]:
            case b"[" | b"{":
                depth += 1
                if depth == level:
                    began, deepest = token.start(), 0
                deepest = max(deepest, depth)
            case b"]" | b"}":
                if depth == level and deepest > _MAX_DEPTH:
                    parts += [body[kept:began], b'"', TOO_DEEP.encode(), b'"']
                    kept = token.end()
                depth -= 1
    return b"".join([*parts, body[kept:]])


_VERSIONED: Final = TypeAdapter(_Event[_Versioned])


def _version(line: bytes) -> _Version:
    try:
        return _VERSIONED.validate_json(line).object.metadata
    except ValidationError:
        pass
    try:
        return _VERSIONED.validate_python(_parsed(line, _IN_EVENT)).object.metadata
    except ValidationError as error:
        raise Retryable(f"an event of a watch can't be read: {first_error(error)}") from error


def _error(status: Any) -> ClusterError:
    code = status.get("code") if isinstance(status, dict) else None
    return status_error(code if isinstance(code, int) else 500, json.dumps(status).encode(), "to continue a watch")


def kind_of(body: bytes) -> str:
    return str(_parsed(body, _IN_OBJECT).get("kind"))
