"""Convert a document or a command line by its kind. Pure: documents or words in, a GangJob and notes out."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from gangctl.annexes.convert import jobs, lines, pods
from gangctl.annexes.convert.fields import ConvertError, Fields, Note, Notes
from gangctl.api.names import API_VERSION, KIND

_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_SPECS: Final[Mapping[tuple[str, str], Callable[[Fields], dict[str, Any]]]] = {
    ("batch", "Job"): jobs.of_job,
    ("kubeflow.org", "PyTorchJob"): jobs.of_pytorchjob,
    ("trainer.kubeflow.org", "TrainJob"): jobs.of_trainjob,
}
_QUEUE: Final = "kueue.x-k8s.io/queue-name"
_JOBSET: Final = ("jobset.x-k8s.io", "JobSet")
_BY_GANGCTL: Final = "spec.managedBy: gangctl.io/jobset-controller"
_AS_THEY_ARE: Final[Mapping[tuple[str, str], str]] = {
    _JOBSET: f"add {_BY_GANGCTL}, and gangctl runs it",
    ("trainer.kubeflow.org", "TrainJob"): f"add {_BY_GANGCTL} to the JobSet of its runtime, and gangctl runs it",
}
"""What a platform can do in place of a conversion."""
KINDS: Final = (*(kind for _, kind in _SPECS), _JOBSET[1])


@dataclass(frozen=True)
class Converted:
    """A GangJob, and notes on what isn't carried over."""

    document: dict[str, Any]
    notes: tuple[Note, ...]

    @property
    def needs_edit(self) -> bool:
        """Return whether it can't be used as it is."""
        return any(note.is_edit for note in self.notes)


def is_convertible(document: Any) -> bool:
    return isinstance(document, Mapping) and _key(document) in {*_SPECS, _JOBSET}


def of_document(document: Mapping[str, Any]) -> Converted:
    """The GangJob for a document of another kind; ConvertError if it isn't one that can be converted."""
    notes = Notes()
    whole = Fields(document, "", notes)
    kind = _key(document)
    if kind in _AS_THEY_ARE:
        notes.add("kind", f"{kind[1]}: this isn't needed. It can stay as it is: {_AS_THEY_ARE[kind]}")
    for field in ("apiVersion", "kind", "status"):
        whole.take(field)
    metadata = whole.items("metadata")
    spec = whole.map("spec")
    given = Fields(metadata, "metadata", notes)
    metadata["labels"] = pods.without_theirs(given, "labels")
    annotations = pods.without_theirs(given, "annotations")
    annotations.pop(_LAST_APPLIED, None)
    if kind == _JOBSET:
        made = jobs.of_jobset(spec, annotations)
    elif kind in _SPECS:
        made = _SPECS[kind](spec)
    else:
        raise ConvertError(f"kind {kind[1] or 'unknown'}: gangctl convert reads {', '.join(KINDS)}")
    whole.finish()
    if made.get("suspend"):
        if _QUEUE in metadata["labels"]:
            del made["suspend"]
            notes.add("spec.suspend", "goes: with the label of its queue, the gang waits until Kueue admits it")
        else:
            notes.add("spec.suspend", "is kept: the gang starts when spec.suspend is false (gangctl resume)")
    kept = {name: metadata[name] for name in ("name", "namespace", "labels") if metadata.get(name)}
    if "name" not in kept and metadata.get("generateName"):
        kept["name"] = str(metadata["generateName"]).rstrip("-")
        notes.add("metadata.generateName", f"became the name {kept['name']}")
    return _converted(kept | ({"annotations": annotations} if annotations else {}), made, notes)


def of_torchrun(words: list[str], name: str, image: str) -> Converted:
    """The GangJob for a line that starts torchrun; ConvertError if it doesn't."""
    notes = Notes()
    return _converted({"name": name or "train"}, lines.torchrun_spec(words, image or lines.IMAGE, notes), notes)


def of_sbatch(text: str, name: str, image: str) -> Converted:
    """The GangJob for a script for sbatch; ConvertError if it doesn't have one line that starts a program."""
    notes = Notes()
    found, spec = lines.sbatch_spec(text, image or lines.IMAGE, notes)
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
