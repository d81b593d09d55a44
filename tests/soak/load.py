"""The load: a client that starts everything the library can start, and writes into the ledger what it was promised.

Every start has an id, so it can be repeated until it is answered. What cannot be repeated is written down before it is tried
(`tries`) and after it was answered (`promised`): in between nobody knows. The load pauses while `most` runs are unfinished.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import sqlite3
from functools import partial
from typing import TYPE_CHECKING, Any

import psycopg

from mainspring import Debounce
from mainspring.errors import Conflict, MainspringError, RunEnded, StoreError
from mainspring.store.open import sqlite_path
from tests.soak.app import app
from tests.soak.functions import jobs, programs, talk, transactions, trips
from tests.soak.programs import Maker

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.soak.ledger import Writer

_AGAIN = 0.1
_SENDERS = ("client", "sender", "sender_blocking", "sender_by_steps", "sender_by_transactions", "elsewhere", "joined")
_KEY_MODES = ("replace", "preserve_run_at", "return_existing", "unsafe_dedupe", "reject")


class Load:
    """Starts runs at random, by a seed, until it is stopped."""

    def __init__(
        self, url: str, seed: int, ledger: Writer, backlog: Callable[[], int], *, pumps: int = 3, most: int = 120
    ) -> None:
        self._url = url
        self._chance = random.Random(f"load {seed}")
        self._ledger = ledger
        self._backlog = backlog
        self._pumps = pumps
        self._most = most
        self._numbers = itertools.count()
        self._serial = itertools.count()
        names = ["note", "note_serializable", "note_in_file"]
        if not url.startswith("sqlite"):
            names += ["note_on_server", "note_awaited"]
        self._maker = Maker(self._chance, names)
        self._tasks: set[asyncio.Task[None]] = set()
        self.started: list[tuple[str, str]] = []
        """Kind and id of every run that was acknowledged."""
        self.waiters: dict[str, asyncio.Task[None]] = {}
        """Who waits for the result of a run, by its id."""
        self.refused = 0
        self._stopping = asyncio.Event()
        self._kinds: dict[str, tuple[Callable[[], Awaitable[None]], int]] = {
            "program": (self._program, 30),
            "awaited": (self._awaited, 4),
            "trip": (self._trip, 10),
            "tour": (self._tour, 2),
            "conversation": (self._conversation, 5),
            "questions": (self._questions, 2),
            "report": (self._report, 3),
            "jobs": (self._jobs, 10),
            "keyed": (self._keyed, 4),
            "debounced": (self._debounced, 3),
            "chain": (self._chain, 3),
            "once": (self._once, 5),
            "joined": (self._joined, 4),
            "evolving": (self._evolving, 3),
            "timed": (self._timed, 3),
            "later": (self._later, 3),
            "unwritten": (self._unwritten, 1),
        }

    # -- going on ------------------------------------------------------------------------------------------------------
    def begin(self) -> None:
        for _ in range(self._pumps):
            self._spawn(self._pump())

    async def stop(self) -> None:
        """Start nothing more. What is under way, a conversation for example, is brought to its end."""
        self._stopping.set()
        while self._tasks:
            done, _ = await asyncio.wait(self._tasks)
            for task in done:
                task.result()

    def _spawn(self, work: Any) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _pump(self) -> None:
        names = list(self._kinds)
        weights = [weight for _, weight in self._kinds.values()]
        while not self._stopping.is_set():
            if self._backlog() < self._most:
                await self._kinds[self._chance.choices(names, weights)[0]][0]()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), self._chance.uniform(0.01, 0.2))

    def _id(self, kind: str) -> str:
        return f"{kind}-{next(self._numbers)}"

    async def _insist(self, work: Callable[[], Awaitable[Any]]) -> Any:
        """As a careful caller does it: again until it is answered."""
        while True:
            try:
                return await work()
            except StoreError:
                self.refused += 1
                await asyncio.sleep(_AGAIN)

    async def _start(self, kind: str, function: Any, *arguments: Any, **options: Any) -> Any:
        run = options.setdefault("id", self._id(kind))
        handle = await self._insist(lambda: function.options(**options).start(*arguments))
        self._promised(kind, run)
        return handle

    def _promised(self, kind: str, run: str, **more: Any) -> None:
        self.started.append((kind, run))
        self._ledger.write("promised", run, kind, **more)

    # -- programs ------------------------------------------------------------------------------------------------------
    async def _program(self) -> None:
        colour = self._maker.colour()
        await self._start("program", programs._flow(colour), self._maker.make(colour))

    async def _awaited(self) -> None:
        """Somebody waits for the result, for as long as it takes."""
        colour = self._maker.colour()
        handle = await self._start("awaited", programs._flow(colour), self._maker.make(colour))
        self.waiters[handle.id] = asyncio.create_task(self._await(handle))

    async def _await(self, handle: Any) -> None:
        async def result() -> Any:
            try:
                return ["succeeded", await handle.result()]
            except StoreError:
                raise
            except RunEnded:
                return ["cancelled", None]
            except Exception:  # noqa: BLE001  (what the run raised)
                return ["failed", None]

        state, value = await self._insist(result)
        self._ledger.write("result", handle.id, state, value=value)

    async def _timed(self) -> None:
        """Its time may be over before it is: the run and its children are cancelled."""
        colour = self._maker.colour()
        await self._start(
            "timed", programs._flow(colour), self._maker.make(colour), timeout=self._chance.uniform(0.2, 2)
        )

    async def _later(self) -> None:
        colour = self._maker.colour()
        after = self._chance.uniform(0.1, 5)
        await self._start("later", programs._flow(colour), self._maker.make(colour), after=after)

    async def _evolving(self) -> None:
        await self._start("evolving", jobs.evolving, self._chance.uniform(0, 3))

    async def _unwritten(self) -> None:
        await self._start("unwritten", talk.nobody_writes)

    # -- undoing -------------------------------------------------------------------------------------------------------
    def _plan(self) -> list[list[Any]]:
        plan: list[list[Any]] = []
        for _ in range(self._chance.randint(1, 4)):
            plan.append([self._chance.choice(["book", "book_blocking"]), self._chance.choice([0, 0.02, 0.2, 0.5])])
            if self._chance.random() < 0.5:
                plan.append(["sleep", self._chance.choice([0.05, 0.3, 1, 2])])
        if self._chance.random() < 0.3:
            plan.append(["fail", None])
        return plan

    async def _trip(self) -> None:
        options: dict[str, Any] = {"timeout": self._chance.uniform(0.3, 2)} if self._chance.random() < 0.2 else {}
        function = self._chance.choice([trips.trip, trips.trip_blocking])
        await self._start("trip", function, self._plan(), **options)

    async def _tour(self) -> None:
        await self._start("tour", trips.tour, [self._plan() for _ in range(self._chance.randint(1, 3))])

    # -- talking -------------------------------------------------------------------------------------------------------
    async def _conversation(self) -> None:
        """A listener, and several senders of different kinds that write to it at once."""
        number = next(self._serial)
        kinds = self._chance.sample(_SENDERS, self._chance.randint(1, 4))
        counts = {kind: 2 * self._chance.randint(1, 4) for kind in kinds}
        total = sum(counts.values())
        listener = f"listener-{number}"
        colour = self._chance.choice(["async", "def", "chapters"])
        if colour == "async":
            await self._start("listener", talk.listener, total, id=listener)
        elif colour == "def":
            await self._start("listener", talk.listener_blocking, total, id=listener)
        else:
            await self._start("listener", talk.reader, total, self._chance.randint(1, 4), [], id=listener)
        self._ledger.write("expects", listener, counts={f"{kind}-{number}": count for kind, count in counts.items()})
        for kind, count in counts.items():
            self._spawn(self._send(kind, f"{kind}-{number}", listener, count))

    async def _send(self, kind: str, name: str, to: str, count: int) -> None:
        if kind == "client":
            for number in range(count):
                value = [name, number]
                await self._insist(partial(app.send, to, talk.POST, value, key=f"{name}.{number}"))
        elif kind == "joined":
            for number in range(count):
                await self._send_joined(name, to, number)
        elif kind == "sender_by_steps":
            await self._start("sender", talk.sender_by_steps, name, to, count // 2, id=name)
        elif kind in {"sender_by_transactions", "elsewhere"}:
            await self._start("sender", talk.sender_by_transactions, name, to, count, kind == "elsewhere", id=name)
        else:
            function = talk.sender if kind == "sender" else talk.sender_blocking
            await self._start("sender", function, name, to, count, id=name)

    async def _send_joined(self, name: str, to: str, number: int) -> None:
        """In a transaction of the client's own, with a key, until it is certain that it was committed."""

        def send(connection: Any) -> None:
            with app.joined(connection):
                app.send.sync(to, talk.POST, [name, number], key=f"{name}.{number}")
            connection.commit()

        while True:
            try:
                await asyncio.to_thread(self._connected, send)
                return
            except (StoreError, sqlite3.Error, psycopg.Error):
                await asyncio.sleep(_AGAIN)

    async def _questions(self) -> None:
        """An oracle that answers for a while, runs that ask it, and a client that does."""
        number = next(self._serial)
        oracle = f"oracle-{number}"
        await self._start("oracle", talk.oracle, self._chance.uniform(1, 4), id=oracle)
        for each in range(self._chance.randint(1, 3)):
            values = [self._chance.randint(-3, 50) for _ in range(self._chance.randint(1, 4))]
            await self._start("asker", talk.asker, oracle, values, id=f"asker-{number}.{each}")
        value = self._chance.randrange(100)
        answer: Any = None
        with contextlib.suppress(MainspringError):
            answer = await app.ask(oracle, talk.double, value, timeout=3)
        self._ledger.write("answer", oracle, str(value), answer=answer)
        await self._insist(lambda: app.send(oracle, "enough", None, key="enough"))

    async def _report(self) -> None:
        """A run that reports, runs that follow its stream, and a client that does."""
        number = next(self._serial)
        reporter = f"reporter-{number}"
        count = self._chance.randint(3, 15)
        function = self._chance.choice([talk.reporter, talk.reporter_blocking])
        await self._start("reporter", function, count, id=reporter)
        for each in range(self._chance.randint(1, 2)):
            await self._start("follower", talk.follower, reporter, id=f"follower-{number}.{each}")
        if self._chance.random() < 0.3:
            self.waiters[reporter] = asyncio.create_task(self._follow(reporter, count))

    async def _follow(self, reporter: str, count: int) -> None:
        read: list[int] = []

        async def follow() -> None:
            async for value in app.read_stream(reporter, talk.LINES, len(read)):
                read.append(value)  # noqa: PERF401  (what was read before an error is not read again)

        await self._insist(follow)
        self._ledger.write("read", reporter, talk.LINES, values=read, count=count)

    # -- queues and keys -----------------------------------------------------------------------------------------------
    async def _jobs(self) -> None:
        """A few jobs of one queue, with priorities and partitions."""
        queue = self._chance.choice([name for name in jobs.LIMITS if name != "probes"])
        for _ in range(self._chance.randint(1, 5)):
            options: dict[str, Any] = {"queue": queue, "priority": self._chance.randint(-2, 2)}
            if queue.startswith("tenants"):
                options["partition"] = self._chance.choice("abc")
            if queue == "retried":
                await self._start("job", jobs.job_retried, self._chance.randint(0, 3), **options)
                continue
            kinds: list[Any] = [jobs.job, jobs.job_blocking]
            if queue in {"three", "serial", "tenants"}:
                kinds.append(jobs.job_in_two_parts)
            await self._start("job", self._chance.choice(kinds), self._chance.choice([0.01, 0.05, 0.2, 0.5]), **options)

    async def _keyed(self) -> None:
        mode = self._chance.choice(_KEY_MODES)
        key = f"{mode} {self._chance.randrange(3)}"
        for _ in range(self._chance.randint(1, 3)):
            await self._ask_for(jobs.keyed, key, mode, key=key, key_mode=mode, after=self._chance.choice([0, 0, 0.5]))

    async def _debounced(self) -> None:
        key = f"quiet {self._chance.randrange(4)}"
        for _ in range(self._chance.randint(1, 5)):
            await self._ask_for(jobs.keyed, key, "debounce", debounce=Debounce(key, wait=0.4, max_wait=2))
            await asyncio.sleep(self._chance.uniform(0, 0.3))

    async def _ask_for(self, function: Any, named: str, mode: str, **options: Any) -> None:
        """Ask for a run with a key, once: the library may make it, change it or refuse."""
        value = next(self._serial)
        self._ledger.write("tries", "", "keyed", key=named, mode=mode, value=value)
        try:
            handle = await function.options(**options).start(value)
        except Conflict:
            self._ledger.write("rejected", "", "keyed", key=named, mode=mode, value=value)
        except StoreError:
            self.refused += 1
        else:
            self._promised("keyed", handle.id, key=named, mode=mode, value=value, created=handle.created)

    # -- functions and transactions ------------------------------------------------------------------------------------
    async def _chain(self) -> None:
        chain, length = self._id("chain"), self._chance.randint(3, 12)
        kind = self._chance.choice(["link", "link_in_file", "link_step"])
        function: Any = getattr(transactions, kind)
        call = function.options(id=chain).bind(chain, 0, length)
        await self._insist(lambda: app.run_after(0, call))
        self._promised("chain", chain, function=kind, length=length)

    async def _once(self) -> None:
        seconds = self._chance.choice([0.02, 0.2, 0.5])
        function = self._chance.choice(
            [transactions.once, transactions.once_blocking, transactions.once_flow, transactions.with_once]
        )
        arguments = [seconds] if function in {transactions.once_flow, transactions.with_once} else ["once", seconds]
        await self._start("once", function, *arguments)

    async def _joined(self) -> None:
        """A start, a row and a message in a transaction of the client's own: all of it or nothing."""
        run, listener = self._id("joined"), self._id("joined-unwritten")
        commit = self._chance.random() < 0.7
        await self._start("unwritten", talk.nobody_writes, id=listener)

        def work(connection: Any) -> None:
            mark = "?" if self._url.startswith("sqlite") else "%s"
            with app.joined(connection):
                connection.execute(f"INSERT INTO soak_joined (run, listener) VALUES ({mark}, {mark})", (run, listener))
                jobs.job.options(id=run).start.sync(0.01)
                app.send.sync(listener, "at last", f"by {run}")
            if commit:
                connection.commit()
            else:
                connection.rollback()

        self._ledger.write("tries", run, "joined", listener=listener)
        try:
            await asyncio.to_thread(self._connected, work)
        except (StoreError, sqlite3.Error, psycopg.Error) as error:
            self._ledger.write("unknown", run, "joined", error=f"{type(error).__name__}: {error}")
        else:
            self._ledger.write("committed" if commit else "rolled back", run, "joined")

    def _connected(self, work: Callable[[Any], None]) -> None:
        """Do something with a connection of the client's own."""
        if self._url.startswith("sqlite"):
            with contextlib.closing(sqlite3.connect(sqlite_path(self._url), timeout=30)) as connection:
                work(connection)
        else:
            with contextlib.closing(psycopg.connect(self._url, connect_timeout=5)) as connection:
                work(connection)
