"""One execution of a run: positions, branches, delivery of recorded outcomes."""
