"""The controller's log: one line an entry, for people or for machines."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from gangctl.api.model import rfc3339

FORMATS: Final = ("text", "json")
_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonFormatter(logging.Formatter):
    """``{"time", "level", "logger", "message", ...}`` with what the entry says by itself."""

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
    """``time level message``, in UTC."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, and a traceback if there is one."""
        line = f"{rfc3339(record.created)} {record.levelname.lower():<7} {record.getMessage()}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def set_up(style: str, path: Path | None, level: int = logging.INFO) -> None:
    """Send what is at least as grave as ``level`` to a file (appended to) or to stderr.

    Raises:
        OSError: the file can't be written.
    """
    handler = logging.StreamHandler(sys.stderr) if path is None else logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(JsonFormatter() if style == "json" else TextFormatter())
    logging.basicConfig(level=level, handlers=[handler])
    # A refused connection is reported by the hub, with whose it was.
    logging.getLogger("aiohttp").setLevel(logging.CRITICAL)
