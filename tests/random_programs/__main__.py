"""`python -m tests.random_programs --minutes 10 --database both`: every random program, for its share of the time."""

from __future__ import annotations

import argparse
import logging
import sys
import time

from tests.random_programs.programs import PROGRAMS
from tests.random_programs.stage import play


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10, help="altogether, for all programs and databases")
    parser.add_argument("--database", choices=["sqlite", "postgres", "both"], default="both")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="who does what, not when exactly")
    parser.add_argument("--only", choices=[each.name for each in PROGRAMS], action="append", help="these programs")
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    logging.getLogger("mainspring").setLevel(logging.ERROR)
    databases = ["sqlite", "postgres"] if given.database == "both" else [given.database]
    programs = [each for each in PROGRAMS if not given.only or each.name in given.only]
    share = given.minutes * 60 / len(databases) / len(programs)
    good = True
    for database in databases:
        for program in programs:
            outcome = play(program, database, share, given.seed, workers=given.workers)
            sys.stdout.write(f"{outcome}\n")
            sys.stdout.flush()
            good = good and not outcome.faults
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
