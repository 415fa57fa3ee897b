"""The messages: strict decoding, and what a controller of another release gets."""

from __future__ import annotations

import json
from dataclasses import MISSING, fields, is_dataclass, replace
from enum import Enum
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gangsidecar import wire
from gangsidecar.wire import (
    Checkpoint,
    Directive,
    Dropped,
    End,
    Milestone,
    Phase,
    Process,
    Progress,
    Reached,
    Report,
    Request,
    Run,
    Verb,
    WireError,
    coding,
)

MESSAGES = [
    wire.Report,
    wire.Directive,
    wire.Scan,
    wire.Scanned,
    wire.Ping,
    wire.Checkpoint,
    wire.Dropped,
    wire.Reached,
    wire.Progress,
    wire.Request,
    wire.Corruption,
    wire.Verified,
    wire.Watching,
]
PING = '{"v":1,"type":"Ping"}'


def values(hint: Any, name: str = "") -> st.SearchStrategy[Any]:
    """Any value of that type, read from the types themselves so that a new field is tested at once."""
    if isinstance(hint, UnionType):
        return st.none() | values(get_args(hint)[0], name)
    if get_origin(hint) is tuple:
        args = get_args(hint)
        if args[-1] is Ellipsis:
            return st.lists(values(args[0]), max_size=3).map(tuple)
        return st.tuples(*map(values, args))
    if isinstance(hint, type) and is_dataclass(hint):
        hints = get_type_hints(hint)
        return st.builds(hint, **{field.name: values(hints[field.name], field.name) for field in fields(hint)})
    if issubclass(hint, Enum):
        return st.sampled_from(list(hint))
    return {
        int: st.integers(0, wire.MAX_MS)
        if name.endswith(("_ms", "milliseconds"))
        else st.integers(-(2**63), 2**63 - 1),
        str: st.text(max_size=20),
        bool: st.booleans(),
    }[hint]


def json_values() -> st.SearchStrategy[Any]:
    leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10)
    return st.recursive(leaves, lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=8), inner))


def refusal(text: bytes | str) -> str:
    """Why it is not taken; nothing if it is. Any other exception is a failure of the test."""
    try:
        wire.decode(text)
    except WireError as error:
        return str(error)
    return ""


def report(**more: Any) -> Report:
    given_fields: dict[str, Any] = {"session": "s", "seq": 1, "attempt": 1, "phase": Phase.RUNNING, **more}
    return Report(gang="g", member="w-0", incarnation=0, pod="p", **given_fields)


@given(st.sampled_from(MESSAGES).flatmap(values))
def test_every_message_survives_coding_and_decoding(message: Any) -> None:
    text = wire.encode(message)
    assert "\n" not in text
    assert wire.decode(text) == message
    assert wire.decode(text.encode()) == message


@given(st.binary() | st.text() | json_values().map(json.dumps))
@example(b"\xff\xfe")
@example("[" * 100_000)
@example('{"v":1,"type":"Ping","v":1}')
@example('{"v":1,"type":["Ping"]}')
@example('{"v":1,"type":"Scan","attempt":1,"tiers":' + "[" * 50_000 + "]" * 50_000 + "}")
@example('{"v":1,"type":"Scan","attempt":' + "9" * 5_000 + ',"tiers":[]}')
def test_decoding_raises_nothing_but_wire_error(text: bytes | str) -> None:
    assert len(refusal(text)) < 500, "a reason in a log never repeats the input"


@given(st.sampled_from(MESSAGES).flatmap(values), st.data())
def test_a_message_with_one_wrong_field_raises_nothing_but_wire_error(message: Any, data: st.DataObject) -> None:
    body = json.loads(wire.encode(message))
    name = data.draw(st.sampled_from(sorted(body)))
    body[name] = data.draw(json_values())
    assert len(refusal(json.dumps(body))) < 500


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not JSON"),
        ("[]", "a list instead of an object"),
        ('{"type":"Ping"}', "version None instead of 1"),
        ('{"v":2,"type":"Ping"}', "different releases"),
        ('{"v":true,"type":"Ping"}', "version True instead of 1"),
        ('{"v":1.0,"type":"Ping"}', "version 1.0 instead of 1"),
        ('{"v":1,"type":"Pong"}', "unknown message type 'Pong'"),
        ('{"v":1}', "unknown message type None"),
        ('{"v":1,"type":"Ping","x":1}', "Ping: unknown field 'x'"),
        ('{"v":1,"type":"Scan"}', "Scan: missing attempt, tiers"),
        ('{"v":1,"type":"Scan","attempt":"1","tiers":[]}', "Scan.attempt: a str instead of int"),
        ('{"v":1,"type":"Scan","attempt":true,"tiers":[]}', "Scan.attempt: a bool instead of int"),
        ('{"v":1,"type":"Scan","attempt":1.0,"tiers":[]}', "Scan.attempt: a float instead of int"),
        ('{"v":1,"type":"Scan","attempt":9223372036854775808,"tiers":[]}', "out of range"),
        (
            '{"v":1,"type":"Reached","attempt":1,"milestone":"Launch","age_ms":-1,"milliseconds":1}',
            "Reached.age_ms: no duration",
        ),
        (
            '{"v":1,"type":"Reached","attempt":1,"milestone":"Launch","age_ms":1,"milliseconds":-1}',
            "Reached.milliseconds: no duration",
        ),
        (
            '{"v":1,"type":"Reached","attempt":1,"milestone":"Launch","age_ms":1,"milliseconds":1000000000001}',
            "no duration",
        ),
        ('{"v":1,"type":"Progress","attempt":1,"step":-1,"age_ms":1,"first_ms":-1}', "Progress.first_ms: no duration"),
        ('{"v":1,"type":"Scan","attempt":1,"tiers":{}}', "Scan.tiers: a dict instead of a list"),
        ('{"v":1,"type":"Scan","attempt":1,"tiers":[1]}', "Scan.tiers[0]: a int instead of an object"),
        ('{"v":1,"type":"Scanned","attempt":1,"pod":null}', "Scanned.pod: a NoneType instead of str"),
        (
            '{"v":1,"type":"Directive","gang":"g","pod":"p","attempt":1,"verb":"Jump"}',
            "Directive.verb: 'Jump' instead of one of Hold, Run, Finish",
        ),
        (
            wire.encode(Directive("g", "p", 1, Verb.RUN, run=Run("s", (Process(0, (("A", "1"),)),)))).replace(
                ',"1"', ""
            ),
            "Directive.run.processes[0].env[0]: 1 items instead of 2",
        ),
    ],
)
def test_an_error_names_the_place_of_the_mistake(text: str, reason: str) -> None:
    with pytest.raises(WireError) as raised:
        wire.decode(text)
    assert reason in str(raised.value)


def test_a_null_is_not_an_absent_field() -> None:
    with pytest.raises(WireError, match=r"Report\.missing_step: a NoneType"):
        wire.decode(wire.encode(report())[:-1] + ',"missing_step":null}')


def test_a_field_with_its_default_is_not_sent() -> None:
    assert json.loads(wire.encode(Directive("g", "p", 1, Verb.HOLD))) == {
        "v": 1,
        "type": "Directive",
        "gang": "g",
        "pod": "p",
        "attempt": 1,
        "verb": "Hold",
    }


@pytest.mark.parametrize("kind", MESSAGES)
def test_every_default_is_immutable(kind: type) -> None:
    for field in fields(kind):
        assert field.default_factory is MISSING
        if field.default is not MISSING:
            hash(field.default)


class TestSizes:
    def test_a_message_over_the_limit_is_neither_sent_nor_taken(self) -> None:
        env = tuple((f"N{at}", "x" * 8_000) for at in range(200))
        large = Directive("g", "p", 1, Verb.RUN, run=Run("s", (Process(0, env),)))
        with pytest.raises(WireError, match="over the limit"):
            wire.encode(large)
        with pytest.raises(WireError, match="over the limit"):
            wire.decode(PING + " " * wire.MAX_BYTES)

    def test_a_string_over_the_limit_is_not_taken(self) -> None:
        wire.decode(wire.encode(Request(1, 0, "x" * wire.MAX_STRING)))
        with pytest.raises(WireError, match=r"Request\.reason: 8193 characters are over the limit"):
            wire.decode(wire.encode(Request(1, 0, "x" * (wire.MAX_STRING + 1))))

    def test_a_list_over_the_limit_is_not_taken(self) -> None:
        hosts = Run("s", (), hosts=("h",) * (wire.MAX_ITEMS + 1))
        with pytest.raises(WireError, match=r"Directive\.run\.hosts: 4097 items are over the limit of 4096"):
            wire.decode(wire.encode(Directive("g", "p", 1, Verb.RUN, run=hosts)))

    @pytest.mark.parametrize(
        ("field", "item", "limit"),
        [
            ("ends", End(1, 0, 0, exit_code=1), wire.MAX_ENDS),
            ("checkpoints", Checkpoint("t", 1, 0, 1), wire.MAX_CHECKPOINTS),
            ("dropped", Dropped("t", 1, 0, 1), wire.MAX_DROPPED),
            ("ports", 29400, 64),
        ],
    )
    def test_a_list_of_a_report_has_as_many_items_as_a_real_member_can_send(
        self, field: str, item: object, limit: int
    ) -> None:
        assert wire.decode(wire.encode(report(**{field: (item,) * limit}))) == report(**{field: (item,) * limit})
        with pytest.raises(WireError, match=rf"Report\.{field}: {limit + 1} items are over the limit of {limit}"):
            wire.decode(wire.encode(report(**{field: (item,) * (limit + 1)})))


class TestAges:
    def test_all_ages_of_a_report_told_later_grow_by_as_much(self) -> None:
        told = report(
            ends=(End(1, 0, 10, exit_code=1), End(1, 1, 20, signal=9)),
            progress=Progress(1, 5, 30, first_step=2, first_age_ms=40),
            request=Request(1, 50, "why"),
            corruption=wire.Corruption(1, 90, 30, "why", 3),
            reached=(Reached(1, Milestone.CHECKPOINT_LOAD, 80, 2500, rank=3),),
            phase_age_ms=60,
            stop_ms=70,
        )
        later = wire.aged(told, 5)
        assert [end.age_ms for end in later.ends] == [15, 25]
        assert later.progress == Progress(1, 5, 35, first_step=2, first_age_ms=45)
        assert later.request == Request(1, 55, "why")
        assert later.corruption == wire.Corruption(1, 95, 30, "why", 3)
        assert later.reached == (Reached(1, Milestone.CHECKPOINT_LOAD, 85, 2500, rank=3),), (
            "an age grows, a duration doesn't"
        )
        assert (later.phase_age_ms, later.stop_ms) == (65, 70)

    def test_a_report_never_gets_younger(self) -> None:
        assert wire.aged(report(phase_age_ms=5), -3) == report(phase_age_ms=5)


class TestRevisions:
    """What a peer of another release gets, shown with fields that a revision 2 would have added."""

    LATER = report(
        reached=(Reached(3, Milestone.CHECKPOINT_LOAD, 5, 2500, rank=1),), progress=Progress(3, 7, 1, first_ms=90)
    )

    @pytest.fixture(autouse=True)
    def second(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(coding, "REVISION", 2)
        monkeypatch.setattr(coding, "ADDED", {Report: {"reached": 2}, Progress: {"first_ms": 2}, End: {"signal": 2}})

    @pytest.mark.parametrize("revision", [2, 3])
    def test_a_peer_that_knows_all_fields_gets_the_message_itself(self, revision: int) -> None:
        assert wire.in_revision(self.LATER, revision) is self.LATER

    def test_an_older_peer_gets_nothing_that_it_would_refuse(self) -> None:
        told = wire.in_revision(replace(self.LATER, ends=(End(1, 5, 10, signal=9),)), 1)
        assert told == report(progress=Progress(3, 7, 1), ends=(End(1, 5, 10),))
        assert "loaded" not in wire.encode(told)

    def test_a_message_without_later_fields_stays_as_it_is(self) -> None:
        directive = wire.Directive("g", "p", 4, wire.Verb.RUN, run=Run("s", (), source=wire.Source(file="/touched")))
        assert wire.in_revision(directive, 1) == directive

    @pytest.mark.parametrize(("header", "revision"), [("", 1), ("2", 2), ("-2", 1), ("two", 1), ("٢", 1), ("9" * 7, 1)])
    def test_a_header_that_is_no_number_means_revision_1(self, header: str, revision: int) -> None:
        assert wire.revision_of(header) == revision


def test_every_field_that_came_after_revision_1_has_a_default() -> None:
    revisions = [revision for added in coding.ADDED.values() for revision in added.values()]
    assert max(revisions, default=1) == wire.REVISION
    for kind, added in coding.ADDED.items():
        later = [field for field in fields(kind) if field.name in added]
        assert len(later) == len(added)
        assert all(field.default is not MISSING for field in later)
