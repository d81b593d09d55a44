"""Transactions of users: connections lent to them, connections of their own, other databases."""
