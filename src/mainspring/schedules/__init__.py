"""When to start a run, and whether: pure decisions about schedules, and what users say about them."""
