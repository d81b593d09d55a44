"""For tests: the user's own app on a database in memory and a clock that the test moves; crashes at any moment."""

from mainspring.testing.clock import VirtualClock
from mainspring.testing.crash import Outcome, crash
from mainspring.testing.world import Fake, World, world

__all__ = ["Fake", "Outcome", "VirtualClock", "World", "crash", "world"]
