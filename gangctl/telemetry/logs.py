"""The controller's log: its format, the gang that an entry is about, and one line for each decision."""

import json
import logging
import sys
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gangctl.api.gangjob import GangJob
from gangctl.api.model import escaped, rfc3339
from gangctl.core.facts.gang import trace_of
from gangctl.core.lifecycle.plan import Plan, PlannedAction
from gangctl.core.record.incidents import incident_of_message

FORMATS: Final = ("text", "json")
_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


@dataclass(frozen=True, slots=True)
class LogContext:
    """The gang whose round logs."""

    namespace: str
    gang: str
    attempt: int
    trace_id: str
    """The trace of the incident that led to this attempt; empty if none did."""


_context: ContextVar[LogContext | None] = ContextVar("log_context", default=None)


def set_gang(job: GangJob) -> None:
    """From now on, what this task and the tasks that it starts log is about this gang, as it is stored."""
    incident = incident_of_message(job.status)
    trace = "" if incident is None else trace_of(job, incident)
    _context.set(LogContext(job.metadata.namespace, job.metadata.name, job.status.attempt, trace))


class GangContextFilter(logging.Filter):
    """Adds the gang to each entry. A field that the entry has by itself stays."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the fields; every entry passes."""
        found = _context.get()
        if found is not None:
            known = {"namespace": found.namespace, "gang": found.gang, "attempt": found.attempt}
            for name, value in (known | {"traceID": found.trace_id} if found.trace_id else known).items():
                if not hasattr(record, name):
                    setattr(record, name, value)
        return True


class JsonFormatter(logging.Formatter):
    """``{"time", "level", "logger", "message", ...}`` and the fields of the entry."""

    def format(self, record: logging.LogRecord) -> str:
        """One JSON object."""
        entry: dict[str, Any] = {
            "time": rfc3339(record.created),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        extra: Mapping[str, Any] = vars(record)
        entry.update({name: value for name, value in extra.items() if name not in _STANDARD})
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)


class TextFormatter(logging.Formatter):
    """``time level message [namespace/gang attempt trace]``, in UTC.

    Control characters are escaped, since names and messages come from a cluster.
    """

    def format(self, record: logging.LogRecord) -> str:
        """One line, and the traceback if the entry has one."""
        line = (
            f"{rfc3339(record.created)} {record.levelname.lower():<7} {escaped(record.getMessage() + _of_gang(record))}"
        )
        if not record.exc_info:
            return line
        # Indented, so that none of its lines looks like an entry.
        traced = self.formatException(record.exc_info).splitlines()
        return "\n".join([line, *(f"  {escaped(one)}" for one in traced)])


def _of_gang(record: logging.LogRecord) -> str:
    known = vars(record)
    if "gang" not in known:
        return ""
    trace = f" trace {known['traceID']}" if known.get("traceID") else ""
    return f" [{known.get('namespace', '')}/{known['gang']} attempt {known.get('attempt', '')}{trace}]"


def set_up(style: str, path: Path | None, level: int = logging.INFO) -> None:
    """Log entries of ``level`` and above to a file (appended to) or to stderr."""
    handler = logging.StreamHandler(sys.stderr) if path is None else logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(JsonFormatter() if style == "json" else TextFormatter())
    handler.addFilter(GangContextFilter())
    logging.basicConfig(level=level, handlers=[handler])
    # The hub logs refused connections, with their address.
    logging.getLogger("aiohttp").setLevel(logging.CRITICAL)
    # A request to a collector that fails is counted, and logged by the exporter.
    logging.getLogger("urllib3").setLevel(logging.CRITICAL)


# The decision log: one line for each decision that changed something, with its reason.
#
# The rule: the same line must not come twice in a row, since a retried action or a refreshed summary is no new
# decision. Nor is a plan that only still wants what the one before wanted: its actions are under way.


log = logging.getLogger(__name__)


class DecisionLog:
    """The log of one gang's decisions."""

    def __init__(self) -> None:
        self._last: tuple[int, str, str, tuple[PlannedAction, ...]] | None = None
        self._wanted: frozenset[PlannedAction] = frozenset()
        """By the plan before."""

    def log_plan(self, job: GangJob, plan: Plan) -> None:
        """Log a plan whose status is stored in ``job``."""
        before, self._wanted = self._wanted, frozenset(plan.actions)
        if plan.status is None and not plan.events and self._wanted <= before:
            return
        attempt, phase = job.status.attempt, job.status.phase.value
        line = (attempt, phase, plan.because, plan.actions)
        if line == self._last:
            return
        self._last = line
        extra = {"phase": phase, "because": plan.because, "actions": [type(action).__name__ for action in plan.actions]}
        log.info("%s: %s", phase, plan.because, extra=extra)
