"""Every exception that the library raises, in one tree.

* MainspringError
  x InvalidInput (ValueError)            an argument of the call is wrong; nothing was stored
    + InvalidSpec                        a recurrence cannot be parsed
      - InvalidCron                      a cron expression cannot be parsed
    + InvalidSettings                    a setting is wrong, in code or in the environment
    + NotSerializable                    a value cannot be stored as JSON, or cannot be decoded again
    + TooLarge                           a value exceeds its limit
    + UnknownFunction                    no function of that name is registered
    + AlreadyRegistered                  two functions have one name
  x NotFound (LookupError)               no run, schedule or queue has that id
  x Conflict                             an id, a key or a revision is not what the call expects
  x StillRunning (TimeoutError)          the run had not ended when the timeout of the wait passed
  x RunEnded                             the awaited run did not succeed
    + RunCancelled                       the awaited run was cancelled
      - RunTimedOut                      the awaited run was cancelled by its timeout
    + RemoteError                        the awaited run raised an exception that cannot be rebuilt here
  x Refused                              the run's validator rejected the question
  x NotAnswered                          the run ended without answering the question
  x StepTimedOut (TimeoutError)          an attempt of a step took longer than its timeout
  x BatchMismatch                        a batch function did not return one outcome per input
  x Interrupted                          an at-most-once function was interrupted
  x NonDeterminism                       a replay does not match the recorded operations
  x WrongColour (RuntimeError)           a blocking call on an event loop, or a coroutine in blocking code
  x NotInRun (RuntimeError)              `run.…` was used outside a run
  x NotStarted (RuntimeError)            this process has not entered the app, or enters it twice
  x InTransaction (RuntimeError)         the call is not possible inside a transaction
  x Endless                              a test would never end
  x StoreError                           base of database errors
    + StoreUnavailable                   the database cannot be reached
      - StoreReplaced                    the SQLite file was removed or replaced since it was opened
    + StoreFull                          the disk of the database is full
    + SchemaError                        the tables are missing, older or newer than this code
  x PayloadError                         the payload codec could not encode or decode a value
  x MissingExtra (ImportError)           an optional package is not installed

Messages say what happened, to which object, and what to do next. The signals that unwind a workflow's code when its run is
parked or stopped are not errors. They are private `BaseException`s of the engine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class MainspringError(Exception):
    """Base class of every exception that the library raises."""


class InvalidInput(MainspringError, ValueError):
    """An argument of the call is wrong. Nothing was stored."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of an input, with its location in the input."""

    message: str
    field: str | None = None
    column: int | None = None
    line: int | None = None
    hint: str | None = None

    def __str__(self) -> str:
        where: list[str] = []
        if self.line is not None:
            where.append(f"line {self.line}")
        if self.column is not None:
            where.append(f"column {self.column}")
        text = f"{', '.join(where)}: " if where else ""
        text += f"{self.field}: {self.message}" if self.field else self.message
        return f"{text} ({self.hint})" if self.hint else text


class InvalidSpec(InvalidInput):
    """A recurrence that cannot be parsed. `faults` lists every fault."""

    def __init__(self, subject: str, faults: Sequence[Fault]) -> None:
        self.subject = subject
        self.faults = tuple(faults)
        listed = "; ".join(str(fault) for fault in self.faults)
        super().__init__(f"{subject}: {listed}" if listed else subject)


class InvalidCron(InvalidSpec):
    """A cron expression that cannot be parsed."""


class InvalidSettings(InvalidInput):
    """One or more settings are wrong. The message lists all of them."""


class NotSerializable(InvalidInput):
    """A value that cannot be stored as JSON, or that could not be decoded to the type of its annotation."""


class TooLarge(InvalidInput):
    """A value that exceeds a limit of the settings."""


class UnknownFunction(InvalidInput):
    """No function of that name is registered with the app."""


class AlreadyRegistered(InvalidInput):
    """Two different functions are registered under one name."""


class NotFound(MainspringError, LookupError):
    """No run, schedule or queue has that id, or it was deleted."""


class Conflict(MainspringError):
    """The stored state is not what the call expects.

    The id or the key is taken, the schedule was changed after the given revision, or the run's state does not allow the call.
    """


class StillRunning(MainspringError, TimeoutError):
    """The run had not ended when the timeout of the wait passed. The run continues."""


class RunEnded(MainspringError):
    """The awaited run ended without a result. `run_id` names the run, `reason` is why it was stopped."""

    def __init__(self, message: str, *, run_id: str = "", reason: str | None = None) -> None:
        super().__init__(message)
        self.run_id = run_id
        self.reason = reason


class RunCancelled(RunEnded):
    """The awaited run was cancelled."""


class RunTimedOut(RunCancelled):
    """The awaited run was cancelled because its timeout passed."""


class RemoteError(RunEnded):
    """An exception whose class cannot be imported here.

    `type_name`, `message`, `attributes` and `traceback` are those of the original.
    """

    def __init__(
        self, type_name: str, message: str, *, traceback: str = "", attributes: dict[str, object] | None = None
    ) -> None:
        super().__init__(f"{type_name}: {message}" if message else type_name)
        self.type_name = type_name
        self.message = message
        self.traceback = traceback
        self.attributes: dict[str, object] = attributes or {}


class Refused(MainspringError):
    """The run rejected the question: its `validate` function raised. `__cause__` is that exception."""


class NotAnswered(MainspringError):
    """The run ended without answering the question."""


class StepTimedOut(MainspringError, TimeoutError):
    """An attempt of a step took longer than the step's timeout."""


class BatchMismatch(MainspringError):
    """A batch function did not return a list with one outcome for each input. No input of the batch has an outcome."""


class Interrupted(MainspringError):
    """An at-most-once function was interrupted. It is not executed a second time."""


class NonDeterminism(MainspringError):
    """A replayed workflow requested another operation than the recorded one."""


class WrongColour(MainspringError, RuntimeError):
    """A blocking call on a running event loop, or a coroutine that nothing awaits."""


class NotInRun(MainspringError, RuntimeError):
    """`run` was used outside a run, or in a step that may not use it."""


class NotStarted(MainspringError, RuntimeError):
    """This process has not entered the app, so it cannot execute runs, or it enters the app a second time."""


class InTransaction(MainspringError, RuntimeError):
    """The call is not possible inside a transaction, mostly because it would wait for the transaction to commit."""


class Endless(MainspringError):
    """A test would never end: runs start each other without time passing, or no event can end a wait."""


class StoreError(MainspringError):
    """Base class of database errors."""


class StoreUnavailable(StoreError):
    """The database cannot be reached. The call may have been committed, if only its response was lost.

    Starts with an id and sends with a key are safe to retry. The message of other starts and sends says what a retry would do.
    Before any other call is retried, look up whether it was stored.
    """


class StoreReplaced(StoreUnavailable):
    """The SQLite file was removed or replaced since it was opened. Further writes would be lost."""


class StoreFull(StoreError):
    """The disk of the database is full. Work continues when there is space."""


class SchemaError(StoreError):
    """The tables are missing, older or newer than this code."""


class PayloadError(MainspringError):
    """The codec of `App(payloads=…)` could not encode or decode a value, or the value is encoded and there is no codec."""


class MissingExtra(MainspringError, ImportError):
    """An optional part of the library needs a package that is not installed. The message names it."""
