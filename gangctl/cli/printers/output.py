"""Output of commands: streams, terminals, colours and JSON."""

import errno
import json
import os
import re
import select
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, TextIO

import yaml
from rich.console import Console

from gangctl.api.model import escaped
from gangctl.api.yaml_documents import Dumper
from gangctl.cli.printers.text import clean

WIDE: Final = 10_000
"""Width without a terminal: lines are never cut in a pipe."""
COLUMNS: Final = 100
"""Width of a drawing without a terminal, unless COLUMNS is set."""
_LOCALE: Final = ("LC_ALL", "LC_CTYPE", "LANG")
"""In the order in which they apply."""
_NOT_ASCII: Final = re.compile(r"[^\n\x20-\x7e]")


def print_out(text: str) -> None:
    """Print one line to stdout."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def print_err(text: str) -> None:
    """Print one line to stderr, separate from the result on stdout; ignored if stderr is closed."""
    try:
        sys.stderr.write(f"{clean(text)}\n")
        sys.stderr.flush()
    except OSError:
        return


def check_reader(seconds: float = 0.0) -> None:
    """Look for so long whether the reader of stdout is still there: one that is gone is not noticed before a write.

    Raises:
        BrokenPipeError: it is gone: the other end of the pipe is closed, or the terminal.
    """
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    if poll.poll(seconds * 1000):
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


def as_json(value: Any) -> str:
    r"""JSON for people and programs. Control characters are escaped, as in ``\u202e``, which keeps the value."""
    return _NOT_ASCII.sub(_in_json, json.dumps(value, indent=2, ensure_ascii=False))


def as_yaml(value: Any) -> str:
    """The same as YAML. If there are control characters, all characters beyond ASCII are escaped."""
    text = yaml.dump(value, Dumper=Dumper, sort_keys=False, allow_unicode=True)
    if any(escaped(line) != line for line in text.split("\n")):
        text = yaml.dump(value, Dumper=Dumper, sort_keys=False, allow_unicode=False)
    return text.rstrip()


def print_document(value: Any, form: str) -> None:
    """Print a value for programs. ``form``: json or yaml."""
    print_out(as_json(value) if form == "json" else as_yaml(value))


@contextmanager
def trim_lines(out: Console) -> Iterator[None]:
    """Write what is printed meanwhile, without the spaces at the end of lines that tables and bars fill."""
    with out.capture() as captured:
        yield
    out.file.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))
    out.file.flush()


def _in_json(found: re.Match[str]) -> str:
    letter = found[0]
    if escaped(letter) == letter:
        return letter
    units = letter.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def console(stream: TextIO) -> Console:
    """A rich console that prints text as it is: no markup, emoji codes or highlighting.

    rich itself respects NO_COLOR, TERM=dumb and FORCE_COLOR.
    """
    return Console(
        file=stream,
        markup=False,
        emoji=False,
        highlight=False,
        soft_wrap=not stream.isatty(),
        width=None if stream.isatty() else WIDE,
    )


def drawing_console(stream: TextIO, least: int) -> Console:
    """A console for a drawing: as wide as the terminal, and without one as $COLUMNS says, but at least this wide."""
    out = console(stream)
    columns = out.width if stream.isatty() else shutil.get_terminal_size((COLUMNS, 0)).columns
    out.width = max(least, columns)
    return out


def can_encode(letters: str, stream: TextIO) -> bool:
    """Return whether the encoding of the stream has these characters, and the user's locale isn't C, which is ASCII.

    Python writes UTF-8 in the locale C as well, unless an encoding is set.
    """
    locale = next((value for name in _LOCALE if (value := os.environ.get(name))), "")
    if locale in {"C", "POSIX"} and not os.environ.get("PYTHONIOENCODING"):
        return False
    try:
        letters.encode(stream.encoding or "ascii")
    except (LookupError, UnicodeEncodeError):
        return False
    return True


def is_terminal(stream: TextIO) -> bool:
    """Return whether the stream can show a live display."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"
