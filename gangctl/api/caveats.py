"""Fields that have no effect in local mode: the only list of them.

The sentences are appended to the descriptions of the fields, in the CRD and in the reference. Nothing may be added (a
test checks this): a field without effect must not get into the API any more.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

NOT_IN_LOCAL_MODE: Final = MappingProxyType(
    {
        "spec.podFailurePolicy.rules[].onPodConditions": "No effect in local mode, where pods have no conditions.",
        "spec.podFailurePolicy.rules[].onDeviceHealth": "No effect in local mode, which knows no device health.",
        "spec.recovery.schedulingTimeoutSeconds": "No effect in local mode, which schedules every pod at once.",
        "spec.ttlSecondsAfterFinished": "No effect in local mode, where gangctl run removes the gang.",
        "spec.recovery.avoidNodeSeconds": "No effect in local mode, which has only one node.",
    }
)
"""Path of a field to why it has no effect in local mode."""


def caveats(path: str) -> tuple[str, ...]:
    """The sentences to append to the description of the field at ``path``, such as ``spec.roles[].name``."""
    return (NOT_IN_LOCAL_MODE[path],) if path in NOT_IN_LOCAL_MODE else ()
