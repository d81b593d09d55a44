"""Traces of runs: each operation is given to OpenTelemetry's SDK when it ends, and each run when it ends.

    setup(app)                                  # OTLP, to OTEL_EXPORTER_OTLP_ENDPOINT
    trace(app, provider)                        # or: with a provider of your own
    carry(client)                               # runs that a client starts belong to the caller's trace, too

A run that is started inside a span belongs to its trace: the W3C context (`traceparent`, `tracestate`) is among the run's attributes. The ids
of spans are computed from the ids of runs. So a run and its children are one trace, whichever processes execute them and however often
they are interrupted, and nothing has to be kept in memory for the days that a run may take. Inside a step the step's span is the
current one, so that spans made by the step's code, such as those of its requests, belong to the step.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import structs

from mainspring.app.client_api import runtime_of
from mainspring.errors import InvalidInput, MissingExtra
from mainspring.model.clock import to_micros

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mainspring.app.app import App
    from mainspring.app.client import Client
    from mainspring.app.events import RunEvent
    from mainspring.model.runs import Run, Step
    from mainspring.operations.runs.info import RunInfo

log = logging.getLogger("mainspring.integrations")

PARENT = "traceparent"
_MOST_TRACES = 10_000
_ENDS = ("run.succeeded", "run.failed", "run.cancelled")


def setup(
    app: App, *, endpoint: str | None = None, headers: Mapping[str, str] | None = None, service: str | None = None
) -> Any:
    """Trace an app and send its spans by OTLP over HTTP, in batches. Return the provider. Call it once, before the app starts.

    `endpoint` is the address of a collector (default: OTEL_EXPORTER_OTLP_ENDPOINT, else http://localhost:4318), `service` the
    name of the service (default: OTEL_SERVICE_NAME, else the app's name). A provider that is already set is used unchanged.
    """
    api, sdk = _import("opentelemetry.trace"), _import("opentelemetry.sdk.trace")
    provider = api.get_tracer_provider()
    if isinstance(provider, sdk.TracerProvider):
        if endpoint is not None or headers is not None or service is not None:
            raise InvalidInput(
                "setup: OpenTelemetry is set up in this process already; leave endpoint, headers and service out, or use "
                "trace(app, provider) with a provider of its own"
            )
    else:
        provider = _otlp(endpoint, headers, service or os.environ.get("OTEL_SERVICE_NAME") or app.name)
        api.set_tracer_provider(provider)
    trace(app, provider)
    return provider


def _otlp(endpoint: str | None, headers: Mapping[str, str] | None, service: str) -> Any:
    sdk, export = _import("opentelemetry.sdk.trace"), _import("opentelemetry.sdk.trace.export")
    resources = _import("opentelemetry.sdk.resources")
    otlp = _import("opentelemetry.exporter.otlp.proto.http.trace_exporter")
    address = None if endpoint is None else f"{endpoint.rstrip('/').removesuffix('/v1/traces')}/v1/traces"
    provider = sdk.TracerProvider(resource=resources.Resource.create({"service.name": service}))
    exporter = otlp.OTLPSpanExporter(endpoint=address, headers=None if headers is None else dict(headers))
    provider.add_span_processor(export.BatchSpanProcessor(exporter))
    return provider


def trace(app: App, provider: Any = None) -> None:
    """Make a span of every operation and every run that ends in this process. Started runs carry the current trace."""
    tracer = _Tracer(app, provider)
    runtime_of(app).listeners.operations.append(tracer.operation)
    runtime_of(app).listeners.around = tracer.around
    for name in ("run.started", "run.resumed"):
        app.on(name, tracer.begun)
    for name in _ENDS:
        app.on(name, tracer.ended)
    carry(app)


def carry(app: App | Client) -> None:
    """Make every run that is started here inside a span belong to that span's trace."""
    carriers = runtime_of(app).carriers
    if carried not in carriers:
        carriers.append(carried)


def carried() -> dict[str, str]:
    """Return the attributes of a run in the current trace, by the W3C: `traceparent`, `tracestate`; empty outside of traces."""
    found: dict[str, str] = {}
    _import("opentelemetry.trace.propagation.tracecontext").TraceContextTextMapPropagator().inject(found)
    return found


class _Origin(NamedTuple):
    """The trace of a run and its children, the span that it was started in, if any, and whether its spans are exported."""

    trace: int
    above: int | None
    sampled: bool


class _Tracer:
    """Makes the spans of the operations and runs of one process."""

    def __init__(self, app: App, provider: Any) -> None:
        self._app = app
        self._given = provider
        self._sdk = _import("opentelemetry.sdk.trace")
        self._api = _import("opentelemetry.trace")
        self._context = _import("opentelemetry.context")
        self._traces: OrderedDict[str, _Origin] = OrderedDict()
        """The traces of the runs seen here most recently."""
        self._lock = threading.Lock()

    @property
    def _provider(self) -> Any | None:
        """The provider that receives spans; None if OpenTelemetry is not set up."""
        current = self._given or self._api.get_tracer_provider()
        return current if isinstance(current, self._sdk.TracerProvider) else None

    # -- as it happens -------------------------------------------------------------------------------------------------
    def operation(self, run: Run, step: Step) -> None:
        """Export the span of an operation that has ended. A start has none: the child's own span shows it."""
        provider = self._provider
        if provider is None or step.child is not None or step.completed is None or step.started is None:
            return
        origin = self._origin_of(run)
        if origin is not None:
            self._give(provider, origin, lambda spans: spans.operation(run.id, step))
        else:
            engine = runtime_of(self._app).engine
            if engine is not None:
                asyncio.run_coroutine_threadsafe(self._later(run.id, structs.replace(step)), engine.loop)

    async def _later(self, run_id: str, step: Step) -> None:
        origin, provider = await self._asked(run_id), self._provider
        if provider is not None:
            self._give(provider, origin, lambda spans: spans.operation(run_id, step))

    @staticmethod
    def _give(provider: Any, origin: _Origin, make: Callable[[_Spans], Any]) -> None:
        if origin.sampled:
            span = make(_Spans(provider, origin))
            provider._active_span_processor.on_end(span)  # noqa: SLF001  (the SDK's only way for spans with ids of their own)

    def around(self, run: Run, position: str) -> Callable[[], None]:
        """Make the span of a step the current one. Return a function that ends this."""
        provider, origin = self._provider, self._origin_of(run)
        if provider is None or origin is None:
            return _nothing
        span = self._api.NonRecordingSpan(_Spans(provider, origin).context(_step_id(run.id, position)))
        token = self._context.attach(self._api.set_span_in_context(span))
        return lambda: self._context.detach(token)

    async def begun(self, event: RunEvent) -> None:
        """Look up the trace of a run that begins or continues here, before its operations need it."""
        await self._asked(event.run)

    async def ended(self, event: RunEvent) -> None:
        """Export the span of a run that has ended."""
        provider = self._provider
        if provider is None:
            return
        info = await self._app.runs.get(event.run)
        origin = self._origin(*await self._root(info))
        above = origin.above if info.parent is None else _span_id(info.parent)
        self._give(provider, origin, lambda spans: spans.run(info, above))

    # -- which trace ---------------------------------------------------------------------------------------------------
    def _origin_of(self, run: Run) -> _Origin | None:
        """Return the trace of a run, if it is known without a query."""
        if run.parent is None:
            return self._origin(run.id, run.created, json.loads(run.attributes))
        with self._lock:
            return self._traces.get(run.id) or self._traces.get(run.parent)

    async def _asked(self, run_id: str) -> _Origin:
        info = await self._app.runs.get(run_id)
        origin = self._origin(*await self._root(info))
        with self._lock:
            self._traces[run_id] = origin
            while len(self._traces) > _MOST_TRACES:
                self._traces.popitem(last=False)
        return origin

    async def _root(self, info: RunInfo) -> tuple[str, int, dict[str, Any]]:
        while info.parent is not None:
            info = await self._app.runs.get(info.parent)
        return info.id, to_micros(info.created), info.attributes

    def _origin(self, root: str, created: int, attributes: dict[str, Any]) -> _Origin:
        """Return the trace that a run was started in, or a new one, sampled as the provider's sampler decides."""
        given = attributes.get(PARENT)
        if isinstance(given, str) and len(parts := given.split("-")) == 4:
            try:
                return _Origin(int(parts[1], 16), int(parts[2], 16), sampled=bool(int(parts[3], 16) & 1))
            except ValueError:
                log.warning(
                    "run %s: the attribute traceparent %r is not a W3C trace context; the run gets its own trace",
                    root,
                    given,
                )
        trace_id = int.from_bytes(hashlib.sha256(f"{root} {created}".encode()).digest()[:16], "big")
        provider = self._provider
        sampled = provider is None or provider.sampler.should_sample(None, trace_id, root).decision.is_sampled()
        return _Origin(trace_id, None, sampled=sampled)


def _nothing() -> None: ...


class _Spans:
    """Makes the spans of one trace, with computed ids."""

    def __init__(self, provider: Any, origin: _Origin) -> None:
        self._sdk = _import("opentelemetry.sdk.trace")
        self._api = _import("opentelemetry.trace")
        self._resource = provider.resource
        self._origin = origin

    def run(self, info: RunInfo, above: int | None) -> Any:
        """Return the span of a run, below another one."""
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
        """Return the span of an operation, below that of its run."""
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
        flags = self._api.TraceFlags(self._api.TraceFlags.SAMPLED if self._origin.sampled else 0)
        return self._api.SpanContext(self._origin.trace, span_id, is_remote=False, trace_flags=flags)


def _error(info: RunInfo) -> str | None:
    if info.error is not None:
        return str(info.error.get("message", "failed"))
    return info.reason or "cancelled" if info.state == "cancelled" else None


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
