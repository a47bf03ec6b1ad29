"""Arrivals as a caller of a stated behaviour would leave them: the bench of the caller checks. Instants in seconds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson

from harness.callers.judge import CHECKS
from harness.callers.log import Log, read_log
from harness.callers.parameters import Params
from harness.callers.seen import seen
from harness.checks.verdict import Verdict

S = 1_000_000_000
DATE = "Sun, 06 Nov 1994 08:49:37 GMT"


class Arrivals:
    """`at` adds one; answers take 2 ms."""

    def __init__(self, scenario: str = "down", **manifest: Any) -> None:
        self.rows: list[dict[str, Any]] = []
        self.manifest = {"schema": 1, "scenario": scenario, "judges": [], **manifest}

    def at(self, at_s: float, answer: str = "failed", status: int = 503, body: str = "b", **more: Any) -> Arrivals:
        """said: request headers; told: the answer's; took_s; all else as in the row."""
        took = more.pop("took_s", 0.002)
        row = {
            "arrival": f"a{len(self.rows) + 1}", "t_ns": round(at_s * S), "answered_ns": round((at_s + took) * S),
            "done_ns": round((at_s + took) * S), "identity": "i", "method": "POST", "path": "/service",
            "form": "service", "nature": "write", "body": body, "answer": answer, "status": status, **more,
        }  # fmt: skip
        self.rows.append(row)
        return self

    def served(self, at_s: float, **more: Any) -> Arrivals:
        return self.at(at_s, "served", 200, **more)

    def refused(self, at_s: float, retry_after: str | None, **more: Any) -> Arrivals:
        told = {"date": DATE} | ({"retry-after": retry_after} if retry_after is not None else {}) | more.pop("told", {})
        return self.at(at_s, "refused", 429, told=told, **more)

    def each(self, instants: Iterable[float], **more: Any) -> Arrivals:
        for instant in instants:
            self.at(instant, **more)
        return self

    def log(self) -> Log:
        return read_log("x", orjson.dumps(self.manifest), [orjson.dumps(row) for row in self.rows])

    def judge(self, check: str, **params: Any) -> Verdict:
        self.manifest.setdefault("ended_ns", 10**12)
        return CHECKS[f"caller.{check}"].judge(seen(self.log(), Params(**params)))


def instants(*gaps_s: float) -> list[float]:
    """Starts that leave these pauses between the end of an answer (2 ms) and the next attempt."""
    found = [1.0]
    for gap in gaps_s:
        found.append(found[-1] + 0.002 + gap)
    return found
