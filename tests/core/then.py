"""How a scenario file shows a decision."""

from __future__ import annotations

from gangctl.api.incident import Incident
from gangctl.api.status import Condition, Fencing, Status
from gangctl.core.facts.printed import ReadOutput
from gangctl.core.lifecycle.plan import AskScan, DeleteGang, Plan
from gangctl.core.policy.admission import TellQueue
from gangctl.core.policy.checks import AskCheck
from gangctl.core.policy.pods import CreatePod, DeletePod
from gangctl.core.record.conditions import goodput
from gangctl.core.record.incidents import innermost
from gangctl.story.spans import incident_spans, is_complete
from gangctl.words.message import Message, said_again
from gangsidecar.wire import Directive
from tests.core.world import World


def decide(world: World) -> list[str]:
    """Decide until nothing more is written, and show each decision."""
    shown: list[str] = []
    for _ in range(6):
        before = world.job.status
        plan = world.decide()
        shown += show(before, plan)
        if plan.status is None:
            return shown
    raise AssertionError(f"six writes in a row though nothing happened: {shown}")


def show(before: Status, plan: Plan) -> list[str]:
    """One decision: why, what is written, what is done."""
    after = plan.status
    lines = [shown(plan.because) if after is not None else f"nothing is written: {shown(plan.because)}"]
    if after is not None:
        lines += [f"  {line}" for line in changes(before, after)]
    for action in plan.actions:
        match action:
            case CreatePod(member, incarnation, avoid, required):
                off = f", {'never' if required else 'rather not'} on {', '.join(avoid)}" if avoid else ""
                lines.append(f"  create {member}.{incarnation}{off}")
            case DeletePod(_, uid):
                lines.append(f"  delete {uid}")
            case DeleteGang():
                lines.append("  delete the gang")
            case TellQueue(verb, _, workload, asked):
                which = f" of {workload}" if workload else ""
                amounts = [
                    f" {one.pods} of {one.role}{f', at least {one.least}' if one.least else ''}" for one in asked
                ]
                lines.append(f"  tell the queue: {verb}{which}{','.join(amounts)}")
            case AskCheck(pod, check):
                among = f", {check.rank} of {check.size} at {check.host}:{check.port}" if check.size > 1 else ""
                lines.append(f"  turn {check.turn}: {pod} runs {check.name}{among}")
            case AskScan(pod):
                lines.append(f"  ask {pod} for the checkpoints")
    lines += [
        f"  {event.type} {event.reason}: {shown(event.message)}"
        for event in plan.events
        if event.message != plan.because
    ]
    if after is None and plan.requeue_after is not None:
        lines.append(f"  looks again in {plan.requeue_after:g} s")
    return lines


def shown(text: str) -> str:
    """A message as a value, so that a scenario doesn't change with its words."""
    return text.shown() if isinstance(text, Message) else text


def changes(before: Status, after: Status) -> list[str]:
    """What differs between two statuses, for readers."""
    lines = []
    if (before.phase, before.attempt) != (after.phase, after.attempt):
        lines.append(f"{after.phase}, attempt {after.attempt}")
    if after.incidents[:1] != before.incidents[:1]:
        incident = after.incidents[0]
        cause = incident.cause
        rule = f", rule {cause.rule}" if cause.rule else ""
        ties = f", tied: {' '.join(cause.tied)}" if cause.tied else ""
        planned = ", planned" if incident.planned else ""
        state = f"{incident.outcome}{', charged' if incident.charged else ''}" if incident.settled else f"open{planned}"
        most = "" if incident.lost_steps_at_most is None else f" to {incident.lost_steps_at_most}"
        lost = "" if incident.lost_steps is None else f", {incident.lost_steps}{most} steps lost"
        what = f"{cause.reason} {cause.member or '-'}{rule}{ties}"
        seconds = "" if incident.lost_seconds is None else f" ({incident.lost_seconds:g} s of training)"
        lines.append(f"incident {incident.attempt}: {what}, {incident.level}, {state}{lost}{seconds}")
        lines += _kept_signal(incident, before.incidents[:1])
        lines += _stacks(incident, before.incidents[:1])
        lines += _output(incident, before.incidents[:1])
        links = [one.attempt for one in after.incidents if one.trace_id == incident.linked_trace_id]
        if links and before.attempt != after.attempt:
            lines.append(f"it followed incident {links[0]} at once")
        lines += _start(incident)
    old = next(
        (one for one in after.incidents[1:] if before.incidents and one.attempt == before.incidents[0].attempt), None
    )
    if old is not None and (old.cause, old.charged) != (before.incidents[0].cause, before.incidents[0].charged):
        lines.append(
            f"incident {old.attempt} corrected: {old.cause.reason}{', charged' if old.charged else ', not charged'}"
        )
    if after.restore_point != before.restore_point:
        point = after.restore_point
        lines.append(f"restore point: {'none' if point is None else f'{point.step} of {point.tier}'}")
    if after.ranks != before.ranks:
        lines.append(f"ranks: {', '.join(f'{one.place} by {one.member}' for one in after.ranks) or 'all their own'}")
    if after.masters != before.masters:
        masters = [f"{one.process_group} {one.address}:{one.port}" for one in after.masters]
        lines.append(f"masters: {', '.join(masters) or 'none'}")
    if after.awaited != before.awaited:
        lines.append(f"awaited: {', '.join(f'{one.member}.{one.incarnation}' for one in after.awaited) or 'none'}")
    if after.finished != before.finished:
        roles = () if after.finished is None else after.finished.roles
        lines.append(f"finished: {', '.join(f'{role.name}:{role.indexes}' for role in roles) or 'none'}")
    if after.fencing != before.fencing and any(map(_isolates, (before.fencing, after.fencing))):
        lines.append(f"supervisors are told: {_fencing(after.fencing)}")
    lines += _checkpoints(before, after)
    lines += _checks(before, after)
    if after.restarts != before.restarts:
        lines.append(f"restarts: {after.restarts.counted} counted, {after.restarts.uncounted} not")
    if after.barrier_timeouts > before.barrier_timeouts:
        lines.append(f"deadline {after.barrier_timeouts} has passed")
    return lines


def _checkpoints(before: Status, after: Status) -> list[str]:
    lines = []
    if after.recorded_steps != before.recorded_steps:
        lines.append(f"recorded: {', '.join(f'{one.step} of {one.tier}' for one in after.recorded_steps) or 'none'}")
    if after.rejected_steps != before.rejected_steps:
        lines.append(f"rejected: {', '.join(f'{one.step} of {one.tier}' for one in after.rejected_steps)}")
    if after.verified_steps != before.verified_steps:
        lines.append(f"verified: {', '.join(str(one.step) for one in after.verified_steps) or 'none'}")
    if after.checked_step != before.checked_step:
        lines.append(
            f"verified by checks: {'nothing' if after.checked_step is None else f'up to {after.checked_step}'}"
        )
    if after.corrupt_since != before.corrupt_since:
        since = after.corrupt_since
        lines.append(f"not trusted: {'nothing' if since is None else f'step {since} and later'}")
    return lines


def _checks(before: Status, after: Status) -> list[str]:
    known = () if before.checks is None else before.checks.results
    new = () if after.checks is None else [one for one in after.checks.results if one not in known]
    failed = {one: "".join(f", {each.member} ({each.detail})" for each in one.failed) for one in new}
    return [f"check {one.name}: {one.result}, {one.failures} of {one.members}{failed[one]}" for one in new]


def _start(incident: Incident) -> list[str]:
    warm = incident.warm_start
    if warm is None:
        return []
    why = f"; {warm.member} executed: {warm.obstacle}" if warm.executed else ""
    on = f"went on: {warm.went_on}, " if warm.went_on else ""
    return [f"{on}forked: {warm.forked}, executed: {warm.executed}{why}"]


def _kept_signal(incident: Incident, before: tuple[Incident, ...]) -> list[str]:
    kept = incident.kept_signal
    if kept is None or any(one.kept_signal == kept for one in before):
        return []
    return [f"{kept.member} kept the signal for {kept.milliseconds} ms, {kept.members} in all"]


def _stacks(incident: Incident, before: tuple[Incident, ...]) -> list[str]:
    stacks = incident.stacks
    if stacks is None or any(one.stacks == stacks for one in before):
        return []
    return [f"{stacks.member} hung in {innermost(stacks)}"]


def _output(incident: Incident, before: tuple[Incident, ...]) -> list[str]:
    output = incident.output
    if output is None or any(one.output == output for one in before):
        return []
    return [f"{output.member} printed last: {' | '.join(output.text.splitlines())}"]


def _isolates(fencing: Fencing | None) -> bool:
    return fencing is not None and (fencing.isolation_seconds, fencing.longest_isolation_seconds) != (None, None)


def _fencing(told: Fencing | None) -> str:
    if told is None:
        return "nothing"
    now, longest = (
        f"{'never to stop by themselves' if isolation is None else f'isolation {isolation} s'}, {grace} s of grace"
        for isolation, grace in (
            (told.isolation_seconds, told.stop_grace_seconds),
            (told.longest_isolation_seconds, told.longest_stop_grace_seconds),
        )
    )
    return f"{now}{'' if now == longest else f'; some may go by: {longest}'}"


def told(world: World, member: str) -> list[str]:
    """What a member's supervisor is told."""
    said = world.said(member)
    return [f"{member}: {_words(said)}"]


def _words(said: Directive | None) -> str:
    if said is None:
        return "nothing"
    planned = ", planned" if said.planned else ""
    text = f"{said.verb.value} {said.attempt}, {said.grace_ms // 1000} s of grace{planned}"
    text += ", its stacks are wanted" if said.stacks else ""
    if said.run is not None:
        restore = f", restore step {said.run.restore.step}" if said.run.restore else ""
        ranks = ", ".join("-" if process.rank is None else str(process.rank) for process in said.run.processes)
        source = said.run.source
        reads = "" if source is None else f", progress from {source.file or source.pattern}"
        found = f", searches its log for {said.run.log_patterns}" if said.run.log_patterns else ""
        text += f", ranks {ranks}, only session {said.run.session}{restore}{reads}{found}"
    return text


def trace(world: World) -> list[str]:
    """The newest incident's spans, in seconds after its beginning."""
    spans = incident_spans(world.job, world.job.status.incidents[0])
    depths = {"": -1}
    lines = []
    for span in spans:
        depths[span.span_id] = depths[span.parent_id] + 1
        about = dict(span.attributes)
        who = (
            f" {about['gang.member']}.{about['gang.incarnation']} ({about['gang.part']})"
            if span.name.startswith("member")
            else ""
        )
        end = "" if span.end is None else f"{span.end - spans[0].begin:.3f}"
        failed = f", failed: {span.failed}" if span.failed else ""
        lines.append(f"{'  ' * depths[span.span_id]}{span.name}{who} {span.begin - spans[0].begin:.3f}-{end}{failed}")
    complete = is_complete(world.job, world.job.status.incidents[0], world.now)
    return [*lines, f"it is {'complete' if complete else 'not complete yet'}"]


def account(world: World) -> list[str]:
    """What the time went to, as it is stored."""
    spent = world.job.status.spent
    lines = [f"{name.replace('_', ' ')}: {seconds:g} s" for name, seconds in spent if seconds]
    good = goodput(spent)
    return [*lines, f"goodput: {'unknown' if good is None else f'{good:.0%}'}"]


def read(world: World) -> list[str]:
    """Whose output is to be read, and of which attempt."""
    queries = [one for one in world.plan().actions if isinstance(one, ReadOutput)]
    return [f"the log of {one.member}.{one.incarnation}, attempt {one.attempt}" for one in queries] or ["no log"]


def conditions(world: World) -> list[str]:
    """The conditions that hold, with Accepted in any case."""
    return [
        f"{one.type} is {one.status} ({one.reason}): {_said(world.job.status, one)}"
        for one in world.job.status.conditions
        if one.status == "True" or one.type == "Accepted"
    ]


def _said(status: Status, condition: Condition) -> str:
    said = {"Degraded": status.warning, "Accepted": status.refusal}.get(condition.type) or status.said
    again = None if said is None else said_again(said)
    return condition.message if again is None else again.shown()


def environment(world: World, member: str) -> list[str]:
    """The variables of each process that a member starts."""
    said = world.said(member)
    processes = () if said is None or said.run is None else said.run.processes
    return [line for one in processes for line in (f"{member}:", *(f"  {name}={value}" for name, value in one.env))]
