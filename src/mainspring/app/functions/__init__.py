"""The user's functions, and how they are called and started."""
