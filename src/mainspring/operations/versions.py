"""Versions of the app, the runs that they began, and stranded runs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime  # noqa: TC003  (a run that asks for one records it, and reads it back by its annotations)
from typing import TYPE_CHECKING, Protocol

from mainspring.errors import NotFound
from mainspring.model.clock import to_datetime
from mainspring.operations.actions import Actions, Answer
from mainspring.operations.runs.actions import RunActions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mainspring.model.clock import Clock
    from mainspring.store.protocol import Store
    from mainspring.store.verbs.versions import Versions as StoredVersions


VERSION_ACTIONS = Actions("versions")
WHERE_REPLAY_AGREES = "MAINSPRING_CONTINUE_ON=compatible mainspring worker MODULE:APP"
"""The command of a worker that continues stranded runs if the code agrees with their record."""
STRANDED_HINT = (
    "start a worker with that source, or one that also continues other source as long as the replay agrees: "
    + WHERE_REPLAY_AGREES
)
"""What helps a stranded run."""


@dataclass(frozen=True, slots=True)
class VersionInfo:
    """A version of the app."""

    version: str
    first_seen: datetime | None
    workers: int
    """Live workers with this version."""
    live: int
    """Unfinished runs that this version began."""
    stranded: dict[str, int]
    """Stranded runs of this version: how many, by the reason."""


@dataclass(frozen=True, slots=True)
class PatchInfo:
    """A patch that unfinished runs have used."""

    name: str
    workflow: str
    new: int
    """Unfinished runs that took the new path."""
    old: int
    """Unfinished runs of the workflow that did not take the new path. While there are any, the old path is needed."""


class HasVersions(Protocol):
    """A store, or its part inside a user's transaction."""

    @property
    def versions(self) -> StoredVersions: ...


class Versions:
    """The verbs of versions. All of them block."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def patches(self) -> list[PatchInfo]:
        """Return the patches that unfinished runs have used. A patch whose `old` is 0 can be removed from the code."""
        return [PatchInfo(*row) for row in self._store.versions.patches()]

    def force(self, ids: Sequence[str], version: str | None = None) -> dict[str, bool]:
        """See `RunActions.force`."""
        return RunActions(self._store, self._clock).force(ids, version)

    @VERSION_ACTIONS(lambda version, _: Answer(f"{version} is the newest version"), role="admin")
    def set_newest(self, version: str) -> str:
        """Make a version the newest one: its declarations of schedules and queues hold, as after a deploy of it.

        Use it to roll back: start workers of the older version, then name that version here. Raises `NotFound` for a
        version that has never executed.
        """
        return set_newest(self._store, self._clock, version)

    def newest(self, limit: int) -> dict[str, datetime]:
        """Return the versions that have ever executed and when each was first seen, newest first."""
        seen = sorted(self._store.versions.first_seen().items(), key=lambda found: found[1], reverse=True)
        return {version: to_datetime(first) for version, first in seen[:limit]}

    def list(self) -> list[VersionInfo]:
        """Return the versions that have ever executed, and those that runs request, newest first."""
        seen = self._store.versions.first_seen()
        working: dict[str, int] = {}
        for worker in self._store.workers():
            working[worker.version] = working.get(worker.version, 0) + 1
        live: dict[str, int] = {}
        stranded: dict[str, dict[str, int]] = {}
        for version, reason, count in self._store.versions.live():
            live[version] = live.get(version, 0) + count
            if reason is not None:
                why = json.loads(reason)["reason"]
                reasons = stranded.setdefault(version, {})
                reasons[why] = reasons.get(why, 0) + count
        names = sorted({*seen, *working, *live}, key=lambda name: (-_since(seen, name), name))
        return [
            VersionInfo(
                version=name,
                first_seen=to_datetime(seen[name]) if name in seen else None,
                workers=working.get(name, 0),
                live=live.get(name, 0),
                stranded=stranded.get(name, {}),
            )
            for name in names
        ]


def _since(seen: dict[str, int], version: str) -> int:
    """Return when a version was first seen. A version that only runs request counts as the newest."""
    return seen.get(version, 2**62)


def set_newest(store: HasVersions, clock: Clock, version: str) -> str:
    """See `Versions.set_newest`. Also for the part of a store inside an open transaction."""
    if not store.versions.set_newest(version, clock.now()):
        raise NotFound(
            f"no worker of a version {version!r} has ever started; `mainspring versions list` shows those that have"
        )
    return version
