"""Times and durations that no datetime can show are refused where they are given, and one that is stored all the same hides nothing."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from mainspring import App, Client, Debounce, Policy, Rate, Retry, Settings, run
from mainspring.errors import InvalidInput, NotSerializable
from mainspring.store.open import sqlite_path

if TYPE_CHECKING:
    from collections.abc import Callable

app = App()
THOUSAND_YEARS = 365_000 * 86_400
FAR = [timedelta.max, timedelta(days=365 * 9_000), THOUSAND_YEARS + 1, 10**400, "60000w"]


@app.workflow
async def works() -> None: ...


TAKE_A_DURATION: dict[str, Callable[[Any], Any]] = {
    "timeout": lambda far: works.options(timeout=far),
    "after": lambda far: works.options(after=far),
    "debounce": lambda far: Debounce("key", far),
    "max_wait": lambda far: Debounce("key", 1, max_wait=far),
    "step": lambda far: App().step(timeout=far)(lambda: None),
    "first": lambda far: Retry(2, first=far),
    "cap": lambda far: Retry(2, cap=far),
    "catchup": lambda far: Policy(catchup=far),
    "rate": lambda far: Rate(1, per=far),
    "settings": lambda far: Settings(lease=far),
    "run.timeout": run.timeout,
    "fork": lambda far: app.runs.fork("x", timeout=far),
    "aggregate": lambda far: app.runs.aggregate(bucket=far),
}


@pytest.mark.parametrize("verb", TAKE_A_DURATION)
@pytest.mark.parametrize("far", FAR, ids=["max", "years", "seconds", "digits", "weeks"])
def test_a_duration_of_more_than_a_thousand_years_is_refused_at_the_call(verb: str, far: Any) -> None:
    with pytest.raises(InvalidInput, match="longer than 365,000 days"):
        TAKE_A_DURATION[verb](far)


@pytest.mark.parametrize(
    "when",
    [
        datetime.max.replace(tzinfo=timezone(timedelta(hours=-1))),
        datetime.min.replace(tzinfo=timezone(timedelta(hours=1))),
        10**400,
        -(10**400),
    ],
)
def test_a_time_outside_of_the_years_of_a_datetime_is_refused_at_the_call(when: Any) -> None:
    with pytest.raises(InvalidInput, match="years 1 to 9999"):
        works.options(at=when)


async def test_one_run_with_an_impossible_time_does_not_hide_the_others(store_url: str) -> None:
    async with Client(store_url) as client:
        for name in ("far", "near"):
            await client.options(id=name, after="1h").start("works")
        if store_url.startswith("sqlite"):
            with closing(sqlite3.connect(sqlite_path(store_url), isolation_level=None)) as database:
                database.execute("UPDATE mainspring_runs SET due = ? WHERE id = 'far'", (2**61,))
        else:
            with psycopg.connect(store_url, autocommit=True) as postgres:
                postgres.execute("UPDATE mainspring.runs SET due = %s WHERE id = 'far'", (2**61,))
        assert {info.id for info in await client.runs.list()} == {"far", "near"}
        assert (await client.handle("far").describe()).due == datetime.max.replace(tzinfo=UTC)


def test_values_that_contain_themselves_or_are_nested_too_deeply_are_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    deep: list[Any] = []
    for _ in range(10_000):
        deep = [deep]
    client = Client("sqlite:///unused.db")
    for value in (loop, deep):
        with pytest.raises(NotSerializable):
            works.options(attributes={"a": value})
        with pytest.raises(NotSerializable):
            client.start("works", value).close()
