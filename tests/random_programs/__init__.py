"""Random programs with auditors: actors do to runs whatever their seed says, while workers execute them and are killed.

A program (`keys`, `messages`, `ending_runs`, `pruning`, `limits`, `moving`) says what one actor does and what must hold at the end.
`stage` brings workers, actors and the database together. The suite plays each for seconds, with fixed seeds;
`python -m tests.random_programs --minutes 10` plays all of them for longer.
"""
