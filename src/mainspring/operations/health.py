"""Health checks for `mainspring doctor`. Each finding has a subject, a verdict and a hint."""

from __future__ import annotations

import contextlib
import platform
import time
import zoneinfo
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from mainspring.errors import InvalidInput, MainspringError
from mainspring.model.clock import SECOND
from mainspring.operations import database
from mainspring.operations.connect import connect, require_there, shown
from mainspring.operations.database import blockers
from mainspring.operations.versions import STRANDED_HINT
from mainspring.store.migrations import EDITED
from mainspring.store.open import facts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from mainspring.operations.connect import ConnectionSettings, Operations
    from mainspring.operations.workers import WorkerInfo
    from mainspring.store.open import StoreSettings
    from mainspring.store.protocol import SchemaReport

OK, LOOK, WRONG = "ok", "look", "wrong"

_MOST_QUEUED = 500
_MOST_STRANDED = 10
_READY = ("queued", "running", "cancelling")
_FAR_OFF = 0.5
_MOMENT = 1.0
_LOOKS = 10
_MINUTE = 60
_LONG_LAG = 60.0
_LONG_BEHIND = 600.0
_LONG_SNAPSHOT = 60.0
_MANY_CONNECTIONS = 0.8
_MANY_DEAD = 100_000


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check. `verdict` is `ok`, `look` (worth a look) or `wrong`."""

    subject: str
    verdict: str
    found: str
    hint: str | None = None


def examine(url: str, settings: ConnectionSettings, lease: float) -> Iterator[Finding]:
    """Check this machine, then the database, its workers and runs."""
    yield Finding("Python", OK, platform.python_version())
    yield _time_zones()
    try:
        require_there(url)
        kind = facts(url)
        report = database.check(url, settings)
    except InvalidInput:
        raise
    except Exception as error:  # noqa: BLE001  (a file that is not a database raises what its driver raises)
        expected = isinstance(error, MainspringError)
        found = _words(error) if expected else f"{shown(url)} cannot be read: {_words(error)}"
        yield Finding(
            "database", WRONG, found, None if expected else "restore a backup, or give another one with --url"
        )
        return
    yield Finding("database", OK, f"{shown(url)} ({', '.join(f'{name} {value}' for name, value in kind.items())})")
    if kind.get("journal mode", "wal") != "wal":
        yield Finding("journal mode", LOOK, kind["journal mode"], "workers turn it to wal when they connect")
    if report.unknown:
        hint = "install a newer version of mainspring here"
        yield Finding("tables", WRONG, f"newer than this code: {', '.join(report.unknown)}", hint)
        return
    if report.edited:
        for name, checksum in report.edited.items():
            yield Finding(
                "tables", WRONG, f"not made by the migration {name} of this code", EDITED.format(checksum=checksum)
            )
        return
    if report.pending:
        yield Finding("tables", WRONG, f"lack {', '.join(report.pending)}", f"mainspring db migrate --url {shown(url)}")
        return
    yield from _safely("locks", lambda: _locks(url, settings))
    try:
        with connect(url, settings) as operations:
            yield from _look_at(operations, report, lease)
    except Exception as error:  # noqa: BLE001
        yield Finding("database", WRONG, _words(error), f"mainspring db check --url {shown(url)}")


def _look_at(operations: Operations, report: SchemaReport, lease: float) -> Iterator[Finding]:
    """Yield the findings about the database. On a damaged database a failing check does not hold up the others."""
    odd = list(_safely("tables", lambda: _defects(operations)))
    if not any(each.subject == "tables" for each in odd):
        yield Finding("tables", OK, f"up to date ({report.current})")
    yield from odd
    yield from _safely("clock", lambda: [_clock(operations)])
    yield from _safely("retention", lambda: [_retention(operations)])
    yield from _safely("server", lambda: _server(operations))
    yield from _safely("runs", lambda: _fleet_and_runs(operations, lease))


def _fleet_and_runs(operations: Operations, lease: float) -> Iterator[Finding]:
    fleet = operations.workers.list()
    counts = operations.runs.counts()
    yield from _workers(fleet, counts, lease)
    yield Finding(
        "runs", OK, ", ".join(f"{count} {state}" for state, count in sorted(counts.items())) or "none unfinished"
    )
    yield _lag(operations)
    yield from _unserved(operations)
    yield from _unknown_functions(operations, fleet)
    yield from _stranded(operations)


def _safely(subject: str, look: Callable[[], Iterable[Finding]]) -> Iterator[Finding]:
    """Yield the findings of a check. A check that fails is a finding too."""
    try:
        yield from look()
    except Exception as error:  # noqa: BLE001  (on a damaged database any check may raise anything)
        yield Finding(subject, WRONG, f"cannot be looked at: {_words(error)}")


def _words(error: Exception) -> str:
    return " ".join(str(error).split())


def _defects(operations: Operations) -> Iterator[Finding]:
    for odd in operations.inspect():
        yield Finding(odd.what, WRONG if odd.wrong else LOOK, odd.which, odd.hint)
    if operations.is_large:
        yield Finding("rows", OK, "not all read, there are many", "mainspring db check reads all of them")


def _locks(url: str, settings: StoreSettings) -> Iterator[Finding]:
    """Yield processes and sessions that block others for longer than a write takes: those that every look of a moment finds.

    Two looks are not enough: a busy worker holds the lock again and again, each time for a moment.
    """
    found = blockers(url, settings, everywhere=True)
    for _ in range(_LOOKS):
        if not found:
            return
        time.sleep(_MOMENT / _LOOKS)
        held = {_hold(reason) for reason in found}
        found = [reason for reason in blockers(url, settings, everywhere=True) if _hold(reason) in held]
    for reason in found:
        yield Finding("locks", WRONG, reason, "end it, or let it continue: all writers wait for it")


def _hold(reason: str) -> str:
    """Return the beginning of a lock's description: the process or session, and since when it holds the lock if that is known."""
    return reason.partition(",")[0]


def _time_zones() -> Finding:
    with contextlib.suppress(OSError):
        for folder in zoneinfo.TZPATH:
            for name in ("tzdata.zi", "+VERSION"):
                file = Path(folder, name)
                if file.is_file():
                    with file.open(encoding="utf-8") as lines:
                        return Finding(
                            "time zones", OK, f"{lines.readline().removeprefix('# version').strip()} of the system"
                        )
    if any(Path(folder, "Europe/Paris").is_file() for folder in zoneinfo.TZPATH):
        return Finding("time zones", OK, "of the system, version unknown")
    try:
        return Finding("time zones", OK, f"{metadata.version('tzdata')} of the package tzdata")
    except metadata.PackageNotFoundError:
        return Finding("time zones", WRONG, "this system has no time zone data", "pip install tzdata")


def _clock(operations: Operations) -> Finding:
    offset = operations.offset / SECOND
    verdict = LOOK if abs(offset) > _FAR_OFF else OK
    hint = "workers follow the database's clock; still, let this machine's be set by NTP" if verdict == LOOK else None
    text = (
        f"{abs(offset):.3f} s {'behind' if offset > 0 else 'ahead of'} the database's"
        if offset
        else "that of the database"
    )
    return Finding("clock", verdict, text, hint)


def _lag(operations: Operations) -> Finding:
    """Report how long ready runs wait for a worker."""
    lag = operations.runs.lag()
    if lag is None:
        return Finding("lag", OK, "nothing waits for a worker")
    verdict = LOOK if lag > _LONG_LAG else OK
    hint = "more workers, or a higher concurrency; perhaps a queue is full or paused" if verdict == LOOK else None
    return Finding("lag", verdict, f"the longest wait for a worker is {_length(lag)}", hint)


def _length(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < _MINUTE else f"{seconds // _MINUTE:,.0f} min {seconds % _MINUTE:.0f} s"


def _retention(operations: Operations) -> Finding:
    """Report whether ended runs are deleted as fast as they end."""
    behind = operations.pruning.behind()
    if behind <= _LONG_BEHIND:
        return Finding("retention", OK, "nothing is kept for longer than it should be")
    found = f"falls behind: the oldest run that should be gone is {_length(behind)} overdue"
    return Finding(
        "retention", LOOK, found, "more workers delete more; see also snapshots here; or mainspring db prune"
    )


def _server(operations: Operations) -> Iterator[Finding]:
    """Report the limits of a database server: connections, and dead rows that cannot be removed."""
    server = operations.server_state()
    if server is None:
        return
    used = f"{server.connections} of {server.allowed} used"
    if server.connections > _MANY_CONNECTIONS * server.allowed:
        yield Finding("connections", LOOK, used, "raise max_connections, or lower the setting `connections` of workers")
    else:
        yield Finding("connections", OK, used)
    held = server.snapshot
    if held is not None and held.seconds > _LONG_SNAPSHOT:
        who = (
            f"prepared transaction {held.name!r}"
            if held.pid is None
            else f"session {held.pid} ({held.name or 'unnamed'})"
        )
        end = f"ROLLBACK PREPARED '{held.name}'" if held.pid is None else f"SELECT pg_terminate_backend({held.pid})"
        found = f"{who}, {held.state}, has one open for {_length(held.seconds)}: no row that died since can be removed"
        yield Finding("snapshot", LOOK, found, f"claims and retention get slower until it ends: {end}")
    for each in server.dead_rows:
        if each.dead > max(_MANY_DEAD, each.live):
            found = f"{each.dead:,} in {each.table}, which has {each.live:,} live ones"
            yield Finding("dead rows", LOOK, found, f"VACUUM (VERBOSE) {each.table} says why they stay")


def _unserved(operations: Operations) -> Iterator[Finding]:
    """Yield queues that do not exist and versions that no worker has, if runs wait for them."""
    for each in operations.unserved():
        waiting = "1 run waits for it" if each.runs == 1 else f"{each.runs:,} runs wait for it"
        yield Finding(each.subject, WRONG, f"{each.found}, and {waiting}", each.hint)


def _workers(fleet: list[WorkerInfo], counts: dict[str, int], lease: float) -> Iterator[Finding]:
    living = [worker for worker in fleet if worker.silent <= lease]
    for worker in fleet:
        text = f"{worker.id}, version {worker.version}, last beat {worker.silent:.1f} s ago"
        if worker in living:
            yield Finding("worker", OK, text)
        else:
            hint = "another one takes its runs over" if living else "a worker that starts now takes its runs over"
            verdict = LOOK if living or not counts else WRONG
            yield Finding("worker", verdict, f"{text}: gone or cut off", hint)
    ready = sum(counts.get(state, 0) for state in _READY)
    if not living and ready:
        yield Finding("workers", WRONG, f"no live one, and {ready} runs to execute", "mainspring worker MODULE:APP")
    elif not fleet:
        yield Finding("workers", OK, "none, and nothing to execute")


def _unknown_functions(operations: Operations, fleet: list[WorkerInfo]) -> Iterator[Finding]:
    """Yield functions with queued runs that no live worker has. Without any worker there is a graver finding."""
    if not fleet:
        return
    known = {name for worker in fleet for name in worker.functions}
    unknown: dict[str, int] = {}
    for run in operations.runs.list(state=("queued",), stranded=False, limit=_MOST_QUEUED).runs:
        if run.workflow not in known:
            unknown[run.workflow] = unknown.get(run.workflow, 0) + 1
    for name, count in unknown.items():
        hint = f"start a worker whose app has it, or: mainspring runs list --workflow {name} -o ids | mainspring runs cancel -"
        yield Finding("queued", WRONG, f"{count} of {name}, which no worker knows", hint)


def _stranded(operations: Operations) -> Iterator[Finding]:
    page = operations.runs.list(stranded=True, state=("queued",), limit=_MOST_STRANDED)
    for run in page.runs:
        yield Finding("stranded", WRONG, f"{run.id}: {run.stranded}", STRANDED_HINT)
    if page.next:
        yield Finding("stranded", WRONG, "and more", "mainspring runs list --stranded")
