"""Structured logs: every line has fields for its run, step and attempt.

    logging.basicConfig(handlers=[handler]); handler.setFormatter(JSONFormatter())        # the standard library
    structlog.configure(processors=[add_run, …, structlog.processors.JSONRenderer()])     # structlog

The fields are `run` and `workflow`, inside a step `step` and `attempt`, and inside a span of OpenTelemetry `trace_id` and `span_id`.
Lines from outside of runs do not have them.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from mainspring.app.logs import carry_runs, fields

if TYPE_CHECKING:
    from collections.abc import MutableMapping

_NAMES = ("run", "workflow", "step", "attempt")
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JSONFormatter(logging.Formatter):
    """Formats a record of the standard library as one line of JSON: the message, its `extra`, and the run and step."""

    def __init__(self) -> None:
        super().__init__()
        carry_runs()

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        # The record carries the run of the thread that logged: a handler may format it on another thread.
        line |= {name: value for name in _NAMES if (value := getattr(record, f"mainspring_{name}", None)) is not None}
        line |= _trace()
        given = {name: value for name, value in vars(record).items() if name not in _STANDARD}
        line |= {name: value for name, value in given.items() if not name.startswith("mainspring_")}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, ensure_ascii=False)


def add_run(logger: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Add the fields of the current run. A processor for structlog."""
    del logger, method
    for name, value in (fields() | _trace()).items():
        if value is not None:
            event.setdefault(name, value)
    return event


def _trace() -> dict[str, str]:
    """Return the ids of the current span, if OpenTelemetry is in use in this process."""
    api: Any = sys.modules.get("opentelemetry.trace")
    if api is None:
        return {}
    context = api.get_current_span().get_span_context()
    return {"trace_id": f"{context.trace_id:032x}", "span_id": f"{context.span_id:016x}"} if context.is_valid else {}
