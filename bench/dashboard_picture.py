"""Records docs/pictures/dashboard.svg and dashboard-controller.svg: the chart's dashboard while gangs have faults.

    python -m bench.dashboard_picture        as root; see e2e/

It starts its own cluster, or uses that of `make e2e-up`, installs the chart, lets a real Prometheus scrape the
controllers, and runs gangs for some minutes: workers are killed, exit, or ask for a restart, a device fails, and a gang
waits for devices. Then Prometheus answers each panel's own query, as it stands in the dashboard, and the answers are
drawn with Matplotlib. It ends with 1, and names the queries, if one finds nothing that should find something.
"""

from __future__ import annotations

import argparse
import math
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from bench.pictures import FOLDER
from e2e import clusters, installation, process_faults
from e2e.accelerators import RESOURCE, plugged_in
from e2e.cluster.device_plugin import Devices
from e2e.cluster.progress import announce
from e2e.clusters import Cluster
from e2e.dashboard import COLUMNS, Panel, Range, Series, answer, panels, unanswered
from e2e.gangs import Gang, trainers
from e2e.jaeger import Jaeger
from e2e.prometheus import prometheus_on

RESEARCH: Final = "research"
SEARCH: Final = "search"
PAUSE_SECONDS: Final = 25.0
"""Between two faults."""
POINTS: Final = 150
CONTROLLER: Final = "The controller"
"""The row with which the second picture begins."""
QUIET: Final[Mapping[str, str]] = {
    "Degraded gangs by reason: {{reason}}": "No gang is degraded",
    "Refused connections: {{reason}}": "No connection was refused",
}
"""Queries that find nothing in this recording -> why."""
WIDTH: Final = 1248
"""Of a picture, in pixels."""
_ROW: Final = 32
"""Height of a row of the dashboard's grid."""
_DPI: Final = 96
_MARGINS: Final = (62, 12, 34, 28)
"""Of a panel: left, right, top, and bottom above the legend."""
_LEGEND_LINES: Final = 5
_LEGEND_LINE: Final = 17


class Recording:
    """The gangs that are recorded."""

    def __init__(self, cluster: Cluster, folder: Path, traces: str) -> None:
        self._cluster, self._folder, self._traces = cluster, folder, traces

    def submit(self, namespace: str, name: str, replicas: int, **more: Any) -> Gang:
        """A gang that trains with one device for each worker. ``more``: fields of its role."""
        directory = self._folder / name
        directory.mkdir()
        directory.chmod(0o777)
        rules = [{"name": "asked-to-leave", "action": "Ignore", "onExitCodes": {"operator": "In", "values": [75]}}]
        policy = {"rules": rules}
        document = trainers(name, replicas=replicas, directory=directory, traces=self._traces, podFailurePolicy=policy)
        role = document["spec"]["roles"][0]
        role |= more
        role["template"]["spec"]["containers"][0]["resources"] = {"limits": {RESOURCE: 1}}
        return Gang(self._cluster.kubectl, namespace, name).apply(document)

    def fault(self, gang: Gang, member: str, number: signal.Signals) -> None:
        """Send a signal to a worker, and wait until the next attempt makes steps."""
        attempt = gang.status["attempt"] + 1
        announce(f"{gang.name}: {number.name} to {member}")
        process_faults.worker(gang.uids()[member]).send(number)
        trains(gang, attempt)
        time.sleep(PAUSE_SECONDS)  # what is recorded is time

    def remove(self, gang: Gang) -> None:
        """Delete it, and wait until its pods are gone."""
        words = ("gj", gang.name, "-n", gang.namespace, "--ignore-not-found")
        self._cluster.kubectl("delete", *words, "--cascade=foreground", "--timeout=180s")


def trains(gang: Gang, attempt: int) -> None:
    """Wait until an attempt makes steps."""
    gang.runs(attempt)
    gang.until("a step", lambda status: status.get("firstStep", {}).get("attempt") == attempt or None)


def device_of(gang: Gang, member: str) -> str:
    """The device of a member."""
    pod = gang.pods()[member]["metadata"]["name"]
    return gang.kubectl("exec", pod, "-c", "main", "-n", gang.namespace, "--", "printenv", "FAKE_DEVICES").strip()


@contextmanager
def namespaces(cluster: Cluster) -> Iterator[None]:
    """The two namespaces of the picture."""
    for name in (RESEARCH, SEARCH):
        cluster.kubectl("create", "namespace", name)
        cluster.kubectl("wait", "--for=create", "serviceaccount/default", "-n", name, "--timeout=30s")
    try:
        yield
    finally:
        cluster.kubectl("delete", "namespace", RESEARCH, SEARCH, "--timeout=240s")


def faults(recording: Recording, devices: Mapping[str, Devices]) -> list[Gang]:
    """Some minutes of two teams; the gangs that are left."""
    llama = recording.submit(RESEARCH, "llama", 4, start={"type": "Fork"})
    ranker = recording.submit(SEARCH, "ranker", 2)
    trains(llama, 1)
    trains(ranker, 1)
    time.sleep(2 * PAUSE_SECONDS)
    recording.fault(llama, "worker-1", signal.SIGKILL)
    recording.fault(ranker, "worker-0", signal.SIGUSR1)
    recording.fault(llama, "worker-2", signal.SIGUSR2)
    announce("a gang waits for devices")
    sweep = recording.submit(RESEARCH, "sweep", 4)
    time.sleep(PAUSE_SECONDS)
    recording.fault(llama, "worker-3", signal.SIGKILL)
    recording.remove(ranker)
    trains(sweep, 1)
    time.sleep(PAUSE_SECONDS)
    recording.remove(sweep)
    broken, attempt = device_of(llama, "worker-0"), llama.status["attempt"] + 1
    announce(f"{broken} fails")
    devices[broken].mark(broken, healthy=False)
    trains(llama, attempt)
    time.sleep(PAUSE_SECONDS)
    recording.fault(llama, "worker-1", signal.SIGKILL)
    return [llama]


def draw(path: Path, answers: Mapping[Panel, Sequence[Series]], shown: Range, title: str) -> None:
    """Draw the panels as one SVG, each where the dashboard has it.

    Args:
        path: The file.
        answers: The series of each panel.
        shown: The time that the picture covers.
        title: The title of the picture, for readers who can't see it.
    """
    top = min(panel.top for panel in answers)
    height = _ROW * (max(panel.top + panel.height for panel in answers) - top)
    figure = Figure(figsize=(WIDTH / _DPI, height / _DPI), dpi=_DPI, facecolor="white")
    left, right, above, below = _MARGINS
    for panel, found in answers.items():
        x, y = panel.left * WIDTH / COLUMNS, height - (panel.top + panel.height - top) * _ROW
        wide, high = panel.width * WIDTH / COLUMNS, panel.height * _ROW
        if panel.kind == "row":
            figure.text((x + 8) / WIDTH, (y + 8) / height, panel.title, fontsize=12, fontweight="bold")
            continue
        legend = _LEGEND_LINE * min(len(found), _LEGEND_LINES) if panel.kind == "timeseries" else 0
        inner = (wide - left - right, high - above - below - legend)
        axes = figure.add_axes(((x + left) / WIDTH, (y + below + legend) / height, inner[0] / WIDTH, inner[1] / height))
        axes.set_title(panel.title, loc="left", fontsize=9, fontweight="bold", x=-(left - 8) / inner[0])
        if not found:
            axes.set_axis_off()
            why = next((why for name, why in QUIET.items() if name.startswith(f"{panel.title}: ")), "")
            axes.text(0.5, 0.5, f"No data\n{why}", ha="center", va="center", fontsize=8, color="grey")
        else:
            _draw_panel(axes, panel, found, shown)
    with mpl.rc_context({"svg.hashsalt": path.stem, "svg.fonttype": "none"}):
        figure.savefig(path, format="svg", metadata={"Date": None, "Title": title})


def _draw_panel(axes: Axes, panel: Panel, found: Sequence[Series], shown: Range) -> None:
    """Draw curves, and either a legend with their last and largest values, or only the last value in large letters."""
    times = sorted({when for one in found for when, _ in one.points})
    times += [early + shown.step for early, late in pairwise(times) if late - early > 1.5 * shown.step]
    times.sort()
    most = {one.name: max(value for _, value in one.points) for one in found}
    last = {one.name: valued(one.points[-1][1], panel) for one in found}
    listed = sorted(most, key=lambda name: -most[name])[:_LEGEND_LINES]
    ground = [0.0] * len(times)
    for one in found:
        points = dict(one.points)
        text = f"{one.name}: last {last[one.name]}, most {valued(most[one.name], panel)}"
        label = text if one.name in listed else None
        if panel.stacked or panel.kind == "stat":
            edge = [low + points.get(when, 0.0) for low, when in zip(ground, times, strict=True)]
            axes.fill_between(times, ground, edge, alpha=0.6, label=label)
            ground = edge
        else:
            axes.plot(times, [points.get(when, math.nan) for when in times], linewidth=1.2, label=label)
    axes.set_xlim(shown.begin, shown.end)
    axes.set_ylim(0, panel.most)
    if panel.kind == "stat":
        axes.set_axis_off()
        lines = "\n".join(f"{name} {value}" if len(last) > 1 else value for name, value in last.items())
        axes.text(0, 1, lines, transform=axes.transAxes, va="top", fontsize=18 if len(last) == 1 else 10)
        return
    axes.yaxis.set_major_formatter(lambda value, _: valued(value, panel))
    minutes = range(math.ceil(shown.begin / 60), math.floor(shown.end / 60) + 1)
    ticks = [60.0 * minute for minute in minutes[:: max(1, len(minutes) // 5)]]
    axes.set_xticks(ticks, [time.strftime("%H:%M", time.gmtime(tick)) for tick in ticks])
    axes.tick_params(labelsize=7)
    axes.grid(alpha=0.3)
    below = -_MARGINS[3] / axes.get_window_extent().height
    axes.legend(loc="upper left", bbox_to_anchor=(-0.1, below), fontsize=7, frameon=False)


def valued(value: float, panel: Panel) -> str:
    """A value in the unit of its panel."""
    match panel.unit:
        case "percentunit":
            return f"{100 * value:.3g}%"
        case "s" | "bytes":
            return EngFormatter("s" if panel.unit == "s" else "B", places=1).format_data(value)
        case _:
            return f"{value:.3g}" if panel.decimals is None else f"{value:.{panel.decimals}f}"


def pictures() -> Iterator[tuple[str, str, tuple[Panel, ...]]]:
    """Name, title and panels of each picture."""
    every = panels()
    cut = next(at for at, panel in enumerate(every) if (panel.kind, panel.title) == ("row", CONTROLLER))
    yield "dashboard", "The dashboard: gangs, restarts, and where the time goes", every[:cut]
    yield "dashboard-controller", "The dashboard: the controller", every[cut:]


def main() -> int:
    """Record the pictures; returns the exit code."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # It ends with everything taken down, as by Ctrl-C.
    with clusters.open_cluster() as cluster, tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        if cluster.lab is None:
            sys.exit("the faults of this recording need a cluster of our own: run it without KUBECONFIG")
        Path(folder).chmod(0o777)
        jaeger = Jaeger(cluster.lab).start()
        installation.install(cluster, jaeger.endpoint)
        with (
            namespaces(cluster),
            plugged_in(cluster.lab, cluster) as devices,
            prometheus_on(cluster, cluster.lab, RESEARCH, Path(folder)) as seen,
        ):
            begin = time.time()
            recording = Recording(cluster, Path(folder), jaeger.endpoint)
            left = faults(recording, devices)
            end = time.time()
            shown = Range(begin, end, (end - begin) / POINTS)
            empty = unanswered(seen, shown) - QUIET.keys()
            for name, title, some in pictures():
                answers = {panel: [one for it in panel.targets for one in answer(seen, it, shown)] for panel in some}
                draw(FOLDER / f"{name}.svg", answers, shown, title)
            for gang in left:
                recording.remove(gang)
    for query in sorted(empty):
        print(f"no data: {query}", file=sys.stderr)
    return 1 if empty else 0


if __name__ == "__main__":
    sys.exit(main())
