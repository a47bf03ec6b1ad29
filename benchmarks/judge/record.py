"""What came of the cells: one JSON line each, appended and flushed as it ends, so that a run may end at any moment.

    {"key": "defect|v07|retry_after_early|x1|3", "words": {"v07.retry_after": "FAIL", ...}, "said": [...], "cpu_s": 0.1,
     "at": "2026-11-30T00:12:00Z", "code": "3f2a..."}

said: sentences of verdicts that ought not to be, short. A last line that was cut is no line; a cell counts once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import orjson

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "judge.jsonl"
_DECIDES = (
    "harness/checks", "harness/measure", "harness/ledger", "harness/simulate", "harness/workload", "harness/profile",
    "harness/matrix.py", "stub_service/admission", "stub_service/capacity", "stub_service/dependency",
    "stub_service/defects", "profiles/verification", "profiles/worked_example_x8.yaml", "benchmarks/judge/lengths.py",
)  # fmt: skip
"""Whatever can change a verdict in virtual time."""


@dataclass(frozen=True, slots=True)
class Row:
    """words: check -> verdict. said: what was said of those that ought to be others."""

    key: str
    words: dict[str, str]
    cpu_s: float
    said: list[str] = field(default_factory=list)
    at: str = ""
    code: str = ""

    @property
    def series(self) -> str:
        return self.key.rpartition("|")[0]

    def word(self, check: str, may: tuple[str, ...] = ()) -> str:
        """That of a check; INVALID where it was not judged, and where the trial is not to be trusted. may: checks that
        see the same wrong, and do not take the trust away."""
        broken = any(word == "INVALID" and name not in may for name, word in self.words.items())
        return "INVALID" if broken else self.words.get(check, "INVALID")


@cache
def fingerprint() -> str:
    digest = hashlib.blake2b(digest_size=6)
    for place in _DECIDES:
        path = ROOT / place
        files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.suffix in (".py", ".yaml"))
        for file in files:
            digest.update(str(file.relative_to(ROOT)).encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def append(row: Row, path: Path = RESULTS) -> None:
    line: dict[str, Any] = {"key": row.key, "words": row.words, "cpu_s": round(row.cpu_s, 3)}
    if row.said:
        line["said"] = row.said
    line |= {"at": datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"), "code": fingerprint()}
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab+") as file:
        if file.tell():
            file.seek(-1, 2)
            if file.read(1) != b"\n":
                file.write(b"\n")  # the last one was cut
        file.write(orjson.dumps(line) + b"\n")


def read(path: Path = RESULTS, any_code: bool = False) -> dict[str, Row]:
    """Rows by key, of this code; the last counts."""
    return {row.key: row for row in _rows(path) if any_code or row.code == fingerprint()}


def _rows(path: Path) -> Iterator[Row]:
    if not path.exists():
        return
    with path.open("rb") as file:
        for line in file:
            try:
                found = orjson.loads(line)
                yield Row(
                    found["key"], found["words"], found["cpu_s"], found.get("said", []), found["at"], found["code"]
                )
            except (orjson.JSONDecodeError, KeyError, TypeError):
                continue
