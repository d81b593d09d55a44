"""The app that the workers of the soak execute: `mainspring worker tests.soak.app:app`. `functions/` has what it does."""

from __future__ import annotations

from tests.soak.functions import jobs, programs, talk, transactions, trips
from tests.soak.functions.effects import app

__all__ = ["app", "jobs", "programs", "talk", "transactions", "trips"]
