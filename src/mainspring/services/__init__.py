"""The loops of a worker: each a `Service` with a `run_once` that a test can call."""
