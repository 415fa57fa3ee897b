"""What a new run of a stored gang takes over: what was submitted, not what was asked of that one gang later."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gangctl.api.changes import changed
from gangctl.api.gangjob import Spec
from gangctl.api.restart import RestartFrom

_METADATA: Final = ("name", "namespace", "labels", "annotations", "ownerReferences")
_ASKED: Final = ("suspend", "restartToken", "restartFrom")


def anew(spec: Spec) -> Spec:
    """The spec without what suspend and restart have set."""
    return changed(spec, suspend=False, restart_token="", restart_from=RestartFrom())


def document_anew(stored: Mapping[str, Any]) -> dict[str, Any]:
    """The object of a cluster, as it would be submitted again."""
    metadata = {key: stored["metadata"][key] for key in _METADATA if key in stored["metadata"]}
    spec = {key: value for key, value in stored["spec"].items() if key not in _ASKED}
    return {"apiVersion": stored["apiVersion"], "kind": stored["kind"], "metadata": metadata, "spec": spec}
