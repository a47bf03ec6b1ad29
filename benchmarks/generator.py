"""CPU that one recorded call costs the generator, against stock Locust users, in one go.

    python benchmarks/generator.py [--calls 20000] [--rate 2000] [--repeats 3]

Target: a server in a process of its own that answers at once (tiny_server.py). Ours: `python -m harness.live` with its
open loop, its ledger row and Locust's statistics; CPU as the driver itself accounts for it (user + system, from the
epoch to the end). Peers: one FastHttpUser, one HttpUser, looping without a wait, one GET a task; CPU of the same kind,
and no ledger. The best of the repeats counts: what else runs here only adds.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
GOAL_US = 30.0


@contextlib.contextmanager
def tiny_server(*arguments: str) -> Iterator[str]:
    """Its URL."""
    command = [sys.executable, str(ROOT / "benchmarks" / "tiny_server.py"), *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        yield f"http://127.0.0.1:{server.stdout.readline().strip()}"
        server.stdin.close()


def drive(url: str, rate: int, duration_s: float, tenants: int = 1) -> tuple[dict, Path]:
    """One live trial of evenly spaced calls; its `done` event and its folder."""
    from harness.target.driver_process import LiveProcess

    folder = Path(tempfile.mkdtemp(prefix="overload-bench-"))
    profile = {
        "name": "benchmark",
        "duration": f"{duration_s:.3f}s",
        "tenants": {f"t{i}": {"rate": f"{rate / tenants:g}/s"} for i in range(tenants)},
    }
    target = {"kind": "url", "url": url}
    manifest = {"schema": 1, "profile": profile, "time_scale": 1.0, "target": target}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with LiveProcess(folder) as driver:
        driver.ready()
        driver.begin(time.monotonic_ns() + 50_000_000)
        for event in driver.events():
            done = event
        driver.wait()
    return done, folder


def ours(url: str, calls: int, rate: int) -> float:
    done, folder = drive(url, rate, calls / rate)
    rows = (folder / "calls.jsonl").read_bytes().count(b"\n")
    assert done["calls"] == rows == calls, (done, rows)
    return done["cpu_ns"] / 1e3 / calls


def peer(kind: str, url: str, calls: int) -> float:
    command = [sys.executable, __file__, "--peer", kind, "--url", url, "--calls", str(calls)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1])


def run_peer(kind: str, url: str, calls: int) -> None:
    """In a process of its own, since Locust patches it."""
    from locust import FastHttpUser, HttpUser, task
    from locust.env import Environment

    base = {"fast": FastHttpUser, "http": HttpUser}[kind]

    class Peer(base):
        host = url

        @task
        def call(self) -> None:
            started = time.process_time_ns()
            for _ in range(calls):
                self.client.get("/service")
            print((time.process_time_ns() - started) / 1e3 / calls, flush=True)
            self.environment.runner.quit()

    environment = Environment(user_classes=[Peer])
    environment.create_local_runner().start(1, spawn_rate=1)
    environment.runner.greenlet.join()
    assert environment.stats.total.num_requests == calls
    assert not environment.stats.total.num_failures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=20_000)
    parser.add_argument("--rate", type=int, default=2_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--peer", choices=("fast", "http"), help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peer:
        run_peer(options.peer, options.url, options.calls)
        return
    few = max(1, options.calls // 4)
    best = {"harness.live": 1e9, "FastHttpUser": 1e9, "HttpUser": 1e9}
    with tiny_server() as url:
        for _ in range(options.repeats):
            best["harness.live"] = min(best["harness.live"], ours(url, options.calls, options.rate))
            best["FastHttpUser"] = min(best["FastHttpUser"], peer("fast", url, few))
            best["HttpUser"] = min(best["HttpUser"], peer("http", url, few))
    own = best["harness.live"]
    print(f"{'generator':<14}{'us CPU a call':>15}{'ratio':>8}")
    for name, cost in best.items():
        print(f"{name:<14}{cost:>15.1f}{cost / own:>8.1f}")
    print(f"goal: at most {GOAL_US:g} us, ledger row included: {'met' if own <= GOAL_US else 'NOT met'}")


if __name__ == "__main__":
    main()
