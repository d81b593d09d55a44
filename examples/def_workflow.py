"""Blocking code, no event loop in sight: `def` workflows and steps, called, started and awaited from plain functions."""

from __future__ import annotations

import time
from pathlib import Path

from mainspring import App, run

app = App("sqlite:///def_workflow.db")


@app.step
def count_lines(path: str) -> int:
    time.sleep(0.1)
    return len(Path(path).read_text("utf-8").splitlines())


@app.workflow
def survey(folder: str) -> int:
    names = run.step.sync("list", lambda: sorted(str(path) for path in Path(folder).glob("*.py")))
    total = sum(count_lines(name) for name in names)
    run.sleep.sync(0.1)
    return total


def main() -> None:
    with app:
        total = survey(str(Path(__file__).parent))
        print(f"{total} lines of examples")
        handle = survey.start.sync(str(Path(__file__).parent))
        print(f"run {handle.id}: {handle.result.sync(timeout=30)} lines again")


if __name__ == "__main__":
    main()
