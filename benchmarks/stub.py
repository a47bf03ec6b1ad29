"""What the stub costs and how exact it is: CPU of a call, its own loop lag at 2,500 calls/s, and its service times.

    python benchmarks/stub.py [--seconds 5]

The client is a bare asyncio protocol on uvloop; it neither parses bodies nor keeps anything. Figures depend on the
machine and on what else runs there: read them beside the load average that is printed.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from collections import Counter, deque
from pathlib import Path

import orjson
import uvloop

from harness.target.stub import StubProcess
from stub_service.config import AdmissionConfig, ServiceTimeConfig, SharedServiceConfig

MS = 1_000_000
TICK_S = 0.002


class Connection(asyncio.Protocol):
    """One call at a time; hands itself back when the answer is whole (one Content-Length, one segment or several)."""

    def __init__(self, idle, statuses):
        self.idle, self.statuses, self.seen = idle, statuses, b""

    def connection_made(self, transport):
        self.transport = transport
        self.idle.append(self)

    def data_received(self, data):
        self.seen += data
        head, end, body = self.seen.partition(b"\r\n\r\n")
        if end and len(body) >= int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0]):
            self.statuses[int(head[9:12])] += 1
            self.seen = b""
            self.idle.append(self)


async def drive(port: int, rate: int, seconds: float, connections: int) -> Counter:
    """rate 0: as fast as the stub answers on these connections; else that many calls a second, on a schedule."""
    loop, idle, statuses = asyncio.get_running_loop(), deque(), Counter()
    for _ in range(connections):
        await loop.create_connection(lambda: Connection(idle, statuses), "127.0.0.1", port)
    began, sent = time.perf_counter(), 0
    while (at := time.perf_counter() - began) < seconds:
        due = int(at * rate) if rate else sent + len(idle)
        while sent < due and idle:
            head = f"Authorization: Bearer token-{'ABCD'[sent % 4]}\r\nOverload-Call: 0.{sent}\r\n"
            ids = f"Overload-Attempt: 0.{sent}.1\r\nOverload-Round: 0\r\nOverload-Queue-Deadline-Ms: 2000\r\n"
            idle.popleft().transport.write(f"GET /service HTTP/1.1\r\nHost: s\r\n{head}{ids}\r\n".encode())
            sent += 1
        await asyncio.sleep(TICK_S if rate else 0)
    return statuses


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rss_mb(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def measure(title: str, service: tuple[int, float, int], rate: int, seconds: float, connections: int) -> None:
    """service: workers, service time in ms, queue of a tenant."""
    workers, service_ms, queue = service
    config = SharedServiceConfig(
        ((0, workers),),
        ServiceTimeConfig(mean_ns=int(service_ms * MS)),
        AdmissionConfig("fair_queues", queue_per_tenant=queue),
    )
    with tempfile.TemporaryDirectory() as folder, StubProcess(config, Path(folder)) as stub:
        stub.set_epoch(time.monotonic_ns())
        before = cpu_s(stub.pid)
        statuses = uvloop.run(drive(stub.port, rate, seconds, connections))
        spent, memory, lag = cpu_s(stub.pid) - before, rss_mb(stub.pid), stub.health()["loop_lag"]
        stub.stop()
        rows = [orjson.loads(line) for line in (Path(folder) / "decisions.jsonl").read_bytes().splitlines()]
    calls = statuses.total()
    lag_ms = [round(lag[key] / MS, 2) for key in ("p50_ns", "p99_ns", "max_ns")]
    print(f"{title}: {calls / seconds:,.0f} answers/s {dict(statuses)}")
    print(f"  cpu {spent / calls * 1e6:.0f} us a call, {spent / seconds:.0%} of a core; {memory:.0f} MiB")
    print(f"  loop lag p50, p99, max: {lag_ms} ms")
    if statuses[200] > 100:
        show_service_times(rows, workers, service_ms)


def show_service_times(rows: list[dict], workers: int, service_ms: float) -> None:
    """Asked against measured; and what was served in whole service times, against what the workers can do in them."""
    served = [row["service_ns"] / MS for row in rows if row["outcome"] == "served"]
    cuts = statistics.quantiles(served, n=100)
    p1, p50, p99 = cuts[0], cuts[49], cuts[98]
    print(
        f"  service time asked {service_ms} ms: mean {statistics.fmean(served):.3f}, {p1:.3f} / {p50:.3f} / {p99:.3f}"
    )
    ends = sorted(row["t_ns"] / MS for row in rows if row["outcome"] == "served")
    first = ends[0] + service_ms / 2  # workers are full by now; half-way between two ends
    spans = int((ends[-1] - first) / service_ms) - 1
    if spans > 10 and service_ms > 1:
        done = sum(first < end <= first + spans * service_ms for end in ends)
        print(f"  {done / (spans * workers):.2%} of the capacity of {workers / service_ms * 1000:,.0f}/s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=5.0)
    seconds = parser.parse_args().seconds
    print(f"load average {os.getloadavg()[0]:.2f} on {os.cpu_count()} cores")
    measure("refusals, as fast as they come", (1, 60_000, 1), 0, seconds, 32)
    measure("served at once, as fast as they come", (64, 0.001, 100), 0, seconds, 32)
    measure("2,500/s offered, 500/s of capacity", (25, 50, 50), 2500, seconds, 1000)
    measure("1,100/s offered, 1,000/s of capacity", (20, 20, 200), 1100, seconds, 1000)


if __name__ == "__main__":
    main()
