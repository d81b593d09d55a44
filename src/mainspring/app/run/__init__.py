"""The current run, as its own code sees it."""
