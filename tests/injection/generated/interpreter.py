"""Workflows that execute a program, `async def` and `def`. Each node returns a value of JSON, which `judge.py` compares with the program."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from mainspring import Debounce, Question, Retry, Tx, run
from mainspring.errors import Interrupted, NotAnswered, RunCancelled
from tests.injection.scene import Expected
from tests.injection.seams import is_unwinding, scope_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from tests.injection.generated.program import Node, Program
    from tests.injection.scene import Scene

NEVER = "never"
DISMISSED = "dismissed"
"""The answer of a servant that an earlier attempt of the run has stopped, in a `finally:`."""
TOPIC = "m"
TABLE = "CREATE TABLE IF NOT EXISTS mine (what TEXT)"
_ADD = "INSERT INTO mine VALUES (?)"
_ALL = "SELECT what FROM mine ORDER BY what"
_double = Question("double", int, int)
_QUEUE = "narrow"
_CAUGHT = (Expected, ExceptionGroup, RunCancelled)


class Flaky(Exception):
    """What fails in the first attempts of a run."""


class Functions:
    """The functions of an app that execute a program."""

    def __init__(self, scene: Scene, program: Program) -> None:
        self.scene = scene
        self.program = program
        self._make_steps(scene)
        self._make_more_steps(scene)
        self._make_transactions(scene)
        app = scene.app
        app.queue(_QUEUE, concurrency=1)
        attempts = Retry(12, first=0.1) if program.retried else None

        @app.workflow
        async def servant() -> str:
            async def double(number: int) -> int:
                return number * 2

            run.answer(_double, double)
            await run.receive("stop", timeout=40)
            return "served"

        self.servant = servant
        if program.blocking:

            @app.workflow(retry=attempts)
            def child(number: int) -> Any:
                return BlockingWalk(self, 0).go(program.find(number))

            @app.workflow(retry=attempts)
            def work(generation: int = 0) -> Any:
                found = BlockingWalk(self, generation).go(program.generations[generation])
                if generation + 1 < len(program.generations):
                    run.continue_as.sync(generation + 1)
                return found

            self.child, self.work = child, work
        else:

            @app.workflow(retry=attempts)
            async def child_async(number: int) -> Any:
                return await Walk(self, 0).go(program.find(number))

            @app.workflow(retry=attempts)
            async def work_async(generation: int = 0) -> Any:
                found = await Walk(self, generation).go(program.generations[generation])
                if generation + 1 < len(program.generations):
                    await run.continue_as(generation + 1)
                return found

            self.child, self.work = child_async, work_async

    def _make_steps(self, s: Scene) -> None:
        def judge(label: str, fails: int, raises: bool) -> str:
            if run.attempt <= fails:
                raise ConnectionError(label)
            if raises:
                raise Expected(label)
            return label

        @s.app.step(retry=Retry(4, first=0.1, on=(ConnectionError,)))
        async def note(label: str, seconds: float, fails: int = 0, raises: bool = False) -> str:
            await s.effect(label, seconds)
            return judge(label, fails, raises)

        @s.app.step(retry=Retry(4, first=0.1, on=(ConnectionError,)))
        def note_blocking(label: str, seconds: float, fails: int = 0, raises: bool = False) -> str:
            s.effect_blocking(label, seconds)
            return judge(label, fails, raises)

        @s.app.step(at_most_once=True)
        async def once(label: str, seconds: float) -> str:
            return await s.effect(label, seconds)

        @s.app.step(at_most_once=True)
        def once_blocking(label: str, seconds: float) -> str:
            return s.effect_blocking(label, seconds)

        async def named(label: str, seconds: float, fails: int, raises: bool) -> str:
            await s.effect(label, seconds)
            return judge(label, fails, raises)

        self.note, self.note_blocking, self.once, self.once_blocking, self.named = (
            note,
            note_blocking,
            once,
            once_blocking,
            named,
        )

    def _make_more_steps(self, s: Scene) -> None:
        @s.app.step
        async def flaky(label: str, fails: bool) -> str:
            await s.effect(label)
            if fails:
                raise Flaky(label)
            return label

        @s.app.step
        def flaky_blocking(label: str, fails: bool) -> str:
            s.effect_blocking(label)
            if fails:
                raise Flaky(label)
            return label

        @s.app.step(batch=3)
        async def batched(places: list[tuple[str, str]]) -> list[str]:
            return await s.effects(places)

        self.flaky, self.flaky_blocking, self.batched = flaky, flaky_blocking, batched

    def _make_transactions(self, s: Scene) -> None:
        @s.app.transaction
        def save(tx: Tx, label: str, fails: bool = False) -> str:
            tx.execute(_ADD, (f"{run.id} {label}",))
            if fails:
                raise Flaky(label)
            return label

        @s.app.transaction
        def save_nested(tx: Tx, label: str) -> str:
            with contextlib.suppress(Flaky):
                save(f"{label} rolled back", fails=True)
            tx.execute(_ADD, (f"{run.id} {label}",))
            return label

        @s.app.transaction
        def save_and_send(tx: Tx, label: str, to: str, topic: str) -> str:
            tx.execute(_ADD, (f"{run.id} {label}",))
            s.app.send.sync(to, topic, label)
            return label

        @s.app.transaction(database=s.elsewhere)
        def save_elsewhere(tx: Tx, label: str) -> str:
            tx.execute(_ADD, (f"{run.id} {label}",))
            return label

        @s.app.transaction(database=s.elsewhere)
        def rows_elsewhere(tx: Tx) -> list[str]:
            return [row[0] for row in tx.execute(_ALL).fetchall()]

        @s.app.transaction(database=s.elsewhere)
        def prepare_elsewhere(tx: Tx) -> None:
            tx.execute(TABLE)

        self.save_nested, self.save_and_send, self.save_elsewhere = save_nested, save_and_send, save_elsewhere
        self.rows_elsewhere, self.prepare_elsewhere = rows_elsewhere, prepare_elsewhere
        self.save_async = _async_transaction(s) if s.database == "postgres" else None

        @s.app.transaction
        def rows(tx: Tx) -> list[str]:
            return [row[0] for row in tx.execute(_ALL).fetchall()]

        @s.app.transaction
        def prepare(tx: Tx) -> None:
            tx.execute(TABLE)

        self.save, self.rows, self.prepare = save, rows, prepare


def _async_transaction(s: Scene) -> Any:
    import psycopg  # noqa: PLC0415, TC002  (its annotation says what is wanted)

    @s.app.transaction
    async def save_async(connection: psycopg.AsyncConnection[Any], label: str) -> str:
        await connection.execute("INSERT INTO mine VALUES (%s)", (f"{run.id} {label}",))
        return label

    return save_async


class _Walk:
    """One execution of one tree. What its code gets to see is noted, in order: a replay must see the same."""

    def __init__(self, functions: Functions, generation: int) -> None:
        self._functions = functions
        self._scene = functions.scene
        self._app = functions.scene.app
        self._generation = generation
        self._seen = self._scene.new_trace(f"{run.id} {generation} {run.attempt}")

    def _label(self, node: Node) -> str:
        return f"{self._generation}.{node.number}"

    def _see(self, node: Node, value: Any) -> Any:
        if not is_unwinding() and not self._scene.life.dead:
            self._seen.append((node.number, value, run.now().timestamp()))
        return value


class Walk(_Walk):
    """In an `async def` workflow."""

    async def go(self, node: Node) -> Any:
        do: Callable[[Node], Awaitable[Any]] = getattr(self, f"_{node.kind}")
        return await do(node)

    async def _seq(self, node: Node) -> Any:
        return [await self.go(part) for part in node.parts]

    # -- leaves --------------------------------------------------------------------------------------------------------
    async def _step(self, node: Node) -> Any:
        label, given, of = self._label(node), node.given, self._functions
        for _ in range(given.get("spins", 0)):
            await asyncio.sleep(0)
        fails, raises, seconds = given.get("fails", 0), given.get("raises", False), given["seconds"]
        try:
            if given["how"] == "once":
                found = await of.once(label, seconds)
            elif given["how"] == "def":
                found = await of.note_blocking.aio(label, seconds, fails, raises)
            elif given["how"] == "named":
                retrying = run.step.options(retry=Retry(4, first=0.1, on=(ConnectionError,)))
                found = await retrying("named", of.named, label, seconds, fails, raises)
            else:
                found = await of.note(label, seconds, fails, raises)
        except Interrupted:
            return self._see(node, "interrupted")
        except Expected:
            self._see(node, "raised")
            raise
        return self._see(node, found)

    async def _sleep(self, node: Node) -> Any:
        await run.sleep(node.given["seconds"])
        return self._see(node, "slept")

    async def _receive(self, node: Node) -> Any:
        return self._see(node, await run.receive(TOPIC, timeout=node.given["timeout"]))

    async def _never(self, node: Node) -> Any:
        if node.given["how"] == "sleep":
            await run.sleep(100_000)
        elif node.given["how"] == "event":
            await self._app.get_event(run.id, NEVER)
        else:
            await run.receive(NEVER)
        return self._see(node, NEVER)

    async def _set_event(self, node: Node) -> Any:
        await run.set_event(self._label(node), node.number)
        return self._see(node, await self._app.get_event(run.id, self._label(node)))

    async def _stream(self, node: Node) -> Any:
        await run.write_stream("s", node.number)
        return self._see(node, node.number)

    async def _patched(self, node: Node) -> Any:
        return self._see(node, run.patched(f"p{node.number}"))

    async def _draw(self, node: Node) -> Any:
        self._see(node, [run.random().random(), str(run.uuid())])
        return "drawn"

    async def _look(self, node: Node) -> Any:
        found = await self._app.handle(run.id).describe()
        return self._see(node, found.id == run.id)

    async def _transaction(self, node: Node) -> Any:
        how, of, label = node.given["how"], self._functions, self._label(node)
        if how == "sends":
            topic = f"sent {node.number}"
            found = await of.save_and_send.aio(label, run.id, topic)
            return self._see(node, found if await run.receive(topic) == found else "another message")
        if how == "async" and of.save_async is not None:
            return self._see(node, await of.save_async(label))
        save = {"elsewhere": of.save_elsewhere, "nested": of.save_nested}.get(how, of.save)
        return self._see(node, await save.aio(label))

    async def _batch(self, node: Node) -> Any:
        return self._see(node, await self._functions.batched((run.id, self._label(node))))

    async def _flaky(self, node: Node) -> Any:
        how, of, label, fails = node.given["how"], self._functions, self._label(node), run.attempt < node.given["until"]
        if how == "async":
            return self._see(node, await of.flaky(label, fails))
        if how == "def":
            return self._see(node, await of.flaky_blocking.aio(label, fails))
        if how == "transaction":
            return self._see(node, await of.save.aio(label, fails))
        if fails:
            raise Flaky(label)
        return self._see(node, label)

    async def _ask(self, node: Node) -> Any:
        handle = await self._functions.servant.start()
        try:
            answer: int | str = await self._app.ask(handle.id, _double, node.number)
        except NotAnswered:
            # A retry keeps the start of the servant, and the last attempt may have dismissed it.
            if not self._functions.program.retried:
                raise
            answer = DISMISSED
        finally:
            await self._app.send(handle.id, "stop", None)
        return self._see(node, [answer, await handle.result()])

    async def _post(self, node: Node) -> Any:
        await self._app.send(run.id, f"own {node.number}", node.number)
        return self._see(node, await run.receive(f"own {node.number}"))

    # -- branches ------------------------------------------------------------------------------------------------------
    async def _gather(self, node: Node) -> Any:
        how = node.given["how"]
        if how == "group":
            return await self._grouped(*(self.go(part) for part in node.parts))
        if how == "locked":
            lock = asyncio.Lock()

            async def locked(part: Node) -> Any:
                async with lock:
                    self._see(part, "locked")
                    return await self.go(part)

            return list(await asyncio.gather(*(locked(part) for part in node.parts)))
        if how == "completed":

            async def named(number: int, part: Node) -> Any:
                return number, await self.go(part)

            found = [None] * len(node.parts)
            for each in asyncio.as_completed([named(number, part) for number, part in enumerate(node.parts)]):
                number, value = await each
                self._see(node, number)
                found[number] = value
            return found
        return list(await asyncio.gather(*(self.go(part) for part in node.parts)))

    @staticmethod
    async def _grouped(*works: Coroutine[Any, Any, Any]) -> list[Any]:
        here = asyncio.current_task()
        assert here is not None  # it is awaited
        before = here.cancelling()
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(work) for work in works]
        except ExceptionGroup:
            while here.cancelling() > before:
                here.uncancel()  # a group of Python before 3.13 may forget to, and then no timeout around it ends as one
            raise
        return [task.result() for task in tasks]

    async def _race(self, node: Node) -> Any:
        tasks = [asyncio.create_task(self.go(part)) for part in node.parts]
        try:
            done, rest = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            if node.given["tidy"]:
                await self._called_off(tasks)
            raise
        winners = [number for number, task in enumerate(tasks) if task in done]
        self._see(node, winners)
        await self._called_off([task for task in tasks if task in rest])
        return [winners, [tasks[number].result() for number in winners]]

    async def _called_off(self, tasks: list[asyncio.Task[Any]]) -> None:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _spawn_cancel(self, node: Node) -> Any:
        task = asyncio.create_task(self.go(node.parts[0]))
        try:
            found = await self.go(node.parts[1])
        finally:
            await self._called_off([task])
        if task.cancelled():
            how: Any = "cancelled"
        else:
            how = "failed" if task.exception() is not None else ["done", task.result()]
        self._see(node, how)
        return [found, how]

    async def _spawn_join(self, node: Node) -> Any:
        task = asyncio.create_task(self.go(node.parts[0]))
        try:
            found = await self.go(node.parts[1])
        except BaseException:
            await self._called_off([task])
            raise
        return [await task, found]

    async def _shield(self, node: Node) -> Any:
        task = asyncio.create_task(self.go(node.parts[0]))
        how = "in time"
        try:
            async with run.timeout(node.given["seconds"]):
                await asyncio.shield(task)
        except TimeoutError:
            how = "timed out"
        self._see(node, how)
        return [how, await task]

    def _channel(self, node: Node) -> tuple[Callable[[Any], Awaitable[None]], Callable[[], Awaitable[Any]]]:
        """What passes from one branch to another."""
        if node.given["how"] == "queue":
            queue: asyncio.Queue[Any] = asyncio.Queue()
            return queue.put, queue.get
        there, topic = asyncio.Event(), f"hand over {node.number}"

        async def put(_: Any) -> None:
            if node.given["how"] == "message":
                await self._app.send(run.id, topic, node.number)
            there.set()

        async def get() -> Any:
            return await (run.receive(topic) if node.given["how"] == "message" else there.wait())

        return put, get

    async def _hand_over(self, node: Node) -> Any:
        put, get = self._channel(node)

        async def give() -> Any:
            found = await self.go(node.parts[0])
            await put(node.number)
            return found

        async def take() -> Any:
            self._see(node, await get())
            return await self.go(node.parts[1])

        if node.given["how"] == "message":
            return list(await asyncio.gather(give(), take()))
        return await self._grouped(give(), take())

    # -- what ends otherwise -------------------------------------------------------------------------------------------
    async def _timeout(self, node: Node) -> Any:
        try:
            async with run.timeout(node.given["seconds"]):
                return ["in time", await self.go(node.parts[0])]
        except TimeoutError:
            return self._see(node, ["timed out", None])

    async def _try(self, node: Node) -> Any:
        try:
            return ["body", await self.go(node.parts[0])]
        except _CAUGHT:
            return ["caught", await self.go(node.parts[1])]
        finally:
            if len(node.parts) > 2:
                await self.go(node.parts[2])

    async def _swallow(self, node: Node) -> Any:
        try:
            return ["body", await self.go(node.parts[0])]
        except asyncio.CancelledError:
            found = await self.go(node.parts[1])
            if node.given["again"]:
                raise
            return ["cancelled", found]

    async def _undo(self, node: Node) -> Any:
        of, label, seconds = self._functions, self._label(node), node.given["seconds"]
        try:
            async with run.undo() as undo:
                self._scene.ledger.scopes[run.id, label] = scope_of(undo)
                await of.note(f"{label} done", seconds)
                self._see(node, "done")
                undo.push(of.note.bind(f"{label} undone", seconds))
                found = await self.go(node.parts[0])
                if node.given["fails"]:
                    raise Expected(label)
        except _CAUGHT:
            return ["undone", self._see(node, "undone")]
        return ["well", found]

    # -- other runs ----------------------------------------------------------------------------------------------------
    async def _called(self, node: Node) -> Any:
        child = self._functions.child.options(queue=_QUEUE) if node.given["queued"] else self._functions.child
        return self._see(node, await child(node.parts[0].number))

    async def _debounced(self, node: Node) -> Any:
        debounce = Debounce(f"{run.id} {self._label(node)}", wait=node.given["seconds"])
        child = self._functions.child.options(debounce=debounce)
        handle = await child.start(node.parts[0].number)
        for _ in range(node.given["times"] - 1):
            handle = await child.start(node.parts[0].number)
        return self._see(node, await handle.result())

    async def _later(self, node: Node) -> Any:
        handle = await self._functions.child.start(node.parts[0].number)
        found = await self.go(node.parts[1])
        return [self._see(node, await handle.result()), found]

    async def _child_cancel(self, node: Node) -> Any:
        handle = await self._functions.child.start(node.parts[0].number)
        found = await self.go(node.parts[1])
        await handle.cancel("enough")
        how: Any = "cancelled"
        with contextlib.suppress(RunCancelled):
            how = ["done", await handle.result()]
        self._see(node, how)
        return [how, found]

    async def _children(self, node: Node) -> Any:
        child = self._functions.child
        if node.given["how"] == "many":
            handles = await self._app.start_many([child.bind(part.number) for part in node.parts])
        else:
            handles = [await child.start(part.number) for part in node.parts]
        if node.given["how"] != "first":
            return self._see(node, list(await self._app.gather(*handles)))
        first = await self._app.first(*handles)
        number = [handle.id for handle in handles].index(first.id)
        self._see(node, number)
        for handle in handles:
            if handle is not first:
                await handle.cancel()
        return [number, await first.result()]


class BlockingWalk(_Walk):
    """In a `def` workflow, which has one branch."""

    def go(self, node: Node) -> Any:
        do: Callable[[Node], Any] = getattr(self, f"_{node.kind}")
        return do(node)

    def _seq(self, node: Node) -> Any:
        return [self.go(part) for part in node.parts]

    def _step(self, node: Node) -> Any:
        label, given, of = self._label(node), node.given, self._functions
        fails, raises, seconds = given.get("fails", 0), given.get("raises", False), given["seconds"]
        try:
            if given["how"] == "once":
                found = of.once_blocking(label, seconds)
            elif given["how"] == "async":
                found = of.note.sync(label, seconds, fails, raises)
            else:
                found = of.note_blocking(label, seconds, fails, raises)
        except Interrupted:
            return self._see(node, "interrupted")
        except Expected:
            self._see(node, "raised")
            raise
        return self._see(node, found)

    def _sleep(self, node: Node) -> Any:
        run.sleep.sync(node.given["seconds"])
        return self._see(node, "slept")

    def _receive(self, node: Node) -> Any:
        return self._see(node, run.receive.sync(TOPIC, timeout=node.given["timeout"]))

    def _set_event(self, node: Node) -> Any:
        run.set_event.sync(self._label(node), node.number)
        return self._see(node, self._app.get_event.sync(run.id, self._label(node)))

    def _stream(self, node: Node) -> Any:
        run.write_stream.sync("s", node.number)
        return self._see(node, node.number)

    def _patched(self, node: Node) -> Any:
        return self._see(node, run.patched(f"p{node.number}"))

    def _draw(self, node: Node) -> Any:
        self._see(node, [run.random().random(), str(run.uuid())])
        return "drawn"

    def _look(self, node: Node) -> Any:
        return self._see(node, self._app.handle(run.id).describe.sync().id == run.id)

    def _transaction(self, node: Node) -> Any:
        how, of, label = node.given["how"], self._functions, self._label(node)
        if how == "sends":
            topic = f"sent {node.number}"
            found = of.save_and_send(label, run.id, topic)
            return self._see(node, found if run.receive.sync(topic) == found else "another message")
        save = {"elsewhere": of.save_elsewhere, "nested": of.save_nested}.get(how, of.save)
        return self._see(node, save(label))

    def _batch(self, node: Node) -> Any:
        return self._see(node, self._functions.batched.sync((run.id, self._label(node))))

    def _flaky(self, node: Node) -> Any:
        how, of, label, fails = node.given["how"], self._functions, self._label(node), run.attempt < node.given["until"]
        if how in {"async", "def"}:
            return self._see(node, of.flaky_blocking(label, fails))
        if how == "transaction":
            return self._see(node, of.save(label, fails))
        if fails:
            raise Flaky(label)
        return self._see(node, label)

    def _ask(self, node: Node) -> Any:
        handle = self._functions.servant.start.sync()
        answer = self._app.ask.sync(handle.id, _double, node.number)
        self._app.send.sync(handle.id, "stop", None)
        return self._see(node, [answer, handle.result.sync()])

    def _post(self, node: Node) -> Any:
        self._app.send.sync(run.id, f"own {node.number}", node.number)
        return self._see(node, run.receive.sync(f"own {node.number}"))

    def _try(self, node: Node) -> Any:
        try:
            return ["body", self.go(node.parts[0])]
        except _CAUGHT:
            return ["caught", self.go(node.parts[1])]
        finally:
            if len(node.parts) > 2:
                self.go(node.parts[2])

    def _undo(self, node: Node) -> Any:
        of, label, seconds = self._functions, self._label(node), node.given["seconds"]
        try:
            with run.undo() as undo:
                self._scene.ledger.scopes[run.id, label] = scope_of(undo)
                of.note_blocking(f"{label} done", seconds)
                self._see(node, "done")
                undo.push(of.note_blocking.bind(f"{label} undone", seconds))
                found = self.go(node.parts[0])
                if node.given["fails"]:
                    raise Expected(label)
        except _CAUGHT:
            return ["undone", self._see(node, "undone")]
        return ["well", found]

    def _called(self, node: Node) -> Any:
        child = self._functions.child.options(queue=_QUEUE) if node.given["queued"] else self._functions.child
        return self._see(node, child(node.parts[0].number))

    def _debounced(self, node: Node) -> Any:
        debounce = Debounce(f"{run.id} {self._label(node)}", wait=node.given["seconds"])
        child = self._functions.child.options(debounce=debounce)
        handle = child.start.sync(node.parts[0].number)
        for _ in range(node.given["times"] - 1):
            handle = child.start.sync(node.parts[0].number)
        return self._see(node, handle.result.sync())

    def _later(self, node: Node) -> Any:
        handle = self._functions.child.start.sync(node.parts[0].number)
        found = self.go(node.parts[1])
        return [self._see(node, handle.result.sync()), found]

    def _child_cancel(self, node: Node) -> Any:
        handle = self._functions.child.start.sync(node.parts[0].number)
        found = self.go(node.parts[1])
        handle.cancel.sync("enough")
        how: Any = "cancelled"
        with contextlib.suppress(RunCancelled):
            how = ["done", handle.result.sync()]
        self._see(node, how)
        return [how, found]

    def _children(self, node: Node) -> Any:
        child = self._functions.child
        if node.given["how"] == "many":
            handles = self._app.start_many.sync([child.bind(part.number) for part in node.parts])
        else:
            handles = [child.start.sync(part.number) for part in node.parts]
        if node.given["how"] != "first":
            return self._see(node, list(self._app.gather.sync(*handles)))
        first = self._app.first.sync(*handles)
        number = [handle.id for handle in handles].index(first.id)
        self._see(node, number)
        for handle in handles:
            if handle is not first:
                handle.cancel.sync()
        return [number, first.result.sync()]
