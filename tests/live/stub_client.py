"""A caller of the stub over a plain socket: what is sent is exactly what a test wrote."""

from __future__ import annotations

import re
import socket
import time
from collections import defaultdict
from dataclasses import dataclass
from http.client import HTTPResponse
from pathlib import Path

import orjson

from harness.target.stub import StubProcess
from stub_service.config import AdmissionConfig, ServiceTimeConfig, SharedServiceConfig

MS = 1_000_000
PATIENCE_S = 15.0


def config(policy="shared_fifo", workers=1, queue=1, service_ms=50, cap=1, changes=()):
    """A small shared service. changes: ((from_ms, workers), ...)."""
    return SharedServiceConfig(
        ((0, workers), *((at * MS, count) for at, count in changes)),
        ServiceTimeConfig(mean_ns=service_ms * MS),
        AdmissionConfig(policy, queue=queue, queue_per_tenant=queue, cap=cap),
    )


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self):
        return orjson.loads(self.body)

    @property
    def timing_ms(self):
        """(queue, service) of Server-Timing."""
        match = re.fullmatch(r"queue;dur=(\d+\.\d{3}), service;dur=(\d+\.\d{3})", self.headers["server-timing"])
        return float(match[1]), float(match[2])


class Caller:
    """One connection."""

    def __init__(self, stub):
        self.socket = socket.create_connection(("127.0.0.1", stub.port), timeout=PATIENCE_S)

    def send(self, tenant="A", path="/service", method="GET", **headers):
        """Sends a request whole. Header names are written with underscores."""
        lines = [f"{method} {path} HTTP/1.1", "Host: stub"]
        if tenant is not None:
            lines.append(f"Authorization: Bearer token-{tenant}")
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        self.socket.sendall("\r\n".join([*lines, "", ""]).encode())
        return self

    def answer(self) -> Answer:
        response = HTTPResponse(self.socket)
        response.begin()
        headers = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, headers, response.read())

    def ask(self, *args, **headers) -> Answer:
        return self.send(*args, **headers).answer()

    def hang_up(self):
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()


def wait_for(stub: StubProcess, what, health=None):
    """Asks for the stub's health until `what(health)` holds; fails after a bounded time."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        health = stub.health()
        if what(health):
            return health
    raise AssertionError(f"it never came to be: {health}")


def rows(folder: Path):
    return [orjson.loads(line) for line in (folder / "decisions.jsonl").read_bytes().splitlines()]


EARLIER = {"throttled": [[]], "served": [["queued", "started"]], "failed": [[], ["queued"], ["queued", "started"]]}


def audit(folder: Path):
    """Every queued call has exactly one terminal row, every started one was queued; returns outcomes by call id."""
    seen = defaultdict(list)
    for row in rows(folder):
        seen[row["call"]].append(row["outcome"])
    for call, outcomes in seen.items():
        interim, terminal = outcomes[:-1], outcomes[-1]
        assert terminal in ("served", "throttled", "expired", "cancelled", "failed"), (call, outcomes)
        assert interim in EARLIER.get(terminal, [["queued"]]), (call, outcomes)
    return {call: outcomes[-1] for call, outcomes in seen.items()}
