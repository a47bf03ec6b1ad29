"""Memory against the length of a trial: the simulator and the live driver, ledgers written.

    python -m benchmarks.memory [--live]

Peak resident memory of a process that runs one trial, for trials that differ only in length: it must not grow. Live
trials take 10 and 40 seconds at 300 calls/s against the bundled stub. Asserts nothing.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from harness import trial
from harness.ledger.reader import read_trial
from harness.profile.loader import from_document

SIMULATED_S = (60, 240, 960, 3840)
LIVE_S = (10, 40)


def document(duration_s: int, rate: int) -> dict[str, Any]:
    return {
        "name": "memory",
        "duration": f"{duration_s}s",
        "patience": "1s",
        "patience_until": "start",
        "service": {
            "workers": 20,
            "service_time": "50ms",
            "admission": {"policy": "fair_queues", "queue_per_tenant": 50},
        },
        "tenants": {
            **{name: {"rate": f"{rate // 6}/s"} for name in "ABC"},
            "D": {"rate": f"{rate // 2}/s", "replans": {"calls": 2, "after": "200ms", "rounds": 1}},
        },
    }


def one(mode: str, duration_s: int, folder: str) -> None:
    """Child: one trial, then its peak memory in MiB on standard output."""
    if mode == "simulated":
        trial.simulate(from_document(document(duration_s, 600)), Path(folder))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    else:
        trial.drive(from_document(document(duration_s, 300)), Path(folder), trial.STUB, None, lambda event: None)
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    print(json.dumps({"mib": peak / 1024, "calls": len(read_trial(Path(folder)).calls)}))


def measured(mode: str, duration_s: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "benchmarks.memory", "--one", mode, str(duration_s), folder]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main(args: list[str]) -> None:
    if args[:1] == ["--one"]:
        one(args[1], int(args[2]), args[3])
        return
    print("peak resident memory of one trial")
    for duration_s in SIMULATED_S:
        found = measured("simulated", duration_s)
        print(f"  simulated {duration_s:>6} s  {found['calls']:>10,} calls  {found['mib']:7.1f} MiB")
    for duration_s in LIVE_S if "--live" in args else ():
        found = measured("live", duration_s)
        print(f"  live      {duration_s:>6} s  {found['calls']:>10,} calls  {found['mib']:7.1f} MiB (largest child)")


if __name__ == "__main__":
    main(sys.argv[1:])
