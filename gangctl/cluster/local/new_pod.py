"""A new pod of local mode, as files: what is stored before its processes start."""

from __future__ import annotations

import os
import secrets
import uuid

from gangctl.api.gangjob import GangJob
from gangctl.api.names import pod_name
from gangctl.cluster import clock
from gangctl.cluster.local import pod_record
from gangctl.cluster.local.atomic_files import sync_folder, unwritable, write
from gangctl.cluster.local.layout import GangFolder, StateDirectory, runtime_directory
from gangctl.cluster.local.pod_record import PodRecord
from gangctl.cluster.local.worker_command import command
from gangctl.core.policy.pods import CreatePod


def store_pod(state: StateDirectory, folder: GangFolder, job: GangJob, create: CreatePod) -> PodRecord:
    """Write the files of a new pod. This is blocking.

    Raises:
        Retryable: they can't be written.
        Terminal: its template can't be run on this machine.
    """
    worker = command(job, create.member, os.environ)
    uid = str(uuid.uuid4())
    stored = PodRecord(
        name=pod_name(job.metadata.name, create.member, create.incarnation),
        uid=uid,
        gang=job.metadata.uid,
        member=create.member,
        incarnation=create.incarnation,
        created=clock.now(),
        token=secrets.token_urlsafe(32),
        sockets=str(runtime_directory() / uid.replace("-", "")[:16]),
        command=worker.words,
        environment=worker.environment,
        directory=str(worker.directory),
        grace_seconds=worker.grace_seconds,
    )
    pod = folder.pod(stored.name)
    try:
        pod.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        pod.state_file.unlink(missing_ok=True)
        pod.termination_log.unlink(missing_ok=True)
        write(pod.program, state.program.read_bytes(), durable=False)
        write(pod.token, stored.token.encode(), durable=False)
        pod_record.save(pod, stored, durable=True)
        sync_folder(folder.pods)
    except OSError as error:
        raise unwritable(pod.path, error) from error
    return stored
