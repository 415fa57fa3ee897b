"""Fields that are accepted but do less than their description promises: the only list of them.

The sentences are appended to the descriptions of the fields, in the CRD and in the reference. Nothing may be added to
NOT_YET (a test checks this): a field without effect must not get into the API any more.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

NOT_YET: Final = MappingProxyType(
    {
        "spec.progress.source.pattern": "Not implemented yet: output is not searched, so no progress is recorded.",
        "spec.progress.source.path": "Not implemented yet: the file is not read, so no progress is recorded.",
    }
)
"""Path of a field to what it does not do yet."""

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
    return tuple(table[path] for table in (NOT_YET, NOT_IN_LOCAL_MODE) if path in table)
