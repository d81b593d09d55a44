"""Pure decisions about schedules: when to start a run, and whether."""
