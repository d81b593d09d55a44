"""Mistakes that are easy to make: each is an error or a warning that names the user's line."""

from __future__ import annotations

import asyncio
import inspect
import logging
import subprocess
import sys
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from mainspring import App, Settings, run
from mainspring.app.blocked_loop import LoopWatch
from mainspring.errors import InvalidInput, InvalidSettings
from mainspring.recurrence import AmbiguousCron
from mainspring.testing import world
from tests.engine.lives import names

app = App()


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
    ],
)
def test_a_wrong_argument_is_told_in_words(mistake: Any, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        mistake()


def test_a_setting_that_does_not_exist_is_told_with_the_one_that_is_meant() -> None:
    with pytest.raises(InvalidSettings, match="no setting 'leese'; did you mean lease"):
        Settings(leese=1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def test_too_many_arguments_of_a_verb_are_told_in_its_own_words() -> None:
    with pytest.raises(TypeError, match=r"app.run_after\(delay, call\): too many .* step.bind\(…\)"):
        app.run_after.sync(1, step, "x")  # type: ignore[call-arg, arg-type]  # pyright: ignore[reportCallIssue, reportArgumentType]


def test_help_shows_the_verb_and_not_the_class_behind_it() -> None:
    assert str(inspect.signature(app.runs.get)) == "(run_id: 'str') -> 'Coroutine[Any, Any, RunInfo[Handle[R]]]'"
    assert (inspect.getdoc(app.runs.get) or "").startswith("Look up a run, with its handle.")
    assert inspect.isroutine(app.runs.get)
    assert repr(app.send) == "<verb app.send>"
    assert "timeout" in str(inspect.signature(app.get_event))
    assert (inspect.getdoc(app.get_event) or "").startswith("The value of an event of a run")


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
