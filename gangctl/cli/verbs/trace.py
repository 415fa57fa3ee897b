"""``gangctl trace``: draw one incident as a tree to scale, from the status alone, with a link to Jaeger."""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import Any, Final, TextIO
from urllib.parse import quote

from rich.text import Text

from gangctl.api.gangjob import GangJob
from gangctl.api.incident import Incident
from gangctl.api.model import rfc3339
from gangctl.cli.errors import ExitCode, UserError
from gangctl.cli.printers import incident as incident_text
from gangctl.cli.printers.output import as_json, as_yaml, can_encode, drawing_console, print_out
from gangctl.cli.printers.text import clean
from gangctl.cli.printers.waterfall import BLOCKS, Canvas, waterfall
from gangctl.cli.targets import selection
from gangctl.core.facts.trace_context import trace_of
from gangctl.explain.page.traces import VARIABLE, is_address
from gangctl.explain.spans import Span, incident_spans, is_complete

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
        "--incident", metavar="N", type=_attempt, help="the incident that led to attempt N (default: the last one)"
    )
    parser.add_argument("--ui-url", metavar="URL", help=f"address of Jaeger's UI (default: ${VARIABLE})")
    parser.add_argument("-o", "--output", choices=["json", "yaml"], help="print incident and spans, for programs")
    selection.configure(parser)


def run(arguments: argparse.Namespace) -> int:
    """Draw the incident."""
    base = _base(arguments.ui_url)
    with selection.open_target(arguments) as target:
        job = target.latest(selection.name_of(target, arguments))
    incident = _chosen(job, arguments.incident)
    now = time.time()
    if arguments.output:
        document = _document(job, incident, base, now)
        print_out(as_json(document) if arguments.output == "json" else as_yaml(document))
    elif incident is None:
        name = job.metadata.name
        print_out(clean(f"{name} has had no incident; gangctl status {name} shows its state"))
    else:
        show(job, incident, base, now, sys.stdout)
    return ExitCode.OK


def show(job: GangJob, incident: Incident, base: str, now: float, stream: TextIO) -> None:
    """Draw an incident. ``base``: address of Jaeger's UI, or empty; ``now``: in seconds since the epoch."""
    out = drawing_console(stream, _LEAST_COLUMNS)
    spans = incident_spans(job, incident)
    sentences = [
        Text(incident_text.headline(job, incident, spans, now), style="bold"),
        Text(incident_text.paragraph(incident, spans, now)),
    ]
    lines = [
        *(Text(line) for line in _links(job, incident, spans[0], base)),
        Text(),
        *waterfall(spans, now, Canvas(out.width, blocks=can_encode(BLOCKS, stream))),
        *(Text(line) for line in (*_stacks(incident), *incident_text.printed(incident))),
    ]
    with out.capture() as captured:
        for one in sentences:
            out.print(one, soft_wrap=False)
        for one in lines:
            out.print(one, soft_wrap=True)  # a terminal can't open an address that is wrapped
    stream.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))
    stream.flush()


def _links(job: GangJob, incident: Incident, root: Span, base: str) -> list[str]:
    found = []
    if root.link:
        before = next((one for one in job.status.incidents if trace_of(job, one) == root.link), None)
        where = f"trace {root.link}"
        if before is not None and before.attempt != incident.attempt:
            where = f"gangctl trace {job.metadata.name} --incident {before.attempt}"
        found.append(clean(f"before: this incident followed another one at once: {where}"))
    found.append(clean(f"trace: {root.trace_id}"))
    if base:
        found.append(clean(f"Jaeger: {_url(base, root)}"))
    return found


def _stacks(incident: Incident) -> list[str]:
    if incident.stacks is None:
        return []
    title = f"What the processes of {clean(incident.stacks.member)} were doing before they were stopped:"
    return ["", title, *map(clean, incident.stacks.text.splitlines())]


def _document(job: GangJob, incident: Incident | None, base: str, now: float) -> dict[str, Any]:
    """The document for programs: names are stable; a value that is unknown or not final is absent."""
    metadata = job.metadata
    made: dict[str, Any] = {"gang": {"name": metadata.name, "namespace": metadata.namespace, "uid": metadata.uid}}
    if incident is None:
        return {**made, "spans": []}
    spans = incident_spans(job, incident)
    made |= {"traceID": spans[0].trace_id, "complete": is_complete(job, incident, now)}
    if base:
        made["url"] = _url(base, spans[0])
    made["incident"] = incident.model_dump(mode="json", by_alias=True, exclude_none=True)
    made["spans"] = [_span(one) for one in spans]
    return made


def _span(span: Span) -> dict[str, Any]:
    made: dict[str, Any] = {"name": span.name, "spanID": span.span_id}
    if span.parent_id:
        made["parentSpanID"] = span.parent_id
    made["begin"] = rfc3339(span.begin)
    if span.end is not None:
        made |= {"end": rfc3339(span.end), "milliseconds": round((span.end - span.begin) * 1000)}
    if span.link:
        made["linkedTraceID"] = span.link
    if span.failed:
        made["failed"] = span.failed
    made["attributes"] = dict(span.attributes)
    return made


def _chosen(job: GangJob, attempt: int | None) -> Incident | None:
    """The selected incident; None if none is selected and there was none."""
    found = job.status.incidents
    if attempt is None:
        return found[0] if found else None
    for one in found:
        if one.attempt == attempt:
            return one
    known = ", ".join(str(one.attempt) for one in found)
    there = "there was no incident so far"
    if known:
        many = len(found) > 1
        there = f"the incident{'s' * many} in the status led to attempt{'s' * many} {known}{' (newest first)' * many}"
    raise UserError(f"no incident of {job.metadata.name} led to attempt {attempt}: {there}")


def _attempt(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is not the number of an attempt")
    return int(text)


def _base(flag: str | None) -> str:
    """The address of Jaeger's UI; empty if it is not set.

    Raises:
        UserError: it is no valid address.
    """
    source, text = ("--ui-url", flag) if flag is not None else (f"${VARIABLE}", os.environ.get(VARIABLE, ""))
    if not text and flag is None:
        return ""
    if not is_address(text):
        example = "https://jaeger.example.com"
        raise UserError(f"{source} is {text!r}, which is no http or https address: use one such as {example}")
    return text.rstrip("/")


def _url(base: str, root: Span) -> str:
    return f"{base}/trace/{quote(root.trace_id, safe='')}"
