"""Plain data: what a run, a step and a worker are, the states of a run, ids and clocks. No behaviour beyond their own rules."""
