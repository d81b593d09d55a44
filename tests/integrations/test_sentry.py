"""Failed runs in Sentry, by the hook of docs/how-to/observability.md."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
import sentry_sdk
from sentry_sdk.transport import Transport

from mainspring import App, Retry, RunEvent, Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sentry_sdk.envelope import Envelope


class Sent(Transport):
    """Keeps what would be sent."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[Any] = []

    def capture_envelope(self, envelope: Envelope) -> None:
        event = envelope.get_event()
        if event is not None:
            self.events.append(event)


@pytest.fixture
def sent() -> Iterator[Sent]:
    transport = Sent()
    sentry_sdk.init(dsn="https://key@sentry.invalid/1", transport=transport, default_integrations=False)
    yield transport
    sentry_sdk.get_client().close()
    sentry_sdk.init(default_integrations=False)  # the default ones patch threads and the log, for every test after this


async def test_a_failed_run_is_reported_once_with_its_exception(store_url: str, sent: Sent) -> None:
    app, reported = App(store_url, settings=Settings(poll=0.05)), asyncio.Event()

    async def report(event: RunEvent) -> None:
        try:
            await app.handle(event.run).result()
        except Exception as error:  # noqa: BLE001  (whatever the run failed with)
            with sentry_sdk.new_scope() as scope:
                scope.set_tag("mainspring.workflow", event.workflow)
                scope.set_context("mainspring", {"run": event.run, "attempt": event.attempt, "queue": event.queue})
                sentry_sdk.capture_exception(error)
        reported.set()

    app.on("run.failed", report)

    @app.step(name="charge", retry=Retry(2, first=0.01))
    async def charge() -> None:
        raise PermissionError("the card was declined")

    @app.workflow(name="checkout")
    async def checkout() -> None:
        await charge()

    @app.workflow(name="fine")
    async def fine() -> str:
        return "fine"

    async with app:
        await fine()
        with pytest.raises(PermissionError):
            await checkout.options(id="order-7")()
        await reported.wait()
    (event,) = sent.events
    (value,) = event["exception"]["values"]
    assert (value["type"], value["value"].splitlines()[0]) == ("PermissionError", "the card was declined")
    assert event["tags"] == {"mainspring.workflow": "checkout"}
    assert event["contexts"]["mainspring"] == {"run": "order-7", "attempt": 1, "queue": None}
