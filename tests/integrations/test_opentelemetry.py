"""A run, its operations and its children are one trace, from whoever started it on."""

from __future__ import annotations

from typing import Any

import psycopg  # noqa: TC002  (what a transaction is given is read from its annotation)
import pytest

from mainspring import App, Settings, Tx, run
from mainspring.integrations.opentelemetry import carried, trace


def provided() -> tuple[Any, Any]:
    """Somebody who takes spans, and remembers them."""
    sdk: Any = pytest.importorskip("opentelemetry.sdk.trace")
    exporting: Any = pytest.importorskip("opentelemetry.sdk.trace.export")
    memory: Any = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")
    provider, exporter = sdk.TracerProvider(), memory.InMemorySpanExporter()
    provider.add_span_processor(exporting.SimpleSpanProcessor(exporter))
    return provider, exporter


async def seen(app: App, exporter: Any, *names: str) -> dict[str, Any]:
    """Spans by name and position, once there are some of these names: they come a moment after the end."""
    while True:
        found = {
            f"{span.name} {span.attributes.get('mainspring.position', '')}".strip(): span
            for span in exporter.get_finished_spans()
        }
        if set(names) <= set(found):
            return found
        await app.runs.counts()


async def test_a_run_its_steps_and_its_children_are_one_trace(store_url: str) -> None:
    provider, exporter = provided()
    tracer = provider.get_tracer("web")
    app = App(store_url, settings=Settings(poll=0.05))
    trace(app, provider)

    @app.step
    async def charge() -> str:
        with tracer.start_as_current_span("POST /bank"):
            return "paid"

    @app.step
    def pack() -> str:
        with tracer.start_as_current_span("POST /box"):
            return "packed"

    @app.workflow
    async def ship() -> None:
        await charge()
        raise ValueError("lost on the way")

    @app.workflow
    async def checkout() -> str:
        await charge()
        await pack.aio()
        await run.sleep(0.01)
        try:
            await ship()
        except ValueError as error:
            return str(error)
        return "shipped"

    async with app:
        with tracer.start_as_current_span("POST /orders") as request:
            handle = await checkout.options(id="order-1", attributes=carried()).start()
            assert await handle.result() == "lost on the way"
        spans = await seen(app, exporter, "checkout", "ship", "charge 0", "pack 1", "sleep 2")
        every = exporter.get_finished_spans()
    whole, child = spans["checkout"], spans["ship"]
    assert {span.context.trace_id for span in every} == {request.get_span_context().trace_id}
    assert whole.parent.span_id == request.get_span_context().span_id
    assert child.parent.span_id == whole.context.span_id
    assert child.status.description == "lost on the way"
    charges = {span.context.span_id: span.parent.span_id for span in every if span.name == "charge"}
    assert set(charges.values()) == {whole.context.span_id, child.context.span_id}
    assert {span.parent.span_id for span in every if span.name == "POST /bank"} == set(charges)
    assert spans["POST /box"].parent.span_id == spans["pack 1"].context.span_id
    assert all(span.start_time <= span.end_time for span in every)


async def test_a_step_is_seen_when_it_ends_and_not_only_when_its_run_does(store_url: str) -> None:
    provider, exporter = provided()
    app = App(store_url, settings=Settings(poll=0.05))
    trace(app, provider)

    @app.step
    async def charge() -> str:
        return "paid"

    @app.workflow
    async def checkout() -> str:
        await charge()
        return str(await run.receive("go"))

    async with app:
        handle = await checkout.options(id="order-1").start()
        spans = await seen(app, exporter, "charge 0")
        assert "checkout" not in spans
        await app.send("order-1", "go", "gone")
        assert await handle.result() == "gone"
        spans = await seen(app, exporter, "checkout")
    assert spans["charge 0"].parent.span_id == spans["checkout"].context.span_id


async def test_what_a_transaction_does_belongs_to_its_span(
    store_url: str, postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    provider, exporter = provided()
    tracer = provider.get_tracer("database")
    app = App(store_url, settings=Settings(poll=0.05))
    trace(app, provider)

    @app.transaction
    def save(tx: Tx) -> int:
        with tracer.start_as_current_span("SELECT"):
            return int(tx.execute("SELECT 1").fetchone()[0])

    @app.transaction(database=postgres_url)
    async def ask(connection: psycopg.AsyncConnection[Any]) -> int:
        with tracer.start_as_current_span("SELECT there"):
            row = await (await connection.execute("SELECT 2")).fetchone()
            return int(row[0]) if row is not None else 0

    @app.workflow
    async def checkout() -> int:
        total = await save.aio()
        with tracer.start_as_current_span("between"):
            total += 1
        return total + await ask()

    async with app:
        assert await checkout() == 4
        assert await (await save.options(id="alone").start()).result() == 1
        spans = await seen(app, exporter, "checkout", "save 0", "ask 1", "save")
        every = exporter.get_finished_spans()
    inside = {span.parent.span_id for span in every if span.name == "SELECT"}
    assert inside == {
        span.context.span_id
        for span in every
        if span.attributes.get("mainspring.kind") == "transaction" and span.name == "save"
    }
    assert len(inside) == 2
    assert spans["SELECT there"].parent.span_id == spans["ask 1"].context.span_id
    assert (
        "waits for the time of this process" not in caplog.text
    )  # that is the driver, which is no part of the workflow
    assert spans["between"].parent is None  # the code between operations is replayed: it has no span


async def test_outside_of_traces_nothing_is_carried() -> None:
    pytest.importorskip("opentelemetry.trace")
    assert carried() == {}
