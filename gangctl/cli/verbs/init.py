"""``gangctl init``: write a commented manifest for a training script."""

import argparse
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TypeVar

from gangctl.api.manifest import ManifestError, load_gangjobs
from gangctl.api.names import MAX_GANG_NAME
from gangctl.cli.arguments import number
from gangctl.cli.command_name import command_name
from gangctl.cli.errors import ExitCode, UserError
from gangctl.cli.local import disk_checkpoints
from gangctl.cli.local.disk_checkpoints import CheckpointFolder
from gangctl.cli.printers.output import print_err, print_out
from gangctl.cli.printers.text import clean
from gangctl.cli.starter import Framework, Starter, relative, starter_manifest

_T = TypeVar("_T")
_MEMBERS: Final = number(1, 10_000, "a whole number from 1 to 10000")
_PROCESSES: Final = number(1, 64, "a whole number from 1 to 64")
_REPLICAS: Final = number(1, 100, "a whole number from 1 to 100")
_EPILOG: Final = """\
examples:
  gangctl init                                                 asks three questions
  gangctl init train.py --framework torchrun --members 2       asks nothing
  gangctl init train.py --framework jax --members 4 --file jax.yaml
  gangctl init --framework script --members 2 train.py -- --lr 1e-3 --epochs 3
  gangctl init train.py --framework script --members 1 --file - | gangctl check -
  gangctl init train.py --framework torchrun --members 4 --replica-groups 2
  gangctl init train.py --framework torchrun --canary driver=580 --name bench-580

Checkpoints are looked for in this folder and three levels below it; hidden folders are left out. Layouts that are
known: PyTorch DCP, Hugging Face, Lightning, Megatron, Orbax, and files, or folders with a file such as DONE, in whose
names a word says what the step is: step, iteration, batch or epoch. Whatever else looks like checkpoints becomes a
comment. So does a folder that the script doesn't name. Without a terminal, nothing is asked: give the script,
--framework and --members.

exit codes: 0 written, 2 bad input, or the file exists
"""
_MAX_BYTES: Final = 1 << 20
_LIKELY: Final = ("train.py", "main.py", "run.py", "pretrain.py", "finetune.py", "train.sh")
_TORCH: Final = re.compile(r"\btorch\.distributed\b|\binit_process_group\b|\bfrom torch import distributed\b")
_JAX: Final = re.compile(r"^\s*(?:import|from)\s+jax\b", re.MULTILINE)
_RANKS: Final = re.compile(r"\b(?:RANK|WORLD_SIZE|gangclient)\b")
_CANARIES: Final = 2
"""Members of a canary: the fewest that talk to each other."""
_LABEL: Final = re.compile(r"((?:[a-z0-9.-]{1,253}/)?[\w.-]{1,63})=([\w.-]{0,63})")
_NO_NAME: Final = re.compile(r"[^a-z0-9]+")


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the verb's arguments."""
    parser.description = """\
Write a commented manifest for a training script. It asks for the script, how its processes are started, and how many
members there are, and proposes what it finds in the folder. The manifest names the checkpoints that are found, passes
gangctl check, and runs as it is."""
    parser.usage = "%(prog)s [--framework torchrun|jax|script] [--members N] [OPTION ...] [SCRIPT [-- ARGUMENT ...]]"
    parser.epilog = _EPILOG
    parser.add_argument("script", metavar="SCRIPT", nargs="?", help="the script that starts the training")
    parser.add_argument("words", metavar="ARGUMENT", nargs="*", help="arguments of the script, after --")
    parser.add_argument(
        "--framework", choices=[str(one) for one in Framework], help="how the processes find each other"
    )
    parser.add_argument("--members", metavar="N", type=_MEMBERS, help="number of members (pods)")
    parser.add_argument(
        "--processes-per-member",
        metavar="N",
        type=_PROCESSES,
        default=1,
        help="processes in each member, usually one for each device (default: 1)",
    )
    parser.add_argument(
        "--replica-groups",
        metavar="N",
        type=_REPLICAS,
        default=1,
        help="make N gangs that restart alone while the others go on, as torchft's replica groups do (default: 1)",
    )
    parser.add_argument("--name", help="name of the gang (default: of the script)")
    parser.add_argument(
        "--canary",
        metavar="KEY=VALUE",
        type=_node_labels,
        default={},
        help="make a gang of two members, if no other number is given, that runs only on nodes with these labels, to "
        "compare them with gangctl gate; several are separated by commas",
    )
    parser.add_argument("--image", default="registry.example/train", help="image with the script, for a cluster")
    parser.add_argument(
        "--checkpoints", metavar="DIR", help="directory of the checkpoints (default: what is found in this folder)"
    )
    parser.add_argument("--file", metavar="FILE", default="gang.yaml", help="file to write (default: gang.yaml)")
    parser.add_argument("--force", action="store_true", help="overwrite the file if it exists")


def run(arguments: argparse.Namespace) -> int:
    """Ask what is missing, and write the manifest."""
    path = Path(arguments.file)
    if arguments.file != "-" and path.exists() and not arguments.force:
        raise UserError(f"{path} exists: --force overwrites it, --file writes another one")
    folder = Path.cwd()
    starter = _starter(arguments, folder)
    text = starter_manifest(starter)
    try:
        load_gangjobs(text, arguments.file)
    except ManifestError as error:
        raise UserError(f"this makes no valid manifest:\n{error}") from None
    if arguments.file == "-":
        sys.stdout.write(text)
        return ExitCode.OK
    _write(path, text, force=arguments.force)
    for line in _report(starter, path, arguments.checkpoints or "."):
        print_out(clean(line))
    return ExitCode.OK


def _starter(arguments: argparse.Namespace, folder: Path) -> Starter:
    _check_missing(arguments)
    name = arguments.script or _ask("Which script starts the training?", _likely_script(folder), _existing(folder))
    if arguments.script:
        _existing(folder)(name)
    text = _script_text(folder / name)
    used = Framework(
        arguments.framework
        or _ask("How is it started: torchrun, jax or script?", str(_framework_of(text)), _one_of(*Framework))
    )
    proposed = _CANARIES if arguments.canary else None
    count = arguments.members or proposed or _ask("How many members (pods)?", str(_members_for(text, used)), _MEMBERS)
    found, elsewhere = _checkpoints(arguments, folder, f"{text} {' '.join(arguments.words)}")
    directory = arguments.checkpoints or ("checkpoints" if found is None else relative(found.directory, folder))
    return Starter(
        name=arguments.name or _gang_name(name, arguments.replica_groups),
        command=_command(name, arguments.words, used, folder),
        framework=used,
        members=count,
        processes=arguments.processes_per_member,
        image=arguments.image,
        checkpoints=found,
        unnumbered="" if elsewhere else _unnumbered(found, folder),
        elsewhere=elsewhere,
        directory=directory,
        filename=arguments.file if arguments.file != "-" else "FILE",
        canary=arguments.canary,
        work=_gang_name(name),
        replicas=arguments.replica_groups,
    )


def _node_labels(text: str) -> dict[str, str]:
    matches = [_LABEL.fullmatch(part) for part in text.split(",")]
    if not all(matches):
        raise argparse.ArgumentTypeError(f"{text!r:.80} isn't a list of labels such as driver=580,pool=canary")
    return {match[1]: match[2] for match in matches if match is not None}


def _check_missing(arguments: argparse.Namespace) -> None:
    given = {
        "SCRIPT": arguments.script,
        "--framework": arguments.framework,
        "--members": arguments.members or arguments.canary,
    }
    missing = [name for name, value in given.items() if not value]
    if missing and not _has_terminal():
        raise UserError(
            f"without a terminal nothing can be asked: give {', '.join(missing)}, as in "
            f"{command_name()} init train.py --framework script --members 2"
        )


def _has_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def _ask(question: str, proposed: str, read: Callable[[str], _T]) -> _T:
    """The answer to a question on the terminal; it is asked again until it is one."""
    hint = f" [{proposed}]" if proposed else ""
    while True:
        try:
            answer = input(f"{question}{clean(hint)} ").strip() or proposed
        except EOFError:
            raise UserError("no answer; nothing is written") from None
        try:
            return read(answer)
        except (ValueError, UserError, argparse.ArgumentTypeError) as error:
            print_err(str(error))


def _one_of(*answers: str) -> Callable[[str], str]:
    def read(answer: str) -> str:
        if answer not in answers:
            raise UserError(f"{answer!r}: answer {', '.join(answers)}")
        return answer

    return read


def _existing(folder: Path) -> Callable[[str], str]:
    def read(name: str) -> str:
        if not name or not (folder / name).is_file():
            raise UserError(f"{name or 'nothing'} isn't a file in {folder}: give the path of the script")
        return name

    return read


def _checkpoints(arguments: argparse.Namespace, folder: Path, text: str) -> tuple[CheckpointFolder | None, str]:
    """The checkpoints that the script names, or a user confirms; else a folder that may be another script's."""
    within = folder / (arguments.checkpoints or "")
    found = disk_checkpoints.checkpoint_folders(within)
    if arguments.checkpoints is not None:
        return next((one for one in found if one.directory == within), None), ""
    if not found:
        return None, ""
    for one in found:
        names = one.directory.relative_to(folder).parts
        if not names or any(re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text) for name in names):
            return one, ""
    elsewhere = relative(found[0].directory, folder)
    if not _has_terminal():
        return None, elsewhere
    question = f"{clean(elsewhere)} has checkpoints. Does this script write them: yes or no?"
    is_ours = _ask(question, "no", _one_of("yes", "no", "y", "n")).startswith("y")
    return (found[0] if is_ours else None), ""


def _unnumbered(found: CheckpointFolder | None, folder: Path) -> str:
    only = disk_checkpoints.file_without_step(folder) if found is None else None
    return "" if only is None else relative(only, folder)


def _write(path: Path, text: str, *, force: bool) -> None:
    target = path.resolve()
    beside = target.with_name(f".{target.name}.tmp") if force and target.is_file() else None
    try:
        with (beside or path).open("w" if force else "x", encoding="utf-8") as file:
            file.write(text)
        if beside is not None:
            beside.replace(target)
    except FileExistsError:
        raise UserError(f"{path} exists: --force overwrites it, --file writes another one") from None
    except OSError as error:
        if beside is not None:
            beside.unlink(missing_ok=True)
        raise UserError(f"{path} can't be written: {error.strerror}") from None


def _report(starter: Starter, path: Path, searched: str) -> list[str]:
    found = starter.checkpoints
    if starter.elsewhere:
        where = (
            f"{starter.elsewhere} has checkpoints, but the script doesn't name it: if it writes them, call init again "
            f"with --checkpoints {shlex.quote(starter.elsewhere)} --force"
        )
    elif starter.unnumbered:
        where = (
            f"{starter.unnumbered} looks like a checkpoint without a step in its name: the script has to load it by "
            f"itself in each attempt; see the comment in {path}"
        )
    elif found is None:
        there = "no checkpoints are found here" if Path(searched).is_dir() else f"there is no folder {searched} so far"
        where = f"{there}: uncomment checkpoint in {path}, or each restart begins at step 0"
    elif found.newest is None:
        where = f"{starter.directory} has {found.pattern}, {found.doubt}: see the comment in {path}"
    else:
        where = f"checkpoints: {starter.directory} ({found.layout}), the newest complete step is {found.newest.step}"
    name, file = command_name(), shlex.quote(str(path))
    return [f"{path} is written", where, f"next: {name} check {file}, then {name} run {file} --logs"]


def _likely_script(folder: Path) -> str:
    """The script that most likely starts the training; empty if there is none."""
    found = next((name for name in _LIKELY if (folder / name).is_file()), "")
    scripts = sorted(path.name for path in folder.glob("*.py"))
    return found or (scripts[0] if len(scripts) == 1 else "")


def _framework_of(text: str) -> Framework:
    if _JAX.search(text):
        return Framework.JAX
    return Framework.TORCHRUN if _TORCH.search(text) else Framework.SCRIPT


def _members_for(text: str, used: Framework) -> int:
    """A number of members that makes sense: two show what a restart is; a script that knows no ranks is one process."""
    return 1 if used is Framework.SCRIPT and not _RANKS.search(text) else 2


def _script_text(path: Path) -> str:
    """The text of a script; empty if it isn't text."""
    try:
        with path.open("rb") as file:
            return file.read(_MAX_BYTES).decode("utf-8", errors="replace")
    except OSError:
        return ""


def _command(script: str, arguments: Sequence[str], used: Framework, folder: Path) -> tuple[str, ...]:
    if used is Framework.TORCHRUN and script.endswith(".py"):
        if shutil.which("torchrun") or not shutil.which("python3"):
            return ("torchrun", script, *arguments)
        return ("python3", "-m", "torch.distributed.run", script, *arguments)
    if script.endswith(".py"):
        return ("python3", script, *arguments)
    if os.access(folder / script, os.X_OK):
        return (script if "/" in script else f"./{script}", *arguments)
    # It starts torchrun itself, mostly with what only bash has, such as arrays of arguments.
    return ("bash" if used is Framework.TORCHRUN else "sh", script, *arguments)


def _gang_name(script: str, replicas: int = 1) -> str:
    """A name that leaves room for the number of the replica, if there are several."""
    room = MAX_GANG_NAME - (len(f"-{replicas - 1}") if replicas > 1 else 0)
    name = _NO_NAME.sub("-", Path(script).stem.lower()).strip("-")[:room].strip("-")
    return name or "train"
