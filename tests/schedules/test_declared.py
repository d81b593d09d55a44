"""Schedules that code declares: brought into the database by workers, kept in step with deploys."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from mainspring import App, Blueprint, Calendar, Cron, Declaration, Overlap, Policy, Settings, Spec, run
from mainspring.errors import AlreadyRegistered, InvalidInput
from mainspring.operations.audit import Audit
from mainspring.operations.schedules.declared import Declaring
from mainspring.testing import world
from tests.schedules.conftest import BEGIN, at

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from mainspring.operations.audit import AuditEntry
    from mainspring.testing import World

calls: list[Any] = []


@pytest.fixture(autouse=True)
def _forget() -> None:
    calls.clear()


@asynccontextmanager
async def version(
    url: str, declare: Callable[[App], object] = lambda _: None, begin: datetime = BEGIN, name: str | None = None
) -> AsyncGenerator[World]:
    """A worker whose app declares what `declare` does."""
    app = App(url, version=name, settings=Settings(poll=0.05))

    @app.workflow
    async def beat(scheduled_at: datetime, started_at: datetime) -> None:
        calls.append((f"{scheduled_at:%H:%M}", f"{started_at:%H:%M}"))

    @app.workflow
    async def plain() -> None:
        tick = run.tick
        assert tick is not None
        calls.append((tick.schedule, f"{tick.nominal:%H:%M}"))

    @app.workflow
    async def report(region: str) -> None:
        calls.append(region)

    setattr(app, "beat", beat)  # noqa: B010
    setattr(app, "plain", plain)  # noqa: B010
    setattr(app, "report", report)  # noqa: B010
    declare(app)
    async with world(app, at=begin, url=url) as made:
        yield made
        await made.drain()


def beats(cron: str = "*/5 * * * *", **more: Any) -> Callable[[Any], object]:
    return lambda app: app.scheduled(cron, **more)(app.beat)


async def test_a_scheduled_workflow_is_called_with_its_time_and_the_time_it_started(store_url: str) -> None:
    async with version(store_url, beats()) as w:
        await w.advance("11m")
        found = await w.app.schedules.describe("beat")
    assert calls == [("00:05", "00:05"), ("00:10", "00:10")]
    assert found.declared_by == w.app.version
    assert [tick.run for tick in found.recent] == ["beat-2022-06-01T00:10:00Z", "beat-2022-06-01T00:05:00Z"]


async def test_after_downtime_every_missed_time_is_made_up_for(store_url: str) -> None:
    async with version(store_url, beats()) as w:
        await w.advance("6m")
    async with version(store_url, beats(), at("03:02")) as w:
        await w.drain()
    assert calls[0] == ("00:05", "00:05")
    assert calls[1:] == [(f"{minute // 60:02}:{minute % 60:02}", "03:02") for minute in range(10, 185, 5)]


async def test_when_active_makes_up_for_nothing_and_says_so(store_url: str) -> None:
    mode = {"mode": "exactly_once_per_interval_when_active"}
    async with version(store_url, beats(**mode)) as w:
        await w.advance("6m")
    async with version(store_url, beats(**mode), at("00:20:30")) as w:
        await w.advance("5m")
        ticks = (await w.app.schedules.ticks("beat")).ticks
    assert calls == [("00:05", "00:05"), ("00:25", "00:25")]
    assert [str(tick.outcome) for tick in ticks] == ["fired", "missed", "missed", "missed", "fired"]
    assert ticks[1].reason == "no worker was active"


async def test_an_operator_decides_whether_it_is_when_active(store_url: str) -> None:
    mode = {"mode": "exactly_once_per_interval_when_active"}
    async with version(store_url, beats(**mode)) as w:
        await w.app.schedules.update("beat", policy=Policy(Overlap.ALLOW_ALL, catchup=None))
        await w.advance("6m")
    async with version(store_url, beats(**mode), at("00:12")) as w:
        await w.drain()
    assert calls == [("00:05", "00:05"), ("00:10", "00:12")]


async def test_when_active_is_refused_where_no_code_would_see_to_it(store_url: str) -> None:
    when_active = Policy(when_active=True)
    async with version(store_url, beats()) as w:
        call, spec = w.app.bind("plain"), Spec(intervals=["1h"])
        with pytest.raises(InvalidInput, match="when_active is for schedules that the code declares"):
            await w.app.schedules.create("s", call, spec, when_active)
        with pytest.raises(InvalidInput, match="when_active"):
            await w.app.schedules.apply([Declaration("s", call, spec, when_active)])
        await w.app.schedules.create("s", call, spec)
        with pytest.raises(InvalidInput, match="when_active"):
            await w.app.schedules.update("s", policy=when_active)
        assert (await w.app.schedules.describe("s")).policy == Policy().to_dict()
        await w.app.schedules.update("beat", policy=when_active)


async def test_when_active_a_second_worker_changes_nothing(store_url: str) -> None:
    mode = {"mode": "exactly_once_per_interval_when_active"}
    async with version(store_url, beats(**mode)) as one:
        await one.advance("6m")
        async with version(store_url, beats(**mode), at("00:10:30")):
            pass
        await one.advance("5m")
    assert [scheduled for scheduled, _ in calls] == ["00:05", "00:10"]


async def test_the_first_registration_makes_up_for_nothing(store_url: str) -> None:
    async with version(store_url, beats(), at("12:00")) as w:
        await w.advance("1m")
    assert calls == []


async def test_two_schedules_on_one_workflow(store_url: str) -> None:
    def declare(app: Any) -> None:
        app.scheduled("*/10 * * * *")(app.plain)
        app.scheduled("5 * * * *", id="at-five")(app.plain)
        app.scheduled(Spec(intervals=["15m"]), policy=Policy(Overlap.BUFFER_ALL), args=("eu",), id="r")(app.report)

    async with version(store_url, declare) as w:
        await w.advance("16m")
    assert calls == [("at-five", "00:05"), ("plain", "00:10"), "eu"]


async def test_a_declared_schedule_of_any_call(store_url: str) -> None:
    def declare(app: Any) -> None:
        call = app.report.options(id="report", timeout="1h", attributes={"tenant": "acme"}).bind("eu")
        app.schedule(
            "nightly", call, Spec(cron=["0 2 * * *"], timezone="Europe/Paris"), Policy(catchup="10m"), note="n"
        )

    async with version(store_url, declare) as w:
        described = await w.app.schedules.describe("nightly")
        await w.advance("25h")
        found = await w.app.handle("report-2022-06-02T00:00:00Z").describe()
    assert calls == ["eu"]
    assert (described.note, described.policy["catchup"]) == ("n", "10m")
    assert described.next == at("00:00") + timedelta(days=1)
    assert found.attributes == {
        "tenant": "acme",
        "schedule_id": "nightly",
        "scheduled_at": "2022-06-02T00:00:00Z",
    }


async def test_a_changed_cron_applies_from_its_deploy_on(store_url: str) -> None:
    async with version(store_url, beats()) as w:
        await w.advance("11m")
    async with version(store_url, beats("*/20 * * * *"), at("00:31")) as w:
        await w.advance("10m")
        found = await w.app.schedules.describe("beat")
    # What came up under the old one is made up for as the old one says, then the new one counts.
    assert [scheduled for scheduled, _ in calls] == ["00:05", "00:10", "00:15", "00:20", "00:25", "00:30", "00:40"]
    assert (found.revision, found.starts) == (2, 7)


async def test_what_the_newest_version_does_not_declare_stops_and_says_so(
    store_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with version(store_url, beats()) as w:
        await w.advance("6m")
    with caplog.at_level(logging.WARNING, "mainspring"):
        async with version(store_url, begin=at("00:07"), name="v2") as w:
            await w.advance("10m")
            found = await w.app.schedules.describe("beat")
    assert found.stopped == "version v2 of the code does not declare it any more"
    assert "schedule beat is stopped" in caplog.text
    assert found.upcoming == []
    async with version(store_url, beats(), at("00:21"), name="v3") as w:
        await w.advance("5m")
        back = await w.app.schedules.describe("beat")
        outcomes = [str(tick.outcome) for tick in back.recent]
    assert back.stopped is None
    assert [scheduled for scheduled, _ in calls] == ["00:05", "00:25"]
    assert outcomes == ["fired", "paused", "paused", "paused", "fired"]


async def test_in_a_rolling_deploy_an_old_worker_that_starts_late_rewrites_nothing(store_url: str) -> None:
    async with version(store_url, beats(), name="old"):
        pass
    async with (
        version(store_url, beats("*/7 * * * *"), at("00:01"), name="new") as new,
        version(store_url, beats(), at("00:01"), name="old"),
    ):
        found = await new.app.schedules.describe("beat")
        assert (found.declared_by, found.spec["cron"][0]["cron"]) == ("new", "*/7 * * * *")


async def test_a_deploy_that_is_taken_back_restores_the_old_definition(store_url: str) -> None:
    async with version(store_url, beats(), name="old"):
        pass
    async with version(store_url, beats("*/7 * * * *"), at("00:01"), name="new"):
        pass
    async with version(store_url, beats(), at("00:02"), name="old") as w:
        found = await w.app.schedules.describe("beat")
    assert (found.declared_by, found.spec["cron"][0]["cron"]) == ("old", "*/5 * * * *")


async def test_a_pause_survives_a_deploy(store_url: str) -> None:
    async with version(store_url, beats()) as w:
        await w.app.schedules.pause("beat", "holidays")
    async with version(store_url, beats("*/2 * * * *"), at("00:01")) as w:
        await w.advance("10m")
        found = await w.app.schedules.describe("beat")
    assert (found.paused, found.note, calls) == (True, "holidays", [])


# -- what an operator changed --------------------------------------------------------------------------------------------
def spec_of(cron: str) -> Spec:
    return Spec(cron=[Cron(cron, dialect="vixie")])


async def entries(w: World) -> list[AuditEntry]:
    store = w.app._runtime.connection().store
    found = await asyncio.to_thread(Audit(store, w.clock, w.app._runtime.ids).list)
    return found.entries


async def test_what_an_operator_changed_stays_while_the_declaration_stays_the_same(store_url: str) -> None:
    declare = beats(note="by the code")
    async with version(store_url, declare, name="one") as w:
        changed = await w.app.schedules.update(
            "beat", spec=spec_of("15 * * * *"), policy=Policy(Overlap.SKIP), note="by ada"
        )
        assert changed.differs == ["spec", "policy", "note"]
    for number, name in enumerate(("one", "two")):  # the same worker once more, and a deploy that changes other things
        async with version(store_url, declare, at(f"00:0{number + 1}"), name=name) as w:
            found = await w.app.schedules.describe("beat")
            assert (found.spec["cron"][0]["cron"], found.note) == ("15 * * * *", "by ada")
            assert (found.declared_by, found.differs, found.revision) == (
                name,
                ["spec", "policy", "note"],
                changed.revision,
            )
            assert await entries(w) == []


async def test_a_changed_declaration_overrides_what_an_operator_changed_and_is_written_down(store_url: str) -> None:
    async with version(store_url, beats(), name="one") as w:
        await w.app.schedules.update("beat", spec=spec_of("15 * * * *"), attributes={"by": "ada"})
    async with version(store_url, beats("*/2 * * * *"), at("00:01"), name="two") as w:
        found = await w.app.schedules.describe("beat")
        (entry,) = await entries(w)
    assert (found.spec["cron"][0]["cron"], found.attributes, found.differs) == ("*/2 * * * *", {}, [])
    assert (entry.who, entry.action, entry.subject) == ("version two", "schedules.declare", ["beat"])
    assert (entry.details["overridden"], entry.outcome) == (["spec", "attributes"], True)
    assert entry.details["before"]["spec"]["cron"][0]["cron"] == "15 * * * *"
    assert list(entry.details["before"]) == ["spec"]  # attributes may be nobody else's business


async def test_a_declaration_that_says_what_an_operator_said_before_overrides_nothing(store_url: str) -> None:
    async with version(store_url, beats(), name="one") as w:
        await w.app.schedules.update("beat", spec=Spec(cron=[Cron("*/2 * * * *", dialect="dbos")]))
    async with version(store_url, beats("*/2 * * * *"), at("00:01"), name="two") as w:
        assert (await w.app.schedules.describe("beat")).differs == []
        assert await entries(w) == []


async def test_reset_goes_back_to_the_declaration_and_keeps_a_pause(store_url: str) -> None:
    async with version(store_url, beats(note="by the code")) as w:
        await w.app.schedules.update("beat", spec=spec_of("15 * * * *"), note=None, attributes={"a": 1})
        await w.app.schedules.pause("beat", "later")
        found = await w.app.schedules.reset("beat")
        assert (found.spec["cron"][0]["cron"], found.note, found.attributes) == ("*/5 * * * *", "by the code", {})
        assert (found.differs, found.paused, found.pause_note) == ([], True, "later")
        await w.app.schedules.resume("beat")
        await w.advance("6m")
        await w.app.schedules.create("own", getattr(w.app, "plain").bind(), Spec())  # noqa: B009
        with pytest.raises(InvalidInput, match="made at run time"):
            await w.app.schedules.reset("own")
    assert calls == [("00:05", "00:05")]


async def test_a_note_that_changes_in_the_code_changes(store_url: str) -> None:
    for note in ("first", "second", None):
        async with version(store_url, beats(note=note)) as w:
            assert (await w.app.schedules.describe("beat")).note == note


async def test_one_that_no_declaration_is_known_of_becomes_what_the_code_says(store_url: str) -> None:
    """As of tables that an older version of the library wrote."""
    async with version(store_url, beats(), name="one") as w:
        await w.app.schedules.update("beat", spec=spec_of("15 * * * *"))
        Declaring(w.app._runtime.connection().store, w.clock, w.app._runtime.ids).update("beat", {"declared": None})
    async with version(store_url, beats(), at("00:01"), name="one") as w:
        found = await w.app.schedules.describe("beat")
    assert (found.spec["cron"][0]["cron"], found.differs) == ("*/5 * * * *", [])


async def test_a_schedule_that_is_over_does_not_keep_an_app_from_starting(store_url: str) -> None:
    once = Spec(calendars=[Calendar(year="2021", month="6", day_of_month="1")])
    async with version(store_url, lambda app: app.schedule("once", app.report.bind("eu"), once)) as w:  # type: ignore[attr-defined]
        found = await w.app.schedules.describe("once")
    assert found.next is None


async def test_a_schedule_made_at_run_time_that_code_declares_later_becomes_the_codes(
    store_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with version(store_url) as w:
        await w.app.schedules.create("beat", w.app.report.bind("us"), Spec(intervals=["1h"]))  # type: ignore[attr-defined]
    with caplog.at_level(logging.WARNING, "mainspring"):
        async with version(store_url, beats(), at("00:01")) as w:
            found = await w.app.schedules.describe("beat")
    assert (found.workflow, found.declared_by) == ("beat", w.app.version)
    assert "was made at run time" in caplog.text


async def test_a_function_that_no_longer_exists_leaves_its_runs_waiting_visibly(store_url: str) -> None:
    first = App(store_url, settings=Settings(poll=0.05))

    @first.workflow
    async def gone() -> None:
        calls.append("gone")

    async with world(first, at=BEGIN, url=store_url) as w:
        await first.schedules.create("s", gone.bind(), Spec(intervals=["5m"]))
        await w.advance("6m")
    async with version(store_url, begin=at("00:07")) as w:
        await w.advance("10m")
        found = await w.app.schedules.describe("s")
        ticks = (await w.app.schedules.ticks("s")).ticks
    assert calls == ["gone"]
    assert found.unknown == "no live worker knows 'gone'"
    assert [str(tick.outcome) for tick in ticks] == ["skipped_overlap", "fired", "fired"]
    async with world(first, at=at("00:21"), url=store_url) as w:
        await w.drain()
        assert (await first.schedules.describe("s")).unknown is None
    assert calls[:2] == ["gone", "gone"]


async def test_a_blueprint_brings_its_schedules(store_url: str) -> None:
    blueprint = Blueprint("billing")

    @blueprint.scheduled("*/5 * * * *")
    @blueprint.workflow
    async def bill() -> None:
        calls.append("bill")

    async with version(store_url, lambda app: app.include(blueprint)) as w:
        await w.advance("6m")
        assert (await w.app.schedules.describe("billing.bill")).starts == 1
    assert calls == ["bill"]


def test_declarations_that_make_no_sense_are_refused_where_they_stand() -> None:
    app = App("sqlite://")

    @app.workflow
    async def beat(scheduled_at: datetime, started_at: datetime) -> None: ...

    @app.workflow
    async def one(argument: int) -> None: ...

    for wrong, says in (
        (lambda: app.scheduled("61 * * * *")(beat), "61"),
        (lambda: app.scheduled("* * * * *", timezone="Mars/Base")(beat), "Mars/Base"),
        (lambda: app.scheduled("* * * * *", mode="sometimes")(beat), "no mode 'sometimes'"),  # type: ignore[arg-type]
        (lambda: app.scheduled("* * * * *")(one), "(scheduled_at, started_at)"),
        (lambda: app.scheduled("* * * * *", args=("x", "y"))(one), "argument"),
        (lambda: app.scheduled("* * * * *")(lambda: None), "not a workflow yet"),
        (lambda: app.scheduled(Spec(intervals=["1h"]), timezone="UTC")(beat), "leave out timezone"),
        (lambda: app.scheduled("* * * * *", id="a/b")(beat), "'/'"),
        (lambda: app.schedule("x", one.bind(1), "* * * * *"), "takes a Spec"),  # type: ignore[arg-type]
        (lambda: app.schedule("x", one, Spec()), "write one.bind"),  # type: ignore[arg-type]
        (lambda: app.schedule("x", one.options(after="1h").bind(1), Spec()), "says when"),
        (lambda: app.schedule("x", one.bind(1), Spec(), note="n" * 1_001), "the limit is 1000"),
    ):
        with pytest.raises(InvalidInput) as caught:
            wrong()
        assert says in str(caught.value)
    app.scheduled("* * * * *")(beat)
    app.scheduled("* * * * *")(beat)  # as a module that is loaded again does
    with pytest.raises(AlreadyRegistered, match="two schedules are called 'beat'"):
        app.scheduled("*/2 * * * *")(beat)


def test_a_method_cannot_be_scheduled_without_its_object() -> None:
    app = App("sqlite://")
    with pytest.raises(InvalidInput, match=r"obj\.method\.bind"):

        class Shop:  # pyright: ignore[reportUnusedClass]
            @app.scheduled("* * * * *")
            @app.workflow
            async def close(self) -> None: ...


def test_the_dialect_above_a_workflow_is_dbos_and_another_can_be_named(sqlite_url: str) -> None:
    app = App(sqlite_url)

    @app.workflow
    async def plain() -> None: ...

    app.scheduled("*/30 * * * * *", id="a")(plain)
    app.scheduled(Cron("0 12 L * *", dialect="vixie"), id="b")(plain)
    specs = {definition.id: definition.spec for definition in app._runtime.declarations}
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    assert specs["a"].next(moment) == moment + timedelta(seconds=30)
    assert specs["b"].next(moment) == datetime(2026, 1, 31, 12, tzinfo=UTC)
