"""Values that a user's codec encodes before they are stored: `App(payloads=…)`."""
