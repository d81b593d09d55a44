"""A run, its operations and its children are one trace, from whoever started it on."""

from __future__ import annotations

import asyncio
import gzip
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any

import psycopg  # noqa: TC002  (what a transaction is given is read from its annotation)
import pytest

from mainspring import App, Client, Settings, Tx, run
from mainspring.integrations.opentelemetry import carried, carry, trace
from mainspring.testing import world

if TYPE_CHECKING:
    from pathlib import Path


def provided(sampler: Any = None) -> tuple[Any, Any]:
    """Somebody who takes spans, and remembers them."""
    sdk: Any = pytest.importorskip("opentelemetry.sdk.trace")
    exporting: Any = pytest.importorskip("opentelemetry.sdk.trace.export")
    memory: Any = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")
    provider, exporter = sdk.TracerProvider(sampler), memory.InMemorySpanExporter()
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
            handle = await checkout.options(id="order-1").start()
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


async def test_every_way_to_start_a_run_inside_a_span_carries_its_trace(store_url: str) -> None:
    provider, exporter = provided()
    tracer = provider.get_tracer("web")
    app = App(store_url, settings=Settings(poll=0.05))
    trace(app, provider)

    @app.workflow
    async def one() -> str:
        return str(run.attributes.get("traceparent"))

    def blocking() -> str:
        return one.options(id="sync", attributes={"tenant": "acme"}).start.sync().id

    async with app, Client(store_url) as client:
        carry(client)
        carry(client)
        with tracer.start_as_current_span("POST /orders") as request:
            handles = await app.start_many([one.options(id=f"many {number}").bind() for number in range(2)])
            handles.append(await app.run_after(0, one.options(id="later").bind()))
            await asyncio.to_thread(blocking)
            await client.options(id="client").start(one.name)
        handles += [app.handle("sync"), app.handle("client")]
        found = {await handle.result() for handle in handles}
        context = request.get_span_context()
        assert found == {f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"}
        assert (await app.runs.get("sync")).attributes["tenant"] == "acme"
        assert "traceparent" not in (await (await one.start()).describe()).attributes
        await seen(app, exporter, one.name)


async def test_a_trace_that_is_not_sampled_has_no_spans_of_runs(store_url: str) -> None:
    sampling: Any = pytest.importorskip("opentelemetry.sdk.trace.sampling")
    provider, exporter = provided(sampling.ParentBased(sampling.ALWAYS_OFF))
    tracer = provider.get_tracer("web")
    app = App(store_url, settings=Settings(poll=0.05))
    trace(app, provider)
    ended: list[str] = []
    app.on("run.succeeded", lambda event: ended.append(event.run))

    @app.step
    async def charge() -> None: ...

    @app.workflow
    async def checkout() -> str:
        await charge()
        return str(run.attributes.get("traceparent"))

    async with app:
        with tracer.start_as_current_span("POST /orders"):
            assert int((await checkout.options(id="in a trace")())[-2:], 16) & 1 == 0
        await checkout.options(id="of its own")()
        while len(ended) < 2:
            await app.runs.counts()
    assert exporter.get_finished_spans() == ()


async def test_runs_in_virtual_time_are_traced_too(store_url: str) -> None:
    provider, exporter = provided()
    app = App()
    trace(app, provider)

    @app.workflow
    async def checkout() -> None:
        await run.sleep("8h")

    async with world(app, url=store_url) as w:
        handle = await checkout.options(id="a").start()
        await w.advance("8h")
        await handle.result()
        spans = await seen(app, exporter, checkout.name, "sleep 0")
    assert spans["sleep 0"].end_time - spans["sleep 0"].start_time == 8 * 3600 * 10**9


PROGRAM = """
import asyncio, sys
from opentelemetry import trace
from mainspring import App
from mainspring.errors import InvalidInput
from mainspring.integrations.opentelemetry import setup

app = App("sqlite:///traced.db", name="shop")
provider = setup(app, endpoint=sys.argv[1], headers={"x-key": "secret"})
assert trace.get_tracer_provider() is provider

@app.step
async def charge() -> str:
    return "paid"

@app.workflow
async def checkout() -> str:
    return await charge()

async def main() -> None:
    async with app:
        with trace.get_tracer("web").start_as_current_span("POST /orders"):
            print(await checkout())
        await app.drain()
    other = App("sqlite:///other.db")
    assert setup(other) is provider
    try:
        setup(other, endpoint="http://elsewhere")
    except InvalidInput as error:
        print(error)

asyncio.run(main())
"""


@pytest.mark.processes
def test_one_call_sends_spans_to_a_collector(tmp_path: Path) -> None:
    """A real process, and a collector that reads what it is sent."""
    messages: Any = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
    received: list[tuple[str, str | None, bytes]] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers["content-encoding"] == "gzip":
                body = gzip.decompress(body)
            received.append((self.path, self.headers["x-key"], body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    server = HTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    (tmp_path / "program.py").write_text(PROGRAM)
    try:
        command = [sys.executable, "program.py", f"http://127.0.0.1:{server.server_port}"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    finally:
        server.shutdown()
        server.server_close()
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("paid\nsetup: OpenTelemetry is set up in this process already")
    assert {(path, key) for path, key, _ in received} == {("/v1/traces", "secret")}
    spans: dict[str, Any] = {}
    services: set[str] = set()
    for _, _, body in received:
        for resource in messages.ExportTraceServiceRequest.FromString(body).resource_spans:
            services |= {each.value.string_value for each in resource.resource.attributes if each.key == "service.name"}
            spans |= {span.name: span for scope in resource.scope_spans for span in scope.spans}
    assert services == {"shop"}
    assert set(spans) == {"POST /orders", "checkout", "charge"}
    assert spans["charge"].parent_span_id == spans["checkout"].span_id
    assert spans["checkout"].parent_span_id == spans["POST /orders"].span_id
    assert len({span.trace_id for span in spans.values()}) == 1
