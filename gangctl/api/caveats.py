"""The one place that lists fields which can be written already and do less than their description says.

The sentences are appended to the fields' descriptions, in the CRD and in the reference. Nothing may be added here (a
test sees to it): a field that nothing acts on doesn't get into the API any more.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

NOT_YET: Final = MappingProxyType(
    {
        "spec.progress.source.pattern": "Not acted on yet: no output is searched, so no progress is seen.",
        "spec.progress.source.path": "Not acted on yet: no file is looked at, so no progress is seen.",
    }
)
"""Path of a field to what is not so yet."""

NOT_IN_LOCAL_MODE: Final = MappingProxyType(
    {
        "spec.podFailurePolicy.rules[].onPodConditions": "No effect in local mode, whose pods have no conditions.",
        "spec.podFailurePolicy.rules[].onDeviceHealth": "No effect in local mode, which knows of no devices.",
        "spec.recovery.schedulingTimeoutSeconds": "No effect in local mode, where every pod has its place at once.",
        "spec.ttlSecondsAfterFinished": "No effect in local mode, where a gang goes when the command ends.",
        "spec.recovery.avoidNodeSeconds": "No effect in local mode, which has one node only.",
    }
)
"""Path of a field to why only Kubernetes produces the evidence for it."""


def caveats(path: str) -> tuple[str, ...]:
    """The sentences to append to the description of the field at ``path``, such as ``spec.roles[].name``."""
    return tuple(table[path] for table in (NOT_YET, NOT_IN_LOCAL_MODE) if path in table)
