"""Keeping runs. `protocol` is the specification; `sqlite` and `postgres` are its two implementations."""
