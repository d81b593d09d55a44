"""Where people look: without the codec every page and command says "encrypted", with it they show the values."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from click.testing import CliRunner

from mainspring import App, Client, Retry, Spec, run
from mainspring.cli.main import main
from mainspring.errors import PayloadError
from mainspring.payloads import Encryption
from mainspring.recurrence import Interval
from mainspring.web import dashboard

if TYPE_CHECKING:
    from pathlib import Path

CANARY = "cAnArY"
KEY = Encryption.new_key()
PATHS = (
    *("/", "/runs", "/runs/one", "/runs/bad", "/runs/waits", "/runs/later"),
    *("/schedules", "/schedules/daily", "/errors", "/workflows", "/queues", "/workers"),
)


async def fill(url: str) -> None:
    """A database with encrypted values on every page."""
    app = App(url, payloads=Encryption(KEY))

    @app.step(retry=Retry(2, first=0))
    async def flaky(word: str) -> str:
        if run.attempt == 1:
            raise ValueError(word)
        return word

    @app.workflow
    async def echo(word: str) -> str:
        await run.set_event("event", word)
        await run.write_stream("stream", word)
        return await flaky(word)

    @app.workflow
    async def bad(word: str) -> None:
        raise ValueError(f"no {word}")

    @app.workflow
    async def waits(word: str) -> Any:
        return [word, await run.receive("go")]

    async with app:
        await echo.options(id="one")(CANARY)
        with pytest.raises(ValueError, match=CANARY):
            await bad.options(id="bad")(CANARY)
        await waits.options(id="waits").start(CANARY)
        await app.run_after("1h", echo.options(id="later").bind(CANARY))
        await app.schedules.create("daily", echo.bind(CANARY), Spec(intervals=[Interval("1d")]))


async def pages(client: Client) -> dict[str, str]:
    """What every page shows, as HTML and as JSON."""
    asgi: Any = dashboard(client)
    transport = httpx.ASGITransport(asgi, client=("127.0.0.1", 1))
    found: dict[str, str] = {}
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as browser:
        for path in PATHS:
            for address, accepts in ((path, "text/html"), (f"/api{path}", "application/json")):
                answer = await browser.get(address, follow_redirects=True, headers={"accept": accepts})
                assert answer.status_code < 500, answer.text
                found[address] = answer.text
    return found


async def test_pages_and_commands_show_values_to_those_with_the_codec(
    store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(store_url)
    with Client(store_url) as outsider:
        shown = await pages(outsider)
    assert [path for path, text in shown.items() if CANARY in text or "$payload" in text] == []
    assert "encrypted" in shown["/runs/one"]
    with Client(store_url, payloads=Encryption(KEY)) as trusted:
        shown = await pages(trusted)
    assert {"/runs/one", "/runs/bad", "/schedules/daily", "/api/runs/one"} <= {
        path for path, text in shown.items() if CANARY in text
    }

    (tmp_path / "vault.py").write_text(f"from mainspring.payloads import Encryption\ncodec = Encryption({KEY!r})\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    for variable, wanted in ((None, False), ("vault:codec", True)):
        for command in (["runs", "show", "one"], ["schedules", "show", "daily"], ["runs", "show", "bad"]):
            env = {"MAINSPRING_PAYLOADS": variable, "MAINSPRING_URL": store_url}
            found = CliRunner().invoke(main, command, env=env)
            assert found.exit_code == 0, found.output
            assert (CANARY in found.output) is wanted
    sys.modules.pop("vault", None)


async def test_an_entry_of_a_crontab_is_triggered_by_those_with_the_codec(store_url: str) -> None:
    app = App(store_url, payloads=Encryption(KEY))

    @app.workflow
    async def report(payload: dict[str, Any]) -> str:
        return str(payload["word"])

    app.crontab(text=f'0 0 1 1 * report {{word: "{CANARY}"}}')
    async with app:
        with Client(store_url) as outsider:
            with pytest.raises(PayloadError, match="the payload of the crontab entry 'report' is encrypted"):
                await outsider.schedules.trigger("report")
            asked = CliRunner().invoke(main, ["schedules", "trigger", "report", "--url", store_url])
            assert (asked.exit_code, "is encrypted" in asked.stderr) == (1, True)
        with Client(store_url, payloads=Encryption(KEY)) as trusted:
            handle = await trusted.schedules.trigger("report")
            assert handle is not None
            assert await handle.result() == CANARY
