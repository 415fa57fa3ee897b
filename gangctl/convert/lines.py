"""Command lines of torchrun, and scripts for sbatch."""

from __future__ import annotations

import re
import shlex
from typing import Any, Final

from gangctl.convert import pods, pyxis, torchrun
from gangctl.convert.fields import ConvertError, Fields, Notes

IMAGE: Final = "IMAGE"
_DIRECTIVE: Final = re.compile(r"^#SBATCH\s+(?P<rest>.*)$")
_SHORT: Final = {
    "J": "job-name",
    "N": "nodes",
    "n": "ntasks",
    "c": "cpus-per-task",
    "t": "time",
    "G": "gpus",
    "p": "partition",
    "A": "account",
    "o": "output",
    "e": "error",
    "a": "array",
    "w": "nodelist",
    "x": "exclude",
    "q": "qos",
    "C": "constraint",
    "D": "chdir",
}
_GONE: Final = {
    "output": "goes: gangctl logs prints what workers write",
    "error": "goes: gangctl logs prints what workers write",
    "partition": "is not carried over: select nodes with nodeSelector, or a queue (kueue.x-k8s.io/queue-name)",
    "account": "is not carried over: quota is that of the namespace, or of a queue of Kueue",
    "qos": "is not carried over: set priorityClassName in the template",
    "exclusive": "is not carried over: ask for all devices of a node",
    "nodelist": "is not carried over: use nodeSelector or affinity in the template",
    "exclude": "is not carried over: use affinity in the template",
    "constraint": "is not carried over: use nodeSelector in the template",
    "array": "is not carried over: submit one GangJob for each index",
    "dependency": "is not carried over: submit it when the other has finished (kubectl wait)",
    "requeue": "goes: gangctl restarts the gang in place",
    "no-requeue": "goes: spec.recovery.budget.maxRestarts: 0 ends the gang with its first fault",
    "signal": "goes: workers get SIGTERM, and recovery.plannedStopGracePeriodSeconds for planned stops",
    "open-mode": "goes: gangctl logs prints what workers write",
    "mail-type": "is not carried over: alert on gangctl's metrics",
    "mail-user": "is not carried over: alert on gangctl's metrics",
}
_SRUN_ALONE: Final = frozenset(
    {"-l", "-u", "-O", "-s", "-K", "-k", "-v", "-Q", "-E", "-X", "-Z", "--label", "--unbuffered", "--overcommit"}
    | {"--oversubscribe", "--kill-on-bad-exit", "--no-kill", "--verbose", "--quiet", "--preserve-env", "--pty"}
    | {"--disable-status", "--exclusive", "--exact", "--overlap", "--contiguous", "--spread-job", "--use-min-nodes"}
    | {"--multi-prog", "--propagate", "--resv-ports", "--container-mount-home", "--no-container-mount-home"}
    | {"--container-writable", "--container-readonly", "--container-remap-root", "--no-container-remap-root"}
    | {"--container-entrypoint", "--no-container-entrypoint", "--no-allocate"}
)
"""Flags of srun, and of its plugin for containers, that have no value, or one after = only."""
_RENDEZVOUS: Final = re.compile(r"^(?:export\s+)?(?P<name>" + "|".join(pods.RENDEZVOUS) + r")=")
_OPERATOR: Final = re.compile(r"[|&;<>]+|\d?>+\S*")
_EXPORT: Final = re.compile(r"^export\s+(?P<pairs>[A-Za-z_]\w*=[^$`;&|<>()]*)$")
_COMMENTED: Final = re.compile(r"""((?:"(?:\\.|[^"\\])*"|'[^']*'|\\.|[^\s"'\\]|\s(?!#))*)\s#.*""")
"""A line with a comment, and what is before it."""
_VARIABLE: Final = re.compile(r"\$\{?([A-Za-z_]\w*)")
_BY_SHELL: Final = re.compile(r"\$[A-Za-z_{(]|`")
_THERE: Final = pods.RENDEZVOUS | {"HOME", "PATH", "PWD", "HOSTNAME", "RANDOM"}
_UNSET: Final = "set only by the script, if at all: set it in env"
_HETEROGENEOUS: Final = ("hetjob", "packjob")
_SEVERAL: Final = "a job of several components: convert each as a script of its own, and make them roles of one GangJob"


def of_torchrun(words: list[str], image: str, notes: Notes) -> dict[str, Any]:
    """The spec of a GangJob that runs this line.

    Raises:
        ConvertError: it doesn't start torchrun.
    """
    if not torchrun.starts_torchrun(words):
        raise ConvertError(
            f"{words[0] if words else 'nothing'}: the line must start torchrun (gangctl convert -- torchrun ...)"
        )
    command, said = torchrun.strip(words, "the command", notes)
    made = _role(command, image, torchrun.nodes(said.nodes, "--nnodes", notes) or 1, said.processes, notes)
    return {"roles": [made]}


def of_sbatch(text: str, image: str, notes: Notes) -> tuple[str, dict[str, Any]]:
    """The name and the spec of a GangJob that does what this script does.

    Raises:
        ConvertError: no line of it starts a program on the nodes.
    """
    options, body = _read(text)
    command, environment, of_srun = _body(body, notes)
    if not command:
        raise ConvertError("no line starts with srun or torchrun: gangctl convert can't tell what runs on each node")
    said = None
    if torchrun.starts_torchrun(command):
        command, said = torchrun.strip(command, "the command", notes)
    command = _in_shell(command, {one["name"] for one in environment}, notes)
    nodes = torchrun.nodes(options.pop("nodes", "").replace("-", ":"), "#SBATCH --nodes", notes) or 1
    total = options.pop("ntasks", "")
    tasks = options.pop("ntasks-per-node", "") or _per_node(total, nodes)
    resources = _resources(options, notes, int(tasks) if said is None and tasks.isdecimal() else 1)
    gpus = resources.get("nvidia.com/gpu")
    processes = "" if said is None else said.processes
    if gpus and said is not None and not processes.isdecimal():
        processes = str(gpus)
    of_job, named = options.pop(pyxis.OPTION, ""), "" if image == IMAGE else image
    flag = f"srun --{pyxis.OPTION}" if of_srun else f"#SBATCH --{pyxis.OPTION}"
    image = pyxis.image(of_srun or of_job, flag, named, notes) or IMAGE
    role = _role(command, image, nodes, processes, notes)
    container = role["template"]["spec"]["containers"][0]
    if said is None and tasks.isdecimal() and int(tasks) > 1:
        role |= {"launch": "PerProcess", "processesPerPod": int(tasks)}
    if resources:
        container["resources"] = {"limits": resources}
    if environment:
        container["env"] = environment
    spec: dict[str, Any] = {"roles": [role]}
    seconds = _seconds(options.pop("time", ""))
    if seconds:
        spec["activeDeadlineSeconds"] = seconds
    name = re.sub(r"[^a-z0-9-]+", "-", options.pop("job-name", "job").lower()).strip("-")[:40] or "job"
    for option, value in options.items():
        why = _GONE.get(option, "is not known to gangctl convert, and is not carried over")
        notes.add(f"#SBATCH --{option}{f'={value}' if value else ''}", why)
    return name, spec


def _role(command: list[str], image: str, nodes: int, processes: str, notes: Notes) -> dict[str, Any]:
    if image == IMAGE:
        notes.add("image", "give the image that has the script (--image)", is_edit=True)
    container = {"name": "trainer", "image": image, "command": command}
    template = Fields({"spec": {"containers": [container]}}, "template", notes)
    return pods.role("worker", nodes, template, processes)


def _read(text: str) -> tuple[dict[str, str], list[str]]:
    """Options by their long names, and the lines of the script."""
    options: dict[str, str] = {}
    body: list[str] = []
    for line in re.sub(r"\\\r?\n", " ", text).splitlines():
        found = _DIRECTIVE.match(line)
        if found is None:
            if line.strip() and not line.lstrip().startswith("#"):
                body.append(line.strip())
            continue
        words = _words(found["rest"])
        if words and words[0] in _HETEROGENEOUS:
            raise ConvertError(f"#SBATCH {words[0]}: {_SEVERAL}")
        while words:
            word = words.pop(0)
            name, equals, value = word.lstrip("-").partition("=")
            if not word.startswith("--"):
                name, value = _SHORT.get(word[1:2], word[1:]), word[2:]
            if not value and not equals and words and not words[0].startswith("-"):
                value = words.pop(0)
            options[name] = value
    return options, body


def _body(lines: list[str], notes: Notes) -> tuple[list[str], list[dict[str, str]], str]:
    """The command, its variables, and the image that srun names."""
    command: list[str] = []
    image = ""
    environment: list[dict[str, str]] = []
    for line in lines:
        exported = _EXPORT.match(line)
        if _RENDEZVOUS.match(line):
            notes.add(line, "goes: gangctl sets it for each attempt")
        elif not command and re.match(r"(srun|torchrun|python3?\s+-m\s+torch\.distributed)\b", line):
            command, image = _started(_words(line), notes)
        elif exported is not None:
            pairs = [word.partition("=") for word in _words(exported["pairs"])]
            environment += [{"name": name, "value": value} for name, equals, value in pairs if equals]
        else:
            notes.add(line, "is not carried over: do it in the image, or in the command")
    return command, environment, image


def _started(words: list[str], notes: Notes) -> tuple[list[str], str]:
    """What srun starts, and in which image."""
    if words[0] != "srun":
        return words, ""
    words, image = words[1:], ""
    while words and words[0].startswith("-"):
        flag = words.pop(0)
        is_whole = "=" in flag or flag in _SRUN_ALONE or (not flag.startswith("--") and len(flag) > len("-n"))
        if not is_whole and words and not words[0].startswith("-"):
            flag += f" {words.pop(0)}"
        name, _, value = flag.replace(" ", "=", 1).partition("=")
        if name == f"--{pyxis.OPTION}":
            image = value
            continue
        otherwise = "goes: each member starts the command once for each of its processes"
        notes.add(f"srun {flag}", pyxis.SRUN.get(name, otherwise))
    if ":" in words:
        raise ConvertError(f"srun with a colon: {_SEVERAL}")
    return words, image


def _in_shell(words: list[str], known: set[str], notes: Notes) -> list[str]:
    """What only a shell can do is left to one; variables that are not set are named."""
    used = {name for word in words for name in _VARIABLE.findall(word)}
    slurm = {name for name in used if name.startswith("SLURM_")}
    for unset, why in ((slurm, "Slurm's variables are not set here"), (used - slurm - known - _THERE, _UNSET)):
        if unset:
            notes.add("the command", f"{', '.join(sorted(unset))}: {why}", is_edit=True)
    if not any(_OPERATOR.fullmatch(word) or _BY_SHELL.search(word) for word in words):
        return words
    return ["bash", "-c", " ".join(map(_quoted, words))]


def _quoted(word: str) -> str:
    if _OPERATOR.fullmatch(word):
        return word
    if not _BY_SHELL.search(word):
        return shlex.quote(word)
    inside = re.sub(r'(["\\])', r"\\\1", word)
    return f'"{inside}"'


def _words(line: str) -> list[str]:
    commented = _COMMENTED.fullmatch(line)
    try:
        return shlex.split(line if commented is None else commented[1])
    except ValueError as error:
        raise ConvertError(f"{line[:80]}: {error}") from None


def _per_node(tasks: str, nodes: int) -> str:
    return str(int(tasks) // nodes) if tasks.isdecimal() and int(tasks) >= nodes else ""


def _resources(options: dict[str, str], notes: Notes, tasks: int) -> dict[str, Any]:
    """What a node's share of the devices, processors and memory is."""
    made: dict[str, Any] = {}
    gres, per_node = options.pop("gres", ""), options.pop("gpus-per-node", "")
    per_task, every = options.pop("gpus-per-task", ""), options.pop("gpus", "")
    asked = re.search(r"\bgpu(?::[^:,(]*[A-Za-z][^:,(]*)?(?::(\d+))?(?=[,(]|$)", gres)
    of_gres = "" if asked is None else asked[1] or "1"
    number = (per_node or of_gres or per_task).rpartition(":")[2]
    if number.isdecimal():
        made["nvidia.com/gpu"] = int(number) * (tasks if per_task and not per_node and not of_gres else 1)
    elif gres:
        notes.add(f"#SBATCH --gres={gres}", "is not carried over: set the resources of the container")
    elif every:
        notes.add(f"#SBATCH --gpus={every}", "is for all nodes together: set nvidia.com/gpu of one pod", is_edit=True)
    processors = options.pop("cpus-per-task", "")
    if processors.isdecimal():
        made["cpu"] = int(processors) * tasks
    memory = options.pop("mem", "")
    found = re.fullmatch(r"(\d+)([KMGT]?)B?", memory, re.IGNORECASE)
    if found is not None and int(found[1]):
        made["memory"] = f"{found[1]}{(found[2] or 'M').upper()}i"
    elif memory not in {"", "0"}:
        notes.add(f"#SBATCH --mem={memory}", "is not carried over: set memory in the template")
    return made


def _seconds(text: str) -> int:
    """Slurm's time: minutes, minutes:seconds, hours:minutes:seconds, days-hours[:minutes[:seconds]]."""
    days, dash, rest = text.rpartition("-")
    parts = rest.split(":")
    if not all(part.isdecimal() for part in parts) or (dash and not days.isdecimal()):
        return 0
    numbers = [int(part) for part in parts]
    if dash:
        hours, minutes, seconds = (*numbers, 0, 0)[:3]
        return ((int(days) * 24 + hours) * 60 + minutes) * 60 + seconds
    if len(numbers) == 1:
        return numbers[0] * 60
    hours, minutes, seconds = (0, *numbers)[-3:]
    return (hours * 60 + minutes) * 60 + seconds
