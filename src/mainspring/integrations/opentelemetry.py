"""Traces of runs: each operation is given to OpenTelemetry's SDK when it ends, and each run when it ends.

    trace(app)                                                       # before the app starts; with the provider that is in force
    await checkout.options(attributes=carried()).start(order)        # the run belongs to the trace of whoever starts it

The ids of spans are computed from the ids of runs. So a run and its children are one trace, whichever processes execute them and
however often they are interrupted, and nothing has to be kept in memory for the days that a run may take. Inside a step the step's span is
the current one, so that what a step's code traces itself, such as the requests it makes, belongs to the step.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from msgspec import structs

from mainspring.errors import MissingExtra
from mainspring.model.clock import to_micros

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainspring.app.app import App
    from mainspring.app.events import RunEvent
    from mainspring.model.records import Run, Step
    from mainspring.operations.runs import RunInfo

log = logging.getLogger("mainspring.integrations")

PARENT = "traceparent"
_MOST_TRACES = 10_000
_ENDS = ("run.succeeded", "run.failed", "run.cancelled")


def carried() -> dict[str, str]:
    """Attributes for a run that is to belong to the current trace; none outside of traces."""
    api = _import("opentelemetry.trace")
    context = api.get_current_span().get_span_context()
    if not context.is_valid:
        return {}
    return {PARENT: f"00-{context.trace_id:032x}-{context.span_id:016x}-01"}


def trace(app: App, provider: Any = None) -> None:
    """Have a span made of every operation that ends in this process, and one of every run."""
    tracer = _Tracer(app, provider)
    app.runtime.listeners.operations.append(tracer.operation)
    app.runtime.listeners.around = tracer.around
    for name in ("run.started", "run.resumed"):
        app.on(name, tracer.begun)
    for name in _ENDS:
        app.on(name, tracer.ended)


class _Tracer:
    """Makes spans of what happens in one process."""

    def __init__(self, app: App, provider: Any) -> None:
        self._app = app
        self._given = provider
        self._sdk = _import("opentelemetry.sdk.trace")
        self._api = _import("opentelemetry.trace")
        self._context = _import("opentelemetry.context")
        self._traces: OrderedDict[str, int] = OrderedDict()
        """The traces of runs that were seen here lately."""
        self._lock = threading.Lock()

    @property
    def _provider(self) -> Any | None:
        """Who takes spans; None: nobody has set OpenTelemetry up."""
        current = self._given or self._api.get_tracer_provider()
        return current if isinstance(current, self._sdk.TracerProvider) else None

    # -- as it happens -------------------------------------------------------------------------------------------------
    def operation(self, run: Run, step: Step) -> None:
        """An operation is over. What started a child is told by the child."""
        provider = self._provider
        if provider is None or step.child is not None or step.completed is None or step.started is None:
            return
        trace_id = self._trace_of(run)
        if trace_id is not None:
            _give(provider, _Spans(provider, trace_id).operation(run.id, step))
        else:
            engine = self._app.runtime.engine
            if engine is not None:
                asyncio.run_coroutine_threadsafe(self._later(run.id, structs.replace(step)), engine.loop)

    async def _later(self, run_id: str, step: Step) -> None:
        trace_id, provider = await self._asked(run_id), self._provider
        if provider is not None:
            _give(provider, _Spans(provider, trace_id).operation(run_id, step))

    def around(self, run: Run, position: str) -> Callable[[], None]:
        """Make the span of a step the current one, until what is returned is called."""
        provider, trace_id = self._provider, self._trace_of(run)
        if provider is None or trace_id is None:
            return _nothing
        span = self._api.NonRecordingSpan(_Spans(provider, trace_id).context(_step_id(run.id, position)))
        token = self._context.attach(self._api.set_span_in_context(span))
        return lambda: self._context.detach(token)

    async def begun(self, event: RunEvent) -> None:
        """A run goes on here: its trace will be asked for."""
        await self._asked(event.run)

    async def ended(self, event: RunEvent) -> None:
        """A run is over."""
        provider = self._provider
        if provider is None:
            return
        info = await self._app.runs.get(event.run)
        trace_id, above = _origin(*await self._root(info))
        if info.parent is not None:
            above = _span_id(info.parent)
        _give(provider, _Spans(provider, trace_id).run(info, above))

    # -- which trace ---------------------------------------------------------------------------------------------------
    def _trace_of(self, run: Run) -> int | None:
        """The trace of a run, if that can be told without asking the database."""
        if run.parent is None:
            return _origin(run.id, run.created, json.loads(run.attributes))[0]
        with self._lock:
            return self._traces.get(run.id) or self._traces.get(run.parent)

    async def _asked(self, run_id: str) -> int:
        info = await self._app.runs.get(run_id)
        trace_id, _ = _origin(*await self._root(info))
        with self._lock:
            self._traces[run_id] = trace_id
            while len(self._traces) > _MOST_TRACES:
                self._traces.popitem(last=False)
        return trace_id

    async def _root(self, info: RunInfo) -> tuple[str, int, dict[str, Any]]:
        while info.parent is not None:
            info = await self._app.runs.get(info.parent)
        return info.id, to_micros(info.created), info.attributes


def _give(provider: Any, span: Any) -> None:
    provider._active_span_processor.on_end(span)  # noqa: SLF001  (the SDK's only way for spans with ids of their own)


def _nothing() -> None: ...


class _Spans:
    """Makes the spans of one trace, with ids of their own."""

    def __init__(self, provider: Any, trace_id: int) -> None:
        self._sdk = _import("opentelemetry.sdk.trace")
        self._api = _import("opentelemetry.trace")
        self._resource = provider.resource
        self._trace_id = trace_id

    def run(self, info: RunInfo, above: int | None) -> Any:
        """The span of a run, below another one."""
        about: dict[str, Any] = {
            "mainspring.run": info.id,
            "mainspring.state": str(info.state),
            "mainspring.queue": info.queue,
            "mainspring.schedule": info.schedule,
            "mainspring.version": info.version,
        }
        started = to_micros(info.started or info.created)
        ended = started if info.completed is None else to_micros(info.completed)
        return self._span(info.workflow, (_span_id(info.id), above), (started, ended), about, _error(info))

    def operation(self, run_id: str, step: Step) -> Any:
        """The span of an operation, below that of its run."""
        about: dict[str, Any] = {
            "mainspring.run": run_id,
            "mainspring.position": step.position,
            "mainspring.kind": step.kind,
            "mainspring.attempts": step.attempts,
        }
        failed = None if step.error is None else str(json.loads(step.error).get("message", "failed"))
        times = step.started or 0, step.completed or 0
        return self._span(step.name, (_step_id(run_id, step.position), _span_id(run_id)), times, about, failed)

    def _span(
        self,
        name: str,
        ids: tuple[int, int | None],
        times: tuple[int, int],
        about: dict[str, Any],
        error: str | None,
    ) -> Any:
        api = self._api
        own, parent = ids
        return self._sdk.ReadableSpan(
            name,
            context=self.context(own),
            parent=None if parent is None else self.context(parent),
            resource=self._resource,
            attributes={key: value for key, value in about.items() if value is not None},
            start_time=times[0] * 1_000,
            end_time=times[1] * 1_000,
            status=api.Status(api.StatusCode.OK) if error is None else api.Status(api.StatusCode.ERROR, error),
        )

    def context(self, span_id: int) -> Any:
        flags = self._api.TraceFlags(self._api.TraceFlags.SAMPLED)
        return self._api.SpanContext(self._trace_id, span_id, is_remote=False, trace_flags=flags)


def _error(info: RunInfo) -> str | None:
    if info.error is not None:
        return str(info.error.get("message", "failed"))
    return info.reason or "cancelled" if info.state == "cancelled" else None


def _origin(root: str, created: int, attributes: dict[str, Any]) -> tuple[int, int | None]:
    """The trace of a run and its children, and the span that it was started in, if that was said."""
    given = attributes.get(PARENT)
    if isinstance(given, str) and len(parts := given.split("-")) == 4:
        try:
            return int(parts[1], 16), int(parts[2], 16)
        except ValueError:
            log.warning("run %s has the attribute traceparent %r, which is none", root, given)
    return int.from_bytes(hashlib.sha256(f"{root} {created}".encode()).digest()[:16], "big"), None


def _span_id(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def _step_id(run_id: str, position: str) -> int:
    return _span_id(f"{run_id}/{position}#step")


def _import(name: str) -> Any:
    from importlib import import_module  # noqa: PLC0415  (an extra)

    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise MissingExtra("traces need OpenTelemetry; pip install 'mainspring[otel]'") from error
