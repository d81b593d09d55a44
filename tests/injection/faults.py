"""What happens to the first life of a case, when its point is reached: the actions of injections, and every call of its store."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING, Any

from mainspring.errors import Conflict, StoreUnavailable
from mainspring.model.states import State
from mainspring.store.verbs.fork import Fork
from mainspring.store.verbs.manage import Move
from tests.injection.seams import lost_signal

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainspring.model.runs import Step
    from mainspring.store.protocol import Store
    from tests.injection.databases import Database
    from tests.injection.loop import CountingLoop
    from tests.injection.record import Record
    from tests.injection.scene import Caller
    from tests.injection.seams import LifeOf
    from tests.injection.threads import Turns

    Act = Callable[[Store, list[str], int], dict[str, bool]]

SLOW = 0.06
"""Virtual seconds that a slow call takes: longer than a step."""
_HELD = 0.001
"""Virtual seconds that a call takes at which something happens: long enough for the rest of the process to feel it."""
_BREAKING = 0.005
"""Virtual seconds until a connection is known to be broken."""
FORKED = "fork-"
"""What the ids of forks begin with."""
_STORM = 20.0
_UNLUCKY = 0.3


class Faults:
    """Makes the calls of all stores of a case, and makes happen what the injection says."""

    def __init__(self, record: Record, turns: Turns, database: Database) -> None:
        self.record = record
        self.turns = turns
        self.database = database
        self.operators: list[threading.Thread] = []
        """Operators who act in threads of their own."""
        self.loop: CountingLoop
        self.life: LifeOf | None = None
        """The first life; None before it has begun and when it is over."""
        self.news = asyncio.Event()
        self.leave = False
        """The first life is to be left in an orderly way."""
        self.taken_over = False
        """Its worker was declared dead."""
        self.driving: asyncio.Task[None] | None = None
        self.caller: Caller | None = None
        self._failing: dict[str, int] = {}
        self._stormy = False

    def fire(self) -> None:
        """The point is reached."""
        record = self.record
        if not record.hit and self.life is not None:
            record.hit, record.hit_at = True, self.turns.now
            record.injection.act(self, record.point)

    def later(self, turns: int, work: Callable[[], None]) -> None:
        """Do something so many iterations of the loop from now."""
        self.loop.call_soon_threadsafe(self.loop.in_turns, turns, work)

    def _tell(self) -> None:
        self.loop.call_soon_threadsafe(self.news.set)

    # -- actions -------------------------------------------------------------------------------------------------------
    def kill(self) -> None:
        """The process is gone: nothing that it does from now on has an effect."""
        life = self.life
        if life is None or life.dead:
            return
        for run_id in self.record.shape.interrupted if life.connected else ():
            self.record.at_death[run_id] = _is_recorded(life.inner.steps(run_id))
        life.dead = True
        self._tell()

    def kill_soon(self) -> None:
        """The process is gone in the middle of a call that takes long."""
        self.loop.call_soon_threadsafe(self.loop.call_later, SLOW / 2, self.kill)

    def stop(self) -> None:
        """The app is left, as at the end of `async with app`."""
        self.leave = True
        self._tell()

    def take_over(self) -> None:
        """Another worker declares this one dead."""
        if self.life is not None and self.life.connected and not self.taken_over:
            self.life.declare_dead()
            self.taken_over = True
            self._tell()

    def cancel(self) -> None:
        self._end_runs("cancel")

    def terminate(self) -> None:
        self._end_runs("terminate")

    def _end_runs(self, verb: str) -> None:
        stopped = self.record.stopped
        self._operate(
            lambda store, there, now: getattr(store, verb)(there, "asked", now),
            lambda done: stopped.update({run_id: was or stopped.get(run_id, False) for run_id, was in done.items()}),
        )

    def resume(self) -> None:
        """An operator lets the runs go on that were cancelled or terminated. Those that had not begun are to begin now."""
        self._let_go_on(lambda store, there, now: store.management.resume(there, now))
        self.reschedule()

    def complete(self) -> None:
        """An operator ends the runs that no worker owns."""
        self._end_unowned(
            lambda store, there, now: store.management.complete(there, lambda _: "7", "asked", now), State.SUCCEEDED
        )

    def fail(self) -> None:
        """The same, as failed."""
        self._end_unowned(lambda store, there, now: store.management.fail(there, "asked", now), State.FAILED)

    def _end_unowned(self, act: Act, state: State) -> None:
        self._operate(
            act, lambda done: self.record.operated.update({run_id: state for run_id, was in done.items() if was})
        )

    def reschedule(self) -> None:
        """An operator moves the runs that have not begun, and retries those that have failed."""
        self._let_go_on(lambda store, there, now: store.management.reschedule(there, Move(due=now), now))

    def retry(self) -> None:
        """An operator retries the runs that have failed."""
        self._let_go_on(lambda store, there, now: store.management.retry(there, now))

    def delete(self) -> None:
        """An operator deletes the runs that have ended, with their children."""

        def act(store: Store, there: list[str], now: int) -> dict[str, bool]:
            rows = [store.run(run_id) for run_id in there]
            try:
                return store.management.delete([row.id for row in rows if row is not None and row.state.ended], now)
            except Conflict:  # a child has not ended
                return {}

        self._operate(act, lambda done: self.record.deleted.update(run_id for run_id, was in done.items() if was))

    def fork(self) -> None:
        """An operator begins the runs once more, each as a run of its own that begins before the last thing recorded."""

        def act(store: Store, there: list[str], now: int) -> dict[str, bool]:
            forks = [Fork(run_id, f"{FORKED}{run_id}", f"{FORKED}{run_id}", after_failure=True) for run_id in there]
            store.management.fork(forks, now)
            return dict.fromkeys(there, True)

        self._operate(act, self.record.forked.update)

    def _let_go_on(self, act: Act) -> None:
        self._operate(act, lambda done: self.record.resumed.update(run_id for run_id, was in done.items() if was))

    def _operate(self, act: Act, note: Callable[[dict[str, bool]], None]) -> None:
        """Do something to the runs of the shape, and note which of them were changed by it.

        On the loop, where a coroutine may hold a transaction of PostgreSQL for which the operator has to wait, it is done by a thread.
        """
        if self.life is None or not self.life.connected:
            return
        now = self.life.now()
        if self.database.kind != "postgres" or not self._on_loop():
            note(self._done_to(self.life.inner, act, now))
            return
        before = self.operators[-1] if self.operators else None

        def operate() -> None:
            if before is not None:
                before.join()
            with self.database.reading() as store:
                note(self._done_to(store, act, now))

        self.operators.append(threading.Thread(target=operate, name="operator"))
        self.operators[-1].start()

    def _done_to(self, store: Store, act: Act, now: int) -> dict[str, bool]:
        there = [run_id for run_id in self.record.shape.main if store.run(run_id) is not None]
        return act(store, there, now) if there else {}

    def _on_loop(self) -> bool:
        with contextlib.suppress(RuntimeError):
            return asyncio.get_running_loop() is self.loop
        return False

    def drop(self) -> None:
        """The caller is cancelled in the middle of whatever it awaits; another one goes on with the next thing."""
        if self.driving is not None and self.caller is not None and not self.driving.done():
            if self.caller.under_way is not None:
                self.record.dropped.append(self.caller.under_way)
            self.driving.cancel()

    def fail_commits(self) -> None:
        """The database does not take the next two batches of writes."""
        self._failing["apply"] = 2

    def fail_at_random(self) -> None:
        """From here on some of all calls fail, for a while."""
        self._stormy = True

    # -- calls ---------------------------------------------------------------------------------------------------------
    def call(self, life: LifeOf, verb: str, work: Callable[[], Any]) -> Any:
        """Make a call of a store: before and after it are points."""
        number = self._before(life, verb)
        answer = work()
        self._after(life, verb, number)
        return answer

    async def acall(self, life: LifeOf, verb: str, work: Callable[[], Any]) -> Any:
        """The same for one that is awaited."""
        number = self._before(life, verb)
        answer = await work()
        self._after(life, verb, number)
        return answer

    def _before(self, life: LifeOf, verb: str) -> int:
        self.record.verbs.add(verb)
        if life is not self.life:
            _refuse_dead(life)
            return 0
        self.record.calls.append(verb)
        number = len(self.record.calls)
        if self._is("before", number):
            self.fire()
            self._take(_HELD if self.record.injection.holds else 0)
        if self._is("slow", number):
            self.fire()
            self._take(SLOW)
        _refuse_dead(life)
        if self._is("away", number):
            self._failing[verb] = 2
            self.fire()
        self._perhaps_fail(verb)
        return number

    def _perhaps_fail(self, verb: str) -> None:
        chance = self.turns.chance
        unlucky = self._stormy and chance is not None and self.turns.now < _STORM and chance.random() < _UNLUCKY
        if unlucky or self._failing.get(verb):
            self._failing[verb] = max(self._failing.get(verb, 0) - 1, 0)
            self._take(_BREAKING)
            raise StoreUnavailable(f"{verb}: the database is away")

    def _after(self, life: LifeOf, verb: str, number: int) -> None:
        if self._is("after", number):
            self.fire()
            self._take(_HELD if self.record.injection.holds else 0)
        if self._is("lost", number):
            self.fire()
            lost_signal(life)
            raise StoreUnavailable(f"{verb}: the answer was lost")
        _refuse_dead(life)

    def _is(self, kind: str, number: int) -> bool:
        point = self.record.point
        return point.kind == kind and point.number == number

    def _take(self, seconds: float) -> None:
        """Let a call take a while. On the loop it cannot: nothing else would go on meanwhile."""
        if seconds and not self._on_loop():
            self.turns.sleep(seconds)


def _refuse_dead(life: LifeOf) -> None:
    if life.dead:
        raise StoreUnavailable("this process is dead")


def _is_recorded(steps: list[Step]) -> bool:
    """Whether what a run has begun is recorded: it has outcomes, and no step that was begun has none."""
    under_way = any(step.completed is None and step.kind == "step" for step in steps)
    return not under_way and any(step.completed is not None for step in steps)
