"""Plain data without I/O: runs, steps, schedules, queues and workers, the states of a run, ids and clocks."""
