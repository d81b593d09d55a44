"""PgBouncer in transaction mode in front of a test's PostgreSQL, where Debian's package is installed."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import psycopg

if TYPE_CHECKING:
    from collections.abc import Generator

BINARY = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin:/usr/local/sbin")
_PATIENCE = 20.0
_CONFIGURATION = """
[databases]
{database} = host={server} dbname={database} user=postgres
[pgbouncer]
listen_port = 6432
unix_socket_dir = {folder}
auth_type = any
pool_mode = transaction
default_pool_size = 4
max_client_conn = 200
logfile = {folder}/log
pidfile = {folder}/pid
"""


@contextlib.contextmanager
def bouncer(server: Path, database: str) -> Generator[str]:
    """The URL of `database` through a pooler that lends its four connections by transaction."""
    assert BINARY is not None
    account = pwd.getpwnam("nobody") if os.geteuid() == 0 else None
    folder = Path(tempfile.mkdtemp(prefix="mainspring-bouncer-"))
    configuration = folder / "pgbouncer.ini"
    configuration.write_text(_CONFIGURATION.format(database=database, server=server, folder=folder))
    if account is not None:  # like PostgreSQL, it refuses to run as root
        for path in (folder, configuration):
            os.chown(path, account.pw_uid, account.pw_gid)
    process = subprocess.Popen(
        [BINARY, str(configuration)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        user=account.pw_uid if account else None,
        group=account.pw_gid if account else None,
        extra_groups=[] if account else None,
    )
    url = f"postgresql://postgres@/{quote(database)}?host={quote(str(folder), safe='')}&port=6432"
    try:
        _wait_until_ready(url, process)
        yield url
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _wait_until_ready(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            psycopg.connect(url).close()
            return
        except psycopg.OperationalError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise
            time.sleep(0.02)
