"""Quantities of the Kubernetes API: ``500m`` CPUs, ``16Gi`` of memory, 8 devices.

Source: Kubernetes, apimachinery, pkg/api/resource/quantity.go.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any, Final

_QUANTITY: Final = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(?:([KMGTPE]i|[numkMGTPE]?)|[eE]([+-]?\d{1,3}))")
_LONGEST: Final = 64
"""Characters. A tenant can write more into a template; the search takes a time that grows with their square."""
_BINARY: Final = {f"{prefix}i": Decimal(1024) ** at for at, prefix in enumerate("KMGTPE", 1)}
_DECIMAL: Final = {prefix: Decimal(1000) ** at for at, prefix in enumerate(("n", "u", "m", "", "k", *"MGTPE"), -3)}


def quantity(text: Any) -> Decimal | None:
    """The value of a quantity; None if the text isn't one."""
    match = _QUANTITY.fullmatch(str(text)[: _LONGEST + 1])
    if match is None or match.end() > _LONGEST:
        return None
    number, suffix, exponent = match.groups()
    if exponent is not None:
        return Decimal(number).scaleb(int(exponent))
    return Decimal(number) * (_BINARY.get(suffix) or _DECIMAL[suffix])
