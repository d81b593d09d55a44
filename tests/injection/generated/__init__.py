"""Workflow programs that nobody wrote: made from a seed, deterministic by construction, played like the shapes that are written by hand.

- `program.py`: what a program is, and how a seed makes one.
- `interpreter.py`: workflows that execute a program.
- `judge.py`: which results a program may have, and what else must be true of it.
- `shape.py`: a program as a shape, under a name that says how it was made: `g17`, or `g17~4~9` without two of its nodes.
- `shrink.py`: the smallest program that still fails.
"""
