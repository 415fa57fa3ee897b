"""A plugin of mypy that checks ``changed(value, field=...)`` against the fields of the value's model.

A copy of a pydantic model isn't validated, so mypy has to refuse a wrong field or a wrong type. Phase and attempt of a
status are refused everywhere: only a transition writes them, as arguments of ``in_phase`` that have their own names.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mypy.nodes import ARG_NAMED_OPT, ARG_STAR2, TypeInfo, Var
from mypy.plugin import FunctionSigContext, Plugin
from mypy.types import AnyType, FunctionLike, Instance, Type, TypeOfAny, get_proper_type
from pydantic.mypy import METADATA_KEY

CHECKED: Final = frozenset({"changed", "in_phase", "_moved"})
"""Functions of gangctl whose ``**changes`` are fields of their argument ``value`` or ``status``."""
PHASE_FIELDS: Final = frozenset({"phase", "phase_time", "attempt"})
"""Fields of the status that only a transition of the lifecycle writes."""


class ChangesPlugin(Plugin):
    """Gives each call of these functions the signature that its model has."""

    def get_function_signature_hook(self, fullname: str) -> Callable[[FunctionSigContext], FunctionLike] | None:
        """Hook into calls of :data:`CHECKED` only."""
        is_checked = fullname.startswith("gangctl.") and fullname.rpartition(".")[2] in CHECKED
        return _signature if is_checked else None


def _signature(context: FunctionSigContext) -> FunctionLike:
    """Replace ``**changes`` by one optional argument for each field of the model."""
    signature = context.default_signature
    if signature.arg_kinds[-1] != ARG_STAR2:
        return signature
    at = next(index for index, name in enumerate(signature.arg_names) if name in {"value", "status"})
    if not context.args[at]:
        return signature
    model = get_proper_type(context.api.get_expression_type(context.args[at][0]))
    if not isinstance(model, Instance) or METADATA_KEY not in model.type.metadata:
        context.api.fail(f"the fields of {model} are unknown, so its changes can't be checked", context.context)
        return signature
    fields = _fields(model.type)
    return signature.copy_modified(
        arg_names=[*signature.arg_names[:-1], *fields],
        arg_kinds=[*signature.arg_kinds[:-1], *[ARG_NAMED_OPT] * len(fields)],
        arg_types=[*signature.arg_types[:-1], *fields.values()],
    )


def _fields(model: TypeInfo) -> dict[str, Type]:
    found: dict[str, Type] = {}
    for name in model.metadata[METADATA_KEY]["fields"]:
        node = model.names[name].node if name in model.names else getattr(model.get(name), "node", None)
        if isinstance(node, Var) and not (model.name == "Status" and name in PHASE_FIELDS):
            found[name] = node.type or AnyType(TypeOfAny.from_error)
    return found


def plugin(_version: str) -> type[Plugin]:
    """Tell mypy which plugin this is."""
    return ChangesPlugin
