"""What both sides know of the WebSocket upgrade, and what a peer of an older release takes.

Controller and sidecar may be of different releases: a field that came later has a default and a revision, and the
sender leaves out what its peer doesn't know yet.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Union

from gangsidecar.wire.messages import Directive, Ping, Report
from gangsidecar.wire.scanning import Scan

CONNECT_PATH = "/v1/connect"
"""Where a controller accepts sidecars."""
LEADER_HEADER = "Gang-Leader"
"""Header of a standby's refusal (503): the URL of the leader."""
REVISION = 8
"""Of version 1. 2: with ``Report.loaded`` and ``Progress.first_ms``. 3: with ``Report.fencing``, ``Report.sent_ms``,
``Report.dropped``, ``Report.missing_folder``, ``Checkpoint.earlier_boot``, ``Directive.fencing`` and ``Ping.heard_ms``.
4: with ``Report.warm_start``, ``Report.killed_ms``, ``Progress.every``, ``Progress.uncounted`` and ``Run.source``.
5: with ``Report.stacks`` and ``Directive.stacks``. 6: with ``Progress.own_ms`` and ``Progress.own_rank``.
7: with ``Report.log_matches``, ``Run.log_patterns`` and ``Progress.behind``.
8: with ``Report.ran``.
"""
REVISION_HEADER = "Gang-Wire-Revision"
"""The sender's revision, in the request for the upgrade and in its answer. A peer that sends none has revision 1."""

_NUMBER = re.compile("[0-9]{1,6}")
_WITH_LOADED, _WITH_FENCING, _WITH_SOURCE, _WITH_STACKS, _WITH_OWN, _WITH_LOG, _WITH_RAN = 2, 3, 4, 5, 6, 7, 8


def revision_of(header: str) -> int:
    """The peer's revision, from its header; empty if it sent none."""
    return int(header) if _NUMBER.fullmatch(header) else 1


def in_revision(report: Report, revision: int) -> Report:
    """The same report without what a controller of that revision would refuse."""
    known = report
    if revision < _WITH_LOADED:
        progress = report.progress
        plain = None if progress is None else replace(progress, first_ms=None)
        known = replace(known, loaded=None, progress=plain)
    if revision < _WITH_FENCING:
        believed = tuple(one for one in known.checkpoints if not one.earlier_boot)
        known = replace(known, fencing=0, sent_ms=0, dropped=(), checkpoints=believed, missing_folder=False)
    if revision < _WITH_SOURCE:
        told = known.progress
        told = None if told is None or told.uncounted else replace(told, every=None)
        known = replace(known, warm_start=None, killed_ms=None, progress=told)
    if revision < _WITH_STACKS:
        known = replace(known, stacks=None)
    if revision < _WITH_OWN and known.progress is not None:
        known = replace(known, progress=replace(known.progress, own_ms=None, own_rank=None))
    if revision < _WITH_LOG:
        told = known.progress
        known = replace(known, log_matches=(), progress=None if told is None else replace(told, behind=None))
    if revision < _WITH_RAN:
        known = replace(known, ran=0)
    return report if known == report else known


def for_sidecar(message: Union[Directive, Ping, Scan], revision: int) -> Union[Directive, Ping, Scan]:
    """The same message without what a sidecar of that revision would refuse."""
    known = message
    if revision < _WITH_FENCING:
        if isinstance(known, Ping):
            known = replace(known, heard_ms=None)
        elif isinstance(known, Directive):
            known = replace(known, fencing=0)
    if revision < _WITH_SOURCE and isinstance(known, Directive) and known.run is not None:
        known = replace(known, run=replace(known.run, source=None))
    if revision < _WITH_STACKS and isinstance(known, Directive):
        known = replace(known, stacks=False)
    if revision < _WITH_LOG and isinstance(known, Directive) and known.run is not None:
        known = replace(known, run=replace(known.run, log_patterns=()))
    return message if known == message else known
