"""Traces of runs: when one has ended, its spans are made from its record and given to OpenTelemetry's SDK.

    trace(app)                                                       # with the provider that is in force
    await checkout.options(attributes=carried()).start(order)        # the run belongs to the trace of whoever starts it

The ids of spans are computed from the ids of runs. So a run and its children are one trace, whichever processes execute them and
however often they are interrupted, and nothing has to be kept in memory for the days that a run may take.
"""

from __future__ import annotations

import hashlib
import logging
from typing import TYPE_CHECKING, Any

from mainspring.errors import MissingExtra

if TYPE_CHECKING:
    from datetime import datetime

    from mainspring.app.app import App
    from mainspring.app.events import RunEvent
    from mainspring.operations.runs import RunInfo, StepInfo

log = logging.getLogger("mainspring.integrations")

PARENT = "traceparent"
_ENDS = ("run.succeeded", "run.failed", "run.cancelled")


def carried() -> dict[str, str]:
    """Attributes for a run that is to belong to the current trace; none outside of traces."""
    api = _import("opentelemetry.trace")
    context = api.get_current_span().get_span_context()
    if not context.is_valid:
        return {}
    return {PARENT: f"00-{context.trace_id:032x}-{context.span_id:016x}-01"}


def trace(app: App, provider: Any = None) -> None:
    """Have a span made of every run that ends in this process, and one of each of its operations below it."""
    tracing = _import("opentelemetry.sdk.trace")
    api = _import("opentelemetry.trace")

    async def tell(event: RunEvent) -> None:
        current = provider or api.get_tracer_provider()
        if not isinstance(current, tracing.TracerProvider):
            return  # nobody has set OpenTelemetry up
        info = await app.runs.get(event.run)
        trace_id, above = _origin(await _root(app, info))
        if info.parent is not None:
            above = _span_id(info.parent)
        for span in _Spans(current, trace_id).of(info, await app.runs.steps(event.run), above):
            current._active_span_processor.on_end(span)  # noqa: SLF001  (the SDK's only way for spans with ids of their own)

    for name in _ENDS:
        app.on(name, tell)


async def _root(app: App, info: RunInfo) -> RunInfo:
    while info.parent is not None:
        info = await app.runs.get(info.parent)
    return info


class _Spans:
    """Makes the spans of one trace, with ids of their own."""

    def __init__(self, provider: Any, trace_id: int) -> None:
        self._sdk = _import("opentelemetry.sdk.trace")
        self._api = _import("opentelemetry.trace")
        self._resource = provider.resource
        self._trace_id = trace_id

    def of(self, info: RunInfo, steps: list[StepInfo], above: int | None) -> list[Any]:
        """The span of a run, below another one, and those of its operations. What started a child is told by the child."""
        mine = _span_id(info.id)
        about: dict[str, Any] = {
            "mainspring.run": info.id,
            "mainspring.state": str(info.state),
            "mainspring.queue": info.queue,
            "mainspring.schedule": info.schedule,
            "mainspring.version": info.version,
        }
        started = info.started or info.created
        found = [self._span(info.workflow, (mine, above), (started, info.completed or started), about, _error(info))]
        for step in steps:
            if step.started is not None and step.completed is not None and step.child is None:
                about = {
                    "mainspring.position": step.position,
                    "mainspring.kind": step.kind,
                    "mainspring.attempts": step.attempts,
                }
                failed = str(step.error.get("message", "failed")) if step.error is not None else None
                ids = _span_id(f"{info.id}/{step.position}#step"), mine
                found.append(self._span(step.name, ids, (step.started, step.completed), about, failed))
        return found

    def _span(
        self,
        name: str,
        ids: tuple[int, int | None],
        times: tuple[datetime, datetime],
        about: dict[str, Any],
        error: str | None,
    ) -> Any:
        api = self._api
        own, parent = ids
        return self._sdk.ReadableSpan(
            name,
            context=self._context(own),
            parent=None if parent is None else self._context(parent),
            resource=self._resource,
            attributes={key: value for key, value in about.items() if value is not None},
            start_time=_nanoseconds(times[0]),
            end_time=_nanoseconds(times[1]),
            status=api.Status(api.StatusCode.OK) if error is None else api.Status(api.StatusCode.ERROR, error),
        )

    def _context(self, span_id: int) -> Any:
        flags = self._api.TraceFlags(self._api.TraceFlags.SAMPLED)
        return self._api.SpanContext(self._trace_id, span_id, is_remote=False, trace_flags=flags)


def _error(info: RunInfo) -> str | None:
    if info.error is not None:
        return str(info.error.get("message", "failed"))
    return info.reason or "cancelled" if info.state == "cancelled" else None


def _origin(root: RunInfo) -> tuple[int, int | None]:
    """The trace of a run and its children, and the span that it was started in, if that was said."""
    given = root.attributes.get(PARENT)
    if isinstance(given, str) and len(parts := given.split("-")) == 4:
        try:
            return int(parts[1], 16), int(parts[2], 16)
        except ValueError:
            log.warning("run %s has the attribute traceparent %r, which is none", root.id, given)
    return int.from_bytes(hashlib.sha256(f"{root.id} {root.created}".encode()).digest()[:16], "big"), None


def _span_id(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def _nanoseconds(when: datetime) -> int:
    return round(when.timestamp() * 1e6) * 1_000


def _import(name: str) -> Any:
    from importlib import import_module  # noqa: PLC0415  (an extra)

    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise MissingExtra("traces need OpenTelemetry; pip install 'mainspring[otel]'") from error
