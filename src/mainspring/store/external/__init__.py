"""Transactions of users: borrowed connections, connections of their own, other databases."""
