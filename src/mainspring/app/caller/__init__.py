"""The callers of verbs: outside of runs, in a run, in a step, in a transaction."""
