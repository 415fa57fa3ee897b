"""The CustomResourceDefinition, made from the types.

``python -m gangctl.api.crd`` prints it; with ``--check FILE`` it checks whether FILE is up to date.
"""

from __future__ import annotations

import argparse
import copy
import sys
from pathlib import Path
from typing import Any, Final

import yaml

from gangctl.api.schema import RULES, Schema, gangjob_schema
from gangctl.api.version import GROUP, KIND, PLURAL, VERSION

NAME: Final = f"{PLURAL}.{GROUP}"
HEADER: Final = "# Made by `python -m gangctl.api.crd` from the types in gangctl/api. Change those.\n"

ROLES_RULE: Final = {
    # A list-map is equal in any order of its items, but the order of the roles decides who gets which rank.
    "rule": "self.suspend || oldSelf.suspend || "
    "(self.roles == oldSelf.roles && self.roles.map(r, r.name) == oldSelf.roles.map(r, r.name))",
    "message": "the roles can only be changed while the gang is suspended: set suspend to true, then change them",
    "fieldPath": ".roles",
}
GANG_SCHEDULING_RULE: Final = {
    "rule": "self.gangScheduling == oldSelf.gangScheduling",
    "message": "gangScheduling can't be changed, because pods keep their PodGroup: delete the gang and create it anew",
    "fieldPath": ".gangScheduling",
}
"""Transition rules on the spec, which a single manifest can't violate."""

COLUMNS: Final = (
    ("PHASE", "string", ".status.phase", "Summary of where the gang is", 0),
    ("READY", "string", ".status.ready", "Members that are ready or run, of those required", 0),
    ("ATTEMPT", "integer", ".status.attempt", "Number of the current try of the whole gang", 0),
    ("RESTARTS", "integer", ".status.restarts.counted", "Restarts that were charged to the budget", 0),
    ("STEP", "integer", ".status.progress.step", "Highest step reported in this attempt", 0),
    ("AGE", "date", ".metadata.creationTimestamp", "Time since the gang was created", 0),
    ("REASON", "string", ".status.incidents[0].cause.reason", "Cause of the last incident", 1),
    ("RESTORE", "integer", ".status.restorePoint.step", "Step that this attempt was restored from", 1),
)


def crd() -> dict[str, Any]:
    """The CustomResourceDefinition, ready to apply."""
    schema = _published(gangjob_schema())
    # the API server owns metadata, and checks version and kind before it applies this schema
    schema["properties"]["metadata"] = {"type": "object"}
    for name in ("apiVersion", "kind"):
        del schema["properties"][name]["enum"]
    schema["required"] = ["spec"]
    schema["properties"]["spec"][RULES].extend((dict(ROLES_RULE), dict(GANG_SCHEDULING_RULE)))
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": NAME},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": PLURAL,
                "singular": KIND.lower(),
                "shortNames": ["gj"],
                "categories": ["all"],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": [_column(*one) for one in COLUMNS],
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


def crd_yaml() -> str:
    """Content of the file in ``crds/``."""
    return HEADER + yaml.safe_dump(crd(), sort_keys=False, width=120, allow_unicode=True)


def _column(name: str, kind: str, path: str, description: str, priority: int) -> dict[str, Any]:
    column = {"name": name, "type": kind, "jsonPath": path, "description": description}
    return {**column, "priority": priority} if priority else column


def _published(node: Schema) -> Schema:
    """A copy without the keys for gangctl itself."""
    return {
        key: [_published(one) if isinstance(one, dict) else copy.deepcopy(one) for one in value]
        if isinstance(value, list)
        else _published(value)
        if isinstance(value, dict)
        else value
        for key, value in node.items()
        if not key.startswith("x-gangctl-")
    }


def main() -> int:
    """Print the CRD, or check a file; the exit code is 1 if the file is stale."""
    parser = argparse.ArgumentParser(prog="python -m gangctl.api.crd", description="The CRD of the GangJob.")
    parser.add_argument("--check", metavar="FILE", type=Path, help="say whether FILE is up to date")
    file = parser.parse_args().check
    if file is None:
        sys.stdout.write(crd_yaml())
    elif not file.exists() or file.read_text(encoding="utf-8") != crd_yaml():
        sys.stderr.write(f"{file} is stale: python -m gangctl.api.crd > {file}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
