"""What goes wrong with schedules is posted, and workflows check in."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING

import pytest

from mainspring import App, Policy, Settings, Spec
from mainspring.errors import InvalidInput
from mainspring.integrations.alerts import check_in, webhook
from mainspring.testing import world

if TYPE_CHECKING:
    from collections.abc import Iterator


class Listener:
    """Somebody on the web who remembers what was sent."""

    def __init__(self) -> None:
        arrived: list[tuple[str, object]] = []
        self.arrived = arrived

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._notify(None)

            def do_POST(self) -> None:
                self._notify(json.loads(self.rfile.read(int(self.headers["content-length"]))))

            def _notify(self, body: object) -> None:
                arrived.append((self.path, body))
                self.send_response(200)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def listener() -> Iterator[Listener]:
    made = Listener()
    yield made
    made.server.shutdown()
    made.server.server_close()


async def test_a_schedule_that_failures_paused_is_posted_once(store_url: str, listener: Listener) -> None:
    app = App(store_url, settings=Settings(poll=0.05))
    webhook(app, listener.url, headers={"x-from": "shop"})

    @app.workflow
    async def doomed() -> None:
        raise ValueError("no")

    app.schedule("s", doomed.bind(), Spec(intervals=["1h"]), Policy(pause_on_failure=True))
    async with world(app, at="2026-01-01T00:00Z", url=store_url) as w:
        await w.advance("3h")
    (sent,) = listener.arrived
    assert sent[0] == "/hook"
    assert isinstance(sent[1], dict)
    assert (sent[1]["event"], sent[1]["schedule"]) == ("paused_by_failure", "s")


async def test_a_workflow_checks_in_when_it_begins_and_ends(store_url: str, listener: Listener) -> None:
    app = App(store_url, settings=Settings(poll=0.05))

    @app.workflow
    @check_in(listener.url)
    async def nightly(fails: bool = False) -> str:
        if fails:
            raise ValueError("no")
        return "done"

    async with app:
        assert await nightly() == "done"
        with pytest.raises(ValueError, match="no"):
            await nightly(fails=True)
    assert [path for path, _ in listener.arrived] == ["/hook/start", "/hook", "/hook/start", "/hook/fail"]


async def test_a_check_in_that_does_not_get_through_holds_nothing_up(store_url: str) -> None:
    app = App(store_url)

    @app.workflow
    @check_in("http://127.0.0.1:9/none")
    async def nightly() -> str:
        return "done"

    async with app:
        assert await nightly() == "done"


def test_what_is_no_address_is_refused() -> None:
    with pytest.raises(InvalidInput, match="https"):
        webhook(App("sqlite:///x.db"), "file:///etc/passwd")
    with pytest.raises(InvalidInput, match="https"):
        check_in("hc-ping.com/x")
