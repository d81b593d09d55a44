"""A fleet in one thread, on virtual time, in an order that a seed decides, with everything going wrong that can."""

from mainspring.testing.simulation.simulate import Report, SimulationFailed, simulate
from mainspring.testing.simulation.stage import Faults

__all__ = ["Faults", "Report", "SimulationFailed", "simulate"]
