"""Signals that unwind a workflow's code when its run is halted.

They are `BaseException`s, so that an `except Exception` in the workflow does not catch them. `gather`, task groups and `suppress` may
still swallow or wrap them, so the phase of the execution decides, and the outcome of the code is ignored.
"""

from __future__ import annotations


class Halt(BaseException):
    """The run does not continue in this process. Every operation refuses to act from now on."""

    rank = 0
    """A signal replaces one of a lower rank."""


class Parked(Halt):
    """The run was parked: it has no owner any more, and is replayed when it wakes."""

    rank = 4


class HandedBack(Halt):
    """This worker stops in an orderly way; another one continues the run."""

    rank = 1


class Continued(Halt):
    """The run begins another generation, with the input that this carries."""

    rank = 1


class Stopped(Halt):
    """The run was asked to stop: cancelled, or out of time."""

    rank = 2


class Lost(Halt):
    """This worker no longer owns the run: it was taken over, terminated or deleted."""

    rank = 3
