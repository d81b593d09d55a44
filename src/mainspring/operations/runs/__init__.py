"""Queries and actions of operators on runs."""
