"""Adapters of frameworks say what is missing, and know the tiers that each rank registers in.

The frameworks here are modules of the test's own with their names: a fault injection. e2e/frameworks has the real ones.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CLIENT = Path(__file__).parents[2] / "client"
ADAPTERS = {"jax": "jax", "lightning": "lightning", "transformers": "transformers"}
SAVE = "import gangclient; from gangclient import pytorch; pytorch.save(gangclient.connect(), {}, 1, '.')"


def fails(script: str, folder: Path) -> str:
    """The last line of a script that ends with an exception."""
    environment = {"PYTHONPATH": f"{folder}{os.pathsep}{CLIENT}"}
    command = [sys.executable, "-S", "-c", script]  # -S: no installed package is found
    ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 1, ended.stdout + ended.stderr
    return ended.stderr.splitlines()[-1]


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_an_adapter_without_its_framework_says_what_to_install(adapter: str, tmp_path: Path) -> None:
    said = fails(f"import gangclient.{adapter}", tmp_path)
    assert said.startswith(f"ImportError: gangclient.{adapter} needs {ADAPTERS[adapter]}, which is not installed")
    assert f"pip install '{ADAPTERS[adapter]}>=" in said


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_an_adapter_refuses_a_framework_that_is_too_old(adapter: str, tmp_path: Path) -> None:
    (tmp_path / f"{ADAPTERS[adapter]}.py").write_text('__version__ = "0.3.9"\n')
    said = fails(f"import gangclient.{adapter}", tmp_path)
    assert said.startswith(f"ImportError: gangclient.{adapter} needs {ADAPTERS[adapter]}>=")
    assert "and found 0.3.9. Install a newer one" in said


def test_a_framework_that_misses_a_package_of_its_own_is_not_called_missing(tmp_path: Path) -> None:
    (tmp_path / "lightning.py").write_text("import torchmetrics\n")
    assert fails("import gangclient.lightning", tmp_path) == "ModuleNotFoundError: No module named 'torchmetrics'"


def test_pytorch_is_needed_by_the_first_call_only(tmp_path: Path) -> None:
    assert fails("import gangclient.pytorch; raise SystemExit('imported')", tmp_path) == "imported"
    assert fails(SAVE, tmp_path).startswith("ImportError: gangclient.pytorch needs torch, which is not installed")
    (tmp_path / "torch.py").write_text('__version__ = "1.9+cpu"\n')
    assert "needs torch>=2.6, and found 1.9+cpu" in fails(SAVE, tmp_path)


def test_a_rank_leaves_a_lost_peer_at_once_unless_its_process_goes_on(tmp_path: Path) -> None:
    leaves = (
        "from gangclient import Event, _client; from gangclient.pytorch import leave_at_once\n"
        "leave_at_once(Event('stop', 1, planned=True))\n"
        "_client.adopt = print\n"
        "leave_at_once(Event('stop', 1))\n"
        "_client.adopt = None; print('goes on', flush=True)\n"
        "leave_at_once(Event('stop', 1))\n"
    )
    environment = {"PYTHONPATH": str(CLIENT)}
    command = [sys.executable, "-S", "-c", leaves]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (128 + 15, "goes on\n")


def test_leaving_forgets_the_models_that_would_keep_the_group_open_first(tmp_path: Path) -> None:
    script = (
        "import sys, types\n"
        "from gangclient.pytorch import leave\n"
        "leave()\n"  # without PyTorch
        "states = types.ModuleType('states'); dist = types.ModuleType('dist'); done = []\n"
        "states._get_fqns = types.SimpleNamespace(cache_clear=lambda: done.append('forgotten'))\n"
        "dist.is_available = dist.is_initialized = lambda: True\n"
        "dist.destroy_process_group = lambda: done.append('left')\n"
        "sys.modules.update({'torch.distributed': dist, 'torch.distributed.checkpoint.state_dict': states})\n"
        "leave()\n"
        "raise SystemExit(' '.join(done))\n"
    )
    assert fails(script, tmp_path) == "forgotten left"


def test_leaving_lets_accelerate_join_a_group_again(tmp_path: Path) -> None:
    """With its singletons of ``accelerate.state``, as 1.3 has them."""
    (tmp_path / "accelerate").mkdir()
    (tmp_path / "accelerate/__init__.py").touch()
    (tmp_path / "accelerate/state.py").write_text(
        "class PartialState:\n"
        "    _shared_state = {'backend': 'gloo'}\n"
        "class GradientState:\n"
        "    _shared_state = {'dataloader_references': ['that of the attempt']}\n"
        "    @staticmethod\n"
        "    def _reset_state():\n"
        "        GradientState._shared_state.clear()\n"
        "class AcceleratorState:\n"
        "    _shared_state = {'mixed_precision': 'no'}\n"
        "    @staticmethod\n"
        "    def _reset_state(reset_partial_state=False):\n"
        "        AcceleratorState._shared_state.clear()\n"
        "        if reset_partial_state:\n"
        "            PartialState._shared_state.clear()\n"
    )
    script = (
        "from gangclient.pytorch import leave; import accelerate.state as s\n"
        "leave()\n"
        "raise SystemExit(str([one._shared_state for one in (s.AcceleratorState, s.PartialState, s.GradientState)]))\n"
    )
    assert fails(script, tmp_path) == "[{}, {}, {}]"


def test_each_rank_registers_in_the_tiers_with_source_api(tmp_path: Path) -> None:
    script = "from gangclient._frameworks import api_tiers; raise SystemExit(','.join(api_tiers()) or 'none')"
    assert fails(script, tmp_path) == "none"
    told = "import os; os.environ['GANG_CHECKPOINT_TIERS'] = 'ram=API,shared=Directory,far=API'; "
    assert fails(told + script, tmp_path) == "ram,far"


@pytest.fixture
def _callbacks(tmp_path: Path) -> None:
    """Lightning and the Trainer, as far as their callbacks need them."""
    modules = {
        "lightning/__init__.py": '__version__ = "2.4.0"\n',
        "lightning/pytorch.py": "class Callback: ...\n",
        "transformers.py": '__version__ = "4.48.0"\nclass TrainerCallback: ...\n',
    }
    (tmp_path / "lightning").mkdir()
    for name, text in modules.items():
        (tmp_path / name).write_text(text)


@pytest.mark.usefixtures("_callbacks")
@pytest.mark.parametrize("adapter", ["lightning", "transformers"])
def test_a_callback_gives_the_restore_point_and_nothing_outside_of_gangctl(adapter: str, tmp_path: Path) -> None:
    attribute = {"lightning": "ckpt_path", "transformers": "path"}[adapter]
    script = f"from gangclient.{adapter} import GangCallback; raise SystemExit(str(GangCallback().{attribute}))"
    assert fails(script, tmp_path) == "None"
    told = "import os; os.environ.update(GANG_RESTORE_STEP='20', GANG_RESTORE_PATH='/c/20'); "
    assert fails(told + script, tmp_path) == "/c/20"


@pytest.mark.usefixtures("_callbacks")
@pytest.mark.parametrize(
    ("adapter", "begin"),
    [
        ("lightning", "setup(V(global_rank=0, strategy=S()), None, 'fit')"),
        ("transformers", "on_train_begin(V(process_index=0, deepspeed='ds.json'))"),
    ],
)
def test_a_callback_warns_of_checkpoints_that_fewer_ranks_can_not_load(
    adapter: str, begin: str, tmp_path: Path
) -> None:
    script = (
        f"import os, warnings; from types import SimpleNamespace as V; from gangclient.{adapter} import GangCallback\n"
        "class S: ...\n"
        "S.__name__ = 'DeepSpeedStrategy'\n"
        "with warnings.catch_warnings(record=True) as found:\n"
        f"    GangCallback().{begin}\n"
        "    os.environ['GANG_SIZE_WANTED'] = '4'\n"
        f"    GangCallback().{begin}\n"
        "(one,) = found\n"
        "raise SystemExit(str(one.message))\n"
    )
    assert "a checkpoint of DeepSpeed is loaded only by as many" in fails(script, tmp_path)
