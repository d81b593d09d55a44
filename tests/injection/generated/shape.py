"""A program as a shape."""

from __future__ import annotations

import random
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from tests.injection.generated.interpreter import TOPIC, Functions
from tests.injection.generated.judge import Results, judge, made_again, optional_labels
from tests.injection.generated.program import program
from tests.injection.scene import Shape

if TYPE_CHECKING:
    from tests.injection.generated.program import Program
    from tests.injection.scene import Caller, Drive, Scene

_MAIN = "r"
_PAUSES = (0.0, 0.05, 0.2, 0.5)


class _Tries(dict[str, int]):
    """How often effects are begun that a retry of the run has forgotten: as often as there are attempts."""

    def get(self, _label: str, _default: Any = None) -> Any:
        return 12


@cache
def generated(name: str) -> Shape:
    """The shape of a name."""
    made = program(name)
    steps = [
        (generation, node) for generation in range(len(made.generations)) for node in made.walk() if node.kind == "step"
    ]
    labels = [(f"{generation}.{node.number}", node) for generation, node in steps]
    return Shape(
        name,
        partial(_build, made),
        {_MAIN: str(made)},
        (_MAIN,),
        once=frozenset(label for label, node in labels if node.given["how"] == "once") - made_again(made),
        tries=_Tries() if made.retried else {label: 1 + node.given.get("fails", 0) for label, node in labels},
        optional=frozenset(optional_labels(made)),
        check=partial(_check, Results(made)),
        judge=partial(judge, made),
    )


def _has_transactions(made: Program) -> bool:
    return any(node.kind in {"transaction", "flaky"} for node in made.walk())


def _check(results: Results, found: dict[str, Any]) -> bool:
    return results.may_end_with(found[_MAIN])


def _build(made: Program, scene: Scene) -> Drive:
    functions = Functions(scene, made)
    wanted = sum(node.kind == "receive" for node in made.walk())
    pauses = random.Random(made.name).choices(_PAUSES, k=wanted)

    async def drive(caller: Caller) -> None:
        if _has_transactions(made):
            await caller.do("make table", functions.prepare.aio)
            await caller.do("make table elsewhere", functions.prepare_elsewhere.aio)
        await caller.start(functions.work, _MAIN)
        for number, pause in enumerate(pauses):
            await caller.pause(pause)
            await caller.send(_MAIN, TOPIC, number)
        await caller.results_of(_MAIN)
        if _has_transactions(made):
            await caller.start(functions.rows, "rows")
            await caller.start(functions.rows_elsewhere, "rows elsewhere")
            await caller.results_of("rows", "rows elsewhere")

    return drive
