"""Rights on the API server: what a request uses, and what a rule of a role grants, as the same text."""

from __future__ import annotations

import re
from itertools import product
from typing import Any

from e2e.api_proxy import Call

_PATH = re.compile(
    r"/(?:api|apis/(?P<group>[^/]+))/v\w+(?:/namespaces/[^/]+)?/(?P<plural>[^/]+)(?:/(?P<name>[^/]+)(?:/(?P<below>.+))?)?"
)
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


def used(call: Call) -> str:
    """The right that a request needs: ``gangctl.io/gangjobs/status update``, or ``/openid/v1/jwks get``."""
    match = _PATH.fullmatch(call.path)
    if match is None:
        return f"{call.path} {call.method.lower()}"
    if call.method == "DELETE" and match["name"] is None:
        return f"{match['group'] or ''}/{match['plural']} deletecollection"
    read = "watch" if call.is_watch else "list" if match["name"] is None else "get"
    below = f"/{match['below']}" if match["below"] else ""
    return f"{match['group'] or ''}/{match['plural']}{below} {_VERBS.get(call.method, read)}"


def granted(rule: dict[str, Any], *, named: bool = True) -> set[str]:
    """The rights that a rule grants; those on objects of one name have it in them if ``named``."""
    names = [f" {name}" for name in rule.get("resourceNames", [])] if named else []
    paths = [f"{group}/{one}" for group, one in product(rule.get("apiGroups", []), rule.get("resources", []))]
    urls = rule.get("nonResourceURLs", [])
    return {f"{path}{name} {verb}" for path, name, verb in product(paths + urls, names or [""], rule["verbs"])}
