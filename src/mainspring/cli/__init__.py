"""The command `mainspring`."""
