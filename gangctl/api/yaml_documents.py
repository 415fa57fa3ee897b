"""Parses YAML text to plain JSON values, with the line of each. A value that JSON doesn't have is a problem.

Problems are collected, not raised, so that a user sees all of them at once. The expansion of aliases is limited, so
that a small text can't become a huge value. libyaml reads the text: PyYAML's own parser takes ten times as long, and
for nested lists a time that grows with the square of the depth.
"""

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

import yaml

Location = tuple[str | int, ...]

MAX_BYTES: Final = 1 << 20
"""Limit for a text; an API server accepts little more."""
MAX_VALUES: Final = 100_000
"""Limit for a document, after the expansion of its aliases."""
MAX_DEPTH: Final = 64

_TAG: Final = "tag:yaml.org,2002:"
_NOT_JSON: Final = {
    "binary": "binary data",
    "omap": "an ordered map",
    "pairs": "a list of pairs",
    "set": "a set",
}


class UnreadableError(ValueError):
    """The text is no YAML or exceeds a limit; the message has the place."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.line = line


@dataclass(frozen=True, slots=True)
class Flaw:
    """A value in a document that JSON doesn't have."""

    location: Location
    found: str
    expected: str


@dataclass(slots=True)
class YamlDocument:
    """One YAML document as JSON values."""

    value: Any = None
    lines: dict[Location, int] = field(default_factory=dict)
    """Line of each value or of its key, from 1."""
    flaws: list[Flaw] = field(default_factory=list)


def read(text: str, *, aliases: bool = True) -> tuple[YamlDocument, ...]:
    """All non-empty documents of the text. ``aliases``: whether it may have them.

    Raises:
        UnreadableError: the text is no YAML or exceeds a limit.
    """
    if len(text.encode(errors="replace")) > MAX_BYTES:
        raise UnreadableError(f"the text has more than {MAX_BYTES} bytes")
    try:
        _check_events(text, aliases=aliases)
        nodes = [node for node in yaml.compose_all(text, Loader=_Loader) if not _is_empty(node)]
        return tuple(_Reader().document(node) for node in nodes)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        said = " ".join(one for one in (error.context, error.problem) if one)
        line = None if mark is None else min(mark.line + 1, len(text.splitlines()))
        raise UnreadableError(f"no YAML: {said}", line) from None
    except yaml.YAMLError as error:
        raise UnreadableError(f"no YAML: {' '.join(str(error).split())[:200]}") from None


def unpacked(documents: Iterable[YamlDocument]) -> tuple[YamlDocument, ...]:
    """The documents, with the items of a List in its place, as ``kubectl get -o yaml`` prints it."""
    return tuple(item for document in documents for item in _items(document))


def _items(document: YamlDocument) -> Iterator[YamlDocument]:
    match document.value:
        case {"apiVersion": "v1", "kind": "List", "items": [*items]}:
            for index, item in enumerate(items):
                at = ("items", index)
                lines = {place[2:]: line for place, line in document.lines.items() if place[:2] == at}
                flaws = [
                    replace(flaw, location=flaw.location[2:]) for flaw in document.flaws if flaw.location[:2] == at
                ]
                yield YamlDocument(item, lines, flaws)
        case _:
            yield document


def _check_events(text: str, *, aliases: bool) -> None:
    """Check how deep it is before anything recurs: what runs at Python's limit fails there, finalizers too."""
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        line = 0 if event.start_mark is None else event.start_mark.line + 1
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise UnreadableError(f"nested deeper than {MAX_DEPTH} levels", line)
        if not aliases and getattr(event, "anchor", None) is not None:
            raise UnreadableError("anchors and aliases aren't allowed", line)


class _Loader(yaml.CSafeLoader):
    """Takes plain scalars as kubectl does (sigs.k8s.io/yaml): dates and 12:30:00 are strings, y and 1e3 aren't."""


_BOOLS: Final = {**yaml.constructor.SafeConstructor.bool_values, "y": True, "n": False}
_PLAIN: Final = {
    "bool": (r"[yYnN]|yes|Yes|YES|no|No|NO|true|True|TRUE|false|False|FALSE|on|On|ON|off|Off|OFF", "yYnNtTfFoO"),
    "int": (r"[-+]?(?:0b[01_]+|0o?[0-7_]+|0x[0-9a-fA-F_]+|0|[1-9][0-9_]*)", "-+0123456789"),
    "float": (
        r"[-+]?(?:(?:[0-9][0-9_]*(?:\.[0-9_]*)?|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?|\.(?:inf|Inf|INF))|\.(?:nan|NaN|NAN)",
        "-+.0123456789",
    ),
}
"""Kind -> pattern, and the first characters. An integer is no float: the first that matches counts."""
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag.removeprefix(_TAG) not in {"timestamp", *_PLAIN}]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
for _kind, (_pattern, _first) in _PLAIN.items():
    _Loader.add_implicit_resolver(f"{_TAG}{_kind}", re.compile(rf"(?:{_pattern})\Z"), list(_first))


class Dumper(yaml.SafeDumper):
    """Quotes what kubectl, but not PyYAML, reads as a number or a boolean: 1e-3, y."""


Dumper.add_implicit_resolver(
    f"{_TAG}float", re.compile(r"([-+._]*\d[\d._eE+-]*|[-+]?0[xXoObB]\w*)$"), list("-+.0123456789")
)
Dumper.add_implicit_resolver(f"{_TAG}bool", re.compile(r"[yYnN]$"), list("yYnN"))


def _is_empty(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.tag == f"{_TAG}null"


class _Reader:
    """Converts the nodes of one document to values."""

    def __init__(self) -> None:
        self._document = YamlDocument()
        self._scalars = yaml.constructor.SafeConstructor()
        self._left = MAX_VALUES
        self._depth = 0

    def document(self, node: yaml.Node) -> YamlDocument:
        """The document below its root node."""
        self._document.value = self._value(node, ())
        return self._document

    def _value(self, node: yaml.Node, at: Location) -> Any:
        self._left -= 1
        if self._left < 0:
            raise UnreadableError(f"more than {MAX_VALUES} values, with aliases expanded", node.start_mark.line + 1)
        if self._depth > MAX_DEPTH:  # A map may be merged with itself, in the same place.
            raise UnreadableError(f"nested deeper than {MAX_DEPTH} levels", node.start_mark.line + 1)
        self._document.lines.setdefault(at, node.start_mark.line + 1)
        self._depth += 1
        value = self._converted(node, at)
        self._depth -= 1
        return value

    def _converted(self, node: yaml.Node, at: Location) -> Any:
        match node:
            case yaml.MappingNode():
                return self._mapping(node, at)
            case yaml.SequenceNode():
                self._check_tag(node, at, "seq")
                return [self._value(one, (*at, index)) for index, one in enumerate(node.value)]
            case yaml.ScalarNode():
                return self._scalar(node, at)
        raise TypeError(type(node))

    def _mapping(self, node: yaml.MappingNode, at: Location) -> dict[str, Any]:
        self._check_tag(node, at, "map")
        own: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if key_node.tag == f"{_TAG}merge":
                for one in value_node.value if isinstance(value_node, yaml.SequenceNode) else [value_node]:
                    if isinstance(one, yaml.MappingNode):
                        merged = {**self._value(one, at), **merged}
                    else:
                        self._flaw(at, "<< with something else", "a map, or a list of maps, to merge")
                continue
            key = self._key(key_node, at)
            if key is None:
                continue
            below = (*at, key)
            if key in own:
                self._document.lines[below] = key_node.start_mark.line + 1
                self._flaw(below, "the same key twice", "each key once")
                continue
            self._document.lines[below] = key_node.start_mark.line + 1
            own[key] = self._value(value_node, below)
        return {**merged, **own}

    def _key(self, node: yaml.Node, at: Location) -> str | None:
        if isinstance(node, yaml.ScalarNode) and node.tag == f"{_TAG}str":
            key = self._scalar(node, at)
            return key if isinstance(key, str) else None
        shown = node.value if isinstance(node, yaml.ScalarNode) else "a list or a map"
        self._flaw(at, f"the key {shown:.40}", "a string as the key: put it in quotes")
        return None

    def _scalar(self, node: yaml.ScalarNode, at: Location) -> Any:
        kind = node.tag.removeprefix(_TAG)
        try:
            match kind:
                case "null":
                    return None
                case "bool":
                    return _BOOLS[node.value.lower()]
                case "int":
                    return self._scalars.construct_yaml_int(node)
                case "float":
                    return self._number(node, at)
                case "str" | "timestamp" | "value":
                    return self._string(node, at)
                case _:
                    self._check_tag(node, at, "str")
                    return ""
        except (ValueError, LookupError, OverflowError):
            self._flaw(at, f"{node.value:.40}", f"a value that is a YAML {kind}")
            return 0

    def _number(self, node: yaml.ScalarNode, at: Location) -> float | str:
        number = float(self._scalars.construct_yaml_float(node))
        if math.isfinite(number):
            return number
        if node.value[-1].isdigit():  # 12e4567, such as a commit, is beyond a float.
            return self._string(node, at)
        self._flaw(at, node.value, "a finite number")
        return 0.0

    def _string(self, node: yaml.ScalarNode, at: Location) -> str:
        text = str(node.value)
        try:
            text.encode()
        except UnicodeEncodeError:
            self._flaw(at, "half of a surrogate pair", "valid Unicode")
            return ""
        return text

    def _check_tag(self, node: yaml.Node, at: Location, plain: str) -> None:
        if node.tag != f"{_TAG}{plain}":
            kind = node.tag.removeprefix(_TAG)
            self._flaw(at, _NOT_JSON.get(kind, f"the tag {node.tag:.40}"), "a plain value, as in JSON")

    def _flaw(self, at: Location, found: str, expected: str) -> None:
        self._document.flaws.append(Flaw(at, found, expected))
