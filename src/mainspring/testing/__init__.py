"""For tests: the user's own app on a database in memory and a clock that the test moves; crashes at any moment; whole fleets.

`mainspring.testing.fixtures` has the same as pytest fixtures.
"""

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
