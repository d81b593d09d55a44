"""Run several workers on one machine: start them together, restart one that dies, stop them together.

Each is a process whose standard input is a pipe from this one: however this process ends, the pipe closes, and the workers stop.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from mainspring.cli.commands import FAILED, note
from mainspring.model.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

_CLOCK = SystemClock()
_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 15.0
_STEADY = 30.0
"""Seconds after which the restart delay of a worker is reset."""
_REPEAT = 0.2
"""Seconds after which a second signal is sent again."""
_MORE = 3.0
"""Seconds beyond the workers' own limit for stopping."""


@dataclass
class _Child:
    """One supervised worker, across its restarts."""

    number: int
    process: subprocess.Popen[bytes] | None = None
    begun: float = 0.0
    failures: int = 0
    again_at: float | None = None
    """The monotonic time of the restart."""


class Supervisor:
    """Keeps `count` workers alive. `command` has the arguments of `mainspring worker` except those added here."""

    def __init__(self, command: Sequence[str], count: int, *, limit: float, once: bool, fail_fast: bool) -> None:
        self._command = command
        self._limit = limit + _MORE
        self._once = once
        self._fail_fast = fail_fast
        self._children = [_Child(number) for number in range(1, count + 1)]
        self._events: SimpleQueue[_Child | signal.Signals] = SimpleQueue()  # a signal handler may put into it
        self._signals = 0
        self._kill_at: float | None = None
        self._repeat: tuple[float, signal.Signals] | None = None
        self._code = 0

    def run(self) -> int:
        """Supervise until stopped, or with `once` until all workers have ended. Return the exit code."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if number is not signal.SIGHUP or signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, self._notify)
        for child in self._children:
            self._start(child)
        while any(child.process is not None or child.again_at is not None for child in self._children):
            try:
                event = self._events.get(timeout=self._pause())
            except Empty:
                self._on_time()
                continue
            if isinstance(event, _Child):
                self._ended(event)
            else:
                self._stop(event)
        return self._code

    def _notify(self, number: int, frame: FrameType | None) -> None:
        del frame
        self._events.put(signal.Signals(number))

    @property
    def _stopping(self) -> bool:
        return self._signals > 0

    def _start(self, child: _Child) -> None:
        # A process group of its own: ^C in a terminal reaches only this process, which forwards it once.
        process = subprocess.Popen(  # noqa: S603  (the same command)
            [sys.executable, "-m", "mainspring", "worker", *self._command, "--supervised", str(child.number)],
            stdin=subprocess.PIPE,
            process_group=0,
        )
        child.process, child.begun, child.again_at = process, _CLOCK.monotonic(), None
        threading.Thread(target=self._watch, args=(child, process), daemon=True).start()

    def _watch(self, child: _Child, process: subprocess.Popen[bytes]) -> None:
        process.wait()
        self._events.put(child)

    def _ended(self, child: _Child) -> None:
        process, child.process = child.process, None
        assert process is not None  # noqa: S101
        if process.stdin is not None:
            process.stdin.close()
        code = process.returncode
        if self._stopping:
            return
        if self._once and code == 0:
            return
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        if self._fail_fast or self._once:
            note(f"process {child.number} (pid {process.pid}) {how}; stopping the others")
            self._stop(signal.SIGTERM)
            self._code = code if code > 0 else FAILED
            return
        steady = _CLOCK.monotonic() - child.begun > _STEADY
        child.failures = 0 if steady else child.failures + 1
        pause = min(_FIRST_PAUSE * 2 ** max(child.failures - 1, 0), _LONGEST_PAUSE)
        child.again_at = _CLOCK.monotonic() + pause
        note(f"process {child.number} (pid {process.pid}) {how}; restarting in {pause:g} s")

    def _stop(self, number: signal.Signals) -> None:
        """Forward a signal. The first one stops the workers in order, the second one ends them at once."""
        self._signals += 1
        if self._signals == 1:
            self._kill_at = _CLOCK.monotonic() + self._limit
            alive = sum(1 for child in self._children if child.process is not None)
            note(f"stopping {alive} process{'' if alive == 1 else 'es'}")
        else:
            self._code = 128 + number
            note("ending them at once")
        for child in self._children:
            child.again_at = None
        self._forward(number if number is not signal.SIGHUP else signal.SIGTERM)

    def _forward(self, number: signal.Signals) -> None:
        """Send a signal to the workers. The second one is repeated, because it is lost if the first is still pending."""
        for child in self._children:
            if child.process is not None:
                child.process.send_signal(number)
        if self._signals > 1:
            self._repeat = _CLOCK.monotonic() + _REPEAT, number

    def _pause(self) -> float | None:
        """Return the seconds until the next restart, signal or kill."""
        due = [child.again_at for child in self._children if child.again_at is not None]
        if self._kill_at is not None:
            due.append(self._kill_at)
        if self._repeat is not None:
            due.append(self._repeat[0])
        return max(0.0, min(due) - _CLOCK.monotonic()) if due else None

    def _on_time(self) -> None:
        now = _CLOCK.monotonic()
        for child in self._children:
            if child.again_at is not None and child.again_at <= now:
                self._start(child)
        if self._repeat is not None and self._repeat[0] <= now:
            self._forward(self._repeat[1])
        if self._kill_at is not None and self._kill_at <= now:
            self._kill_at, self._code = None, FAILED
            for child in self._children:
                if child.process is not None:
                    note(f"process {child.number} (pid {child.process.pid}) did not stop in time and is killed")
                    child.process.kill()
