"""`mainspring send` and `mainspring answer`: send messages and questions to waiting runs."""

from __future__ import annotations

import json
from typing import Any

import click

from mainspring.app.client import Client
from mainspring.app.settings import Settings
from mainspring.cli.audit import carry_out, perform, reason_option
from mainspring.cli.commands import Command, note, url_option
from mainspring.cli.display import compact
from mainspring.cli.terminal import data, safe_json
from mainspring.operations.connect import connect
from mainspring.operations.runs.start import START_ACTIONS
from mainspring.recurrence.durations import typed_duration


def _value(text: str, what: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise click.BadParameter(
            f"{text!r} is not JSON: {error}; a text is written '\"text\"'", param_hint=what
        ) from None


@click.command(
    cls=Command,
    help=f"""{START_ACTIONS["send"].summary}

RUN is the id of a run, TOPIC the topic that it receives, JSON the message. A message that the run could not decode is refused. Exit code
4 if there is no such run, 1 if it has ended.

\b
  mainspring send order-7 approved '{{"by": "ada"}}' --reason "checked by phone"
""",
)
@click.argument("run")
@click.argument("topic")
@click.argument("message", metavar="JSON")
@click.option("--key", metavar="KEY", help="A second message of this key for the same run is not stored.")
@url_option
@reason_option
def send(run: str, topic: str, message: str, key: str | None, url: str, *, reason: str | None) -> None:
    value = _value(message, "JSON")
    with connect(url, Settings()) as operations:
        verb = operations.starting
        _, answer = perform(
            operations,
            START_ACTIONS["send"],
            run,
            lambda: verb.send(run, topic, value, key),
            reason=reason,
            topic=topic,
        )
    note(answer.message)


@click.command(
    cls=Command,
    help=f"""{START_ACTIONS["answer"].summary}

RUN is the id of a run, KEY the name of the question that it answers, JSON the value for its handler. Prints the handler's result as
JSON. Exit code 4 if there is no such run, 1 if it refuses, raises or does not answer in time.

\b
  mainspring answer order-7 approve '{{"by": "ada"}}'
""",
)
@click.argument("run")
@click.argument("question", metavar="KEY")
@click.argument("message", metavar="JSON")
@click.option(
    "--timeout", type=typed_duration, default="30s", show_default=True, metavar="DURATION", help="How long to wait."
)
@url_option
@reason_option
def answer(run: str, question: str, message: str, timeout: float | str, url: str, *, reason: str | None) -> None:
    value = _value(message, "JSON")
    with connect(url, Settings()) as operations, Client(url) as client:
        operations.runs.get(run)
        found = carry_out(
            operations,
            START_ACTIONS["answer"].label,
            [run],
            lambda: client.ask.sync(run, question, value, timeout=timeout),
            lambda _: "answered",
            reason=reason,
            question=question,
        )
    data(safe_json(compact(found)))
