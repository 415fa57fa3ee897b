"""Launch modes: which processes a member starts in an attempt, with which variables.

The rule: ranks, master and world size are counted per process group, in the order of roles and indexes; a member of no
group gets no ranks. The table is in docs/reference; a variable that isn't in it is never set.
"""

from __future__ import annotations

from gangctl.api.gangjob import GangJob, Launch, Role, Spec
from gangctl.api.names import member_name
from gangctl.api.status import Incident, Master, Status
from gangsidecar.wire import Process


def node_rank(spec: Spec, place: str) -> int:
    """The place's number among the places of its process group."""
    return group_places(spec, _role_of(spec, place).group).index(place)


def group_places(spec: Spec, group: str) -> list[str]:
    """The places of a process group, in the order of their ranks."""
    return [member_name(role.name, at) for role in spec.roles if role.group == group for at in range(role.replicas)]


def process_groups(spec: Spec) -> list[str]:
    """The process groups that have ranks, in the order of roles."""
    return list(dict.fromkeys(role.group for role in spec.roles if role.group))


def world_size(spec: Spec, group: str) -> int:
    """How many ranks the group has."""
    return sum(role.replicas * role.processes_per_pod for role in spec.roles if role.group == group)


def ranks_of(spec: Spec, place: str) -> tuple[int, ...]:
    """The ranks of a place in its group, as many as it has processes (torchrun's children included); () without one."""
    group = _role_of(spec, place).group
    if not group:
        return ()
    first = 0
    for role in spec.roles:
        if role.group != group:
            continue
        for at in range(role.replicas):
            if member_name(role.name, at) == place:
                return tuple(range(first, first + role.processes_per_pod))
            first += role.processes_per_pod
    return ()


def processes(job: GangJob, place: str, member: str) -> tuple[Process, ...]:
    """What the member that holds the place starts in the status' attempt."""
    role = _role_of(job.spec, place)
    ranks = ranks_of(job.spec, place)
    common = _gang_variables(job, role, member) + _group_variables(job, role, place)
    if role.launch is Launch.TORCHRUN:
        return (Process(0, common + _torchrun_variables(job, role, place)),)
    if role.launch is Launch.COMMAND and role.processes_per_pod > 1:
        return (Process(0, common),)
    count = role.processes_per_pod
    return tuple(
        Process(at, common + _rank_variables(ranks[at], at), ranks[at])
        if ranks
        else Process(at, (*common, ("LOCAL_RANK", str(at))))
        for at in range(count)
    )


def trace_parent(incident: Incident) -> str:
    """The W3C trace context of an incident: its root span's id is the first half of the trace id."""
    return f"00-{incident.trace_id}-{incident.trace_id[:16]}-01"


def _role_of(spec: Spec, place: str) -> Role:
    name = place.rpartition("-")[0]
    return next(role for role in spec.roles if role.name == name)


def _gang_variables(job: GangJob, role: Role, member: str) -> tuple[tuple[str, str], ...]:
    status = job.status
    variables = [
        ("GANG_NAME", job.metadata.name),
        ("GANG_ROLE", role.name),
        ("GANG_MEMBER", member),
        ("GANG_ATTEMPT", str(status.attempt)),
    ]
    if status.incidents:
        variables.append(("TRACEPARENT", trace_parent(status.incidents[0])))
    point = status.restore_point
    if job.spec.checkpoint is not None and point is not None:
        variables += [("GANG_RESTORE_STEP", str(point.step)), ("GANG_RESTORE_TIER", point.tier)]
        if point.path:
            variables.append(("GANG_RESTORE_PATH", point.path))
    return tuple(variables)


def _group_variables(job: GangJob, role: Role, place: str) -> tuple[tuple[str, str], ...]:
    master = _master(job.status, role.group)
    if master is None or role.launch is Launch.TORCHRUN:
        return ()
    world, nodes, rank = (
        world_size(job.spec, role.group),
        len(group_places(job.spec, role.group)),
        node_rank(job.spec, place),
    )
    return (
        ("WORLD_SIZE", str(world)),
        ("LOCAL_WORLD_SIZE", str(role.processes_per_pod)),
        ("NODE_RANK", str(rank)),
        ("NNODES", str(nodes)),
        ("MASTER_ADDR", master.address),
        ("MASTER_PORT", str(master.port)),
        ("JAX_COORDINATOR_ADDRESS", f"{_host(master.address)}:{master.port}"),
        ("JAX_NUM_PROCESSES", str(world)),
    )


def _rank_variables(rank: int, local_rank: int) -> tuple[tuple[str, str], ...]:
    return (("RANK", str(rank)), ("LOCAL_RANK", str(local_rank)), ("JAX_PROCESS_ID", str(rank)))


def _torchrun_variables(job: GangJob, role: Role, place: str) -> tuple[tuple[str, str], ...]:
    master = _master(job.status, role.group)
    if master is None:
        return ()
    return (
        ("PET_NNODES", str(len(group_places(job.spec, role.group)))),
        ("PET_NPROC_PER_NODE", str(role.processes_per_pod)),
        ("PET_NODE_RANK", str(node_rank(job.spec, place))),
        ("PET_MASTER_ADDR", master.address),
        ("PET_MASTER_PORT", str(master.port)),
        ("PET_RDZV_ID", f"{job.metadata.uid}-{job.status.attempt}"),
        ("PET_MAX_RESTARTS", "0"),
    )


def _master(status: Status, group: str) -> Master | None:
    return next((master for master in status.masters if master.process_group == group), None)


def _host(address: str) -> str:
    return f"[{address}]" if ":" in address else address
