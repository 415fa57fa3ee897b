from __future__ import annotations

from gangctl.controller.actions import FIRST_SECONDS, LONGEST_SECONDS, REMEMBERED_SECONDS, Backoff


def always(_action: object) -> bool:
    return True


def test_a_failed_action_waits_longer_each_time_and_no_other_action_waits() -> None:
    backoff = Backoff()
    now, waits = 100.0, []
    for _ in range(12):
        assert backoff.is_due("create worker-0", now)
        backoff.note_failure("create worker-0", now)
        assert not backoff.is_due("create worker-0", now)
        assert backoff.is_due("create worker-1", now)
        wait = backoff.next_in(now, always)
        assert wait is not None
        waits.append(wait)
        now += wait
    assert waits[:4] == [FIRST_SECONDS, FIRST_SECONDS * 2, FIRST_SECONDS * 4, FIRST_SECONDS * 8]
    assert waits[-1] == LONGEST_SECONDS


def test_an_action_that_succeeded_or_is_not_wanted_any_more_does_not_wait() -> None:
    backoff = Backoff()
    for action in ("a", "b"):
        backoff.note_failure(action, 0.0)
    backoff.forget_action("a")
    assert backoff.is_due("a", 0.0)
    backoff.keep({"a"}, 0.0)
    assert backoff.next_in(0.0, always) is None
    assert backoff.is_due("b", 0.0)


def test_an_action_waits_as_long_as_the_api_server_asks() -> None:
    backoff = Backoff()
    backoff.note_failure("a", 0.0, 20.0)
    assert backoff.next_in(0.0, always) == 20.0


def test_what_is_done_and_wanted_again_waits_longer_each_time() -> None:
    backoff, now = Backoff(), 0.0
    for times in (1, 2, 3):
        assert backoff.is_due("create", now)
        assert backoff.note_success("create", now) == times
        backoff.keep(set(), now)  # The pod is shown, so nothing is wanted; then something deletes it.
        assert not backoff.is_due("create", now)
        now += FIRST_SECONDS * 2 ** (times - 1)
    backoff.keep(set(), now + REMEMBERED_SECONDS)
    assert backoff.note_success("create", now + REMEMBERED_SECONDS) == 1


def test_only_what_waits_is_asked_about() -> None:
    backoff = Backoff()
    backoff.note_failure("a", 0.0)
    assert backoff.next_in(9.0, lambda action: action != "a") is None
