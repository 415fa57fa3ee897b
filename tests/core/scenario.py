"""Scenario files: what happens, a line, what is decided. See scenarios/README.txt for the words.

A sentence of a file is matched against the patterns below; each says what happens in the world of ``world.py``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from gangsidecar.wire import Phase
from tests.core import groups, queues
from tests.core.edits import ask, change, policy, remove_tiers
from tests.core.given import (
    answered,
    brake,
    checkpoint,
    claimed,
    container_ended,
    controller,
    corrupt,
    device,
    disrupt,
    drop,
    each,
    ended,
    goes,
    heard,
    killed,
    missing,
    new_session,
    new_session_unseen,
    over,
    passes,
    ready,
    refuse,
    relay_lost,
    release,
    remove,
    request,
    run,
    runs,
    scan,
    scan_fails,
    silent,
    start,
    steps,
    unnumbered,
    vanish,
    verify,
    wave,
)
from tests.core.given_checks import all_pass, check, check_fails
from tests.core.given_measured import (
    late_fork,
    loaded,
    log_ends,
    not_imported,
    own_time,
    phase,
    prints,
    rank_at,
    reached,
    took_stacks,
    warm,
)
from tests.core.given_of_nodes import avoid_node, cordon, device_tainted, lose_node, node_lacks, node_of, node_shows
from tests.core.given_starts import (
    init_container_fails,
    init_container_runs,
    never_again,
    not_executed,
    sidecar_ended,
    sidecar_unreached,
    start_fails,
)
from tests.core.then import account, conditions, decide, environment, read, told, trace
from tests.core.world import World

RULE = "----"


@dataclass(frozen=True)
class Block:
    """Comments and sentences, and what comes out of them."""

    given: str
    out: str


def parse(text: str) -> list[Block]:
    """The blocks of a file: they are separated by empty lines, input and output by a line of dashes."""
    blocks = []
    for part in re.split(r"\n\s*\n(?=\S)", text.strip() + "\n"):
        given, _, out = part.partition(f"\n{RULE}\n")
        blocks.append(Block(given.strip().removesuffix(f"\n{RULE}"), out.strip()))
    return blocks


def render(blocks: list[Block]) -> str:
    """The file again."""
    parts = [f"{block.given}\n{RULE}\n{block.out}" if block.out else block.given for block in blocks]
    return "\n\n".join(parts) + "\n"


def play(blocks: list[Block]) -> list[Block]:
    """The same blocks with what comes out of them now."""
    world, played = World(), []
    for block in blocks:
        lines = [line for line in block.given.splitlines() if not line.startswith("#")]
        out: list[str] = []
        while lines:
            line = lines.pop(0)
            if line.strip() == "job":
                world.submit("\n".join(lines))
                break
            out += sentence(world, line.strip())
        played.append(Block(block.given, "\n".join(out)))
    return played


def sentence(world: World, line: str) -> list[str]:
    """What one sentence does, and what it shows.

    Raises:
        ValueError: there is no such sentence.
    """
    for pattern, act in SENTENCES:
        found = re.fullmatch(pattern, line)
        if found is not None:
            return act(world, *found.groups()) or []
    raise ValueError(f"no such sentence: {line!r}")


M = r"([a-z]+-\d+(?:\.\d+)?)"
ENDS = (
    rf"(?:process (\d+) of )?{M} ends with (\S+?)(?:, (\d+) ms ago)?(?:, of attempt (\d+))?"
    r"(, out of memory)?(, after a stop)?"
)
SENTENCES: list[tuple[str, Callable[..., list[str] | None]]] = [
    (r"decide", decide),
    (rf"what is {M} told\?", told),
    (rf"which variables does {M} get\?", environment),
    (r"the gang runs", runs),
    (r"every pod starts", each(start)),
    (rf"{M} starts", start),
    (rf"{M} starts on (\S+)", start),
    (r"everyone is Ready", each(ready)),
    (rf"{M} is Ready", ready),
    (rf"{M} is Ready (\d+)", ready),
    (rf"{M} is Ready after SIGKILL at (\d+) ms", killed),
    (r"everyone runs", each(run)),
    (rf"{M} runs", run),
    (ENDS, ended),
    (rf"{M} goes by what it is told", lambda world, member: world.again(member, fencing=world.told)),
    (rf"{M} is in phase (Startup|Step|Checkpoint|Evaluation)", phase),
    (rf"{M} reports step (\d+)(?:, its first was (\d+))?(?:, every (\d+))?", steps),
    (rf"rank (\d+) \(process (\d+)\) of {M} has made step (\d+), (\d+) s ago", rank_at),
    (rf"{M}'s own part of a step takes (\d+) ms", own_time),
    (rf"{M} has loaded the restore point within (\d+) ms", loaded),
    (rf"{M} has (Launch|Imports|Rendezvous) behind it(?: after (\d+) ms)?", reached),
    (rf"the template of {M} could not import (.+)", not_imported),
    (rf"the fork of {M} is late after (\d+) s", late_fork),
    (rf"{M} has (gone on in its process|forked its worker|executed its worker because .+)", warm),
    (rf"{M} completes checkpoint (\d+) of tier (\S+?)(?: at (\S+))?", checkpoint),
    (
        rf"{M} holds a copy of checkpoint (\d+) of tier (\S+), of rank (\d+)",
        lambda w, m, s, t, r: checkpoint(w, m, s, t, owner=r),
    ),
    (rf"{M} was found in (.+)", took_stacks),
    (rf"the log of {M} ends with (.+)", log_ends),
    (rf"{M} prints '(.+)', which matches '(.+)'", prints),
    (rf"{M} begins or drops checkpoint (\d+) of tier (\S+)", drop),
    (rf"{M} asks for a restart because (.+?)(?:, level (\S+))?(, on another node)?", request),
    (rf"{M} verifies checkpoint (\d+)", verify),
    (rf"{M} finds corruption since step (\d+)(?: in rank (\d+))?: (.+)", corrupt),
    (rf"{M} can't see the restore point(, nor its directory)?", missing),
    (rf"{M} makes a step without a number", unnumbered),
    (rf"{M} reports that its pod is terminating", lambda world, member: world.again(member, terminating=True)),
    (rf"{M} begins to stop", lambda world, member: world.says(member, Phase.STOPPING, world.job.status.attempt)),
    (rf"{M} is Stuck", lambda world, member: world.says(member, Phase.STUCK, world.job.status.attempt)),
    (rf"{M} is Done", lambda world, member: world.says(member, Phase.DONE, world.job.status.attempt)),
    (rf"{M} loses its connection", silent),
    (rf"the relay of {M} is lost, silent for (\d+) s", relay_lost),
    (rf"{M} connects again", heard),
    (r"everyone connects again", each(heard)),
    (rf"the container of {M} starts again", new_session),
    (rf"the container of {M} has started (\d+) times", lambda w, m, n: w.pod(m, restarts=int(n))),
    (r"everyone passes check (\S+)", all_pass),
    (rf"{M} passes check (\S+)", check),
    (
        rf"{M} (fails|computes wrongly in|can't tell|is killed by|takes too long for) check (\S+?)(?:: (.+))?",
        check_fails,
    ),
    (rf"the pod of {M} vanishes", vanish),
    (rf"the pod of {M} is being deleted", lambda world, member: world.pod(member, deleting=True)),
    (rf"the pod of {M} has ended", over),
    (rf"the pod of {M} has ended: (\S+)", over),
    (rf"the pod of {M} has ended: (\w+): (.+)", over),
    (rf"the cluster takes the pod of {M}, which speaks, for ended", lambda w, m: w.pod(m, terminated=True)),
    (rf"the pod of {M} is disrupted: (\S+)", lambda w, m, why: disrupt(w, m, why, deleting=True)),
    (rf"the pod of {M} will be disrupted: (\S+)", lambda w, m, why: disrupt(w, m, why, deleting=False)),
    (rf"the pod of {M} is scheduled", lambda w, m: w.pod(m, scheduled_at=w.now, node=f"node-{m}")),
    (rf"the pod of {M} has been started", lambda world, member: world.starts(member)),
    (rf"the pod of {M} can't start: (\S+)", lambda world, member, why: world.pod(member, reason=why)),
    (rf"the container of {M} can't be started: (\w+): (.+)", start_fails),
    (rf"the container of {M} has ended, and can't be started again: (\w+): (.+)", never_again),
    (rf"an init container of {M} fails again", init_container_fails),
    (rf"{M} finds no free port", lambda world, member: world.again(member, ports=())),
    (rf"{M} finds a free port", lambda world, member: world.again(member, ports=(29401,))),
    (rf"([a-z]+) runs before the worker of {M}", init_container_runs),
    (rf"the sidecar of {M} has ended for want of a connection: (.+)", sidecar_unreached),
    (rf"the sidecar of {M} has ended: (.+)", sidecar_ended),
    (rf"the supervisor of {M} can't execute the command: (12[67]), (.+)", not_executed),
    (rf"the pod of {M} is removed", remove),
    (rf"the supervisor of {M} goes, and its pod has ended", goes),
    (rf"the container of {M} starts again, unseen", new_session_unseen),
    (rf"the cluster shows that the container of {M} ended (\d+) s ago: (\S+)", container_ended),
    (rf"the node of {M} is lost", lose_node),
    (rf"the node of {M} is back", lambda world, member: world.lost.__delitem__(node_of(world, member))),
    (rf"the node of {M} shows (\w+)(?:, since (\d+) s)?", node_shows),
    (rf"the node of {M} is cordoned", cordon),
    (rf"gangs have met faults on the node of {M}", avoid_node),
    (rf"a device of {M} is tainted", device_tainted),
    (rf"(\d+) of (\d+) (\S+) are allocatable on the node of {M}", node_lacks),
    (rf"the node of {M} shows nothing any more", lambda w, m: w.nodes.__delitem__(node_of(w, m))),
    (rf"device (\S+) of {M} is (\S+)", device),
    (rf"device (\S+) of claim (\S+) of {M} is (\w+)(?:: (.+))?", claimed),
    (r"a scan(?: by (\S+))? finds (\S+) ([\d ]+?)(?:, (\d+) written anew)?", scan),
    (r"a scan fails: (.+)", scan_fails),
    (r"a scan finds nothing", answered),
    (r"([\d.]+) s pass", passes),
    (r"the clock is set back by ([\d.]+) s", lambda world, seconds: passes(world, f"-{seconds}")),
    (r"a new controller starts(?:, whose clock is (\d+) s (ahead|behind))?", controller),
    (r"the controller manages (\d+) gangs", lambda world, gangs: setattr(world, "gangs", int(gangs))),
    (r"30 of 100 members of all gangs are silent", brake),
    (r"the members of other gangs connect again", release),
    (r"many gangs fail with (\w+)", wave),
    (r"(suspend) becomes (\w+)", change),
    (r"isolationTimeoutSeconds becomes (\d+)", policy),
    (r"(restartToken) becomes (\w+)", change),
    (r"restartToken becomes (\w+), from (the beginning|step \d+)", ask),
    ("the user removes the checkpoint tiers and the request", remove_tiers),
    (r"(replicas of worker) becomes (\d+)", change),
    (r"the cluster refuses the pods: (.+)", refuse),
    (r"the cluster takes the pods", lambda world: setattr(world, "refused", ())),
    (r"the gang names queue (\S+)", queues.named),
    (r"the gang names no queue", queues.unnamed),
    (r"the queue admits the gang", queues.admits),
    (r"the queue admits the gang with (\d+) pods of (\S+)", queues.grants),
    (r"the queue gives quota for (\d+) more pods? of (\S+)", queues.gives_more),
    (r"the queue gives no more quota: (.+)", queues.refuses_more),
    (r"the queue takes back what it gave last: (.+)", queues.takes_back),
    (r"the queue places each pod", queues.places_pods),
    (r"the queue reserves quota for the gang, and a check is pending", queues.reserves),
    (r"the queue says: (.+)", queues.says),
    (r"the queue evicts the gang: (.+)", queues.evicts),
    (r"the Workload is deleted", queues.deleted),
    (r"the queue can't be read", lambda world: queues.readable(world, known=False)),
    (r"the queue can be read again", lambda world: queues.readable(world, known=True)),
    (r"(model-\w) of the group is available(?:, in (\d+) s)?", groups.available),
    (r"(model-\w) of the group is (\w+), and not available", groups.unavailable),
    (r"(model-\w) of the group has all its pods", groups.has_pods),
    (r"(model-\w) of the group is (\w+), and lacks pods", groups.lacks_pods),
    (r"(model-\w) of the group was charged (\d+) restarts? (\d+) s ago", groups.charged),
    (rf"Ready of the pod of {M} is (True|False)", groups.shown),
    (r"what does the user see\?", conditions),
    (r"what is read\?", read),
    (r"what did the restart take\?", trace),
    (r"what did the time go to\?", account),
]
