"""Test support: the user's app on an in-memory database and a virtual clock, crashes at any store call, and simulated fleets.

`mainspring.testing.fixtures` has the same as pytest fixtures.
"""

from mainspring._exports import say_from
from mainspring.testing.clock import VirtualClock
from mainspring.testing.crash import Outcome, crash
from mainspring.testing.simulation import Faults, Report, SimulationFailed, simulate
from mainspring.testing.world import Fake, World, world

__all__ = [
    "Fake",
    "Faults",
    "Outcome",
    "Report",
    "SimulationFailed",
    "VirtualClock",
    "World",
    "crash",
    "simulate",
    "world",
]

say_from(__name__, *(globals()[name] for name in __all__))
