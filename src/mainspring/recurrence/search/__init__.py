"""The search for the next time."""
