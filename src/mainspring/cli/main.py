"""The command `mainspring`: nouns with verbs, one file per noun."""

from __future__ import annotations

import click

import mainspring
from mainspring.cli import crontab, database, dev, doctor, messages, queues, replay, run, ui, versions, worker, workers
from mainspring.cli.commands import Group, colour_wanted
from mainspring.cli.runs.listing import runs
from mainspring.cli.schedules.listing import schedules

_HELP = """Durable workflows, schedules and queues on SQLite or PostgreSQL.

\b
  mainspring dev shop:app                  a worker, the dashboard, reloading
  mainspring worker shop:app               execute the runs of an app
  mainspring run shop:app remind --after 3d --args '{"order": 7}'
  mainspring runs list --state failed      list runs
  mainspring runs show order-7             one run, step by step
  mainspring runs list --stranded -o ids | mainspring runs cancel -
  mainspring schedules preview '0 9 * * mon-fri'   when would this fire?
  mainspring doctor                        health checks
  mainspring ui                            all of it in a browser

The database is --url, else $MAINSPRING_URL, else sqlite:///mainspring.db. Data goes to stdout, the rest to stderr.
Exit codes: 0 success, 1 failure, 2 wrong usage, 4 not found.
"""


@click.group(
    name="mainspring",
    cls=Group,
    help=_HELP,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.option("-v", "--verbose", is_flag=True, help="Show tracebacks.")
@click.version_option(mainspring.__version__, "--version", message="mainspring %(version)s")
@click.pass_context
def main(ctx: click.Context, *, verbose: bool) -> None:
    ctx.color = colour_wanted()
    if verbose:
        ctx.find_root().meta["verbose"] = True


main.add_command(worker.worker)
main.add_command(run.run)
main.add_command(runs)
main.add_command(messages.send)
main.add_command(messages.answer)
main.add_command(queues.queues)
main.add_command(crontab.crontab)
main.add_command(schedules)
main.add_command(versions.versions)
main.add_command(workers.workers)
main.add_command(replay.replay)
main.add_command(database.db)
main.add_command(doctor.doctor)
main.add_command(ui.ui)
main.add_command(dev.dev)
