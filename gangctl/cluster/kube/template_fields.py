"""Write ``gangctl/api/pod_fields.json``: the fields of a pod template, by the client's models.

``python -m gangctl.cluster.kube.template_fields`` prints it.
"""

from __future__ import annotations

import json
import re
import sys
from typing import Any, Final

from gangctl.api.pod_fields import TEMPLATE

_MODEL: Final = re.compile(r"(?:list\[)?(?:Core)?V1(\w+)\]?")


def fields_table() -> str:
    """The text of the file: one line for each type."""
    # imported only here, because the client has a thousand models
    from kubernetes_asyncio import __version__, client  # noqa: PLC0415

    fields: dict[str, dict[str, str]] = {}
    left = [TEMPLATE]
    while left:
        kind = left.pop()
        if kind not in fields:
            fields[kind] = _fields(getattr(client, f"V1{kind}", None) or getattr(client, f"CoreV1{kind}"))
            left += filter(None, fields[kind].values())
    lines = ",\n".join(f"  {json.dumps(kind)}: {json.dumps(found)}" for kind, found in sorted(fields.items()))
    return f'{{"release": "1.{__version__.partition(".")[0]}", "fields": {{\n{lines}\n}}}}\n'


def _fields(model: Any) -> dict[str, str]:
    found = {name: _MODEL.fullmatch(model.openapi_types[own]) for own, name in model.attribute_map.items()}
    return {name: "" if match is None else match[1] for name, match in sorted(found.items())}


if __name__ == "__main__":
    sys.stdout.write(fields_table())
