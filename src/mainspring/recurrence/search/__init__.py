"""Search for the next time of a spec."""
