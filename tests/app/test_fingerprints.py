"""The same program has the same fingerprints in every process, also where its source cannot be read."""

from __future__ import annotations

import json
import os
import py_compile
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from mainspring import App
from tests.support.processes import PROJECT, Fleet

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.processes

PROGRAM = """
import json
from mainspring import App, run

app = App("sqlite://")

@app.step
async def double(number: int) -> int:
    return 2 * number

@app.workflow
async def many(word: str) -> int:
    chosen = word in {"one", "two", "three", "four", "five", "six", "seven"}
    found = [await double(n) for n in range(3)]
    longest = max(found, key=lambda each: (each, -0.0, 1, True, b"x", ..., frozenset({"p", "q", "r"})))

    class Local:
        def method(self) -> int:
            try:
                return sum(each for each in found)
            except ValueError:
                return 0

    return longest + Local().method() + chosen

@app.workflow
async def patched(word: str) -> str:
    return word.upper() if run.patched("loud") else word

def report() -> None:
    print(json.dumps([app.version, {each.name: each.fingerprint for each in app._runtime.registry}]))
"""
MAIN = f"{PROGRAM}\nreport()\n"


def _said(*arguments: str, seed: int, stdin: str | None = None) -> tuple[str, dict[str, str]]:
    environment = os.environ | {"PYTHONHASHSEED": str(seed)}
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        env=environment,
        cwd=PROJECT,
        input=stdin,
        check=True,
    )
    version, prints = json.loads(done.stdout.splitlines()[-1])
    return version, prints


def test_a_program_of_which_there_is_only_compiled_code_has_one_fingerprint(tmp_path: Path) -> None:
    source, compiled = tmp_path / "program.py", tmp_path / "program.pyc"
    source.write_text(MAIN)
    py_compile.compile(str(source), cfile=str(compiled), doraise=True)
    source.unlink()
    first, *others = (_said(str(compiled), seed=seed) for seed in (1, 2, 3))
    assert others == [first, first]
    assert first[1]["patched"].startswith("patched-"), "a workflow with patches continues runs of the code before it"


@pytest.mark.parametrize("how", ["-c", "-", "exec"])
def test_a_program_that_was_never_in_a_file_has_one_fingerprint(how: str) -> None:
    def said(seed: int) -> tuple[str, dict[str, str]]:
        if how == "-":
            return _said("-", seed=seed, stdin=MAIN)
        return _said("-c", MAIN if how == "-c" else f"exec({MAIN!r})", seed=seed)

    assert said(1) == said(2)


def test_compiled_code_that_differs_has_another_fingerprint() -> None:
    def fingerprint(body: str) -> str:
        there = App("sqlite://")
        exec(f"@app.workflow\nasync def order(n: int) -> object:\n    {body}\n", {"app": there})
        (function,) = there._runtime.registry
        return function.fingerprint

    bodies = (
        "return n + 1",
        "return n + 2",
        "return n - 1",
        "return [x for x in (n, 1)]",
        "return [x for x in (n, True)]",
        "return [x + 1 for x in (n, True)]",
        "return n in {1, 2}",
        "return n in {1, 3}",
        "return n.real",
        "return n.imag",
        "try:\n        return n\n    except ValueError:\n        return 0",
        "try:\n        return n\n    except TypeError:\n        return 0",
        "return lambda x, /: x",
        "return lambda *, x: x",
    )
    assert len({fingerprint(body) for body in bodies}) == len(bodies)
    assert fingerprint(bodies[0]) == fingerprint(bodies[0])


def test_a_program_without_source_goes_on_with_its_runs_after_it_was_killed(tmp_path: Path, store_url: str) -> None:
    work = """
import asyncio, os, pathlib
from mainspring import App

app, gate = App(), pathlib.Path(os.environ["FLEET_GATES"], "open")

@app.step
async def number(n: int) -> int:
    print(f"step {n}", flush=True)
    while n == 2 and not gate.exists():
        await asyncio.sleep(0.01)
    return n

@app.workflow
async def total() -> int:
    found = [await number(n) for n in range(4)]
    return sum(each for each in found if each in {1, 2, 3, 10, 20, 30})

async def main() -> None:
    async with app:
        print("result", await total.options(id="the-run")(), flush=True)

asyncio.run(main())
"""
    source, compiled = tmp_path / "work.py", tmp_path / "work.pyc"
    source.write_text(work)
    py_compile.compile(str(source), cfile=str(compiled), doraise=True)
    source.unlink()
    with Fleet(tmp_path, store_url, lease=1) as fleet:
        first = fleet.process(str(compiled))
        first.says("step 2")
        first.kill()
        (tmp_path / "open").touch()
        second = fleet.process(str(compiled))
        second.says("result 6")
        assert "step 1" not in second.output
