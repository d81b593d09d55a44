"""Mistakes that are easy to make: each is an error or a warning that names the user's line."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import html
import inspect
import logging
import pydoc
import sqlite3
import subprocess
import sys
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import httpx
import psycopg
import pytest
from click.testing import CliRunner

from mainspring import App, Debounce, Policy, Rate, Retry, Settings, Tx, run
from mainspring.app.blocked_loop import LoopWatch
from mainspring.cli.main import main
from mainspring.errors import InvalidInput, InvalidSettings
from mainspring.recurrence import AmbiguousCron
from mainspring.testing import world
from mainspring.web import dashboard
from tests.engine.lives import names

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator

app = App()
_policy: Any = Policy
_rate: Any = Rate
_retry: Any = Retry
_debounce: Any = Debounce


@app.step
async def step(number: int) -> int:
    return number


@app.step
def def_step(number: int) -> int:
    return number + 1


@app.workflow
async def forgets() -> str:
    step(1)  # type: ignore[unused-coroutine]  # pyright: ignore[reportUnusedCoroutine]
    return "over"


@app.workflow
async def remembers() -> int:
    task = asyncio.create_task(step(1))
    return await step(2) + await task


@app.workflow
def uses_threads() -> list[int]:
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(def_step, [1, 2]))


@app.workflow
async def in_no_time() -> str:
    async with run.timeout("1s"):
        return "over"


@app.workflow
async def times_out() -> str:
    try:
        async with run.timeout("1s"):
            await run.sleep("1h")
    except TimeoutError:
        return "late"
    return "in time"


async def test_a_step_that_is_never_awaited_is_named_with_its_line(caplog: pytest.LogCaptureFixture) -> None:
    async with world(app):
        with pytest.warns(RuntimeWarning, match="coroutine 'step' was never awaited"):
            assert await forgets() == "over"
    _, first = inspect.getsourcelines(forgets._function.fn)
    line = first + 2
    assert f"called step at {__file__}:{line} and never awaited it" in caplog.text


@app.workflow
async def forgets_to_wait(verb: str) -> str:
    verbs: dict[str, Any] = {
        "run.sleep": lambda: run.sleep("1h"),
        "run.receive": lambda: run.receive("topic"),
        "run.set_event": lambda: run.set_event("event", 1),
        "run.step": lambda: run.step("plain", int),
        "forgets.start": lambda: forgets.options(id="x").start(),
        "runs.retry": lambda: app.runs.retry("unknown"),
    }
    verbs[verb]()
    return "over"


@pytest.mark.parametrize(
    "verb", ["run.sleep", "run.receive", "run.set_event", "run.step", "forgets.start", "runs.retry"]
)
@pytest.mark.filterwarnings("ignore:coroutine:RuntimeWarning")
async def test_every_verb_that_is_never_awaited_is_named_with_its_line(
    caplog: pytest.LogCaptureFixture, store_url: str, verb: str
) -> None:
    async with world(app, url=store_url):
        assert await forgets_to_wait(verb) == "over"
        gc.collect()
    lines, first = inspect.getsourcelines(forgets_to_wait._function.fn)
    line = first + next(number for number, text in enumerate(lines) if f'"{verb}"' in text)
    assert f"called {verb} at {__file__}:{line} and never awaited it" in caplog.text


@app.workflow
async def waits_inside_a_library() -> str:
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(_slow())
    return "over"


@contextlib.asynccontextmanager
async def _slow() -> AsyncGenerator[None]:
    timer = asyncio.get_running_loop().create_future()
    made: dict[str, Any] = {}
    exec("def library(loop, done): loop.call_later(0.001, done)", made)  # code of another file
    made["library"](asyncio.get_running_loop(), lambda: timer.set_result(None))
    await timer
    yield


async def test_a_timer_of_a_library_is_reported_with_the_line_of_the_workflows_file(
    caplog: pytest.LogCaptureFixture, store_url: str
) -> None:
    async with world(app, url=store_url):
        assert await waits_inside_a_library() == "over"
    lines, first = inspect.getsourcelines(_slow.__wrapped__)  # type: ignore[attr-defined]
    line = first + next(number for number, text in enumerate(lines) if 'made["library"]' in text)
    assert f"waits for the time of this process at {__file__}:{line} (" in caplog.text


async def test_a_timeout_whose_block_waits_for_nothing_is_not_spoken_of(caplog: pytest.LogCaptureFixture) -> None:
    async with world(app):
        assert await in_no_time() == "over"
    assert "awaited" not in caplog.text


async def test_steps_that_are_awaited_are_not_spoken_of(caplog: pytest.LogCaptureFixture) -> None:
    async with world(app):
        assert await remembers() == 3
    assert "awaited" not in caplog.text


async def test_a_step_on_a_thread_of_a_def_workflow_is_warned_of() -> None:
    async with world(app):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert await uses_threads.options(id="a").aio() == [2, 3]
        assert names(app, "a") == []
    _, first = inspect.getsourcelines(uses_threads._function.fn)
    text = "".join(str(each.message) for each in caught)
    assert "nothing is recorded" in text
    assert f"waits for threads at {__file__}:{first + 3}" in text


async def test_a_step_on_some_other_thread_is_a_plain_function() -> None:
    async with world(app):
        with ThreadPoolExecutor(1) as pool:
            assert await asyncio.wrap_future(pool.submit(def_step, 1)) == 2


async def test_a_timeout_that_has_expired_leaves_no_task_behind(caplog: pytest.LogCaptureFixture) -> None:
    async with world(app):
        assert await times_out() == "late"
    assert "unfinished" not in caplog.text


def test_scheduled_without_a_time_says_what_to_write() -> None:
    local = App()
    with pytest.raises(InvalidInput, match=r"write @app.scheduled\("):

        @local.scheduled  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        @local.workflow
        async def nightly() -> None: ...

    with pytest.raises(InvalidInput, match="takes a cron expression, a Cron or a Spec, not 5"):

        @local.scheduled(5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        @local.workflow
        async def hourly() -> None: ...


def test_an_ambiguous_cron_above_a_workflow_is_warned_of_at_the_line() -> None:
    local = App()
    with pytest.warns(AmbiguousCron) as caught:

        @local.scheduled("0 0 13 * 5")
        @local.workflow
        async def thirteenth() -> None: ...

    assert caught[0].filename == __file__


def test_seconds_in_front_of_a_cron_above_a_workflow_are_not_ambiguous() -> None:
    local = App()
    with warnings.catch_warnings():
        warnings.simplefilter("error")

        @local.scheduled("*/30 * * * * *")
        @local.workflow
        async def often() -> None: ...


@pytest.mark.parametrize(
    ("mistake", "words"),
    [
        (lambda: App(5), "the database is a URL such as"),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        (lambda: App(""), "the database is a URL such as"),
        (lambda: app.include(app), "takes a Blueprint"),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        (lambda: app.workflow(print), "is not a function"),
        (lambda: app.workflow(App), "is not a function"),
        (lambda: _policy(ovrlap="skip"), "Policy has no 'ovrlap'; did you mean overlap?"),
        (lambda: _policy("skip", 5), r"Policy\(overlap, catchup, .*\): too many positional arguments"),
        (_rate, r"Rate\(limit, per\): missing a required argument: 'limit'"),
        (lambda: _retry(attempt=3), "Retry has no 'attempt'; did you mean attempts?"),
        (lambda: _debounce(kee="k"), "Debounce has no 'kee'; did you mean key?"),
    ],
)
def test_a_wrong_argument_is_told_in_words(mistake: Any, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        mistake()


def test_a_setting_that_does_not_exist_is_told_with_the_one_that_is_meant() -> None:
    with pytest.raises(InvalidSettings, match="Settings has no 'leese'; did you mean lease"):
        Settings(leese=1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def test_too_many_arguments_of_a_verb_are_told_in_its_own_words() -> None:
    with pytest.raises(TypeError, match=r"app.run_after\(delay, call\): too many .* step.bind\(…\)"):
        app.run_after.sync(1, step, "x")  # type: ignore[call-arg, arg-type]  # pyright: ignore[reportCallIssue, reportArgumentType]


def test_help_shows_the_verb_and_not_the_class_behind_it() -> None:
    assert str(inspect.signature(app.runs.get)) == "(run_id: 'str') -> 'Coroutine[Any, Any, RunInfo[Handle[R]]]'"
    assert (inspect.getdoc(app.runs.get) or "").startswith("Look up a run, with its handle.")
    assert inspect.isroutine(app.runs.get)
    assert str(inspect.signature(App.start_many)).startswith("(self, /, calls: 'Iterable[Call[R]]')")
    assert "start_many(self, /, calls:" in pydoc.plain(pydoc.render_doc(App.start_many))
    assert repr(app.send) == "<verb app.send>"
    assert "timeout" in str(inspect.signature(app.get_event))
    assert (inspect.getdoc(app.get_event) or "").startswith("Wait for the value of an event of a run")


@pytest.mark.parametrize(
    ("owner", "verb"),
    [
        *((run, verb) for verb in ("step", "receive", "answer")),
        *((app, verb) for verb in ("ask", "get_event", "read_stream")),
    ],
)
def test_help_shows_a_verb_with_overloads_with_the_text_of_its_attribute(owner: Any, verb: str) -> None:
    found = pydoc.plain(pydoc.render_doc(getattr(owner, verb)))
    text = inspect.getdoc(getattr(owner.__class__, verb)) or ""
    assert f"\n{verb}(" in found, "not the signature of the verb"
    assert all(line in found for line in text.splitlines())


def test_help_shows_the_parameters_of_the_function_that_a_verb_starts() -> None:
    shop = App("sqlite://")

    class Shop:
        @shop.workflow
        async def part(self, order: str) -> str:
            return order

    @shop.workflow
    async def checkout(order: str, *, express: bool = False) -> str:
        return f"{order}{express}"

    @shop.transaction
    def book(tx: Tx, order: str) -> None:
        tx.execute("SELECT 1")

    result = " -> 'Coroutine[Any, Any, Handle[R]]'"
    assert str(inspect.signature(checkout.start)) == f"(order: 'str', *, express: 'bool' = False){result}"
    assert str(inspect.signature(book.start)) == f"(order: 'str'){result}"
    assert str(inspect.signature(Shop().part.start)) == f"(order: 'str'){result}"
    assert "P.args" not in pydoc.plain(pydoc.render_doc(checkout.start))


def test_a_function_can_be_written_again_at_a_prompt() -> None:
    code = (
        "from mainspring import App\napp = App()\n"
        "text = '@app.workflow\\nasync def w() -> int: return {}\\n'\n"
        "for number in (1, 2):\n"
        "    exec(compile(text.format(number), f'<ipython-input-{number}>', 'exec'))\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize("module", ["mainspring", "mainspring.app.app", "mainspring.testing"])
def test_importing_says_nothing(module: str) -> None:
    subprocess.run([sys.executable, "-W", "error", "-c", f"import {module}"], check=True, timeout=60)


async def test_a_step_that_blocks_the_event_loop_is_warned_of_with_its_line(caplog: pytest.LogCaptureFixture) -> None:
    watch = LoopWatch(asyncio.get_running_loop(), threading.get_ident())

    async def blocks() -> None:
        with ThreadPoolExecutor(1) as pool:
            for _ in range(3):
                pool.submit(watch.look).result()

    await asyncio.to_thread(watch.look)  # an idle loop is not woken
    await blocks()
    await asyncio.sleep(0)
    (warning,) = (record.getMessage() for record in caplog.records)
    blocked_at = blocks.__code__.co_firstlineno + 3
    assert f"blocked at {__file__}:{blocked_at}" in warning
    await asyncio.to_thread(watch.look)
    await asyncio.to_thread(watch.look)
    assert len(caplog.records) == 1


async def test_a_worker_logs_that_its_loop_is_blocked_while_it_is_blocked(store_url: str) -> None:
    blocking = App(store_url, settings=Settings(lease=600))
    logged = threading.Event()

    class Notice(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "the event loop has been blocked" in record.getMessage():
                logged.set()

    @blocking.step
    async def blocks() -> bool:
        return logged.wait(30)

    @blocking.workflow
    async def calls() -> bool:
        return await blocks()

    handler = Notice()
    logging.getLogger("mainspring.app").addHandler(handler)
    try:
        async with blocking:
            assert await calls()
    finally:
        logging.getLogger("mainspring.app").removeHandler(handler)


async def test_a_start_that_no_worker_serves_is_logged_at_the_call(
    store_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    local = App(store_url, version="v1")
    local.queue("declared")

    @local.workflow
    async def job() -> None: ...

    @local.workflow
    async def starts() -> None:
        await job.options(queue="from a run", id="in-run").start()

    async with local:
        await job.options(queue="declared", version="v1")()
        await job.options(version="v1")()
        assert caplog.text == ""
        await job.options(version="v2", id="pinned").start()
        await job.options(version="v2").start()
        await job.options(queue="mistyped").start()
        await local.run_after("1h", job.options(queue="also mistyped").bind())
        assert [record.getMessage().partition(";")[0] for record in caplog.records] == [
            f"a run of job was started that no worker begins, because {reason}"
            for reason in (
                "no worker has version 'v2'",
                "queue 'mistyped' does not exist",
                "queue 'also mistyped' does not exist",
            )
        ]
        caplog.clear()
        await starts()
        local._require_worker()._round()
        assert "queue 'from a run' does not exist" in caplog.text


@pytest.mark.parametrize("options", [{"version": "v2"}, {"queue": "mistyped"}])
async def test_an_operator_sees_why_no_worker_begins_a_run(store_url: str, options: dict[str, str]) -> None:
    local = App(store_url, version="v1")

    @local.workflow
    async def job() -> None: ...

    (what,) = options.values()
    transport = httpx.ASGITransport(dashboard(local), client=("127.0.0.1", 1234))
    async with local, httpx.AsyncClient(transport=transport, base_url="http://localhost") as pages:
        await job.options(id="waits", **options).start()  # type: ignore[arg-type]
        command = await asyncio.to_thread(CliRunner().invoke, main, ["runs", "show", "waits", "--url", store_url])
        doctor = await asyncio.to_thread(CliRunner().invoke, main, ["doctor", "--url", store_url])
        page = (await pages.get("/runs/waits")).text
        answer = (await pages.get("/api/runs/waits")).json()
    reason = f"no worker has version {what!r}" if "version" in options else f"queue {what!r} does not exist"
    assert reason in command.output
    assert f"{reason}, and 1 run waits for it" in doctor.output
    assert f"No worker begins it: {reason}." in html.unescape(page)
    assert answer["unserved"][0] == reason
    assert ("to which it is pinned" in command.output) == ("version" in options)


def test_an_annotation_that_names_nothing_is_warned_of_at_the_function() -> None:
    local = App()

    def register() -> Any:
        @local.step
        async def takes(order: Order, number: int) -> Order:  # type: ignore[name-defined]  # noqa: F821  # pyright: ignore[reportUndefinedVariable]
            return order  # pyright: ignore[reportUnknownVariableType]

        return takes  # pyright: ignore[reportUnknownVariableType]

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        takes = register()
    assert [str(each.message).partition(", so")[0] for each in caught] == [
        f"takes: the annotation 'Order' of {which} names nothing here yet" for which in ("order", "the result")
    ]
    assert {(each.filename, each.lineno) for each in caught} == {(__file__, takes._function.fn.__code__.co_firstlineno)}


@pytest.mark.parametrize(
    ("mistake", "words"),
    [
        (lambda: world(app, url=None), "url is that of a database"),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        (lambda: world(5), "world takes an App, not 5"),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        (lambda: world(app, at=None), "a time is a datetime or a text"),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        (lambda: world(app, at="tomorrow"), "a time is a datetime or a text"),
    ],
)
async def test_a_wrong_argument_of_world_is_told_in_words(mistake: Any, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        async with mistake():
            pass


async def test_entering_is_cancelled_while_the_database_is_locked(store_url: str) -> None:
    local = App(store_url)

    @local.workflow
    async def job() -> int:
        return 1

    async with local:
        assert await job() == 1
    with locked_workers(store_url):
        entering = asyncio.create_task(local.__aenter__())
        while not local._runtime.stage.startswith("entering the fleet"):  # noqa: ASYNC110  (nothing signals it)
            await asyncio.sleep(0.01)
        entering.cancel()
        assert await asyncio.wait({entering}, timeout=20) == ({entering}, set())
        assert entering.cancelled()
    async with local:
        assert await job() == 1


@contextmanager
def locked_workers(url: str) -> Generator[None]:
    """Another connection holds the lock that a worker needs to join the fleet."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            yield
    else:
        with psycopg.connect(url) as other:
            other.execute(b"LOCK TABLE mainspring.workers")
            yield
