"""Small trials for the tests of reports: folders written row by row, with every outcome in them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import orjson

from harness.checks.verdict import Finding, Verdict, Word
from harness.ledger.outcomes import NEVER_SENT, TERMINAL
from harness.ledger.reader import Trial, read_trial
from harness.ledger.writer import write_manifest

MS = 1_000_000
HOSTILE = (
    "[red]loud[/red]",
    "\x1b[31mred\x1b]0;title\x07",
    "a\u202eb\u2066",
    "</script><img src=x onerror=x()>",
    "工具·é",
)


def profile(tenants: list[str], ordinary: list[str], **more: Any) -> dict[str, Any]:
    document = {
        "name": "small",
        "about": "A small trial.",
        "duration": "10s",
        "phases": {"calm": ["0s", "4s"], "burst": ["4s", "8s"]},
        "patience": "2s",
        "patience_until": "start",
        "tenants": {name: {"rate": "8/s"} for name in tenants},
        "ordinary": ordinary,
    }
    return document | more


def manifest(document: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "schema": 1,
        "trial_id": "20250102-030405-small",
        "created": "2025-01-02T03:04:05+00:00",
        "driver": "simulated",
        "profile": document,
        "time_scale": 1.0,
        "profile_hash": "0" * 64,
        "seed": 7,
        "variant": None,
        "target": {"kind": "simulator"},
        "versions": {"overload": "0.1.0"},
        "clock_domain": "virtual",
        "evidence": {"decisions": True},
        "plan": {},
        "ended": {"reason": "completed", "at_ns": 10_000 * MS, "calls": 0, "stub_loop_lag": None},
    } | more


def write(folder: Path, rows: list[dict[str, Any]], head: dict[str, Any]) -> Trial:
    folder.mkdir(parents=True, exist_ok=True)
    write_manifest(folder, head)
    (folder / "calls.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    return read_trial(folder)


def call(tenant: int, name: str, seq: int, due_ms: float, outcome: str = "served", **more: Any) -> dict[str, Any]:
    """A row: served calls take 200 ms after their wait; keys of `more` set to None are left out."""
    never = outcome in NEVER_SENT
    wait = int(more.pop("wait_ms", 0) * MS)
    due = int(due_ms * MS)
    row = {
        "call": f"{tenant}.{seq}", "attempt": 0 if never else 1, "tenant": name, "round": 0, "run": seq, "due_ns": due,
        "done_ns": due if never else due + wait + 200 * MS, "outcome": outcome,
    }  # fmt: skip
    if not never:
        row |= {"sent_ns": due, "queue_wait_ns": wait}
    return {key: value for key, value in (row | more).items() if value is not None}


def random_rows(seed: int, names: list[str], each: int) -> list[dict[str, Any]]:
    """Every outcome, re-plans, second attempts, waits told and not told."""
    rng = random.Random(seed)
    rows = []
    for tenant, name in enumerate(names):
        for seq in range(each):
            due = rng.uniform(0, 9_999)
            outcome = rng.choice(TERMINAL) if rng.random() < 0.5 else "served"
            more: dict[str, Any] = {"round": rng.choice((0, 0, 0, 1, 2)), "wait_ms": rng.uniform(0, 3_000)}
            if rng.random() < 0.2:
                more["queue_wait_ns"] = None
            if outcome not in NEVER_SENT and rng.random() < 0.1:
                rows.append(call(tenant, name, seq, due, "throttled", **more, retried=True))
                more["attempt"] = 2
            rows.append(call(tenant, name, seq, due, outcome, **more))
    rng.shuffle(rows)
    return rows


def story() -> list[dict[str, Any]]:
    """Alice is hurt by a loop: two tenants, both phases, every common outcome. Deterministic."""
    rows = [call(0, "alice", i, i * 125) for i in range(32)]
    rows += [call(0, "alice", 32 + i, 4_000 + i * 125, "abandoned" if i % 4 == 0 else "served",
                  wait_ms=2_000 if i % 4 == 0 else 1_500) for i in range(32)]  # fmt: skip
    rows += [call(1, "loop", i, i * 250) for i in range(16)]
    for i in range(120):
        outcome = ("throttled", "throttled", "served", "held_back", "failed")[i % 5]
        more: dict[str, Any] = {"round": min(3, i // 20), "run": i % 16, "wait_ms": 1_900 if outcome == "served" else 0}
        if outcome == "throttled":
            more |= {"status": 429, "reason": "tenant_queue_full", "retry_after": "2", "queue_wait_ns": None}
        rows.append(call(1, "loop", 16 + i, 4_000 + i * 33, outcome, **more))
    return rows


def story_trial(folder: Path) -> Trial:
    return write(folder, story(), manifest(profile(["alice", "loop"], ["alice"])))


def story_verdicts() -> list[Verdict]:
    findings = (
        Finding("alice", "served share down", Word.FAIL, 25.0, 13.1, 42.2, 1.0, "pp", 32),
        Finding("alice", "refusals up", Word.PASS, 0.0, -8.2, 0.9, 1.0, "pp", 32),
        Finding(
            "alice", "mean wait up", Word.FAIL, 1625.0, 1580.0, 1690.0, 100.0, "ms", 32, "abandoned at full patience"
        ),
    )
    return [
        Verdict("trial.conserved", Word.PASS, 0, 0, "contradictions", 200, "All 200 calls are accounted for."),
        Verdict(
            "fairness.ordinary_unmoved", Word.FAIL, 25.0, 1.0, "pp", 32,
            "The burst cost alice 25.0 points of served share.", ("0.32", "0.36", "9.99"), findings=findings,
        ),
        Verdict(
            "trial.on_time", Word.INCONCLUSIVE, None, 20.0, "ms", 0, "No lateness was recorded.", add="Run it live.",
        ),
    ]  # fmt: skip
