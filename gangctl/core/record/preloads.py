"""Modules that a role names for its template, and that the template could not import.

The rule: it is told from the first start on, as long as the attempt runs that was started without them. Nothing must
be restarted because of it: a worker that needs the module imports it itself, and fails by itself if it can't.
"""

from __future__ import annotations

from gangctl.api.escaping import escaped
from gangctl.api.start import ForkStart, ModulesPreload
from gangctl.core.facts.gang import Gang
from gangctl.words.message import Message
from gangctl.words.warnings import modules_not_preloaded


def not_preloaded(gang: Gang) -> Message | None:
    """Return the first module that a role names and the template of a running member could not import."""
    starts = [role.start for role in gang.spec.roles]
    if not any(isinstance(one, ForkStart) and isinstance(one.preload, ModulesPreload) for one in starts):
        return None
    for holder in gang.holders.values():
        report = gang.report(holder)
        warm = None if report is None else report.warm_start
        if warm is not None and warm.not_imported and warm.attempt == gang.status.attempt:
            return modules_not_preloaded(holder, escaped(warm.not_imported))
    return None
