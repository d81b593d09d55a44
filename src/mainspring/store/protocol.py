"""The specification of a store. The conformance suite in `tests/store` holds every store to it.

Rules for all verbs:

- They block. They are called on the committer's thread and on a few others, on an event loop only within `at_once`.
- Time is a parameter. From the clock of the database come only `clock_offset`, durations of searches and ages of sessions.
- Each verb is one transaction: all of it is committed, or nothing.
- A write that changes the state of a run is conditional on the state and epoch that it expects. A write that loses a race is answered
  so, and overwrites nothing.
- `StoreUnavailable`: the database cannot be reached, and the verb may have been committed. A verb that cannot be repeated safely says so.
  `StoreFull`: the disk is full, and nothing was committed.
- Rows are locked in the order schedules, queues, runs, each by id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias

from msgspec import Struct, field, structs

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from mainspring.model.runs import Claim, Ending, Run, RunFilter, Step, Worker
    from mainspring.model.states import State
    from mainspring.queues.fairness import Fairness
    from mainspring.store.changes import Notice, Signal
    from mainspring.store.external.transactions import Transactions
    from mainspring.store.verbs.audit import Audit
    from mainspring.store.verbs.dashboard import Dashboard
    from mainspring.store.verbs.declared_functions import DeclaredFunctions
    from mainspring.store.verbs.defects import Defect
    from mainspring.store.verbs.manage import Management
    from mainspring.store.verbs.messages import Messages
    from mainspring.store.verbs.prune import Retention
    from mainspring.store.verbs.queues import Queues
    from mainspring.store.verbs.scheduled_functions import Functions
    from mainspring.store.verbs.schedules import Schedules
    from mainspring.store.verbs.unknown_functions import UnknownFunctions
    from mainspring.store.verbs.unreported_ends import UnreportedEnds
    from mainspring.store.verbs.versions import Versions
    from mainspring.store.writes import Op, Result


AtOnce: TypeAlias = "Callable[[], AbstractContextManager[bool]]"


class ClaimRequest(Struct, frozen=True):
    """A worker's request for runs: the functions that it knows, and the number of free slots."""

    worker: str
    version: str
    functions: Mapping[str, str]
    """By name of a function that the worker knows: its fingerprint."""
    limit: int
    now: int
    policy: Fairness
    """Decides which runs of queues are admitted."""
    compatible: bool = False
    """Also claim runs that began under another fingerprint, unless this version has failed to replay them."""
    queues: frozenset[str] | None = None
    """The queues to claim from; None: all. Every worker claims runs without a queue."""
    mine: Mapping[str, Mapping[str, int]] = field(default_factory=dict[str, "Mapping[str, int]"])
    """By queue and partition: the number of runs in this worker's memory."""
    instances: Mapping[str, Sequence[str]] = field(default_factory=dict[str, "Sequence[str]"])
    """By function that is a method: the names of the instances that the worker has. Runs of other instances are not claimed."""
    kinds: Mapping[str, str] = field(default_factory=dict[str, str])
    """By function that is no workflow: its kind. A caller that starts a function by name does not know its kind."""
    clock: Callable[[], int] | None = None
    """The worker's clock; None: the time is `now`."""
    announced: frozenset[str] = frozenset()
    """Queues in which runs became ready since the last claim, as far as the worker was notified. A hint: nothing depends on it."""

    def at_present(self) -> ClaimRequest:
        """The same request at the present time: a claim may have waited for a lock, and rates count starts by that time."""
        return self if self.clock is None else structs.replace(self, now=max(self.now, self.clock()))


class Claimed(Struct, frozen=True):
    """The claimed runs."""

    claims: list[Claim]
    next_due: int | None
    """The time at which the next run becomes ready by time alone, if there is one."""
    more: bool
    """Whether more runs were ready than the request had slots for."""
    short: bool = False
    """Whether more could be claimed if fewer runs of a queue were in this worker's memory."""
    held: bool = False
    """Whether more can be claimed when a run of a queue ends, in any worker."""
    passed: bool = False
    """Whether a queue was skipped because another claim had locked it. The worker claims again at once."""


class Snapshot(Struct, frozen=True):
    """A transaction whose snapshot keeps dead rows from being removed."""

    pid: int | None
    """The process id at the server; None: a prepared transaction."""
    name: str
    """The name of the application, or of the prepared transaction."""
    state: str
    seconds: float
    """How long it has been open."""


class DeadRows(Struct, frozen=True):
    """Rows of a table that vacuum has yet to remove, as the server estimates them."""

    table: str
    live: int
    dead: int


class ServerState(Struct, frozen=True):
    """The state of a database server, for `doctor` and metrics."""

    connections: int
    allowed: int
    """Connections that roles without special rights may open."""
    snapshot: Snapshot | None
    """The oldest snapshot in the database, other than that of this query."""
    dead_rows: list[DeadRows]


class SchemaReport(Struct, frozen=True):
    """The migrations of the database compared with those of this code."""

    current: str | None
    wanted: str
    pending: list[str] = field(default_factory=list[str])
    unknown: list[str] = field(default_factory=list[str])
    edited: dict[str, str] = field(default_factory=dict[str, str])
    """By name: migrations that were edited after they were applied, with their present checksums."""


class Store(Protocol):
    """A database that keeps runs."""

    url: str

    @property
    def at_once(self) -> AtOnce | None:
        """A context in which the store never waits, for use on an event loop; None if the store may wait for a disk or for others.

        It yields True if the turn at writing was free; the caller then holds the turn until it leaves the context.
        """
        ...

    messages: Messages
    """Messages, events and streams."""
    schedules: Schedules
    """Schedules, ticks and backfills."""
    management: Management
    """Verbs of operators on runs: retry, resume, fork, complete, delete, export and the like."""
    versions: Versions
    """Versions of the app, and patches."""
    functions: Functions
    """The functions that were scheduled with `run_after` and `run_at`."""
    unknown: UnknownFunctions
    """Runs of functions that no worker knows."""
    unreported_ends: UnreportedEnds
    """Ended runs that are yet to be reported to `app.on`."""
    retention: Retention
    """Deleting runs and ticks whose retention is over."""

    queues: Queues
    """Queues and their limits."""
    declared_functions: DeclaredFunctions
    """What workers declare about the functions that they execute."""
    dashboard: Dashboard
    """Figures of runs and schedules, and the counters of workers that they are read from."""
    audit: Audit
    """The audit log of operators, and their sessions in the dashboard."""

    @property
    def transactions(self) -> Transactions:
        """Transactions of users' functions, and joining a transaction that a user has opened."""
        ...

    # -- opening and closing -------------------------------------------------------------------------------------------
    def open(self, *, migrate: bool = True, beside: bool = False) -> None:
        """Connect, and migrate the tables (or only check them). Safe when many processes do so at once.

        Raises `SchemaError` when the tables are newer than this code, or older and `migrate` is false. `beside`: the caller has a
        transaction of its own open; if a migration would wait for its end, `SchemaError` is raised, too.
        """
        ...

    def close(self) -> None:
        """Close all connections. The store cannot be used afterwards."""
        ...

    def listen(self, notify: Callable[[Signal], None]) -> None:
        """Call `notify`, on any thread, after each commit of this or another process that may concern a waiter."""
        ...

    def announce(self, claimed: Sequence[str]) -> None:
        """Notify other processes that ready runs were claimed, so that they do not look for them."""
        ...

    def blockers(self, *, everywhere: bool = False) -> list[str]:
        """Describe the sessions and processes whose locks this process waits for; with `everywhere`, any process of the library.

        Needs no `open`, and waits for no lock.
        """
        ...

    def server_state(self) -> ServerState | None:
        """The state of the database server; None: there is no server."""
        ...

    def clock_offset(self) -> int | None:
        """Microseconds by which the clock of the database is ahead of this machine's; None: the database has no clock of its own."""
        ...

    # -- schema --------------------------------------------------------------------------------------------------------
    def schema_report(self) -> SchemaReport:
        """Compare the migrations of the database with those of this code. Writes nothing."""
        ...

    def inspect(self, now: int, *, thorough: bool) -> list[Defect]:
        """Find missing tables, damage, inconsistent rows, and runs that nothing can continue. Changes nothing.

        `thorough` reads all rows, which takes long in a large database.
        """
        ...

    def size(self) -> int:
        """The approximate size of the tables in bytes."""
        ...

    # -- writes of the committer ------------------------------------------------------------------------------------------
    def apply(self, ops: Sequence[Op], now: int) -> list[Result | Exception]:
        """Commit writes together and answer each. The writes of one run are applied in their order.

        Each write is atomic: its record, the runs that it starts and the runs that it wakes are committed together or not at all.
        Normally all writes are one transaction. A write whose rows another transaction keeps locked is answered HELD, and so are
        all later writes of the same run; `BlockedWrites` retries them. A write that the database refuses is answered with its
        exception. Neither affects the other writes. A write that is repeated after a lost answer is answered as the first time.
        """
        ...

    # -- workers -------------------------------------------------------------------------------------------------------
    def register(self, worker: Worker) -> None:
        """Add a worker to the fleet."""
        ...

    def list_crontab(self, worker: str, entries: str) -> None:
        """Store the crontab entries that a worker lists."""
        ...

    def list_instances(self, worker: str, instances: str) -> None:
        """Store the instances that a worker has for its methods."""
        ...

    def beat(self, worker: str, now: int) -> list[Worker] | None:
        """Renew the heartbeat of a worker. Return the fleet, or None if the worker was declared dead."""
        ...

    def workers(self) -> list[Worker]:
        """The fleet, oldest first."""
        ...

    def retire(self, worker: str, now: int, max_recoveries: int | None, limits: Mapping[str, int] | None = None) -> int:
        """Remove a worker from the fleet and release its runs. Return the number of runs.

        Running runs are queued again with one more recovery. Beyond `max_recoveries`, or the number that `limits` has for the
        function, they fail with reason "recovery exhausted". Waiting runs stay waiting. Runs that are being cancelled are cancelled.
        """
        ...

    def orphaned(self) -> list[str]:
        """Workers that own runs and are not in the fleet: declared dead, they claimed runs before they noticed."""
        ...

    def remember_version(self, version: str, now: int) -> None:
        """Store when a version of the app was first seen."""
        ...

    # -- verbs of workers that execute runs ----------------------------------------------------------------------------
    def claim(self, request: ClaimRequest) -> Claimed:
        """Claim ready runs: each becomes running, gets this owner and a new epoch, and is returned with its steps.

        The order is priority, due time, time of creation. Of runs in queues, those that have begun are claimed, and of the others
        those that `request.policy` admits. If this raises, runs may have been claimed all the same: `owned` lists them.
        """
        ...

    def notices(self, worker: str) -> list[Notice]:
        """Take the notices of a worker: runs that were stopped, woken or written to since it last asked.

        If this raises, notices may be lost: `owned` lists all runs.
        """
        ...

    def owned(self, worker: str) -> list[Notice]:
        """All runs that the worker owns. For a worker that may have lost the answer to `claim` or `notices`."""
        ...

    def owned_state(self, worker: str, run_id: str, epoch: int) -> State | None:
        """The state of a run, if the worker owns the run in this epoch; else None, also if the run has ended."""
        ...

    def expire(self, now: int) -> int:
        """Cancel unowned runs whose deadline has passed, with reason "timeout". Return their number."""
        ...

    def strand(self, functions: Collection[str]) -> int:
        """Mark queued runs that no live worker can continue, with the reason. Return the number of newly marked runs.

        `functions` are those that the caller knows: of their runs, the reason is a changed source.
        """
        ...

    # -- verbs of all callers ------------------------------------------------------------------------------------------
    def cancel(self, ids: Sequence[str], reason: str | None, now: int) -> dict[str, bool]:
        """Cancel runs and their descendants. By id: True if the run was not ended.

        An unowned run is cancelled at once. A workflow that a worker owns becomes cancelling, and its worker is notified. A step or
        transaction at top level continues to execute, and its record is cancelled at once.
        """
        ...

    def terminate(self, ids: Sequence[str], reason: str | None, now: int) -> dict[str, bool]:
        """End runs and their descendants as cancelled at once, and fence their workers."""
        ...

    def endings(self, ids: Iterable[str]) -> dict[str, Ending | None]:
        """By id: the ending of a run, or None if the run has not ended. Unknown ids are left out."""
        ...

    def run(self, run_id: str) -> Run | None:
        """Look up a run; None: there is none."""
        ...

    def steps(self, run_id: str) -> list[Step]:
        """The recorded operations of a run, in the order of their outcomes, unfinished operations last."""
        ...

    def step(self, run_id: str, position: str) -> Step | None:
        """The recorded operation at a position of a run; None: there is none."""
        ...

    def runs(self, wanted: RunFilter) -> list[Run]:
        """A page of runs, newest first."""
        ...

    def counts(self) -> dict[str, int]:
        """By state: the number of runs that have not ended."""
        ...
