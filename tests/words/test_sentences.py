"""Every sentence of the decisions once, in ``sentences.txt``: a reworded sentence is a diff of its own lines.

`make scenarios` writes the file anew.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from importlib import import_module
from inspect import Parameter, formatannotation, signature
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gangctl.words
from gangctl.api.model import Said
from gangctl.words.message import Message, message, said_again
from gangctl.words.waits import WaitState
from tests.effort import examples

FILE: Final = Path(__file__).parent / "sentences.txt"
NUMBERS: Final = {"code": 127, "signal": 9, "attempt": 3, "step": 40}


def sentences() -> Iterator[tuple[str, Any]]:
    for module in pkgutil.iter_modules(gangctl.words.__path__, "gangctl.words."):
        functions = vars(import_module(module.name))
        for name, function in sorted(functions.items()):
            if signature_of(function) and function.__module__ == module.name:
                yield f"{module.name.rpartition('.')[2]}.{name}", function


def signature_of(function: Any) -> bool:
    return hasattr(function, "__wrapped__") and isinstance(example(function, whole=False), Message)


def example(function: Any, *, whole: bool) -> Any:
    """Call a sentence with what its parameters are named; ``whole``: with those that have a default, too."""
    given = {name: each for name, each in signature(function).parameters.items() if whole or needed(each)}
    kinds = {name: formatannotation(each.annotation).rpartition("collections.abc.")[2] for name, each in given.items()}
    return function(**{name: value(name, kind) for name, kind in kinds.items()})


def needed(parameter: Parameter) -> bool:
    return parameter.default is Parameter.empty


def value(name: str, annotation: str) -> Any:
    if name == "state":
        return WaitState.NO_POD
    if annotation.startswith("Sequence[int]"):
        return [50, 40]
    if annotation.startswith("Sequence"):
        return [f"<{name[:-1]}>", "<another>"]
    for kind, made in (("str", f"<{name}>"), ("bool", True), ("int", NUMBERS.get(name, 2)), ("float", 1.5)):
        if annotation.startswith(kind):
            return made
    raise AssertionError(f"{name}: {annotation}")


def test_each_sentence_is_as_its_file_says(request: pytest.FixtureRequest) -> None:
    lines: list[str] = []
    for name, function in sentences():
        least, whole = str(example(function, whole=False)), str(example(function, whole=True))
        lines += [name, f"    {least}", *([f"    {whole}"] if whole != least else []), ""]
    text = "\n".join(lines)
    if request.config.getoption("--regenerate"):
        FILE.write_text(text)
    assert text == FILE.read_text()


def test_a_sentence_is_made_again_from_what_a_status_has_of_it() -> None:
    for name, function in sentences():
        made = example(function, whole=True)
        assert said_again(made.said()) == made, name
        assert made.is_same(made.said()), name


def test_another_time_is_the_same_value_and_another_fact_is_not() -> None:
    @message
    def woken(member: str, since: float) -> str:
        return f"{member} has been awake since {since}"

    said = woken("worker-0", 1.0).said()
    assert woken("worker-0", 2.0).is_same(said)
    assert not woken("worker-1", 1.0).is_same(said)
    assert not woken("worker-0", 1.0).is_same(None)


def test_of_many_members_a_status_keeps_the_first_and_their_number() -> None:
    @message
    def gone(members: list[str]) -> str:
        return f"{members[0]} and {len(members) - 1} more are gone"

    made = gone([f"worker-{number}" for number in range(10_000)])
    assert len(made.said().model_dump_json()) < 300
    assert said_again(made.said()) == "worker-0 and 9999 more are gone"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False) | st.text(max_size=9),
    lambda some: st.lists(some, max_size=3) | st.dictionaries(st.sampled_from(["name", "first", "more", "x"]), some),
    max_leaves=6,
)
SENTENCES = st.sampled_from([function for _, function in sentences()])


@given(data=st.data())
@examples(3000)
def test_what_a_status_claims_to_have_said_raises_nothing(data: st.DataObject) -> None:
    function = data.draw(SENTENCES)
    parameters = {name: data.draw(JSON) for name in signature(function).parameters}
    made = said_again(Said(name=function.__name__, parameters=parameters))
    assert made is None or isinstance(made, Message)


def test_a_list_in_a_status_that_claims_too_many_members_makes_no_long_list() -> None:
    claimed = {"members": {"first": ["worker-0"], "more": 10**15}}
    assert "9996 more" in str(said_again(Said(name="get_new_pods", parameters=claimed)))
