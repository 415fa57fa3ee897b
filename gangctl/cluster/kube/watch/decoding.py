"""From the API server's bytes to small values: only the fields that are needed are decoded, and once.

A list or an event is validated straight from its bytes. An object that can't be read never stops the others: it is
said once for each version of it, and left out.
"""

from __future__ import annotations

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

log = logging.getLogger(__name__)

_TYPE: Final = re.compile(rb'\s*\{\s*"type"\s*:\s*"([A-Z]+)"')
_REMEMBERED: Final = 1000
"""So many unreadable objects are remembered as said."""


class WatchedObject(Protocol):
    """What is kept of an object."""

    @property
    def uid(self) -> str:
        """UID of the object."""

    @property
    def resource_version(self) -> str:
        """Its version."""


T = TypeVar("T", bound=WatchedObject)
M = TypeVar("M")


class Raw(BaseModel):
    """A part of an object of Kubernetes: what isn't declared is skipped."""

    model_config = ConfigDict(extra="ignore", frozen=True, alias_generator=to_camel, populate_by_name=True)


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
class ListPage(Generic[T]):
    """A part of a list."""

    items: tuple[T, ...]
    resource_version: str
    more: str
    """What the next part is asked for with; empty = this was the last one."""


@dataclass(frozen=True, slots=True)
class WatchEvent(Generic[T]):
    """An event of a watch."""

    resource_version: str
    """Up to here everything was told."""
    item: T | None = None
    """As it is now; None for a bookmark, and for what can't be read."""
    gone: str = ""
    """UID of what was deleted, or can't be read any more."""


class Decoder(Generic[T]):
    """How objects of one kind are read."""

    def __init__(self, model: type[Any], project: Callable[[Any], T]) -> None:
        """``model``: what is decoded; ``project``: what is kept of it; raises ValueError if it can't be read."""
        self._model: TypeAdapter[Any] = TypeAdapter(model)
        self._list: TypeAdapter[_List[Any]] = TypeAdapter(_List[model])  # type: ignore[valid-type]
        self._event: TypeAdapter[_Event[Any]] = TypeAdapter(_Event[model])  # type: ignore[valid-type]
        self._project = project
        self._said: dict[tuple[str, str], None] = {}

    def item(self, body: bytes) -> T | None:
        """One object; None if it can't be read."""
        try:
            return self._project(self._model.validate_json(body))
        except ValueError as error:
            self._say(_parsed(body), error)
            return None

    def page(self, body: bytes) -> ListPage[T]:
        """A part of a list, without what can't be read.

        Raises:
            Retryable: it isn't a list at all.
        """
        try:
            raw = self._list.validate_json(body)
            found = [self._projected(one) for one in raw.items or ()]
            head = raw.metadata
        except ValidationError:
            parsed = _parsed(body)
            head = _ListMetadata.model_validate(parsed.get("metadata") or {})
            found = [self._validated(one) for one in parsed.get("items") or ()]
        return ListPage(tuple(one for one in found if one is not None), head.resource_version, head.continue_)

    def event(self, line: bytes) -> WatchEvent[T]:
        """One event.

        Raises:
            Retryable: it is cut off.
            ClusterError: it is an error: what the API server says of it.
        """
        match = _TYPE.match(line)
        kind = match[1].decode() if match is not None else str(_parsed(line).get("type"))
        if kind == "ERROR":
            raise _error(_parsed(line).get("object"))
        if kind == "BOOKMARK":
            return WatchEvent(_version(line).resource_version)
        try:
            item = self._projected(self._event.validate_json(line).object)
        except ValidationError:
            item = self._validated(_parsed(line).get("object"))
        if item is not None and kind != "DELETED":
            return WatchEvent(item.resource_version, item)
        version = _version(line)
        return WatchEvent(version.resource_version, gone=version.uid)

    def _validated(self, parsed: Any) -> T | None:
        try:
            return self._projected(self._model.validate_python(parsed))
        except ValidationError as error:
            self._say(parsed, error)
            return None

    def _projected(self, raw: Any) -> T | None:
        try:
            return self._project(raw)
        except ValueError as error:
            self._say(raw.model_dump() if isinstance(raw, BaseModel) else raw, error)
            return None

    def _say(self, parsed: Any, error: ValueError) -> None:
        metadata = parsed.get("metadata") if isinstance(parsed, dict) else None
        found = metadata if isinstance(metadata, dict) else {}
        version = str(found.get("resourceVersion") or found.get("resource_version"))
        name = f"{found.get('namespace') or ''}/{found.get('name')}"
        if self._is_new(str(found.get("uid")), version):
            log.warning("%s can't be read and is left alone: %s", name, why(error))

    def _is_new(self, uid: str, version: str) -> bool:
        if (uid, version) in self._said:
            return False
        self._said[uid, version] = None
        if len(self._said) > _REMEMBERED:
            del self._said[next(iter(self._said))]
        return True


def why(error: ValueError) -> str:
    """What is wrong first, in a line."""
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors(include_url=False)[0]
    return f"{'.'.join(map(str, first['loc'])) or 'JSON'}: {first['msg']}"


def _parsed(body: bytes) -> dict[str, Any]:
    try:
        parsed = json.loads(body)
    except ValueError as error:
        raise Retryable(f"the API server's answer is cut off or isn't JSON: {error}") from error
    if not isinstance(parsed, dict):
        raise Retryable("the API server's answer isn't an object")
    return parsed


_VERSIONED: Final = TypeAdapter(_Event[_Versioned])


def _version(line: bytes) -> _Version:
    try:
        return _VERSIONED.validate_json(line).object.metadata
    except ValidationError as error:
        raise Retryable(f"an event of a watch can't be read: {why(error)}") from error


def _error(status: Any) -> ClusterError:
    code = status.get("code") if isinstance(status, dict) else None
    return status_error(code if isinstance(code, int) else 500, json.dumps(status).encode(), "to go on with a watch")


class _Kind(Raw):
    kind: str = ""


def kind_of(body: bytes) -> str:
    """The kind of an object; empty if that can't be read."""
    try:
        return _Kind.model_validate_json(body).kind
    except ValidationError:
        return ""
