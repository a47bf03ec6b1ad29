"""How fast a recorded log is played against policies, and how much memory that takes.

    python benchmarks/shadow.py [--lines 100000 1000000]

Writes combined access logs (`benchmarks/recorded.py`: lines out of order, 5,000 tenants of very unequal size), and runs
`overload shadow` on each in a process of its own: one policy, then three side by side. Prints seconds and the peak
resident memory of the command and of its largest child. The target: a million lines in under 15 s and 1 GiB.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.recorded import write_log

TARGET_S, TARGET_MIB = 15, 1024
POLICIES = ("fair_queues:queue=50", "shared_fifo:queue=200", "tenant_cap:queue=200,cap=4")


def run(path: Path, policies: tuple[str, ...]) -> tuple[float, float, float]:
    """(seconds, CPU seconds, peak MiB) of one command."""
    asked = [part for policy in policies for part in ("--policy", policy)]
    code = (
        "import resource, sys\n"
        "from harness.cli import main\n"
        "try:\n    main(sys.argv[1:])\nfinally:\n"
        "    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]\n"
        "    print(max(one.ru_maxrss for one in both), sum(one.ru_utime + one.ru_stime for one in both),\n"
        "          file=sys.stderr)"
    )
    command = [sys.executable, "-c", code, "shadow", str(path), "--workers", "12", "--service-time", "100ms", *asked]
    begin = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, "NO_COLOR": "1"})
    peak_kib, cpu_s = done.stderr.split()[-2:]
    return time.perf_counter() - begin, float(cpu_s), int(peak_kib) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lines", type=int, nargs="+", default=[100_000, 1_000_000])
    given = parser.parse_args()
    print(f"{'lines':>12}  {'policies':>8}  {'s':>7}  {'CPU s':>7}  {'CPU us/line':>12}  {'peak MiB':>9}", flush=True)
    for lines in given.lines:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "access.log"
            write_log(path, lines)
            for policies in (POLICIES[:1], POLICIES):
                took_s, cpu_s, peak_mib = run(path, policies)
                figures = f"{took_s:>7.1f}  {cpu_s:>7.1f}  {cpu_s / lines * 1e6:>11.1f}  {peak_mib:>9.0f}"
                print(f"{lines:>12,}  {len(policies):>8}  {figures}", flush=True)
    print(f"target: a million lines in under {TARGET_S} s and {TARGET_MIB} MiB")


if __name__ == "__main__":
    main()
