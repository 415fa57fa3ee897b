"""Documents of other tools in, a GangJob and notes out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from gangctl.api.version import API_VERSION, KIND
from gangctl.convert import jobs, kubeflow, lines
from gangctl.convert.fields import ConvertError, Fields, Note, Notes

LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_SPECS: Final[Mapping[tuple[str, str], Callable[[Fields], dict[str, Any]]]] = {
    ("batch", "Job"): jobs.of_job,
    ("kubeflow.org", "PyTorchJob"): kubeflow.of_pytorchjob,
    ("trainer.kubeflow.org", "TrainJob"): kubeflow.of_trainjob,
}
JOBSET: Final = ("jobset.x-k8s.io", "JobSet")
KINDS: Final = (*(kind for _, kind in _SPECS), JOBSET[1])


@dataclass(frozen=True)
class Converted:
    """A GangJob, and what is to be said of it."""

    document: dict[str, Any]
    notes: tuple[Note, ...]

    @property
    def needs_edit(self) -> bool:
        """Whether it can't be used as it is."""
        return any(note.is_edit for note in self.notes)


def is_convertible(document: Any) -> bool:
    """Whether it is of a kind that can be converted."""
    return isinstance(document, Mapping) and _key(document) in {*_SPECS, JOBSET}


def of_document(document: Mapping[str, Any]) -> Converted:
    """A GangJob, of a document of another kind.

    Raises:
        ConvertError: it is no such document.
    """
    notes = Notes()
    whole = Fields(document, "", notes)
    kind = _key(document)
    for field in ("apiVersion", "kind", "status"):
        whole.take(field)
    metadata = dict(whole.take("metadata") or {})
    spec = whole.map("spec")
    annotations = {name: one for name, one in (metadata.get("annotations") or {}).items() if name != LAST_APPLIED}
    if kind == JOBSET:
        made = jobs.of_jobset(spec, annotations)
    elif kind in _SPECS:
        made = _SPECS[kind](spec)
    else:
        raise ConvertError(f"kind {kind[1] or 'unknown'}: gangctl convert reads {', '.join(KINDS)}")
    whole.finish()
    kept = {name: metadata[name] for name in ("name", "namespace", "labels") if metadata.get(name)}
    if "name" not in kept and metadata.get("generateName"):
        kept["name"] = str(metadata["generateName"]).rstrip("-")
        notes.add("metadata.generateName", f"became the name {kept['name']}")
    return _converted(kept | ({"annotations": annotations} if annotations else {}), made, notes)


def of_torchrun(words: list[str], name: str, image: str) -> Converted:
    """A GangJob, of a line that starts torchrun.

    Raises:
        ConvertError: it is no such line.
    """
    notes = Notes()
    return _converted({"name": name or "train"}, lines.of_torchrun(words, image or lines.IMAGE, notes), notes)


def of_sbatch(text: str, name: str, image: str) -> Converted:
    """A GangJob, of a script for sbatch.

    Raises:
        ConvertError: it is no such script.
    """
    notes = Notes()
    found, spec = lines.of_sbatch(text, image or lines.IMAGE, notes)
    return _converted({"name": name or found}, spec, notes)


def _converted(metadata: dict[str, Any], spec: dict[str, Any], notes: Notes) -> Converted:
    notes.add(
        "spec.checkpoint",
        "is new: name the directory of your checkpoints (tiers), and all ranks restore the same complete step",
    )
    document = {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": spec}
    return Converted(document, tuple(notes))


def _key(document: Mapping[str, Any]) -> tuple[str, str]:
    group, _, _ = str(document.get("apiVersion", "")).rpartition("/")
    return group, str(document.get("kind", ""))
