from __future__ import annotations

import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangctl.api.incident import Cause, Incident
from gangctl.api.model import SENTENCE, escaped, sentence
from gangctl.api.names import member_name
from gangctl.api.status import RecordedStep, Status

ANY = st.text(st.characters(), max_size=200)
"""Lone surrogates among it."""
HARMLESS = st.text(st.characters(categories=["L", "M", "N", "P", "S", "Zs"]), max_size=200)
TRACE = " (trace 0123456789abcdef0123456789abcdef)"


def controls(text: str) -> set[str]:
    """What in it controls rather than shows, but for the joiners of Persian and of emoji."""
    return {one for one in text if unicodedata.category(one) in {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}} - set(
        "\u200c\u200d"
    )


@given(ANY)
def test_nothing_that_controls_is_left_and_it_can_be_encoded(text: str) -> None:
    assert not controls(escaped(text))
    assert escaped(text).encode().decode() == escaped(text)
    assert len(escaped(text).splitlines()) <= 1


@given(ANY)
def test_escaping_twice_is_escaping_once(text: str) -> None:
    assert escaped(escaped(text)) == escaped(text)


@given(HARMLESS)
def test_plain_text_of_any_language_stays_as_it_is(text: str) -> None:
    assert escaped(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "worker-1: ended by SIGKILL",
        "漢字とカナ",
        "Grüße, žluťoučký",
        "می‌خواهم",
        "👩‍💻 🏳️‍🌈 🇩🇪 ✅",
        "שלום",
        "a\u00a0b",
        "a\\x1b",
    ],
)
def test_printable_text_is_unchanged(text: str) -> None:
    assert escaped(text) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\x1b[2J", r"\x1b[2J"),
        ("\x9b31m", r"\x9b31m"),
        ("\x00\x7f\t", r"\x00\x7f\x09"),
        ("a\r\nb", r"a\x0d\x0ab"),
        ("a\u0085b\u2028c\u2029d", r"a\x85b\u2028c\u2029d"),
        ("\u202egpj.exe\u2066\u200f", r"\u202egpj.exe\u2066\u200f"),
        ("\ufeff\u200b", r"\ufeff\u200b"),
        ("\udc80", r"\udc80"),
        ("\U000e0041", r"\U000e0041"),
    ],
)
def test_control_characters_are_escaped(text: str, expected: str) -> None:
    assert escaped(text) == expected


@given(ANY, st.sampled_from(["", TRACE]))
def test_a_sentence_is_one_line_of_limited_length_that_keeps_its_end(text: str, end: str) -> None:
    for long in (text, text * 20):
        made = sentence(long, end)
        assert len(made) <= SENTENCE
        assert made.endswith(end)
        assert not controls(made)
        assert sentence(made) == made
    assert sentence(text) == escaped(text)[: len(sentence(text)) - 1] + sentence(text)[-1:]


@given(ANY, ANY, ANY)
def test_a_status_that_was_read_again_is_the_one_that_was_written(first: str, second: str, third: str) -> None:
    """Text of workers, nodes and devices is escaped where it becomes part of a status, and never once more."""
    cause = Cause(reason=first, member=member_name("worker", 0), device=second, node=third, message=first * 9, time=1.0)
    made = Status(message=third, incidents=(Incident(attempt=2, time=1.0, cause=cause),))
    stored = made.model_dump_json(by_alias=True, exclude_none=True)
    assert Status.model_validate_json(stored) == made
    assert not [text for text in _texts(made.model_dump()) if controls(text)]


@given(ANY)
def test_text_for_comparison_is_not_escaped(text: str) -> None:
    """A marker or a path that was escaped would be another one."""
    made = RecordedStep(tier="ram", step=1, path=text, marker=text)
    assert made.path == made.marker == text.encode(errors="replace").decode()


def _texts(value: Any) -> list[str]:
    match value:
        case dict():
            return [text for one in value.values() for text in _texts(one)]
        case list() | tuple():
            return [text for one in value for text in _texts(one)]
        case str():
            return [value]
        case _:
            return []
