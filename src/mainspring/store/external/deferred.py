"""Verbs that a transaction in another database calls on the app's own database, stored with its outcome until they are carried out.

None of them is lost: they are committed with the user's rows, and carried out together with the checkpoint of the transaction.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct, field

from mainspring.model.runs import NewRun
from mainspring.store.messages import Entry, Post
from mainspring.store.verbs.messages import send
from mainspring.store.verbs.start import start
from mainspring.store.verbs.stop import cancel
from mainspring.store.writes import Send, Start

if TYPE_CHECKING:
    from mainspring.store.messages import Outgoing
    from mainspring.store.sealing.payloads import Payloads
    from mainspring.store.transaction import Script, Transaction

log = logging.getLogger("mainspring.store")


class Cancel(Struct):
    """Runs to be cancelled."""

    ids: list[str]
    reason: str | None


class Deferred(Struct):
    """Verbs that are not yet carried out: first starts, then messages, then cancellations."""

    starts: list[NewRun] = field(default_factory=list[NewRun])
    posts: list[Post] = field(default_factory=list[Post])
    entries: list[Entry] = field(default_factory=list[Entry])
    cancels: list[Cancel] = field(default_factory=list[Cancel])

    def encode(self) -> str:
        return msgspec.json.encode(self).decode()

    @classmethod
    def decode(cls, text: str) -> Deferred:
        return msgspec.json.decode(text, type=cls)

    def sealed(self, payloads: Payloads) -> Deferred:
        """The same verbs with sealed values, as they are stored."""
        from mainspring.store.sealing.records import sealed  # noqa: PLC0415  (only where values are sealed)

        starts, posts, entries = sealed(payloads, (self.starts, self.posts, self.entries))
        return Deferred(starts, posts, entries, self.cancels)

    def mark(self) -> tuple[int, int, int, int]:
        """A mark of the present state, for `back_to`."""
        return len(self.starts), len(self.posts), len(self.entries), len(self.cancels)

    def back_to(self, mark: tuple[int, int, int, int]) -> None:
        """Drop the verbs that were added since a mark."""
        starts, posts, entries, cancels = mark
        del self.starts[starts:], self.posts[posts:], self.entries[entries:], self.cancels[cancels:]

    def carry_out(self, tx: Transaction) -> Script[None]:
        """Carry out the verbs in an open transaction. The other database has committed, so a verb that fails is logged."""
        if self.starts:
            started = yield from start(tx, [Start(run) for run in self.starts])
            for run, answer in zip(self.starts, started, strict=True):
                if answer.workflow != run.workflow:
                    log.error(
                        "a transaction in another database started %r with the id %r, which belongs to a run of %r; it is not started",
                        run.workflow,
                        run.id,
                        answer.workflow,
                    )
        outgoing: list[Outgoing] = [*self.posts, *self.entries]
        if outgoing:
            unknown = (yield from send(tx, Send(outgoing[0].run, outgoing))).unknown
            if unknown:
                there = [each for each in outgoing if each.run not in unknown]
                yield from send(tx, Send(outgoing[0].run, there))
                log.error(
                    "a transaction in another database sent to %s, which was not found; the message is dropped",
                    ", ".join(map(repr, unknown)),
                )
        for each in self.cancels:
            yield from cancel(tx, each.ids, each.reason)
