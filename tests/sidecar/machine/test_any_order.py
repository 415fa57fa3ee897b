"""No order of events breaks the invariants of the machine."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from gangsidecar import wire
from gangsidecar.supervisor import machine
from gangsidecar.supervisor.machine import (
    CheckEnded,
    Exited,
    KillTree,
    Parkable,
    Parked,
    PortsFound,
    Quit,
    RestoreMissing,
    RestoreSeen,
    RunCheck,
    Signal,
    Spawn,
    Started,
    Terminate,
    Tick,
    TreeGone,
)
from gangsidecar.wire import (
    Check,
    Checkpoint,
    Corruption,
    Dropped,
    LogMatch,
    Milestone,
    Phase,
    Ping,
    Progress,
    Reached,
    Request,
    Restore,
    Source,
    Verified,
)
from tests.sidecar.machine.machines import IDENTITY, Driver, finish, hold, run


def events() -> st.SearchStrategy[tuple[int, machine.Input | None]]:
    attempts = st.integers(0, 4)
    directives = st.one_of(
        st.builds(hold, attempts, isolation_ms=st.sampled_from([None, 500])),
        st.builds(
            run,
            attempts,
            st.sampled_from(["s1", "s1", "s1", "s0"]),
            st.integers(0, 2),
            restore=st.sampled_from([None, Restore(3, "ram"), Restore(3, "shared", "/x")]),
            checkpointed=st.booleans(),
            source=st.sampled_from([None, Source(pattern="(?P<step>1)"), Source(file="/f")]),
            log_patterns=st.sampled_from([(), (), ("a",)]),
        ),
        st.builds(finish, attempts),
    )
    others: st.SearchStrategy[machine.Input | None] = st.one_of(
        st.builds(Exited, st.integers(0, 2), st.integers(0, 3)),
        st.builds(Checkpoint, st.just("ram"), st.integers(0, 9), st.integers(0, 1), attempts),
        st.builds(Dropped, st.just("ram"), st.integers(0, 9), st.integers(0, 1), attempts),
        st.builds(Progress, attempts, st.integers(0, 9), st.integers(0, 9)),
        st.builds(
            Reached,
            attempts,
            st.sampled_from(Milestone),
            st.integers(0, 9),
            st.none() | st.integers(0, 9),
            st.none() | st.integers(0, 2),
        ),
        st.builds(Request, attempts, st.integers(0, 9), st.just("why")),
        st.builds(Corruption, attempts, st.integers(0, 9), st.integers(0, 9), st.just("why"), st.integers(0, 1)),
        st.builds(Verified, attempts, st.integers(0, 9)),
        st.builds(LogMatch, attempts, st.sampled_from("ab"), st.just("line")),
        st.builds(RestoreSeen, attempts),
        st.builds(RestoreMissing, attempts),
        st.builds(Check, attempts, st.integers(1, 3), st.just("disk"), st.sampled_from([500, 5_000])),
        st.builds(CheckEnded, st.integers(1, 3), st.integers(0, 1)),
        st.builds(PortsFound, attempts, st.just(())),
        st.builds(Parkable, st.integers(0, 2), st.booleans()),
        st.builds(Parked, st.integers(0, 2), attempts),
        st.sampled_from([Ping(), TreeGone(), Started(), Tick()]),
        st.just(None),
    )
    rare = st.one_of(*[others] * 6, st.just(Terminate()))
    return st.tuples(st.integers(0, 3_000), st.one_of(directives, rare))


PARKABLE = (hold(1), PortsFound(1, ()), run(1, processes=2), Parkable(0), Parkable(1), hold(2), Parked(0, 1))
"""Some sequences begin with a worker that parks: drawn events alone come there too rarely."""


def sequences() -> st.SearchStrategy[list[tuple[int, machine.Input | None]]]:
    begun: list[tuple[int, machine.Input | None]] = [(1, event) for event in PARKABLE]
    return st.tuples(st.integers(0, len(begun)), st.lists(events(), max_size=60)).map(lambda d: begun[: d[0]] + d[1])


@settings(max_examples=400, deadline=None)
@given(sequences())
def test_no_order_of_events_breaks_the_invariants(sequence: list[tuple[int, machine.Input | None]]) -> None:
    state = machine.start_session(IDENTITY, "s1", 0)
    now, spawned, alive, terminated, attempt, done = 0, set[int](), False, False, 0, False
    checking = False
    for after, event in sequence:
        now += after
        before = state
        state, effects = machine.step(state, now, event)  # type: ignore[arg-type]
        hash(state)
        terminated = terminated or isinstance(event, Terminate)
        if isinstance(event, TreeGone):
            alive = checking = False
        for effect in effects:
            assert not done, "nothing may be done after Quit"
            if isinstance(effect, Spawn):
                assert effect.attempt not in spawned, "a worker starts at most once an attempt"
                assert effect.run.session == "s1", "only this session's Run starts anything"
                assert not terminated, "nothing starts after SIGTERM"
                assert not alive, "no two workers at once"
                assert not checking, "no worker runs while a check does"
                parked = before.stop is not None and before.stop.of_parked
                waited = (parked or before.check is not None) and isinstance(event, TreeGone)
                assert before.phase is (Phase.STOPPING if waited else Phase.READY)
                assert before.directive is not None
                searched = effect.run.log_patterns or (effect.run.source is not None and effect.run.source.pattern)
                assert not (searched and (effect.parked or before.parked)), "no output of another attempt is searched"
                assert before.directive.attempt == effect.attempt, "only what is Ready at N runs N"
                assert set(effect.parked) <= {one for one, _ in before.parked}, "only what has parked goes on"
                spawned.add(effect.attempt)
                alive = True
            if isinstance(effect, RunCheck):
                assert not any((alive, checking, terminated)), "a check runs alone"
                _may_run(state, effect.check)
                checking = True
            if isinstance(effect, (Signal, KillTree)):
                assert alive or checking or before.parked, "only a live worker is signalled"
            if isinstance(effect, Quit):
                assert not alive, "a supervisor never leaves a worker behind"
                assert not state.parked, "nor what has parked"
                done = True
        report = machine.report(state, now, 1)
        assert wire.decode(wire.encode(report)) == report
        assert report.attempt >= attempt, "a supervisor never goes back"
        attempt = report.attempt
        _is_consistent(state, report)
        if report.phase in {Phase.READY, Phase.DONE, Phase.IDLE}:
            assert not alive, "Ready is said only when no process is left"
        due = machine.deadline(state)
        if done:
            assert due is None
        if due is not None:
            ticked, _ = machine.step(state, max(due, now), Tick())
            assert machine.deadline(ticked) != due or ticked != state, "a timer that fires is over"


def _is_consistent(state: machine.State, report: wire.Report) -> None:
    found = report.log_matches
    assert {one.attempt for one in found} <= {state.ran}, "a line belongs to the newest worker"
    assert len({one.pattern for one in found}) == len(found), "each pattern is told once"
    assert {one.attempt for one in report.checks} <= {report.attempt}, "results are of the attempt"
    both = {one for one, _ in state.mains} & {one for one, _ in state.parked}
    assert not both, "what has parked is none of the attempt's processes"


def _may_run(state: machine.State, check: Check) -> None:
    report = machine.report(state, 0, 1)
    assert (report.phase, report.attempt) == (Phase.READY, check.attempt), "a check is of the attempt that is Ready"
    assert check.turn not in {one.turn for one in report.checks}, "what has a result is not run again"


@settings(max_examples=100, deadline=None)
@given(sequences())
def test_a_supervisor_without_a_controller_ends_after_any_events(
    sequence: list[tuple[int, machine.Input | None]],
) -> None:
    driver = Driver()
    for after, event in sequence:
        driver.now += after
        driver.state, _ = machine.step(driver.state, driver.now, event)  # type: ignore[arg-type]
    driver.feed(TreeGone(), Tick())
    directive = driver.state.directive
    if directive is not None:
        driver.feed(PortsFound(directive.attempt, ()))
    for _ in range(10):
        if machine.deadline(driver.state) is None:
            break
        driver.sleep()
        driver.feed(TreeGone())
    assert driver.phase() is Phase.DONE
