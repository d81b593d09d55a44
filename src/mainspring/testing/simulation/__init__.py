"""Simulate a fleet in one thread, on virtual time, with faults, in an order that a seed decides."""

from mainspring.testing.simulation.simulate import Report, SimulationFailed, simulate
from mainspring.testing.simulation.stage import Faults

__all__ = ["Faults", "Report", "SimulationFailed", "simulate"]
