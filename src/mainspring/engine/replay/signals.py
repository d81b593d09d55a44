"""What travels through a workflow's own code when its run is taken away from it.

They are `BaseException`s because they are not errors of the workflow: an `except Exception` must not stop them. What comes out
of the workflow afterwards is thrown away whatever it is; the phase of the execution decides, because `gather`, task groups and
`suppress` swallow or wrap anything.
"""

from __future__ import annotations


class Halt(BaseException):
    """The run does not go on in this process. Every operation refuses to act from now on."""

    rank = 0
    """A signal replaces one of a lower rank."""


class Parked(Halt):
    """Its memory is released; it comes back by replay when its time has come. It has no owner any more, so this is final."""

    rank = 4


class HandedBack(Halt):
    """This worker stops in an orderly way; another one continues the run."""

    rank = 1


class Continued(Halt):
    """It begins anew, with the input that this carries."""

    rank = 1


class Stopped(Halt):
    """It was asked to stop: cancelled, or out of time."""

    rank = 2


class Lost(Halt):
    """It is another worker's now, or no longer there: taken over, terminated or deleted."""

    rank = 3
