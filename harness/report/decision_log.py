"""What the service decided, as much as a page can hold: the first decisions, and those about and around witnesses.

One pass over decisions.jsonl, in its order. Of a log larger than MOST_BYTES the beginning alone is read: a report is
written at the end of every trial, and must not take as long as the trial. Whatever is left out is counted or said.
Pure (given the trial's folder); rows come from services of all kinds, may lack any key, and are made safe to show here.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.ledger.reader import DECISIONS, Trial
from harness.report.text import clean, millis

FIRST, MOST_AROUND, NEIGHBOURS = 500, 600, 3
MOST_OF_ONE = 12
MOST_BYTES = 200_000_000
COLUMNS = ("at", "tenant", "outcome", "kind", "about", "queued", "reason", "more")
HEADS = ("at, s", "tenant", "outcome", "kind", "about", "queued, ms", "reason", "more")
NUMBERS = (0, 5)
_MOST_WORDS, _OTHERS = 200, "of other outcomes"
"""A service may say what it likes as an outcome, and in each row another."""
_SHOWN = frozenset(
    ("t_ns", "tenant", "outcome", "kind", "part", "call", "attempt_id", "run", "step", "reason", "queue_wait_ns")
)
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Entry:
    """place: in the file, from 0. named: it is about a witness."""

    place: int
    row: Row
    named: bool


@dataclass(frozen=True, slots=True)
class Log:
    """entries: in the order of the file. total: rows read. cut: the file was not read to its end. of_witness: id ->
    rows about it, at most MOST_OF_ONE. more_of: id -> how many more there are."""

    entries: tuple[Entry, ...]
    total: int
    outcomes: dict[str, int]
    cut: bool
    of_witness: dict[str, list[Row]]
    more_of: dict[str, int]
    around_left_out: int

    @property
    def whole(self) -> bool:
        return len(self.entries) == self.total and not self.cut


@dataclass(slots=True)
class _Pass:
    """What is kept while the file is read."""

    kept: dict[int, Entry] = field(default_factory=dict)
    before: deque[tuple[int, Row]] = field(default_factory=lambda: deque(maxlen=NEIGHBOURS))
    after: int = 0
    around: int = 0
    left_out: int = 0

    def see(self, place: int, row: Row, named: bool) -> None:
        if named:
            for earlier, other in self.before:
                self.keep(Entry(earlier, other, False), counts=True)
            self.after = NEIGHBOURS
        if place < FIRST:
            self.kept[place] = Entry(place, row, named)
        elif named or self.after:
            self.keep(Entry(place, row, named), counts=True)
        if not named and self.after:
            self.after -= 1
        self.before.append((place, row))

    def keep(self, entry: Entry, counts: bool) -> None:
        if entry.place in self.kept:
            return
        if counts and self.around >= MOST_AROUND:
            self.left_out += entry.named
            return
        self.around += counts
        self.kept[entry.place] = entry


def log_of(trial: Trial, witnesses: Collection[str]) -> Log | None:
    """witnesses: ids of calls, attempts, steps (`<run>/<step>`), runs or dependencies. None without a log.
    Raises LedgerError."""
    path = trial.folder / DECISIONS
    if not path.exists():
        return None
    wanted: dict[str, list[str]] = defaultdict(list)
    for id_ in witnesses:
        wanted[_of_call(id_)].append(id_)
    cut = path.stat().st_size > MOST_BYTES
    seen, outcomes, total = _Pass(), Counter[str](), 0
    of_witness: dict[str, list[Row]] = defaultdict(list)
    more: Counter[str] = Counter()
    for row in trial.decisions():
        if cut and total >= FIRST:
            break
        ids = _named(row, wanted) if wanted else ()
        for id_ in ids:
            if len(of_witness[id_]) < MOST_OF_ONE:
                of_witness[id_].append(row)
            else:
                more[id_] += 1
        outcome = str(row.get("outcome"))
        outcomes[outcome if outcome in outcomes or len(outcomes) < _MOST_WORDS else _OTHERS] += 1
        seen.see(total, row, bool(ids))
        total += 1
    entries = tuple(seen.kept[place] for place in sorted(seen.kept))
    words = Counter[str]()
    for word, number in outcomes.items():
        words[clean(word, 60)] += number
    return Log(entries, total, dict(words.most_common()), cut, dict(of_witness), dict(more), seen.left_out)


def _named(row: Mapping[str, Any], wanted: Mapping[str, list[str]]) -> Sequence[str]:
    """Witnesses that a row is about."""
    call = row.get("call")
    if isinstance(call, str) and "run" not in row:  # most rows of a large log: no further look at them
        return wanted.get(call, ())
    return [id_ for key in _keys(row) for id_ in wanted.get(key, ())]


def _of_call(id_: str) -> str:
    """The call of an attempt: a witness may name either."""
    parts = id_.split(".")
    return ".".join(parts[:2]) if len(parts) == 3 and all(part.isdigit() for part in parts) else id_


def _keys(row: Mapping[str, Any]) -> Iterator[str]:
    """What a row is about: its call, its step, its run, and a circuit's dependency."""
    for name in ("call", "attempt_id", "request"):
        told = row.get(name)
        if isinstance(told, str):
            yield _of_call(told)
            break
    run = row.get("run")
    if isinstance(run, str):
        step = row.get("step")
        yield f"{run}/{step}" if step is not None else run
    if row.get("kind") in ("circuit", "limit"):
        yield str(row.get("dependency"))


def about(row: Mapping[str, Any]) -> str:
    """The attempt, the step, the run or the dependency that a decision is about."""
    run, step = row.get("run"), row.get("step")
    if run is not None:
        return f"{run}/{step}" if step is not None else str(run)
    told = [row.get(key) for key in ("attempt_id", "call", "request", "dependency")]
    return str(next((value for value in told if value), ""))


def texts_of(row: Mapping[str, Any]) -> tuple[str, ...]:
    """One row in COLUMNS, safe to show."""
    at, wait = row.get("t_ns"), row.get("queue_wait_ns")
    more = ", ".join(f"{key} {value}" for key, value in row.items() if key not in _SHOWN)
    return (
        f"{at / 1e9:,.3f}" if isinstance(at, int) else "",
        clean(str(row.get("tenant", "")), 60),
        clean(str(row.get("outcome", "")), 40),
        clean(str(row.get("kind") or row.get("part") or "call"), 20),
        clean(about(row), 60),
        millis(wait / 1e6) if isinstance(wait, int) and wait >= 0 else "",
        clean(str(row.get("reason") or ""), 80),
        clean(more, 180),
    )


def log_data(log: Log) -> dict[str, Any]:
    """For report.js, which only ever sets texts as text: each text once, and rows of their places; last, 1 if named."""
    texts: dict[str, int] = {}
    rows = [
        [*(texts.setdefault(text, len(texts)) for text in texts_of(entry.row)), int(entry.named)]
        for entry in log.entries
    ]
    return {"columns": COLUMNS, "numbers": NUMBERS, "texts": list(texts), "rows": rows}
