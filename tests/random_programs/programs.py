"""All random programs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.random_programs.ending_runs import EndingRuns
from tests.random_programs.keys import Keys
from tests.random_programs.limits import Limits
from tests.random_programs.messages import Messages
from tests.random_programs.moving import Moving
from tests.random_programs.pruning import Pruning

if TYPE_CHECKING:
    from tests.random_programs.stage import Program

PROGRAMS: list[type[Program]] = [Keys, Messages, EndingRuns, Pruning, Limits, Moving]
