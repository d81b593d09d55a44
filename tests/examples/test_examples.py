"""Each example runs, and the demo keeps its word when it is killed."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mainspring import Client
from tests.support.processes import PROJECT, eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.processes

EXAMPLES = PROJECT / "examples"


def _run(name: str, folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_quickstart_charges_once_however_often_it_is_run(tmp_path: Path) -> None:
    first = _run("quickstart.py", tmp_path).splitlines()
    assert first == ["charging order-7, attempt 1", "charging order-7, attempt 2", "receipt for order-7, sent"]
    assert _run("quickstart.py", tmp_path).splitlines() == ["receipt for order-7, sent"]


def test_the_example_in_blocking_code_runs(tmp_path: Path) -> None:
    one, two = _run("def_workflow.py", tmp_path).splitlines()
    assert re.fullmatch(r"\d+ lines of examples", one)
    assert re.fullmatch(r"run \w+: \d+ lines again", two)


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    with (tmp_path / "said").open("wb") as said:
        process = subprocess.Popen(
            [sys.executable, str(EXAMPLES / "demo.py"), "--pace", "0.1"], cwd=tmp_path, stdout=said, stderr=said
        )
        yield process
        process.kill()
        process.wait(30)


def _wait_for(demo: subprocess.Popen[bytes], folder: Path, words: str) -> str:
    said = folder / "said"
    eventually(lambda: words in said.read_text() or demo.poll() is not None, f"the demo says {words!r}")
    assert words in said.read_text()
    return said.read_text()


@pytest.mark.parametrize("how", ["killed", "interrupted"])
def test_a_demo_that_was_stopped_says_what_it_does_not_repeat(
    demo: subprocess.Popen[bytes], tmp_path: Path, how: str
) -> None:
    _wait_for(demo, tmp_path, "order-2   step 1 of 6, charge … done")
    if how == "killed":
        demo.kill()
    else:
        demo.send_signal(2)
    demo.wait(30)

    said = _run("demo.py", tmp_path, "--pace", "0.1", "--orders", "1")
    resumed = dict(re.findall(r"(order-\d+) +resumed: (.*) (?:was|were) done before, not repeated", said))
    assert resumed
    ledger = Counter((tmp_path / "demo-ledger.txt").read_text().splitlines())
    for order, steps in resumed.items():
        for step in re.split(r", | and ", steps):
            assert ledger[f"{order} {step}"] == 1
            assert not re.search(rf"{order} +step \d of 6, {step} … done", said)
        assert re.search(rf"{order} +finished", said)


def test_the_demo_shows_what_becomes_of_ticks_and_why(demo: subprocess.Popen[bytes], tmp_path: Path) -> None:
    _wait_for(demo, tmp_path, ": skipped_overlap, run stock-count-")
    said = _wait_for(demo, tmp_path, ": buffered, waits for run newsletter-")
    assert re.search(r"^tick +stock-count \d\d:\d\d:\d\d: fired$", said, re.MULTILINE)


def _any(client: Client, workflow: str) -> bool:
    return bool(client.runs.list.sync(workflow=workflow).runs)


def test_the_shop_that_is_looked_at_is_at_work_within_seconds(tmp_path: Path) -> None:
    """`make demo` shows it: orders through a workflow, a queue, schedules of which one skips and one fails."""
    command = [sys.executable, "-m", "mainspring", "worker", str(EXAMPLES / "shop.py")]
    with (tmp_path / "said").open("wb") as said:
        worker = subprocess.Popen(command, cwd=tmp_path, stdout=said, stderr=said)
    try:
        eventually((tmp_path / "shop.db").exists, "there is a database")
        with Client(f"sqlite:///{tmp_path / 'shop.db'}") as client:
            for name in ("fulfil", "send_mail", "count_stock", "ship"):
                eventually(partial(_any, client, name), f"{name} is at work")
    finally:
        worker.terminate()
        worker.wait(30)
    assert "Traceback" not in (tmp_path / "said").read_text()


def test_every_example_is_run_by_a_test() -> None:
    others = ("tests/examples/test_agent.py", "tests/integrations/test_fastapi.py", "tests/web/test_oidc.py")
    text = Path(__file__).read_text() + "".join((PROJECT / other).read_text() for other in others)
    text = text.replace('"fastapi_shop:site"', '"fastapi_shop.py"')
    assert [path.name for path in EXAMPLES.glob("*.py") if f'"{path.name}"' not in text] == []
