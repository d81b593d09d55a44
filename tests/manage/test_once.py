"""Whatever a run may ask for is done once and answered once, wherever its process dies. `SAMPLES=all` dies at every call."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

import pytest

from mainspring import App, Debounce, Declaration, Message, Policy, Question, Rate, Spec, run
from mainspring.engine.engine import Engine
from mainspring.errors import MainspringError, RunCancelled
from mainspring.operations import scheduled_functions
from mainspring.operations.runs import bulk
from mainspring.operations.schedules import actions
from mainspring.testing import crash
from tests.support.samples import calls, covering

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

app = App("sqlite://", version="v1")
app.queue("lane", concurrency=1)
NO_TICK = datetime(2000, 6, 1, tzinfo=UTC)
double = Question("double", int, int)


@app.step
async def work(name: str) -> str:
    if name == "broken":
        raise OSError("broken")
    return name


@app.workflow
async def chain(*names: str) -> list[str]:
    return [await work(name) for name in names]


@app.workflow
async def answering() -> Any:
    run.answer(double, lambda value: 2 * value)
    return [await run.receive("word") for _ in range(3)]


@app.workflow
async def endless(number: int = 0) -> int:
    await work("once")
    if number < 2:
        await run.continue_as(number + 1)
    return number


@app.workflow
async def undoing() -> None:
    async with run.undo() as undo:
        undo.push(work.bind("undone"))
        await work("broken")


async def _ended(handle: Any) -> str:
    try:
        return repr(await handle.result())
    except (OSError, MainspringError) as error:
        return type(error).__name__


@app.workflow
async def talking(me: str) -> str:
    other = await answering.options(id=f"{me}-other").start()
    made: list[Any] = [await app.ask(other.id, double, 21)]
    await run.set_event("state", 1)
    await run.set_event("state", 2)
    await run.write_stream("log", "a")
    await run.write_stream("log", "b")
    await run.close_stream("log")
    await app.send(other.id, "word", 1)
    await app.send_many([Message(other.id, "word", 2), Message(other.id, "word", 3)])
    made += [await other.result(), await app.get_event(me, "state"), await app.get_events(me)]
    made.append([value async for value in app.read_stream(me, "log")])
    two = await app.start_many([chain.options(id=f"{me}-{name}").bind(name) for name in "xy"])
    made += [await app.gather(*two), (await app.first(*two)).id in {each.id for each in two}]
    later = await app.run_after("10s", chain.options(id=f"{me}-later").bind("later"))
    put_off = chain.options(debounce=Debounce(me, "5s"))
    first = await put_off.start("first")
    made += [await later.result(), (await put_off.start("second")).id == first.id, await first.result()]
    return repr([*made, await endless(), await _ended(await undoing.start())])


@app.workflow
async def managing(me: str) -> str:
    failed = await chain.options(id=f"{me}-failed", detached=True).start("fine", "broken")
    made: list[Any] = [await _ended(failed), await app.runs.retry(failed.id), await _ended(failed)]
    fork = await app.runs.fork(failed.id, "work")
    named = await app.runs.fork(failed.id, id=f"{me}-named")
    forks = await app.runs.fork_failed(failed.id)
    made += [await _ended(fork), await _ended(named), *[await _ended(app.handle(each)) for each in forks.values()]]
    a, b, c, d = await app.start_many(
        chain.options(id=f"{me}-{name}", detached=True, version="v0").bind("never") for name in "abcd"
    )
    made += [await app.runs.reschedule(a.id, priority=3), await a.cancel("why"), await app.runs.resume(a.id)]
    made += [
        await app.runs.cancel(a.id, b.id),
        await app.runs.complete(c.id, result=[]),
        await app.runs.fail(d.id, reason="so"),
    ]
    lines = await app.runs.export(c.id, d.id)
    made += [await app.runs.delete(c.id, d.id), await app.runs.load(lines), await app.runs.delete(d.id)]
    made += [(await app.runs.get(a.id)).state, len(await app.runs.steps(failed.id)), len(await app.versions.list())]
    made += [await app.versions.force(a.id), await app.versions.patches(), await app.runs.logs(a.id)]
    return repr(made)


@app.workflow
async def many_at_once(me: str) -> str:
    """Verbs by filter, in batches of two; each is a change of its own, and the answer tells all of them."""
    started = await app.start_many(
        chain.options(id=f"{me}-{name}", detached=True, version="v0").bind("never") for name in "abcde"
    )
    mine = f"{me}-"
    made: list[Any] = [await app.runs.reschedule(id_prefix=mine, priority=3)]
    made += [await app.runs.cancel(id_prefix=mine, reason="why"), await app.runs.resume(id_prefix=mine)]
    made += [
        await app.runs.terminate(started[0].id, started[1].id, "unknown"),
        await app.runs.terminate(id_prefix=mine),
    ]
    made += [await app.runs.resume(id_prefix=mine), await app.runs.complete(started[0].id, result=[])]
    made += [await app.runs.fail(id_prefix=mine), await app.runs.retry(id_prefix=mine)]
    made.append(await app.runs.complete(id_prefix=mine, result=["done"]))
    for number in range(3):
        await app.run_after("1d", chain.options(id=f"{me}-later{number}").bind(me))
    made += [await app.scheduled_functions.cancel_all("chain"), await app.scheduled_functions.cancel_all("chain")]
    specs = [Declaration(f"{me}{number}", chain.bind("tick"), Spec(cron=["0 0 1 1 *"])) for number in range(5)]
    made.append(await app.schedules.apply(specs[:4], group=me))
    made.append(await app.schedules.apply(specs[2:], prune=True, group=me))
    return repr([*made, await app.schedules.apply([], prune=True, group=me)])


@app.workflow
async def ends_itself(me: str) -> None:
    """Whoever ends itself cannot record that, and does it last, with whatever else it ends."""
    await app.start_many(chain.options(id=f"{me}{name}", detached=True, version="v0").bind("never") for name in "xy")
    await app.runs.terminate(id_prefix=me)


@app.workflow
async def steering(me: str) -> str:
    made: list[Any] = [(await app.queues.set(me, concurrency=2, rate=Rate(5, per="1m"))).limits]
    await app.queues.pause(me)
    made.append((await app.queues.describe(me)).paused)
    await app.queues.resume(me)
    made += [await app.queues.delete(me), me in [queue.name for queue in await app.queues.list()]]
    spec = Spec(cron=["0 0 1 1 *"])
    created = await app.schedules.create(me, chain.bind("tick"), spec, Policy(), paused=True)
    made += [created.id, (await app.schedules.update(me, note="new", revision=created.revision)).note]
    await app.schedules.resume(me, "go on")
    await app.schedules.pause(me, "stop")
    triggered = await app.schedules.trigger(me, "allow_all")
    made.append(None if triggered is None else await triggered.result())
    made += [(await app.schedules.skip(me)).month, (await app.schedules.unskip(me)).month]
    made.append((await app.schedules.backfill(me, NO_TICK, NO_TICK)).schedule)
    described = await app.schedules.describe(me)
    made += [described.paused, described.note, [each.id for each in (await app.schedules.list()).schedules]]
    await app.schedules.delete(me)
    return repr([*made, [each.id for each in (await app.schedules.list()).schedules]])


async def _after(me: str) -> list[Any]:
    """What is there in the end: the runs with their states, and what the run has recorded."""
    found = (await app.runs.list(limit=200, id_prefix=me)).runs
    forks = [each for each in (await app.runs.list(limit=200)).runs if (each.forked_from or "").startswith(me)]
    steps = [(step.kind, "" if step.kind in {"result", "ended"} else step.name) for step in await app.runs.steps(me)]
    return [sorted((each.id.replace(me, "me"), str(each.state)) for each in found), len(forks), steps]


@covering
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("workflow", [talking, managing, steering, many_at_once], ids=lambda workflow: workflow.name)
async def test_what_a_run_asks_for_is_done_once_wherever_its_process_dies(
    store_url: str, when: Literal["before", "after"], workflow: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Engine, "patience", 0.02)  # the dead do not have to be waited for
    for module, name in ((bulk, "BATCH"), (scheduled_functions, "_BATCH"), (actions, "_AT_ONCE")):
        monkeypatch.setattr(module, name, 2)

    def doing(me: str) -> Callable[[], Awaitable[str]]:
        async def work() -> str:
            made = await workflow.options(id=me)(me)
            found = repr([made, await _after(me)]).replace(me, "me")
            return re.sub(r"\b[0-9a-z]{23}\b", "an id", re.sub(r"[0-9]{4}-[0-9-]+T[0-9:.]+", "a time", found))

        return work

    expected = (await crash(app, doing("whole."), at=None, url=store_url)).result
    for at in calls(when, most=400, coarse=6 if workflow is talking else 3):
        outcome = await crash(app, doing(f"run{at}."), at=at, when=when, url=store_url)
        assert outcome.result == expected, f"died {when} call {at}"
        if not outcome.crashed:
            assert at > 20
            return
    raise AssertionError("it never came to its end without a crash")


@pytest.mark.sampled
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_run_that_ends_itself_with_others_ends_all_of_them(
    store_url: str, when: Literal["before", "after"], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Engine, "patience", 0.02)
    monkeypatch.setattr(bulk, "BATCH", 2)

    def doing(me: str) -> Callable[[], Awaitable[list[Any]]]:
        async def work() -> list[Any]:
            await ends_itself.options(id=me).start(me)
            with pytest.raises(RunCancelled):
                await app.handle(me).result()
            return sorted(
                (each.id.replace(me, "me"), str(each.state)) for each in (await app.runs.list(id_prefix=me)).runs
            )

        return work

    expected = [("me", "cancelled"), ("mex", "cancelled"), ("mey", "cancelled")]
    for at in calls(when, most=100, coarse=2):
        outcome = await crash(app, doing(f"run{at}."), at=at, when=when, url=store_url)
        assert outcome.result == expected, f"died {when} call {at}"
        if not outcome.crashed:
            return
    raise AssertionError("it never came to its end without a crash")
