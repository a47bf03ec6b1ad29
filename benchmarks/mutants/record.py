"""What came of the mutants: one JSON line each, appended and flushed, so that a run may end at any moment.

    {"key": "harness/checks/v07_retry_after|_early|boundary|a < b -> a <= b|0", "line": 140, "by": "tests/unit/...",
     "ran": 3, "of": 31, "cpu_s": 0.12, "body": "3f2a...", "at": "2026-11-30T02:40:00Z"}

by: what killed it; "" for a survivor. A line counts while the function that it changed is as it was.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import orjson

from benchmarks.mutants.operators import ROOT, Mutant

RESULTS = ROOT / "benchmarks" / "results" / "mutants.jsonl"
JUSTIFIED = Path(__file__).with_name("justified")
"""Files of entries; what an entry says: measure.toml."""
_TRIALS = (
    "harness/ledger", "harness/simulate", "harness/workload", "harness/profile", "harness/matrix.py", "stub_service",
    "harness/measure", "harness/checks",
)  # fmt: skip


@cache
def fingerprint() -> str:
    """Of whatever decides what a trial is, and which lines a test runs."""
    digest = hashlib.blake2b(digest_size=6)
    for place in _TRIALS:
        path = ROOT / place
        for file in [path] if path.is_file() else sorted(path.rglob("*.py")):
            digest.update(file.read_bytes())
    return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class Row:
    key: str
    line: int
    by: str
    ran: int
    of: int
    cpu_s: float
    body: str


def append(row: Row, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    at = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    with path.open("ab") as file:
        file.write(orjson.dumps({**asdict(row), "cpu_s": round(row.cpu_s, 3), "at": at}) + b"\n")


def read(path: Path) -> dict[str, Row]:
    """By key; the last counts. A last line that was cut is no line."""
    found: dict[str, Row] = {}
    for line in path.read_bytes().splitlines() if path.exists() else []:
        try:
            row = orjson.loads(line)
            found[row["key"]] = Row(**{name: row[name] for name in Row.__slots__})
        except (orjson.JSONDecodeError, KeyError, TypeError):
            continue
    return found


def of(mutant: Mutant, rows: Mapping[str, Row]) -> Row | None:
    row = rows.get(mutant.key)
    return row if row is not None and row.body == mutant.body else None


@cache
def _justified() -> list[dict[str, Any]]:
    return [entry for path in sorted(JUSTIFIED.glob("*.toml")) for entry in tomllib.loads(path.read_text())["mutant"]]


def justified(mutant: Mutant) -> str:
    """The class under which a survivor was read and let live; "" for none."""
    return next((str(entry["class"]) for entry in _justified() if fits(entry, mutant)), "")


def fits(entry: dict[str, Any], mutant: Mutant) -> bool:
    """An entry names modules, and as much of a function, a kind and a change as it holds for: one each, or several."""
    said = {
        "module": mutant.module.removeprefix("harness/"), "function": mutant.function, "kind": mutant.kind,
        "change": mutant.change,
    }  # fmt: skip
    return all(
        word in entry[name] if isinstance(entry[name], list) else word == entry[name]
        for name, word in said.items() if name in entry
    )  # fmt: skip
