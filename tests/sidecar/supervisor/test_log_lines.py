"""The lines that a supervisor writes into the log of its worker, as the controller knows them."""

from __future__ import annotations

from gangctl.core.facts.printed import last_lines
from tests.sidecar.supervisor.supervised import Member, shell, wait_for


def test_what_a_worker_printed_last_is_found_between_the_lines_of_its_supervisor(member: Member) -> None:
    member.train(*shell("echo >> $DIR/tries; echo no dataset in attempt $(wc -l < $DIR/tries) >&2; exit 1"))
    member.ended()
    log = (member.folder / "log").read_bytes()
    assert last_lines(log, 1, overtaken=False).line == "no dataset in attempt 1"
    assert last_lines(log, 1, overtaken=False).is_complete
    member.run(member.hold(2))
    wait_for(lambda: member.log.count("a process of the worker ended") == 2)
    log = (member.folder / "log").read_bytes()
    assert last_lines(log, 1, overtaken=True).lines == ("no dataset in attempt 1",)
    assert last_lines(log, 2, overtaken=True).lines == ("no dataset in attempt 2",)
    assert b"no dataset in attempt 2\n" in log
