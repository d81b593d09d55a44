"""What travels through a workflow's own code when its run is taken away from it.

They are `BaseException`s because they are not errors of the workflow: an `except Exception` must not stop them. What comes out
of the workflow afterwards is thrown away whatever it is; the flag on the execution decides, because `gather`, task groups and
`suppress` swallow or wrap anything.
"""

from __future__ import annotations


class Halt(BaseException):
    """The run does not go on in this process. Every operation refuses to act from now on."""


class Parked(Halt):
    """It lets go of its memory; it comes back by replay when its time has come."""


class Stopped(Halt):
    """It was asked to stop: cancelled, or out of time."""


class Continued(Halt):
    """It begins anew, with the input that this carries."""


class Lost(Halt):
    """It is somebody else's now: taken over, terminated or deleted."""


class HandedBack(Halt):
    """This worker stops in an orderly way; another one goes on."""
