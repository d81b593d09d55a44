"""A store whose values are sealed by a codec: its callers see values, the database has encoded ones."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, cast

from msgspec.structs import replace

from mainspring.errors import PayloadError
from mainspring.model.runs import error_record
from mainspring.model.states import State
from mainspring.store.sealing.payloads import Payloads
from mainspring.store.sealing.records import opened, opened_exactly, sealed
from mainspring.store.sealing.verbs import SealedVerbs
from mainspring.store.writes import Finish, run_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mainspring.model.payloads import PayloadCodec
    from mainspring.model.runs import Claim, Run
    from mainspring.store.protocol import Claimed, ClaimRequest, Store
    from mainspring.store.writes import Op, Result

log = logging.getLogger("mainspring.store")


def sealed_store(store: Store, codec: PayloadCodec) -> Store:
    """Wrap a store so that a codec encodes and decodes its values."""
    payloads = Payloads(codec)
    store.transactions.use(payloads=payloads)
    return cast("Store", SealedStore(store, payloads))


class SealedStore(SealedVerbs):
    """A store with sealed values, as `mainspring.store.protocol.Store` specifies it."""

    _inner: Store

    def apply(self, ops: Sequence[Op], now: int) -> list[Result | Exception]:
        """Apply writes. A write that cannot be encoded is answered with its exception, and so are later writes of the same run."""
        answers: list[Result | Exception | None] = [None] * len(ops)
        failed: dict[str, PayloadError] = {}
        stored: list[tuple[int, Op]] = []
        for number, op in enumerate(ops):
            error = failed.get(run_of(op))
            if error is None:
                try:
                    stored.append((number, sealed(self._payloads, op)))
                    continue
                except PayloadError as caught:
                    error = failed[run_of(op)] = caught
            answers[number] = error
        found = self._inner.apply([op for _, op in stored], now) if stored else []
        for (number, copy), answer in zip(stored, found, strict=True):
            if isinstance(op := ops[number], Finish) and isinstance(copy, Finish):
                op.end_processed = (
                    copy.end_processed
                )  # the caller has the write, the store has set this in the sealed copy
            answers[number] = opened(self._payloads, answer)
        return cast("list[Result | Exception]", answers)

    def claim(self, request: ClaimRequest) -> Claimed:
        """Claim runs. Runs whose values cannot be decoded fail here, with the reason, and are not handed to the worker."""
        found = self._inner.claim(request)
        claims: list[Claim] = []
        failed: list[Op] = []
        for claim in found.claims:
            try:
                claims.append(opened_exactly(self._payloads, claim))
            except PayloadError as error:
                log.error("run %s fails, because %s", claim.run.id, error, exc_info=error.__cause__)  # noqa: TRY400
                failed.append(_failure(claim.run, request, error))
        if failed:
            self._inner.apply(failed, request.now)
        return replace(found, claims=claims) if found.claims else found


def _failure(run: Run, request: ClaimRequest, error: PayloadError) -> Finish:
    return Finish(
        request.worker,
        run.id,
        run.epoch,
        State.FAILED,
        request.at_present().now,
        reason=f"PayloadError: {error}"[:500],
        error=error_record("PayloadError", str(error)),
        schedule=run.schedule,
    )
