"""Which runs are in memory, which wait, and how they leave it."""
