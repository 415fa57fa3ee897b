"""The table of node signals: every row is found, the polarity of each counts, and users may change it."""

from __future__ import annotations

from pathlib import Path

import pytest

from gangctl.core.facts.world import NodeAnswer, Shortage
from gangctl.kubernetes.signals import (
    MAX_WORDS,
    NodeCondition,
    ShownSignal,
    SignalRow,
    SignalTable,
    default_rows,
    rows_with,
)
from tests.pages.node_signals import signals_page

ROOT = Path(__file__).parents[4]


def shown(
    row: SignalRow, table: SignalTable, *, status: str | None = None, effect: str = "NoSchedule"
) -> tuple[ShownSignal, ...]:
    """What a node shows that has the signal of this row."""
    if row.condition is not None:
        words = f"first, {row.condition.message}, last"
        return table.shown(
            [NodeCondition(row.condition.type, status or row.condition.status, "Why", words, 7.0)], (), {}
        )
    if row.taint is not None:
        return table.shown((), [(row.taint.key, effect)], {})
    if row.allocatable is not None:
        return table.shown((), (), {}, [("nvidia.com/gpu", 8, 7)])
    assert row.label is not None
    return table.shown((), (), {row.label.key: [*row.label.values, "anything"][0]})


@pytest.mark.parametrize("row", default_rows(), ids=lambda row: row.name)
def test_each_row_is_found_and_says_who_sets_it_what_it_means_and_where_that_is_written(row: SignalRow) -> None:
    found = shown(row, SignalTable(default_rows()))
    assert [(one.name, one.answer) for one in found] == ([] if row.answer == "Off" else [(row.name, row.answer)])
    assert all((row.set_by, row.means, row.source))


def test_no_two_rows_have_one_name_or_one_signal() -> None:
    rows = default_rows()
    assert len({row.name for row in rows}) == len(rows)
    assert len({str((row.condition, row.taint, row.label, row.allocatable)) for row in rows}) == len(rows)


def test_a_condition_counts_with_its_bad_status_alone() -> None:
    table = SignalTable(default_rows())
    (ready,) = [row for row in default_rows() if row.name == "eks-accelerator"]
    (xid,) = [row for row in default_rows() if row.name == "aks-xid"]
    assert shown(ready, table)[0].what == "condition AcceleratedHardwareReady=False (Why)"
    for status in ("True", "Unknown"):
        assert not shown(ready, table, status=status)
    for status in ("False", "Unknown"):
        assert not shown(xid, table, status=status)
    not_ready = NodeCondition("Ready", "False", "KubeletNotReady", "container runtime is down", 7.0)
    assert not table.shown([not_ready], [("node.kubernetes.io/not-ready", "")], {})


def test_a_node_that_shuts_down_is_known_by_the_words_of_its_kubelet() -> None:
    words = "[container runtime is down, node is shutting down]"
    (found,) = SignalTable(default_rows()).shown(
        [NodeCondition("Ready", "False", "KubeletNotReady", words, 7.0)], (), {}
    )
    assert found == ShownSignal(
        "kubelet-shutdown", NodeAnswer.DRAIN, "condition Ready=False (node is shutting down)", 7.0
    )
    assert not SignalTable(default_rows()).shown([NodeCondition("Ready", "True", "KubeletReady", words, 7.0)], (), {})


def test_conditions_with_other_words_may_have_other_answers() -> None:
    rows = [
        {"name": "a", "condition": {"type": "Lamp", "message": "rack 7"}, "answer": "Leave"},
        {"name": "b", "condition": {"type": "Lamp"}, "answer": "Note"},
    ]
    table = SignalTable(rows_with(rows))
    assert [one.name for one in table.shown([NodeCondition("Lamp", "True", "", "in rack 7")], (), {})] == ["a", "b"]
    assert [one.name for one in table.shown([NodeCondition("Lamp", "True", "", "in rack 8")], (), {})] == ["b"]


def test_devices_count_where_fewer_are_allocatable_than_the_node_has() -> None:
    table = SignalTable(default_rows())
    (found,) = table.shown((), (), {}, [("nvidia.com/gpu", 8, 7), ("rdma/hca", 4, 4)])
    assert found.what == "allocatable nvidia.com/gpu=7 of 8"
    assert (found.answer, found.shortage) == (NodeAnswer.LEAVE_AT_RESTART, Shortage("nvidia.com/gpu", 7))
    nic = {"name": "nic", "allocatable": {"resources": ["rdma/hca"]}, "answer": "Leave"}
    found, other = SignalTable(rows_with([nic])).shown((), (), {}, [("rdma/hca", 4, 3)])
    assert [(one.name, one.answer) for one in (found, other)] == [
        ("nic", "Leave"),
        ("device-missing", "LeaveAtRestart"),
    ]


def test_the_strongest_answer_comes_first_and_the_time_is_that_of_the_condition() -> None:
    table = SignalTable(default_rows())
    conditions = [NodeCondition("GPUClockThrottling", "True", time=5.0), NodeCondition("XIDErrors", "True")]
    found = table.shown(conditions, [("karpenter.sh/disrupted", "NoSchedule")], {})
    assert [one.answer for one in found] == [NodeAnswer.LEAVE, NodeAnswer.DRAIN, NodeAnswer.NOTE]
    assert [one.time for one in found] == [None, None, 5.0]


def test_a_label_may_count_with_any_other_value() -> None:
    table, key = SignalTable(default_rows()), "sagemaker.amazonaws.com/node-health-status"
    assert not table.shown((), (), {key: "Schedulable"})
    assert [one.answer for one in table.shown((), (), {key: "UnschedulablePendingReplacement"})] == [NodeAnswer.LEAVE]


def test_a_user_adds_rows_and_replaces_them_by_name() -> None:
    lamp = {"name": "lamp", "taint": {"key": "lamp", "effect": "NoExecute"}, "answer": "Drain"}
    off = {"name": "aks-xid", "condition": {"type": "XIDErrors"}, "answer": "Off"}
    table = SignalTable(rows_with([lamp, off]))
    assert not table.shown([NodeCondition("XIDErrors", "True", time=7.0)], [("lamp", "NoSchedule")], {})
    assert [one.name for one in table.shown((), [("lamp", "NoExecute")], {})] == ["lamp"]


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ({"name": "x", "answer": "Leave"}, "needs one of condition, taint, label and allocatable"),
        (
            {"name": "x", "answer": "Leave", "taint": {"key": "a"}, "label": {"key": "a", "values": ["b"]}},
            "needs one of",
        ),
        ({"name": "x", "answer": "Run", "taint": {"key": "a"}}, "answer"),
        ({"name": "x", "answer": "Leave", "label": {"key": "a"}}, "a label needs values or notValues"),
        ({"name": "x", "answer": "Leave", "condition": {"type": "A", "status": "Bad"}}, "status"),
        ({"name": "x", "answer": "Leave", "condition": {"tpye": "A"}}, "tpye"),
        ({"answer": "Leave", "taint": {"key": "a"}}, "name"),
    ],
)
def test_a_row_that_can_not_be_read_is_refused(row: dict[str, object], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        rows_with([row])


def test_what_a_node_says_is_bounded_and_can_not_move_the_cursor() -> None:
    (found,) = SignalTable(default_rows()).shown([NodeCondition("XIDErrors", "True", "\x1b[2J" * 999)], (), {})
    assert len(found.what) == MAX_WORDS
    assert found.what.isprintable()


def test_the_page_in_docs_is_up_to_date() -> None:
    assert (ROOT / "docs/reference/node-signals.md").read_text(encoding="utf-8") == signals_page(), "make generate"
