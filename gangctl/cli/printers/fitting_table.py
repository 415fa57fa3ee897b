"""A table that leaves out columns where a terminal is too narrow for all of them, instead of cutting each of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions
from rich.table import Table
from rich.text import Text

GAP: Final = 3
"""Between two columns."""
LEAST_FOLD: Final = 16
"""A column that is wrapped gets at least as much room."""


@dataclass(frozen=True, slots=True)
class FittingTable:
    """A table as kubectl prints it."""

    columns: tuple[str, ...]
    rows: tuple[Sequence[str | Text], ...]
    fold: str = ""
    """The only column that is wrapped if there is no room."""
    expendable: tuple[str, ...] = ()
    """Columns that can be left out, the first one first."""

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> Iterator[Table]:
        """Draw what fits."""
        left_out = self._left_out(options.max_width)
        shown = [at for at, name in enumerate(self.columns) if name not in left_out]
        table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
        for name in (self.columns[at] for at in shown):
            wraps = name == self.fold
            table.add_column(name, no_wrap=not wraps, overflow="fold" if wraps else "ellipsis")
        for row in self.rows:
            table.add_row(*(Text(cell) if isinstance(cell := row[at], str) else cell for at in shown))
        yield table

    def _left_out(self, width: int) -> tuple[str, ...]:
        """The columns that must be left out."""
        widths = {name: self._width(at) for at, name in enumerate(self.columns)}
        expendable = [name for name in self.expendable if name in widths]
        for count in range(len(expendable)):
            left_out = tuple(expendable[:count])
            kept = [its for name, its in widths.items() if name not in left_out]
            if sum(kept) + GAP * (len(kept) - 1) <= width:
                return left_out
        return tuple(expendable)

    def _width(self, at: int) -> int:
        name = self.columns[at]
        cells = (cell if isinstance(cell := row[at], str) else cell.plain for row in self.rows)
        widest = max(map(cell_len, (name, *cells)))
        return min(widest, max(LEAST_FOLD, cell_len(name))) if name == self.fold else widest
