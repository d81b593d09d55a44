"""An explorer of interleavings that runs the real code.

The simulator in `mainspring.testing.simulation` replaces the parts of a process that have threads. This package keeps them: the real
committer, the real engine with its pools, the real services on a real event loop, the real SQLite store. It decides only one thing, at
every point at which threads can meet: which of them goes next. So it can try orders that a machine shows once in a million
runs, and show each of them again.

How it works
------------
- `scheduler.py`: a baton for operating system threads. Exactly one thread runs; at each switch point a policy chooses who
  runs next. Time is virtual: a timeout fires when the policy chooses so, or when nothing else can run. A program that can go
  nowhere is a finding, with the stack of every thread and task.
- `primitives.py`: locks, events, queues, threads, executors and an event loop whose every operation is a switch point.
- `patching.py`: binds the names of the standard library in the modules of `mainspring` to these, for a while. On a thread that no
  scheduler controls they are the real ones.
- `explore.py`: searches. `exhaust` runs every schedule up to a number of preemptions, those with the fewest first. `walk`
  runs one for each seed: random walks, and priorities that change at a few random moments (PCT). `replay` repeats one.
- `committer_cases.py`, `worker_cases.py`, `part_cases.py`: the programs, with what must hold after each of them. `fleet.py` makes
  real apps for them; it is the only file that knows where the library keeps things.
- `old_defects.py`: defects that the library once had. The tests put each of them back and see that it is found.

What a failure looks like
-------------------------
A failure names what is broken, the end of what the threads did, and a schedule such as `12:1 40:2`: at decision 12 option 1, at
decision 40 option 2, else the default, which is to let the running thread run. It has been shortened to what matters. To see it again:

    python -m tests.interleavings --case "committer: close in the middle" --schedule "12:1 40:2"

All cases, for as long as you like: `python -m tests.interleavings --minutes 10`, or `make simulate`.

How to write a case
-------------------
A case is a function that is given the scheduler. It runs on a controlled thread, so whatever it builds uses the scheduler's
primitives; it starts threads, joins them, and asserts. Things of its own that other threads could see in between are
switch points too: `scheduler.point("what")`. Where a test double may do one thing or another, `scheduler.choose("what", 3)` makes
that a decision of the search. A case with a long beginning is `calm`: the search decides only inside `scheduler.exploring()`.
"""
