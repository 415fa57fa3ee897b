"""No decision depends on English: stored messages decide nothing, and the core has none of its own."""

from __future__ import annotations

import ast
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gangctl.api.model import Said, changed
from gangctl.api.status import Status
from gangctl.core.lifecycle.plan import Plan
from gangctl.words.message import value_of
from tests.core.scenario import parse, play
from tests.core.test_scenarios import FILES
from tests.core.world import World
from tests.effort import NIGHTLY

CORE = Path(__file__).parents[2] / "gangctl" / "core"
DATA = frozenset({"printed.py", "page.py", "table.py"})
"""What PyTorch prints, and the page of the lifecycle, which isn't a message."""
FOREIGN = frozenset({": stopped by a signal"})
"""What supervisors write into stacks."""


def with_texts(status: Status, text: Callable[[], str]) -> Status:
    """The status with other words in each of its messages."""
    return changed(
        status,
        message=text(),
        conditions=tuple(changed(each, message=text()) for each in status.conditions),
        incidents=tuple(
            changed(each, cause=changed(each.cause, message=text(), why=text())) for each in status.incidents
        ),
    )


def without_texts(status: Status) -> Status:
    """The status without its English, also in what it keeps of its messages."""
    said, warning, refusal = (
        None if each is None else Said(name=each.name, parameters=value_of(each.parameters))
        for each in (status.said, status.warning, status.refusal)
    )
    return changed(with_texts(status, str), said=said, warning=warning, refusal=refusal)


def essence(plan: Plan) -> object:
    """Everything about a plan but its English."""
    status = None if plan.status is None else without_texts(plan.status)
    events = [(each.type, each.reason, each.member, each.pod, each.node) for each in plan.events]
    return status, [type(action) for action in plan.actions], events, plan.requeue_after


@pytest.mark.parametrize("path", FILES if NIGHTLY else FILES[::6], ids=lambda path: path.stem)
def test_stored_messages_decide_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(path.stem)

    def text() -> str:
        return "".join(chance.choices("abc; :()", k=chance.randrange(40)))

    decide, plans = World.decide, 0

    def compared(world: World) -> Plan:
        nonlocal plans
        job, plans = world.job, plans + 1
        world.job = changed(job, status=with_texts(job.status, text))
        other = essence(world.plan())
        world.job = job
        plan = decide(world)
        assert other == essence(plan)
        return plan

    monkeypatch.setattr(World, "decide", compared)
    play(parse(path.read_text()))
    assert plans


def english(path: Path) -> Iterator[str]:
    """The strings of a module that are sentences, or parts of some."""
    tree = ast.parse(path.read_text())
    skipped = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert) and node.msg is not None:
            skipped |= {id(each) for each in ast.walk(node.msg)}
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "compile":
            skipped |= {id(each) for each in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
            words = [word for word in node.value.split() if word.isalpha()]
            if len(words) > 1 and node.value not in FOREIGN:
                yield f"{path.name}:{node.lineno}: {node.value!r}"


def test_the_core_has_no_english() -> None:
    found = [text for path in CORE.rglob("*.py") if path.name not in DATA for text in english(path)]
    assert not found, "put sentences into gangctl/words"
