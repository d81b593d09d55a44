"""The bridge between blocking and awaiting code."""
