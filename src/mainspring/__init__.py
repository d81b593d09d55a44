"""Durable workflows and the schedules that start them. Nothing to run but a database."""
