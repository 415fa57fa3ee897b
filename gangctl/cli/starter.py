"""Write the commented manifest of a training script."""

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

import yaml

from gangctl.api.names import LABEL_CANARY
from gangctl.cli.local.disk_checkpoints import CheckpointFolder
from gangctl.cli.printers.text import clean

_PLAIN: Final = re.compile(r"[A-Za-z_./][A-Za-z0-9_./=+-]*")
_WORDS: Final = frozenset({"y", "n"})
"""Words that kubectl, but not PyYAML, reads as a boolean."""
_DOCS: Final = "https://gangctl.github.io/gangctl"


class Framework(StrEnum):
    """The way in which the processes of a script find each other."""

    TORCHRUN = "torchrun"
    JAX = "jax"
    SCRIPT = "script"


@dataclass(frozen=True, slots=True, kw_only=True)
class Starter:
    """The facts that a manifest is written from."""

    name: str
    command: tuple[str, ...]
    framework: Framework
    members: int
    processes: int
    """In each member."""
    image: str
    checkpoints: CheckpointFolder | None
    unnumbered: str = ""
    """A file that looks like a checkpoint without a step in its name, if there are no others."""
    elsewhere: str = ""
    """A folder with checkpoints that may be those of another script."""
    directory: str
    """Where checkpoints are or will be, as it is written into the manifest."""
    filename: str
    canary: Mapping[str, str] = field(default_factory=dict)
    """Labels of the only nodes on which it runs, to find out whether they are good; none = any nodes."""
    work: str = ""
    """What gangs have in common that do the same work: a value of a label."""
    replicas: int = 1
    """How many gangs there are: several are a replica group."""


def starter_manifest(starter: Starter) -> str:
    """The text of the manifest; of a replica group with a document for each gang."""
    file = clean(shlex.quote(starter.filename))
    linked = """\
# Each GangJob is a replica group of torchft, and restarts alone. Workers get REPLICA_GROUP_ID and NUM_REPLICA_GROUPS.
# Here, start the Lighthouse in another terminal (torchft_lighthouse --min_replicas 1), and set TORCHFT_LIGHTHOUSE to
# http://localhost:29510; for a cluster, examples/frameworks/torchft.yaml has one with its Services.
"""
    documents = "---\n".join(_gangjob(starter, at) for at in range(starter.replicas))
    return f"""\
# Written by gangctl init; it is yours to edit. All fields: {_DOCS}/reference/gangjob/
#
#   gangctl check {file}        what it will do, without running it
#   gangctl run {file} --logs   run it on this machine; Ctrl-C ends it
#   kubectl apply -f {file}     on a cluster; set the image and a volume for checkpoints first
{linked if starter.replicas > 1 else ""}\
{documents}"""


def _gangjob(starter: Starter, replica: int) -> str:
    return f"""\
apiVersion: gangctl.io/v1alpha1
kind: GangJob
metadata: {_metadata(starter, replica)}
spec:
{_replica_group(starter, replica)}\
{_checkpoint(starter)}\
{_FIXED}\
  roles:
  - name: worker
    replicas: {starter.members:<25} # members, one pod each: all run together, or none does
{_least(starter)}\
{_launch(starter)}\
    template:                           # the pod template of a Job
      spec:
{_node_selector(starter)}\
        containers:
        - name: main
          image: {_quoted(starter.image)}
          # On this machine the image isn't used: the command runs in the folder where you call gangctl run.
          command: [{", ".join(map(_quoted, starter.command))}]
          # resources: {{limits: {{nvidia.com/gpu: 1}}}}   # on a cluster; no effect on this machine
"""


def _metadata(starter: Starter, replica: int) -> str:
    labels = f", labels: {{{LABEL_CANARY}: {_quoted(starter.work)}}}" if starter.canary else ""
    name = starter.name if starter.replicas == 1 else f"{starter.name}-{replica}"
    return f"{{name: {_quoted(name)}{labels}}}"


def _replica_group(starter: Starter, replica: int) -> str:
    if starter.replicas == 1:
        return ""
    name, count = _quoted(starter.name), starter.replicas
    return f"""\
  replicaGroup: {{name: {name}, index: {replica}, count: {count}}}
  # It takes minCount: {count}, to start together, and a budget as below for all of them together.
"""


def _node_selector(starter: Starter) -> str:
    if not starter.canary:
        return ""
    chosen = ", ".join(f"{_quoted(key)}: {_quoted(value)}" for key, value in starter.canary.items())
    return f"""\
        # gangctl gate --gangs {LABEL_CANARY}={starter.work} compares it with the same work on other nodes.
        nodeSelector: {{{chosen}}}
"""


_FIXED: Final = """\
  recovery:
    stopGracePeriodSeconds: 3           # from SIGTERM to SIGKILL after a fault: keep it short
    budget: {type: Windowed, maxRestarts: 10, windowSeconds: 3600}   # more restarts in an hour end the gang
  # podFailurePolicy:                   # what exit codes mean; without rules every failure restarts the gang
  #   rules:
  #   - {name: bad-config, action: FailJob, onExitCodes: {operator: In, values: [78]}}
  # progress:                           # finds hangs, and counts what a restart loses
  #   source: {type: Log, pattern: 'step (?P<step>[0-9]+)'}   # if the script prints its steps
  #   timeoutSeconds: 600
"""


def _checkpoint(starter: Starter) -> str:
    found = starter.checkpoints
    tier = _tier(starter.directory, found)
    if found is not None and found.newest is not None:
        return f"""\
  # Found in {clean(starter.directory)}: {found.count} complete, the newest is step {found.newest.step}.
  # Each attempt gets what to load: $GANG_RESTORE_PATH, of step $GANG_RESTORE_STEP. If they are not set, it starts
  # from the beginning.
{tier}"""
    there = "" if found is None else f"  # {clean(found.directory.name)} has {clean(found.pattern)}, {found.doubt}.\n"
    if starter.elsewhere:
        there = f"  # {clean(starter.elsewhere)} has checkpoints, but the script doesn't name it: is it the script's?\n"
    if starter.unnumbered:
        there = f"""\
  # {clean(starter.unnumbered)} has no step in its name: the script has to load it by itself in each attempt.
  # Of checkpoints with steps, gangctl chooses the newest that all ranks have.
"""
    return f"""\
  # Uncomment this when the script writes checkpoints. Each attempt then gets what to load: $GANG_RESTORE_PATH, of
  # step $GANG_RESTORE_STEP. {_DOCS}/tasks/make-a-framework-restartable/
{there}{"".join(f"  # {line[2:]}" for line in tier.splitlines(keepends=True))}"""


def _tier(directory: str, found: CheckpointFolder | None) -> str:
    return f"""\
  checkpoint:
    tiers:
    - name: shared
      scope: Shared                     # every member reads it; on a cluster: a volume that all pods mount
      # reshardable: true               # if any number of ranks can load what others have written
      source:
        type: Directory
        directory: {_quoted(directory)}
{_layout(found)}"""


def _layout(found: CheckpointFolder | None) -> str:
    if found is not None and found.layout != "Pattern":
        return f"        layout: {found.layout}\n"
    pattern = "step-{step}" if found is None else found.pattern
    layout = f"""\
        layout: Pattern                 # or TorchDCP, HuggingFace, Lightning, Megatron, Orbax
        pattern: {_quoted(pattern)}
"""
    if found is not None and not found.complete and found.is_file:
        return (
            f"{layout}        # Each step is one file: write it under another name, and rename it when it is whole.\n"
        )
    complete = "DONE" if found is None or not found.complete else found.complete
    return f"{layout}        complete: {_quoted(complete):<21} # the file that is written last: it makes a step count\n"


def _least(starter: Starter) -> str:
    if starter.members == 1:
        return ""
    least = f"# minReplicas: {starter.members - 1}"
    return f"    {least:<35} # goes on with so many if need be, and grows; needs reshardable: true\n"


def _launch(starter: Starter) -> str:
    each = "    launch: PerProcess                  # the command is started once for each process\n"
    count = f"    processesPerPod: {starter.processes:<18} # "
    match starter.framework:
        case Framework.TORCHRUN:
            how = "    launch: Torchrun                    # torchrun starts the processes, with gangctl's PET_*\n"
            return f"{how}{count}torchrun's --nproc-per-node\n"
        case Framework.JAX:
            how = "    # Import gangclient.jax in the script; then jax.distributed.initialize() needs no argument.\n"
            return f"{how}{each if starter.processes > 1 else ''}{count}in each member\n"
        case Framework.SCRIPT:
            how = "    # Each process gets RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT; gangctl check shows them.\n"
            return f"{how}{each}{count}in each member\n" if starter.processes > 1 else how


def _quoted(text: str) -> str:
    """The text as a YAML scalar: as it is where that is plain, otherwise in quotes."""
    plain = _PLAIN.fullmatch(text) is not None and text.lower() not in _WORDS
    return text if plain and yaml.safe_load(text) == text else json.dumps(text)


def relative(path: Path, folder: Path) -> str:
    """The path as it is written into a manifest."""
    inside = path.is_relative_to(folder)
    return str(path.relative_to(folder)) if inside else str(path)
