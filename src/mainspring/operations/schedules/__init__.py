"""Queries and actions of operators on schedules."""
