"""Queries and actions of operators. The CLI, the dashboard, clients and the app call this layer and nothing below it."""
