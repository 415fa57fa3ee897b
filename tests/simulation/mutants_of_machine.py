"""Mutants of the supervisor's machine: which directive it obeys, and when its worker starts and ends."""

from __future__ import annotations

from tests.simulation.mutant import one

DIRECTIVES = "sidecar/gangsidecar/supervisor/machine/directives.py"
STOP = "sidecar/gangsidecar/supervisor/machine/stop.py"
WORKER = "sidecar/gangsidecar/supervisor/machine/worker.py"
FRAMEWORK = "sidecar/gangsidecar/supervisor/machine/framework.py"

MUTANTS = (
    one(
        "exit 0 after the kubelet's SIGTERM is natural",
        WORKER,
        "stopped=state.stop is not None or state.terminated_at is not None,",
        "stopped=state.stop is not None,",
    ),
    one(
        "an end after a directive's stop is natural",
        WORKER,
        "stopped=state.stop is not None or state.terminated_at is not None,",
        "stopped=state.terminated_at is not None,",
    ),
    one(
        "a line of an older worker counts for the next one",
        WORKER,
        "    if event.attempt != state.ran or len(known)",
        "    if event.attempt > state.ran or len(known)",
    ),
    one(
        "a Run is accepted while the member is cut off",
        DIRECTIVES,
        " or _is_cut_off(state, now_ms, new):\n",
        ":\n",
    ),
    one(
        "a Run is accepted in a pod that was told to end",
        DIRECTIVES,
        "run.session != state.session or state.terminated_at is not None:",
        "run.session != state.session:",
    ),
    one(
        "a worker that waits for its restore point starts in a pod that was told to end",
        WORKER,
        "terminated_at=now_ms, looking=False)",
        "terminated_at=now_ms)",
    ),
    one(
        "a worker starts without a look for its restore point",
        DIRECTIVES,
        "    if run.restore is not None and run.restore.path:\n",
        "    if run.restore is not None and run.restore.path and not run.checkpointed:\n",
    ),
    one(
        "the grace of a stop never ends",
        STOP,
        "    return replace(state, stop=stop), (KillTree(),)\n",
        "    return replace(state, stop=stop), ()\n",
    ),
    one(
        "the grace of a stop begins anew when the stacks are taken",
        STOP,
        "signal_at=None, parking=asked)",
        "signal_at=None, parking=asked, kill_at=stop.kill_at + now_ms - stop.since)",
    ),
    one(
        "a process is signalled while its stacks are being taken",
        FRAMEWORK,
        " and not stop.taking\n",
        "\n",
    ),
    one(
        "a member that is cut off trains on without end",
        STOP,
        "else [(lease, begin_stop)]\n",
        "else [(100 * lease, begin_stop)]\n",
    ),
    one(
        "a stop signals the worker alone, and never kills its tree",
        STOP,
        "else (stop.kill_at, _kill)",
        "else (stop.kill_at + 100_000_000, _kill)",
    ),
    one(
        "a supervisor that was told to finish obeys again",
        DIRECTIVES,
        "        if new.order < old.order or old.verb is Verb.FINISH:",
        "        if new.order < old.order:",
    ),
    one(
        "a worker starts again in its attempt, in a new session of its pod",
        DIRECTIVES,
        "new.attempt <= state.ran_in_pod or ",
        "",
    ),
    one(
        "a directive for another pod is obeyed",
        DIRECTIVES,
        "    if (new.gang, new.pod) != (state.identity.gang, state.identity.pod):",
        "    if new.gang != state.identity.gang:",
    ),
    one(
        "calls of an older attempt's worker count",
        FRAMEWORK,
        "    return attempt == state.ran and state.ran > 0 and",
        "    return state.ran > 0 and",
    ),
    one(
        "a worker that ended within its grace counts as killed",
        WORKER,
        "        killed_ms = 0\n",
        "        killed_ms = now_ms - stop.since\n",
    ),
    one(
        "a stop that is announced never gets its signal",
        STOP,
        "signal_at=now_ms + min(NOTICE_MS, (stop.kill_at - now_ms) // 2)",
        "signal_at=stop.kill_at",
    ),
    one(
        "readers of an older attempt delay the signal",
        DIRECTIVES,
        "        readers=0,\n",
        "",
    ),
)
