"""Everything the library raises, in one tree.

* MainspringError
  x InvalidInput (ValueError)            something given at a call is wrong; nothing was stored
    + InvalidSpec                        a recurrence that cannot be read
      - InvalidCron                      a cron expression that cannot be read
    + InvalidSettings                    a setting, in code or in the environment
    + NotSerializable                    a value that JSON cannot carry, or not back again
    + TooLarge                           a value above its limit
    + UnknownFunction                    no function of that name is registered
    + AlreadyRegistered                  two functions of one name
  x NotFound (LookupError)               no run, schedule or queue of that id
  x Conflict                             an id, a key or a revision is not what the call expects
  x StillRunning (TimeoutError)          waiting for a result took longer than asked
  x RunEnded                             the awaited run did not succeed
    + RunCancelled                       it was cancelled
      - RunTimedOut                      it was cancelled by its timeout
    + RemoteError                        it raised an exception that cannot be rebuilt here
  x Refused                              the run that was asked does not accept the question
  x NotAnswered                          the run that was asked ended without an answer
  x StepTimedOut (TimeoutError)          an attempt of a step took longer than its timeout
  x BatchMismatch                        a batch function did not return an outcome for each input
  x Interrupted                          an at-most-once function was cut off in the middle
  x NonDeterminism                       a replay that does not agree with the record
  x WrongColour (RuntimeError)           a blocking call on an event loop, or the reverse
  x NotInRun (RuntimeError)              `run.…` was used outside a run
  x NotStarted (RuntimeError)            the app does not execute in this process
  x InTransaction (RuntimeError)         something that cannot be done inside a transaction
  x Endless                              a test that would never end
  x StoreError                           the database
    + StoreUnavailable                   it cannot be reached now
      - StoreReplaced                    its file was removed or replaced since it was opened
    + StoreFull                          no room on its disk
    + SchemaError                        its tables are older or newer than this code
  x PayloadError                         a value that its codec cannot encode or decode
  x MissingExtra (ImportError)           an optional part is not installed

Messages say what happened, to which thing, and what to do next. The signals that travel through a workflow's own code when
a run is parked or stopped are not errors: they are private `BaseException`s and live in the engine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class MainspringError(Exception):
    """Base of everything the library raises."""


class InvalidInput(MainspringError, ValueError):
    """Something given at a call is wrong. Nothing was stored."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing wrong with an input, and where it stands in it."""

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
    """A recurrence that cannot be read. `faults` has all that is wrong with it."""

    def __init__(self, subject: str, faults: Sequence[Fault]) -> None:
        self.subject = subject
        self.faults = tuple(faults)
        listed = "; ".join(str(fault) for fault in self.faults)
        super().__init__(f"{subject}: {listed}" if listed else subject)


class InvalidCron(InvalidSpec):
    """A cron expression that cannot be read."""


class InvalidSettings(InvalidInput):
    """One or more settings are wrong; the message lists all of them."""


class NotSerializable(InvalidInput):
    """A value that cannot be stored as JSON, or could not be read back as what its annotation says."""


class TooLarge(InvalidInput):
    """A value above the limit in the settings."""


class UnknownFunction(InvalidInput):
    """No function of that name is registered with the app."""


class AlreadyRegistered(InvalidInput):
    """Two different functions claim one name."""


class NotFound(MainspringError, LookupError):
    """There is no run, schedule or queue with that id, or it was deleted."""


class Conflict(MainspringError):
    """Something else is there than the call expects: the id or the key is taken, the schedule was changed since the revision given,
    or a run is not in a state in which this can be done to it.
    """


class StillRunning(MainspringError, TimeoutError):
    """The run had not ended when the time to wait for it was over. The run is not affected."""


class RunEnded(MainspringError):
    """The awaited run ended without a result."""

    def __init__(self, message: str, *, run_id: str = "", reason: str | None = None) -> None:
        super().__init__(message)
        self.run_id = run_id
        self.reason = reason


class RunCancelled(RunEnded):
    """The awaited run was cancelled."""


class RunTimedOut(RunCancelled):
    """The awaited run was cancelled because its timeout passed."""


class RemoteError(RunEnded):
    """An exception whose type cannot be rebuilt here: the type's name, the message, attributes and traceback of the original."""

    def __init__(
        self, type_name: str, message: str, *, traceback: str = "", attributes: dict[str, object] | None = None
    ) -> None:
        super().__init__(f"{type_name}: {message}" if message else type_name)
        self.type_name = type_name
        self.message = message
        self.traceback = traceback
        self.attributes: dict[str, object] = attributes or {}


class Refused(MainspringError):
    """The run does not accept the question: its `validate` raised, and `__cause__` is that exception."""


class NotAnswered(MainspringError):
    """The run ended without answering the question."""


class StepTimedOut(MainspringError, TimeoutError):
    """An attempt of a step took longer than the step's timeout."""


class BatchMismatch(MainspringError):
    """A batch function returned something else than a list with one outcome for each of its inputs: none of them has one."""


class Interrupted(MainspringError):
    """An at-most-once function was cut off in the middle; it is not started a second time."""


class NonDeterminism(MainspringError):
    """A replayed workflow asked for something else than what is recorded."""


class WrongColour(MainspringError, RuntimeError):
    """A blocking call on a running event loop, or a coroutine where nothing awaits it."""


class NotInRun(MainspringError, RuntimeError):
    """`run` was used outside a run."""


class NotStarted(MainspringError, RuntimeError):
    """The app does not execute in this process."""


class InTransaction(MainspringError, RuntimeError):
    """Something that cannot be done inside a transaction, mostly because it would wait for its end."""


class Endless(MainspringError):
    """A test would never end: runs start each other while time stands still, or nothing can end a wait."""


class StoreError(MainspringError):
    """Base of errors of the database."""


class StoreUnavailable(StoreError):
    """The database cannot be reached now. The call may have been stored all the same, where its answer was lost.

    Starts with an id and sends with a key are safe to repeat. The message of other starts and sends says what a repetition would do;
    before any other call, look whether it was stored.
    """


class StoreReplaced(StoreUnavailable):
    """The file of the database was removed or replaced since it was opened. Further writes would be lost."""


class StoreFull(StoreError):
    """There is no room on the database's disk. Work continues when there is."""


class SchemaError(StoreError):
    """The database's tables are missing, older or newer than this code."""


class PayloadError(MainspringError):
    """A value that the codec of `App(payloads=…)` could not encode or decode, or that is encoded where there is no codec."""


class MissingExtra(MainspringError, ImportError):
    """A part of the library needs a package that is not installed."""
