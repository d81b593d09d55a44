"""Lines of logs are records with fields: which run, which step, which attempt, which trace."""

from __future__ import annotations

import json
import logging
from io import StringIO
from typing import TYPE_CHECKING, Any

import pytest
import structlog
from opentelemetry.sdk.trace import TracerProvider

from mainspring import App, Retry, run
from mainspring.integrations.logs import JSONFormatter, add_run
from mainspring.integrations.opentelemetry import trace
from mainspring.testing import world

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Say = Callable[..., object]


@pytest.fixture
def out() -> Iterator[StringIO]:
    yield StringIO()
    structlog.reset_defaults()


def logger(out: StringIO) -> logging.Logger:
    handler = logging.StreamHandler(out)
    handler.setFormatter(JSONFormatter())
    made = logging.Logger("shop")  # noqa: LOG001  (one of the test's own, which nothing else awaits)
    made.addHandler(handler)
    return made


def standard(out: StringIO) -> Say:
    log = logger(out)

    def say(text: str, **extra: Any) -> None:
        log.info(text, extra=extra)

    return say


def structured(out: StringIO) -> Say:
    renamed = structlog.processors.EventRenamer("message")
    structlog.configure(
        processors=[add_run, renamed, structlog.processors.JSONRenderer()],
        logger_factory=structlog.PrintLoggerFactory(out),
        cache_logger_on_first_use=False,
    )

    def say(text: str, **extra: Any) -> None:
        structlog.get_logger().info(text, **extra)

    return say


@pytest.mark.parametrize("library", [standard, structured])
async def test_every_line_has_the_run_the_step_and_the_attempt(
    store_url: str, out: StringIO, library: Callable[[StringIO], Say]
) -> None:
    say, app = library(out), App()
    trace(app, TracerProvider())

    @app.step(name="charge", retry=Retry(2, first=1))
    async def charge() -> None:
        say("charging", order="o-7")
        if run.attempt == 1:
            raise OSError("no line")

    @app.workflow(name="checkout")
    async def checkout() -> None:
        say("begins")
        await charge()

    async with world(app, url=store_url) as w:
        handle = await checkout.options(id="a").start()
        await w.advance("1m")
        await handle.result()
    say("outside")
    begins, first, second, outside = (json.loads(line) for line in out.getvalue().splitlines())
    assert [begins.get(name) for name in ("message", "run", "workflow", "step")] == ["begins", "a", "checkout", None]
    step = {"message": "charging", "order": "o-7", "run": "a", "workflow": "checkout", "step": "charge"}
    assert first.items() >= (step | {"attempt": 1}).items()
    assert second.items() >= (step | {"attempt": 2}).items()
    assert len(first["trace_id"]) == 32
    assert (first["trace_id"], first["span_id"]) == (second["trace_id"], second["span_id"])
    assert not {"run", "step", "attempt", "trace_id"} & set(outside)


def test_exceptions_and_odd_values_are_part_of_the_line(out: StringIO) -> None:
    log = logger(out)
    try:
        int("no number")
    except ValueError:
        log.exception("failed for %s", "o-7", extra={"where": object})
    (line,) = (json.loads(each) for each in out.getvalue().splitlines())
    assert (line["message"], line["level"], line["where"]) == ("failed for o-7", "error", "<class 'object'>")
    assert line["exception"].endswith("invalid literal for int() with base 10: 'no number'")
