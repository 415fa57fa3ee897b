"""Launch modes: which processes a member starts in an attempt, with which variables.

The rule: ranks, master and world size are those of ``api/roles.py``. docs/tasks/other-languages.md has the variables.
"""

from gangctl.api.gangjob import GangJob, Launch, Role
from gangctl.api.roles import Numbering, number_places
from gangctl.api.status import Master, Status
from gangctl.core.facts.gang import trace_parent
from gangctl.core.policy.restore import tier_with
from gangsidecar.wire import Checkpoint, Process, Report

Variables = tuple[tuple[str, str], ...]
"""Names and values, in the order of the table."""


def processes_to_start(job: GangJob, numbering: Numbering, place: str, report: Report) -> tuple[Process, ...]:
    """The processes that the member on the place starts in the status' attempt.

    ``report``: its own, whose checkpoints know where a Member or Peers tier keeps them.
    """
    role = numbering.roles[place]
    ranks = numbering.ranks.get(place, ())
    paths = _restore_paths(job.status, report.checkpoints)
    common = _gang_variables(job, role, report.member) + _memory_variables(job, role, report.pod)
    common += _process_variables(job, role) + _group_variables(job, numbering, place) + _size_variables(job, role)
    if role.launch is Launch.TORCHRUN:
        return (Process(0, common + _torchrun_variables(job, numbering, place) + _path_variable(paths, ranks)),)
    if role.launch is Launch.COMMAND and role.processes_per_pod > 1:
        return (Process(0, common + _path_variable(paths, ranks)),)
    count = role.processes_per_pod
    return tuple(
        Process(at, common + _rank_variables(ranks[at], at) + _path_variable(paths, ranks[at : at + 1]), ranks[at])
        if ranks
        else Process(at, (*common, ("LOCAL_RANK", str(at))) if role.launch is Launch.PER_PROCESS else common)
        for at in range(count)
    )


def hostfiles(status: Status, numbering: Numbering) -> dict[str, tuple[str, ...]]:
    """Process group -> the lines of its host file: address and slots of its places, in the order of their node ranks.

    Who has no ranks (an MPI launcher) gets the places of all groups.
    """
    if len(status.hosts) != len(numbering.roles):
        return {}
    lines = {
        place: f"{address} slots={role.processes_per_pod}"
        for (place, role), address in zip(numbering.roles.items(), status.hosts, strict=True)
    }
    made = {group: tuple(lines[place] for place in places) for group, places in numbering.groups.items()}
    return {**made, "": tuple(line for group in made.values() for line in group)}


def _gang_variables(job: GangJob, role: Role, member: str) -> Variables:
    status = job.status
    variables = [
        ("GANG_NAME", job.metadata.name),
        ("GANG_UID", job.metadata.uid),
        ("GANG_ROLE", role.name),
        ("GANG_MEMBER", member),
        ("GANG_ATTEMPT", str(status.attempt)),
    ]
    group = job.spec.replica_group
    if group is not None and group.count is not None:
        variables += [("REPLICA_GROUP_ID", str(group.index)), ("NUM_REPLICA_GROUPS", str(group.count))]
    if status.incidents and status.incidents[0].attempt == status.attempt:
        variables.append(("TRACEPARENT", trace_parent(job, status.incidents[0])))
    point, checkpoint = status.restore_point, job.spec.checkpoint
    if checkpoint is not None:
        tiers = ",".join(f"{tier.name}={tier.source.type}" for tier in checkpoint.tiers)
        variables.append(("GANG_CHECKPOINT_TIERS", tiers))
    if checkpoint is not None and point is not None:
        variables += [("GANG_RESTORE_STEP", str(point.step)), ("GANG_RESTORE_TIER", point.tier)]
        if point.path:
            variables.append(("GANG_RESTORE_PATH", point.path))
    return tuple(variables)


def memory_folder(pod: str) -> str:
    """Where gangclient.memory keeps checkpoints in the pod with this UID."""
    return f"/dev/shm/gangctl-{pod}"  # noqa: S108 - each pod has its own; in local mode all are of one user


def _memory_variables(job: GangJob, role: Role, pod: str) -> Variables:
    tier, master = tier_with(job.spec, "Peers"), _master(job.status, role.group)
    if tier is None or master is None or master.memory_port is None:
        return ()
    return (
        ("GANG_MEMORY_TIER", tier.name),
        ("GANG_MEMORY_ADDRESS", f"{_host(master.address)}:{master.memory_port}"),
        ("GANG_MEMORY_FOLDER", memory_folder(pod)),
    )


def _process_variables(job: GangJob, role: Role) -> Variables:
    tier = tier_with(job.spec, "Process")
    return () if tier is None or not role.group else (("GANG_PROCESS_TIER", tier.name),)


def _restore_paths(status: Status, registered: tuple[Checkpoint, ...]) -> dict[int, str]:
    """Rank -> where it has the restore point, if that is in a tier of its own and the rank registered a path."""
    point = status.restore_point
    if point is None or point.path:
        return {}
    return {one.rank: one.path for one in registered if (one.tier, one.step) == (point.tier, point.step) and one.path}


def _path_variable(paths: dict[int, str], ranks: tuple[int, ...]) -> Variables:
    """One path for a process that stands for several ranks only if it is the same for all of them."""
    found = {paths.get(rank, "") for rank in ranks}
    path = found.pop() if len(found) == 1 else ""
    return (("GANG_RESTORE_PATH", path),) if path else ()


def _group_variables(job: GangJob, numbering: Numbering, place: str) -> Variables:
    role = numbering.roles[place]
    master = _master(job.status, role.group)
    if master is None or role.launch is Launch.TORCHRUN:
        return ()
    world = str(numbering.world_size(role.group))
    return (
        ("WORLD_SIZE", world),
        ("LOCAL_WORLD_SIZE", str(role.processes_per_pod)),
        ("NODE_RANK", str(numbering.node_ranks[place])),
        ("NNODES", str(len(numbering.groups[role.group]))),
        ("MASTER_ADDR", master.address),
        ("MASTER_PORT", str(master.port)),
        ("JAX_COORDINATOR_ADDRESS", f"{_host(master.address)}:{master.port}"),
        ("JAX_NUM_PROCESSES", world),
    )


def _size_variables(job: GangJob, role: Role) -> Variables:
    """For scripts that scale what depends on the number of ranks: how many there are of a gang with all its members."""
    if not role.group or all(one.group != role.group or one.min_replicas is None for one in job.spec.roles):
        return ()
    wanted = ("GANG_SIZE_WANTED", str(number_places(job.spec.roles).world_size(role.group)))
    known = job.status.size
    return (wanted, ("GANG_SIZE_REASON", known.reason)) if known is not None and known.roles else (wanted,)


def _rank_variables(rank: int, local_rank: int) -> Variables:
    return (("RANK", str(rank)), ("LOCAL_RANK", str(local_rank)), ("JAX_PROCESS_ID", str(rank)))


def _torchrun_variables(job: GangJob, numbering: Numbering, place: str) -> Variables:
    role = numbering.roles[place]
    master = _master(job.status, role.group)
    if master is None:
        return ()
    return (
        ("PET_NNODES", str(len(numbering.groups[role.group]))),
        ("PET_NPROC_PER_NODE", str(role.processes_per_pod)),
        ("PET_NODE_RANK", str(numbering.node_ranks[place])),
        ("PET_MASTER_ADDR", master.address),
        ("PET_MASTER_PORT", str(master.port)),
        ("PET_RDZV_ID", f"{job.metadata.uid}-{job.status.attempt}"),
        ("PET_MAX_RESTARTS", "0"),
    )


def _master(status: Status, group: str) -> Master | None:
    return next((master for master in status.masters if master.process_group == group), None)


def _host(address: str) -> str:
    return f"[{address}]" if ":" in address else address
