"""CPU that one recorded call costs the generator, against stock Locust users, in one go.

    python benchmarks/generator.py [--calls 20000] [--repeats 3]

Target: a server in a process of its own that answers at once (tiny_server.py). Ours: `python -m harness.live` with its
open loop, its ledger row and Locust's statistics, as the driver itself accounts for it (user + system, from the epoch
to the end). Over TLS, handshakes included, at a rate that leaves time for them (one costs more than ten calls), beside
plain HTTP at the same rate. Peers, over plain HTTP: FastHttpUser and HttpUser without a wait, one GET a call; no open
loop, no ledger. Twice: one call at a time, where every call pays for two wake-ups, a kernel timer and a sleeping
server; and fifty at once, as tenants in step or users side by side. A bare blocking socket shows what of the former is
the machine's. The best of the repeats counts: what else runs here only adds.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
GOAL_US = 30.0


@contextlib.contextmanager
def tiny_server(*arguments: str) -> Iterator[str]:
    """Its URL."""
    command = [sys.executable, str(ROOT / "benchmarks" / "tiny_server.py"), *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        scheme = "https" if "--tls" in arguments else "http"
        yield f"{scheme}://127.0.0.1:{server.stdout.readline().strip()}"
        server.stdin.close()


def drive(url: str, rate: int, duration_s: float, tenants: int = 1, ca: str | None = None) -> tuple[dict, Path]:
    """One live trial of evenly spaced calls; its `done` event and its folder."""
    from harness.target.driver_process import LiveProcess

    folder = Path(tempfile.mkdtemp(prefix="overload-bench-"))
    profile = {
        "name": "benchmark",
        "duration": f"{duration_s:.3f}s",
        "tenants": {f"t{i}": {"rate": f"{rate / tenants:g}/s"} for i in range(tenants)},
    }
    target = {"kind": "url", "url": url} | ({"tls": {"ca": ca}} if ca is not None else {})
    manifest = {"schema": 1, "profile": profile, "time_scale": 1.0, "target": target}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with LiveProcess(folder) as driver:
        driver.ready()
        driver.begin(time.monotonic_ns() + 50_000_000)
        for event in driver.events():
            done = event
        driver.wait()
    return done, folder


def ours(url: str, calls: int, rate: int, tenants: int, ca: str | None = None) -> float:
    done, folder = drive(url, rate, calls / rate, tenants, ca)
    rows = (folder / "calls.jsonl").read_bytes().count(b"\n")
    shutil.rmtree(folder)
    assert done["calls"] == rows == calls, (done, rows)
    return done["cpu_ns"] / 1e3 / calls


def certificates(folder: str) -> tuple[str, str]:
    """A server's PEM file, key included, and its CA's."""
    import trustme

    authority = trustme.CA()
    server, ca = f"{folder}/server.pem", f"{folder}/ca.pem"
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(server)
    authority.cert_pem.write_to_path(ca)
    return server, ca


def bare(url: str, calls: int) -> float:
    request = b"POST /service HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"
    with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        started = time.process_time_ns()
        for _ in range(calls):
            time.sleep(0.0005)
            connection.send(request)
            connection.recv(65536)
        return (time.process_time_ns() - started) / 1e3 / calls


def peer(kind: str, url: str, calls: int, users: int) -> float:
    command = [sys.executable, __file__, "--peer", kind, "--url", url, "--calls", str(calls), "--users", str(users)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1])


def run_peer(kind: str, url: str, calls: int, users: int) -> None:
    """In a process of its own, since Locust patches it."""
    from locust import FastHttpUser, HttpUser, task
    from locust.env import Environment
    from locust.exception import StopUser

    base = {"fast": FastHttpUser, "http": HttpUser}[kind]
    started = 0

    class Peer(base):
        host = url

        @task
        def call(self) -> None:
            nonlocal started
            started = started or time.process_time_ns()
            for _ in range(calls // users):
                self.client.get("/service")
            if over():
                print((time.process_time_ns() - started) / 1e3 / calls, flush=True)
                environment.runner.quit()
            raise StopUser

    def over() -> bool:
        return environment.stats.total.num_requests == calls

    environment = Environment(user_classes=[Peer])
    environment.create_local_runner().start(users, spawn_rate=users)
    environment.runner.greenlet.join()
    assert over()
    assert not environment.stats.total.num_failures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=20_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--peer", choices=("fast", "http"), help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    parser.add_argument("--users", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peer:
        run_peer(options.peer, options.url, options.calls, options.users)
        return
    calls, few = options.calls, max(50, options.calls // 4)
    with contextlib.ExitStack() as stack:
        url = stack.enter_context(tiny_server())
        pem, ca = certificates(stack.enter_context(tempfile.TemporaryDirectory()))
        secure = stack.enter_context(tiny_server("--tls", pem))
        runs: dict[tuple[str, str], Callable[[], float]] = {
            ("fifty at once", "harness.live"): lambda: ours(url, calls, 10_000, 50),
            ("fifty at once", "1,000/s, plain"): lambda: ours(url, few, 1_000, 50),
            ("fifty at once", "1,000/s, TLS"): lambda: ours(secure, few, 1_000, 50, ca),
            ("fifty at once", "FastHttpUser"): lambda: peer("fast", url, few, 50),
            ("fifty at once", "HttpUser"): lambda: peer("http", url, few, 50),
            ("one at a time", "harness.live"): lambda: ours(url, few, 1_000, 1),
            ("one at a time", "1,000/s, TLS"): lambda: ours(secure, few, 1_000, 1, ca),
            ("one at a time", "FastHttpUser"): lambda: peer("fast", url, few, 1),
            ("one at a time", "HttpUser"): lambda: peer("http", url, few, 1),
            ("one at a time", "bare socket"): lambda: bare(url, few),
        }
        best = dict.fromkeys(runs, float("inf"))
        for _ in range(options.repeats):
            for name, run in runs.items():
                best[name] = min(best[name], run())
    print(f"{'':<15}{'generator':<16}{'us CPU a call':>14}{'ratio':>8}")
    for (how, name), cost in best.items():
        print(f"{how:<15}{name:<16}{cost:>14.1f}{cost / best[how, 'harness.live']:>8.1f}")
    own = best["fifty at once", "harness.live"]
    print(f"goal: at most {GOAL_US:g} us, ledger row included: {'met' if own <= GOAL_US else 'NOT met'} ({own:.1f})")


if __name__ == "__main__":
    main()
