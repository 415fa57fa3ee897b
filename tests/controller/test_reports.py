"""What a report changes in what is known of its pod: any report, as hypothesis draws them from the types."""

from __future__ import annotations

from dataclasses import fields, replace

from hypothesis import given
from hypothesis import strategies as st

from gangctl.controller.reports import ReportChange, ReportStore, substance
from gangsidecar import wire
from gangsidecar.wire import Phase, Progress, Report, Scanned
from tests.sidecar.test_wire import values

YEAR_MS = 365 * 86_400_000


@given(values(Report), st.integers(0, YEAR_MS))
def test_a_report_that_was_sent_later_says_the_same(report: Report, milliseconds: int) -> None:
    assert substance(wire.aged(report, milliseconds)) == substance(report)


@given(values(Report), values(Report), st.sampled_from([one.name for one in fields(Report)]))
def test_every_field_but_an_age_makes_a_difference(report: Report, other: Report, name: str) -> None:
    changed = replace(report, **{name: getattr(other, name)})
    assert (substance(changed) == substance(report)) is (without_ages(changed) == without_ages(report))


def without_ages(report: Report) -> Report:
    """A copy whose ages are all the same."""
    progress, request = report.progress, report.request
    return replace(
        report,
        seq=0,
        sent_ms=0,
        phase_age_ms=0,
        ends=tuple(replace(end, age_ms=0) for end in report.ends),
        progress=None
        if progress is None
        else replace(
            progress,
            age_ms=0,
            first_age_ms=None,
            behind=None if progress.behind is None else replace(progress.behind, age_ms=0),
        ),
        request=None if request is None else replace(request, age_ms=0),
        corruption=None if report.corruption is None else replace(report.corruption, age_ms=0),
        reached=tuple(replace(one, age_ms=0) for one in report.reached),
    )


def changes(*reports: Report) -> list[ReportChange]:
    store = ReportStore()
    return [store.add(replace(one, seq=at), 1.0) for at, one in enumerate(reports)]


def test_a_step_is_less_than_any_other_news() -> None:
    running = Report("g", "worker-0", 0, "p", "s", 1, 1, Phase.RUNNING)
    first, second = (replace(running, progress=Progress(1, step, 0, "Step", 1, 0)) for step in (1, 2))
    named = replace(running, progress=Progress(1, 3, 0, "Save", 1, 0))
    found = changes(running, running, first, second, second, named)
    assert [one.name for one in found] == ["STATE", "NONE", "STATE", "STEP", "NONE", "STATE"]


def test_an_answer_to_a_scan_that_says_the_same_is_news_only_after_a_while() -> None:
    store, answer = ReportStore(), Scanned(1, "pod-0")
    assert store.scanned("gang") == (None, 0.0)
    assert store.add_scanned("gang", answer, 100.0) is ReportChange.STATE
    assert store.add_scanned("gang", answer, 100.5) is ReportChange.NONE, "one that answers all the time wakes nothing"
    assert store.add_scanned("gang", answer, 102.0) is ReportChange.STATE, (
        "it may have been asked whether it is still so"
    )
    assert store.add_scanned("gang", Scanned(1, "pod-0", error="gone"), 102.1) is ReportChange.STATE
    assert store.scanned("gang") == (Scanned(1, "pod-0", error="gone"), 102.1)
