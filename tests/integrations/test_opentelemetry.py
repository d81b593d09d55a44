"""A run, its operations and its children are one trace, from whoever started it on."""

from __future__ import annotations

from typing import Any

import pytest

from mainspring import App, Settings, run
from mainspring.integrations.opentelemetry import carried, trace


async def test_a_run_its_steps_and_its_children_are_one_trace(store_url: str) -> None:
    sdk: Any = pytest.importorskip("opentelemetry.sdk.trace")
    exporting: Any = pytest.importorskip("opentelemetry.sdk.trace.export")
    memory: Any = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")
    provider, exporter = sdk.TracerProvider(), memory.InMemorySpanExporter()
    provider.add_span_processor(exporting.SimpleSpanProcessor(exporter))
    app = App(store_url, settings=Settings(poll=0.05))
    trace(app, provider)

    @app.step
    async def charge() -> str:
        return "paid"

    @app.workflow
    async def ship() -> None:
        await charge()
        raise ValueError("lost on the way")

    @app.workflow
    async def checkout() -> str:
        await charge()
        await run.sleep(0.01)
        try:
            await ship()
        except ValueError as error:
            return str(error)
        return "shipped"

    async with app:
        with provider.get_tracer("web").start_as_current_span("POST /orders") as request:
            handle = await checkout.options(id="order-1", attributes=carried()).start()
            assert await handle.result() == "lost on the way"
        spans: dict[str, Any] = {}
        while len(spans) < 5:  # they come a moment after the end
            spans = {
                f"{span.name} {span.attributes.get('mainspring.position', '')}": span
                for span in exporter.get_finished_spans()
            }
            await app.runs.counts()
    whole, child = spans["checkout "], spans["ship "]
    assert {span.context.trace_id for span in spans.values()} == {request.get_span_context().trace_id}
    assert whole.parent.span_id == request.get_span_context().span_id
    assert child.parent.span_id == whole.context.span_id
    assert child.status.description == "lost on the way"
    assert {span.parent.span_id for name, span in spans.items() if name.startswith("charge")} <= {
        whole.context.span_id,
        child.context.span_id,
    }
    assert all(span.start_time <= span.end_time for span in spans.values())


async def test_outside_of_traces_nothing_is_carried() -> None:
    pytest.importorskip("opentelemetry.trace")
    assert carried() == {}
