"""How the columns of a run's row appear to people, wherever they see it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from mainspring.model.clock import to_datetime
from mainspring.model.states import State
from mainspring.store.ops import FAR

if TYPE_CHECKING:
    from datetime import datetime

    from mainspring.model.records import Run
    from mainspring.store.run_glances import Glance


class Appearance(NamedTuple):
    """The state of a run in one word, and why."""

    state: State
    """`cancelling` while it was asked to stop and has not; there is no such state in its row."""
    reason: str | None
    stranded: str | None
    """Why no worker can go on with it."""


def appearance(run: Run | Glance) -> Appearance:
    stopping = run.stopping is not None and not run.state.ended
    return Appearance(
        State.CANCELLING if stopping else run.state,
        run.stopping or None if stopping else run.reason,
        json.loads(run.stranded)["reason"] if run.stranded and run.state is State.QUEUED else None,
    )


def moment(micros: int | None) -> datetime | None:
    """A time of a row; a time that never comes is none."""
    return None if micros is None or micros >= FAR else to_datetime(micros)
