"""`mainspring schedules`: when things start."""

from __future__ import annotations

import click

from mainspring.cli.commands import Group
from mainspring.cli.preview import preview


@click.group(cls=Group)
def schedules() -> None:
    """See when a recurrence fires."""


schedules.add_command(preview)
