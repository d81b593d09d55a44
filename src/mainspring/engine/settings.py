"""What the engine needs to know of an app's settings."""

from __future__ import annotations

from typing import Protocol


class EngineSettings(Protocol):
    """The part of `Settings` that concerns executing."""

    @property
    def lease(self) -> float: ...
    @property
    def concurrency(self) -> int: ...
    @property
    def threads(self) -> int: ...
    @property
    def resident(self) -> int: ...
    @property
    def park_after(self) -> float: ...
    @property
    def value_bytes(self) -> int: ...
