"""Translate a JobSet to the GangJobs that run it. Pure.

The rule: nothing that a JobSet asks for is ignored. What a gang can't do is refused with all reasons at once. Each
replicated job becomes a role. Roles have no process group, so workers get no variable that JobSet doesn't set: scripts
find each other as they do now. The annotation ``gangctl.io/spec`` adds what only a GangJob has (tiers of checkpoints,
progress, rules), in the words of a GangJob's spec.

Replicated jobs that wait until others are complete (``dependsOn``) are a gang of their own, which begins when the gang
before has succeeded: the JobSet's *stages*. A fault restarts its own stage only. The last stage has the name of the
JobSet. Those that wait until others are ready, or start in order, are roles that depend on roles: their pods are
created with all others, and their workers start later. A startup probe of the worker's container becomes its readiness
probe: it would kill a supervisor that waits.

JobSet counts restarts of the whole set, and within each of them failed pods of a Job, while in a gang each failed
worker restarts all. So the budget is the number of failed pods that one Job could have had in all::

    budget = (backoffLimit + 1) * (maxRestarts + 1) - 1

Only Jobs whose failure restarts the set have a part in it. Where each failure ends the set, the budget is backoffLimit.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gangctl.annexes.jobset import names
from gangctl.annexes.jobset.pods import Place
from gangctl.api.model import YEAR
from gangctl.api.names import (
    ANNOTATION_APPLIED,
    API_VERSION,
    KIND,
    MAX_GANG_NAME,
    MAX_MEMBERS,
    MAX_POD_NAME,
    longest_pod_name,
    role_name,
)
from gangctl.api.policy import MAX_RULES
from gangctl.api.yaml_documents import UnreadableError, read

MOST_CHARACTERS: Final = 16_384
MOST_ROLES: Final = 8
_BACKOFF_LIMIT: Final = 6
"""The Job's default."""
_MOST_RESTARTS: Final = 200
"""The most that a budget counts. A JobSet with more is not limited."""
_OF_GANG: Final = ("checkpoint", "gangScheduling", "network", "placement", "podFailurePolicy", "progress", "recovery")
_OF_ROLE: Final = ("launch", "processGroup", "processesPerPod", "start", "workerContainer")
"""The fields that the annotation may have."""
_OF_PODS: Final = ("coordinator", "network", "replicatedJobs", "startupPolicy", "volumeClaimPolicies")
_PLACING: Final = (names.EXCLUSIVE, names.NODE_SELECTOR)
"""Fields of the JobSet, and annotations, that its pods are made from."""
_ONLY_STARTUP: Final = ("terminationGracePeriodSeconds",)
"""What a startup probe can have, and a readiness probe can't."""
_FAILED: Final = {"operator": "NotIn", "values": [0]}
_UNCOUNTED: Final = "IgnoreMaxRestarts"
"""What the actions end with that restart however often."""
_QUEUE: Final = "kueue.x-k8s.io/"
_UNSUPPORTED: Final = {
    "backoffLimitPerIndex": "the pods of a gang fail together",
    "maxFailedIndexes": "the pods of a gang fail together",
    "successPolicy": "a Job of a gang is complete when each of its pods has exited with 0",
    "ttlSecondsAfterFinished": "its pods are deleted with the JobSet; set the JobSet's ttlSecondsAfterFinished",
    "manualSelector": "gangctl labels the pods itself",
    "managedBy": "gangctl creates the pods itself",
}
"""Fields of a Job, and why a gang can't have them."""


class UnsupportedError(ValueError):
    """A gang can't run this JobSet. The text has all reasons."""


@dataclass(frozen=True)
class Stage:
    """Replicated jobs that run together, as one gang."""

    gang: str
    """Name of the GangJob."""
    roles: Mapping[str, str]
    """Name of each replicated job, and of its role."""
    document: Mapping[str, Any]
    """The GangJob to apply."""
    indexes: Sequence[int]
    """Of each role, the index of its replicated job in the JobSet."""
    failures: int
    """The failed pods of a Job that restart the set once; 0 if the annotation has a budget of its own."""

    @property
    def applied(self) -> str:
        """What the annotation of the stored GangJob is when this document has been applied.

        It has two hashes of what the JobSet asks for, of what its pods are made from and of everything; then the
        generation of its spec, and a hash of the metadata that counts. Another release of gangctl, which may make
        something else from it, has the same.
        """
        found: str = self.document["metadata"]["annotations"][ANNOTATION_APPLIED]
        return found

    def is_applied(self, annotation: str) -> bool:
        """Whether the GangJob with this annotation has been made from the JobSet as it is.

        Of the same generation it has, though a new release of JobSet may show fields by default that it didn't have.
        """
        own, there = self.applied.split("-"), annotation.split("-")
        return own == there or (bool(own[2]) and own[2:] == there[2:])

    def keeps_pods(self, annotation: str) -> bool:
        """Whether the pods of that GangJob can stay."""
        return self.is_applied(annotation) or self.applied.partition("-")[0] == annotation.partition("-")[0]

    def restarts(self, counted: int) -> int:
        """How often the set has restarted, when the gang has so often."""
        return counted // self.failures if self.failures else 0

    def after(self, restarts: int) -> dict[str, Any]:
        """The GangJob to apply when the stages before it have restarted the set so often."""
        spec = self.document["spec"]
        budget = spec["recovery"]["budget"]
        if not self.failures or "maxRestarts" not in budget:
            return dict(self.document)
        most = max(self.failures - 1, budget["maxRestarts"] - restarts * self.failures)
        recovery = {**spec["recovery"], "budget": {**budget, "maxRestarts": most}}
        return {**self.document, "spec": {**spec, "recovery": recovery}}

    def in_terms_of_jobset(self, problem: str) -> str:
        """What is said about the GangJob, with the paths of the JobSet that it was made from."""
        for role, job in enumerate(self.indexes):
            problem = problem.replace(f"spec.roles[{role}]", f"spec.replicatedJobs[{job}]")
        return problem.replace("].template.", "].template.spec.template.")


def stages(jobset: Mapping[str, Any]) -> tuple[Stage, ...]:
    """The gangs of a JobSet, in the order in which they run. ``jobset``: the stored object.

    Raises:
        UnsupportedError: a gang can't run it.
    """
    return _Translation(jobset).stages()


def with_roles_of(stored: Mapping[str, Any], document: Mapping[str, Any]) -> dict[str, Any]:
    """The GangJob to apply to one that runs: what its pods are made from stays, until it is suspended."""
    added = {role["name"]: {key: role[key] for key in _OF_ROLE if key in role} for role in document["spec"]["roles"]}
    roles = [
        {key: one for key, one in role.items() if key not in _OF_ROLE} | added.get(role["name"], {})
        for role in stored["spec"]["roles"]
    ]
    return {**document, "spec": {**document["spec"], "roles": roles}}


def without_annotation(jobset: Mapping[str, Any]) -> Mapping[str, Any]:
    """The JobSet without what its annotation adds. Its gangs and roles have the same names."""
    metadata = dict(jobset["metadata"])
    metadata["annotations"] = {
        key: one for key, one in (metadata.get("annotations") or {}).items() if key != names.ANNOTATION_SPEC
    }
    return {**jobset, "metadata": metadata}


def subdomain(jobset: Mapping[str, Any]) -> str:
    """The name of the JobSet's headless Service; empty if it wants none."""
    network = jobset["spec"].get("network") or {}
    wanted = network.get("enableDNSHostnames", True)
    return (network.get("subdomain") or jobset["metadata"]["name"]) if wanted else ""


def pods_of_job(replicated_job: Mapping[str, Any]) -> int:
    """The number of pods of each of its Jobs."""
    spec = replicated_job["template"]["spec"]
    parallelism, completions = spec.get("parallelism", 1), spec.get("completions")
    return int(parallelism if completions is None else min(parallelism, completions))


class _Translation:
    def __init__(self, jobset: Mapping[str, Any]) -> None:
        self._jobset = jobset
        self._metadata: Mapping[str, Any] = jobset["metadata"]
        self._spec: Mapping[str, Any] = jobset["spec"]
        self._jobs: Sequence[Mapping[str, Any]] = self._spec.get("replicatedJobs") or ()
        self._failure: Mapping[str, Any] | None = self._spec.get("failurePolicy")
        self._reasons: list[str] = []
        self._check_size()
        self._raise_reasons()
        self._role_names = _role_names(self._jobs)
        self._added = self._annotation()

    def stages(self) -> tuple[Stage, ...]:
        groups = self._groups()
        self._check(groups)
        rules = [[*self._added_rules(jobs), *self._rules(jobs)] for jobs in groups]
        if (most := max(map(len, rules))) > MAX_RULES:
            self._refuse(
                "rules", f"those of the JobSet, its Jobs and its annotation become {most}; at most {MAX_RULES}"
            )
        self._raise_reasons()
        last = len(groups) - 1
        return tuple(self._stage(jobs, rules[at], "" if at == last else f"-s{at}") for at, jobs in enumerate(groups))

    def _raise_reasons(self) -> None:
        if self._reasons:
            raise UnsupportedError("; ".join(dict.fromkeys(self._reasons)))

    def _check_size(self) -> None:
        """Refuse what would take long to translate."""
        members = sum(one.get("replicas", 1) * pods_of_job(one) for one in self._jobs)
        if not members:
            self._refuse("spec.replicatedJobs", "no pod is asked for")
        if len(self._jobs) > MOST_ROLES or members > MAX_MEMBERS:
            found = f"{len(self._jobs)} replicated jobs with {members} pods"
            self._refuse(
                "spec.replicatedJobs", f"{found}; a gang has at most {MOST_ROLES} roles and {MAX_MEMBERS} pods"
            )

    def _refuse(self, path: str, why: str) -> None:
        self._reasons.append(f"{path}: {why}")

    def _check(self, groups: Sequence[Sequence[Mapping[str, Any]]]) -> None:
        """Refuse what no gang has."""
        awaited = {one["name"] for job in self._jobs if _jobs([job]) for one in _dependencies(job, "Complete")}
        for job in (job for group in groups[:-1] for job in group if job["name"] not in awaited):
            self._refuse(
                f"replicated job {job['name']}",
                "others wait until another is complete, and none for it: give them to two JobSets, since gangs of one "
                "JobSet run one after the other",
            )
        for group in groups:
            deadlines = {one["template"]["spec"].get("activeDeadlineSeconds") for one in group}
            if len(deadlines) > 1:
                self._refuse("activeDeadlineSeconds", "Jobs that run together must have the same, or none")
            if any(self._limits(group, "FailJob")) and self._limits(group, "Count"):
                self._refuse(
                    "backoffLimit",
                    "a gang has one budget, and the failure of some Jobs ends the JobSet while others restart it: give "
                    "those that end it a backoffLimit of 0",
                )
        policy = self._spec.get("successPolicy") or {}
        targets = policy.get("targetReplicatedJobs") or [one["name"] for one in self._jobs]
        jobs = sum(one.get("replicas", 1) for one in self._jobs if one["name"] in targets)
        if policy.get("operator") == "Any" and jobs > 1:
            self._refuse("spec.successPolicy.operator", "Any of several Jobs: a gang succeeds when all of them have")
        if groups and not any(one["name"] in targets for one in groups[-1]):
            self._refuse("spec.successPolicy.targetReplicatedJobs", "none of them is among those that run last")
        for at, job in enumerate(self._jobs):
            path, spec = f"spec.replicatedJobs[{at}]", job["template"]["spec"]
            for field, why in _UNSUPPORTED.items():
                if spec.get(field) is not None:
                    self._refuse(f"{path}.template.spec.{field}", why)
            if not spec["template"]["spec"].get("containers"):
                self._refuse(f"{path}.template.spec.template.spec.containers", "the template has no container")
            if spec.get("completions") is not None and spec["completions"] > spec.get("parallelism", 1):
                self._refuse(
                    f"{path}.template.spec.completions", "more than parallelism: the pods of a gang run at once"
                )
            if spec.get("activeDeadlineSeconds") is not None and (self._restarts() or self._restarts_uncounted()):
                self._refuse(f"{path}.template.spec.activeDeadlineSeconds", "it would count anew after each restart")
            if self._has_agent(spec["template"]["spec"]):
                self._refuse(
                    f"{path}.template",
                    "JobSet's in-place-restart-agent waits for JobSet's own controller, and gangctl needs no agent: "
                    f"remove it, or annotate the JobSet with {names.NO_AGENT}",
                )

    def _has_agent(self, pod: Mapping[str, Any]) -> bool:
        """Return whether a pod waits for a barrier of JobSet: a container of it restarts all, and may do so."""
        containers = [*(pod.get("initContainers") or ()), *(pod.get("containers") or ())]
        rules = (rule for one in containers for rule in one.get("restartPolicyRules") or ())
        is_off = names.NO_AGENT in (self._metadata.get("annotations") or {})
        return self._is_in_place() and not is_off and any(one.get("action") == "RestartAllContainers" for one in rules)

    def _is_in_place(self) -> bool:
        return (self._failure or {}).get("restartStrategy") == "InPlaceRestart"

    def _groups(self) -> list[list[Mapping[str, Any]]]:
        """The replicated jobs of each stage: one more than those that a job waits for.

        As under JobSet, none waits for a replicated job of no Jobs, and Jobs of no pods are complete when they start.
        """
        with_pods = [one for one in self._jobs if one.get("replicas", 1) * pods_of_job(one)]
        have_pods, stage_of = {one["name"] for one in with_pods}, dict[str, int]()
        for job in (one for one in self._jobs if _jobs([one])):
            awaited = [one for one in job.get("dependsOn") or () if one["name"] in stage_of]
            earliest = (
                stage_of[one["name"]] + (one["status"] == "Complete" and one["name"] in have_pods) for one in awaited
            )
            stage_of[job["name"]] = max(earliest, default=0)
        found: dict[int, list[Mapping[str, Any]]] = {}
        for job in with_pods:
            found.setdefault(stage_of[job["name"]], []).append(job)
        return [found[at] for at in sorted(found)]

    def _stage(self, jobs: Sequence[Mapping[str, Any]], rules: Sequence[Mapping[str, Any]], suffix: str) -> Stage:
        roles = {one["name"]: self._role_names[one["name"]] for one in jobs}
        targets: Sequence[str] = (self._spec.get("successPolicy") or {}).get("targetReplicatedJobs") or ()
        succeeds = [roles[one] for one in roles if one in targets]
        added: dict[str, Any] = {name: self._added[name] for name in _OF_GANG if name in self._added}
        spec: dict[str, Any] = {
            **added,
            "suspend": bool(self._spec.get("suspend")),
            "roles": [{**self._role(one), **self._order(one, jobs)} for one in jobs],
            "recovery": {"budget": self._budget(jobs), **(added.get("recovery") or {})},
            "podFailurePolicy": {"rules": rules},
        }
        if succeeds and len(succeeds) < len(roles) and not suffix:
            spec["successPolicy"] = {"type": "Roles", "roles": succeeds}
        if deadline := jobs[0]["template"]["spec"].get("activeDeadlineSeconds"):
            spec["activeDeadlineSeconds"] = deadline
        gang = self._gang_name(roles.values(), suffix)
        failures = 0 if "budget" in (added.get("recovery") or {}) else self._failures(jobs)
        indexes = [list(self._jobs).index(one) for one in jobs]
        return Stage(gang, roles, self._document(gang, spec), indexes, failures)

    def _document(self, gang: str, spec: Mapping[str, Any]) -> dict[str, Any]:
        labels = {key: one for key, one in (self._metadata.get("labels") or {}).items() if not key.startswith(_QUEUE)}
        given = self._metadata.get("annotations") or {}
        counts = [given.get(names.ANNOTATION_SPEC), labels]
        of_pods = [{name: self._spec.get(name) for name in _OF_PODS}, {name: given.get(name) for name in _PLACING}]
        parts = (
            json.dumps(one, sort_keys=True).encode()
            for one in (of_pods, [of_pods, self._spec, *counts], [of_pods[1], *counts])
        )
        pods, everything, metadata = (hashlib.sha256(one).hexdigest()[:16] for one in parts)
        digest = f"{pods}-{everything}-{self._metadata.get('generation', '')}-{metadata}"
        return {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "metadata": {
                "name": gang,
                "namespace": self._metadata["namespace"],
                "labels": labels | {names.JOBSET_NAME: self._metadata["name"]},
                "annotations": {ANNOTATION_APPLIED: digest},
                "ownerReferences": [names.owner(self._metadata)],
            },
            "spec": spec,
        }

    def _gang_name(self, roles: Iterable[str], suffix: str) -> str:
        """The JobSet's name, or its beginning and a hash where names of pods would be too long."""
        name = self._metadata["name"]
        longest = max(longest_pod_name("", one, 10_000) for one in roles)
        most = min(MAX_GANG_NAME, MAX_POD_NAME - longest) - len(suffix)
        if len(name) <= most:
            return f"{name}{suffix}"
        digest = hashlib.sha256(name.encode()).hexdigest()[:8]
        return f"{name[: most - 9].rstrip('-')}-{digest}{suffix}"

    # Roles.

    def _role(self, job: Mapping[str, Any]) -> dict[str, Any]:
        name, replicas = job["name"], job.get("replicas", 1)
        return {
            "name": self._role_names[name],
            "replicas": replicas * pods_of_job(job),
            "processGroup": "",
            **self._added_role(name),
            "template": self._template(job),
        }

    def _order(self, job: Mapping[str, Any], stage: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """The roles of its stage that have to be ready before it."""
        found = {one["name"] for one in _dependencies(job, "Ready")}
        if starts_in_order(self._jobset):
            found = {one["name"] for one in stage[max(0, stage.index(job) - 1) : stage.index(job)]}
        roles = [self._role_names[one["name"]] for one in stage if one["name"] in found]
        return {"dependsOn": [{"name": one, "status": "Ready"} for one in roles]} if roles else {}

    def _added_rules(self, jobs: Sequence[Mapping[str, Any]]) -> Iterator[Any]:
        """The annotation's rules for the gang of these jobs, with its roles in place of replicated jobs."""
        policy = self._added.get("podFailurePolicy")
        found = policy.get("rules") if isinstance(policy, dict) else None
        others = self._role_names.keys() - {one["name"] for one in jobs}
        for rule in found if isinstance(found, list) else ():
            given = rule.get("roles") if isinstance(rule, dict) else None
            if not given or not isinstance(given, list):
                yield rule
            elif roles := [self._role_names.get(str(one), one) for one in given if str(one) not in others]:
                yield {**rule, "roles": roles}

    def _added_role(self, job: str) -> dict[str, Any]:
        found: Mapping[str, Any] = next((one for one in self._added.get("roles") or () if one.get("name") == job), {})
        return {name: found[name] for name in _OF_ROLE if name in found}

    def _template(self, job: Mapping[str, Any]) -> dict[str, Any]:
        template = job["template"]["spec"]["template"]
        metadata, spec = template.get("metadata") or {}, dict(template["spec"])
        annotations = dict(metadata.get("annotations") or {})
        for key in (names.EXCLUSIVE, names.NODE_SELECTOR):  # JobSet's webhook would take the pod for its own.
            annotations.pop(key, None)
        both = self._shared(job)
        place = self._place(job)
        if subdomain(self._jobset):
            spec["subdomain"] = subdomain(self._jobset)
        if place.is_indexed:
            for kind in ("initContainers", "containers"):
                if spec.get(kind):
                    spec[kind] = [_with_index(one) for one in spec[kind]]
        if place.by_node_selector:
            toleration = {"key": names.NO_SCHEDULE, "operator": "Exists", "effect": "NoSchedule"}
            spec["tolerations"] = [*(spec.get("tolerations") or ()), toleration]
        name = self._added_role(job["name"]).get("workerContainer") or spec["containers"][0]["name"]
        spec["containers"] = [_waiting(one) if one["name"] == name else one for one in spec["containers"]]
        claims = [one for one in claim_templates(self._jobset) if _mounts(spec, one["metadata"]["name"])]
        if claims:
            volumes = [_volume(one["metadata"]["name"], self._metadata["name"]) for one in claims]
            spec["volumes"] = [*(spec.get("volumes") or ()), *volumes]
        spec.setdefault("restartPolicy", "OnFailure")
        return {
            "metadata": {
                "labels": {**(metadata.get("labels") or {}), **both},
                "annotations": {**annotations, **both, names.ANNOTATION_PLACE: place.text},
                **({"finalizers": metadata["finalizers"]} if metadata.get("finalizers") else {}),
            },
            "spec": spec,
        }

    def _shared(self, job: Mapping[str, Any]) -> dict[str, str]:
        """The labels, and annotations, that all pods of a replicated job share."""
        group = job.get("groupName", "default")
        made = {
            names.JOBSET_NAME: self._metadata["name"],
            names.JOBSET_UID: self._metadata["uid"],
            names.REPLICATED_JOB: job["name"],
            names.RESTART_ATTEMPT: "0",
            names.REPLICAS: str(job.get("replicas", 1)),
            names.GLOBAL_REPLICAS: str(_jobs(self._jobs)),
            names.GROUP_NAME: group,
            names.GROUP_REPLICAS: str(_jobs(one for one in self._jobs if one.get("groupName", "default") == group)),
        }
        coordinator = self._spec.get("coordinator")
        if coordinator:
            job_name = names.job_name(
                self._metadata["name"], coordinator["replicatedJob"], coordinator.get("jobIndex", 0)
            )
            domain = subdomain(self._jobset) or self._metadata["name"]
            made[names.COORDINATOR] = f"{job_name}-{coordinator.get('podIndex', 0)}.{domain}"
        return made

    def _place(self, job: Mapping[str, Any]) -> Place:
        before = self._jobs[: list(self._jobs).index(job)]
        group = job.get("groupName", "default")
        whole = self._metadata.get("annotations") or {}
        templates = (job["template"], job["template"]["spec"]["template"])
        found = dict(whole) if names.EXCLUSIVE in whole else {}
        for one in templates:
            found |= (one.get("metadata") or {}).get("annotations") or {}
        return Place(
            parallelism=pods_of_job(job),
            global_offset=_jobs(before),
            group_offset=_jobs(one for one in before if one.get("groupName", "default") == group),
            is_indexed=job["template"]["spec"].get("completionMode", "Indexed") == "Indexed",
            exclusive=found.get(names.EXCLUSIVE, ""),
            by_node_selector=names.EXCLUSIVE in found and names.NODE_SELECTOR in found,
        )

    # What is done about failures.

    def _restarts(self) -> int:
        return 0 if self._failure is None else int(self._failure.get("maxRestarts", 0))

    def _restarts_uncounted(self) -> bool:
        """Return whether a rule restarts the set however often."""
        return any(one["action"].endswith(_UNCOUNTED) for one in (self._failure or {}).get("rules") or ())

    def _budget(self, jobs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        is_end = self._limits(jobs, "FailJob") and not self._limits(jobs, "Count")
        most = self._failures(jobs) * (1 if is_end else self._restarts() + 1) - 1
        if most > _MOST_RESTARTS:
            return {"type": "Unlimited"}
        return {"type": "Windowed", "maxRestarts": most, "windowSeconds": YEAR}

    def _failures(self, jobs: Sequence[Mapping[str, Any]]) -> int:
        """The failed pods of a Job that restart the set once."""
        return min(self._limits(jobs, "Count") or self._limits(jobs, "FailJob"), default=0) + 1

    def _limits(self, jobs: Iterable[Mapping[str, Any]], outcome: str) -> list[int]:
        """The backoffLimit of each Job for which more failed pods than that lead to this."""
        if self._is_in_place():
            return []
        return [_backoff_limit(one) for one in jobs if self._outcome(one["name"]) == outcome]

    def _outcome(self, job: str) -> str:
        """What more failed pods than its backoffLimit lead to, in the words of a gang."""
        action = self._action(job, "BackoffLimitExceeded") or "Count"
        return "FailJob" if action == "Count" and not self._restarts() else action

    def _rules(self, jobs: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
        """The rules of the Jobs, then those of the JobSet, by which the first that matches decides."""
        for at, rule in enumerate((self._failure or {}).get("rules") or ()):
            if rule.get("onJobFailureMessagePatterns"):
                self._refuse(
                    f"spec.failurePolicy.rules[{at}].onJobFailureMessagePatterns",
                    "a gang has no Jobs whose messages could match; use onJobFailureReasons, or rules of the "
                    f"annotation {names.ANNOTATION_SPEC}",
                )
        every = len(jobs) == len(self._role_names)
        for job in jobs:
            of = {} if every and len(jobs) == 1 else {"roles": [self._role_names[job["name"]]]}
            for at, rule in enumerate((job["template"]["spec"].get("podFailurePolicy") or {}).get("rules") or ()):
                action = rule["action"]
                if action == "FailIndex":
                    self._refuse(
                        f"replicated job {job['name']}: podFailurePolicy.rules[{at}]",
                        "FailIndex: its pods fail together",
                    )
                    continue
                if action == "FailJob":
                    action = self._action(job["name"], "PodFailurePolicy") or (
                        "Count" if self._restarts() else "FailJob"
                    )
                matchers = {key: one for key, one in rule.items() if key in {"onExitCodes", "onPodConditions"}}
                yield {"action": action, **of, **matchers}
            action = self._action(job["name"], "BackoffLimitExceeded")
            if action == "Ignore" or (action == "FailJob" and not _backoff_limit(job)):
                yield {"action": action, **of, "onExitCodes": _FAILED}

    def _action(self, job: str, reason: str) -> str:
        """What the JobSet does when a Job fails for this reason, in the words of a gang; empty = the default."""
        for rule in (self._failure or {}).get("rules") or ():
            reasons, targets = rule.get("onJobFailureReasons"), rule.get("targetReplicatedJobs")
            if (not reasons or reason in reasons) and (not targets or job in targets):
                if rule["action"] == "FailJobSet":
                    return "FailJob"
                return "Ignore" if rule["action"].endswith(_UNCOUNTED) else "Count"
        return ""

    # What the annotation adds.

    def _annotation(self) -> dict[str, Any]:
        text = (self._metadata.get("annotations") or {}).get(names.ANNOTATION_SPEC, "")
        path = f"metadata.annotations[{names.ANNOTATION_SPEC}]"
        if not text:
            return {}
        if len(text) > MOST_CHARACTERS:
            self._refuse(path, f"{len(text)} characters; at most {MOST_CHARACTERS}")
            return {}
        try:
            documents = read(text, aliases=False)
        except UnreadableError as error:
            self._refuse(path, " ".join(str(error).split()))
            return {}
        found = documents[0].value if documents else {}
        if len(documents) > 1 or not isinstance(found, dict):
            self._refuse(path, "expected one map with fields of a GangJob's spec")
            return {}
        for flaw in documents[0].flaws if documents else ():
            self._refuse(f"{path}.{'.'.join(map(str, flaw.location))}", f"{flaw.found}; expected {flaw.expected}")
        for name in (one for one in _OF_GANG if not isinstance(found.get(one, {}), dict)):
            self._refuse(f"{path}.{name}", "expected a map")
        if not self._reasons and not isinstance(found.get("podFailurePolicy", {}).get("rules", []), list):
            self._refuse(f"{path}.podFailurePolicy.rules", "expected a list")
        for name in found.keys() - {*_OF_GANG, "roles"}:
            self._refuse(
                f"{path}.{name}", f"the JobSet decides it, or there is no such field: {', '.join((*_OF_GANG, 'roles'))}"
            )
        roles = found.get("roles") or []
        if not isinstance(roles, list) or not all(isinstance(one, dict) for one in roles):
            self._refuse(f"{path}.roles", "expected a list of maps, each with the name of a replicated job")
            return {**found, "roles": []}
        for one in roles:
            if str(one.get("name")) not in self._role_names:
                self._refuse(f"{path}.roles", f"{one.get('name')!r:.80} is no replicated job")
            for name in one.keys() - {"name", *_OF_ROLE}:
                self._refuse(
                    f"{path}.roles.{name}", f"the JobSet decides it, or there is no such field: {', '.join(_OF_ROLE)}"
                )
        return found


def starts_in_order(jobset: Mapping[str, Any]) -> bool:
    """Whether each of its replicated jobs starts when the one before is ready."""
    return (jobset["spec"].get("startupPolicy") or {}).get("startupPolicyOrder") == "InOrder"


def claim_templates(jobset: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The volume claims that a JobSet asks for, each with whether it goes with the JobSet as ``isDeleted``."""
    for policy in jobset["spec"].get("volumeClaimPolicies") or ():
        kept = (policy.get("retentionPolicy") or {}).get("whenDeleted", "Delete") != "Delete"
        for one in policy.get("templates") or ():
            yield {**one, "isDeleted": not kept}


def claim_name(template: str, jobset: str) -> str:
    return f"{template}-{jobset}"


def _backoff_limit(job: Mapping[str, Any]) -> int:
    return int(job["template"]["spec"].get("backoffLimit", _BACKOFF_LIMIT))


def _jobs(replicated: Any) -> int:
    return sum(one.get("replicas", 1) for one in replicated)


def _role_names(jobs: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Name of each replicated job -> name of its role."""
    made: dict[str, str] = {}
    for job in jobs:
        made[job["name"]] = role_name(job["name"], made.values())
    return made


def _with_index(container: Mapping[str, Any]) -> dict[str, Any]:
    """The container with the variable that the Job controller gives the pods of an Indexed Job."""
    given = container.get("env") or []
    if any(one.get("name") == names.INDEX_VARIABLE for one in given):
        return dict(container)
    path = f"metadata.annotations['{names.COMPLETION_INDEX}']"
    index = {"name": names.INDEX_VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": path}}}
    return {**container, "env": [*given, index]}


def _waiting(container: Mapping[str, Any]) -> Mapping[str, Any]:
    """The worker's container with its startup probe as a readiness probe, unless it has one."""
    if "startupProbe" not in container or "readinessProbe" in container:
        return container
    probe = {key: one for key, one in container["startupProbe"].items() if key not in _ONLY_STARTUP}
    return {**{key: one for key, one in container.items() if key != "startupProbe"}, "readinessProbe": probe}


def _dependencies(job: Mapping[str, Any], status: str) -> list[Mapping[str, Any]]:
    return [one for one in job.get("dependsOn") or () if one["status"] == status]


def _mounts(spec: Mapping[str, Any], volume: str) -> bool:
    containers = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    return any(mount.get("name") == volume for one in containers for mount in one.get("volumeMounts") or ())


def _volume(template: str, jobset: str) -> dict[str, Any]:
    return {"name": template, "persistentVolumeClaim": {"claimName": claim_name(template, jobset)}}
