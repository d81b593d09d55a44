"""Exceptions of a step or transaction that would end more than the function that raised them.

StopIteration and GeneratorExit end the generators and coroutines above. A SystemExit of a task ends the event loop, and the worker with it; the next
worker would recover the run and end in the same way. So each of them becomes an error of its function. A KeyboardInterrupt comes from the user at
the terminal, and ends the process.

A step or transaction that is a run of its own has no tasks of the user's above it, so its SystemExit is recorded as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mainspring.engine.replay.execution import Execution

EXITS: Final = (StopIteration, GeneratorExit, SystemExit)


def exits_of(ex: Execution) -> tuple[type[BaseException], ...]:
    """Return the exceptions that become errors of a step or transaction of this run."""
    return EXITS if ex.function.kind == "workflow" else (StopIteration, GeneratorExit)


def error_of(exit_: BaseException, what: str) -> RuntimeError:
    """Return the error of a function that raised one of these exceptions."""
    return RuntimeError(f"{what} raised {type(exit_).__name__}")


def was_closed(error: BaseException) -> bool:
    """Whether an exception means that a coroutine was closed by the garbage collector, and was not raised by code below it."""
    trace = error.__traceback__
    return isinstance(error, GeneratorExit) and (trace is None or trace.tb_next is None)
