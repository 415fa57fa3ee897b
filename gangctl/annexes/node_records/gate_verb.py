"""``gangctl gate``: whether nodes or images with a change do worse than those without it, as an exit code."""

from __future__ import annotations

import argparse
import math
import re
import sys
import time
from argparse import ArgumentTypeError
from collections.abc import Collection, Mapping
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rich.text import Text

from gangctl.annexes.node_records import gate, reader, selector
from gangctl.annexes.node_records.gang_samples import gang_samples, on_nodes, with_image
from gangctl.annexes.node_records.gate import Comparison, GangMeasure, Measure, Outcome, Sample, Verdict
from gangctl.annexes.node_records.records import HOUR, KEPT_HOURS
from gangctl.api.model import rfc3339
from gangctl.cli.errors import ExitCode, UserError
from gangctl.cli.printers.output import console, print_document, print_err, trim_lines
from gangctl.cli.printers.tables import FittingTable
from gangctl.cli.targets import selection
from gangctl.cluster.errors import Retryable
from gangctl.words.text import counted, listed

if TYPE_CHECKING:
    from gangctl.cli.targets.kube import ClusterTarget

NOT_ENOUGH: Final = 3
"""The exit code."""
WATCH_SECONDS: Final = 60.0
_CODES: Final = {
    Outcome.PASSED: ExitCode.OK,
    Outcome.FAILED: ExitCode.FAILED,
    Outcome.NOT_ENOUGH_DATA: NOT_ENOUGH,
}
_DURATION: Final = re.compile(r"([1-9]\d{0,3})([hd])")
_EPILOG: Final = """\
examples:
  gangctl gate --candidate driver=580 --baseline driver=570
                                      nodes with the new driver and with the old one, in the last day
  gangctl gate --candidate node.kubelet=v1.37.2 --baseline 'node.kubelet!=v1.37.2' --since 2h
  gangctl gate --candidate-image bench:v2 --baseline-image bench:v1 --gangs work=bench
                                      gangs with the new image of their workers and with the old one, on any nodes
  gangctl gate --candidate pool=canary --baseline pool=a100 --slo restarts-per-node-day=0.5 --watch
                                      also fail above half a restart a day and node; wait for an answer

A selector is one of labels, as kubectl takes it, with four pseudo-labels: node.kubelet, node.kernel, node.image (of the
operating system) and node.runtime have the versions that the node reports.

Counted are hours of a node with a fault that gangctl put down to it or its device, and hours with a restart that one of
its pods caused, while a running gang had a pod there. Both rates are compared by the one-sided conditional test of two
Poisson rates at a level of 5 % for all comparisons together, so that about one harmless change in 20 fails at most. The
answer is "not enough data" as long as an increase by --detect would be missed with a probability of over 20 %; until
then, only a difference beyond 0.1 % fails, so looking again and again is harmless.

With --gangs, gangs that do the same work are compared too, those that were created in that time and have all pods on
nodes of one set: goodput, seconds a step, seconds from the start to the first step, whether ranks are slow, and the
share of checks that failed, by Wilcoxon's exact rank sum test. It takes at least 3 gangs beside 7, or 4 beside 5. A
limit of --slo for one of these fails if the candidates' median is beyond it. With --candidate-image, gangs alone are
compared, wherever they run: those whose workers have this image, and none the baseline's.

Permissions: list nodes; in the controller's namespace, get the ConfigMap NAME-node-records; with --gangs, list gangjobs
and pods.

exit codes: 0 pass, 1 fail, 2 bad input or not permitted, 3 not enough data
"""


class _Look(NamedTuple):
    candidate: Sample
    baseline: Sample
    verdict: Verdict


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    for name, which in (("--candidate", "with the change"), ("--baseline", "without it")):
        parser.add_argument(name, metavar="SELECTOR", type=_selector, help=f"selector of the nodes {which}")
        parser.add_argument(
            f"{name}-image",
            metavar="IMAGE",
            help=f"in place of nodes: image of the workers {which}, a digest, name or shell pattern; needs --gangs",
        )
    parser.add_argument(
        "--since",
        metavar="TIME",
        type=_seconds,
        default="24h",
        help=f"how far to look back, in whole hours such as 2h, at most {KEPT_HOURS}h (default: %(default)s)",
    )
    parser.add_argument(
        "--slo",
        metavar="NAME=RATE",
        type=_limits,
        default={},
        help="rates above which the candidates fail, whatever the baseline's: "
        f"{', '.join(Measure)}; with --gangs, medians: {', '.join(GangMeasure)}",
    )
    parser.add_argument(
        "--detect",
        metavar="RATE",
        type=_rate,
        default=1.0,
        help="increase, in events per node-day, that must not go unnoticed (default: %(default)s)",
    )
    parser.add_argument(
        "--gangs", metavar="SELECTOR", default="", help="labels of gangs of this namespace that do the same work"
    )
    parser.add_argument("--watch", action="store_true", help="look each minute until the answer is pass or fail")
    parser.add_argument("-o", "--output", choices=["json", "yaml"], help="print for programs")
    selection.configure_controller(parser, "Lease of the controller whose records these are")
    selection.configure_cluster(parser)


def run(arguments: argparse.Namespace) -> int:
    """Compare, once or until there is an answer."""
    if not arguments.gangs and (unknown := [one for one in arguments.slo if isinstance(one, GangMeasure)]):
        raise UserError(f"--slo {unknown[0]} is for gangs: select those that do the same work, with --gangs SELECTOR")
    check_sides(arguments)
    since = time.time() - arguments.since
    with selection.open_cluster(arguments) as target:
        while True:
            try:
                found = _look(target, arguments, since)
            except Retryable as error:
                if not arguments.watch:
                    raise
                print_err(f"the next look is in {WATCH_SECONDS:g} s: {error}")
                time.sleep(WATCH_SECONDS)
                continue
            is_known = found.verdict.outcome is not Outcome.NOT_ENOUGH_DATA
            if is_known or not arguments.watch or not arguments.output:
                _print(found, arguments, since)
            if is_known or not arguments.watch:
                return _CODES[found.verdict.outcome]
            time.sleep(WATCH_SECONDS)


def check_sides(arguments: argparse.Namespace) -> None:
    """Check that two sets of nodes are named, or two images.

    Raises:
        UserError: they aren't.
    """
    sides = ("candidate", "baseline", "candidate_image", "baseline_image")
    given = [getattr(arguments, one) is not None for one in sides]
    if given == [False, False, True, True] and arguments.gangs:
        if known := [one for one in arguments.slo if isinstance(one, Measure)]:
            raise UserError(f"--slo {known[0]} is for nodes: images are compared by gangs alone")
    elif given != [True, True, False, False]:
        raise UserError(
            "name two sets of nodes, with --candidate and --baseline, or two images of the workers of gangs, with "
            "--candidate-image, --baseline-image and --gangs"
        )


def _look(target: ClusterTarget, arguments: argparse.Namespace, since: float) -> _Look:
    theirs, other = Sample(), Sample()
    image, usual = arguments.candidate_image, arguments.baseline_image
    if image is None:
        nodes = target.ask(reader.list_nodes)
        candidates, baseline = (selector.selected(nodes, one) for one in (arguments.candidate, arguments.baseline))
        _check(candidates, baseline)
        records = target.ask(partial(reader.read_records, controller=arguments.controller))
        theirs, other = gate.sample(records, candidates, since), gate.sample(records, baseline, since)
        sides = on_nodes(candidates), on_nodes(baseline)
    else:
        sides = with_image(image, usual), with_image(usual, image)
    if arguments.gangs:
        gangs = target.ask(partial(reader.list_gangs, selector=arguments.gangs))
        theirs, other = (
            one._replace(gangs=gang_samples(gangs, side, since))
            for one, side in zip((theirs, other), sides, strict=True)
        )
    return _Look(theirs, other, gate.judge(theirs, other, arguments.slo, arguments.detect))


def _check(candidates: Collection[str], baseline: Collection[str]) -> None:
    for which, names in (("--candidate", candidates), ("--baseline", baseline)):
        if not names:
            raise UserError(f"{which} selects no node: kubectl get nodes --show-labels shows their labels")
    if both := sorted(set(candidates) & set(baseline)):
        verb = "is" if len(both) == 1 else "are"
        raise UserError(f"{listed(both)} {verb} selected by both --candidate and --baseline: narrow a selector")


def _print(found: _Look, arguments: argparse.Namespace, since: float) -> None:
    if arguments.output:
        print_document(_document(found, arguments, since), arguments.output)
        return
    out = console(sys.stdout)
    columns = ("MEASURE", "CANDIDATE", "COMPARED WITH", "P-VALUE", "POWER")
    rows = tuple(_row(one, found) for one in found.verdict.comparisons)
    with trim_lines(out):
        for name, one in (("candidate", found.candidate), ("baseline", found.baseline)):
            out.print(Text(f"{name}: {_observed(one)}"))
        out.print(FittingTable(columns, rows))
        out.print(Text(_sentence(found, arguments.detect)))


def _observed(one: Sample) -> str:
    if one.events:
        return f"{counted(one.nodes, 'node')} observed for {one.days:.2f} node-days"
    return f"{counted(max(map(len, one.gangs.values()), default=0), 'gang')} observed"


def _row(one: Comparison, found: _Look) -> tuple[str, ...]:
    theirs = f"limit {one.limit:g}" if one.limit is not None else _shown(found.baseline, one.measure)
    return one.measure, _shown(found.candidate, one.measure), theirs, f"{one.p_value:.3g}", f"{one.power:.2f}"


def _shown(sample: Sample, measure: Measure | GangMeasure) -> str:
    if isinstance(measure, GangMeasure):
        values = sample.gangs.get(measure, ())
        return f"{median(values):.3g} ({counted(len(values), 'gang')})" if values else "-"
    count = sample.events[measure]
    return f"{count} ({count / sample.days:.2g} a day)" if sample.days else str(count)


def _sentence(found: _Look, detect: float) -> str:
    verdict = found.verdict
    match verdict.outcome:
        case Outcome.FAILED:
            names = [one.measure for one in verdict.comparisons if one.p_value <= verdict.level]
            what = listed(list(dict.fromkeys(names)))
            return f"FAIL: {what} of the candidates would be so bad by chance in {verdict.level:.2%} of cases at most"
        case Outcome.PASSED if not found.candidate.events:
            return "PASS: the candidates' gangs do no worse, and gangs that are all worse would have been noticed"
        case Outcome.PASSED:
            return f"PASS: the candidates show no more faults, and {detect:g} more a node-day would have been noticed"
        case _:
            few = [one.measure for one in verdict.comparisons if one.power < gate.POWER]
            return (
                f"NOT ENOUGH DATA: a change of {listed(list(dict.fromkeys(few))) or 'gangs'} could go unnoticed "
                f"({detect:g} more events a node-day, or gangs that are all worse); wait, or take more candidates"
            )


def _document(found: _Look, arguments: argparse.Namespace, since: float) -> dict[str, Any]:
    verdict = found.verdict
    return {
        "kind": "Gate",
        "outcome": verdict.outcome.value,
        "sinceTime": rfc3339(since),
        "detect": arguments.detect,
        "level": verdict.level,
        "candidate": _sample(found.candidate),
        "baseline": _sample(found.baseline),
        "comparisons": [_comparison(one, verdict) for one in verdict.comparisons],
    }


def _sample(one: Sample) -> dict[str, Any]:
    events = {measure.value: count for measure, count in one.events.items()}
    gangs = {measure.value: list(values) for measure, values in one.gangs.items()}
    return {"observedNodes": one.nodes, "nodeDays": round(one.days, 4), "events": events, "gangs": gangs}


def _comparison(one: Comparison, verdict: Verdict) -> dict[str, Any]:
    return {
        "measure": one.measure.value,
        **({} if one.limit is None else {"limit": one.limit}),
        "pValue": one.p_value,
        "power": one.power,
        "failed": one.p_value <= verdict.level,
    }


def _selector(text: str) -> tuple[Mapping[str, Any], ...]:
    try:
        return selector.parse(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from None


def _seconds(text: str) -> float:
    match = _DURATION.fullmatch(text)
    hours = int(match[1]) * (24 if match[2] == "d" else 1) if match else 0
    if not 1 <= hours <= KEPT_HOURS:
        raise ArgumentTypeError(f"{text!r:.40} isn't a time from 1h to {KEPT_HOURS}h")
    return hours * HOUR


def _limits(text: str) -> Mapping[Measure | GangMeasure, float]:
    known: Mapping[str, Measure | GangMeasure] = {one.value: one for one in (*Measure, *GangMeasure)}
    made = {}
    for part in text.split(","):
        name, _, rate = part.partition("=")
        if name not in known:
            raise ArgumentTypeError(f"{name!r:.40} isn't known; there are {', '.join(known)}")
        made[known[name]] = _rate(rate)
    return made


def _rate(text: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        rate = 0.0
    if not 0 < rate < math.inf:
        raise ArgumentTypeError(f"{text!r:.40} isn't a rate: use a number above 0")
    return rate
