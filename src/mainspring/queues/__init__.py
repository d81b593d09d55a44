"""Decide which runs of queues a worker may claim. Pure functions, without I/O."""
