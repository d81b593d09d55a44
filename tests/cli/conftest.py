"""The command in this process, on a database with runs in every state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import pytest
from click.testing import CliRunner

from mainspring import App, Settings
from mainspring.cli.main import main
from tests.cli import shop

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from click.testing import Result


class Mainspring(Protocol):
    def __call__(self, *arguments: str, stdin: str | None = None, env: dict[str, str] | None = None) -> Result: ...


@pytest.fixture
def mainspring() -> Mainspring:
    """Run a command; stdout, stderr and exit code are in what it returns."""

    def invoke(*arguments: str, stdin: str | None = None, env: dict[str, str] | None = None) -> Result:
        environment: dict[str, str | None] = {"MAINSPRING_URL": None, **(env or {})}
        result = CliRunner().invoke(main, arguments, input=stdin, env=environment)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return invoke


@pytest.fixture
def client(store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[App]:
    """The shop, connected to the database and not entered: it starts runs and executes none."""
    yield from connected(store_url, tmp_path, monkeypatch)


def connected(url: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[App]:
    monkeypatch.setattr(shop, "folder", folder)
    monkeypatch.setattr(shop.app._runtime, "url", url)
    monkeypatch.setattr(shop.app._runtime, "settings", Settings(poll=0.2, grace=0.1))
    yield shop.app
    shop.app.close()


@pytest.fixture
async def history(client: App, store_url: str) -> str:
    """The URL of a database with one run that succeeded, one that failed, one that is due tomorrow and one that is ready."""
    (shop.folder / "packed").touch()
    async with client:
        await shop.checkout.options(id="order-1", attributes={"tenant": "acme"})(1)
        with pytest.raises(ValueError, match="unicorn"):
            await shop.doomed.options(id="bad-1")("unicorn")
    await shop.checkout.options(id="order-2", after="1d").start(2)
    await shop.checkout.options(id="order-3").start(3)
    return store_url


def marks(run_id: str) -> list[str]:
    """The steps of a run that were begun, in their order."""
    path = shop.folder / "marks"
    lines = path.read_text().splitlines() if path.exists() else []
    return [line.partition(" ")[2] for line in lines if line.startswith(f"{run_id} ")]
