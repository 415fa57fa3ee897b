"""Last words: whatever a supervisor tells of ends fits, comes back, and nothing else is taken for it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangsidecar.wire import MAX_MS, End, from_ranges, from_words, to_ranges, to_words

LINE = 1_000
NUMBERS = st.integers(0, 10_000)
ENDS = st.builds(
    End,
    attempt=st.integers(1, 3),
    local_rank=st.integers(0, 63),
    age_ms=st.integers(0, MAX_MS),
    rank=st.none() | NUMBERS,
    exit_code=st.none() | st.integers(0, 255),
    signal=st.none() | st.integers(1, 64),
    stopped=st.booleans(),
    oom=st.booleans(),
    hidden=st.booleans(),
    message=st.text(max_size=300),
).filter(lambda end: (end.exit_code is None) != (end.signal is None))


@given(st.lists(ENDS, max_size=64, unique_by=lambda end: (end.attempt, end.local_rank)))
def test_the_ends_of_the_newest_attempt_come_back_as_far_as_they_fit(ends: list[End]) -> None:
    words = to_words(ends)
    told = from_words(f"Traceback: gangctl: no\n{words}\nsome more")
    newest = [end for end in ends if end.attempt == max(one.attempt for one in ends)]
    done = {end.local_rank for end in newest if end.exit_code == 0 and not end.stopped}
    assert words.isascii()
    assert "\n" not in words
    assert len(words) <= LINE
    assert {end.local_rank for end in told if end.exit_code == 0 and not end.stopped} == done
    others = [replace(end, message=end.message[:100]) for end in newest if end.local_rank not in done]
    assert all(end in others for end in told if end.local_rank not in done)
    if len(others) <= 4:
        assert len(told) == len(newest)
    natural = [end for end in others if not end.stopped]
    if natural and all(end.isascii() for end in (one.message for one in natural)):
        assert max(natural, key=lambda end: end.age_ms).age_ms in {end.age_ms for end in told}


@given(st.text())
def test_any_text_is_read(text: str) -> None:
    assert from_words(text) == ()
    assert isinstance(from_words(f"gangctl: {text}"), tuple)


@pytest.mark.parametrize(
    "body",
    [
        "{",
        "[]",
        "{}",
        '{"attempt":"1","finished":"0"}',
        '{"attempt":true,"finished":"0"}',
        '{"attempt":1,"finished":[0]}',
        '{"attempt":1,"finished":"-1,x,3-1,99999999999999999999"}',
        '{"attempt":1,"ends":[1,{},{"local_rank":0},{"local_rank":0,"age_ms":-1,"exit_code":0}]}',
        '{"attempt":1,"ends":[{"local_rank":0,"age_ms":1}]}',
        '{"attempt":1,"ends":{"local_rank":0}}',
        '{"attempt":1,"ends":[{"local_rank":0,"age_ms":1,"exit_code":99999999999999999999}]}',
        '{"attempt":1,"ends":[{"local_rank":0,"age_ms":1,"exit_code":-1},{"local_rank":0,"age_ms":1,"exit_code":256}]}',
        '{"attempt":1,"ends":[{"local_rank":0,"age_ms":1,"signal":0},{"local_rank":0,"age_ms":1,"signal":65}]}',
        '{"attempt":1,"ends":[{"local_rank":0,"age_ms":1,"exit_code":1,"signal":9}]}',
        '{"attempt":99999999999999999999,"finished":"0"}',
        "[" * 100_000,
    ],
)
def test_what_is_malformed_tells_of_no_end(body: str) -> None:
    assert from_words(f"gangctl: {body}") == ()


def test_a_rank_that_no_process_has_is_skipped() -> None:
    """Whatever it is, the status that names it must be stored."""
    body = '{"attempt":1,"ends":[{"local_rank":0,"age_ms":1,"exit_code":1,"rank":99999999999999999999}]}'
    assert from_words(f"gangctl: {body}") == (End(1, 0, 1, exit_code=1),)


def test_what_a_newer_release_adds_is_skipped() -> None:
    body = '{"attempt":2,"new":{},"finished":"0-1","ends":[{"local_rank":2,"age_ms":5,"signal":9,"new":[]}]}'
    done = (End(2, 0, 0, exit_code=0), End(2, 1, 0, exit_code=0))
    assert from_words(f"gangctl: {body}") == (*done, End(2, 2, 5, signal=9))


@given(st.frozensets(NUMBERS))
def test_ranges_tell_every_set(numbers: frozenset[int]) -> None:
    assert from_ranges(to_ranges(numbers), 10_001) == numbers


def test_ranges_are_short_and_bounded() -> None:
    assert to_ranges([*range(512), 513]) == "0-511,513"
    assert from_ranges("0-999999999", 5) == {0, 1, 2, 3, 4}
