"""Statements sent directly to libpq, for the most frequent writes.

psycopg's cursors determine for every value how to write it and for every result how to read it, which takes as long as a commit on a good
disk. Here all parameters are text, and the statements cast them. Several statements sent together are one round trip and one transaction,
because a transaction ends where the server is asked to answer.
"""

from __future__ import annotations

import select
from itertools import count
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import msgspec
import psycopg
from psycopg import pq
from psycopg.adapt import Transformer
from psycopg.errors import error_from_result

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from msgspec import Struct

    from mainspring.store.postgres.dialect import Statement

Row: TypeAlias = tuple[Any, ...]
Value: TypeAlias = str | int | None

_LARGEST_PARAMETER = 32 * 2**20
_ANSWERS = {pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK}


def stale(pg: pq.abc.PGconn) -> bool:
    """Whether there is something to read on an idle connection: the server has closed it or is about to."""
    poll = select.poll()
    poll.register(pg.socket, select.POLLIN)
    return bool(poll.poll(0))


class Wire:
    """The raw side of one connection. Used by one thread at a time, like the connection itself."""

    def __init__(self, connection: psycopg.Connection[tuple[object, ...]], *, prepare: bool) -> None:
        self._pg = connection.pgconn
        self._transformer = Transformer(connection)
        self._prepare = prepare
        self._prepared: dict[bytes, bytes] = {}
        self._names = count()
        self.sure = True
        """Whether the prepared statements are known to exist. Other users of the connection may have deallocated them."""
        self._poll = select.poll()
        self._poll.register(self._pg.socket, select.POLLIN)

    def stale(self) -> bool:
        """See `stale`."""
        return bool(self._poll.poll(0))

    @property
    def speaks_unicode(self) -> bool:
        """Whether the client encoding is UTF-8, which is sent here. A user of the connection may have changed it."""
        return self._pg.parameter_status(b"client_encoding") == b"UTF8"

    def execute(self, *asked: tuple[Statement, Mapping[str, Value]]) -> list[list[Row]]:
        """Execute statements and return the rows of each. All of them commit together, or none does and the first error is raised."""
        pg = self._pg
        # Values that cannot be sent are found before anything is sent: half of a pipeline would break the connection.
        parameters = [[_text(values[name]) for name in statement.order] for statement, values in asked]
        names = [self._name(statement.query) for statement, _ in asked] if self._prepare else []
        piped = len(asked) > 1
        if piped:
            pg.enter_pipeline_mode()
        for number, (statement, _) in enumerate(asked):
            if names:
                pg.send_query_prepared(names[number], parameters[number])
            else:
                pg.send_query_params(statement.query, parameters[number])
        if piped:
            pg.pipeline_sync()
        self._flush()
        return self._answers(piped=piped)

    def send(self, command: bytes) -> None:
        """Send a command without waiting for the response, which must be read before anything else is sent."""
        self._pg.send_query(command)
        self._flush()

    def answer(self) -> list[list[Row]]:
        """Read the response to a command that was sent: the rows of each of its statements."""
        return self._answers(piped=False)

    def make_sure(self) -> None:
        """Find out which statements are still prepared. Call it outside of transactions, which an error would abort."""
        if not self.sure:
            self._prepared = {
                query: name
                for query, name in self._prepared.items()
                if self._pg.describe_prepared(name).status in _ANSWERS
            }
            self.sure = True

    def _name(self, query: bytes) -> bytes:
        """The name under which a statement is prepared on this connection."""
        name = self._prepared.get(query)
        if name is None:
            name = b"ms%d" % next(self._names)
            result = self._pg.prepare(name, query)
            if result.status not in _ANSWERS:
                raise error_from_result(result)
            self._prepared[query] = name
        return name

    def _flush(self) -> None:
        while self._pg.flush():
            # More than the socket takes at once. The server may be writing as well, and must not wait for this process.
            self._poll.modify(self._pg.socket, select.POLLIN | select.POLLOUT)
            try:
                if any(events & ~select.POLLOUT for _, events in self._poll.poll()):
                    self._pg.consume_input()
            finally:
                self._poll.modify(self._pg.socket, select.POLLIN)

    def _answers(self, *, piped: bool) -> list[list[Row]]:
        results = self._results(piped=piped)
        if piped:
            self._pg.exit_pipeline_mode()
        for result in results:
            if result.status not in _ANSWERS:
                raise error_from_result(result)
        return [self._rows(result) if result.ntuples else [] for result in results]

    def _rows(self, result: pq.abc.PGresult) -> list[Row]:
        self._transformer.set_pgresult(result)
        return self._transformer.load_rows(0, result.ntuples, tuple)

    def _results(self, *, piped: bool) -> list[pq.abc.PGresult]:
        """Read to the end of the response.

        The rows of the last statement arrive before the commit. Only the end of the response confirms the commit. If the commit failed, one
        more result has the error.
        """
        found: list[pq.abc.PGresult] = []
        while True:
            result = self._next()
            if self._pg.status != pq.ConnStatus.OK:
                raise psycopg.OperationalError(self._pg.get_error_message())
            if result is None:
                if not piped:
                    return found
            elif result.status == pq.ExecStatus.PIPELINE_SYNC:
                return found
            else:
                found.append(result)

    def _next(self) -> pq.abc.PGresult | None:
        """Wait for the next result, in a way that lets other threads run."""
        while self._pg.is_busy():
            self._poll.poll()
            self._pg.consume_input()
        return self._pg.get_result()


def _text(value: Value) -> bytes | None:
    if value is None:
        return None
    text = str(value).encode()
    if b"\0" in text:  # libpq would take it for the end
        raise _nul()
    return text


def _nul() -> psycopg.DataError:
    return psycopg.DataError("PostgreSQL text cannot contain NUL bytes")


def array(values: Iterable[str | None]) -> str:
    """The text of an array of texts. Raises if it is too long for one parameter. All values are quoted at once, which is quicker."""
    given = list(values)
    if not given:
        return "{}"
    if None in given:
        return _checked(
            f"{{{','.join('NULL' if value is None else array([value])[1:-1] for value in given)}}}", len(given)
        )
    joined = "\0".join(cast("list[str]", given))
    if joined.count("\0") >= len(given):
        raise _nul()
    quoted = joined.replace("\\", "\\\\").replace('"', '\\"').replace("\0", '","')
    return _checked(f'{{"{quoted}"}}', len(given))


def to_json(rows: Sequence[dict[str, Any] | Struct]) -> str:
    """Rows as the JSON parameter of bulk statements. Raises if they are too long for one parameter."""
    return _checked(msgspec.json.encode(rows).decode(), len(rows))


def _checked(text: str, count: int) -> str:
    """Refuse several values that are too long together. PostgreSQL judges a single one."""
    if len(text) > _LARGEST_PARAMETER and count > 1:
        raise OverflowError(f"{count} values of {len(text)} bytes are too many for one statement")
    return text
