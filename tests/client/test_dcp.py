"""Checkpoints of torch.distributed.checkpoint; a small one with its planner's names stands in for it, on one rank."""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Callable
from concurrent.futures import Future
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from gangclient import Restore, connect, pytorch

State = dict[str, Any]
Path = tuple[str, ...]


class Stateful:
    """An optimizer, or a model, with values by name."""

    def __init__(self, **values: Any) -> None:
        self.values = values

    def state_dict(self) -> State:
        return dict(self.values)

    def load_state_dict(self, state: State) -> None:
        self.values = state


class Tensor:
    """On a CPU: a step changes it in place."""

    is_cpu = True

    def __init__(self, value: float) -> None:
        self.value = value

    def clone(self) -> Tensor:
        return Tensor(self.value)


class Planner:
    """Asks for what the state has, and for nothing else."""

    metadata: SimpleNamespace
    original_state_dict: State

    def create_global_plan(self, plans: list[Any]) -> list[Any]:
        return plans


def leaves(state: State, path: Path = ()) -> dict[Path, Any]:
    found: dict[Path, Any] = {}
    for name, value in state.items():
        found |= leaves(value, (*path, name)) if isinstance(value, dict) else {(*path, name): value}
    return found


def expanded(state: State) -> State:
    return {name: one.state_dict() if isinstance(one, Stateful) else one for name, one in state.items()}


@pytest.fixture(autouse=True)
def saved(monkeypatch: pytest.MonkeyPatch) -> dict[Path, Any]:
    """PyTorch, as far as checkpoints need it; a save writes here."""
    files: dict[Path, Any] = {}

    def async_save(state: State, **_: Any) -> Future[None]:
        files.update(leaves(expanded(state)))
        done = Future[None]()
        done.set_result(None)
        return done

    def load(state: State, *, checkpoint_id: str, planner: Planner) -> None:
        assert checkpoint_id == "step-2"
        own = expanded(state)
        planner.original_state_dict = own
        planner.metadata = SimpleNamespace(planner_data={".".join(path): path for path in files})
        items = [SimpleNamespace(storage_index=SimpleNamespace(fqn=".".join(path))) for path in leaves(own)]
        planner.create_global_plan([SimpleNamespace(items=items)])
        for path in leaves(own):
            value = own
            for name in path[:-1]:
                value = value[name]
            value[path[-1]] = files[path]
        for name, one in state.items():
            if isinstance(one, Stateful):
                one.load_state_dict(own[name])

    def tree_map(function: Callable[[Any], Any], tree: Any) -> Any:
        if isinstance(tree, dict):
            return {name: tree_map(function, value) for name, value in tree.items()}
        return function(tree)

    modules: dict[str, dict[str, Any]] = {
        "torch": {"__version__": "2.6"},
        "torch.distributed.checkpoint": {"DefaultLoadPlanner": Planner, "load": load, "async_save": async_save},
        "torch.distributed.checkpoint.stateful": {"Stateful": Stateful},
        "torch.utils._pytree": {"tree_map": tree_map},
    }
    for name, contents in modules.items():
        made = ModuleType(name)
        vars(made).update(contents)
        monkeypatch.setitem(sys.modules, name, made)
    return files


def test_moments_that_a_new_optimizer_has_no_place_for_are_not_dropped(saved: dict[Path, Any]) -> None:
    saved.update({("model", "w"): 2, ("optimizer", "state", "w", "moment"): 0.5, ("optimizer", "lr"): 1})
    state = {"model": Stateful(w=0), "optimizer": Stateful(state={}, lr=0)}
    with pytest.raises(ValueError, match=r"has optimizer\.state\.w\.moment, and optimizer\.state is empty .*get_state"):
        pytorch.load(state, Restore(2, "step-2", "shared"))


@pytest.mark.parametrize("moments", [{}, {"state": {"w": {"moment": 0}}, "lr": 0}], ids=["the model alone", "moments"])
def test_what_has_a_place_is_loaded(moments: State, saved: dict[Path, Any]) -> None:
    saved.update({("model", "w"): 2, ("optimizer", "state", "w", "moment"): 0.5, ("optimizer", "lr"): 1})
    model, optimizer = Stateful(w=0), Stateful(**moments)
    state = {"model": model, "optimizer": optimizer} if moments else {"model": model}
    pytorch.load(state, Restore(2, "step-2", "shared"))
    assert model.values == {"w": 2}
    assert optimizer.values == ({"state": {"w": {"moment": 0.5}}, "lr": 1} if moments else {})


@pytest.mark.parametrize("kind", [Stateful, dict])
def test_a_save_in_the_background_writes_the_step_that_it_was_called_at(
    kind: Callable[..., Any], saved: dict[Path, Any], tmp_path: pathlib.Path
) -> None:
    weight = Tensor(1)
    model = kind(w=weight)
    pytorch.async_save(connect(), {"model": model}, 2, tmp_path, None).result()
    weight.value = 2
    assert {path: one.value for path, one in saved.items()} == {("model", "w"): 1}
    restored = Stateful(w=Tensor(0))
    pytorch.load({"model": restored}, Restore(2, "step-2", "shared"))
    assert restored.values["w"].value == 1
