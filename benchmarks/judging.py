"""How long it takes to read and judge a ledger of a million calls with the service's decisions, and in how much memory.

    python benchmarks/judging.py [--calls 1000000]

Simulates a profile as large as that into a temporary folder first (not counted), then reads and judges it by every
check in a fresh process, and prints seconds, peak resident memory, and the ratio to what they may be: 10 s and 1 GiB.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from harness.checks import CHECKS, judge_all
from harness.ledger.reader import CALLS, DECISIONS, read_trial
from harness.matrix import trial_in_virtual_time

SECONDS, BYTES = 10.0, 1 << 30
CALLS_OF_PROFILE = 36_000  # about what the profile offers in 100 s at scale 1, re-plans included


def document(calls: int) -> dict[str, object]:
    """Fair queues, six ordinary tenants and a runaway, with rates and workers for about that many calls."""
    k = max(1, calls // CALLS_OF_PROFILE)
    return {
        "name": "judging",
        "duration": "100s",
        "phases": {"calm": ["0s", "40s"], "burst": ["40s", "80s"], "recovery": ["80s", "100s"]},
        "patience": "2s",
        "patience_until": "start",
        "service": {
            "workers": 16 * k,
            "service_time": "200ms",
            "admission": {"policy": "fair_queues", "queue_per_tenant": 50 * k},
        },
        "tenants": {
            "runaway": {
                "rate": [f"{8 * k}/s", {"from": "40s", "to": "80s", "rate": f"{80 * k}/s"}],
                "replans": {"calls": 2, "after": "500ms", "rounds": 3},
                "budget": {"rate": f"{1000 * k}/s", "burst": 1000},
            },
            **{f"t{i}": {"rate": f"{8 * k}/s", "pace": "poisson"} for i in range(6)},
        },
        "ordinary": [f"t{i}" for i in range(6)],
    }


def judge(folder: Path) -> None:
    """In a process of its own, so that the peak is that of judging alone."""
    begun = time.perf_counter()
    trial = read_trial(folder)
    read_s = time.perf_counter() - begun
    parts = []
    for name in CHECKS:
        at = time.perf_counter()
        (verdict,) = judge_all(trial, [name])
        parts.append((name, verdict.word.value, time.perf_counter() - at))
    total_s = time.perf_counter() - begun
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(f"{len(trial.calls)} calls, {(folder / CALLS).stat().st_size / 1e6:.0f} MB of calls and "
          f"{(folder / DECISIONS).stat().st_size / 1e6:.0f} MB of decisions")  # fmt: skip
    print(f"  {'reading':32} {read_s:6.2f} s")
    for name, word, took_s in parts:
        print(f"  {name:32} {took_s:6.2f} s  {word}")
    print(f"  {'in all':32} {total_s:6.2f} s  {total_s / SECONDS:.2f} of {SECONDS:g} s")
    print(f"  {'peak memory':32} {peak / 2**20:6.0f} MiB  {peak / BYTES:.2f} of {BYTES / 2**20:.0f} MiB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=1_000_000)
    parser.add_argument("--judge", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.judge:
        judge(options.judge)
        return
    with TemporaryDirectory() as folder:
        trial_in_virtual_time(Path(folder), document(options.calls))
        subprocess.run([sys.executable, __file__, "--judge", folder], check=True)


if __name__ == "__main__":
    main()
