"""Waiting for runs and for what they publish."""
