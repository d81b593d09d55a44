"""The workloads. Public API only; every effect has a label of its own, so that it can be found in the record and in the ledger."""

from tests.injection.shapes import branches, children, managing, steps, talking, transactions, waits

__all__ = ["branches", "children", "managing", "steps", "talking", "transactions", "waits"]
