"""Many who wait for runs ask the database once whether those have ended."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from mainspring import App
from mainspring.app.waits import EndingLookups
from mainspring.errors import NotFound, StoreUnavailable
from mainspring.model.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mainspring.model.runs import Ending


async def test_a_hundred_results_are_one_question(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    app = App(store_url)

    @app.workflow
    async def double(number: int) -> int:
        return 2 * number

    async with app:
        handles = await app.start_many(double.bind(number) for number in range(100))
        expected = [2 * number for number in range(100)]
        assert await asyncio.gather(*(handle.result() for handle in handles)) == expected

        store = app._runtime.connection().store
        ask = store.endings
        questions: list[list[str]] = []

        def counted(ids: Iterable[str]) -> Any:
            questions.append(sorted(ids))
            return ask(questions[-1])

        monkeypatch.setattr(store, "endings", counted)
        assert await asyncio.gather(*(handle.result() for handle in handles)) == expected
        assert questions == [sorted(handle.id for handle in handles)]
        with pytest.raises(NotFound):
            await app.handle("never started").result()


async def test_who_no_longer_waits_takes_nothing_from_the_others() -> None:
    asked: asyncio.Event = asyncio.Event()
    answer: asyncio.Event = asyncio.Event()

    async def ask(ids: set[str]) -> dict[str, Ending | None]:
        asked.set()
        await answer.wait()
        return dict.fromkeys(ids)

    lookups = EndingLookups(ask, SystemClock())
    impatient, patient = asyncio.create_task(lookups.at("a")), asyncio.create_task(lookups.at("b"))
    await asked.wait()
    impatient.cancel()
    answer.set()
    assert await patient == {"a": None, "b": None}
    assert (await asyncio.gather(impatient, return_exceptions=True))[0].__class__ is asyncio.CancelledError


async def test_a_database_out_of_reach_is_told_to_everybody_who_asked() -> None:
    async def ask(_ids: set[str]) -> dict[str, Ending | None]:
        raise StoreUnavailable("away")

    lookups = EndingLookups(ask, SystemClock())
    answers = await asyncio.gather(*(lookups.at(name) for name in "abc"), return_exceptions=True)
    assert [str(each) for each in answers] == ["away"] * 3
