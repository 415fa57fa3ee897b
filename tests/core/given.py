"""What can happen in the world of a scenario file: one function a sentence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from gangctl.api.names import SIGNALS
from gangctl.core.facts.world import Brake, Device, Gaps, LastWords
from gangsidecar.wire import (
    Checkpoint,
    Corruption,
    Dropped,
    Found,
    Level,
    Phase,
    Progress,
    Request,
    Scanned,
    Verified,
    aged,
    from_words,
    to_words,
)
from tests.core.world import World


def each(act: Callable[[World, str], None]) -> Callable[[World], None]:
    """The same for the newest pod of every member."""

    def all_of_them(world: World) -> None:
        for member in dict.fromkeys(pod.member for pod in world.pods.values()):
            act(world, member)

    return all_of_them


def start(world: World, member: str, node: str | None = None) -> None:
    """Its containers are started, and a supervisor speaks for the first time."""
    world.starts(member, node or "")
    world.says(member, Phase.IDLE, 0)


def runs(world: World) -> None:
    """From nothing to an attempt that runs, without being shown."""
    world.decide()
    each(start)(world)
    each(ready)(world)
    world.decide()
    each(run)(world)


def ready(world: World, member: str, attempt: str | None = None) -> None:
    """It said Ready."""
    pod = world.pods[world.newest(member)]
    if attempt is None and (pod.terminated or pod.deleting or pod.uid not in world.heard):
        return
    world.says(member, Phase.READY, int(attempt or world.job.status.attempt), fencing=world.told)


def killed(world: World, member: str, ms: str) -> None:
    """It said Ready; SIGKILL had to end its worker."""
    world.says(member, Phase.READY, world.job.status.attempt, killed_ms=int(ms), fencing=world.told)


def run(world: World, member: str) -> None:
    """It started its worker, if it was told to."""
    uid = world.newest(member)
    if uid in world.heard:
        report, said = world.heard[uid].report, world.said_to(uid)
        if said is not None and said.run is not None:
            last = said.run.restore.step if said.run.restore is not None else -1
            kept = tuple(one for one in report.checkpoints if not said.run.checkpointed or one.step <= last)
            gone = tuple(one for one in report.dropped if not said.run.checkpointed or one.step <= last)
            unasked = {"progress": None, "request": None, "corruption": None, "log_matches": (), "verified": ()}
            seen = {"missing_step": None, "missing_attempt": 0, "missing_folder": False}
            more = {"checkpoints": kept, "dropped": gone, "fencing": said.fencing, **unasked, **seen}
            world.says(member, Phase.RUNNING, said.attempt, **more)


def ended(world: World, process: str | None, member: str, how: str, *words: str | None) -> None:
    """A process of its worker ended."""
    ago, attempt, memory, after = words
    end = {
        "local_rank": int(process or 0),
        "attempt": int(attempt or world.heard[world.newest(member)].report.attempt),
        "age_ms": int(ago or 0),
        "oom": memory is not None,
        "stopped": after is not None,
    }
    if how.startswith("SIG"):
        world.ends(member, signal=SIGNALS[how], **end)
    else:
        world.ends(member, exit_code=int(how), **end)


def steps(world: World, member: str, step: str, first: str | None, every: str | None = None) -> None:
    """It reported a step."""
    world.again(member)
    report = world.heard[world.newest(member)].report
    old = report.progress
    known = old is not None and old.attempt == report.attempt and old.first_step is not None
    begun, age = (old.first_step, old.first_age_ms) if old is not None and known else (int(first or step), 0)
    gap = None if every is None else int(every)
    said = Progress(report.attempt, int(step), 0, first_step=begun, first_age_ms=age, every=gap)
    world.again(member, progress=said)


def unnumbered(world: World, member: str) -> None:
    """It made a step, but it is not known which."""
    world.again(member)
    report = world.heard[world.newest(member)].report
    old = report.progress
    known = old is not None and old.attempt == report.attempt
    age = old.first_age_ms if old is not None and known else 0
    world.again(member, progress=Progress(report.attempt, 0, 0, first_age_ms=age, uncounted=True))


def vanish(world: World, member: str) -> None:
    """Its pod is gone from the cluster, unseen, and so is its connection."""
    uid = world.newest(member)
    del world.pods[uid]
    if uid in world.heard:
        world.heard[uid] = replace(world.heard[uid], connected=False)


def over(world: World, member: str, reason: str = "", detail: str = "") -> None:
    """Its pod was seen to end, and its connection is gone."""
    world.pod(member, terminated=True, reason=reason, detail=detail)
    if world.newest(member) in world.heard:
        silent(world, member)


def new_session(world: World, member: str) -> None:
    """Its container was started again, with a new supervisor."""
    uid = world.newest(member)
    old_pod = world.pods[uid]
    world.pod(member, restarts=old_pod.restarts + 1, started_at=world.now, ended_at=world.now)
    old = world.heard.pop(uid)
    world.says(member, Phase.IDLE, 0, session=f"{old.report.session}'", ends=old.report.ends)


def new_session_unseen(world: World, member: str) -> None:
    """The same, and the cluster doesn't show it yet."""
    uid = world.newest(member)
    pod = world.pods[uid]
    new_session(world, member)
    world.pods[uid] = pod


def container_ended(world: World, member: str, ago: str, reason: str) -> None:
    """What the cluster shows of a container that has been started again."""
    pod = world.pods[world.newest(member)]
    world.pod(
        member, restarts=pod.restarts + 1, started_at=world.now, ended_at=world.now - int(ago), ended_reason=reason
    )


def goes(world: World, member: str) -> None:
    """Its supervisor ends by itself, with its last words, and so does its pod."""
    heard = world.heard[world.newest(member)]
    ends = aged(heard.report, round((world.now - heard.at) * 1000)).ends
    words = LastWords(float(int(world.now)), from_words(to_words(ends)))
    over(world, member)
    world.pod(member, ended_at=words.at, ended_reason="Completed", last_words=words)


def remove(world: World, member: str) -> None:
    """Its pod, which was seen to end, is gone from the cluster."""
    del world.pods[world.newest(member)]


def controller(world: World, seconds: str | None = None, where: str | None = None) -> None:
    """A new controller knows nothing but what is stored, until the members connect."""
    if seconds is not None:
        passes(world, seconds if where == "ahead" else f"-{seconds}")
    world.unheard |= {uid: replace(one, gaps=Gaps()) for uid, one in world.heard.items()}
    world.heard.clear()
    world.scanned = world.output = world.directives = None
    world.listening_since = world.now


def heard(world: World, member: str) -> None:
    """Its supervisor connects again, and says all that it knows."""
    uid = world.newest(member)
    known = world.heard.get(uid)
    last = known or world.unheard.pop(uid)
    world.heard[uid] = last if known and known.connected else replace(last, connected=True, since=world.now)
    world.again(member)


def scan(world: World, looked: str | None, tier: str, numbers: str, anew: str | None) -> None:
    """A member has looked into the directory."""
    found = [
        Found(tier, int(n), f"/{tier}/{n}", f"m{n}{' anew' if n == anew else ''}")
        for n in sorted(numbers.split(), key=int, reverse=True)
    ]
    answered(world, tuple(found), pod="a-pod" if looked is None else world.newest(looked))


def answered(world: World, found: tuple[Found, ...] = (), error: str = "", pod: str = "a-pod") -> None:
    """The newest scan has this answer."""
    world.scanned, world.scanned_at = Scanned(world.job.status.attempt, pod, found, error), world.now


def scan_fails(world: World, error: str) -> None:
    """A member could not look into the directory."""
    answered(world, error=error)


def checkpoint(
    world: World, member: str, step: str, tier: str, path: str | None = None, owner: str | None = None
) -> None:
    """A rank has completed a checkpoint, or holds a copy of its owner's."""
    report = world.heard[world.newest(member)].report
    rank = _rank(member) if owner is None else int(owner)
    one = Checkpoint(tier, int(step), rank, max(1, report.attempt), path or "")
    others = (tier, int(step), rank)
    kept = tuple(old for old in report.checkpoints if (old.tier, old.step, old.rank) != others)
    gone = tuple(old for old in report.dropped if (old.tier, old.step, old.rank) != others)
    world.again(member, checkpoints=(*kept, one), dropped=gone)


def drop(world: World, member: str, step: str, tier: str) -> None:
    """A rank has begun to write a checkpoint again, or has deleted it."""
    report = world.heard[world.newest(member)].report
    one = Dropped(tier, int(step), _rank(member), report.attempt)
    kept = tuple(old for old in report.checkpoints if (old.tier, old.step, old.rank) != (tier, one.step, one.rank))
    world.again(member, checkpoints=kept, dropped=(*report.dropped, one))


def request(world: World, member: str, reason: str, level: str | None, exclude: str | None) -> None:
    """The framework asks for a restart."""
    attempt = world.heard[world.newest(member)].report.attempt
    world.again(
        member, request=Request(attempt, 0, reason, level=Level(level or "Process"), exclude_node=bool(exclude))
    )


def corrupt(world: World, member: str, step: str, rank: str | None, reason: str) -> None:
    """The framework finds that a rank, its own if none is named, computes wrongly."""
    attempt = world.heard[world.newest(member)].report.attempt
    at_fault = _rank(member) if rank is None else int(rank)
    world.again(member, corruption=Corruption(attempt, 0, int(step), reason, at_fault))


def verify(world: World, member: str, step: str) -> None:
    """A rank has verified a checkpoint."""
    report = world.heard[world.newest(member)].report
    one = Verified(report.attempt, int(step))
    world.again(member, verified=tuple(sorted({*report.verified, one}, key=lambda each: -each.step)))


def missing(world: World, member: str, folder: str | None) -> None:
    """It can't see the restore point, so it starts nothing."""
    point = world.job.status.restore_point
    attempt = world.job.status.attempt
    step = None if point is None else point.step
    world.says(
        member, Phase.READY, attempt, missing_step=step, missing_attempt=attempt, missing_folder=folder is not None
    )


def passes(world: World, seconds: str) -> None:
    """Time passes; who is connected says that all is as it was."""
    world.now = round(world.now + float(seconds), 6)
    world.beats()


def device(world: World, name: str, member: str, health: str) -> None:
    """The health of a device that the pod was given."""
    world.pod(member, devices=(Device("nvidia.com/gpu", name, health),))


def claimed(world: World, name: str, claim: str, member: str, health: str, message: str | None) -> None:
    """The health of a device that a resource claim of the pod has, and what its driver says of it."""
    world.pod(member, devices=(Device(f"claim:{claim}", name, health, message or ""),))


def silent(world: World, member: str) -> None:
    """Its connection is gone, a moment after it has said all that it knows."""
    uid = world.newest(member)
    world.again(member)
    world.heard[uid] = replace(world.heard[uid], connected=False)


def relay_lost(world: World, member: str, seconds: str) -> None:
    """The relay is gone that its supervisor spoke to, and with it what it said in that time."""
    uid = world.newest(member)
    world.heard[uid] = replace(world.heard[uid], connected=False, at=world.now - float(seconds))
    world.relayed_since = world.now


def disrupt(world: World, member: str, reason: str, *, deleting: bool) -> None:
    """The cluster says that its pod has to go."""
    world.pod(member, deleting=deleting, conditions=(("DisruptionTarget", "True", reason),))


def refuse(world: World, words: str) -> None:
    """The cluster takes no pods of the gang."""
    world.refused = (words,)


def brake(world: World) -> None:
    """So many members of all gangs are silent that the controller suspects itself."""
    world.brake = replace(world.brake, since=world.now, silent=30, expected=100)


def release(world: World) -> None:
    """Members are connected again."""
    world.brake = Brake(released=world.now)


def wave(world: World, reason: str) -> None:
    """Many gangs fail at once for one reason."""
    world.brake = replace(world.brake, waves=frozenset({reason}))


def _rank(member: str) -> int:
    return int(member.partition(".")[0].rpartition("-")[2])
