"""A replay that asks for something else than what is recorded says so: where, what is recorded, what was found."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from typing import Any

import pytest

from mainspring import App, AsyncFn, Settings, State, run
from mainspring.engine.replay import watchdog
from mainspring.errors import NonDeterminism
from mainspring.model.runs import Step, StepKind
from mainspring.testing import world
from tests.engine.lives import info, put, record, store_of


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "STUCK_SECONDS", 0.05)


def recorded(position: str, seq: int, name: str, kind: StepKind = "step") -> Step:
    return Step("", position, kind, name, seq=seq, output='"old"', started=1, completed=2, attempts=1)


def make_app(**settings: Any) -> App:
    app = App(settings=Settings(**settings))

    @app.step
    async def new(what: str = "new") -> str:
        return what

    @app.workflow
    async def one() -> list[str]:
        return [await new(), await new()]

    @app.workflow(name="short")
    async def short() -> list[str]:
        return [await new()]

    @app.workflow(name="sleeps")
    async def sleeps() -> None:
        await run.sleep(1)

    @app.workflow(name="swallows")
    async def swallows() -> str:
        with contextlib.suppress(Exception):
            await new()
        return "as if nothing had been"

    @app.workflow(name="branches")
    async def branches() -> list[str]:
        async def branch() -> str:
            return await new()

        return list(await asyncio.gather(branch(), branch()))

    @app.workflow(name="group")
    async def group() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(run.sleep("1d"))
            tasks.create_task(new_one())

    async def new_one() -> None:
        await new()

    return app


def function(app: App, name: str) -> Any:
    return AsyncFn[..., Any](app, app._runtime.registry.get(name))


CASES = {
    "another name": (
        "one",
        [recorded("0", 0, "old")],
        "at position 0 the record has step 'old', but the code now requests step 'new'",
    ),
    "another kind": (
        "sleeps",
        [recorded("0", 0, "old")],
        "at position 0 the record has step 'old', but the code now requests sleep",
    ),
    "an end before the end of the record": (
        "short",
        [recorded("0", 0, "new"), recorded("1", 1, "new")],
        "the function came to its end, but the record continues with step 'new' at position 1",
    ),
    "swallowed by the code": (
        "swallows",
        [recorded("0", 0, "old")],
        "at position 0 the record has step 'old', but the code now requests step 'new'",
    ),
    "something new before the record is used up": (
        "one",
        [recorded("t0.0", 0, "new")],
        "the record continues with step 'new' at position t0.0, but the code requests position 0 instead",
    ),
    "another name in a branch": (
        "branches",
        [recorded("t1.0", 0, "old")],
        "at position t1.0 the record has step 'old', but the code now requests step 'new'",
    ),
}


@pytest.mark.parametrize("case", CASES)
async def test_under_the_same_source_the_run_ends_failed_with_an_explanation(store_url: str, case: str) -> None:
    name, steps, explanation = CASES[case]
    app = make_app()
    async with world(app, url=store_url):
        put(app, function(app, name), "a", steps)
        with pytest.raises(NonDeterminism) as caught:
            await app.handle("a").result()
        assert f"run a of {name}: {explanation}." in str(caught.value)
        assert "must do the same operations in the same order" in str(caught.value)
        assert info(app, "a").state is State.FAILED
        assert len(record(app, "a")) == len(steps)


@pytest.mark.filterwarnings("ignore:coroutine 'new' was never awaited")  # Python itself says so
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("name", ["ahead", "beside"])
async def test_the_author_is_not_blamed_for_what_the_disagreement_cut_off(
    store_url: str, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    app = make_app()
    new = function(app, "new")

    @app.workflow(name="ahead")
    async def ahead() -> None:
        later = new()
        await run.sleep(1)
        await later

    @app.workflow(name="beside")
    async def beside() -> None:
        async def branch() -> None:
            await new()

        task = asyncio.create_task(branch())
        await run.sleep(1)
        await task

    async with world(app, url=store_url):
        put(app, function(app, name), "a", [recorded("1" if name == "ahead" else "0", 0, "old")])
        with pytest.raises(NonDeterminism):
            await app.handle("a").result()
        gc.collect()
    assert "never awaited" not in caplog.text
    assert "was unfinished" not in caplog.text


@pytest.mark.parametrize("case", CASES)
async def test_under_another_source_the_run_is_stranded_and_kept_for_a_version_that_fits(
    store_url: str, case: str
) -> None:
    name, steps, explanation = CASES[case]
    app = make_app(continue_on="compatible")
    async with world(app, url=store_url) as w:
        put(app, function(app, name), "a", steps, fingerprint="another", version="another")
        while not (found := info(app, "a")).stranded:
            await w.drain()
        assert explanation in found.stranded
        assert (found.state, found.version) == (State.QUEUED, "another")
        assert len(record(app, "a")) == len(steps)
        await w.advance("1h")
        assert info(app, "a").epoch == found.epoch


async def test_what_disagreeing_code_cancels_is_not_given_up(store_url: str) -> None:
    """A version that fits goes on with it: recorded as given up, it would be waited for in vain there."""
    app = make_app(continue_on="compatible")
    began = Step("", "0", "sleep", "sleep", started=1, due=2**62)
    async with world(app, url=store_url) as w:
        steps = [began, recorded("t0.0", 0, "old")]
        put(app, function(app, "group"), "a", steps, fingerprint="another", version="another")
        while not (found := info(app, "a")).stranded:
            await w.drain()
        assert "at position t0.0 the record has step 'old'" in found.stranded
        assert [step.kind for step in store_of(app).steps("a") if step.completed is None] == ["sleep"]


async def test_a_run_begun_by_another_source_is_left_to_that_source(store_url: str) -> None:
    app = make_app()
    async with world(app, url=store_url) as w:
        put(app, function(app, "one"), "a", [recorded("0", 0, "new")], fingerprint="another", version="another")
        await w.advance("1h")
        assert info(app, "a").state is State.QUEUED


async def test_a_run_whose_replay_agrees_is_continued_when_asked_for(store_url: str) -> None:
    app = make_app(continue_on="compatible")
    async with world(app, url=store_url):
        put(app, function(app, "one"), "a", [recorded("0", 0, "new")], fingerprint="another", version="another")
        assert await app.handle("a").result() == ["old", "new"]
        assert info(app, "a").version == "another"


async def test_process_time_in_a_workflow_is_not_taken_for_a_disagreement(store_url: str) -> None:
    app = App()

    @app.step
    async def note(what: str) -> str:
        if what == "never":
            await asyncio.Event().wait()
        return what

    @app.workflow
    async def patient() -> list[str]:
        found = list[str]()
        try:
            async with asyncio.timeout(0.3):
                found.append(await note("never"))
        except TimeoutError:
            found.append(await note("instead"))
        return [*found, await note("after")]

    async with world(app, url=store_url):
        assert await patient.options(id="a")() == ["instead", "after"]
        put(app, patient, "b", store_of(app).steps("a")[:1])
        assert await app.handle("b").result() == ["instead", "after"]


async def test_the_version_is_a_hash_of_the_workflows_and_can_be_pinned() -> None:
    assert make_app().version == make_app().version
    changed = make_app()

    @changed.workflow
    async def one_more() -> None: ...

    assert changed.version != make_app().version
    steps = make_app()

    @steps.step
    async def another_step() -> None: ...

    assert steps.version == make_app().version
    assert App(version="v3").version == "v3"


# -- replays that cannot go on -----------------------------------------------------------------------------------------
def make_stuck_app() -> App:
    app = make_app()
    new = function(app, "new")

    async def branch() -> Any:
        return await new()

    @app.workflow(name="shielded")
    async def shielded() -> Any:
        return await asyncio.shield(asyncio.create_task(branch()))

    @app.workflow(name="handing over")
    async def handing_over() -> list[str]:
        there = asyncio.Event()

        async def first() -> Any:
            found = await new()
            there.set()
            return found

        async def second() -> Any:
            await there.wait()
            return await new()

        async with asyncio.TaskGroup() as tasks:
            both = tasks.create_task(first()), tasks.create_task(second())
        return [each.result() for each in both]

    @app.workflow(name="spawning")
    async def spawning() -> None:
        task = asyncio.create_task(branch())
        await asyncio.Event().wait()
        await task

    @app.workflow(name="blocking")
    def blocking() -> Any:
        return new.sync()

    return app


def cancelled(position: str, name: str = "new") -> Step:
    return Step("", position, "step", name, started=1, completed=2, attempts=1)


STUCK = {
    "turns behind a branch that is gone": (
        "branches",
        [recorded("t0.0", 1, "new"), recorded("t1.0", 2, "new"), recorded("t2.0", 0, "new")],
        "the record continues with step 'new' at position t2.0, but the code requests position t1.0 instead",
    ),
    "a turn in a shielded task": (
        "shielded",
        [recorded("t0.0", 1, "new"), recorded("t1.0", 0, "new")],
        "the record continues with step 'new' at position t1.0, but the code requests position t0.0 instead",
    ),
    "an operation that was cancelled": (
        "one",
        [cancelled("0"), recorded("1", 0, "new")],
        "the record continues with step 'new' at position 1, but the code requests position 0 instead",
    ),
    "an event that another branch would set": (
        "handing over",
        [recorded("t1.0", 0, "new"), recorded("t0.0", 1, "new")],
        "the record continues with step 'new' at position t1.0, but the code requests position t0.0 instead",
    ),
    "a task that nothing awaits yet": (
        "spawning",
        [recorded("t0.0", 0, "old")],
        "at position t0.0 the record has step 'old', but the code now requests step 'new'",
    ),
    "a question to a handler that is gone": (
        "branches",
        [recorded("t0.0", 1, "new"), recorded("t1.0", 2, "new"), recorded("t2.0", 0, "double", "question")],
        "the record continues with question 'double' at position t2.0, but the code requests position t1.0 instead",
    ),
    "a turn on a thread": (
        "blocking",
        [recorded("0", 1, "new"), recorded("t0.0", 0, "new")],
        "the record continues with step 'new' at position t0.0, but the code requests position 0 instead",
    ),
}


@pytest.mark.parametrize("case", STUCK)
async def test_a_replay_that_can_never_go_on_ends_with_an_explanation(store_url: str, case: str) -> None:
    name, steps, explanation = STUCK[case]
    app = make_stuck_app()
    async with world(app, url=store_url), asyncio.timeout(30):
        put(app, function(app, name), "a", steps)
        with pytest.raises(NonDeterminism) as caught:
            await app.handle("a").result()
        assert f"run a of {name}: {explanation}." in str(caught.value)
        assert len(record(app, "a")) == len(steps)


@pytest.mark.parametrize("asks", ["for its turn", "for something new"])
async def test_a_replay_that_awaits_something_outside_is_given_time(store_url: str, asks: str) -> None:
    app = make_app()
    new = function(app, "new")
    outside: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @app.workflow(name="slow")
    async def slow() -> list[str]:
        async def ready() -> Any:
            return await new()

        async def late() -> Any:
            await outside
            return await new()

        return list(await asyncio.gather(ready(), late()))

    async with world(app, url=store_url), asyncio.timeout(30):
        steps = [recorded("t1.0", 0, "new")]
        put(app, slow, "a", [*steps, recorded("t0.0", 1, "new")] if asks == "for its turn" else steps)
        asyncio.get_running_loop().call_later(20 * watchdog.STUCK_SECONDS, outside.set_result, None)
        assert await app.handle("a").result() == ["old" if asks == "for its turn" else "new", "old"]
