"""Convert command lines of torchrun, and scripts for sbatch.

A script becomes a gang if one line of it starts the program, with srun or torchrun. Its words are the command of the
container, with those of the script's arrays in their place. Text that only a shell can read is kept for a shell in the
pod, as it is, and needs an edit. So does every other line, unless it sets a variable, or only prints.
"""

import re
import shlex
from typing import Any, Final

from gangctl.annexes.convert import commands, pods
from gangctl.annexes.convert.fields import UNKNOWN, ConvertError, Fields, Notes

IMAGE: Final = "IMAGE"
_DIRECTIVE: Final = re.compile(r"#SBATCH\s+(?P<rest>.*)")
_COMMENT: Final = re.compile(r"(?:^|\s)#.*")
_LETTERS: Final = """
J=job-name N=nodes n=ntasks c=cpus-per-task t=time G=gpus p=partition A=account o=output e=error a=array w=nodelist
x=exclude q=qos C=constraint D=chdir d=dependency m=distribution l=label u=unbuffered O=overcommit s=oversubscribe
K=kill-on-bad-exit k=no-kill v=verbose Q=quiet
"""
_SHORT: Final = dict(pair.split("=") for pair in _LETTERS.split())
_WITHOUT_VALUE: Final = """
label unbuffered overcommit oversubscribe kill-on-bad-exit no-kill verbose quiet pty exclusive exact overlap requeue
no-requeue container-mount-home no-container-mount-home container-writable container-remap-root container-entrypoint
no-container-remap-root no-container-entrypoint
"""
_ALONE: Final = frozenset(_WITHOUT_VALUE.split())
_FOR_SLURM: Final = """
mpi cpu-bind gpu-bind mem-bind distribution hint wait output error open-mode mail-type mail-user partition account qos
signal
"""
_IMAGE: Final = "container-image"
_GOES: Final = "goes: it isn't needed, or Kubernetes and gangctl have another way (docs/tasks/come-from-other-tools)"
_MISSING: Final = {
    **dict.fromkeys(("nodelist", "exclude"), "is not carried over: use affinity in the template"),
    "constraint": "is not carried over: use nodeSelector in the template",
    "array": "is not carried over: submit one GangJob for each index",
    "export": "is not carried over: set env of the container in the template",
    "dependency": "is not carried over: submit it when the other has finished (kubectl wait)",
    "container-mounts": "is not carried over: mount volumes in the template",
    "container-workdir": "is not carried over: set workingDir of the container in the template",
    "container-env": "is not carried over: set env of the container in the template",
}
_START: Final = re.compile(r"(?:srun|torchrun|python3?\s+-m\s+torch\.distributed\.\w+)\b")
_OURS: Final = re.compile("|".join(pods.RENDEZVOUS) + r"|S(?:RUN|LURM)_\w+")
_SAME: Final = re.compile(r"\"?\$\{?SLURM_\w+\}?\"?")
"""Repeats to srun an option of sbatch."""
_PRINTS: Final = frozenset({"set", "echo", "printf", "date", "hostname", "pwd", "env", "nvidia-smi", "wait", "true"})
_PARTS: Final = re.compile(r",(?![^(]*\))")
_GRES: Final = re.compile(r"(?:gres/)?gpu(?::[\w.-]*[A-Za-z][\w.-]*)?(?::(\d+))?(?:\(.*)?")
_GPUS: Final = re.compile(r"(?:[\w.-]+:)?(\d+)")
_OF_A_NODE: Final = "is not carried over: set the resources of the container"
_OF_ALL_NODES: Final = "is for all nodes together: set nvidia.com/gpu of one pod"
_HETEROGENEOUS: Final = ("hetjob", "packjob")
_SEVERAL: Final = "a job of several components: convert each as a script of its own, and make them roles of one GangJob"


def torchrun_spec(words: list[str], image: str, notes: Notes) -> dict[str, Any]:
    """The spec of a GangJob that runs this line.

    Raises:
        ConvertError: it doesn't start torchrun.
    """
    if not commands.starts_torchrun(words):
        raise ConvertError(
            f"{words[0] if words else 'nothing'}: the line must start torchrun (gangctl convert -- torchrun ...)"
        )
    command, its = commands.strip(words, "the command", notes)
    nodes = commands.node_count(its.nodes, "--nnodes", notes)
    count = commands.process_count(its.processes, None, "--nproc-per-node", notes)
    return {"roles": [_role({"image": image, "command": command}, nodes, count, notes)]}


def sbatch_spec(text: str, image: str, notes: Notes) -> tuple[str, dict[str, Any]]:
    """The name and the spec of a GangJob that does what this script does.

    Raises:
        ConvertError: it doesn't have one line that starts a program on the nodes.
    """
    options = _directives(text, notes)
    line, environment = _body(text, notes)
    flags = list[tuple[str, str]]()
    if line.startswith("srun"):
        words, _ = commands.split(line)
        flags, taken = _flags([commands.plain(one["word"]) or one["word"] for one in words[1:]])
        line = line[words[taken].end() :].lstrip()
    options |= {
        name: value for name, value in flags if (name, value) != ("export", "ALL") and not _SAME.fullmatch(value)
    }
    its = commands.Torchrun()
    is_torchrun = commands.starts_torchrun([line])
    command = _command(commands.strip_text(line, "the command", notes, its), notes)
    asked = options.pop("nodes", "")
    nodes = commands.node_count(asked.replace("-", ":"), "--nodes", notes)
    count = tasks = _tasks(options, nodes if asked else 0, notes)
    resources = _resources(options, nodes, 1 if is_torchrun else tasks, notes)
    if is_torchrun:
        count = commands.process_count(its.processes, resources.get("nvidia.com/gpu"), "--nproc-per-node", notes)
        if tasks > 1:
            notes.add("the command", f"starts torchrun, {tasks} times on each node: set processesPerPod", is_edit=True)
    flag = f"{'srun' if _IMAGE in dict(flags) else '#SBATCH'} --{_IMAGE}"
    named = _image(options.pop(_IMAGE, ""), flag, "" if image == IMAGE else image, notes)
    container: dict[str, Any] = {"image": named or IMAGE, "command": command}
    if "$" not in options.get("chdir", "$"):
        container["workingDir"] = options.pop("chdir")
    if resources:
        container["resources"] = {"limits": resources}
    if environment:
        container["env"] = [{"name": name, "value": value} for name, value in environment.items()]
    role = _role(container, nodes, count, notes)
    spec: dict[str, Any] = {"roles": [role if is_torchrun or count == 1 else role | {"launch": "PerProcess"}]}
    if seconds := _seconds(options.pop("time", ""), notes):
        spec["activeDeadlineSeconds"] = seconds
    name = re.sub(r"[^a-z0-9-]+", "-", options.pop("job-name", "job").lower()).strip("-")[:40] or "job"
    for option, value in options.items():
        goes = option in _ALONE or option in _FOR_SLURM.split()
        why = _GOES if goes else _MISSING.get(option, UNKNOWN)
        notes.add(f"--{option}{f'={value}' if value else ''}", why, is_edit=not goes)
    return name, spec


def _role(container: dict[str, Any], nodes: int, count: int, notes: Notes) -> dict[str, Any]:
    if container["image"] == IMAGE:
        notes.add("image", "give the image that has the script (--image)", is_edit=True)
    template = {"spec": {"containers": [{"name": "trainer", **container}]}}
    return pods.role("worker", nodes, Fields(template, "template", Notes()), str(count))


def _directives(text: str, notes: Notes) -> dict[str, str]:
    """Options by their long names: as for sbatch, those before the first command."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            break
        directive = _DIRECTIVE.match(line)
        if directive is None:
            continue
        try:
            words = shlex.split(_COMMENT.sub("", directive["rest"]))
        except ValueError as error:
            raise ConvertError(f"{line:.80}: {error}") from None
        if words and words[0] in _HETEROGENEOUS:
            raise ConvertError(f"#SBATCH {words[0]}: {_SEVERAL}")
        flags, taken = _flags(words)
        found |= flags
        if taken < len(words):
            notes.add(line.strip(), UNKNOWN, is_edit=True)
    return found


def _flags(words: list[str]) -> tuple[list[tuple[str, str]], int]:
    """The options that words begin with, by their long names, and how many words these are."""
    made, at = list[tuple[str, str]](), 0
    while at < len(words) and words[at].startswith("-"):
        word, at = words[at], at + 1
        name, has_value, value = word.removeprefix("--").partition("=")
        if not word.startswith("--"):
            name, has_value, value = _SHORT.get(word[1:2], word[1:2]), word[2:], word[2:]
            if all(_SHORT.get(letter) in _ALONE for letter in word[1:]):
                value = ""
        if not has_value and name not in _ALONE and at < len(words) and not words[at].startswith("-"):
            value, at = words[at], at + 1
        made.append((name, value))
    return made, at


def _body(text: str, notes: Notes) -> tuple[str, dict[str, str]]:
    """The line that starts the program, with the values of the script's variables, and those that it exports."""
    lines = commands.script_lines(text)
    starts = [at for at, line in enumerate(lines) if _START.match(line)]
    if len(starts) != 1:
        shown = "; ".join(f"{lines[at]:.60}" for at in starts)
        there = f"{len(starts)} lines start programs ({shown})" if starts else "no line starts with srun or torchrun"
        raise ConvertError(
            f"{there}: gangctl convert can't tell what runs on each node; leave the one line that trains, and convert "
            "other steps as scripts of their own"
        )
    values, arrays, exported = dict[str, str](), dict[str, list[str]](), set[str]()
    for at, line in enumerate(lines):
        array = commands.array(line) if at < starts[0] else None
        if array is not None and (not array.adds or array.name in arrays):
            values.pop(array.name, None)
            before = arrays[array.name] if array.adds else []
            arrays[array.name] = [*before, *(commands.expand_text(one, values) for one in array.words)]
            continue
        found, rest = commands.split(line)
        words = [one["word"] for one in found]
        pairs = [word.partition("=") for word in words[words[:1] == ["export"] :]]
        sets = bool(pairs) and all(equals and name.isidentifier() for name, equals, _ in pairs)
        if at < starts[0] and sets and not rest:
            exported |= {name for name, _, _ in pairs if words[0] == "export"}
            for name, _, word in pairs:
                values.pop(name, None)
                arrays.pop(name, None)
                value = commands.plain(commands.expand_text(word, values))
                if _OURS.fullmatch(name):
                    notes.add(name, "goes: gangctl sets it for each attempt")
                elif value is not None:
                    values[name] = value
                elif name in exported:
                    notes.add(name, "is not carried over: only a shell can tell its value; set it in env", is_edit=True)
        elif at != starts[0]:
            is_edit = bool(rest) or words[0] not in _PRINTS
            why = (
                "is not carried over: do it in the image, or in the command" if is_edit else "goes: it changes nothing"
            )
            notes.add(line, why, is_edit=is_edit)
    line = commands.expand_arrays(commands.expand_text(lines[starts[0]], values), arrays, notes)
    return line, {name: values[name] for name in values if name in exported}


def _command(text: str, notes: Notes) -> list[str]:
    """The words of a text, or a shell that gets it."""
    words = commands.arguments(text)
    if words == [] or re.search(r"\s:\s", text):
        raise ConvertError(f"srun with a colon: {_SEVERAL}" if text else "srun starts nothing")
    if slurm := sorted(set(re.findall(r"SLURM_\w+", text))):
        notes.add("the command", f"{', '.join(slurm)}: Slurm's variables are not set here", is_edit=True)
    if words is not None:
        return words
    why = "is text for a shell, which gets it as it is in each pod: see that it finds its variables and programs "
    why += "there, and ends with the exit code of yours"
    notes.add("the command", why, is_edit=True)
    return ["bash", "-c", text]


def _number(options: dict[str, str], name: str, notes: Notes) -> int:
    """The number of an option; 0 if there is none."""
    value = options.pop(name, "")
    if value.isdecimal() and int(value):
        return int(value)
    if value:
        notes.add(f"--{name}={value}", "can't be told from here: set the number in the result", is_edit=True)
    return 0


def _tasks(options: dict[str, str], nodes: int, notes: Notes) -> int:
    """Processes on each node. ``nodes``: 0 if their number isn't given."""
    total, each = _number(options, "ntasks", notes), _number(options, "ntasks-per-node", notes)
    made = each or max(total // (nodes or 1), 1)
    is_told = nodes or each or total == 1
    if total and (total != made * (nodes or 1) or not is_told):
        why = f"is not {made} on each of {nodes} nodes, as it became" if nodes else "the number of nodes can't be told"
        notes.add(f"--ntasks={total}", f"{why}: set replicas, processesPerPod and resources", is_edit=True)
    return made


def _resources(options: dict[str, str], nodes: int, tasks: int, notes: Notes) -> dict[str, Any]:
    """A node's share of the devices, processors and memory."""
    made: dict[str, Any] = {}
    devices = 0
    for name, times in (("gpus-per-node", nodes), ("gres", nodes), ("gpus-per-task", nodes * tasks), ("gpus", 1)):
        for asked in filter(None, _PARTS.split(options.pop(name, ""))):
            found = (_GRES if name == "gres" else _GPUS).fullmatch(asked)
            number = int(found[1] or 1) * times if found else 0
            if found and name != "gpus" and not devices:
                devices = number
                made["nvidia.com/gpu"] = number // nodes
            elif not found or number != devices:
                notes.add(f"--{name}={asked}", _OF_ALL_NODES if name == "gpus" else _OF_A_NODE, is_edit=True)
    if processors := _number(options, "cpus-per-task", notes):
        made["cpu"] = processors * tasks
    memory = options.pop("mem", "")
    found = re.fullmatch(r"(\d+)([KMGT]?)B?", memory, re.IGNORECASE)
    if found is not None and int(found[1]):
        made["memory"] = f"{found[1]}{(found[2] or 'M').upper()}i"
    elif memory not in {"", "0"}:
        notes.add(f"--mem={memory}", "is not carried over: set memory in the template", is_edit=True)
    return made


def _seconds(text: str, notes: Notes) -> int:
    """Slurm's time: minutes, minutes:seconds, hours:minutes:seconds, days-hours[:minutes[:seconds]]."""
    days, dash, rest = text.rpartition("-")
    parts = rest.split(":")
    if not all(part.isdecimal() for part in parts) or (dash and not days.isdecimal()):
        if text and text.upper() not in {"UNLIMITED", "INFINITE"}:
            notes.add(f"--time={text}", "isn't a time that can be read here: set activeDeadlineSeconds", is_edit=True)
        return 0
    numbers = [int(part) for part in parts]
    if dash:
        hours, minutes, seconds = (*numbers, 0, 0)[:3]
        return ((int(days) * 24 + hours) * 60 + minutes) * 60 + seconds
    if len(numbers) == 1:
        return numbers[0] * 60
    hours, minutes, seconds = (0, *numbers)[-3:]
    return (hours * 60 + minutes) * 60 + seconds


def _image(given: str, flag: str, instead: str, notes: Notes) -> str:
    """The image as Kubernetes names it; empty if there is none.

    Args:
        given: as pyxis and enroot name it, ``[docker://][USER@][REGISTRY#]IMAGE[:TAG]``; empty = not at all.
        flag: the option that names it, for the notes.
        instead: the image that the user names in the call of gangctl convert; empty = none.
        notes: get what becomes of it.
    """
    path = f"{flag}={given}"
    if not given or instead:
        if given:
            notes.add(path, f"goes: --image names {instead}")
        return instead
    if given.startswith(("/", "./", "../", "~", "$")) or given.endswith(".sqsh"):
        notes.add(path, "is a file of enroot: push it to a registry as an image, and name that (--image)", is_edit=True)
        return ""
    name = given.removeprefix("docker://").rpartition("@")[2] if "@sha256:" not in given else given
    name = name.removeprefix("docker://").replace("#", "/", 1)
    notes.add(path, f"became the image {name}")
    return name
