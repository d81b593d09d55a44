"""What operators and schedules do to runs."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from typing import Any

from mainspring import Alert, Overlap, Policy, Retry, Spec, run
from tests.injection.scene import Caller, Drive, Expected, Scene, shape


@shape(
    {
        "f": "mended",
        "c": "b",
        "given": "by hand",
        "refused": "failed: RunEnded: not wanted",
        "soon": "soon",
        "copy": "b",
    },
    main=("soon",),
    revived=("soon",),
    tries={"a": 2},
    optional=("a", "b", "given", "refused", "copy"),
    settings={"keep_logs": "info"},
)
def managed(s: Scene) -> Drive:
    """Runs that are retried, resumed, completed, failed, rescheduled, forked, exported and deleted from outside."""
    app = s.app

    @app.step
    async def fails(what: str) -> str:
        s.mark(what)
        logging.getLogger("shapes").warning("it is tried")
        if "mended" not in s.ledger.facts:
            raise Expected(what)
        return "mended"

    @app.step
    async def note(what: str) -> str:
        return await s.effect(what)

    @app.workflow
    async def failing() -> str:
        return await fails("a")

    @app.workflow
    async def cancelled() -> str:
        await run.sleep(1)
        return await note("b")

    @app.workflow
    async def plain(what: str) -> str:
        return what

    async def drive(caller: Caller) -> None:
        runs = app.runs
        do = caller.do
        await caller.start(failing, "f")
        await caller.start(cancelled, "c")
        await caller.start(plain, "given", "?", after="1d")
        await caller.start(plain, "refused", "?", after="1d")
        await caller.start(plain, "soon", "soon", after="1d")
        await do("cancel", lambda: app.handle("c").cancel("wait"))
        await do("complete", lambda: runs.complete("given", result="by hand"))
        await do("fail", lambda: runs.fail("refused", reason="not wanted"))
        await do("set attributes", lambda: runs.set_attributes("soon", {"colour": "red"}))
        await do("reschedule", lambda: runs.reschedule("soon", after=0))
        await do("fail first", lambda: app.handle("f").result(), missing=True, failing=True)
        s.ledger.facts.add("mended")
        await do("retry", lambda: runs.retry("f"))
        await do("stop first", lambda: app.handle("c").result(), missing=True, failing=True)
        await do("resume", lambda: runs.resume("c"))
        await caller.results_of("f", "c", "given", "refused", "soon")
        await do("fork", lambda: runs.fork("c", "note", id="copy"), missing=True)
        await caller.results_of("copy")
        await do("look", lambda: _look(caller))
        lines: list[str] = await do("export", lambda: runs.export("given")) or []
        await do("delete", lambda: runs.delete("given"))
        await do("load", lambda: runs.load(lines))

    return drive


async def _look(caller: Caller) -> None:
    """Whatever an operator may look at."""
    app = caller.app
    await app.runs.get("f")
    await app.runs.steps("f")
    await app.runs.list()
    await app.runs.counts()
    await app.runs.aggregate()
    await app.runs.logs("f")
    await app.workers.list()
    await app.versions.list()
    await app.versions.patches()
    await app.versions.force("f")
    await app.queues.list()
    await app.scheduled_functions.list()
    await app.handle("f").describe()


@shape({"q": "a", "p": "b"}, main=("q", "p"))
def managed_queues(s: Scene) -> Drive:
    """A queue that is paused, changed, looked at and resumed; and one that goes."""
    app = s.app
    app.queue("shared", concurrency=2)

    @app.step
    async def note(what: str) -> str:
        return await s.effect(what)

    @app.workflow(retry=Retry(2, first=0.1))
    async def work(what: str) -> str:
        return await note(what)

    async def drive(caller: Caller) -> None:
        do, queues = caller.do, app.queues
        await do("pause", lambda: queues.pause("shared"))
        await caller.start(work, "q", "a", queue="shared", partition="one")
        await caller.start(work, "p", "b", queue="shared", partition="two")
        await do("set", lambda: queues.set("shared", concurrency=1))
        await do("set partition", lambda: queues.set("shared", partition="one", partition_concurrency=1))
        await do("describe", lambda: queues.describe("shared"))
        await do("resume", lambda: queues.resume("shared"))
        await caller.results_of("q", "p")
        await caller.pause(65)  # a review is made once a minute
        await do("make another", lambda: queues.set("another", concurrency=1))
        await do("delete", lambda: queues.delete("another"))

    return drive


_TICKS = ("00:00:10", "00:00:20")
_NEEDS = ("make queue", "create", "resume schedule")


@shape(
    {f"every-2026-01-01T{time}Z": "tick" for time in _TICKS},
    main=(f"every-2026-01-01T{_TICKS[0]}Z",),
    tries={"tick": 100},
    needs=_NEEDS,
)
def scheduled(s: Scene) -> Drive:
    """A schedule that starts two runs, and is paused, triggered, changed, backfilled and deleted."""
    app = s.app

    @app.step
    async def note(what: str) -> str:
        return await s.effect(what)

    @app.workflow
    async def work() -> str:
        return await note("tick")

    async def drive(caller: Caller) -> None:
        do, schedules = caller.do, app.schedules
        await do("make queue", lambda: app.queues.set("ticks", concurrency=3))
        spec, call = Spec(intervals=["10s"]), work.options(queue="ticks").bind()
        policy = Policy(Overlap.ALLOW_ALL, limit=2, catchup="1h")
        await do("create", lambda: schedules.create("every", call, spec, policy), missing=True)
        await do("pause", lambda: schedules.pause("every", "for a moment"))
        await do("resume schedule", lambda: schedules.resume("every"))
        await do("trigger", lambda: schedules.trigger("every"))
        await do("update", lambda: schedules.update("every", note="changed"))
        await do("skip", lambda: schedules.skip("every", _at(30)))
        await do("unskip", lambda: schedules.unskip("every", _at(30)), missing=True)
        await do("backfill", lambda: schedules.backfill("every", _at(-20), _at(-10)))
        await do("look at it", lambda: _look_at_schedule(caller))
        await caller.pause(22)
        promised = not {*_NEEDS} & {*caller.dropped}
        await caller.results_of(*(f"every-2026-01-01T{time}Z" for time in _TICKS), promised=promised)
        await do("delete schedule", lambda: schedules.delete("every"), missing=True)

    return drive


def _at(seconds: float) -> datetime:
    """A moment of the case, so many seconds from its beginning."""
    return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)


async def _look_at_schedule(caller: Caller) -> None:
    schedules = caller.app.schedules
    await schedules.describe("every")
    await schedules.list()
    await schedules.ticks("every")
    await schedules.backfills("every")
    await schedules.audit("every", _at(-30))


@shape(
    {"declared-2026-01-01T00:00:10Z": "tick"},
    tries={"tick": 100},
    optional=("old",),
    settings={"retention": 3},
)
def declared(s: Scene) -> Drive:
    """A schedule and a crontab that the code declares, a queue that it names, somebody who listens, and runs that are forgotten."""
    app = s.app
    arrived: list[str] = []
    app.queue("ticks", concurrency=3)

    @app.step
    async def note(what: str) -> str:
        return await s.effect(what)

    @app.workflow(retention="1d")
    async def work() -> str:
        return await note("tick")

    @app.on_missed
    @app.step
    async def missed(alert: Alert) -> None:
        s.ledger.notes.append(f"missed: {alert}")

    @app.workflow
    async def task(payload: dict[str, Any]) -> str:
        return str(payload)

    @app.workflow
    async def short() -> str:
        await run.set_event("said", "once")
        return "short"

    @app.workflow
    async def endless() -> None:
        await run.sleep(3_000)

    app.on("*", lambda event: arrived.append(event.name))
    app.crontab(text="0 4 * * * task")
    app.schedule("declared", work.options(queue="ticks").bind(), Spec(intervals=["10s"]), Policy(limit=1, catchup="1h"))

    async def drive(caller: Caller) -> None:
        await caller.start(short, "old")
        await caller.do("events", lambda: app.get_events("old"), missing=True)
        await caller.start(endless, "endless")
        await caller.do("terminate", lambda: app.handle("endless").terminate("enough"), missing=True)
        await caller.pause(12)
        await caller.results_of("declared-2026-01-01T00:00:10Z", promised=True)

    return drive
