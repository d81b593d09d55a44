"""Values that no verb can take, given to every verb: an error of the library's that says what it takes, on both databases, and no
trace in what is stored."""

from __future__ import annotations

import inspect
import math
from collections.abc import AsyncIterator, Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from mainspring import (
    App,
    Blueprint,
    Calendar,
    Client,
    Cron,
    CronItem,
    CronOptions,
    Debounce,
    Policy,
    Rate,
    Retry,
    Settings,
    Spec,
    Tx,
    parse_cron_items,
    parse_crontab,
    run,
)
from mainspring.errors import Conflict, InvalidInput, MainspringError

WHEN = datetime(2026, 1, 1, tzinfo=UTC)
HOURLY = Spec(intervals=["1h"])
ODD: list[Any] = [
    *(None, True, 0, -1, 1.5, math.nan, math.inf, -math.inf, 2**31, 2**63, 10**30, Decimal(1)),
    *("", " ", "x\0y", "\ud800", "é", "x" * 3_000, "1h", "-1h", "bogus", b"x"),
    *([], [1], {}, {1, 2}, ("a",), {"a": object()}, object(), object, print),
    *(WHEN.replace(tzinfo=None), WHEN, datetime.max.replace(tzinfo=UTC), datetime.min.replace(tzinfo=UTC)),
    *(date(2026, 1, 1), timedelta(-1), timedelta.max, HOURLY, Policy()),
]
Ask = Callable[[Any], Any]


async def asked(ask: Ask, value: Any) -> bool:
    """Give a value to a verb. True if it was taken; False after an error of the library's, with words. Other errors are faults."""
    try:
        answer = ask(value)
        if inspect.isawaitable(answer):
            await answer
        elif isinstance(answer, AsyncIterator):
            await anext(answer, None)  # pyright: ignore[reportUnknownArgumentType]
    except MainspringError as error:
        words = str(error)
    except Exception as error:
        raise AssertionError(f"{value!r} was answered with {error!r}") from error
    else:
        return True
    assert len(words) > 12, words
    return False


async def _a_step() -> None: ...


def _option(app: App, name: str) -> Ask:
    any_app: Any = app
    return lambda value: any_app.options(**{name: value}).start("work")


def _keyword(verb: Any, name: str, *before: Any) -> Ask:
    return lambda value: verb(*before, **{name: value})


def _of(make: Any, name: str, **others: Any) -> Ask:
    return lambda value: make(**(others | {name: value}))


def _parsed_item(**given: Any) -> object:
    return parse_cron_items([CronItem(**given)])


def _parsed_options(**given: Any) -> object:
    return parse_cron_items([CronItem("t", "* * * * *", CronOptions(**given))])


def _decorating(kind: str, name: str) -> Ask:
    def ask(value: Any) -> None:
        decorator: Any = getattr(App("sqlite://"), kind)
        if name not in inspect.signature(decorator).parameters:
            return
        if kind == "transaction":

            def fn(tx: Tx) -> None: ...

            decorator(**{name: value})(fn)
        else:
            decorator(**{name: value})(_a_step)

    return ask


def _scheduling(name: str) -> Ask:
    def ask(value: Any) -> None:
        local: Any = App("sqlite://")
        made = local.workflow(_a_step)
        local.scheduled(**({"when": "* * * * *"} | {name: value}))(made)

    return ask


def verbs_of_runs(app: App, client: Client) -> dict[str, Ask]:
    runs: Any = app.runs
    any_app: Any = app
    any_client: Any = client
    options = (
        "id queue priority partition key key_mode after at timeout attributes version retry detached debounce user"
    )
    verbs: dict[str, Ask] = {f"options {each}": _option(app, each) for each in options.split()}
    verbs |= {
        "client.start": lambda v: any_client.start(v, 1),
        "start_many": any_app.start_many,
        "start_many, one": lambda v: any_app.start_many([v]),
        "gather": any_app.gather,
        "first": any_app.first,
        "handle": lambda v: any_app.handle(v).describe(),
        "client.handle": lambda v: any_client.handle(v).cancel(),
        "run_after": lambda v: any_app.run_after(v, app.bind("work")),
        "run_at": lambda v: any_app.run_at(v, app.bind("work")),
        "send run": lambda v: any_app.send(v, "topic", 1),
        "send topic": lambda v: any_app.send("done", v, 1),
        "send key": lambda v: any_app.send("done", "topic", 1, key=v),
        "send_many": any_app.send_many,
        "send_many, one": lambda v: any_app.send_many([v]),
        "get_event run": lambda v: any_app.get_event(v, "key", timeout=0),
        "get_event key": lambda v: any_app.get_event("done", v, timeout=0),
        "get_events": any_app.get_events,
        "read_stream run": lambda v: any_app.read_stream(v, "key"),
        "read_stream key": lambda v: any_app.read_stream("done", v),
        "read_stream offset": lambda v: any_app.read_stream("done", "key", offset=v),
        "ask run": lambda v: any_app.ask(v, "question", 1, timeout=0),
        "ask question": lambda v: any_app.ask("done", v, 1, timeout=0),
        "fork step": lambda v: runs.fork("done", v),
        "fork version": lambda v: runs.fork("done", version=v),
        "fork children": lambda v: runs.fork("unknown", children=v),
        "set_attributes, runs": lambda v: runs.set_attributes(v, {"a": 1}),
        "set_attributes": lambda v: runs.set_attributes("unknown", v),
        "set_newest": any_app.versions.set_newest,
        "force": lambda v: any_app.versions.force("unknown", version=v),
        "load": runs.load,
        "load, one": lambda v: runs.load([v]),
        "reschedule": lambda v: runs.reschedule("done", at=v),
        "functions.get": app.scheduled_functions.get,
    }
    for name in ("get", "steps", "logs", "cancel", "terminate", "resume", "retry", "complete", "fail", "reschedule"):
        verbs[f"runs.{name}"] = getattr(runs, name)
    verbs |= {f"runs.{name}": getattr(runs, name) for name in ("delete", "export", "fork", "fork_failed")}
    for name in ("limit", "after", "created_after", "created_before", "state", "workflow", "ids", "attributes"):
        verbs[f"runs.list {name}"] = _keyword(runs.list, name)
    for name in ("limit", "after", "due_before", "due_after", "name", "state"):
        verbs[f"functions.list {name}"] = _keyword(app.scheduled_functions.list, name)
    return verbs


def verbs_of_schedules(app: App) -> dict[str, Ask]:
    of: Any = app.schedules
    call = app.bind("work")
    verbs: dict[str, Ask] = {
        "create id": lambda v: of.create(v, call, Spec(), paused=True),
        "create call": lambda v: of.create("new", v, Spec()),
        "create spec": lambda v: of.create("new", call, v),
        "create policy": lambda v: of.create("new", call, Spec(), v),
        "update revision": lambda v: of.update("s", revision=v),
        "backfill": lambda v: of.backfill("s", v, v),
        "skip": lambda v: of.skip("s", v),
        "unskip": lambda v: of.unskip("s", v),
        "stop_backfill": of.stop_backfill,
        "tick": lambda v: of.tick("s", v),
        "apply": of.apply,
        "apply, one": lambda v: of.apply([v]),
        "audit": lambda v: of.audit("s", v),
        "preview": of.preview,
        "preview count": lambda v: of.preview(Spec(), count=v),
    }
    for name in ("paused", "trigger", "backfill", "note", "attributes"):
        verbs[f"create {name}"] = _keyword(of.create, name, "new", call, Spec())
    verbs["create backfill, one"] = lambda v: of.create("new", call, Spec(), backfill=[v])
    verbs["create backfill, pair"] = lambda v: of.create("new", call, Spec(), backfill=[(v, v)])
    for name in ("call", "spec", "policy", "note", "attributes", "remaining"):
        verbs[f"update {name}"] = _keyword(of.update, name, "s")
    for name in ("prune", "group"):
        verbs[f"apply {name}"] = _keyword(of.apply, name, [])
    for name in ("note", "until"):
        verbs[f"pause {name}"] = _keyword(of.pause, name, "s")
    for name in ("since", "until", "outcome", "after", "limit"):
        verbs[f"ticks {name}"] = _keyword(of.ticks, name, "s")
    for name in ("after", "limit", "paused", "workflow", "due_before", "attributes", "id_prefix"):
        verbs[f"list {name}"] = _keyword(of.list, name)
    for name in ("overlap", "again"):
        verbs[f"backfill {name}"] = _keyword(of.backfill, name, "s", WHEN, WHEN)
    verbs["trigger overlap"] = _keyword(of.trigger, "overlap", "s")
    for name in ("describe", "pause", "resume", "trigger", "skip", "ticks", "backfills", "delete"):
        verbs[name] = getattr(of, name)
    return verbs


def verbs_of_queues(app: App) -> dict[str, Ask]:
    of: Any = app.queues
    verbs: dict[str, Ask] = {name: getattr(of, name) for name in ("describe", "pause", "resume", "delete", "set")}
    limits = ("concurrency", "worker_concurrency", "rate", "partition_concurrency", "partition_rate", "retry")
    verbs |= {f"set {name}": _keyword(of.set, name, "q") for name in limits}
    verbs["set partition"] = lambda v: of.set("q", partition=v, partition_concurrency=2)
    return verbs


def declarations() -> dict[str, Ask]:
    made: dict[str, Ask] = {
        "Blueprint": Blueprint,
        "Cron": Cron,
        "Cron dialect": lambda v: Cron("* * * * *", dialect=v),
        "Cron.next": lambda v: Cron("* * * * *").next(v),
        "Cron.next zone": lambda v: Cron("* * * * *").next(0, timezone=v),
        "Cron.matches": lambda v: Cron("* * * * *").matches(v),
        "Spec.next": HOURLY.next,
        "Spec.upcoming": lambda v: HOURLY.upcoming(0, v if v not in (2**31, 2**63, 10**30) else 1),
        "Spec.between": lambda v: HOURLY.between(v, v),
        "Spec.from_dict": Spec.from_dict,
        "Policy.from_dict": Policy.from_dict,
        "parse_crontab": parse_crontab,
        "parse_cron_items": parse_cron_items,
        "parse_cron_items, one": lambda v: parse_cron_items([v]),
        "crontab text": lambda v: App("sqlite://").crontab(text=v),
        "crontab file": lambda v: App("sqlite://").crontab(file=v),
        "crontab items": lambda v: App("sqlite://").crontab(items=v),
        "Rate": Rate,
        "Rate per": lambda v: Rate(1, per=v),
        "Debounce": lambda v: Debounce(v, 1),
        "include": lambda v: App("sqlite://").include(v),
        "queue": lambda v: App("sqlite://").queue(v),
    }
    for name in ("task", "match", "options", "payload", "identifier"):
        made[f"CronItem {name}"] = _of(_parsed_item, name, task="t", match="* * * * *")
    for name in ("backfill_period", "max_attempts", "queue_name", "job_key", "job_key_mode", "priority"):
        made[f"CronOptions {name}"] = _of(_parsed_options, name)
    for name in (
        "overlap",
        "catchup",
        "pause_on_failure",
        "limit",
        "max_running",
        "buffer_limit",
        "coalesce",
        "when_active",
    ):
        made[f"Policy {name}"] = _of(Policy, name)
    for name in ("attempts", "first", "factor", "cap", "jitter", "on", "unless"):
        made[f"Retry {name}"] = _of(Retry, name, attempts=3)
    for name in ("year", "month", "day_of_month", "day_of_week", "hour", "minute", "second", "comment"):
        made[f"Calendar {name}"] = _of(Calendar, name)
    for name in (
        "cron",
        "intervals",
        "calendars",
        "exclude",
        "start",
        "end",
        "jitter",
        "timezone",
        "timezone_data",
        "gap",
        "fold",
    ):
        made[f"Spec {name}"] = _of(Spec, name)
    return made | decorators()


def decorators() -> dict[str, Ask]:
    made: dict[str, Ask] = {}
    for name in ("name", "version", "settings", "imports", "engine", "payloads"):
        made[f"App {name}"] = _of(App, name, url="sqlite://")
    for kind in ("workflow", "step", "transaction"):
        for name in (
            "name",
            "retry",
            "timeout",
            "queue",
            "at_most_once",
            "interruptible",
            "batch",
            "isolation",
            "retention",
        ):
            made[f"{kind} {name}"] = _decorating(kind, name)
    for name in ("args", "id", "timezone", "mode", "policy", "gap", "fold", "note", "when"):
        made[f"scheduled {name}"] = _scheduling(name)
    return made


@pytest.fixture
async def app(store_url: str) -> AsyncIterator[App]:
    app = App(store_url, settings=Settings(work=False))

    @app.workflow
    async def work(number: int = 0) -> int:
        return number

    app.queue("q")
    async with app:
        await work.options(id="done").start()
        await app.runs.complete("done", result=1)
        await app.queues.set("q", concurrency=2)
        await app.schedules.create("s", work.bind(), HOURLY)
        yield app


async def test_runs(app: App, store_url: str) -> None:
    async with Client(store_url) as client:
        for name, ask in verbs_of_runs(app, client).items():
            for value in ODD:
                try:
                    await asked(ask, value)
                except AssertionError as error:
                    raise AssertionError(f"{name}: {error}") from error


async def test_schedules(app: App) -> None:
    for name, ask in verbs_of_schedules(app).items():
        for value in ODD:
            try:
                answered = await asked(ask, value)
            except AssertionError as error:
                raise AssertionError(f"{name}: {error}") from error
            if answered and name.startswith(("create", "apply")):
                await _delete_new(app)
        assert (await app.schedules.describe("s")).fault is None, name


async def test_queues(app: App) -> None:
    for name, ask in verbs_of_queues(app).items():
        for value in ODD:
            try:
                await asked(ask, value)
            except AssertionError as error:
                raise AssertionError(f"{name}: {error}") from error
            assert (await app.queues.describe("q")).exists, (name, value)


@pytest.mark.parametrize("name", declarations())
@pytest.mark.filterwarnings("ignore")
async def test_declarations(name: str) -> None:
    for value in ODD:
        await asked(declarations()[name], value)


async def test_flags_and_keys_are_what_they_say(app: App) -> None:
    odd: Any = app
    for wrong in (
        lambda: odd.options(detached="no"),
        lambda: odd.schedules.apply([], prune="no"),
        lambda: odd.schedules.create("new", app.bind("work"), Spec(), paused="no"),
        lambda: odd.send("done", "topic", 1, key=7),
        lambda: odd.queues.set("q", partition=b"x", partition_concurrency=1),
        lambda: odd.step(at_most_once="no")(_a_step),
        lambda: odd.schedules.backfill("s", datetime.min.replace(tzinfo=UTC), WHEN),
        lambda: odd.runs.get("x\0y"),
        lambda: odd.runs.cancel("\ud800"),
    ):
        with pytest.raises(InvalidInput):
            await _answer(wrong)


@pytest.mark.parametrize("name", ["", " ", "x\0y", "\ud800", 7])
async def test_names_inside_a_run_are_refused_before_anything_is_done(store_url: str, name: Any) -> None:
    app, done = App(store_url), list[str]()

    @app.workflow
    async def asks() -> None:
        with pytest.raises(InvalidInput):
            await run.step(name, done.append, "a")
        with pytest.raises(InvalidInput):
            run.patched(name)

    async with app:
        await asks()
    assert done == []


async def test_verbs_of_schedules_and_queues_inside_a_run(store_url: str) -> None:
    app = App(store_url)
    app.queue("q")
    verbs: dict[str, Ask] = {}

    @app.workflow
    async def work() -> None: ...

    odd: list[Any] = [None, 1.5, 2**63, Decimal(1), "", "x\0y", "\ud800", [1], {}, object]

    @app.workflow
    async def asks(name: str) -> None:
        for value in odd:
            await asked(verbs[name], value)

    async with app:
        await app.schedules.create("s", work.bind(), HOURLY)
        verbs |= verbs_of_schedules(app) | {f"queue {name}": ask for name, ask in verbs_of_queues(app).items()}
        for name in verbs:
            try:
                await asks(name)
            except AssertionError as error:
                raise AssertionError(f"{name}: {error}") from error


async def test_no_connection_cannot_be_joined(app: App) -> None:
    with pytest.raises(InvalidInput, match="not None"):
        app.joined(None)


async def test_a_stale_revision_is_a_conflict_also_where_nothing_would_change(app: App) -> None:
    note = (await app.schedules.describe("s")).note
    with pytest.raises(Conflict):
        await app.schedules.update("s", note=note, revision=99)


async def _answer(ask: Callable[[], Any]) -> None:
    answer = ask()
    if inspect.isawaitable(answer):
        await answer


async def _delete_new(app: App) -> None:
    for each in (await app.schedules.list(limit=100)).schedules:
        if each.id != "s":
            await app.schedules.delete(each.id)
