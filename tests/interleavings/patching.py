"""Puts the primitives of a scheduler in the place of the standard library's, in the modules of the library, for a while.

A module is patched by value: each of its names that is bound to `threading`, `time`, `SimpleQueue` and so on is bound to a
stand-in. So nothing here depends on which module uses what. A stand-in asks for the scheduler of the calling thread each
time: on a thread that no scheduler controls it is the real thing.
"""

from __future__ import annotations

import concurrent.futures
import concurrent.futures._base as futures
import contextlib
import fcntl
import importlib
import os
import queue
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from tests.interleavings import primitives
from tests.interleavings.scheduler import START, active

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from types import ModuleType

_LOADED_LATE = (
    "mainspring.app.worker",
    "mainspring.operations.schedules.declared",
    "mainspring.services.heartbeat",
    "mainspring.store.committer",
    "mainspring.store.sqlite.store",
)
"""Modules that the library loads when it needs them. A module that is loaded after the patching would have the real things."""
_EPOCH = 1_767_225_600_000_000_000  # 2026-01-01, in nanoseconds


def _either(scheduled: Callable[..., Any], real: Callable[..., Any]) -> Callable[..., Any]:
    """A factory: of the scheduler's primitive on a controlled thread, else of the real one."""

    def make(*args: Any, **kwargs: Any) -> Any:
        scheduler = active()
        return real(*args, **kwargs) if scheduler is None else scheduled(scheduler, *args, **kwargs)

    # `SimpleQueue[int]` in an annotation that is evaluated
    make.__class_getitem__ = lambda _: make  # type: ignore[attr-defined]
    return make


class _StandIn:
    """A module of the standard library with some of its names replaced."""

    def __init__(self, module: ModuleType, **names: Any) -> None:
        self._module = module
        self.__dict__.update(names)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def _sleep(seconds: float) -> None:
    scheduler = active()
    if scheduler is None:
        time.sleep(seconds)
    else:
        scheduler.wait("sleep", f"{seconds:g} s", lambda: False, seconds)


def _monotonic() -> float:
    scheduler = active()
    return time.monotonic() if scheduler is None else scheduler.time


def _time_ns() -> int:
    scheduler = active()
    return time.time_ns() if scheduler is None else _EPOCH + round((scheduler.time - START) * 1e9)


class _FileLocks:
    """`flock` among the threads of one process: a lock belongs to an open file, and a controlled thread must not block in a call."""

    def __init__(self) -> None:
        self._holders: dict[tuple[int, int], int] = {}

    def flock(self, fd: int, operation: int) -> None:
        scheduler = active()
        if scheduler is None:
            fcntl.flock(fd, operation)
            return
        found = os.fstat(fd)
        file = (found.st_dev, found.st_ino)
        if operation == fcntl.LOCK_UN:
            scheduler.point("release", "the file lock")
            self._holders.pop(file, None)
            return
        scheduler.wait("acquire", "the file lock", lambda: self._holders.get(file, fd) == fd)
        self._holders[file] = fd


def _stand_ins() -> dict[int, Any]:
    """What takes the place of what, by the identity of the original."""
    threads = {
        "Lock": primitives.Lock,
        "RLock": primitives.RLock,
        "Condition": primitives.Condition,
        "Event": primitives.Event,
        "Semaphore": primitives.Semaphore,
        "BoundedSemaphore": primitives.Semaphore,
        "Thread": primitives.Thread,
    }
    made = {name: _either(scheduled, getattr(threading, name)) for name, scheduled in threads.items()}
    queues = {
        "SimpleQueue": _either(primitives.SimpleQueue, queue.SimpleQueue),
        "Queue": _either(primitives.Queue, queue.Queue),
    }
    pool = _either(primitives.ThreadPool, concurrent.futures.ThreadPoolExecutor)
    clock = {"sleep": _sleep, "monotonic": _monotonic, "time_ns": _time_ns}
    found: dict[int, Any] = {
        id(threading): _StandIn(threading, **made),
        id(queue): _StandIn(queue, **queues),
        id(time): _StandIn(time, **clock),
        id(fcntl): _StandIn(fcntl, flock=_FileLocks().flock),
        id(concurrent.futures): _StandIn(concurrent.futures, ThreadPoolExecutor=pool),
        id(concurrent.futures.ThreadPoolExecutor): pool,
    }
    found |= {id(getattr(threading, name)): stand_in for name, stand_in in made.items()}
    found |= {id(getattr(queue, name)): stand_in for name, stand_in in queues.items()}
    found |= {id(getattr(time, name)): stand_in for name, stand_in in clock.items()}
    return found


def _quiet_condition(*args: Any) -> Any:
    scheduler = active()
    return threading.Condition(*args) if scheduler is None else primitives.Condition(scheduler, *args, quiet=True)


def _modules(package: str) -> dict[str, ModuleType]:
    return {name: module for name, module in sys.modules.items() if name == package or name.startswith(f"{package}.")}


@contextlib.contextmanager
def patched(package: str = "mainspring") -> Generator[None]:
    """Patch the modules of `package` that are loaded, and the futures of the standard library.

    A module that is loaded in the block and uses any of these is an error: it belongs to `_LOADED_LATE`.
    """
    for name in _LOADED_LATE:
        importlib.import_module(name)
    stand_ins = _stand_ins()
    undo: list[tuple[ModuleType, str, Any]] = []
    modules = _modules(package)
    for module in modules.values():
        for name, value in list(vars(module).items()):
            if id(value) in stand_ins:
                undo.append((module, name, value))
                setattr(module, name, stand_ins[id(value)])
    undo.append((futures, "threading", futures.threading))  # type: ignore[attr-defined]
    futures.threading = _StandIn(threading, Condition=_quiet_condition)  # type: ignore[attr-defined,assignment]
    try:
        yield
    finally:
        for module, name, value in undo:
            setattr(module, name, value)
    late = [
        name
        for name, module in _modules(package).items()
        if name not in modules and any(id(value) in stand_ins for value in vars(module).values())
    ]
    if late:
        raise AssertionError(f"loaded while patched, and so not patched: {', '.join(late)}; add them to _LOADED_LATE")
