"""Values that are stored as a codec of the user's makes them: `App(payloads=…)`."""
