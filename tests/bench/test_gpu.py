"""The table of bench/gpu.py, without PyTorch: e2e/versions runs it."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import gpu

SECONDS = {"start": 0.5, "import": 1.0, "context": 0.25, "group": 0.25, "load": 2.0, "step": 4.0, "total": 8.0} | {
    "next": 0.125
}


def _row(way: str, total: float) -> gpu.Row:
    return gpu.Row(way, "executed", SECONDS | {"total": total})


FIGURES = gpu.Figures(
    device={"card": "A card", "torch": "2.15.0", "cuda": "13.2", "parameters": 1_300_000_000, "compiles": True},
    size="1.3b",
    rows=[_row("first start, cold", 40.0), _row("Exec", 8.0), _row("Fork", 4.0), _row("In process", 1.0)],
    memory={"context": 500.0, "weights": 3000.0, "ended": 0.5, "free": 0.75},
    forks=[{"after": "import", "seconds": 0.5, "error": ""}, {"after": "a use", "seconds": 0.1, "error": "refused"}],
    checks=[{"name": "MatMul", "codes": [0], "seconds": 2.5, "said": "exact"}],
    load=1.0,
)


def test_the_table_has_a_column_for_each_phase_and_says_how_many_times_as_long_a_way_takes() -> None:
    lines = str(FIGURES).splitlines()
    assert lines[0].startswith("A card; PyTorch 2.15.0, CUDA 13.2")
    assert lines[2].split() == ["process", *gpu.PHASES, "total", "next"]
    assert lines[4].split() == ["Exec", "executed", "0.50", "1.00", "0.25", "0.25", "2.00", "4.00", "8.00", "0.12"]
    assert len({len(line) for line in lines[2:7]}) == 1
    assert lines[7] == "times as long as In process: first start, cold 40.0, Exec 8.0, Fork 4.0"
    assert lines[-3:] == [
        "fork after import: works, 0.50 s",
        "fork after a use: refused",
        "check MatMul, [0], 2.5 s: exact",
    ]


def test_the_table_replaces_the_one_in_the_docs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "benchmarks.md"
    page.write_text(f"before\n{gpu.BEGIN}\nold\n{gpu.END}\nafter\n")
    monkeypatch.setattr(gpu, "DOCS", page)
    gpu.write(FIGURES, "python -m bench.gpu")
    text = page.read_text()
    assert text.startswith(f"before\n{gpu.BEGIN}\n`python -m bench.gpu` on 20")
    assert text.endswith(f"{FIGURES}\n```\n{gpu.END}\nafter\n")
