"""Whatever is given to a verb that it cannot take: an error at the call that says what, the same on both databases, and no trace."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from mainspring import App, Client, Declaration, Policy, Spec
from mainspring.errors import InvalidInput, MainspringError, NotFound, UnknownFunction
from tests.schedules.conftest import BEGIN, Bench

if TYPE_CHECKING:
    from collections.abc import Callable

HOUR = Spec(intervals=["1h"])
OVER = Spec(intervals=["1h"], end=datetime(2022, 5, 1, tzinfo=UTC))


def elsewhere() -> Any:
    app = App("sqlite://")

    @app.workflow
    async def foreign() -> None: ...

    return foreign.bind()


def creations(bench: Bench) -> dict[str, dict[str, Any]]:
    act = bench.act
    return {
        "half of a character": {"schedule": "\ud800"},
        "attributes that are no JSON": {"attributes": {"a": object()}},
        "attributes in a list": {"attributes": [1]},
        "a number for a name": {"attributes": {1: 2}},
        "no number": {"attributes": {"a": math.nan}},
        "NUL in attributes": {"attributes": {"a": "\0"}},
        "one stretch, not a list of them": {"backfill": (BEGIN, BEGIN)},
        "words for times": {"backfill": [("a", "b")]},
        "a time without zone": {"backfill": [(datetime(2022, 5, 1), BEGIN)]},  # noqa: DTZ001
        "an end before the start": {"backfill": [(BEGIN, BEGIN - timedelta(1))]},
        "a number for a note": {"note": 5},
        "NUL in a note": {"note": "a\0"},
        "a function of another app": {"call": elsewhere()},
        "an attribute of the schedule's own": {"call": act.options(attributes={"schedule_id": "x"}).bind()},
        "a long id for its runs": {"call": act.options(id="x" * 450).bind()},
        "a spec that is over": {"spec": OVER},
    }


async def test_what_cannot_be_created_is_refused_and_leaves_nothing(bench: Bench) -> None:
    for name, given in creations(bench).items():
        asked: dict[str, Any] = {"schedule": "s", "call": bench.act.bind(), "spec": HOUR, **given}
        with pytest.raises(MainspringError) as refused:
            await bench.app.schedules.create(**asked)
        assert isinstance(refused.value, (InvalidInput, UnknownFunction)), name
        assert len(str(refused.value)) > 20, name
    assert (await bench.app.schedules.list()).schedules == []


async def test_what_cannot_be_asked_of_a_schedule_changes_nothing(bench: Bench) -> None:
    verbs: Any = bench.app.schedules
    await bench.create(HOUR, Policy(limit=3))
    before = await bench.describe()
    asked: list[Callable[[], Any]] = [
        lambda: verbs.update("s", remaining=-1),
        lambda: verbs.update("s", remaining="3"),
        lambda: verbs.update("s", remaining=2**70),
        lambda: verbs.update("s", attributes={"a": math.inf}),
        lambda: verbs.update("s", note=7),
        lambda: verbs.update("s", call=elsewhere()),
        lambda: verbs.update("s", spec=OVER),
        lambda: verbs.pause("s", note="\0"),
        lambda: verbs.backfill("s", "yesterday", BEGIN),
        lambda: verbs.backfill("s", BEGIN, None),
        lambda: verbs.ticks("s", limit=0),
        lambda: verbs.ticks("s", outcome=["fired", "bogus"]),
        lambda: verbs.list(attributes=[1]),
        lambda: verbs.list(attributes={"a": object()}),
        lambda: verbs.list(limit=0),
        lambda: verbs.apply([5]),
        lambda: verbs.apply([Declaration("new", bench.act.bind(), HOUR)], group=" "),
        lambda: verbs.apply([Declaration("new", bench.act.bind(), HOUR), Declaration("s", bench.act.bind(), OVER)]),
        lambda: verbs.apply([Declaration("new", elsewhere(), HOUR)]),
        lambda: verbs.describe(5),
        lambda: verbs.pause(5),
        lambda: verbs.trigger(None),
    ]
    for number, ask in enumerate(asked):
        with pytest.raises(MainspringError) as refused:
            await ask()
        assert isinstance(refused.value, (InvalidInput, UnknownFunction)), number
    for nobody in ("nope", "\0", "\ud800"):
        for ask in (verbs.describe, verbs.pause, verbs.trigger, verbs.skip, verbs.ticks, verbs.delete):
            with pytest.raises(NotFound):
                await ask(nobody)
    assert await bench.describe() == before
    assert [each.id for each in (await verbs.list()).schedules] == ["s"]


async def test_a_paused_schedule_may_be_given_times_that_are_over(bench: Bench) -> None:
    await bench.create(HOUR)
    await bench.app.schedules.pause("s")
    assert (await bench.app.schedules.update("s", spec=OVER)).next is None


@pytest.mark.parametrize(
    "given",
    [
        {"limit": -1},
        {"limit": 2**40},
        {"max_running": 0},
        {"pause_on_failure": "x"},
        {"pause_on_failure": 1.5},
        {"coalesce": "yes"},
        {"catchup": math.nan},
        {"catchup": -1},
        {"overlap": "bogus"},
    ],
)
def test_a_policy_that_is_none_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        Policy(**given)


async def test_times_are_datetimes_or_seconds_and_one_outcome_is_a_word(bench: Bench) -> None:
    await bench.create(HOUR)
    await bench.world.advance("1h")
    end = BEGIN.timestamp()
    made = await bench.app.schedules.backfill("s", end - 7_200, end)
    assert (made.start, made.end) == (BEGIN - timedelta(hours=2), BEGIN)
    await bench.world.drain()
    fired = (await bench.app.schedules.ticks("s", outcome="fired")).ticks
    assert [tick.nominal for tick in fired] == [BEGIN + timedelta(hours=hours) for hours in (1, 0, -1, -2)]


async def test_a_client_takes_calls_of_functions_that_it_does_not_know(bench: Bench) -> None:
    async with Client(bench.url) as client:
        await client.schedules.create("by name", client.bind("act"), HOUR)
        await client.schedules.create("by function", bench.act.bind(), HOUR)
        assert len((await client.schedules.list()).schedules) == 2
