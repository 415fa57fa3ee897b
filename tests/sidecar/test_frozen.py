"""What ``frozen`` makes of a class is a dataclass whose values compare by their fields."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace

from gangsidecar import wire
from gangsidecar.wire.messages import copied


def test_equal_fields_make_equal_values_of_one_type_only() -> None:
    tier = wire.Tier("a", "/b", "step-{step}")
    assert tier == wire.Tier(name="a", directory="/b", pattern="step-{step}", complete="")
    assert tier != replace(tier, complete="DONE")
    assert wire.Ping() == wire.Ping()
    assert wire.Process(0, ()) != wire.Restore(0, ())  # type: ignore[arg-type]


def test_equal_values_have_one_hash_however_they_were_made() -> None:
    restore = wire.Restore(7, "shared")
    others = {replace(restore, path=""), copied(restore, step=7), wire.Restore(tier="shared", step=7)}
    assert others == {restore}


def test_a_value_shows_its_fields() -> None:
    assert repr(wire.Restore(7, "shared")) == "Restore(step=7, tier='shared', path='')"
    assert is_dataclass(wire.Restore)
    assert [one.name for one in fields(wire.Restore)] == ["step", "tier", "path"]
