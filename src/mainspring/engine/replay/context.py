"""The position of the executing code in its run, in a context variable: the only ambient value of the library."""

from __future__ import annotations

import sys
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from mainspring.engine.replay.empty import own
from mainspring.engine.replay.execution import Quota
from mainspring.errors import NotInRun
from mainspring.store.external.deferred import Deferred

if TYPE_CHECKING:
    from contextvars import Context, Token
    from types import CodeType, FrameType

    from mainspring.engine.replay.execution import Execution
    from mainspring.store.external.join import Joined
    from mainspring.store.external.other_database import OtherDatabase
    from mainspring.store.external.transactions import Session


_LIBRARY = f"{Path(__file__).parents[2]}/"


def _calling_line(frame: FrameType) -> tuple[CodeType, int]:
    """The innermost code outside of the library, and the instruction that it executes."""
    while frame.f_code.co_filename.startswith(_LIBRARY) and frame.f_back is not None:
        frame = frame.f_back
    return frame.f_code, frame.f_lasti


class Branch:
    """One branch of a run: the workflow's function itself, or a task that it created.

    Operations are numbered when they are called, tasks when they are created, by two counters, so that both numbers are the
    same in every replay whatever the event loop does in between.
    """

    __slots__ = ("_branches", "_draws", "_operations", "_reserved", "execution", "prefix")

    def __init__(self, execution: Execution, prefix: str = "") -> None:
        self.execution = execution
        self.prefix = prefix
        self._operations = 0
        self._branches = 0
        self._draws = 0
        self._reserved: tuple[object, int] = (None, 0)

    @property
    def place(self) -> Branch:
        """The position in a run."""
        return self

    @property
    def step_name(self) -> str | None:
        return None

    @property
    def attempt(self) -> int:
        """The number of this attempt of the run."""
        return self.execution.run.attempts

    @property
    def quota(self) -> Quota:
        return self.execution.quota

    @property
    def home(self) -> object:
        """The runtime that executes the run."""
        return self.execution.engine.home

    def next_position(self) -> str:
        number = self._operations
        self._operations = number + 1
        return f"{self.prefix}{number}"

    def following(self) -> str:
        """The position of the operation that comes next."""
        return f"{self.prefix}{self._operations}"

    def take_position(self, verb: str | None = None) -> str:
        """Take the position of an operation that is called now, and count the operation as outstanding.

        `verb` is what the user calls. It is named in a warning if the coroutine is never awaited.
        """
        ex = self.execution
        ex.outstanding += 1
        position = self.next_position()
        if verb is not None and ex.function.is_async:
            ex.unawaited = own(ex.unawaited)
            ex.unawaited[position] = (verb, *_calling_line(sys._getframe(1)))  # noqa: SLF001
        return position

    def next_draw(self) -> str:
        """A number for something drawn by chance: the same in every replay."""
        self._draws += 1
        return f"{self.prefix}{self._draws}{self._since_forgotten()}"

    def last_position(self) -> str:
        """The position of the operation called last, or of the branch itself before the first."""
        return f"{self.prefix}{self._operations - 1}" if self._operations else self.prefix

    def last_place(self) -> str:
        """The same, for keys: code behind an operation that the run has forgotten has others than before."""
        return f"{self.last_position()}{self._since_forgotten()}"

    def _since_forgotten(self) -> str:
        number = self.execution.history.edition(self.last_position()).latest
        return f"~{number}" if number else ""

    def is_ahead(self, position: str) -> bool:
        """Whether this branch has not reached a position: its operation is not called yet, or its task is not created yet."""
        if not position.startswith(self.prefix):
            return False
        first = position[len(self.prefix) :].partition(".")[0]
        if first.startswith("t"):
            return int(first[1:]) >= self._branches
        return int(first) >= self._operations

    def create_branch(self, number: int | None = None) -> Branch:
        """A branch for a task: the next one, or one of a reserved number."""
        if number is None:
            number = self._branches
            self._branches = number + 1
        prefix = f"{self.prefix}t{number}."
        if self.execution.history.failed_at is not None:
            self.execution.note_branch(prefix)
        return Branch(self.execution, prefix)

    def reserve_branches(self, group: object, count: int) -> int:
        """Reserve `count` numbers for a group of tasks that are created in no fixed order. Return the first."""
        if self._reserved[0] is not group:
            self._reserved = (group, self._branches)
            self._branches += count
        return self._reserved[1]


class StepScope:
    """The position of code inside a step. Operations are plain calls there, and runs that it starts have ids of the step."""

    __slots__ = (
        "_draws",
        "_quota",
        "_sent",
        "_started",
        "attempt",
        "closed_streams",
        "execution",
        "name",
        "on_pool",
        "position",
    )

    def __init__(self, execution: Execution, position: str, attempt: int, name: str, *, on_pool: bool = False) -> None:
        self.execution = execution
        self.position = position
        # A step that is a run of its own is retried with the run, and its own count then begins at 1 again.
        self.attempt = attempt if execution.function.kind == "workflow" else execution.run.attempts - 1 + attempt
        self.name = name
        self.on_pool = on_pool
        """Whether the step has a thread of the pool for steps."""
        self.closed_streams: frozenset[str] = frozenset()
        """The streams that this attempt has closed."""
        self._quota: Quota | None = None
        self._started = 0
        self._sent = 0
        self._draws = 0

    @property
    def quota(self) -> Quota:
        """The functions that this attempt has scheduled. Few steps schedule any."""
        if self._quota is None:
            self._quota = Quota()
        return self._quota

    def next_draw(self) -> str:
        """A number for something drawn by chance: the same in every attempt."""
        self._draws += 1
        return f"{self.last_place()}.{self._draws}"

    @property
    def place(self) -> StepScope:
        """The position in a run."""
        return self

    @property
    def step_name(self) -> str | None:
        return self.name

    @property
    def home(self) -> object:
        return self.execution.engine.home

    def last_position(self) -> str:
        """The position of the step."""
        return self.position

    def last_place(self) -> str:
        """The position of the step, as it is used for ids and keys."""
        return self.execution.history.place(self.position, self.name)

    def next_key(self) -> str:
        """The key of the next message that this step sends: the same in each attempt, so that the message is sent once."""
        self._sent += 1
        return f"{self.execution.run.uid}-{self.last_place()}.m{self._sent}"

    def next_start(self, *, detached: bool = False) -> str:
        """The id of the next run that this step starts: the same in each attempt."""
        number = self._started
        self._started = number + 1
        return self.execution.child_id(f"{self.last_place()}.s{number}", detached=detached)


class TransactionScope:
    """The position of code inside a transaction. Runs that it starts, schedules or cancels become part of the transaction.

    `step` is the position in a run, if there is one. `recorded`: the transaction is an operation of that run, and its record is
    part of it as well. `session` is a session of the library; a transaction that a user opened is only joined.

    A transaction in another database cannot be joined: its verbs are `deferred`, and applied when its outcome is recorded.
    """

    __slots__ = (
        *("_joined", "_token", "database", "deferred", "elsewhere", "home"),
        *("over", "quota", "recorded", "session", "step"),
    )

    def __init__(
        self,
        home: object,
        joined: Joined | None,
        *,
        session: Session | None = None,
        elsewhere: Session | None = None,
        database: OtherDatabase | None = None,
        step: StepScope | None = None,
        recorded: bool = False,
    ) -> None:
        self.home = home
        self._joined = joined
        self.session = session
        self.elsewhere = elsewhere
        self.database = database
        self.deferred = Deferred() if elsewhere is not None else None
        self.step = step
        self.recorded = recorded
        self.quota = Quota()
        self.over = False
        self._token: Token[Any] | None = None

    def __enter__(self) -> Self:
        self._token = current.set(self)
        return self

    def __exit__(self, *exc: object) -> None:
        if self._token is not None:
            self.over = True
            current.reset(self._token)

    @property
    def place(self) -> StepScope | None:
        """The position in a run, if there is one."""
        return self.step

    @property
    def is_async(self) -> bool:
        """Whether its connection is awaited."""
        return (self.joined if self.elsewhere is None else self.elsewhere.joined).is_async

    @property
    def wishes(self) -> Deferred:
        """The deferred verbs of a transaction in another database."""
        assert self.deferred is not None  # noqa: S101
        return self.deferred

    @property
    def joined(self) -> Joined:
        """The verbs that join the transaction. A transaction in another database has none."""
        if self.session is not None:
            return self.session.joined
        assert self._joined is not None  # noqa: S101
        return self._joined


current: ContextVar[Branch | StepScope | TransactionScope | None] = ContextVar("mainspring_current", default=None)


def branch(context: Context | None = None) -> Branch | None:
    """The branch that is executing, here or in a context; None outside a run and inside a step."""
    where = current.get() if context is None else context.get(current)
    return where if isinstance(where, Branch) else None


def place() -> Branch | StepScope | None:
    """The position in a run, also of a step or transaction in it; None outside runs."""
    where = current.get()
    return None if where is None else where.place


def here() -> Branch | StepScope:
    """The position in a run. Raises `NotInRun` outside runs."""
    found = place()
    if found is None:
        raise NotInRun("`run` is available only inside a workflow or step that an app is executing")
    return found
