"""``gangctl timeline``: draw a gang against time, from the status alone: in the terminal, or as a picture or a page."""

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, TextIO

from gangctl.api.model import rfc3339
from gangctl.cli.errors import ExitCode, UserError
from gangctl.cli.printers.output import can_encode, drawing_console, print_document, print_out, trim_lines
from gangctl.cli.printers.text import clean
from gangctl.cli.printers.timeline import GLYPHS, timeline_lines
from gangctl.cli.printers.trace import Canvas
from gangctl.cli.targets import selection
from gangctl.story import svg
from gangctl.story.document import document
from gangctl.story.replicas import group_story
from gangctl.story.timeline import Story, story

_LEAST_COLUMNS: Final = 50
_STDOUT: Final = Path("-")
_EPILOG: Final = """\
examples:
  gangctl timeline demo                    draw it in the terminal
  gangctl timeline demo --html demo.html   a page for a browser or a postmortem: one file that loads nothing else
  gangctl timeline demo --svg demo.svg     the picture alone
  gangctl timeline demo -o json            the same for programs
  gangctl timeline --group torchft         a row for each gang of a replica group

example output:
  demo
  Succeeded, attempt 3, 26.6 s, from 2026-01-31T12:00:00Z to 2026-01-31T12:00:27Z.
  Goodput 70.1%: 19.8 s training (1.13 s of it lost), 4.60 s start-up, 2.21 s recovery.
  1 restart charged to the budget, 1 not charged; 22 steps lost.

  UTC            12:00:00       12:00:10       12:00:20
  attempt        1                2               3
  restored step                   100             140
  gang           --+++===========%f==============%f================
  worker-1       --+++===========xf==============.f================
  worker-2       --+++===========sf==============xf================
  2 others       --+++===========..==============..================

  - waits to start  + starts, no step yet  = runs  % lost, done again  s stop  b barrier  t start
  f first step  . not in the status  x fault

  Incidents: where the time of each went
  to attempt 2   sssbttttfffffffffffffffffffffffffffffffff
                 1.15 s, from step 100, 6 steps lost, worker-1 (rank 1): ended by SIGKILL
  to attempt 3   sssbttttfffffffffffffffffffffffffffffffff
                 1.06 s, from step 140, 16 steps lost, worker-2 (rank 2): exit code 75

The whole is to scale; a short incident still has a cell. Members that the incidents name have a row, the others share
one. Everything comes from the status, which keeps the last 10 incidents, and in each at most 11 members: what it
doesn't tell is drawn as dots. gangctl trace draws one incident to scale. Permission on a cluster: get gangjobs.

exit codes: 0 shown, 2 bad input
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the verb's arguments."""
    parser.epilog = _EPILOG
    selection.configure_name(parser)
    selection.configure_group(parser)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--html", metavar="FILE", type=Path, help="write a page with the picture and tables; - is stdout")
    form.add_argument("--svg", metavar="FILE", type=Path, help="write the picture; - is stdout")
    form.add_argument("-o", "--output", choices=["json", "yaml"], help="print it for programs")
    selection.configure(parser)


def run(arguments: argparse.Namespace) -> int:
    """Draw the timeline."""
    with selection.open_target(arguments) as target:
        jobs = [target.latest(target.logged(name)) for name in selection.names_of(target, arguments)]
        ends = [selection.removed_at(target, job) for job in jobs]
    now = time.time()
    stories = [story(job, end or now, is_stopped=end is not None) for job, end in zip(jobs, ends, strict=True)]
    found = stories[0] if arguments.group is None else group_story(arguments.group, stories)
    if arguments.output:
        print_document(document(found), arguments.output)
    elif arguments.html is not None:
        _write(arguments.html, svg.page, found)
    elif arguments.svg is not None:
        _write(arguments.svg, svg.svg, found)
    else:
        print_timeline(found, sys.stdout)
    return ExitCode.OK


def print_timeline(found: Story, stream: TextIO) -> None:
    """Draw the timeline as text."""
    out = drawing_console(stream, _LEAST_COLUMNS)
    canvas = Canvas(out.width, blocks=can_encode(GLYPHS, stream))
    with trim_lines(out):
        for line in timeline_lines(found, canvas, out):
            out.print(line, soft_wrap=True)
        if found.incidents:
            last = found.incidents[-1].attempt
            words = f"gangctl trace {found.name} --incident {last} draws the last incident to scale"
            out.print(clean(words), style="dim", soft_wrap=True)


def _write(path: Path, made: Callable[[Story], str], found: Story) -> None:
    """Write a picture or a page."""
    text = made(found)
    if path == _STDOUT:
        print_out(text.rstrip("\n"))
        return
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path} can't be written: {error.strerror}; choose another file") from None
    print_out(clean(f"{path} has the timeline of {found.name} until {rfc3339(found.end)}"))
