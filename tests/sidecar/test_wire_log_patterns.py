"""Patterns that are searched for in the output, and their matches, on the wire."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gangsidecar import wire
from gangsidecar.wire import Directive, LogMatch, Phase, Report, Run, Verb

REPORT = Report("g", "w-0", 0, "p", "s", 9, 3, Phase.RUNNING)
FOUND = replace(REPORT, log_matches=(LogMatch(3, "Xid", "NVRM: Xid"),))
RUN = Run("s", (), log_patterns=("Xid",))
ORDER = Directive("g", "p", 1, Verb.RUN, run=RUN)


def test_they_are_decoded_as_they_were_encoded() -> None:
    assert (wire.decode(wire.encode(FOUND)), wire.decode(wire.encode(ORDER))) == (FOUND, ORDER)


def test_a_report_with_more_matches_than_patterns_is_refused() -> None:
    many = replace(REPORT, log_matches=tuple(LogMatch(3, str(at), "") for at in range(wire.MAX_LOG_PATTERNS + 1)))
    with pytest.raises(wire.WireError, match="9 items are over the limit of 8"):
        wire.decode(wire.encode(many))
