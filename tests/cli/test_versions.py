"""`mainspring versions` shows who is stranded and helps; `mainspring replay` tells whether code agrees with recorded runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import Mainspring

from mainspring import App, State, run
from mainspring.operations.versions import PatchInfo
from mainspring.testing import world

SHOP = f"{Path(__file__).with_name('shop.py')}:app"


def test_code_that_is_the_same_agrees(mainspring: Mainspring, history: str, tmp_path: Path) -> None:
    same = mainspring("replay", SHOP, "--run", "order-1", "--run", "bad-1", "--url", history)
    assert same.exit_code == 0, same.stdout
    assert [line.split("\t")[::2] for line in same.stdout.splitlines()] == [
        ["order-1", "agrees (3 operations)"],
        ["order-1/2", "agrees (0 operations)"],
        ["bad-1", "agrees (0 operations)"],
    ]
    file = tmp_path / "export.jsonl"
    file.write_text(mainspring("runs", "export", "order-1", "--url", history).stdout)
    assert mainspring("replay", SHOP, "--file", str(file)).exit_code == 0
    assert mainspring("replay", SHOP).exit_code == 2


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ('"name": "charge"', '"name": "refund"', "at position 0 the record has step 'refund'"),
        ('"output": "receipt 1, parcel 1"', '"output": "something else"', "its result was"),
        ('"workflow": "ship"', '"workflow": "mail"', "there is no workflow 'mail'"),
    ],
)
def test_code_that_has_changed_disagrees(
    mainspring: Mainspring, history: str, tmp_path: Path, *, before: str, after: str, says: str
) -> None:
    lines = mainspring("runs", "export", "order-1", "--url", history).stdout
    assert before in lines
    file = tmp_path / "export.jsonl"
    file.write_text(lines.replace(before, after))
    found = mainspring("replay", SHOP, "--file", str(file), "-o", "json")
    assert found.exit_code == 1
    assert any(says in (each["finding"] or "") for each in json.loads(found.stdout)), found.stdout
    assert says not in found.stderr  # it is told once


def test_versions_are_listed(mainspring: Mainspring, history: str) -> None:
    (found,) = json.loads(mainspring("versions", "list", "-o", "json", "--url", history).stdout)
    assert (found["live"], found["stranded"], found["workers"]) == (0, {}, 0)
    assert mainspring("versions", "list", "--url", history).stdout.startswith("VERSION")
    assert mainspring("versions", "list", "-o", "ids", "--url", history).stdout == f"{found['version']}\n"
    assert "not stranded" in mainspring("versions", "force", "order-3", "--url", history).stderr
    assert mainspring("versions", "force", "nobody", "--url", history).exit_code == 4


async def test_patches_are_counted(store_url: str) -> None:
    app = App("sqlite://")

    @app.workflow
    async def patched_flow() -> None:
        run.patched("weigh first")
        await run.receive("go")

    async with world(app, url=store_url) as w:
        handle = await patched_flow.start()
        await w.drain()
        assert await app.versions.patches() == [PatchInfo("weigh first", patched_flow.name, 1, 0)]
        (found,) = await app.versions.list()
        assert (found.version, found.workers, found.live) == (app.version, 1, 1)
        await app.send(handle.id, "go", 1)
        await handle.result()
        assert (await handle.describe()).state is State.SUCCEEDED
        assert await app.versions.patches() == []
