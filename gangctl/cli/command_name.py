"""Write the commands of this program as its user types them.

The rule: sentences name a command as ``gangctl VERB GANG`` or ``kubectl VERB``, wherever they are made. Where they are
printed, it becomes what this user can paste: with the name that the program was called by, and the target that the
command line selected. What the environment selects is selected again. No command acts on another target than this one.
"""

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
    r"\bgangctl (delete|doctor|gate|inject|logs|nodes|placement|restart|resume|rerun|run|status|stop|suspend|timeline"
    r"|trace|ui|why)\b|\bkubectl (?:apply|cordon|create|delete|describe|get|taint|uncordon)\b"
)
"""The verbs that have a target; group 1 has those of this program."""
_OF_CLUSTERS: Final = frozenset({None, "doctor", "gate", "nodes", "placement"})
"""Commands without --state-dir; None: kubectl's."""
_END: Final = re.compile(r"[;,]| (?:gangctl|kubectl) ")
"""The end of a command in a sentence."""
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
        given = _END.split(text[found.end() :], 1)[0].split()
        left_out = {*given, "-n" if "-A" in given else "", "--state-dir" if found[1] in _OF_CLUSTERS else ""}
        options = "".join(f" {flag} {value}" for flag, value in _selected.get() if flag not in left_out)
        return f"{command_name()} {found[1]}{options}" if found[1] else f"{found[0]}{options}"

    return _COMMAND.sub(typed, text)
