"""What a soak drives: three ordinary tenants, an agent that re-plans, and runs, with one fault after another."""

from __future__ import annotations

from typing import Any

FAULTS: tuple[dict[str, Any], ...] = (
    {"kind": "error", "status": 503, "from": 1, "to": 9},
    {"kind": "slow", "factor": 5, "from": 18, "to": 25},
    {"kind": "retry_after", "retry_after": "1", "from": 31, "to": 36},
    {"kind": "hang", "operation": "write", "from": 42, "to": 44},
    {"kind": "outage", "from": 50, "to": 53},
)
"""Of every minute, in its seconds."""


def document(duration_s: float, rate: int = 200) -> dict[str, Any]:
    """A shared service with three ordinary tenants and an agent that re-plans, and runs behind a capacity layer whose
    dependency has one fault after another. About `rate` calls a second in all."""
    share = max(1, rate // 10)
    bursts = [
        {"from": f"{at}s", "to": f"{min(at + 8, int(duration_s))}s", "rate": f"{6 * share}/s"}
        for at in range(20, int(duration_s), 60)
    ]
    faults = [
        {
            **fault,
            "dependency": "customer",
            "from": f"{minute + fault['from']}s",
            "to": f"{min(minute + fault['to'], int(duration_s))}s",
        }
        for minute in range(0, int(duration_s) + 1, 60)
        for fault in FAULTS
        if minute + fault["from"] < duration_s
    ]
    limits = {"limit": 40, "queue": 60, "timeout": "500ms"}
    return {
        "name": "soak",
        "duration": f"{int(duration_s * 1000)}ms",
        "drain": "10s",
        "patience": "1s",
        "patience_until": "start",
        "service": {"workers": max(4, rate // 10), "service_time": "50ms",
                    "admission": {"policy": "fair_queues", "queue_per_tenant": 50}},
        "capacity": {
            "ceiling": 80,
            "dependencies": {"customer": {
                "workers": 60, "service_time": "20ms", "reads": limits, "writes": limits,
                "circuit": {"window": "1s", "slow": "400ms", "open_for": "500ms", "lease": "1s"}}},
            "envelope": {"deadline": "3s", "attempts": 12, "parallel": 3, "retry_tokens": 2},
            "retry": {"base": "50ms", "most": "400ms", "jitter": 0.5},
            "recovery": {"from_rate": "50/s", "to_rate": "400/s", "ramp": "1s"},
        },
        "faults": faults,
        "tenants": {
            **{name: {"rate": f"{share}/s"} for name in "ABC"},
            "agent": {"rate": [f"{3 * share}/s", *bursts], "replans": {"calls": 2, "after": "200ms", "rounds": 2}},
            "runs": {"runs": [{"name": "ticket", "rate": f"{share}/s", "batches": [
                [{"dependency": "customer", "tool": "read"}, {"dependency": "customer", "tool": "history"}],
                [{"dependency": "customer", "operation": "write", "tool": "update"}]]}]},
        },
        "ordinary": ["A", "B", "C"],
        "checks": ["trial.conserved", "trial.leak_free", "trial.on_time"],
    }  # fmt: skip
