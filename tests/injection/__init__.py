"""Everything that can happen to a worker, at every point of what it does.

A *case* is a shape (`shapes/`: a workload, and what must come of it), an injection (`injections.py`: what happens to its worker) and a
point: a turn of the event loop, a call of the store, or an operation of a thread. The case is played with the real app, store, engine,
services and committer. Only time is virtual, and threads take turns (`threads.py`), so that it is quick and repeated exactly. When the first
worker has stopped, died or gone on, a second life finishes the work undisturbed, and `auditor.py` judges the database, the ledger of effects
and what the callers were told.

Shapes are written by hand (`shapes/`), or made from a seed (`generated/`).

`python -m tests.injection --help` plays all cases, or some; a failure is one line that can be played again with `--case`.
"""
