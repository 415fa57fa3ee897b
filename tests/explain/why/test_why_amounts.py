"""Amounts and members in words."""

from __future__ import annotations

from decimal import Decimal

import pytest

from gangctl.explain.why.findings import amount, many


@pytest.mark.parametrize(
    ("resource", "value", "said"),
    [
        ("nvidia.com/gpu", "4", "4"),
        ("cpu", "0.5", "500m"),
        ("cpu", "1.5", "1.5"),
        ("cpu", "999.02", "999.02"),
        ("cpu", "64", "64"),
        ("memory", "268435456", "256Mi"),
        ("memory", "13421772800", "12.5Gi"),
        ("hugepages-2Mi", "2097152", "2Mi"),
        ("memory", "0", "0"),
    ],
)
def test_an_amount_is_written_as_people_do(resource: str, value: str, said: str) -> None:
    assert amount(resource, Decimal(value)) == said


def test_many_members_are_counted_and_two_are_named() -> None:
    assert many(["worker-0"]) == "worker-0"
    assert many(["worker-0", "worker-1"]) == "worker-0 and worker-1"
    assert many([f"worker-{at}" for at in range(8)]) == "worker-0, worker-1 and 6 more"
