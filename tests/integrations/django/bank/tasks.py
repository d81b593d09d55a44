"""Tasks and workflows, found by the worker."""

from __future__ import annotations

import asyncio
import sqlite3
from typing import Any

import psycopg
from django.db import OperationalError, connection, transaction

from mainspring import Retry, Tx, run
from mainspring.integrations.django import app
from mainspring.integrations.django.compat import TaskContext  # noqa: TC001  (Django reads annotations)
from tests.integrations.django.bank.models import Entry
from tests.integrations.django.decorator import durable, task

app.queue("limited", concurrency=1, retry=Retry(3, first=0))


class Broken(Exception):
    """What goes wrong here."""


@task
def add(a: int, b: int) -> int:
    return a + b


@task
async def aadd(a: int, b: int) -> int:
    await asyncio.sleep(0)
    return a + b


@task
def note(text: str, amount: int = 0) -> int:
    return int(Entry.objects.create(text=text, amount=amount).pk)


@task
def fail(text: str) -> None:
    raise Broken(text)


@task
def leave() -> None:
    raise SystemExit("leaving")


@task
def unreadable() -> Any:
    return object()


@task(takes_context=True)
def who(context: TaskContext[..., Any]) -> dict[str, Any]:
    result = context.task_result
    return {"id": result.id, "attempt": context.attempt, "status": str(result.status), "args": result.args}


@task(queue_name="limited", takes_context=True)
def third_time(context: TaskContext[..., Any]) -> str:
    if context.attempt < 3:
        raise Broken(f"attempt {context.attempt}")
    return f"attempt {context.attempt}"


@durable(retry=Retry(2, first=0), timeout="10m")
def twice() -> None:
    raise Broken("twice")


@task(queue_name="limited")
def slow(name: str) -> None:
    order.append(name)


order: list[str] = []


@task
def enqueues(text: str) -> str:
    with transaction.atomic():
        Entry.objects.create(text=text)
        return note.enqueue(f"after {text}").id


@app.atomic
def book(text: str, amount: int) -> int:
    """Writes with the ORM, and starts what belongs to it."""
    entry = Entry.objects.create(text=text, amount=amount)
    note.enqueue(f"booked {text}")
    if amount < 0:
        raise Broken(text)
    return int(entry.pk)


@app.atomic
def marked(text: str) -> None:
    Entry.objects.create(text=text)
    transaction.set_rollback(True)


@app.transaction
def wrong(tx: Tx) -> int:
    return Entry.objects.count()


@app.step
def count() -> int:
    return Entry.objects.count()


@app.step
async def acount() -> int:
    return await Entry.objects.acount()


@app.workflow
async def transfer(text: str, amount: int) -> dict[str, int]:
    before = await count.aio()
    pk = await book.aio(text, amount)
    await run.sleep("1d")
    return {"before": before, "pk": pk, "after": await acount()}


@app.workflow
def blocking_transfer(text: str, amount: int) -> int:
    return book(text, amount)


@app.workflow
def atomic_in_body() -> None:
    with transaction.atomic():
        book("in a body", 1)


@app.workflow
def step_in_atomic() -> None:
    with transaction.atomic():
        count()


@app.workflow
def enqueue_in_body() -> str:
    return add.enqueue(2, 3).id


@app.workflow
async def aenqueue_in_body() -> str:
    return (await add.aenqueue(2, 3)).id


@app.workflow
async def misled() -> int:
    return await wrong.aio()


@app.workflow
async def marks() -> None:
    await marked.aio("marked")


@app.step
def backend_pid() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return int(cursor.fetchone()[0])


def inside_atomic() -> None:
    """What a test does in the middle of `row`."""


@app.atomic
def row(text: str) -> None:
    Entry.objects.create(text=f"row {text}")
    note.enqueue(f"note {text}")
    inside_atomic()


@app.workflow
async def ledger(number: int) -> None:
    for part in range(3):
        await row.aio(f"{number}.{part}")


tries: list[int] = []


@app.atomic
def conflicting() -> int:
    tries.append(len(tries) + 1)
    Entry.objects.create(text=f"attempt {tries[-1]}")
    if len(tries) == 1:
        raise conflict()
    return tries[-1]


def conflict() -> OperationalError:
    """What Django raises when its database rolls a transaction back for the sake of others."""
    error = OperationalError("for others")
    if connection.vendor == "sqlite":
        error.__cause__ = sqlite3.OperationalError("database is locked")
        error.__cause__.sqlite_errorcode = sqlite3.SQLITE_BUSY
    else:
        error.__cause__ = psycopg.errors.SerializationFailure("for others")
    return error


@app.workflow
async def conflicted() -> int:
    tries.clear()
    return await conflicting.aio()
