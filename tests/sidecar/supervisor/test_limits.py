"""What the supervisor gives up after a while, with its real limits: without them, each of these tests never ends."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from gangsidecar.supervisor.machine.stop import STACKS_MS
from gangsidecar.supervisor.progress_watch import AT_MOST_MS
from tests.sidecar.supervisor.supervised import Member, is_alive, wait_for
from tests.sidecar.supervisor.test_log_patterns import CATASTROPHIC, FILLS, NCCL, XID, ends
from tests.sidecar.supervisor.test_stacks import CLIENT, HUNG, script, told

EXITS = "open(os.environ['DIR'] + '/end', 'w').write(repr(__import__('time').monotonic())); sys.exit(1)"


def test_a_helper_that_hangs_costs_its_time_and_the_rest_of_the_text(member: Member, py_spy: Path) -> None:
    py_spy.write_text('#!/bin/sh\necho $PPID > "$DIR/helper"\nkill -STOP $PPID\nexec sleep 1000\n')
    py_spy.chmod(0o755)
    member.start(*script(member, HUNG + "all_reduce()\n"))
    member.run(member.hold(1), {"PYTHONPATH": str(CLIENT)})
    (pid,) = member.workers()
    report = member.hold(2, stacks=True)
    assert report.stop_ms is not None
    assert report.stop_ms >= STACKS_MS
    assert told(report).startswith(f"process {pid} ("), "what it had said is kept"
    assert "thread" not in told(report)
    wait_for(lambda: not is_alive(int(member.file("helper").read_text())))


def test_a_pattern_that_never_ends_delays_a_report_for_half_a_second(member: Member, output: Path) -> None:
    told = ends(member, f"os.write(1, b'a' * 60 + b'!\\n'); {EXITS}", CATASTROPHIC, XID)
    assert milliseconds_since_the_end(member) > AT_MOST_MS
    assert not told.log_matches
    assert output.exists()


def test_a_slow_reader_of_the_log_delays_a_report_for_half_a_second(member: Member) -> None:
    log, member.stdout = os.pipe()
    member.start(sys.executable, "-c", FILLS.replace("sys.exit(1)", EXITS))
    member.run(member.hold(1), log_patterns=(NCCL,))
    assert member.ended().ends
    assert milliseconds_since_the_end(member) > AT_MOST_MS
    os.close(log)
    os.close(member.stdout)


def milliseconds_since_the_end(member: Member) -> float:
    """By the worker's clock, which is this one: the end itself is seen after the wait for the output has begun."""
    return 1000 * (time.monotonic() - float(member.file("end").read_text()))
