"""Convert pod templates: they stay as they are, but for what gangctl does itself or can't have."""

import copy
import json
import re
from typing import Any, Final

from gangctl.annexes.convert import commands
from gangctl.annexes.convert.fields import ConvertError, Fields, Notes
from gangctl.api import names

RENDEZVOUS: Final = frozenset(
    {"MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "NNODES"}
)
_DEVICES: Final = re.compile(r"^(nvidia\.com/|amd\.com/gpu|habana\.ai/|aws\.amazon\.com/neuron|google\.com/tpu)")
_OTHERS: Final = (
    r"batch\.kubernetes\.io/(?:controller|job)-[\w-]+|(?:jobset\.sigs\.k8s\.io|training\.kubeflow\.org)/[\w-]+"
)
_UNSET: Final = re.compile(rf"JOB_COMPLETION_INDEX|{_OTHERS}|(?<=[\"'])(?:controller-uid|job-name)(?=[\"'])")
"""Variables that other controllers set in a container, and the labels and annotations of their pods."""
_THEIRS: Final = re.compile(rf"{_OTHERS}|controller-uid|job-name|kueue\.x-k8s\.io/(?:podset|tas|workload)")
"""Labels and annotations that other controllers write on their objects and templates, and by which they find pods."""


def without_theirs(metadata: Fields, name: str) -> dict[str, Any]:
    """The labels or annotations that a user gave; those of the controller that ran the pods are noted."""
    found = metadata.items(name)
    gone = [key for key in found if _THEIRS.fullmatch(str(key))]
    if gone:
        metadata.note(name, f"without {', '.join(gone)}, which another controller sets and finds its pods by")
    return {key: value for key, value in found.items() if key not in gone}


def role_name(name: str, path: str, notes: Notes, taken: set[str]) -> str:
    """A name that a role can have: 1 to 15 lower-case letters and digits."""
    made = names.role_name(name, taken)
    taken.add(made)
    if made != name:
        notes.add(
            path,
            f"the role is called {made}: names of roles are 1 to {names.MAX_ROLE_NAME} lower-case letters and digits",
        )
    return made


def role(name: str, replicas: int, template: Fields, processes: str = "") -> dict[str, Any]:
    """A role with these pods.

    Args:
        name: of the role.
        replicas: how many pods.
        template: the pod template.
        processes: what the document says of the processes in a pod: a number, gpu, auto; empty = nothing.

    Raises:
        ConvertError: it isn't a pod template.
    """
    notes, path = template.notes, template.at("spec")
    metadata, pod = template.items("metadata"), copy.deepcopy(template.take("spec", {}))
    template.finish()
    if not isinstance(pod, dict) or not isinstance(pod.get("containers"), list) or not pod["containers"]:
        raise ConvertError(f"{path}.containers: the template has no container; is the file complete?")
    made: dict[str, Any] = {"name": name, "replicas": replicas}
    given = Fields(metadata, template.at("metadata"), notes)
    metadata |= {one: without_theirs(given, one) for one in ("labels", "annotations")}
    at, worker = _worker(pod, metadata["annotations"].get("kubectl.kubernetes.io/default-container"))
    if at:
        made["workerContainer"] = worker.get("name")
    here = f"{path}.containers[{at}]"
    if pod.get("restartPolicy") == "Always":
        del pod["restartPolicy"]
        notes.add(f"{path}.restartPolicy", "Always goes: a gang ends, and gangctl restarts its workers in place")
    _without_probes(worker, here, notes)
    _without_rendezvous(worker, here, notes)
    made |= _launch(worker, here, notes, processes)
    for one in [*pod["containers"], *Fields(pod, path, notes).values("initContainers")]:
        if isinstance(one, dict) and one.get("restartPolicyRules"):
            why = "restarts containers itself, as gangctl does: take it out, and an agent that is there for it"
            notes.add(f"container {one.get('name')}.restartPolicyRules", why, is_edit=True)
    for unset in sorted(set(_UNSET.findall(json.dumps(pod)))):
        notes.add(here, f"{unset} is not set by gangctl: use RANK, or NODE_RANK for the pod", is_edit=True)
    shown = {key: one for key, one in metadata.items() if one}
    made["template"] = {**({"metadata": shown} if shown else {}), "spec": pod}
    return made


def _worker(pod: dict[str, Any], default: Any) -> tuple[int, dict[str, Any]]:
    for at, one in enumerate(pod["containers"]):
        if isinstance(one, dict) and one.get("name") == default:
            return at, one
    first = pod["containers"][0]
    if not isinstance(first, dict):
        raise ConvertError(f"a container is {first!r:.60}, and no map")
    return 0, first


def _without_probes(worker: dict[str, Any], path: str, notes: Notes) -> None:
    for probe in ("livenessProbe", "startupProbe"):
        if worker.pop(probe, None) is not None:
            notes.add(f"{path}.{probe}", "goes: it would kill a member that waits for the others (see spec.progress)")


def _without_rendezvous(worker: dict[str, Any], path: str, notes: Notes) -> None:
    variables = worker.get("env")
    if not isinstance(variables, list):
        return
    gone = [one["name"] for one in variables if isinstance(one, dict) and _is_ours(one.get("name"))]
    if gone:
        notes.add(f"{path}.env", f"without {', '.join(gone)}: gangctl sets the rendezvous for each attempt")
        worker["env"] = [one for one in variables if not (isinstance(one, dict) and _is_ours(one.get("name")))]
        if not worker["env"]:
            del worker["env"]


def _is_ours(name: Any) -> bool:
    return isinstance(name, str) and (name in RENDEZVOUS or name.startswith("PET_"))


def _launch(worker: dict[str, Any], path: str, notes: Notes, processes: str) -> dict[str, Any]:
    given = Fields(worker, path, notes)
    words = [word for part in ("command", "args") for word in given.values(part)]
    if not worker.get("command"):
        notes.add(
            f"{path}.command",
            "is missing, and gangctl does not know the entry point of the image: docker inspect, crane config or "
            "skopeo inspect --config show it; write its Entrypoint here",
            is_edit=True,
        )
    devices = _devices(given.map("resources"))
    if not commands.starts_torchrun([str(word) for word in words]):
        ranks = commands.process_count(processes, devices, path, notes) if processes else 1
        return {"processesPerPod": ranks} if ranks > 1 else {}
    values = commands.Torchrun()
    for part in ("command", "args"):
        if isinstance(worker.get(part), list):
            worker[part], found = commands.strip([str(word) for word in worker[part]], f"{path}.{part}", notes)
            values.processes = values.processes or found.processes
    return {
        "launch": "Torchrun",
        "processesPerPod": commands.process_count(values.processes or processes, devices, path, notes),
    }


def _devices(resources: Fields) -> int | None:
    asked = resources.items("requests") | resources.items("limits")
    found = [str(number) for name, number in asked.items() if _DEVICES.match(str(name))]
    return int(found[0]) if found and found[0].isdecimal() and int(found[0]) > 0 else None
