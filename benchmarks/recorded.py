"""How fast a log becomes a schedule, and that memory does not grow with it.

    python benchmarks/recorded.py [--lines 200000 1000000]

Writes access logs of two lengths whose lines are out of order (every hour shuffled, as several servers would log), and
prepares each for a replay in a process of its own: read, sort, fold all but 20 of 5,000 tenants, write. Prints lines a
second and the peak resident memory. Bounded: a million lines are 100 MB of temporary files and about half a minute.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from fractions import Fraction
from pathlib import Path
from random import Random

from harness.recorded.lines import Source
from harness.recorded.prepare import Plan, prepare
from harness.recorded.reader import Reading

_PER_S = 100


def write_log(path: Path, lines: int) -> None:
    """`lines` calls at about 100/s, shuffled within blocks of 50,000."""
    rng = Random(1)
    with path.open("w") as file:
        for begin in range(0, lines, 50_000):
            calls = [begin + i for i in range(min(50_000, lines - begin))]
            rng.shuffle(calls)
            for call in calls:
                second = call // _PER_S
                clock = f"{second // 3600 % 24:02d}:{second // 60 % 60:02d}:{second % 60:02d}"
                stamp = f"{1 + second // 86_400:02d}/May/2015:{clock}"
                tenant = int(rng.paretovariate(0.5)) % 5_000
                file.write(
                    f"10.0.{tenant // 250}.{tenant % 250} - - [{stamp} +0000] "
                    f'"GET /item/{call % 9_973} HTTP/1.1" 200 {call % 50_000} "-" "browser"\n'
                )


def one(path: Path) -> None:
    with tempfile.TemporaryDirectory() as folder, path.open("rb") as file:
        begin = time.perf_counter()
        source = Source(path.name, file, path.stat().st_size)
        found = prepare([source], Reading(spread_seed=1), Plan(speed=Fraction(10), top=20), Path(folder))
        took_s = time.perf_counter() - begin
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    lines = found.account.lines
    print(f"{lines:>12,}  {lines / took_s:>12,.0f}  {took_s / lines * 1e6:>8.1f}  {peak_mib:>9.0f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lines", type=int, nargs="+", default=[200_000, 1_000_000])
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one is not None:
        one(given.one)
        return
    print(f"{'lines':>12}  {'lines/s':>12}  {'us/line':>8}  {'peak MiB':>9}", flush=True)
    for lines in given.lines:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "access.log"
            write_log(path, lines)
            subprocess.run([sys.executable, __file__, "--one", str(path)], check=True)


if __name__ == "__main__":
    main()
