"""The style sheet of a timeline: one colour for each kind of bar, in light and dark."""

from __future__ import annotations

from typing import Final

from gangctl.explain.timeline.model import Kind

_COLOURS: Final = {
    Kind.WAITING: ("#c3cad3", "#4b5563"),
    Kind.STARTING: ("#93c5fd", "#3b6ea8"),
    Kind.RUNNING: ("#3f9a63", "#3c9961"),
    Kind.LOST: ("#e8a317", "#d9991a"),
    Kind.DETECT: ("#b91c1c", "#f87171"),
    Kind.STOP: ("#e4572e", "#f0764f"),
    Kind.REPLACE: ("#9333ea", "#b57bee"),
    Kind.BACK_OFF: ("#7c5c2e", "#a98553"),
    Kind.BARRIER: ("#1d4ed8", "#6d93f5"),
    Kind.EVIDENCE: ("#475569", "#94a3b8"),
    Kind.START: ("#0891b2", "#3cc0dd"),
    Kind.CHECKPOINT_LOAD: ("#65a30d", "#b3e35b"),
    Kind.FIRST_STEP: ("#86cfa4", "#8fdcb0"),
    Kind.SUSPENDED: ("#a5a8e0", "#6366a8"),
    Kind.HELD: ("#f3d04e", "#a68a1f"),
}
"""In light and in dark."""
_PAPER: Final = {"text": ("#1f2328", "#e6edf3"), "faint": ("#656d76", "#9198a1"), "line": ("#d8dee4", "#30363d")}
_FAULT: Final = ("#c1121f", "#ff6b6b")


def _variables(dark: int) -> str:
    pairs = [(str(kind), both[dark]) for kind, both in _COLOURS.items()]
    pairs += [(name, both[dark]) for name, both in _PAPER.items()] + [("fault", _FAULT[dark])]
    return "".join(f"--tl-{name}:{colour};" for name, colour in pairs)


STYLE: Final = "\n".join(
    [
        f".timeline{{{_variables(0)}}}",
        f"@media (prefers-color-scheme:dark){{.timeline{{{_variables(1)}}}}}",
        ".timeline text{font:12px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;fill:var(--tl-text)}",
        ".timeline .faint{fill:var(--tl-faint)}.timeline .head{font-weight:bold}",
        ".timeline .grid{stroke:var(--tl-line)}",
        ".timeline .unknown{stroke:var(--tl-faint);stroke-width:1.5;stroke-dasharray:1.5 4;fill:none}",
        ".timeline .fault{fill:var(--tl-fault)}.timeline .restored{fill:var(--tl-text)}",
        *(f".timeline .{kind}{{fill:var(--tl-{kind})}}" for kind in _COLOURS),
    ]
)
"""CSS for :func:`gangctl.explain.timeline.svg.drawn`; it needs nothing else."""
