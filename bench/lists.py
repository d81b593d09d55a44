"""The first page of runs by each filter, with three million runs in the table, one for each second. Only with `--only lists`.

    BENCH_LIST_RUNS=3000000 python -m bench.run --only lists --no-peer

Each filter is asked for a value that half of all runs have, for one that fifty of them have, and for one that none has. A list stops after a
share of the history and says so; the next page goes on from there.
"""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from bench.harness import Figure, p50_ms
from bench.history import fill
from mainspring import App, Client

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.harness import Target

RUNS: Final = int(os.environ.get("BENCH_LIST_RUNS", "3000000"))
_TIMES: Final = 5
_FEW: Final = 50
_BEGIN: Final = 1_700_000_000
_ALPHABET: Final = "0123456789abcdefghjkmnpqrstvwxyz"
_UID: Final = " || ".join(
    f"substr('{_ALPHABET}', CAST((({_BEGIN} + CAST(n AS bigint)) * 1000 / {32**digit}) % 32 AS integer) + 1, 1)"
    for digit in range(8, -1, -1)
)
"""Nine characters of the milliseconds, as in the ids of the library."""
_FILL: Final = """
  INSERT INTO runs (id, uid, workflow, kind, state, reason, input, output, due, created, started, completed, epoch, attempts, queue, version, key,
    parent, schedule, tick, forked_from, attributes)
  SELECT 'run-' || n, {uid}, {share} 'wf', 'workflow',
    CASE WHEN n % 50 = 0 THEN 'failed' ELSE 'succeeded' END, NULL, '{{"number": 1}}', '1', {time}, {time}, {time}, {time} + 1000, 1, 1,
    {share} 'q', {share} 'v', {share} 'k', CASE WHEN n % {step} = 1 THEN 'rare p' ELSE 'p ' || (n / 10) END, {share} 's', NULL, CASE WHEN n % {step} = 1 THEN 'rare f' END,
    (CASE WHEN n % 2 = 0 THEN '{{"tenant": "common"}}' WHEN n % {step} = 1 THEN '{{"tenant": "rare"}}' ELSE '{{}}' END)::jsonb
  FROM numbers
""".format(
    uid=f"{_UID} || '10000000000000'",
    share=f"CASE WHEN n % 2 = 0 THEN 'common ' WHEN n % {RUNS // _FEW} = 1 THEN 'rare ' ELSE 'other ' END ||",
    time=f"({_BEGIN}000000 + CAST(n AS bigint) * 1000000)",
    step=RUNS // _FEW,
)
_TEXTS: Final = {
    "workflow": "wf",
    "queue": "q",
    "version": "v",
    "key": "k",
    "parent": "p",
    "schedule": "s",
    "forked_from": "f",
}
_MIDDLE, _END = _BEGIN + RUNS // 2, _BEGIN + RUNS


def _asked() -> Iterator[tuple[str, dict[str, Any]]]:
    yield "all", {}
    for name, text in _TEXTS.items():
        for share in ("rare", "no") if name in {"parent", "forked_from"} else ("common", "rare", "no"):
            yield f"{name}, {share}", {name: f"{share} {text}"}
    for share in ("common", "rare", "no"):
        yield f"attributes, {share}", {"attributes": {"tenant": share}}
    for state in ("succeeded", "failed", "cancelled", "waiting"):
        yield f"state, {state}", {"state": state}
    yield "kind, common", {"kind": "workflow"}
    yield "kind, no", {"kind": "transaction"}
    yield "id_prefix, rare", {"id_prefix": "run-77777"}
    yield "id_prefix, no", {"id_prefix": "nothing"}
    for name in ("created", "started", "completed"):
        yield f"{name} in the middle", {f"{name}_after": _MIDDLE, f"{name}_before": _MIDDLE + 3_600}
        yield f"{name} before all", {f"{name}_before": _BEGIN - 1}
        yield f"{name} after all", {f"{name}_after": _END + 10}
    yield "due before all", {"due_before": _BEGIN - 1}
    yield "stranded", {"stranded": True}
    yield "failed, of a rare queue", {"state": "failed", "queue": "rare q"}
    yield "failed, of a rare version", {"state": "failed", "version": "rare v"}
    yield "of a schedule, of a rare version", {"schedule": "common s", "version": "rare v"}


FILTERS: Final = dict(_asked())


def lists(target: Target) -> Iterator[Figure]:
    url = target.fresh()
    with App(url):
        pass
    fill(url, _FILL if target.kind == "postgres" else _FILL.replace("::jsonb", ""), RUNS)
    with Client(url) as client:
        for name, filters in FILTERS.items():
            page = client.runs.list.sync(**filters)
            p50 = p50_ms(partial(client.runs.list.sync, **filters), _TIMES)
            more = "; there may be more, further back" if page.further else ""
            yield Figure("mainspring", f"list: {name}", target.kind, p50, "ms", f"{len(page.runs)} runs{more}")
        yield Figure("mainspring", "list: counts", target.kind, p50_ms(client.runs.counts.sync, _TIMES), "ms", "")
