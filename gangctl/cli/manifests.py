"""Load manifests from files. Errors have the path of the field, what was found and what is allowed."""

import argparse
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from gangctl.api.gangjob import GangJob
from gangctl.api.manifest import ManifestError, load_gangjob, load_gangjobs
from gangctl.api.overrides import Override, parse_override
from gangctl.api.pod_fields import release, unknown_fields
from gangctl.api.problems import path_of
from gangctl.cli.command_name import command_name
from gangctl.cli.errors import UserError

_SCRIPTS = (".py", ".sh")


def configure_overrides(parser: argparse.ArgumentParser) -> None:
    """Add --set."""
    parser.add_argument(
        "--set",
        metavar="PATH=VALUE",
        dest="overrides",
        type=_override,
        action="append",
        default=[],
        help="set a field of the manifest, such as spec.roles[0].replicas=2; a list or a map is given in YAML. Can be "
        "repeated; the file is unchanged",
    )


def _override(text: str) -> Override:
    try:
        return parse_override(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def load_manifest(name: str) -> GangJob:
    """The GangJob in a file; ``-`` is stdin. UserError if it can't be read, or isn't a valid GangJob."""
    try:
        return load_gangjob(manifest_text(name), shown_name(name))
    except ManifestError as error:
        raise UserError(str(error)) from None


def load_manifests(name: str, overrides: Sequence[Override]) -> tuple[GangJob, ...]:
    """All GangJobs in a file, at least one; else as :func:`load_manifest`."""
    try:
        return load_gangjobs(manifest_text(name), shown_name(name), overrides)
    except ManifestError as error:
        raise UserError(str(error)) from None


def unknown_field_texts(job: GangJob) -> Iterator[str]:
    """Fields of the pod templates that Kubernetes doesn't have, as far as this release knows, as messages."""
    for at, role in enumerate(job.spec.roles):
        for one in unknown_fields(role.template.written, ("spec", "roles", at, "template")):
            path = path_of(one.location)
            yield f"{path} isn't a field of Kubernetes {release()}: a cluster that doesn't know it ignores it"


def shown_name(name: str) -> str:
    """The name of the file in messages."""
    return "stdin" if name == "-" else name


def manifest_text(name: str) -> str:
    """The text of a file; ``-`` is stdin. UserError if it can't be read, or is a script."""
    try:
        content = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
        if name.endswith(_SCRIPTS):
            raise UserError(
                f"{name} is a script, and a manifest is needed: {command_name()} init {shlex.quote(name)} writes one "
                "for it"
            )
        return content.decode("utf-8-sig")
    except FileNotFoundError:
        raise UserError(f"{name} doesn't exist; give the path of a GangJob manifest in YAML") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{name} isn't text in UTF-8: byte {error.start} is {error.object[error.start]:#04x}") from None
    except (OSError, ValueError) as error:
        raise UserError(f"{name} can't be read: {getattr(error, 'strerror', None) or error}") from None
