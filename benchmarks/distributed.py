"""Calls a second with one and with two workers, what the master costs, and what a worker's death leaves unaccounted.

    python -m benchmarks.distributed [--rate 12000] [--seconds 2] [--repeats 3]

Target: a server in a process of its own that answers at once (tiny_server.py). Far more is offered than one worker can
send; calls/s are those that were done, over the time that it took. Master, workers and server share the cores of the
machine, so that the ratio says what this machine allows, and the CPU of a call what another would. Then one of two
workers is killed half-way: each call of its that was due must have its row, or be counted.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.generator import tiny_server  # noqa: E402
from harness.machine import usable_cores  # noqa: E402
from harness.target.driver_process import LiveProcess, Workers  # noqa: E402

TENANTS = 20
LEAD_NS = 500_000_000


def cpu_us(pid: int) -> float:
    """User and system time of a process, so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * 1e6 / os.sysconf("SC_CLK_TCK")


def drive(
    url: str, rate: int, seconds: float, workers: Workers, kill_at_s: float = 0.0
) -> tuple[dict, list[dict], float]:
    """(the `done` event, the rows, the master's own CPU in us)."""
    folder = Path(tempfile.mkdtemp(prefix="overload-bench-"))
    tenants = {f"t{i:02}": {"rate": f"{rate / TENANTS:g}/s"} for i in range(TENANTS)}
    profile = {"name": "benchmark", "duration": f"{seconds:g}s", "drain": "30s", "tenants": tenants}
    manifest = {"schema": 1, "profile": profile, "time_scale": 1.0, "target": {"kind": "url", "url": url}}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    done: dict[str, Any] = {}
    with LiveProcess(folder, workers=workers) as driver:
        ready = driver.ready()
        before_us = cpu_us(driver.pid)
        driver.begin(time.monotonic_ns() + LEAD_NS)
        for event in driver.events():
            done = event
            if kill_at_s and event.get("now_ns", 0) > kill_at_s * 1e9:
                os.kill(ready["workers"]["worker-2"], signal.SIGKILL)
                kill_at_s = 0.0
            if event["event"] == "done":
                after_us = cpu_us(driver.pid)
        driver.wait()
    rows = [json.loads(line) for line in (folder / "calls.jsonl").read_bytes().splitlines()]
    shutil.rmtree(folder)
    return done, rows, after_us - before_us


def throughput(rows: list[dict]) -> float:
    return len(rows) / (max(row["done_ns"] for row in rows) / 1e9)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=int, default=12_000)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    kinds = {"one process": Workers(), "1 worker": Workers(here=1), "2 workers": Workers(here=2)}
    best: dict[str, tuple[float, float, float]] = {}
    with tiny_server() as url:
        for _ in range(options.repeats):
            for name, workers in kinds.items():
                done, rows, master_us = drive(url, options.rate, options.seconds, workers)
                assert done["calls"] == len(rows) == round(options.rate * options.seconds), done
                figures = (throughput(rows), done["cpu_ns"] / 1e3 / len(rows), master_us / len(rows))
                best[name] = max(best.get(name, figures), figures)
        print(f"{usable_cores()} cores; {options.rate:,} calls/s offered for {options.seconds:g} s, all of them done")
        print(f"{'':<14}{'calls/s':>10}{'ratio':>8}{'us CPU a call':>15}{'of the master':>15}")
        for name, (per_s, cost, master) in best.items():
            shown = f"{master:>15.1f}" if name != "one process" else f"{'-':>15}"
            print(f"{name:<14}{per_s:>10,.0f}{per_s / best['1 worker'][0]:>8.2f}{cost:>15.1f}{shown}")
        rate = min(2_000, options.rate)
        done, rows, _ = drive(url, rate, 6.0, Workers(here=2), kill_at_s=2.0)
    report_death(done, rows, rate)


def report_death(done: dict, rows: list[dict], rate: int) -> None:
    (lost,) = done["workers"]["lost"]
    theirs = next(one for one in done["workers"]["all"] if one["name"] == lost["name"])["tenants"]
    gap_ns = TENANTS * 10**9 / rate
    due = len(theirs) * (int(lost["at_ns"] / gap_ns) + (lost["at_ns"] % gap_ns > 0))
    have = sum(row["tenant"] in theirs for row in rows)
    missing = lost["unaccounted"]
    print(
        f"\na worker of two killed at {lost['at_ns'] / 1e9:.2f} s, {rate:,} calls/s: {due:,} of its calls were due, "
        f"{have:,} are in the record, {missing:,} counted as missing; neither: {due - have - missing}"
    )


if __name__ == "__main__":
    main()
