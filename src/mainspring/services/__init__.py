"""The loops of a worker. Each is a `Service` with a `run_once` that a test can call."""
