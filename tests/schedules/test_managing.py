"""Making, changing, finding and deleting schedules: by coroutine, blocking, inside runs, and from a client."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from mainspring import App, Calendar, Client, Cron, Declaration, Interval, Overlap, Policy, Settings, Spec, run
from mainspring.errors import Conflict, InvalidInput, InvalidSpec, MainspringError, NotFound
from mainspring.operations.schedules.actions import Schedules
from mainspring.schedules.control import Control
from mainspring.testing import world
from tests.schedules.conftest import BEGIN, Bench, at, bench_at

if TYPE_CHECKING:
    from collections.abc import Callable

HOURLY = Spec(intervals=["1h"])


# -- changing ----------------------------------------------------------------------------------------------------------
async def test_an_update_takes_effect_at_once_and_is_never_retroactive(bench: Bench) -> None:
    await bench.create("5m")
    await bench.to("00:12")
    await bench.app.schedules.update("s", spec=Spec(intervals=["1m"]))
    await bench.to("00:15")
    assert [nominal for nominal, _ in bench.starts] == ["00:05", "00:10", "00:13", "00:14", "00:15"]


async def test_an_update_changes_only_what_it_names(bench: Bench) -> None:
    await bench.create("5m", Policy(Overlap.BUFFER_ONE), note="first", attributes={"tenant": "acme"})
    before = await bench.describe()
    after = await bench.app.schedules.update("s", policy=Policy(Overlap.ALLOW_ALL))
    assert (after.spec, after.note, after.attributes, after.action) == (
        before.spec,
        "first",
        {"tenant": "acme"},
        before.action,
    )
    assert after.revision == before.revision + 1
    cleared = await bench.app.schedules.update("s", attributes={}, note=None)
    assert (cleared.attributes, cleared.note, cleared.policy["overlap"]) == ({}, None, "allow_all")
    same = await bench.app.schedules.update("s", attributes={})
    assert same.revision == cleared.revision


async def test_an_update_on_a_stale_revision_is_refused_and_changes_nothing(bench: Bench) -> None:
    await bench.create("5m")
    seen = (await bench.describe()).revision
    await bench.app.schedules.update("s", note="one", revision=seen)
    with pytest.raises(Conflict, match=f"is at revision {seen + 1}, not {seen} any more"):
        await bench.app.schedules.update("s", note="two", revision=seen)
    assert (await bench.describe()).note == "one"
    await bench.app.schedules.update("s", note="three")
    assert (await bench.describe()).note == "three"


async def test_a_pause_by_failure_makes_an_update_stale(bench: Bench) -> None:
    bench.results = {"00:05": RuntimeError("oops")}
    await bench.create("5m", Policy(pause_on_failure=True))
    seen = (await bench.describe()).revision
    await bench.to("00:06")
    with pytest.raises(Conflict):
        await bench.app.schedules.update("s", note="mine", revision=seen)


async def test_a_waiting_start_follows_the_policy_of_the_moment_it_is_decided(bench: Bench) -> None:
    bench.durations = {"*": "1h"}
    await bench.create("5m", Overlap.BUFFER_ALL)
    await bench.to("00:11")
    assert (await bench.describe()).buffered == 1
    await bench.app.schedules.update("s", policy=Policy(Overlap.ALLOW_ALL))
    await bench.to("00:12")
    assert bench.starts == [("00:05", "00:05"), ("00:10", "00:11")]


async def test_what_a_schedule_calls_can_be_changed(bench: Bench) -> None:
    said: list[str] = []

    @bench.app.workflow
    async def say(word: str) -> None:
        said.append(word)

    await bench.create("5m")
    with pytest.raises(InvalidInput):
        await bench.app.schedules.update("s", call=say)  # type: ignore[arg-type]
    changed = await bench.app.schedules.update("s", call=say.options(timeout="1m").bind("hello"))
    assert (changed.workflow, changed.action["timeout"]) == (say.name, 60)


# -- making ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (lambda: Spec(cron=["99 * * * *"]), InvalidSpec, "99"),
        (lambda: Spec(intervals=["1h"], timezone="Mars/Base"), InvalidSpec, "Mars/Base"),
        (lambda: Spec(intervals=[Interval("1h", offset="2h")]), MainspringError, "offset"),
        (lambda: Spec(calendars=[Calendar(month="13")]), MainspringError, "13"),
        (lambda: Policy("now and then"), InvalidInput, "no overlap policy"),
        (lambda: Policy(limit=-1), InvalidInput, "limit"),
        (lambda: Policy(max_running=0), InvalidInput, "max_running"),
        (lambda: Policy(pause_on_failure=-1), InvalidInput, "pause_on_failure"),
        (lambda: Policy.from_dict({"overlaps": "skip"}), InvalidInput, "there is no overlaps"),
    ],
)
def test_what_makes_no_sense_is_refused_before_it_reaches_a_schedule(
    make: Callable[[], object], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        make()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"spec": Spec(intervals=["1h"], end=BEGIN - timedelta(days=1))}, "has no time after"),
        ({"schedule": ""}, "blank"),
        ({"schedule": "a/b"}, "'/'"),
        ({"schedule": "x" * 500}, "500 characters"),
        ({"note": "n" * 2_000}, "2000 characters"),
        ({"spec": "* * * * *"}, "takes a Spec"),
        ({"policy": "skip"}, "takes a Policy"),
        ({"call": print}, "takes a call"),
        ({"backfill": [(at("01:00"), at("00:00"))]}, "before the start"),
        ({"backfill": [(at("01:00").replace(tzinfo=None), at("02:00"))]}, "has no zone"),
    ],
)
async def test_a_schedule_that_makes_no_sense_is_refused_and_leaves_nothing(
    bench: Bench, given: dict[str, Any], says: str
) -> None:
    wanted: dict[str, Any] = {"schedule": "s", "call": bench.act.bind(), "spec": HOURLY} | given
    with pytest.raises(InvalidInput, match=says):
        await bench.app.schedules.create(**wanted)
    assert (await bench.app.schedules.list()).schedules == []
    assert (await bench.app.runs.list()).runs == []


async def test_the_same_id_twice_is_refused_by_name(bench: Bench) -> None:
    await bench.create("5m", note="first")
    with pytest.raises(Conflict, match="there is a schedule 's' already"):
        await bench.create("1h", note="second", trigger=True)
    await bench.world.drain()
    assert ((await bench.describe()).note, await bench.ticks()) == ("first", [])


async def test_a_spec_without_times_may_be_made_paused_and_triggered(bench: Bench) -> None:
    over = Spec(intervals=["1h"], end=BEGIN - timedelta(days=1))
    with pytest.raises(InvalidSpec, match="create it paused"):
        await bench.create(over, name="over")
    await bench.create(over, paused=True, name="over")
    await bench.create(Spec(), name="manual")
    for name in ("over", "manual"):
        assert (await bench.describe(name)).upcoming == []
        handle = await bench.app.schedules.trigger(name)
        assert handle is not None
        await handle.result()


async def test_what_is_asked_for_with_the_creation_happens_with_it_or_not_at_all(bench: Bench) -> None:
    stretches = [(at("00:00") - timedelta(hours=2), at("00:00") - timedelta(hours=1)), (at("00:00"), at("00:00"))]
    await bench.create("1h", Overlap.ALLOW_ALL, trigger=True, backfill=stretches)
    await bench.world.drain()
    sources = [(f"{tick.nominal:%H:%M}", str(tick.source)) for tick in await bench.ticks()]
    assert sorted(sources) == [
        ("00:00", "backfill"),
        ("00:00", "trigger"),
        ("22:00", "backfill"),
        ("23:00", "backfill"),
    ]


async def test_a_schedule_says_in_which_queue_its_runs_wait(store_url: str) -> None:
    bench = Bench(store_url)
    bench.app.queue("slow", concurrency=1)
    bench.durations = {"*": "7m"}
    call = bench.act.options(queue="slow", priority=3, partition="acme").bind()
    async with world(bench.app, at=BEGIN, url=store_url) as bench.world:
        made = await bench.app.schedules.create("s", call, Spec(intervals=["5m"]), Policy(Overlap.ALLOW_ALL))
        await bench.to("00:13")
        ticks = await bench.ticks()
    assert (made.action["queue"], made.action["priority"], made.action["partition"]) == ("slow", 3, "acme")
    assert bench.starts == [("00:05", "00:05"), ("00:10", "00:12")]
    assert [str(tick.outcome) for tick in ticks] == ["fired", "fired"]


async def test_a_queue_that_nobody_has_made_is_refused(bench: Bench) -> None:
    nowhere = bench.act.options(queue="nowhere").bind()
    with pytest.raises(InvalidInput, match="there is no queue 'nowhere'"):
        await bench.app.schedules.create("s", nowhere, HOURLY)
    await bench.create("1h")
    with pytest.raises(InvalidInput, match="there is no queue 'nowhere'"):
        await bench.app.schedules.update("s", call=nowhere)
    with pytest.raises(InvalidInput, match="there is no queue 'nowhere'"):
        await bench.app.schedules.apply([Declaration("t", nowhere, HOURLY)])
    assert [each.id for each in (await bench.app.schedules.list()).schedules] == ["s"]
    assert (await bench.describe()).action["queue"] is None


# -- apply -------------------------------------------------------------------------------------------------------------
async def test_apply_makes_a_set_what_it_should_be_again_and_again(bench: Bench) -> None:
    def wanted(*names: str, every: str = "1h") -> list[Declaration]:
        return [Declaration(name, bench.act.bind(), Spec(intervals=[every])) for name in names]

    apply = bench.app.schedules.apply
    assert await apply(wanted("a", "b")) == {"a": "created", "b": "created"}
    await bench.create("1h", name="mine")
    await bench.app.schedules.pause("a", "holidays")
    await bench.to("02:30")
    assert await apply(wanted("a", "b")) == {"a": "unchanged", "b": "unchanged"}
    assert await apply(wanted("a", "c", every="2h"), prune=True) == {"a": "updated", "c": "created", "b": "deleted"}
    found = await bench.describe("a")
    assert (found.paused, found.note, found.spec["intervals"]) == (True, "holidays", [{"every": "2h"}])
    assert [each.id for each in (await bench.app.schedules.list()).schedules] == ["a", "c", "mine"]
    assert await apply(wanted("x"), group="other", prune=True) == {"x": "created"}
    with pytest.raises(InvalidInput, match="two schedules are called 'a'"):
        await apply(wanted("a", "a"))


async def test_apply_goes_on_with_one_that_has_come_to_its_last_time(bench: Bench) -> None:
    once = [Declaration("once", bench.act.bind(), Spec(intervals=["5m"], end=at("00:05")))]
    assert await bench.app.schedules.apply(once) == {"once": "created"}
    await bench.to("01:00")
    assert await bench.app.schedules.apply(once) == {"once": "unchanged"}
    fresh = [Declaration("fresh", bench.act.bind(), Spec(intervals=["5m"], end=at("00:05")))]
    with pytest.raises(InvalidInput, match="no time after"):
        await bench.app.schedules.apply(fresh)


async def test_apply_from_many_places_at_once_makes_each_schedule_once(store_url: str) -> None:
    apps = [App(store_url, settings=Settings(work=False)) for _ in range(4)]

    def act() -> None: ...

    async def apply(app: App) -> dict[str, str]:
        workflow = app.workflow(act)
        return await app.schedules.apply([Declaration(f"s{n}", workflow.bind(), HOURLY) for n in range(20)])

    done = await asyncio.gather(*(apply(app) for app in apps))
    for n in range(20):
        fates = sorted(each[f"s{n}"] for each in done)
        assert fates == ["created", "unchanged", "unchanged", "unchanged"]
    for app in apps:
        await asyncio.to_thread(app.close)


# -- finding -----------------------------------------------------------------------------------------------------------
async def test_schedules_are_found_by_filters_and_in_pages(bench: Bench) -> None:
    for name, spec, attributes in (
        ("a-1", "5m", {"tenant": "x", "n": 1}),
        ("a-2", "1h", {"tenant": "y"}),
        ("b-1", "1d", {}),
    ):
        await bench.create(spec, name=name, attributes=attributes)
    await bench.app.schedules.pause("a-2", "p")
    schedules = bench.app.schedules

    async def ids(**wanted: Any) -> list[str]:
        return [each.id for each in (await schedules.list(**wanted)).schedules]

    assert await ids() == ["a-1", "a-2", "b-1"]
    assert await ids(id_prefix="a-") == ["a-1", "a-2"]
    assert await ids(paused=True) == ["a-2"]
    assert await ids(paused=False, id_prefix="a") == ["a-1"]
    assert await ids(workflow=bench.act.name) == ["a-1", "a-2", "b-1"]
    assert await ids(workflow="other") == []
    assert await ids(attributes={"tenant": "x"}) == ["a-1"]
    assert await ids(attributes={"tenant": "x", "n": 1}) == ["a-1"]
    assert await ids(attributes={"tenant": "x", "n": 2}) == []
    assert await ids(due_before=at("00:06")) == ["a-1"]
    first = await schedules.list(limit=2)
    assert first.next is not None
    assert (await schedules.list(limit=2, after=first.next)).next is None
    assert await ids(after=first.next) == ["b-1"]
    with pytest.raises(InvalidInput, match="at least 1"):
        await schedules.list(limit=0)


async def test_a_name_with_signs_of_sql_in_it_is_just_a_name(bench: Bench) -> None:
    await bench.create("5m", name="50%_'x'")
    assert [each.id for each in (await bench.app.schedules.list(id_prefix="50%_'")).schedules] == ["50%_'x'"]
    assert (await bench.app.schedules.list(id_prefix="50_")).schedules == []


async def test_a_deleted_schedule_is_gone_and_its_runs_go_on(bench: Bench) -> None:
    bench.durations = {"*": "10m"}
    await bench.create("5m")
    await bench.to("00:06")
    await bench.app.schedules.delete("s")
    with pytest.raises(NotFound):
        await bench.describe()
    await bench.to("00:20")
    assert bench.starts == [("00:05", "00:05")]
    assert await bench.app.handle("s-2022-06-01T00:05:00Z").result() == "00:05"
    await bench.create("5m")
    await bench.to("00:26")
    assert bench.starts[1:] == [("00:25", "00:25")]
    assert len(await bench.ticks()) == 1


async def test_looking_changes_nothing(bench: Bench) -> None:
    bench.durations = {"*": "10m"}
    await bench.create("5m", Overlap.BUFFER_ALL)
    await bench.to("00:11")
    first = await bench.describe()
    assert (first.buffered, len(first.upcoming), first.upcoming[0]) == (1, 10, at("00:15"))
    assert await bench.describe() == first


# -- from everywhere ---------------------------------------------------------------------------------------------------
async def test_every_verb_blocks_when_asked_to(store_url: str) -> None:
    app = App(store_url, settings=Settings(poll=0.05))

    @app.workflow
    def act() -> str:
        return "done"

    def work() -> None:
        with app:
            schedules = app.schedules
            schedules.create.sync("s", act.bind(), HOURLY, note="n")
            assert schedules.describe.sync("s").note == "n"
            assert [each.id for each in schedules.list.sync().schedules] == ["s"]
            handle = schedules.trigger.sync("s")
            assert handle is not None
            assert handle.result.sync() == "done"
            schedules.pause.sync("s", "p")
            schedules.resume.sync("s", "r")
            skipped = schedules.skip.sync("s")
            assert schedules.unskip.sync("s") == skipped
            schedules.update.sync("s", note="other")
            assert [str(tick.source) for tick in schedules.ticks.sync("s").ticks] == ["trigger"]
            past = skipped - timedelta(days=1)
            assert schedules.backfill.sync("s", past, past).state == "running"
            assert len(schedules.backfills.sync("s")) == 1
            assert schedules.audit.sync("s", past).unaccounted == []
            schedules.delete.sync("s")

    await asyncio.to_thread(work)


async def test_a_client_manages_schedules_without_the_code(store_url: str) -> None:
    async with bench_at(store_url) as bench:
        async with Client(store_url, clock=bench.world.clock) as client:
            call = client.options(timeout="1h").bind(bench.act.name)
            await client.schedules.create("s", call, Spec(intervals=["5m"]))
            await bench.app.schedules.update(
                "s", attributes={"seen": 1}
            )  # so that the worker has, too, before its clock moves
            await bench.to("00:06")
            found = await client.schedules.describe("s")
            assert (found.starts, found.action["timeout"]) == (1, 3600)
            handle = await client.schedules.trigger("s")
            assert handle is not None
            assert await handle.result() == "00:06"
            await client.schedules.pause("s", "enough")
        assert (await bench.describe()).note == "enough"


async def test_a_preview_reads_a_string_as_a_spec_does_and_begins_now() -> None:
    app = App("sqlite://")

    @app.workflow
    async def ahead() -> list[str]:
        await run.sleep("1h")
        return [f"{when:%d %H:%M}" for when in app.schedules.preview("30 9 * * mon-fri", count=2)]

    async with world(app, at="2026-01-02T09:00Z"):
        assert [f"{when:%d %H}" for when in app.schedules.preview(Spec(intervals=["1h"]), count=2)] == [
            "02 10",
            "02 11",
        ]
        assert [f"{when:%d %H}" for when in app.schedules.preview(Cron("0 12 * * 0"), 0, 1)] == ["02 12"]  # of 2000
        assert await ahead() == ["05 09:30", "06 09:30"]


async def test_what_others_delete_while_a_set_is_applied_is_pruned_or_made_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    hours = [Declaration(name, bench.act.bind(), Spec(intervals=["1h"])) for name in ("kept", "gone")]
    await bench.app.schedules.apply(hours)
    looked, created = Schedules._of_group, bench.app._runtime.connection().store.schedules.create

    def look(schedules: Schedules, group: str, kept: set[str]) -> list[str]:
        found = looked(schedules, group, kept)
        for each in found:
            schedules.delete(each)  # as another process does, which applies the same
        return found

    def create(rows: Any, *more: Any) -> list[str]:
        taken = created(rows, *more)
        for each in taken:
            bench.app._runtime.connection().store.schedules.change(each, Control(0, str).delete(), 0)
        return taken

    monkeypatch.setattr(Schedules, "_of_group", look)
    assert await bench.app.schedules.apply(hours[:1], prune=True) == {"kept": "unchanged", "gone": "deleted"}
    monkeypatch.setattr(bench.app._runtime.connection().store.schedules, "create", create)
    assert await bench.app.schedules.apply(hours[:1]) == {"kept": "created"}
    assert [each.id for each in (await bench.app.schedules.list()).schedules] == ["kept"]
