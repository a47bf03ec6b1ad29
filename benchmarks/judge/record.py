"""What came of the cells: one JSON line each, appended and flushed as it ends, so that a run may end at any moment.

    {"key": "defect|v07|retry_after_early|x1|3", "words": {"v07.retry_after": "FAIL", ...}, "said": [...], "cpu_s": 0.1,
     "at": "2026-11-30T00:12:00Z", "code": "3f2a..."}

said: sentences of verdicts that ought not to be, short. A last line that was cut is no line; a cell counts once.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import orjson

from benchmarks.judge import cells
from harness.checks import CHECKS
from harness.errors import BadInput

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "judge.jsonl"
_DECIDES = (
    "harness/checks", "harness/measure", "harness/ledger", "harness/simulate", "harness/workload", "harness/profile",
    "harness/matrix.py", "stub_service/admission", "stub_service/capacity", "stub_service/dependency",
    "stub_service/defects", "benchmarks/judge/lengths.py",
)  # fmt: skip
"""Whatever can change a verdict in virtual time, but for profiles: a cell has one."""


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
    """Of the code that decides in every cell: all but the checks that no other code of checks rests on."""
    files = [file for place in _DECIDES for file in _python(ROOT / place) if file not in _of_one_check().values()]
    return _digest(files)


def code_of(key: str) -> str:
    """Of all that can change what becomes of a cell: that, its profile, and the checks that judge it. So what is mended
    in one check does not cost the trials of the others."""
    cell = cells.parsed(key)
    return _code_of(cell.profile, frozenset(cells.wanted(cell)))


@cache
def _code_of(profile: str, wanted: frozenset[str]) -> str:
    modules = {CHECKS[check].judge.__module__ for check in wanted}
    own = [path for module, path in sorted(_of_one_check().items()) if module in modules]
    return _digest([*own, cells.paths()[profile]], fingerprint())


@cache
def _of_one_check() -> dict[str, Path]:
    """Modules of checks, and where they are, that nothing imports but the package."""
    texts = [
        file.read_text("utf-8") for file in _python(ROOT / "harness") if file.parts[-2:] != ("checks", "__init__.py")
    ]
    modules = sorted({check.judge.__module__ for check in CHECKS.values()})
    alone = [
        one for one in modules if not any(re.search(rf"\b{one.rpartition('.')[2]} import|{one}\b", t) for t in texts)
    ]
    return {module: ROOT / f"{module.replace('.', '/')}.py" for module in alone}


def _python(place: Path) -> list[Path]:
    return [place] if place.is_file() else sorted(place.rglob("*.py"))


def _digest(files: Iterable[Path], begin: str = "") -> str:
    digest = hashlib.blake2b(begin.encode(), digest_size=6)
    for file in files:
        digest.update(str(file.relative_to(ROOT)).encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def append(row: Row, path: Path = RESULTS) -> None:
    line: dict[str, Any] = {"key": row.key, "words": row.words, "cpu_s": round(row.cpu_s, 3)}
    if row.said:
        line["said"] = row.said
    line |= {"at": datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"), "code": code_of(row.key)}
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab+") as file:
        if file.tell():
            file.seek(-1, 2)
            if file.read(1) != b"\n":
                file.write(b"\n")  # the last one was cut
        file.write(orjson.dumps(line) + b"\n")


def read(path: Path = RESULTS, any_code: bool = False) -> dict[str, Row]:
    """Rows by key, of this code; the last counts."""
    return {row.key: row for row in _rows(path) if any_code or _is_of_this_code(row)}


def _is_of_this_code(row: Row) -> bool:
    try:
        return row.code == code_of(row.key)
    except (BadInput, KeyError):  # a profile or a defect that is no more
        return False


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
