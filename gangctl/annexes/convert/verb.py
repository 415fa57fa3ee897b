"""``gangctl convert``: print the GangJobs for what another tool submits, and what isn't carried over."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import yaml

from gangctl.annexes.convert import converter
from gangctl.annexes.convert.converter import Converted
from gangctl.annexes.convert.fields import ConvertError
from gangctl.api.manifest import ManifestError, load_gangjob
from gangctl.api.model import escaped
from gangctl.api.yaml_documents import MAX_BYTES, Dumper, UnreadableError, read, unpacked
from gangctl.cli.errors import ExitCode, UserError

_SHOWN_KINDS = 5
_STARTERS = ("torchrun", "python", "python3")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.usage = "%(prog)s [--name NAME] [--image IMAGE] [-o yaml|json] (FILE | -- torchrun ARGUMENT ...)"
    parser.add_argument(
        "words",
        metavar="FILE",
        nargs="*",
        help=f"a manifest with {', '.join(converter.KINDS[:-1])} or {converter.KINDS[-1]}, or a script for sbatch; - "
        "is stdin. Or, after --, a line that starts torchrun",
    )
    parser.add_argument("--name", default="", help="name of the GangJob, for lines and scripts (default: train)")
    parser.add_argument("--image", default="", help="image with the script, for lines and scripts")
    parser.add_argument("-o", "--output", choices=("yaml", "json"), default="yaml")
    parser.epilog = """\
examples:
  gangctl convert jobset.yaml > gang.yaml             standard error has what isn't carried over
  gangctl convert job.yaml | kubectl apply -f -
  gangctl convert --image registry.example/train job.sbatch
  gangctl convert --image registry.example/train -- torchrun --nnodes 4 --nproc-per-node 8 train.py

Documents of other kinds in a file are printed as they are. Exit codes: 0; 1 if the result must be edited first (lines
that begin with "edit"); 2 if nothing could be converted.
"""


def run(arguments: argparse.Namespace) -> int:
    """Print the GangJobs, and what isn't carried over."""
    words: list[str] = arguments.words
    if not words:
        raise UserError("give a file, or -- and a line that starts torchrun; gangctl convert --help has examples")
    try:
        if words[0].rpartition("/")[2] in _STARTERS:
            made: list[Converted | Any] = [converter.of_torchrun(words, arguments.name, arguments.image)]
        elif len(words) > 1:
            given = f"{' '.join(words):.60}: the line must start torchrun (gangctl convert -- torchrun ...)"
            raise UserError(f"{given}; of files, give one file at a time")
        else:
            made = _of_file(words[0], arguments.name, arguments.image)
    except ConvertError as error:
        raise UserError(str(error)) from None
    documents = [one.document if isinstance(one, Converted) else one for one in made]
    sys.stdout.write(_shown(documents, arguments.output))
    sys.stdout.flush()
    codes = [_said(one) for one in made if isinstance(one, Converted)]
    return max(codes)


def _of_file(name: str, gang: str, image: str) -> list[Converted | Any]:
    text = _text(name)
    if "#SBATCH" in text:
        return [converter.of_sbatch(text, gang, image)]
    try:
        found = unpacked(read(text))
    except UnreadableError as error:
        raise UserError(f"{name}{f':{error.line}' if error.line else ''}: {error}") from None
    for flaw in (flaw for one in found for flaw in one.flaws):
        path = ".".join(map(str, flaw.location)) or "the document"
        raise UserError(f"{name}: {path}: there is {flaw.found}, and {flaw.expected} was expected")
    documents = [one.value for one in found]
    if not any(map(converter.is_convertible, documents)):
        kinds = [str(one.get("kind")) for one in documents if isinstance(one, dict)][:_SHOWN_KINDS]
        there = f"there is {', '.join(kinds)}" if kinds else "there is no manifest"
        raise UserError(f"{name}: {there}; gangctl convert reads {', '.join(converter.KINDS)}, and scripts for sbatch")
    return [converter.of_document(one) if converter.is_convertible(one) else one for one in documents]


def _text(name: str) -> str:
    try:
        content = sys.stdin.buffer.read(MAX_BYTES + 1) if name == "-" else Path(name).read_bytes()
        return content.decode("utf-8-sig")
    except FileNotFoundError:
        raise UserError(
            f"{name} doesn't exist; a command line comes after --: gangctl convert -- torchrun ..."
        ) from None
    except UnicodeDecodeError as error:
        raise UserError(f"{name} isn't text in UTF-8: byte {error.start} is {error.object[error.start]:#04x}") from None
    except OSError as error:
        raise UserError(f"{name} can't be read: {error.strerror or error}") from None


def _shown(documents: list[Any], output: str) -> str:
    if output == "json":
        return "".join(f"{json.dumps(one, indent=2)}\n" for one in documents)
    return "---\n".join(
        yaml.dump(one, Dumper=Dumper, sort_keys=False, default_flow_style=None, width=120, allow_unicode=True)
        for one in documents
    )


def _said(made: Converted) -> int:
    """Print the notes of one; returns its exit code."""
    for note in made.notes:
        sys.stderr.write(f"{'edit' if note.is_edit else 'note'}: {escaped(str(note))}\n")
    if made.needs_edit:
        return ExitCode.FAILED
    try:
        load_gangjob(json.dumps(made.document), "the result")
    except ManifestError as error:
        for line in str(error).splitlines():
            sys.stderr.write(f"edit: {escaped(line)}\n")
        return ExitCode.FAILED
    return ExitCode.OK
