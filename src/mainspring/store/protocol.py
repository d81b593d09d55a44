"""What a store promises. This file is the specification; the conformance suite in `tests/store` holds every store to it.

Rules for all verbs:

- They block. They are called on the committer's thread and on a few others, on an event loop only within `at_once`.
- Time is a parameter. A store never asks the database what time it is.
- Each verb is one transaction: all of it happens or none of it.
- A write that changes a run's state is conditional on what it expects. A loser learns that it lost; nothing is overwritten.
- The database being out of reach is `StoreUnavailable`, a full disk `StoreFull`; a verb can simply be retried.
- Rows are locked in the order schedules, queues, runs, each by id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias

from msgspec import Struct, field, structs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from mainspring.model.runs import Claim, Ending, Run, RunFilter, Step, Worker
    from mainspring.model.states import State
    from mainspring.store.changes import Notice, Signal
    from mainspring.store.external.sessions import Transactions
    from mainspring.store.messages import Messages
    from mainspring.store.queues import ClaimPolicy, QueueStore
    from mainspring.store.schedules import ScheduleStore
    from mainspring.store.verbs.dashboard import Dashboard
    from mainspring.store.verbs.manage import Management
    from mainspring.store.verbs.oddities import Oddity
    from mainspring.store.verbs.prune import Retention
    from mainspring.store.verbs.scheduled_functions import Functions
    from mainspring.store.verbs.unknown_functions import UnknownFunctions
    from mainspring.store.verbs.unnotified import UnreportedEnds
    from mainspring.store.writes import Op, Result


AtOnce: TypeAlias = "Callable[[], AbstractContextManager[bool]]"


class ClaimRequest(Struct, frozen=True):
    """Who asks for runs, what they can execute, and how many there is room for."""

    worker: str
    version: str
    functions: Mapping[str, str]
    """Name of each function the worker knows, with its fingerprint."""
    limit: int
    now: int
    policy: ClaimPolicy
    """Decides what of the runs in queues is taken."""
    compatible: bool = False
    """Also take runs that began under another fingerprint, as long as this version has not failed to replay them."""
    queues: frozenset[str] | None = None
    """The queues to take from; None: all. Runs without a queue are taken by every worker."""
    mine: Mapping[str, Mapping[str, int]] = field(default_factory=dict[str, "Mapping[str, int]"])
    """Runs of queues in this worker's memory, by queue and partition."""
    instances: Mapping[str, Sequence[str]] = field(default_factory=dict[str, "Sequence[str]"])
    """Which of the functions are methods, with the names of the instances that the worker has: runs of others are left alone."""
    kinds: Mapping[str, str] = field(default_factory=dict[str, str])
    """Which of the functions are not workflows: a caller that started one by its name alone did not know."""
    clock: Callable[[], int] | None = None
    """What time it is; None: `now`."""

    def at_present(self) -> ClaimRequest:
        """The same request, at the time that it is by now: a claim may have waited for a lock. Starts are counted by that time."""
        return self if self.clock is None else structs.replace(self, now=max(self.now, self.clock()))


class Claimed(Struct, frozen=True):
    """The runs taken. `next_due` is when something will become ready by time alone, if anything will."""

    claims: list[Claim]
    next_due: int | None
    more: bool
    """Whether there was more than was asked for."""
    short: bool = False
    """Whether more might be taken if fewer runs of some queue were in this worker's memory."""
    held: bool = False
    """Whether more might be taken as soon as a run of some queue ends, anywhere."""
    passed: bool = False
    """Whether a queue was passed over because another claim had locked it: to be claimed from again at once."""


class Snapshot(Struct, frozen=True):
    """A transaction whose snapshot keeps dead rows from being removed."""

    pid: int | None
    """The server's process; None: a prepared transaction."""
    name: str
    """The name of the application, or of the prepared transaction."""
    state: str
    seconds: float
    """For how long it has been open."""


class DeadRows(Struct, frozen=True):
    """Rows of a table that vacuum has yet to remove, as the server estimates them."""

    table: str
    live: int
    dead: int


class ServerState(Struct, frozen=True):
    """What a database server says of itself."""

    connections: int
    allowed: int
    """Connections that roles without special rights may open."""
    snapshot: Snapshot | None
    """The oldest one of the database, if there is any besides this very question."""
    dead_rows: list[DeadRows]


class SchemaReport(Struct, frozen=True):
    """How the tables compare with what this code needs."""

    current: str | None
    wanted: str
    pending: list[str] = field(default_factory=list[str])
    unknown: list[str] = field(default_factory=list[str])
    edited: dict[str, str] = field(default_factory=dict[str, str])
    """Migrations that are not what was applied under their names, with the checksums that they have now."""


class Store(Protocol):
    """A database that keeps runs."""

    url: str

    @property
    def at_once(self) -> AtOnce | None:
        """How to use the store on a thread that must not wait; None where any use of it may wait for a disk or for others.

        Entered, it says whether the turn at writing was free, and is the caller's until it is left.
        """
        ...

    @property
    def messages(self) -> Messages:
        """Messages, events and streams."""
        ...

    @property
    def schedules(self) -> ScheduleStore:
        """The schedules, with the verbs of their own."""
        ...

    @property
    def management(self) -> Management:
        """What an operator may do to runs that have ended, and to their records."""
        ...

    @property
    def functions(self) -> Functions:
        """What was scheduled with run_after and run_at."""
        ...

    @property
    def unknown(self) -> UnknownFunctions:
        """Runs of functions that no worker knows."""
        ...

    @property
    def telling(self) -> UnreportedEnds:
        """Ends of runs that had no owner."""
        ...

    @property
    def retention(self) -> Retention:
        """Forgotten what was kept long enough."""
        ...

    @property
    def transactions(self) -> Transactions:
        """Where users' functions and the library write together."""
        ...

    @property
    def queues(self) -> QueueStore:
        """The queues that runs wait in."""
        ...

    @property
    def watching(self) -> Dashboard:
        """Everything at a glance, what workers have counted, and who did what."""
        ...

    # -- life ----------------------------------------------------------------------------------------------------------
    def open(self, *, migrate: bool = True, beside: bool = False) -> None:
        """Connect, and bring the tables up to date (or only check them). Safe when many processes do so at once.

        Raises `SchemaError` when the tables are newer than this code, or older and `migrate` is false. `beside` says that the
        caller has a transaction of its own open: where making tables would wait for the end of that, it is a `SchemaError`, too.
        """
        ...

    def close(self) -> None:
        """Close all connections. The store cannot be used afterwards."""
        ...

    def listen(self, notify: Callable[[Signal], None]) -> None:
        """Call `notify`, on any thread, after each commit of this or of another process that may concern a waiter."""
        ...

    def announce(self, claimed: Sequence[str]) -> None:
        """Notify other processes that runs which had become ready were claimed, so that they need not look for them."""
        ...

    def blockers(self, *, everywhere: bool = False) -> list[str]:
        """The sessions and processes that this process waits for at this moment, or with `everywhere` any process of the library.

        In words. Needs no `open`, and waits for nothing.
        """
        ...

    def server_state(self) -> ServerState | None:
        """What the database server says of itself; None: there is no server."""
        ...

    def clock_offset(self) -> int | None:
        """How many microseconds the database's civil time is ahead of this machine's; None: it has no clock of its own."""
        ...

    # -- schema --------------------------------------------------------------------------------------------------------
    def schema_report(self) -> SchemaReport:
        """Compare the tables with what this code needs. Writes nothing."""
        ...

    def inspect(self, now: int, *, thorough: bool) -> list[Oddity]:
        """What is in the database and should not be so: tables, damage, rows that nothing will go on with. Changes nothing.

        `thorough` reads all of it, which takes long where there is much.
        """
        ...

    def size(self) -> int:
        """About how many bytes the tables have."""
        ...

    # -- the committer's --------------------------------------------------------------------------------------------------
    def apply(self, ops: Sequence[Op], now: int) -> list[Result | Exception]:
        """Commit `ops` together and answer each. Those about one run take effect in their order.

        Each is whole by itself: what it starts, whom it wakes and what it records are there together or not at all. Where
        nothing stands in the way all of them are one transaction. What another transaction locks for longer than a moment comes
        back as HELD, with all later ones about the same run, and is to be retried (`BlockedWrites` does); what the database
        refuses comes back as its exception. Neither fails its neighbours. Retried after a lost acknowledgement, each
        answers as it did the first time.
        """
        ...

    # -- workers -------------------------------------------------------------------------------------------------------
    def register(self, worker: Worker) -> None:
        """Enter a worker into the fleet."""
        ...

    def list_crontab(self, worker: str, entries: str) -> None:
        """Say which crontab entries a worker lists now."""
        ...

    def list_instances(self, worker: str, instances: str) -> None:
        """Say which instances of its methods a worker has now."""
        ...

    def beat(self, worker: str, now: int) -> list[Worker] | None:
        """Show that a worker lives. Answers with the fleet, or None when the worker was declared dead meanwhile."""
        ...

    def workers(self) -> list[Worker]:
        """The fleet, oldest first."""
        ...

    def retire(self, worker: str, now: int, max_recoveries: int | None, limits: Mapping[str, int] | None = None) -> int:
        """Take a worker out of the fleet and free its runs for others; how many.

        Running ones are queued again and count one recovery, beyond `max_recoveries` they fail with reason "recovery
        exhausted"; `limits` has the numbers of functions that have one of their own. Suspended ones stay waiting; those being cancelled are cancelled.
        """
        ...

    def orphaned(self) -> list[str]:
        """Workers that have left the fleet and own runs all the same: declared dead, they took some before they knew."""
        ...

    def remember_version(self, version: str, now: int) -> None:
        """Note when a version of the app was first seen."""
        ...

    # -- executing -----------------------------------------------------------------------------------------------------
    def claim(self, request: ClaimRequest) -> Claimed:
        """Take ready runs: each becomes running, owned, in a new epoch, and comes with its steps.

        The smallest priority comes first, then the first due, then the first that was asked for; of runs in queues only
        those that `request.admit` lets begin, besides those that have begun already. If this raises, runs may have been taken
        all the same: `owned` tells.
        """
        ...

    def notices(self, worker: str) -> list[Notice]:
        """What happened to the worker's runs since it last asked. If this raises, the notices may be lost: `owned` has all."""
        ...

    def owned(self, worker: str) -> list[Notice]:
        """All runs that the worker owns: for one that may have lost the answer to a claim, or to its last `notices`."""
        ...

    def owned_state(self, worker: str, run_id: str, epoch: int) -> State | None:
        """The state of a run that the worker owns in this epoch; None: it does not, or the run has ended."""
        ...

    def expire(self, now: int) -> int:
        """Cancel, with reason "timeout", runs without an owner whose deadline has passed; how many."""
        ...

    def strand(self, worker: str, functions: Mapping[str, str], now: int) -> int:
        """Mark queued runs that no live worker can continue, with the reason; how many are new."""
        ...

    # -- from anywhere -------------------------------------------------------------------------------------------------
    def cancel(self, ids: Sequence[str], reason: str | None, now: int) -> dict[str, bool]:
        """Cancel runs and their children, at any depth. True where there was something to cancel.

        A run without an owner is cancelled at once; a workflow that a worker owns becomes cancelling, with a notice; a
        step or transaction that runs at top level runs on, its record is cancelled at once.
        """
        ...

    def terminate(self, ids: Sequence[str], reason: str | None, now: int) -> dict[str, bool]:
        """End runs and their children as cancelled at once and fence their workers out."""
        ...

    def endings(self, ids: Iterable[str]) -> dict[str, Ending | None]:
        """How runs ended. None for one that has not; an unknown id is left out."""
        ...

    def run(self, run_id: str) -> Run | None:
        """One run, or None."""
        ...

    def steps(self, run_id: str) -> list[Step]:
        """What a run has recorded, in the order in which outcomes were recorded; unfinished ones last."""
        ...

    def step(self, run_id: str, position: str) -> Step | None:
        """What a run has recorded at a position, or None."""
        ...

    def runs(self, wanted: RunFilter) -> list[Run]:
        """A page of runs, newest first."""
        ...

    def counts(self) -> dict[str, int]:
        """How many runs are in each state that is not an end."""
        ...
