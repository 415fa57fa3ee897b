"""Deliberate mistakes in fencing, leases and clocks."""

from __future__ import annotations

from tests.simulation.mutant import one

BARRIER = "gangctl/core/facts/barrier.py"
FENCING = "gangctl/core/policy/fencing.py"
DIRECTIVES = "sidecar/gangsidecar/supervisor/machine/directives.py"

MUTANTS = (
    one(
        "fencing ignores the stop grace",
        BARRIER,
        " + told.longest_isolation_seconds + told.longest_stop_grace_seconds + ISOLATION",
        " + told.longest_isolation_seconds + ISOLATION",
    ),
    one(
        "fencing goes by what is told now",
        BARRIER,
        "silent_since + told.longest_isolation_seconds + told.longest_stop_grace_seconds",
        "silent_since + (told.isolation_seconds or 0) + told.stop_grace_seconds",
    ),
    one(
        "what may be in force is lowered before every member goes by less",
        FENCING,
        "(starts or _all_go_by(gang, after, revision))",
        "(starts or True)",
    ),
    one(
        "a directive tells more than the status has",
        "gangctl/core/lifecycle/directive.py",
        "recovery.isolation_timeout_seconds if told is None else told.isolation_seconds",
        "recovery.isolation_timeout_seconds",
    ),
    one(
        "a new leader believes a wait of another clock",
        BARRIER,
        "    return max(entry.vanished_time, gang.observed.listening_since) + gang",
        "    return entry.vanished_time + gang",
    ),
    one(
        "a ping prolongs a lease from when it arrives",
        "sidecar/gangsidecar/supervisor/machine/framework.py",
        "heard = now_ms if event.heard_ms is None else event.heard_ms",
        "heard = now_ms",
    ),
    one(
        "a worker starts when its restore point is found after the lease",
        DIRECTIVES,
        "    if _is_cut_off(state, now_ms, current):\n",
        "    if False:\n",
    ),
    one(
        "a pod that reports counts as ended",
        BARRIER,
        "p.shown.terminated and _is_silent(p)",
        "p.shown.terminated",
    ),
    one(
        "pods of unknown UID are taken for one another",
        "gangctl/core/facts/awaiting.py",
        "    more = {one[:3]: one for one in found if one[:3] not in known}\n",
        "    uids = {entry.pod for entry in status.awaited}\n"
        "    more = {one[:3]: one for one in found if one.pod not in uids}\n",
    ),
    one(
        "a pod that may have run a worker is made again under its name",
        "gangctl/core/policy/pods.py",
        "            and name not in workers\n",
        "",
    ),
    one(
        "a pod that is given up now need not go by what is told",
        FENCING,
        "    gang = gang.with_status(after)\n",
        "",
    ),
    one(
        "a time to come is believed",
        "gangctl/core/lifecycle/decide.py",
        "believed(Gang(now, job, observed))",
        "Gang(now, job, observed)",
    ),
    one(
        "a wait for evidence is over in a new term",
        "gangctl/core/policy/cause.py",
        "max(incident.time, gang.observed.listening_since)",
        "incident.time",
    ),
    one(
        "the grace of pods that end is over in a new term",
        "gangctl/core/policy/pods.py",
        "max(gang.status.phase_time, gang.observed.listening_since)",
        "gang.status.phase_time",
    ),
    one(
        "a process that has outlived SIGKILL counts as fenced",
        "gangctl/core/facts/barrier.py",
        "p.heard.report.phase is Phase.STUCK",
        "p.heard.report.phase is Phase.DONE",
    ),
)
