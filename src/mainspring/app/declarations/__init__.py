"""Schedules, crontabs and alerts that the code declares."""
