"""`gangctl status --watch` into a pipe: a line for each change, as `kubectl get --watch` prints them.

Of one gang the lines are those of `gangctl run --plain`. Of all gangs each line is a row of the table: at first one of
each gang, then of those that have changed. Steps and ages alone are no change.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from rich.cells import cell_len
from rich.text import Text

from gangctl.cli.errors import UserError
from gangctl.cli.gang_view import GangView
from gangctl.cli.printers import tables
from gangctl.cli.printers.fitting_table import GAP, FittingTable
from gangctl.cli.printers.output import check_reader, print_err, print_out
from gangctl.cli.printers.plain_output import PlainOutput
from gangctl.cli.printers.text import clean
from gangctl.cli.targets.port import Target

_STEADY = frozenset({"STEP", "AGE", "RESTORE"})
"""Columns that change all the time."""
_GONE = "Deleted"


def watch_lines(target: Target, name: str | None, *, wide: bool, everywhere: bool) -> None:
    """Print changes until Ctrl-C.

    Args:
        target: the place with the gangs.
        name: the gang to watch; None for all.
        wide: rows with more columns.
        everywhere: rows with namespaces.

    Raises:
        UserError: the gang is gone.
        BrokenPipeError: the reader of the pipe is gone.
    """
    one, all_gangs = PlainOutput(sys.stdout, time.time), Rows(target, wide=wide, everywhere=everywhere)

    def show(views: Sequence[GangView]) -> None:
        check_reader()
        if name is None:
            all_gangs.show(views, time.time())
        elif views:
            one.update(views[0], time.time())
        else:
            raise UserError(f"gang {name} is gone from {target.location}")

    try:
        target.watch(name, show)
    except KeyboardInterrupt:
        return


class Rows:
    """Prints rows of gangs that have changed. Columns grow with what is printed."""

    def __init__(self, target: Target, *, wide: bool, everywhere: bool) -> None:
        self._target = target
        self._wide = wide
        self._everywhere = everywhere
        self._rows: dict[str, list[str]] | None = None
        """By UID, as printed last; None before the first look."""
        self._widths: list[int] = []

    def show(self, views: Sequence[GangView], now: float) -> None:
        """Print what has changed since the last look. ``now``: seconds since the epoch."""
        table = tables.gangs(views, now, wide=self._wide, everywhere=self._everywhere)
        phase = table.columns.index("PHASE")
        rows = {one.job.metadata.uid: list(map(_plain, row)) for one, row in zip(views, table.rows, strict=True)}
        before = self._rows
        if before is None:
            self._begin(table, list(rows.values()))
        for uid, row in (before or {}).items():
            if uid not in rows:
                self._print([*row[:phase], _GONE, *row[phase + 1 :]])
        for uid, row in rows.items():
            if self._told(table, row) != self._told(table, (before or {}).get(uid, [])):
                self._print(row)
        self._rows = rows

    def _begin(self, table: FittingTable, rows: list[list[str]]) -> None:
        self._widths = [max(map(cell_len, column)) for column in zip(table.columns, *rows, strict=True)]
        self._print(list(table.columns))
        if not rows:
            print_err(f"there are no gangs in {clean(self._target.location)} yet")

    def _told(self, table: FittingTable, row: list[str]) -> list[str]:
        return [cell for name, cell in zip(table.columns, row, strict=False) if name not in _STEADY]

    def _print(self, row: list[str]) -> None:
        self._widths = [max(width, cell_len(cell)) for width, cell in zip(self._widths, row, strict=True)]
        cells = (cell + " " * (width + GAP - cell_len(cell)) for cell, width in zip(row, self._widths, strict=True))
        print_out("".join(cells).rstrip())


def _plain(cell: str | Text) -> str:
    return cell if isinstance(cell, str) else cell.plain
