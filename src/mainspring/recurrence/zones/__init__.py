"""Time zones and their transitions."""
