"""A long trial, and commands whose processes are killed: memory stays flat, the audit balances, the record stays whole.

    python -m benchmarks.soak --minutes 60                 200 calls/s, an agent that re-plans, faults all along
    python -m benchmarks.soak --kills 100 --seed 1         a hundred processes killed at random moments
    python -m benchmarks.soak --kills 4 --kinds stub,parent

The long trial: benchmarks/soak/long_trial.py. Kills, and whom: benchmarks/soak/kills.py.
Never run the long trial beside anything whose figures matter. Exit code 0: all held; 1: something did not; 3: cannot
tell.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from benchmarks.soak.kills import kills
from benchmarks.soak.long_trial import soak
from benchmarks.soak.scenes import KINDS


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.soak", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=60.0, help="length of the long trial (%(default)s)")
    parser.add_argument("--rate", type=int, default=200, help="calls a second, re-plans included (%(default)s)")
    parser.add_argument("--kills", type=int, default=0, help="instead: so many processes killed")
    parser.add_argument("--kinds", default=",".join(KINDS), help="whose processes, and which (%(default)s)")
    parser.add_argument("--jobs", type=int, default=1, help="so many kills at a time (%(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--reports", type=Path, default=None, help="keep the trials here (default: nowhere)")
    given = parser.parse_args()
    kinds = [kind for kind in given.kinds.split(",") if kind]
    if min(given.minutes, given.jobs) <= 0 or given.rate < 10 or given.kills < 0 or not kinds or {*kinds} - {*KINDS}:
        parser.error(f"--minutes and --jobs above 0, --rate from 10 on, --kinds of {', '.join(KINDS)}")
    with tempfile.TemporaryDirectory() as folder:
        reports = (given.reports or Path(folder)).resolve()
        reports.mkdir(parents=True, exist_ok=True)
        if given.kills:
            return kills(given.kills, kinds, given.seed, given.jobs, reports)
        return soak(given.minutes, given.rate, reports)


if __name__ == "__main__":
    sys.exit(main())
