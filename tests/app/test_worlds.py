"""What a test's own world notices by itself."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from mainspring import App, Settings, run
from mainspring.errors import Endless, InvalidInput
from mainspring.testing import clock, crash, world

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

app = App("sqlite://", settings=Settings(retention="1d"))


@app.workflow
async def approval() -> str:
    verdict: str = await run.receive("verdict")
    return verdict


@app.workflow
async def waits_for_another() -> str:
    return await approval.options(id="inner")()


@app.workflow
async def numbered(number: int) -> int:
    return number


@pytest.mark.parametrize(
    ("call", "words"), [(approval, "for receive 'verdict'"), (waits_for_another, "for call 'approval'")]
)
async def test_a_wait_that_nothing_can_end_is_an_error_that_says_what_is_waited_for(
    call: Callable[[], Coroutine[object, object, str]], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clock, "_STANDSTILL", 0.1)
    async with world(app):
        with pytest.raises(Endless, match=words):
            await call()


async def test_a_wait_that_the_test_ends_is_none_of_those() -> None:
    async with world(app) as w:
        handle = await approval.start()
        await w.drain()
        await app.send(handle.id, "verdict", "yes")
        assert await handle.result() == "yes"


async def test_time_goes_to_a_moment_with_a_zone_and_never_back() -> None:
    async with world(app, at="2026-01-01T00:00Z") as w:
        await w.advance_to("2026-01-02T09:00+01:00")
        await w.advance_to(datetime(2026, 1, 2, 9, tzinfo=UTC))
        assert w.now == datetime(2026, 1, 2, 9, tzinfo=UTC)
        wrong: Any
        for wrong, words in (
            ("2026-01-03T00:00", "has no zone"),
            (datetime(2026, 1, 3), "has no zone"),  # noqa: DTZ001
            ("soon", "a time is a datetime or a text"),
            (86_400, "a time is a datetime or a text"),
            ("2026-01-02T08:00Z", "time does not go back"),
        ):
            with pytest.raises(InvalidInput, match=words):
                await w.advance_to(wrong)


async def test_when_time_has_passed_all_that_was_kept_long_enough_is_forgotten(store_url: str) -> None:
    async with world(app, url=store_url) as w:
        await app.gather(*await app.start_many(numbered.bind(number) for number in range(350)))
        await w.advance("25h")
        assert len(await app.runs.list()) == 0


async def test_a_process_that_dies_on_purpose_does_not_complain_of_it(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    at = 1
    while (await crash(app, lambda: numbered.options(id="one")(7), at=at)).crashed:
        at += 1
    assert at > 3
    assert [record.getMessage() for record in caplog.records if record.name.startswith("mainspring")] == []
