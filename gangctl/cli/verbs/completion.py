"""``gangctl completion``: print a shell's script for completion, and answer the shell while a command line is typed.

The shell calls ``gangctl`` itself, with argcomplete's variables in the environment, so it is the installed release that
answers. Only the module of the verb on the line is imported. What takes longer than a moment is left out.
"""

import argparse
import importlib
import os
import re
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NoReturn, cast

import argcomplete
from argcomplete.completers import DirectoriesCompleter, FilesCompleter
from argcomplete.shell_integration import shellcode

from gangctl.cli.errors import ExitCode
from gangctl.cli.registry import VerbRegistration

SECONDS: Final = 1.5
"""The longest a cluster is waited for."""
_NAME: Final = re.compile(r"[a-z0-9][-a-z0-9]*")
_SELECTION: Final = ("namespace", "context", "kubeconfig", "state_dir", "all_namespaces")

_EPILOG: Final = """\
examples:
  source <(gangctl completion bash)                       in this shell
  echo 'source <(gangctl completion bash)' >> ~/.bashrc   in each new one
  echo 'source <(gangctl completion zsh)' >> ~/.zshrc     after compinit
  gangctl completion fish > ~/.config/fish/completions/gangctl.fish

Then the tab key completes verbs, options and their values, files, and the names of gangs and members: those of the
state directory, or those of the cluster if it answers within 1.5 s. After an upgrade nothing has to be done: the script
asks gangctl itself.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the verb's arguments."""
    parser.epilog = _EPILOG
    parser.add_argument("shell", choices=["bash", "zsh", "fish"], help="the shell")


def run(arguments: argparse.Namespace) -> int:
    """Print the script."""
    sys.stdout.write(shellcode(["gangctl"], use_defaults=False, shell=arguments.shell))
    sys.stdout.write("\n")
    return ExitCode.OK


def complete(verbs: Mapping[str, VerbRegistration]) -> NoReturn:
    """Print what can stand at the cursor, in the way that the shell asked for, and end the process."""
    parser = _parser(verbs, _verb(os.environ.get("COMP_LINE", "")))
    # Options are proposed after a dash, as by kubectl, and files only where one belongs. Any callable will do for it.
    argcomplete.autocomplete(parser, always_complete_options=False, default_completer=cast("Any", _nothing))
    raise SystemExit(1)  # it was called without what a shell gives


def _verb(line: str) -> str:
    """The verb on the line, once it is complete."""
    words = line.split()
    return words[1] if len(words) > 2 or (len(words) == 2 and line.endswith(" ")) else ""  # noqa: PLR2004 - after it


def _parser(verbs: Mapping[str, VerbRegistration], verb: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="gangctl")
    below = parser.add_subparsers()
    below.add_parser("help", help="Show the help of a verb").add_argument("verb", choices=list(verbs))
    for name, registration in verbs.items():
        one = below.add_parser(name, help=registration.meaning)
        if name == verb:
            registration.load().configure(one)
            _give_completers(one)
    return parser


def _give_completers(parser: argparse.ArgumentParser) -> None:
    for action in parser._actions:  # noqa: SLF001 - argparse has no other way to list them
        if action.nargs == argparse.OPTIONAL and not action.option_strings:
            action.nargs = None  # or it counts as left out as soon as an option comes before it
        completer = _COMPLETERS.get(action.dest)
        if completer is not None and action.choices is None and action.nargs != 0:
            action.completer = completer  # type: ignore[attr-defined]  # argcomplete reads it


def _nothing(**_: object) -> Iterable[str]:
    return ()


def _gangs(parsed_args: argparse.Namespace, **_: object) -> Iterable[str]:
    return [name for name in _in_time(parsed_args, _names) if _NAME.fullmatch(name)]


def _members(parsed_args: argparse.Namespace, **_: object) -> Iterable[str]:
    return _in_time(parsed_args, _members_of)


def _names(given: argparse.Namespace) -> list[str]:
    from gangctl.cli.local import gangs as local_gangs  # noqa: PLC0415 - the imports take longer than the rest
    from gangctl.cli.targets import selection  # noqa: PLC0415

    chosen = _selected(given)
    state = selection.state_directory(chosen)
    if state is not None:
        return local_gangs.names_with_removed(local_gangs.absolute(state))
    with selection.open_target(chosen) as target:
        return [*target.names()]


def _members_of(given: argparse.Namespace) -> list[str]:
    from gangctl.cli.arguments import all_members  # noqa: PLC0415
    from gangctl.cli.targets import selection  # noqa: PLC0415

    with selection.open_target(_selected(given)) as target:
        return all_members(target.read(given.name))


def _selected(given: argparse.Namespace) -> argparse.Namespace:
    """The arguments that select the target. A command line that isn't whole yet may have no more than a part of it."""
    return argparse.Namespace(**{name: getattr(given, name, None) for name in _SELECTION})


def _in_time(given: argparse.Namespace, find: Callable[[argparse.Namespace], list[str]]) -> list[str]:
    """The names found in a moment; nothing if it takes longer or fails: an error has no place in a completion."""
    from gangctl.cli.targets import selection  # noqa: PLC0415

    found: list[str] = []
    imported = threading.Event()

    def work() -> None:
        try:
            if selection.state_directory(_selected(given)) is None:
                importlib.import_module("gangctl.cli.targets.kube")  # the cluster isn't to blame for what this takes
            imported.set()
            found.extend(find(given))
        except Exception:  # noqa: BLE001 - see above
            return
        finally:
            imported.set()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    imported.wait()
    thread.join(SECONDS)
    return list(found)


_COMPLETERS: Final[Mapping[str, Any]] = {
    "name": _gangs,
    "gang": _gangs,
    "member": _members,
    "file": FilesCompleter(),
    "script": FilesCompleter(),
    "words": FilesCompleter(),
    "kubeconfig": FilesCompleter(),
    "state_dir": DirectoriesCompleter(),
    "checkpoints": DirectoriesCompleter(),
}
"""By the name of the argument."""
