"""Mutants of the machine's rules for processes that park: which are believed, what goes on, when they are ended."""

from __future__ import annotations

from tests.simulation.mutant import one

DIRECTIVES = "sidecar/gangsidecar/supervisor/machine/directives.py"
STOP = "sidecar/gangsidecar/supervisor/machine/stop.py"
WORKER = "sidecar/gangsidecar/supervisor/machine/worker.py"
PARKING = "sidecar/gangsidecar/supervisor/machine/parking.py"

MUTANTS = (
    one(
        "Ready is said when all have parked, whatever they have left behind",
        PARKING,
        "    return hurry(state, now_ms), ()\n",
        "    from gangsidecar.supervisor.machine.directives import settle\n"
        "    state = hurry(state, now_ms)\n"
        "    return (state, ()) if mains else settle(replace(state, alive=False, stop=None), now_ms)\n",
    ),
    one(
        "a process is believed that has parked for another stop",
        PARKING,
        " or event.attempt != state.ran:\n",
        ":\n",
    ),
    one(
        "a process is believed that was not told to park",
        PARKING,
        "event.local_rank not in stop.parking or event.attempt",
        "event.attempt",
    ),
    one(
        "a process is believed that parks after SIGKILL was sent",
        PARKING,
        "    if main is None or stop is None or stop.killed_at is not None:\n",
        "    if main is None or stop is None:\n",
    ),
    one(
        "a process that dies parked has ended in the attempt that was stopped",
        WORKER,
        "        return parking.gone(state, event.local_rank), ()\n",
        "        state = replace(state, alive=True, mains=state.parked)\n",
    ),
    one(
        "a process that died parked is told to go on",
        PARKING,
        "parked=tuple(one for one in state.parked if one[0] != local_rank))",
        "parked=state.parked)",
    ),
    one(
        "a parked process goes on without being asked for",
        DIRECTIVES,
        "for local_rank, _ in state.parked if local_rank in asked)",
        "for local_rank, _ in state.parked)",
    ),
    one(
        "parked processes wait for a Run without end",
        STOP,
        "    until = state.parked_at + PARKED_MS\n",
        "    until = state.parked_at + 1_000 * PARKED_MS\n",
    ),
    one(
        "parked processes outlive their lease",
        STOP,
        "    return until if lease is None else min(until, lease)\n",
        "    return until\n",
    ),
    one(
        "parked processes outlive a supervisor that is done",
        DIRECTIVES,
        "    if state.parked and ends:\n",
        "    if state.parked and state.terminated_at is not None:\n",
    ),
    one(
        "parked processes stay in a pod that was told to end",
        WORKER,
        "    if state.parked and not state.alive:\n",
        "    if state.parked and state.alive:\n",
    ),
    one(
        "parked processes are kept beside one that is stuck",
        STOP,
        "enter(replace(state, parked=()), now_ms, Phase.STUCK)",
        "enter(state, now_ms, Phase.STUCK)",
    ),
    one(
        "processes are told to park in a pod that ends",
        STOP,
        "directive.verb is Verb.HOLD and state.terminated_at is None",
        "directive.verb is Verb.HOLD",
    ),
    one(
        "the end of parked processes counts as a stop",
        WORKER,
        "    if stop is not None and stop.of_parked:\n",
        "    if stop is not None and stop.of_parked and stop.leftover:\n",
    ),
    one(
        "a Run that was cut off counts as running when its parked processes are gone",
        DIRECTIVES,
        "    return enter(state, now_ms, Phase.READY), (Send(),)  # The Run was",
        "    return enter(state, now_ms, Phase.RUNNING), (Send(),)  # The Run was",
    ),
    one(
        "parked processes go on in an attempt whose output is searched",
        DIRECTIVES,
        "    if state.parked and is_searched(run):\n",
        "    if state.parked and is_searched(run) and state.looking:\n",
    ),
    one(
        "a Run that waited for the end of parked processes starts nothing",
        DIRECTIVES,
        "    if waited and state.terminated_at is None and not",
        "    if waited and state.looking and not",
    ),
    one(
        "a worker starts in a pod that ends when its parked processes are gone",
        DIRECTIVES,
        "    if waited and state.terminated_at is None and not",
        "    if waited and not",
    ),
    one(
        "a process whose output is searched is told to park",
        PARKING,
        '("" if run is None else why_anew(run))',
        '""',
    ),
    one(
        "a process that can park no more waits for SIGKILL",
        PARKING,
        "    is_signalled = stop.signal_at is None and stop.killed_at is None\n",
        "    is_signalled = stop.signal_at is None and stop.killed_at is not None\n",
    ),
    one(
        "what parked processes leave behind has the whole grace",
        PARKING,
        "    kill_at = min(stop.kill_at, now_ms + LEFTOVER_MS)\n",
        "    kill_at = stop.kill_at\n",
    ),
    one(
        "a member is blamed for what its parked processes left behind",
        WORKER,
        " and not stop.leftover:\n",
        ":\n",
    ),
    one(
        "a process that can park gets SIGTERM as well",
        STOP,
        "    return replace(state, stop=stop), (*effects, Signal(int(SIGTERM), asked))\n",
        "    return replace(state, stop=stop), (*effects, Signal(int(SIGTERM)))\n",
    ),
)
