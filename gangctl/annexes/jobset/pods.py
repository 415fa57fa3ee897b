"""The names of one pod of a JobSet: what its role's template can't have, since each member has its own. Pure.

The rule: the pod of member k of a replicated job with parallelism p is pod ``k mod p`` of Job ``k div p``. It has the
labels, annotations and host name that it would have under JobSet's own controller. Only its name differs: that is
GANG-ROLE-MEMBER-INCARNATION, where JobSet's has five random letters.

A Job that has a topology domain to itself asks for it by affinity, in all of its pods. The annotation by which JobSet's
webhook would do that is not on the pod: the webhook would reject each pod until the first of its Job has a node.
"""

import json
from typing import Any, Final, NamedTuple

from gangctl.annexes.jobset import names
from gangctl.api.names import LABEL_INDEX

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


class Place(NamedTuple):
    """Where the Jobs of a replicated job stand in their JobSet."""

    parallelism: int
    """Number of pods of each Job."""
    global_offset: int
    """Number of Jobs of the replicated jobs before it."""
    group_offset: int
    """The same, of those in its group."""
    is_indexed: bool
    exclusive: str = ""
    """The node label whose domains a Job has to itself; empty if it shares them."""
    by_node_selector: bool = False
    """Whether the nodes have a label for each Job, so that a node selector finds them."""

    @property
    def text(self) -> str:
        """The value of the annotation on the template."""
        return json.dumps(self._asdict(), separators=(",", ":"))


def complete(pod: dict[str, Any]) -> dict[str, Any]:
    """The pod with its own names. ``pod``: as it was made from its role's template; it is changed."""
    metadata, spec = pod["metadata"], pod["spec"]
    place = Place(**json.loads(metadata["annotations"].pop(names.ANNOTATION_PLACE)))
    job, index = divmod(int(metadata["labels"][LABEL_INDEX]), place.parallelism)
    job_name = names.job_name(metadata["labels"][names.JOBSET_NAME], metadata["labels"][names.REPLICATED_JOB], job)
    key = names.job_key(metadata["namespace"], job_name)
    both = {
        names.JOB_INDEX: str(job),
        names.JOB_GLOBAL_INDEX: str(place.global_offset + job),
        names.JOB_GROUP_INDEX: str(place.group_offset + job),
        names.JOB_KEY: key,
    }
    if place.is_indexed:
        both[names.COMPLETION_INDEX] = str(index)
        spec["hostname"] = f"{job_name}-{index}"
    metadata["labels"] |= both | dict.fromkeys(names.JOB_NAMES, job_name)
    metadata["annotations"] |= both
    if place.by_node_selector:
        of_job = {names.NAMESPACED_JOB: f"{metadata['namespace']}_{job_name}"}
        spec["nodeSelector"] = {**(spec.get("nodeSelector") or {}), **of_job}
    elif place.exclusive:
        spec["affinity"] = _alone(spec.get("affinity") or {}, key, place.exclusive)
    return pod


def _alone(written: dict[str, Any], key: str, topology: str) -> dict[str, Any]:
    """The affinity of a pod that shares its domain with the pods of its Job only."""
    ours = {"key": names.JOB_KEY, "operator": "In", "values": [key]}
    others = [{"key": names.JOB_KEY, "operator": "Exists"}, {**ours, "operator": "NotIn"}]
    asked = {"podAffinity": [ours], "podAntiAffinity": others}
    made = dict(written)
    for kind, expressions in asked.items():
        term = {"labelSelector": {"matchExpressions": expressions}, "topologyKey": topology, "namespaceSelector": {}}
        before = made.get(kind) or {}
        made[kind] = {**before, _REQUIRED: [*(before.get(_REQUIRED) or ()), term]}
    return made
