"""Why a gang does not run, by what its status and its pods show."""

from __future__ import annotations

from typing import Any

import pytest

from gangctl.api.gangjob import GangJob
from gangctl.api.roles import RoleDependency
from gangctl.api.status import MemberSnapshot
from gangctl.core.facts.world import Pod, StartFailure
from gangctl.explain.why.answer import answer
from gangctl.explain.why.findings import Finding, FindingKind
from gangctl.explain.why.waiting import findings
from gangctl.explain.why.world import GangSurroundings
from gangctl.story.words import advice
from gangctl.words import waits, warnings
from tests.cli.here import manifest
from tests.cli.tracecases import cause, incident
from tests.explain.why.clusters import pod as seen

NOW = 1_769_861_000.0
SINCE = NOW - 90


def job(phase: str, spec: dict[str, Any] | None = None, **status: Any) -> GangJob:
    made = manifest(replicas=2, **(spec or {}))
    made["metadata"] = {"name": "demo", "namespace": "research", "uid": "u", "creationTimestamp": SINCE}
    return GangJob.model_validate({**made, "status": {"phase": phase, "attempt": 1, "phaseTime": SINCE, **status}})


def pod(at: int, **more: Any) -> Pod:
    name = f"worker-{at}"
    known = {"node": "node-a", "created_at": SINCE, "scheduled_at": SINCE + 1, **more}
    return Pod(name=f"demo-{name}-0", uid=f"uid-{at}", member=name, incarnation=0, **known)


def condition(kind: str, state: str, reason: str, message: str) -> dict[str, Any]:
    return {"type": kind, "status": state, "reason": reason, "message": message, "lastTransitionTime": SINCE}


def heard(at: int, **more: Any) -> MemberSnapshot:
    known = {"role": "worker", "pod": f"demo-worker-{at}-0", "incarnation": 0, "connected": True, "phase": "Ready"}
    return MemberSnapshot.model_validate({"member": f"worker-{at}", "attempt": 1, **known, **more})


def one(gang: GangJob, around: GangSurroundings | None = None) -> Finding:
    (found,) = findings(gang, around or GangSurroundings(), NOW)
    return found


def running(*pods: Pod) -> GangSurroundings:
    return GangSurroundings(pods=pods)


STARTED = {"started_at": SINCE + 5}


def test_a_gang_that_no_controller_has_seen_says_so() -> None:
    found = one(job(""))
    assert found.kind is FindingKind.NOT_SEEN
    assert found.since == SINCE
    assert "watchNamespaces" in found.do


@pytest.mark.parametrize(
    ("spec", "status", "kind", "seen", "do"),
    [
        ({"suspend": True}, {}, FindingKind.SUSPENDED, "spec.suspend is true", "gangctl resume demo goes on"),
        (
            {},
            {"givenBack": True, "message": "suspended: a replacement pod was not ready within 60 s"},
            FindingKind.SUSPENDED,
            "a replacement pod was not ready within 60 s",
            "gangctl restart demo goes on",
        ),
        (
            {},
            {
                "message": "it waits for admission by queue q (insufficient quota for nvidia.com/gpu)",
                "conditions": [condition("Suspended", "True", "Queued", "")],
            },
            FindingKind.QUEUED,
            "insufficient quota for nvidia.com/gpu",
            "kubectl describe workloads -n research",
        ),
        ({}, {"message": "the roles have changed"}, FindingKind.SUSPENDED, "the roles have changed", ""),
    ],
)
def test_a_suspended_gang_says_who_suspended_it_and_the_way_on(
    spec: dict[str, Any], status: dict[str, Any], kind: FindingKind, seen: str, do: str
) -> None:
    found = one(job("Suspended", spec, **status))
    assert found.kind is kind
    assert seen in found.seen
    assert do in found.do
    gang, over = job("Suspended", spec, **status), pod(2, terminated=True)
    assert "2 old pods still end" in one(gang, running(pod(0), pod(1), over)).seen
    assert "old pod" not in one(gang, running(over)).seen


@pytest.mark.parametrize(
    ("phase", "status", "told"),
    [
        ("Suspended", {"givenBack": True}, "gangctl restart demo goes on"),
        ("Suspended", {}, "it resumes automatically"),
        ("Running", {}, ""),
        (
            "Running",
            {"conditions": [condition("Degraded", "True", "Smaller", "it runs with 3 of 4")]},
            "gangctl why shows what is missing. The gang grows by itself",
        ),
    ],
)
def test_status_says_the_way_on_and_advises_no_restart_that_does_not_help(
    phase: str, status: dict[str, Any], told: str
) -> None:
    assert advice(job(phase, **status)) == told


def test_a_gang_that_was_made_from_another_object_is_resumed_there() -> None:
    gang = job("Suspended", {"suspend": True})
    owner = {"ownerReferences": [{"kind": "JobSet", "name": "llama", "controller": True}]}
    made = GangJob.model_validate({**gang.model_dump(by_alias=True), "metadata": {"name": "demo", **owner}})
    assert advice(made) == "set spec.suspend of JobSet llama to false" == one(made).do


def test_a_held_gang_says_why_and_the_way_out_and_when_it_fails() -> None:
    spec = {"recovery": {"onExhausted": "Hold", "holdTimeoutSeconds": 600}}
    found = one(job("Held", spec, message="held: the budget is used up", incidents=[incident()]))
    assert found.kind is FindingKind.HELD
    assert found.seen == "held: the budget is used up"
    assert "the gang fails (recovery.holdTimeoutSeconds)" in found.next
    assert found.do == (
        "look at the pods (gangctl logs demo worker-1); then gangctl restart demo goes on from the restore point"
    )
    assert "nothing happens until a person goes on" in one(job("Held", message="held: x")).next


def test_a_gang_held_for_want_of_a_restore_point_says_how_to_choose_one() -> None:
    text = "held: no restore point that every rank can load was found: step 50 was complete in tier shared"
    found = one(job("Held", message=text, conditions=[condition("Ready", "False", "NoRestorePoint", text)]))
    assert found.kind is FindingKind.RESTORE_POINT
    assert found.seen == text
    assert "--from-step N or --from-beginning" in found.do


def test_pods_that_the_cluster_refuses_are_told_with_the_cluster_s_words_alone() -> None:
    said = "the cluster refuses the gang's pods: exceeded quota"
    found = one(job("Pending", conditions=[condition("Accepted", "False", "TemplateRefused", said)]))
    assert found.kind is FindingKind.REFUSED
    assert found.seen == said


def test_pods_that_are_not_created_yet_are_named() -> None:
    found = one(job("Pending"), running(pod(0, **STARTED)))
    assert found.kind is FindingKind.POD_MISSING
    assert found.members == ("worker-1",)


def test_an_image_that_cannot_be_pulled_is_told_with_the_kubelet_s_words() -> None:
    failure = StartFailure("ImagePullBackOff", "rpc error: not found")
    pods = [pod(at, reason="ImagePullBackOff", detail="rpc error: not found", start_failure=failure) for at in (0, 1)]
    found = one(job("Pending"), running(*pods))
    assert found.kind is FindingKind.IMAGE
    assert found.seen == "worker-0 and worker-1 can't start on node-a: ImagePullBackOff: rpc error: not found"
    assert found.do == "check the image's name, its registry and imagePullSecrets"
    assert found.members == ("worker-0", "worker-1")


def test_a_volume_that_does_not_mount_is_told_with_the_newest_warning() -> None:
    said = 'FailedMount: MountVolume.SetUp failed for volume "data": not found'
    around = GangSurroundings(pods=(pod(0), pod(1, **STARTED)), warnings={"demo-worker-0-0": said})
    found = one(job("Pending"), around)
    assert found.kind is FindingKind.NOT_STARTING
    assert found.seen == f"worker-0 can't start on node-a: {said}"
    assert "containers of worker-0 are being created" in one(job("Pending"), running(pod(0), pod(1, **STARTED))).seen


def test_a_sidecar_that_is_not_connected_is_named_with_since_when() -> None:
    around = GangSurroundings(
        pods=(pod(0, **STARTED), pod(1, **STARTED)),
        members={"worker-0": heard(0), "worker-1": heard(1, connected=False, phase="")},
    )
    found = findings(job("Gathering"), around, NOW)[0]
    assert found.kind is FindingKind.NOT_CONNECTED
    assert found.members == ("worker-1",)
    assert found.since == SINCE + 5
    assert "gangctl logs demo worker-1 --sidecar" in found.do


def test_where_only_the_controller_knows_its_condition_tells_who_is_not_heard() -> None:
    said = "worker-0 and worker-1 run, and no pod of the gang has been heard since 12:00"
    degraded = condition("Degraded", "True", "NoMemberConnects", said)
    found = findings(job("Pending", conditions=[degraded]), running(pod(0, **STARTED), pod(1, **STARTED)), NOW)
    assert found[0].kind is FindingKind.NOT_CONNECTED
    assert said in found[0].seen


def test_a_barrier_says_for_whom_it_waits_and_what_follows() -> None:
    pods = (pod(0, **STARTED), pod(1, **STARTED))
    around = GangSurroundings(
        pods=pods, members={"worker-0": heard(0), "worker-1": heard(1, phase="Loading", attempt=0)}
    )
    found = one(job("Gathering", ready="1/2", message="it gathers"), around)
    assert found.kind is FindingKind.BARRIER
    assert found.seen == "attempt 1 waits, 1/2 members are ready: worker-1 is not ready; it gathers"
    assert found.next.endswith("the members that are missing then get new pods")
    assert found.since == SINCE
    later = one(job("Gathering", barrierTimeouts=2), running(*pods))
    assert later.next.endswith("the gang ends then (recovery.onExhausted)")
    message = waits.group_awaited(1, "train", 2, 1, ["train-1"])
    ready = one(job("Pending", ready="2/2", message=str(message), said=message.said()), running(*pods))
    assert message in ready.seen
    assert (ready.next, ready.do) == ("", ""), "its pods stay"


def test_a_worker_that_stops_and_an_earlier_pod_that_may_run_one_hold_the_barrier() -> None:
    around = GangSurroundings(
        pods=(pod(0, **STARTED), pod(1, **STARTED)),
        members={"worker-0": heard(0, phase="Stopping"), "worker-1": heard(1)},
    )
    awaited = [{"member": "worker-1", "incarnation": 0, "pod": "old", "node": "node-x", "vanishedTime": SINCE}]
    kinds = [(each.kind, each.members) for each in findings(job("Gathering", awaited=awaited), around, NOW)]
    assert kinds[:2] == [(FindingKind.STOPPING, ("worker-0",)), (FindingKind.STOPPING, ("worker-1",))]


def test_a_back_off_says_until_when_and_how_to_end_it() -> None:
    open_one = incident(outcome="Open", settled=False, settledTime=None, backOffTime=NOW + 8, attempt=4)
    gang = job("Gathering", attempt=4, incidents=[open_one], restarts={"withoutStep": 3})
    found = one(gang, running(pod(0, **STARTED), pod(1, **STARTED)))
    assert found.kind is FindingKind.BACK_OFF
    assert found.seen == "the last 3 restarts reported no step, so attempt 4 waits"
    assert "gangctl restart demo starts it now" in found.do


def test_members_that_have_left_while_others_run_on_are_named() -> None:
    def done(indexes: str) -> dict[str, Any]:
        return {"attempt": 2, "time": NOW - 60, "roles": [{"name": "worker", "indexes": indexes}]}

    found = one(job("Running", attempt=2, finished=done("1")))
    assert (found.kind, found.members, found.since) == (FindingKind.FINISHED, ("worker-1",), NOW - 60)
    assert found.seen == "worker-1 ended with 0, and worker-0 runs on"
    assert findings(job("Running", attempt=2, finished=done("0-1")), GangSurroundings(), NOW) == ()
    assert findings(job("Running", attempt=3, finished=done("1")), GangSurroundings(), NOW) == ()


def test_a_gang_that_runs_has_only_what_should_be_looked_at() -> None:
    assert findings(job("Running"), GangSurroundings(), NOW) == ()
    degraded = condition("Degraded", "True", "DeviceDegraded", "rank 1 takes about 20 % longer")
    found = one(job("Running", conditions=[degraded]))
    assert found.kind is FindingKind.DEGRADED
    assert found.seen == "DeviceDegraded: rank 1 takes about 20 % longer"


@pytest.mark.parametrize(
    ("phase", "members", "told"),
    [
        ("Running", ("worker-1",), "worker-1 is not heard, as 40 of 60 members of all gangs were not at"),
        ("Gathering", (), "the gang waits without a deadline: 40 of 60 members of all gangs were not heard at"),
    ],
)
def test_a_controller_that_suspects_itself_is_named_before_all_else(
    phase: str, members: tuple[str, ...], told: str
) -> None:
    said = warnings.braked(members, 40, 60, SINCE)
    degraded = condition("Degraded", "True", "Braked", str(said))
    around = GangSurroundings(pods=(pod(0, **STARTED), pod(1, **STARTED)), members={"worker-0": heard(0)})
    found = findings(job(phase, conditions=[degraded], ready="1/2"), around, NOW)
    assert (found[0].kind, found[0].since) == (FindingKind.NOT_CONNECTED, SINCE)
    assert found[0].seen == (
        f"Braked: {told} 2026-01-31T12:01:50Z: the controller suspects its own connection, so silence and deadlines "
        "count for nothing and no pod is replaced for it; workers train on; check the controller's Service, "
        "NetworkPolicies, DNS and CA"
    )
    assert all(one.kind is not FindingKind.NOT_CONNECTED or one.members for one in found[1:])


def test_what_many_gangs_fail_for_is_named_with_the_back_off_of_this_gang() -> None:
    degraded = condition("Degraded", "True", "GangsFailTogether", str(warnings.gangs_fail_together("ExitCode")))
    waits = incident(outcome="Open", settled=False, settledTime=None, backOffTime=NOW + 8, attempt=4)
    gang = job("Gathering", attempt=4, incidents=[waits], conditions=[degraded], restarts={"withoutStep": 3})
    first, second, *_ = findings(gang, running(pod(0, **STARTED), pod(1, **STARTED)), NOW)
    assert (first.kind, second.kind) == (FindingKind.DEGRADED, FindingKind.BACK_OFF)
    assert first.seen == (
        "GangsFailTogether: many gangs fail at once with ExitCode; they are restarted in place, and no pod is replaced "
        "for it; look for what they share: storage, a registry, the network"
    )


def test_a_gang_that_has_ended_says_how() -> None:
    found = one(job("Failed", message="exit code 1; the budget is used up", completionTime=NOW))
    assert (found.kind, found.seen) == (FindingKind.ENDED, "exit code 1; the budget is used up")


def test_a_gang_that_is_deleted_says_what_is_left() -> None:
    gang = job("Running")
    made = gang.model_dump(by_alias=True, exclude_none=True)
    made["metadata"]["deletionTimestamp"] = NOW
    found = one(GangJob.model_validate(made), running(pod(0)))
    assert found.kind is FindingKind.DELETING
    assert "1 pod is left" in found.seen
    assert found.do.startswith("kubectl get gangjobs,pods -o yaml ")


def test_a_status_that_can_not_be_stored_comes_first() -> None:
    found = findings(job("Running"), GangSurroundings(unstored="the disk is full"), NOW)
    assert [each.kind for each in found] == [FindingKind.NOT_STORED]
    assert "the disk is full" in found[0].seen


def test_without_a_controller_that_comes_first_unless_the_gang_rests_anyway() -> None:
    around = GangSurroundings(is_led=False)
    assert [each.kind for each in findings(job("Running"), around, NOW)] == [FindingKind.NOT_LED]
    held = findings(job("Held", message="held: x"), around, NOW)
    assert [each.kind for each in held] == [FindingKind.HELD, FindingKind.NOT_LED]
    assert [each.kind for each in findings(job("Failed"), around, NOW)] == [FindingKind.ENDED]


@pytest.mark.parametrize("phase", ["Pending", "Held", "Suspended"])
def test_only_of_a_gang_that_runs_it_is_told_that_workers_train_on_without_a_controller(phase: str) -> None:
    def told(phase: str) -> str:
        found = findings(job(phase, message="m"), GangSurroundings(is_led=False, pods_known=False), NOW)
        return next(each.next for each in found if each.kind is FindingKind.NOT_LED)

    assert told("Running") == "its workers train on, and a fault is not noticed until one runs"
    assert told(phase) == "nothing changes until one runs"


def test_pods_without_a_node_say_until_when_the_gang_waits() -> None:
    unplaced = {"node": "", "scheduled_at": None}
    around = GangSurroundings(
        pods=(pod(0, **unplaced), pod(1, **STARTED)), waiting=(seen("demo-worker-0-0", 1),), cluster=None
    )
    found = one(job("Pending"), around)
    assert (found.kind, found.members) == (FindingKind.UNSCHEDULABLE, ("worker-0",))
    assert "without limit" in found.next
    limited = job("Pending", {"recovery": {"schedulingTimeoutSeconds": 600}})
    assert one(limited, around).next.endswith("the gang is failed (recovery.schedulingTimeoutSeconds)")
    assert "recovery.replacementTimeoutSeconds" in findings(job("Gathering"), around, NOW)[0].next
    days = job("Pending", {"recovery": {"schedulingTimeoutSeconds": 3 * 86_400}})
    assert one(days, around).next.startswith("at 2026-02-03T12:")


@pytest.mark.parametrize("phase", ["Pending", "Gathering"])
def test_a_spare_without_a_node_holds_nothing_up(phase: str) -> None:
    pods = (pod(0, **STARTED), pod(1, **STARTED), pod(2, node="", scheduled_at=None))
    around = GangSurroundings(pods=pods, waiting=(seen("demo-worker-2-0", 1),), cluster=None)
    found = findings(job(phase, {"recovery": {"schedulingTimeoutSeconds": 600}}), around, NOW)[0]
    assert (found.kind, found.members) == (FindingKind.UNSCHEDULABLE, ("worker-2",))
    assert found.next == "the gang does not wait for it: it has no rank"


def test_a_restart_is_told_beside_what_the_next_attempt_waits_for() -> None:
    gang = job("Gathering", attempt=2, incidents=[incident(cause=cause())])
    told = answer(gang, running(pod(0, **STARTED), pod(1, **STARTED)), NOW)
    assert told.findings
    assert told.restarts is not None
    assert told.restarts.last.incident.cause == "worker-1 (rank 1): ended by SIGKILL in attempt 1"


def test_roles_that_wait_for_others_are_named_until_they_may_start() -> None:
    def ordered(**status: Any) -> GangJob:
        made = job("Running", attempt=2, **status)
        roles = [made.spec.roles[0], made.spec.roles[0].model_copy(update={"name": "late"})]
        roles[1] = roles[1].model_copy(update={"depends_on": (RoleDependency(name="worker"),)})
        return made.model_copy(update={"spec": made.spec.model_copy(update={"roles": tuple(roles)})})

    found = one(ordered())
    assert (found.kind, found.seen) == (
        FindingKind.ROLES_WAIT,
        "the workers of late wait for other roles to be ready",
    )
    started = {"attempt": 2, "time": NOW - 60, "roles": ["late"]}
    assert findings(ordered(startedRoles=started), GangSurroundings(), NOW) == ()


def smaller(phase: str, seconds: int = 300, **status: Any) -> GangJob:
    """A gang of which three of four members are enough."""
    made = manifest(
        replicas=4,
        checkpoint={"tiers": [{"name": "store", "scope": "Shared", "reshardable": True, "source": {"type": "API"}}]},
        recovery={"shrinkAfterSeconds": seconds},
    )
    made["spec"]["roles"][0]["minReplicas"] = 3
    made["metadata"] = {"name": "demo", "namespace": "research", "uid": "u", "creationTimestamp": SINCE}
    known = {"phase": phase, "attempt": 2, "phaseTime": SINCE, "ready": "3/4"}
    return GangJob.model_validate({**made, "status": {**known, **status}})


def test_a_gang_that_starts_with_fewer_members_soon_says_when() -> None:
    soon = "the attempt starts with fewer members, if as many as minReplicas are ready (recovery.shrinkAfterSeconds)"
    pods = [pod(at, **STARTED) for at in range(4)]
    assert soon in one(smaller("Gathering"), running(*pods)).next
    said = {"conditions": [{"type": "PodScheduled", "status": "False", "message": "0/2 nodes are available"}]}
    around = GangSurroundings(pods=tuple(pods), waiting=(seen("demo-worker-3-0", 1, status=said),))
    assert soon in findings(smaller("Gathering"), around, NOW)[0].next
    assert "recovery.barrierTimeoutSeconds" in one(smaller("Gathering", 60), running(*pods)).next  # It is too late.


def test_a_smaller_gang_says_what_that_has_cost_and_how_it_grows() -> None:
    said = condition("Degraded", "True", "Smaller", "it runs with 3 of 4 members of worker")
    gang = smaller(
        "Running",
        conditions=[said],
        accountedTime=SINCE,
        firstStep={"attempt": 2, "step": 1, "time": SINCE},
        roles=[{"name": "worker", "desired": 4}],
        size={"attempt": 2, "roles": [{"name": "worker", "members": 3}]},
    )
    found = one(gang)
    assert found.seen.endswith("3 of 4 members of worker; members that lacked have cost 22.5 s of training, 25%")
    assert found.do == "", "no more are there"
    assert one(gang, running(*[pod(at, **STARTED) for at in range(4)])).do == (
        "gangctl restart demo starts with all that are ready"
    )
