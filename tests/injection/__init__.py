"""Everything that can happen to a worker, at every point of what it does: see `tests/injection/README.md`."""
