"""Send this worker's heartbeat, and detect workers whose lease has lapsed.

A heartbeat is a number in the database that grows. A worker's lease has lapsed when an observer has not seen the number change for one
lease, by the observer's own monotonic clock and while the observer itself can read and write. Wall clocks are not used, so setting a
clock, suspending a machine or a database outage makes no worker lapse. The heartbeat has its own thread, because a step may block the
loop.
"""

from __future__ import annotations

import logging
import socket
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from mainspring.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mainspring.model.clock import Clock
    from mainspring.model.runs import Worker
    from mainspring.store.protocol import Store


log = logging.getLogger("mainspring.services")


class Observations:
    """When each worker's heartbeat last changed. Pure: decides from a fleet and a monotonic time."""

    def __init__(self, lease: float) -> None:
        self._lease = lease
        self._seen: dict[str, tuple[int, float]] = {}
        self._last: float | None = None

    def lapsed(self, fleet: list[Worker], mine: Worker, now: float) -> list[Worker]:
        """Return the workers whose lease has lapsed. After a pause of the observer, every worker gets a full lease again."""
        if self._last is not None and now - self._last > self._lease / 2:
            self._seen.clear()
        self._last = now
        lapsed: list[Worker] = []
        seen: dict[str, tuple[int, float]] = {}
        for worker in fleet:
            if worker.id == mine.id:
                continue
            beat, since = self._seen.get(worker.id, (-1, now))
            seen[worker.id] = (worker.beat, now if beat != worker.beat else since)
            if now - seen[worker.id][1] > self._lease or is_dead(worker, mine):
                lapsed.append(worker)
        self._seen = seen
        return lapsed


class Heartbeat:
    """A thread that sends three heartbeats per lease, and releases the runs of workers whose lease has lapsed."""

    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        worker: Worker,
        lease: float,
        max_recoveries: int | None,
        limits: Callable[[], Mapping[str, int]],
        on_lost: Callable[[], None],
        on_round: Callable[[], None],
        on_fleet: Callable[[Sequence[Worker]], None],
        on_dead: Callable[[Worker, int], None],
    ) -> None:
        self._store = store
        self._clock = clock
        self._worker = worker
        self._lease = lease
        self._max_recoveries = max_recoveries
        self._limits = limits
        self._on_lost = on_lost
        self._on_round = on_round
        self._on_fleet = on_fleet
        self._on_dead = on_dead
        self._observations = Observations(lease)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="mainspring-heartbeat", daemon=True)

    def start(self) -> None:
        self.run_once()
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()

    def stop_soon(self) -> None:
        """Send no more heartbeats, without waiting for one in progress."""
        self._stopping.set()

    def run_once(self) -> None:
        """Send a heartbeat, check the other workers, and release the runs of those that are gone."""
        fleet = self._store.beat(self._worker.id, self._clock.now())
        if fleet is None:
            log.error("worker %s was declared dead by another worker; restarting under a new id", self._worker.id)
            self._stopping.set()
            self._on_lost()
            return
        self._on_fleet(fleet)
        for worker in self._observations.lapsed(fleet, self._worker, self._clock.monotonic()):
            freed = self._store.retire(worker.id, self._clock.now(), self._max_recoveries, self._limits())
            log.warning("worker %s on %s is dead; released %d of its runs", worker.id, worker.host, freed)
            self._on_dead(worker, freed)
        for gone in self._store.orphaned():
            freed = self._store.retire(gone, self._clock.now(), self._max_recoveries, self._limits())
            log.warning("worker %s claimed %d runs after it was declared dead; released them", gone, freed)
        self._on_round()

    def _run(self) -> None:
        while not self._stopping.wait(self._lease / 3):
            try:
                self.run_once()
            except StoreError as error:
                if not self._stopping.is_set():  # otherwise the connection was closed during the last heartbeat
                    log.warning("heartbeat failed, retrying: %s", error)
            except Exception:
                log.exception("heartbeat failed, retrying")


def host() -> str:
    return socket.gethostname()


def boot() -> str:
    """Return an id of this boot of the machine and the pid namespace. A pid has a meaning only within it.

    Empty where it is unknown. Then a worker is only known to be gone when its lease has lapsed.
    """
    try:
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        namespace = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""
    return f"{boot_id} {namespace}"


def start_time(pid: int) -> int | None:
    """Return when a process started, in ticks since boot, or None if it does not exist. Pid and start time identify a process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    state, ticks = fields[0], fields[19]
    return None if state in "ZX" else int(ticks)


def is_there(worker: Worker, mine: Worker) -> bool:
    """Whether a worker's process certainly exists. Only known if it is on the same machine as `mine`."""
    return bool(mine.boot) and worker.boot == mine.boot and start_time(worker.pid) == worker.pid_start


def is_dead(worker: Worker, mine: Worker) -> bool:
    """Whether a worker's process is certainly gone. Only known if it is on the same machine as `mine`."""
    if not mine.boot or worker.boot != mine.boot:
        return False
    return start_time(worker.pid) != worker.pid_start
