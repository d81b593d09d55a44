"""Group commit: writes of many runs in one database transaction."""
