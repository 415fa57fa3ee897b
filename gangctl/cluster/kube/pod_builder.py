"""The pod builder: makes the pod of one incarnation of a member from its role's template. Pure.

The rule: the pod has all fields of the template, including those that gangctl doesn't know, with these changes:

* gangctl sets name, namespace, owner, labels and annotations. It keeps labels, annotations and finalizers of the
  template's metadata.
* ``hostname`` is GANG-ROLE-INDEX, which a replacement keeps, unless the template has one.
* :mod:`~gangctl.cluster.kube.injection` adds containers and volumes, and changes the worker's container.
* The affinity is narrowed by the nodes to avoid and the gang's placement, and must never be widened. The required terms
  of a node affinity are alternatives, so a node to avoid is added to *every* term. An empty term matches no node, so it
  stays empty. Where a queue names the node, to avoid one is a preference: else a pod could fit nowhere.
* The pod's ``restartPolicy`` is Never, with a rule that restarts all containers (no back-off), where the nodes that it
  may land on support that, and OnFailure otherwise. Workers restart inside their container in both cases. What the
  template says is kept for the user's other containers where the nodes support that: OnFailure retries each of them.
* ``schedulingGroup`` names the gang's PodGroup, if gangctl creates one.
* ``imagePullSecrets`` gets those for the sidecar's image, if the controller has any.
* An annex completes a pod whose template has its annotation (:class:`~gangctl.registered.PodCompletion`).
* ``terminationGracePeriodSeconds``, if the template has none, is the planned grace period and a margin, so that a
  drained worker can save before the kubelet kills it.

``shareProcessNamespace`` and ``hostPID`` need no change: the supervisor detects that it isn't PID 1.

A pod may land on a node that its nodeName, nodeSelector and required node affinity allow, and all of whose taints that
keep pods off it tolerates. A node that it can't land on must not matter: one odd node of the cluster would switch the
feature off for all gangs. What isn't understood here counts as a node that it may land on, and so does each node of a
spec that is too large to be compared with all nodes::

    restart_all(role) = every schedulable node supports it, and there is one; or
                        every schedulable node that the role's pods may land on does, and there is one
"""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from functools import cache
from typing import Any, Final

from gangctl.api.gangjob import GangJob, Role, Spec
from gangctl.api.names import (
    ANNOTATION_ROLES_HASH,
    ANNOTATION_TRACEPARENT,
    ANNOTATION_WORKER,
    gang_selector,
    parse_member_name,
    pod_labels,
    pod_name,
)
from gangctl.api.roles import number_places, preloaded, roles_hash
from gangctl.api.scheduling import Placement, PlacementPolicy
from gangctl.cluster.errors import Terminal
from gangctl.cluster.kube.injection import (
    as_mapping,
    as_mappings,
    pull_secrets,
    refuse_reserved,
    sidecar_container,
    sidecar_resources,
    sidecar_volumes,
    supervised_container,
)
from gangctl.cluster.kube.owned import group_name, owner_reference, wants_group
from gangctl.cluster.kube.projections import HubContact
from gangctl.cluster.kube.settings import KubeSettings
from gangctl.cluster.kube.workload import TOPOLOGY_GATE
from gangctl.core.facts.gang import trace_parent
from gangctl.core.facts.node_affinity import has_required_affinity, is_selected, untolerated_taints
from gangctl.core.policy.pods import CreatePod
from gangctl.kubernetes.objects import Node
from gangctl.registered import PodCompletion, find_registered
from gangsidecar.wire import CACHES_VARIABLE, PRELOAD_VARIABLE, Compiler

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_WEIGHT: Final = 100
"""The highest weight that Kubernetes allows."""
_WEAKER: Final = 50


def affinity(
    written: Any,
    path: str,
    *,
    uid: str,
    placement: PlacementPolicy,
    avoid: Sequence[str],
    required: bool,
    unfavoured: Sequence[str] = (),
) -> dict[str, Any]:
    """The pod's affinity; empty if there is none.

    Args:
        written: The template's affinity, which is kept.
        path: Path of it in the job, for errors.
        uid: UID of the gang whose pods are packed or spread.
        placement: The gang's placement policy.
        avoid: Names of nodes to avoid.
        required: Whether to avoid them is a requirement; otherwise a preference.
        unfavoured: Names of nodes that are only worse than others: a weaker preference, never a requirement.
    """
    merged = as_mapping(written, path)
    worse = [node for node in unfavoured if node not in avoid]
    for names, is_required, weight in ((avoid, required, _WEIGHT), (worse, False, _WEAKER)):
        if names:
            key = "nodeAffinity"
            merged[key] = _add_avoided_nodes(
                as_mapping(merged.get(key), f"{path}.{key}"),
                f"{path}.{key}",
                names,
                None if is_required else weight,
            )
    if isinstance(placement, Placement):
        key = "podAffinity" if placement.strategy == "Pack" else "podAntiAffinity"
        merged[key] = _add_placement(as_mapping(merged.get(key), f"{path}.{key}"), f"{path}.{key}", uid, placement)
    return merged


def _add_avoided_nodes(written: dict[str, Any], path: str, avoid: Sequence[str], weight: int | None) -> dict[str, Any]:
    """Add a preference with this weight, or a requirement."""
    # By the node's name: its host name label may differ. A requirement on a field takes one value.
    excluded = [{"key": "metadata.name", "operator": "NotIn", "values": [node]} for node in dict.fromkeys(avoid)]
    if weight is not None:
        terms = as_mappings(written.get(_PREFERRED), f"{path}.{_PREFERRED}")
        return {**written, _PREFERRED: [*terms, {"weight": weight, "preference": {"matchFields": excluded}}]}
    if written.get(_REQUIRED) is None:
        return {**written, _REQUIRED: {"nodeSelectorTerms": [{"matchFields": excluded}]}}
    selector = as_mapping(written[_REQUIRED], f"{path}.{_REQUIRED}")
    inside = f"{path}.{_REQUIRED}.nodeSelectorTerms"
    terms = [
        _narrow(term, f"{inside}[{at}]", excluded)
        for at, term in enumerate(as_mappings(selector.get("nodeSelectorTerms"), inside))
    ]
    return {**written, _REQUIRED: {**selector, "nodeSelectorTerms": terms}}


def _narrow(term: dict[str, Any], path: str, excluded: Sequence[dict[str, Any]]) -> dict[str, Any]:
    if not term.get("matchExpressions") and not term.get("matchFields"):
        return term
    return {**term, "matchFields": [*as_mappings(term.get("matchFields"), f"{path}.matchFields"), *deepcopy(excluded)]}


def _add_placement(written: dict[str, Any], path: str, uid: str, placement: Placement) -> dict[str, Any]:
    term = {"labelSelector": {"matchLabels": gang_selector(uid)}, "topologyKey": placement.topology_key}
    if placement.mode == "Required":
        return {**written, _REQUIRED: [*as_mappings(written.get(_REQUIRED), f"{path}.{_REQUIRED}"), term]}
    terms = as_mappings(written.get(_PREFERRED), f"{path}.{_PREFERRED}")
    return {**written, _PREFERRED: [*terms, {"weight": _WEIGHT, "podAffinityTerm": term}]}


def kept_caches(spec: Spec, role: Role) -> tuple[Compiler, ...]:
    """The compilers whose caches a pod of this role keeps."""
    is_alone = len(number_places(spec.roles).groups.get(role.group, ())) == 1
    return tuple(one for one in Compiler if one is not Compiler.JAX or is_alone)


_PLACING: Final = frozenset({"nodeName", "nodeSelector", "affinity", "tolerations"})
"""The fields of a pod's spec that decide on which nodes it may land."""
_LARGEST: Final = 16_384
"""Characters of these fields."""


class EligibleNodes:
    """Answers for each role, and remembers the answers until the nodes or the roles change."""

    def __init__(self) -> None:
        """Know no answer yet."""
        self._answers: dict[str, dict[str, tuple[int, tuple[Node, ...], bool]]] = {}

    def restart_all(self, job: GangJob, role: Role, nodes: tuple[Node, ...]) -> bool:
        """Return whether the role's pods can use RestartAllContainers.

        Args:
            job: The stored gang.
            role: One of its roles.
            nodes: The schedulable nodes: the same object as long as they are the same.
        """
        known = self._answers.setdefault(job.metadata.uid, {})
        generation, judged, answer = known.get(role.name, (-1, (), False))
        if generation != job.metadata.generation or judged is not nodes:
            answer = _all_restart(role, nodes)
            known[role.name] = (job.metadata.generation, nodes, answer)
        return answer

    def forget(self, uid: str) -> None:
        self._answers.pop(uid, None)


def _all_restart(role: Role, nodes: tuple[Node, ...]) -> bool:
    able = sum(node.restarts_all for node in nodes)
    if able in {0, len(nodes)}:
        return able > 0
    spec = role.template.spec.model_dump(mode="json", by_alias=True, exclude_unset=True, include=set(_PLACING))
    if len(str(spec)) > _LARGEST:
        return False
    eligible = [node for node in nodes if may_land(spec, node)]
    return bool(eligible) and all(node.restarts_all for node in eligible)


def may_land(spec: Mapping[str, Any], node: Node) -> bool:
    try:
        named = spec.get("nodeName") or node.name
        return (
            named == node.name
            and is_selected(spec.get("nodeSelector") or {}, node.labels)
            and has_required_affinity(spec.get("affinity") or {}, node.name, node.labels)
            and not untolerated_taints(spec.get("tolerations") or (), node.taints)
        )
    except (AttributeError, KeyError, TypeError, ValueError):  # The API server will refuse such a pod.
        return True


GRACE_MARGIN_SECONDS: Final = 10
"""Beyond the planned grace period: time to report the end of the worker, and for the sidecar, which ends last."""
_NAMED: Final = ("initContainers", "containers", "volumes")


def build_pod(
    job: GangJob,
    create: CreatePod,
    settings: KubeSettings,
    contact: HubContact,
    *,
    restart_all: bool,
    unfavoured: Sequence[str] = (),
) -> dict[str, Any]:
    """The pod to create, as JSON values.

    Args:
        job: The stored gang.
        create: The pod's member and incarnation, and the nodes to avoid.
        settings: The controller's settings.
        contact: What the sidecar needs to reach the hub.
        restart_all: Whether the nodes support RestartAllContainers.
        unfavoured: Names of nodes that a companion advises against.

    Raises:
        Terminal: the job doesn't have the member's role, or a field of the template can't be used; the text names it.
    """
    at, role = _role(job, create.member)
    path = f"spec.roles[{at}].template"
    template = role.template.written
    spec = _completed_spec(job, create, template["spec"], f"{path}.spec", unfavoured)
    entries = {key: as_mappings(spec.get(key), f"{path}.spec.{key}") for key in _NAMED}
    worker = role.template.spec.containers.index(role.worker)
    refuse_reserved(entries, worker, f"{path}.spec")
    entries["containers"][worker] = supervised_container(
        entries["containers"][worker],
        f"{path}.spec.containers[{worker}]",
        uid=job.metadata.uid,
        create=create,
        variables=_supervisor_variables(job, role),
        restart_all=restart_all,
    )
    if restart_all and role.template.spec.restart_policy == "OnFailure":
        entries |= {key: [_retried(one) for one in entries[key]] for key in ("initContainers", "containers")}
    sidecar = sidecar_container(
        settings,
        sidecar_resources(
            settings.sidecar_resources, [*entries["initContainers"], *entries["containers"]], spec.get("resources")
        ),
        as_mapping(spec.get("securityContext"), f"{path}.spec.securityContext"),
    )
    changes = {
        "restartPolicy": "Never" if restart_all else "OnFailure",
        "initContainers": [sidecar, *entries["initContainers"]],
        "containers": entries["containers"],
        "volumes": [*entries["volumes"], *sidecar_volumes(settings)],
    }
    secrets = pull_secrets(settings, as_mappings(spec.get("imagePullSecrets"), f"{path}.spec.imagePullSecrets"))
    if secrets:
        changes["imagePullSecrets"] = secrets
    metadata = _metadata(job, create, template.get("metadata"), f"{path}.metadata", role.worker.name)
    metadata["annotations"] |= contact.annotations()
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec | changes}
    for annotation, complete in _completions().items():
        if annotation in metadata["annotations"]:
            try:
                pod = complete(pod)
            except _UNUSABLE as error:
                raise Terminal(f"{path}.metadata.annotations[{annotation}]: it can't be used: {error!r:.200}") from None
    return pod


_UNUSABLE: Final = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What a completion raises for a value that a user wrote; RecursionError for one that is nested too deeply."""


@cache
def _completions() -> Mapping[str, Callable[[dict[str, Any]], dict[str, Any]]]:
    return {one.annotation: one.load() for one in find_registered(PodCompletion)}


def _retried(container: dict[str, Any]) -> dict[str, Any]:
    """The container, restarted if it fails, unless it says itself what is done then."""
    return container if container.get("restartPolicy") else {**container, "restartPolicy": "OnFailure"}


def _supervisor_variables(job: GangJob, role: Role) -> dict[str, str]:
    """Return what the supervisor needs to know of the worker of this role."""
    preload = preloaded(role.start)
    compilers = ",".join(one.value for one in kept_caches(job.spec, role))
    return {**({PRELOAD_VARIABLE: preload} if preload else {}), CACHES_VARIABLE: compilers}


def _completed_spec(
    job: GangJob, create: CreatePod, written: dict[str, Any], path: str, unfavoured: Sequence[str]
) -> dict[str, Any]:
    """The spec with affinity, host name and grace period."""
    spec = {key: value for key, value in written.items() if key != "affinity"}
    near = affinity(
        written.get("affinity"),
        f"{path}.affinity",
        uid=job.metadata.uid,
        placement=job.spec.placement,
        avoid=create.avoid,
        required=create.required and not _waits_for_domain(written),
        unfavoured=unfavoured,
    )
    if near:
        spec["affinity"] = near
    if wants_group(job):
        if spec.get("schedulingGroup"):
            raise Terminal(
                f"{path}.schedulingGroup: gangctl sets it, because spec.gangScheduling asks for a PodGroup; remove it "
                "here, or remove gangScheduling and create the PodGroup yourself"
            )
        spec["schedulingGroup"] = {"podGroupName": group_name(job)}
    if not spec.get("hostname"):
        spec["hostname"] = f"{job.metadata.name}-{create.member}"
    if spec.get("terminationGracePeriodSeconds") is None:
        planned = job.spec.recovery.planned_stop_grace_period_seconds
        spec["terminationGracePeriodSeconds"] = planned + GRACE_MARGIN_SECONDS
    return spec


def _waits_for_domain(spec: Mapping[str, Any]) -> bool:
    """Return whether a queue has gated the pod until it names a domain, which may be the node to avoid."""
    gates = spec.get("schedulingGates")
    return isinstance(gates, list) and {"name": TOPOLOGY_GATE} in gates


def _role(job: GangJob, member: str) -> tuple[int, Role]:
    name, _ = parse_member_name(member)
    for at, role in enumerate(job.spec.roles):
        if role.name == name:
            return at, role
    raise Terminal(f"gang {job.metadata.name} has no role {name!r}")


def _metadata(job: GangJob, create: CreatePod, written: Any, path: str, worker: str) -> dict[str, Any]:
    gang, template = job.metadata, as_mapping(written, path)
    return {
        "name": pod_name(gang.name, create.member, create.incarnation),
        "namespace": gang.namespace,
        "labels": as_mapping(template.get("labels"), f"{path}.labels")
        | pod_labels(gang.name, gang.uid, create.member, create.incarnation),
        "annotations": as_mapping(template.get("annotations"), f"{path}.annotations") | _annotations(job, worker),
        **({"finalizers": template["finalizers"]} if template.get("finalizers") else {}),
        "ownerReferences": [owner_reference(job) | {"blockOwnerDeletion": True}],
    }


def _annotations(job: GangJob, worker: str) -> dict[str, str]:
    made = {ANNOTATION_ROLES_HASH: roles_hash(job.spec.roles), ANNOTATION_WORKER: worker}
    incident = next(iter(job.status.incidents), None)
    if incident is not None and incident.attempt == job.status.attempt:
        made[ANNOTATION_TRACEPARENT] = trace_parent(job, incident)
    return made
