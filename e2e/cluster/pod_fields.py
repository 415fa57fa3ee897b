"""Write ``gangctl/api/pod_fields.json``: the fields of a pod template, by the OpenAPI document of Kubernetes' sources.

``python -m e2e.cluster.pod_fields`` prints it.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from e2e.cluster import programs, toolchain, versions
from gangctl.api.pod_fields import TEMPLATE

DOCUMENT = "api/openapi-spec/v3/api__v1_openapi.json"
"""The API server has it at /openapi/v3/api/v1."""


def fields_table(document: Mapping[str, Any], release: str) -> str:
    """The text of the file: one line for each type."""
    schemas = {name.rpartition(".")[2]: one for name, one in document["components"]["schemas"].items()}
    fields: dict[str, dict[str, str]] = {}
    left = [TEMPLATE]
    while left:
        kind = left.pop()
        if kind not in fields:
            found = {name: _kind(one) for name, one in sorted(schemas[kind]["properties"].items())}
            fields[kind] = {name: one if "properties" in schemas.get(one, {}) else "" for name, one in found.items()}
            left += filter(None, fields[kind].values())
    lines = ",\n".join(f"  {json.dumps(kind)}: {json.dumps(found)}" for kind, found in sorted(fields.items()))
    return f'{{"release": "{release}", "fields": {{\n{lines}\n}}}}\n'


def _kind(field: Mapping[str, Any]) -> str:
    """The type of the value, or of its items; empty if it has no name."""
    one = field.get("items", field)
    named: str = one["allOf"][0]["$ref"] if "allOf" in one else one.get("$ref", "")
    return named.rpartition(".")[2]


def main() -> None:
    """Print the table of the version that the clusters run."""
    with tempfile.TemporaryDirectory() as work:
        sources = programs.fetched(toolchain.go(), Path(work), f"k8s.io/kubernetes@v{versions.KUBERNETES}")
    document = json.loads((sources / DOCUMENT).read_text("utf-8"))
    sys.stdout.write(fields_table(document, f"1.{versions.minor()}"))


if __name__ == "__main__":
    main()
