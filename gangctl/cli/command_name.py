"""Write the commands of this program as its user types them.

The rule: sentences name a command as ``gangctl VERB GANG``, wherever they are made. Where they are printed, it becomes
what this user can paste: with the name that the program was called by, and the target that the command line selected.
What the environment selects is selected again.
"""

from __future__ import annotations

import re
import shlex
import sys
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Final

PLUGIN: Final = "kubectl gang"
_FILE: Final = "kubectl-gang"
_OPTIONS: Final = {"namespace": "-n", "context": "--context", "kubeconfig": "--kubeconfig", "state_dir": "--state-dir"}
_COMMAND: Final = re.compile(
    r"\bgangctl (delete|doctor|inject|logs|restart|resume|rerun|run|status|stop|suspend|timeline|trace|ui|why)\b"
)
"""The verbs that have a target."""
_selected: ContextVar[tuple[tuple[str, str], ...]] = ContextVar("_selected", default=())


def command_name() -> str:
    """``gangctl`` or ``kubectl gang``, as the user typed it."""
    return PLUGIN if Path(sys.argv[0]).name.startswith(_FILE) else "gangctl"


def is_plugin() -> bool:
    """Return whether kubectl called this program, which selects a cluster."""
    return command_name() == PLUGIN


def remember_target(arguments: dict[str, Any]) -> None:
    """Remember the target that this command line selects, for the commands in texts."""
    _selected.set(
        tuple((flag, shlex.quote(str(arguments[name]))) for name, flag in _OPTIONS.items() if arguments.get(name))
    )


def as_typed(text: str) -> str:
    """The text with each command in it as this user would type it. A text that is that already stays as it is."""

    def typed(found: re.Match[str]) -> str:
        rest = text[found.end() :]
        options = "".join(f" {flag} {value}" for flag, value in _selected.get() if flag != "-n" or rest[:3] != " -A")
        return f"{command_name()} {found[1]}{'' if rest.startswith(options) else options}"

    return _COMMAND.sub(typed, text)
