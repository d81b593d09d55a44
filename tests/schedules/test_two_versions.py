"""Two versions of an app declare schedules at the same time, as in a deploy and when it is taken back."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from mainspring import Spec
from mainspring.model.clock import to_micros
from mainspring.operations.audit import Audit
from mainspring.operations.schedules.declared import Declared, Declaring
from mainspring.schedules.definition import Definition, spec_json
from mainspring.store.open import open_store
from tests.schedules.conftest import at
from tests.schedules.test_declared import beats, calls, version
from tests.store.build import StoreSettings, worker

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainspring.testing import World
    from tests.schedules.conftest import Stepped


@pytest.fixture(autouse=True)
def _forget() -> None:
    calls.clear()


# -- a deploy that is taken back -----------------------------------------------------------------------------------------
async def heartbeat(w: World) -> None:
    """What a worker does once per heartbeat."""
    live: Any = w.app._worker
    await asyncio.to_thread(live._round)


async def test_when_the_last_worker_of_a_newer_version_stops_an_older_one_restores_its_definition(
    store_url: str,
) -> None:
    """A deploy that is taken back starts workers of the old version before it stops those of the new one."""
    async with version(store_url, beats(), name="old") as w:
        async with version(store_url, beats("*/7 * * * *", id="beat"), at("00:01"), name="new"):
            await heartbeat(w)
            found = await w.app.schedules.describe("beat")
            assert (found.declared_by, found.spec["cron"][0]["cron"]) == ("new", "*/7 * * * *")
        await heartbeat(w)
        found = await w.app.schedules.describe("beat")
        assert (found.declared_by, found.spec["cron"][0]["cron"]) == ("old", "*/5 * * * *")


async def test_a_schedule_that_only_an_older_version_declares_goes_on_when_the_newer_one_is_gone(
    store_url: str,
) -> None:
    async with version(store_url, beats(), name="old") as w:
        async with version(store_url, begin=at("00:01"), name="new"):
            assert (await w.app.schedules.describe("beat")).stopped is not None
        live: Any = w.app._worker
        live._declarations._review_at = 0  # a minute later: it may never have seen a worker of the other version
        await heartbeat(w)
        assert (await w.app.schedules.describe("beat")).stopped is None


async def test_a_schedule_that_an_operator_deleted_does_not_come_back_with_a_heartbeat(store_url: str) -> None:
    async with version(store_url, beats(), name="old") as w:
        await w.app.schedules.delete("beat")
        async with version(store_url, name="new"):
            await heartbeat(w)
        await heartbeat(w)
        assert len(await w.app.schedules.list()) == 0


async def test_a_worker_that_was_killed_elsewhere_does_not_make_when_active_catch_up(store_url: str) -> None:
    """Its row is there until its lease has lapsed, but it has been silent for an hour."""
    declare = beats(mode="exactly_once_per_interval_when_active")
    async with version(store_url, declare) as w:
        await w.advance("6m")
    store = open_store(store_url, StoreSettings())
    store.open()
    store.register(worker("gone", host="elsewhere", seen=to_micros(at("00:06"))))
    store.close()
    async with version(store_url, declare, at("01:01")) as w:
        await w.advance("5m")
    assert [scheduled for scheduled, _ in calls] == ["00:05", "01:05"]


# -- at the same moment --------------------------------------------------------------------------------------------------
class Fleet:
    """Workers of several versions, which declare one schedule each in their own way."""

    def __init__(self, stepped: Stepped) -> None:
        self.stepped = stepped

    def joins(self, name: str) -> Declared:
        """A worker of this version is there."""
        clock: Any = self.stepped
        self.stepped.store.register(worker(name, version=name))
        self.stepped.store.remember_version(name, self.stepped.time)
        self.stepped.time += 1
        return Declared(self.stepped.store, clock, self.stepped.ids, app="app", version=name)

    def leaves(self, name: str) -> None:
        self.stepped.store.retire(name, self.stepped.time, None)


def every(interval: str) -> list[Definition]:
    return [Definition("s", "wf", "{}", Spec(intervals=[interval]))]


def meanwhile(declared: Declared, act: Callable[[], object]) -> None:
    """Let something happen once, between what a worker reads and what it writes."""
    writing: Any = declared._declaring
    declare, update = writing.declare, writing.update

    def first(then: Callable[..., None]) -> Callable[..., None]:
        def wrapped(*args: Any, **more: Any) -> None:
            writing.declare, writing.update = declare, update
            act()
            then(*args, **more)

        return wrapped

    writing.declare, writing.update = first(declare), first(update)


@pytest.mark.parametrize("declares", [True, False])
def test_an_old_worker_that_looked_before_a_newer_one_declared_rewrites_nothing(
    stepped: Stepped, *, declares: bool
) -> None:
    fleet = Fleet(stepped)
    fleet.joins("zero").apply(every("1h"), alone=True)
    fleet.leaves("zero")
    old = fleet.joins("old")
    meanwhile(old, lambda: fleet.joins("new").apply(every("3h"), alone=False))
    old.apply(every("2h") if declares else [], alone=False)
    row = stepped.row()
    assert (row.version, row.stopped, row.spec) == ("new", None, spec_json(Spec(intervals=["3h"])))


def test_what_an_operator_changes_while_a_worker_declares_is_overridden_only_with_a_word_in_the_audit_log(
    stepped: Stepped,
) -> None:
    fleet, clock = Fleet(stepped), stepped
    fleet.joins("old").apply(every("1h"), alone=True)
    new = fleet.joins("new")
    operator = Declaring(stepped.store, clock, stepped.ids)  # type: ignore[arg-type]
    spec = spec_json(Spec(intervals=["5h"]))
    meanwhile(new, lambda: operator.update("s", {"spec": spec, "canonical": spec}))
    new.apply(every("2h"), alone=False)
    assert stepped.row().spec == spec_json(Spec(intervals=["2h"]))
    (entry,) = Audit(stepped.store, clock, stepped.ids).list().entries  # type: ignore[arg-type]
    assert (entry.who, entry.details["overridden"], entry.outcome) == ("version new", ["spec"], True)
    assert entry.details["before"]["spec"]["intervals"] == [{"every": "5h"}]


def test_what_an_operator_changes_while_a_worker_declares_the_same_as_before_stays(stepped: Stepped) -> None:
    fleet, clock = Fleet(stepped), stepped
    fleet.joins("old").apply(every("1h"), alone=True)
    new = fleet.joins("new")
    operator = Declaring(stepped.store, clock, stepped.ids)  # type: ignore[arg-type]
    spec = spec_json(Spec(intervals=["5h"]))
    meanwhile(new, lambda: operator.update("s", {"spec": spec, "canonical": spec}))
    new.apply(every("1h"), alone=False)
    assert (stepped.row().spec, stepped.row().version) == (spec, "new")
    assert Audit(stepped.store, clock, stepped.ids).list().entries == []  # type: ignore[arg-type]
