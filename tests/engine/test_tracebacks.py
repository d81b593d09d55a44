"""Recorded tracebacks show where the user's code was, and nothing of the library around it."""

from __future__ import annotations

import asyncio
import json
import re
import traceback
from typing import Any

import pytest

from mainspring import App
from mainspring.codec import decode_exception, encode_exception
from mainspring.errors import NotFound
from mainspring.testing import world

app = App("sqlite://")


@app.step
def blocking_step() -> None:
    raise OSError("at the bottom")


@app.step
async def step() -> None:
    await asyncio.sleep(0)
    raise OSError("at the bottom")


@app.workflow
async def child() -> None:
    await blocking_step.aio()


@app.workflow
async def parent() -> None:
    await child()


@app.workflow
def blocking() -> None:
    blocking_step()


@app.workflow
async def grouped() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(step())


@app.workflow
async def misdirected() -> None:
    await app.send("nobody", "topic", 1)


def _functions(error: dict[str, Any] | None) -> list[str]:
    assert error is not None
    return re.findall(r'File "[^"]*", line \d+, in (\w+)', error["traceback"])


@pytest.mark.parametrize(
    ("workflow", "kind", "frames"),
    [
        (blocking, OSError, ["blocking_step"]),
        (child, OSError, ["blocking_step", "child"]),
        (parent, OSError, ["blocking_step", "child", "parent"]),
        (misdirected, NotFound, ["misdirected"]),
    ],
    ids=lambda each: getattr(each, "name", None),
)
async def test_only_the_users_frames_are_recorded(
    store_url: str, workflow: Any, kind: type[Exception], frames: list[str]
) -> None:
    async with world(app, url=store_url):
        handle = await workflow.options(id="a").start()
        with pytest.raises(kind):
            await handle.result()
        error = (await app.runs.get("a")).error
    assert set(_functions(error)) == {*frames, *(["blocking"] if workflow is blocking else [])}
    assert error is not None
    assert "mainspring/engine" not in error["traceback"]
    assert "concurrent/futures" not in error["traceback"]


@pytest.mark.parametrize(
    ("workflow", "names"),
    [(blocking, ["blocking", "blocking_step"]), (parent, ["parent", "child", "blocking_step"])],
    ids=lambda each: getattr(each, "name", None),
)
async def test_the_exception_of_a_run_is_raised_with_the_lines_of_the_user(
    store_url: str, workflow: Any, names: list[str]
) -> None:
    """What a program prints when nothing catches it names the step and the line, not only the call that waited for the run."""
    async with world(app, url=store_url):
        with pytest.raises(OSError, match="bottom") as caught:
            await workflow.aio() if workflow is blocking else await workflow()
    frames = [frame for frame in traceback.extract_tb(caught.value.__traceback__) if frame.filename == __file__]
    assert [frame.name for frame in frames[1:]] == names  # the first one is this test
    assert frames[-1].line == 'raise OSError("at the bottom")'
    printed = "".join(traceback.format_exception(caught.value))
    assert 'raise OSError("at the bottom")' in printed


async def test_exceptions_in_a_group_have_theirs(store_url: str) -> None:
    async with world(app, url=store_url):
        with pytest.raises(ExceptionGroup):
            await grouped.options(id="a")()
        error = (await app.runs.get("a")).error
    assert error is not None
    assert "mainspring/engine" not in error["traceback"]
    assert "grouped" in _functions(error)


def test_where_there_is_nothing_else_the_librarys_frames_stay() -> None:
    with pytest.raises(ValueError, match="JSON") as caught:
        decode_exception("no JSON")
    error = caught.value
    error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next  # without the frame of this test
    assert "decode_exception" in json.loads(encode_exception(error))["traceback"]
