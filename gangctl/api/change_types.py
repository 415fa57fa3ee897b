"""Writes ``changes.py``: for each model, a typed way to make a changed copy of a value.

``python -m gangctl.api.change_types`` prints it. A copy isn't validated, so mypy has to be the one that refuses a wrong
field or a wrong type. The fields of ``PHASE_FIELDS`` must not be changed by any other function than ``in_phase``.
"""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Iterator
from inspect import getmembers, isclass
from typing import Any, Final, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from gangctl.api import checkpoint_status, incident, snapshot, status
from gangctl.api.gangjob import GangJob, Metadata, Spec
from gangctl.api.model import Model
from gangctl.api.status import Status

PHASE_FIELDS: Final = ("phase", "phase_time", "attempt")
"""Fields of the status that only a transition of the lifecycle writes."""

_HEAD: Final = '''\
# Made by `python -m gangctl.api.change_types` from the models of gangctl/api. Change those, then `make generate`.
"""Changed copies of values, typed: mypy refuses a field that a model doesn't have, and a value of another type."""

from __future__ import annotations

from typing import Any, Literal, TypedDict, TypeVar, Unpack, overload

'''

_TAIL: Final = '''\
def changed(value: _M, **changes: Any) -> _M:
    """Return a copy of the value with these fields changed."""
    return value.model_copy(update=changes)


def in_phase(
    status: Status, phase: GangPhase, phase_time: float, attempt: int, **changes: Unpack[StatusChanges]
) -> Status:
    """Return a copy of the status in another phase or attempt. Only ``core/lifecycle/transitions.py`` may use it."""
    return status.model_copy(update={"phase": phase, "phase_time": phase_time, "attempt": attempt, **changes})
'''


def models() -> list[type[Model]]:
    """Every model that the controller or the CLI makes changed copies of, in the order of its source."""
    found = [
        one
        for module in (checkpoint_status, incident, status, snapshot)
        for _, one in getmembers(module, isclass)
        if issubclass(one, Model) and one.__module__ == module.__name__
    ]
    return sorted([*found, GangJob, Metadata, Spec], key=lambda one: (one.__module__, one.__name__))


def source() -> str:
    """The text of ``gangctl/api/changes.py``."""
    made = models()
    used: set[type] = {Model, *made}
    used |= {one for model in made for field in model.model_fields.values() for one in _used(field)}
    imports = [
        _import(module, sorted(one.__name__ for one in used if one.__module__ == module))
        for module in sorted({one.__module__ for one in used})
    ]
    types_ = [_typed_dict(one) for one in made]
    overloads = [
        f"@overload\ndef changed(value: {one.__name__}, **changes: Unpack[{one.__name__}Changes]) "
        f"-> {one.__name__}: ...\n"
        for one in made
    ]
    head = _HEAD + "\n".join(imports) + '\n\n_M = TypeVar("_M", bound=Model)\n'
    return "\n\n".join([head, *types_, *overloads]) + _TAIL


def _import(module: str, names: list[str]) -> str:
    line = f"from {module} import {', '.join(names)}"
    return line if len(line) <= 120 else f"from {module} import (\n" + "".join(f"    {name},\n" for name in names) + ")"  # noqa: PLR2004


def _typed_dict(one: type[Model]) -> str:
    fields = {name: _text(field.annotation) for name, field in one.model_fields.items()}
    kept = {name: text for name, text in fields.items() if one is not Status or name not in PHASE_FIELDS}
    lines = [f"class {one.__name__}Changes(TypedDict, total=False):", f'    """Fields of {one.__name__}."""', ""]
    return "\n".join([*lines, *(f"    {name}: {text}" for name, text in kept.items()), ""])


def _text(annotation: Any) -> str:
    """The type as it is written, without what only validation needs."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if annotation is None or annotation is types.NoneType:
        return "None"
    if annotation is Ellipsis:
        return "..."
    if origin in {Union, types.UnionType}:
        return " | ".join(dict.fromkeys(_text(one) for one in arguments))
    if origin is Literal:
        return f"Literal[{', '.join(json.dumps(one) for one in arguments)}]"
    if origin is None:
        return str(annotation.__name__)
    if hasattr(annotation, "__metadata__"):
        return _text(arguments[0])
    return f"{origin.__name__}[{', '.join(_text(one) for one in arguments)}]"


def _used(annotation: Any) -> Iterator[type]:
    """The classes that have to be imported for the type of a field."""
    if isinstance(annotation, FieldInfo):
        annotation = annotation.annotation
    if get_args(annotation):
        for one in get_args(annotation):
            yield from _used(one)
    elif isclass(annotation) and annotation.__module__.startswith("gangctl."):
        yield annotation


if __name__ == "__main__":
    sys.stdout.write(source())
