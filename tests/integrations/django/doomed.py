"""A worker that is killed at a moment around the third commit of `@app.atomic`: `python -m … URL inside|recorded|committed|never`."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tests.integrations.django import configured

if TYPE_CHECKING:
    from collections.abc import Generator

KILLED_AT = 3


def main(url: str, moment: str) -> None:
    configured.configure()
    configured.use(url)
    from mainspring.integrations.django import atomic  # noqa: PLC0415  (Django is configured now)
    from mainspring.integrations.django.project import get_app  # noqa: PLC0415
    from tests.integrations.django.bank import tasks  # noqa: PLC0415

    count, lock, opened = [0], threading.Lock(), atomic.opened
    mine = threading.local()

    def die_if(now: str) -> None:
        if now == moment and mine.number == KILLED_AT:
            os.kill(os.getpid(), signal.SIGKILL)

    @contextlib.contextmanager
    def doomed(alias: str) -> Generator[Any]:
        with lock:
            count[0] += 1
            mine.number = count[0]
        with opened(alias) as raw:
            yield raw
            die_if("recorded")
        die_if("committed")

    atomic.opened = doomed
    tasks.inside_atomic = lambda: die_if("inside")
    app = get_app()
    app._runtime.settings = replace(
        app.settings, concurrency=2
    )  # so that something is left for the workers that follow
    with app:
        threading.Event().wait(600)


if __name__ == "__main__":
    main(*sys.argv[1:])
