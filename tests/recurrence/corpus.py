"""Cron expressions as they are found in the wild, for the comparison with other libraries."""

from __future__ import annotations

_MINUTES = ["*", "*/5", "*/10", "*/15", "0", "30", "7", "0,30", "5-55/10", "13,43"]
_HOURS = ["*", "*/2", "0", "2", "3", "9-17", "8-18/2", "1,13", "23", "0-6"]
_DAYS = ["* * *", "* * 1-5", "* * 0", "1 * *", "1,15 * *", "* */3 *", "L * *", "* * 6,0", "29 2 *", "13 * 5"]

GRID = [f"{minute} {hour} {days}" for minute in _MINUTES for hour in _HOURS[:5] for days in _DAYS[:4]]
"""Everyday combinations of everyday fields."""

EVERYDAY = [f"{minute} {hour} {days}" for minute in _MINUTES[4:6] for hour in _HOURS for days in _DAYS]

SPECIAL = """
0 0 1 1 *
0 0 1 1,7 *
0 12 * * mon
0 12 * * MON-FRI
30 4 1-7 * 1
0 0 1-7 * *
0 22 * * 1-5
23 0-20/2 * * *
5 4 * * sun
0 0,12 1 */2 *
0 4 8-14 * *
15 14 1 * *
0 0 31 * *
0 0 30 4,6,9,11 *
0 0 29 2 *
59 23 31 12 *
0 9 1 jan *
0 0 * jan-mar sun
0 0 1 */3 *
0 0 */2 * *
0 0 1-31/2 * *
0 0 * * 7
0 0 * * 5-7
0 0 * * 1-7/2
0 0 * * 0-7/7
*/7 * * * *
*/45 * * * *
10/15 * * * *
0 3/4 * * *
0 0 1/10 * *
30 1 * * *
30 2 * * *
15 2 * * *
45 1 * * *
0 0 * * 5#1
0 0 * * fri#2
0 0 * * 5#5
0 6 * * 1#1
0 0 L * *
0 0 1,L * *
2 2 2 2 *
1,2,3,5,8,13,21,34,55 * * * *
0 0 13 * 5
0 0 13 * fri
30 8 10 6 *
0 0 25 12 *
0 18 * * 1,3,5
20,50 7-19 * * 1-5
0 */6 * * *
0 */12 * * *
11 3 * * 2
0 5 * 8 *
4-59/20 * * * *
58 11,23 * * *
""".strip().splitlines()

CORPUS = list(dict.fromkeys([*GRID, *EVERYDAY, *SPECIAL]))
