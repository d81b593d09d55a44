"""Where a verb is called from: outside, in a run, in a step, in a transaction."""
