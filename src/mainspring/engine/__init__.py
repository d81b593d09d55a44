"""Executing one run: positions, replay, the order of outcomes, steps, waits and children."""
