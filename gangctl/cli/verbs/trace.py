"""``gangctl trace``: draw one incident as a tree to scale, from the status alone, with a link to Jaeger."""

import argparse
import os
import sys
import time
from typing import Any, Final, TextIO

from rich.text import Text

from gangctl.api.gangjob import GangJob
from gangctl.api.incident import Incident
from gangctl.cli.arguments import attempt
from gangctl.cli.errors import ExitCode, UserError
from gangctl.cli.printers.output import can_encode, drawing_console, print_document, print_out, trim_lines
from gangctl.cli.printers.text import clean
from gangctl.cli.printers.trace import BLOCKS, Canvas, headline, output_lines, paragraph, waterfall
from gangctl.cli.targets import selection
from gangctl.core.facts.gang import trace_of
from gangctl.story.document import document, gang_document
from gangctl.story.incidents import TRACES, IncidentStory, incident_story, is_address
from gangctl.story.spans import Span, incident_spans

_LEAST_COLUMNS: Final = 40
_EPILOG: Final = """\
examples:
  gangctl trace demo                      the last incident
  gangctl trace demo --incident 3         the incident that led to attempt 3 (TO ATTEMPT in gangctl status demo)
  gangctl trace demo --ui-url https://jaeger.example.com
                                          add a link to this trace in Jaeger; $OTEL_UI_URL sets it permanently
  gangctl trace demo -o json              incident and spans, for programs

example output:
  demo: attempt 1 to 2, restarted, 2.46 s, 2026-01-31 12:00:00 UTC
  worker-1 (rank 1): ended by SIGKILL in attempt 1. No rule of podFailurePolicy matched: level Process (every
  worker restarts inside its pod), charged to the budget. The gang restarted from step 50; 5 steps were lost.
  The gang waited for worker-3 to stop (111 ms) and the first step of worker-0 (2.30 s).

  SPAN                      0            1.23 s           2.46 s     TOOK  MEMBER
  gang.restart              ####################################   2.46 s
  |- stop                   ##                                     111 ms
  |  `- member.stop         ##                                     111 ms  worker-3, slowest
  |- barrier                  #                                      8 ms
  |- start                    #                                     44 ms
  `- first_step                ##################################  2.30 s
     `- member.first_step      ##################################  2.30 s  worker-0, slowest

Bars are to scale; a very short span is a sliver. Phases that did not take place are absent. A duration with a plus sign
still grows. Everything comes from the status, which keeps the last 10 incidents. Jaeger is not needed. Permission on a
cluster: get gangjobs.

exit codes: 0 shown (also if there was no incident yet), 2 bad input, or there is no such incident
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the verb's arguments."""
    parser.epilog = _EPILOG
    selection.configure_name(parser)
    parser.add_argument(
        "--incident", metavar="N", type=attempt, help="the incident that led to attempt N (default: the last one)"
    )
    parser.add_argument("--ui-url", metavar="URL", help=f"address of Jaeger's UI (default: ${TRACES})")
    parser.add_argument("-o", "--output", choices=["json", "yaml"], help="print incident and spans, for programs")
    selection.configure(parser)


def run(arguments: argparse.Namespace) -> int:
    """Draw the incident."""
    base = _base(arguments.ui_url)
    with selection.open_target(arguments) as target:
        job = target.latest(target.logged(selection.name_of(target, arguments)))
        now = selection.removed_at(target, job) or time.time()
    incident = _chosen(job, arguments.incident)
    if arguments.output:
        print_document(_document(job, incident, base, now), arguments.output)
    elif incident is None:
        name = job.metadata.name
        print_out(clean(f"{name} has had no incident; gangctl status {name} shows its state"))
    else:
        print_incident(job, incident, base, now, sys.stdout)
    return ExitCode.OK


def print_incident(job: GangJob, incident: Incident, base: str, now: float, stream: TextIO) -> None:
    """Draw an incident. ``base``: address of Jaeger's UI, or empty; ``now``: in seconds since the epoch."""
    out = drawing_console(stream, _LEAST_COLUMNS)
    spans, found = incident_spans(job, incident), incident_story(job, incident, now, base)
    sentences = [Text(headline(job.metadata.name, found), style="bold"), Text(paragraph(found))]
    lines = [
        *(Text(line) for line in _links(job, found, spans[0])),
        Text(),
        *waterfall(spans, now, Canvas(out.width, blocks=can_encode(BLOCKS, stream))),
        *(Text(line) for line in (*_stacks(found), *output_lines(found.output))),
    ]
    with trim_lines(out):
        for one in sentences:
            out.print(one, soft_wrap=False)
        for one in lines:
            out.print(one, soft_wrap=True)  # a terminal can't open an address that is wrapped


def _links(job: GangJob, found: IncidentStory, root: Span) -> list[str]:
    lines = []
    if root.link:
        before = next((one for one in job.status.incidents if trace_of(job, one) == root.link), None)
        where = f"trace {root.link}"
        if before is not None and before.attempt != found.attempt:
            where = f"gangctl trace {job.metadata.name} --incident {before.attempt}"
        lines.append(clean(f"before: this incident followed another one at once: {where}"))
    lines.append(clean(f"trace: {found.trace_id}"))
    if found.url:
        lines.append(clean(f"Jaeger: {found.url}"))
    return lines


def _stacks(found: IncidentStory) -> list[str]:
    if found.stacks is None:
        return []
    title = f"What the processes of {clean(found.stacks.member)} were doing before they were stopped:"
    return ["", title, *map(clean, found.stacks.text.splitlines())]


def _document(job: GangJob, incident: Incident | None, base: str, now: float) -> dict[str, Any]:
    made: dict[str, Any] = {"gang": gang_document(job)}
    if incident is None:
        return {**made, "spans": []}
    found = incident_story(job, incident, now, base)
    return {**made, "incident": document(found), "spans": [document(one) for one in incident_spans(job, incident)]}


def _chosen(job: GangJob, attempt: int | None) -> Incident | None:
    """The selected incident; None if none is selected and there was none."""
    found = job.status.incidents
    if attempt is None:
        return found[0] if found else None
    for one in found:
        if one.attempt == attempt:
            return one
    attempts = ", ".join(str(one.attempt) for one in found)
    there = "there was no incident so far"
    if attempts:
        many = len(found) > 1
        there = (
            f"the incident{'s' * many} in the status led to attempt{'s' * many} {attempts}{' (newest first)' * many}"
        )
    raise UserError(f"no incident of {job.metadata.name} led to attempt {attempt}: {there}")


def _base(flag: str | None) -> str:
    """The address of Jaeger's UI; empty if it is not set."""
    source, text = ("--ui-url", flag) if flag is not None else (f"${TRACES}", os.environ.get(TRACES, ""))
    if not text and flag is None:
        return ""
    if not is_address(text):
        example = "https://jaeger.example.com"
        raise UserError(f"{source} is {text!r}, which isn't an http or https address: use one such as {example}")
    return text.rstrip("/")
