"""The tables of docs/trust.md, made of the record: counts as k of n, with Wilson's interval at 95 %."""

from __future__ import annotations

import platform
import subprocess
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from benchmarks.judge import cells
from benchmarks.judge.cells import (
    DEFECT,
    DILUTED,
    HEALTHY,
    LENGTH,
    LIVE_DEFECT,
    LIVE_HEALTHY,
    LONG,
    LOSSY,
    ONE_IN,
    SMALL,
    TWIN,
    Cell,
    own_check,
)  # fmt: skip
from benchmarks.judge.record import ROOT, Row, fingerprint
from harness.checks.judge import ALWAYS
from harness.machine import usable_cores
from harness.matrix import profile_of_check
from harness.measure.intervals import wilson, z_of
from stub_service.defects import strengths
from stub_service.defects.registry import DEFECTS

PAGE = ROOT / "docs" / "trust.md"
BEGIN, END = "<!-- judge: begin -->", "<!-- judge: end -->"
FAIL, PASS, OPEN, INVALID = "FAIL", "PASS", "INCONCLUSIVE", "INVALID"
MUST, BESIDE = {DEFECT: "must", LIVE_DEFECT: "live-must"}, "beside"
"""Verdicts of all checks that a defect must fail; and of those that it may not."""
SEEN = 0.95
"""A breach is seen where so large a share of the trials FAIL."""

Words = Counter[str]
Series = tuple[str, str, str, float]
"""A cell without its number."""


def write(rows: Iterable[Row], page: Path = PAGE) -> None:
    """Puts the tables between the markers. Raises ValueError where the page has none."""
    text = page.read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{page}: the markers {BEGIN} and {END} are missing")
    page.write_text(f"{before}{BEGIN}\n\n{tables(rows)}\n\n{END}{after}", encoding="utf-8")


def tables(rows: Iterable[Row]) -> str:
    rows = list(rows)
    own: dict[Series, Words] = defaultdict(Counter)
    by_check: dict[tuple[str, str], Words] = defaultdict(Counter)
    for row in rows:
        cell = cells.parsed(row.key)
        word = row.word(own_check(cell), cells.may_fail(cell))
        own[cell.part, cell.profile, cell.laid, cell.factor][word] += 1
        if cell.part in (HEALTHY, TWIN, LIVE_HEALTHY):
            for check in {*row.words} & {*cells.judged_on(cell.profile), *cells.must_see(cell), *ALWAYS}:
                by_check[cell.part, check][row.word(check)] += 1
        elif cell.part in (DEFECT, LIVE_DEFECT):
            by_check[cell.part, own_check(cell)][word] += 1
            may = {own_check(cell), *cells.may_fail(cell)}
            for check in cells.must_see(cell):
                by_check[MUST[cell.part], check][row.word(check, cells.may_fail(cell))] += 1
            for check in {*row.words} - may:
                by_check[BESIDE, check][row.words[check]] += 1
    parts = (_head(rows), _summary(by_check, own), _alarms(by_check), _misses(by_check), _lost(own), _small(own),
             _diluted(own), _lengths(own))  # fmt: skip
    return "\n\n".join(part for part in parts if part)


# Counts


def of(words: Words, word: str) -> str:
    """`3 of 200`"""
    return f"{words[word]:,} of {words.total():,}" if words else ""


def interval(hits: int, n: int) -> str:
    """`0.0 to 0.4 %`"""
    found = wilson(hits, n, z_of(0.975))
    return f"{max(0.0, found.low) * 100:.1f} to {min(1.0, found.high) * 100:.1f} %"


def with_interval(words: Words, word: str) -> str:
    return f"{of(words, word)} ({interval(words[word], words.total())})" if words else ""


def sees(words: Words) -> bool:
    return bool(words) and words[FAIL] >= SEEN * words.total()


def _grid(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return ""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _section(title: str, about: str, grid: str) -> str:
    return f"### {title}\n\n{about}\n\n{grid}" if grid else ""


# The parts


def _head(rows: list[Row]) -> str:
    if not rows:
        return "Nothing is on record for this code yet: `python -m benchmarks.judge run`."
    cpu_s, days = sum(row.cpu_s for row in rows), sorted({row.at[:10] for row in rows})
    made = f"{days[0]} to {days[-1]}" if len(days) > 1 else days[0]
    machine = f"Python {platform.python_version()}, {usable_cores()} cores"
    return (
        f"{len(rows):,} trials of {made}; {cpu_s / 3600:.1f} hours of CPU; this table {datetime.now(UTC):%Y-%m-%d}, "
        f"overload {version('overload')}, commit {_commit()} (code {fingerprint()}), {machine}. "
        "Made by `python -m benchmarks.judge run` and `python -m benchmarks.judge table`."
    )


def _commit() -> str:
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "unknown"


def _summary(by_check: dict[tuple[str, str], Words], own: dict[Series, Words]) -> str:
    """The targets, and whether they are met by what is on record."""
    rows = []
    for name, part, wrong in (
        ("no false FAIL, virtual time", HEALTHY, FAIL),
        ("no false FAIL of a healthy twin, virtual time", TWIN, FAIL),
        ("no false FAIL of another check beside a defect", BESIDE, FAIL),
        ("no false FAIL, live beside a burner", LIVE_HEALTHY, FAIL),
        ("no false PASS at full strength, virtual time", MUST[DEFECT], PASS),
        ("no false PASS at full strength, live", MUST[LIVE_DEFECT], PASS),
    ):
        words = _sum(counts for (kind, _), counts in by_check.items() if kind == part)
        del words[INVALID]
        rows.append([name, f"0 {wrong}", with_interval(words, wrong), _met(words, words[wrong] == 0)])
    default = profile_of_check(cells.UNMOVED).stem
    two = own.get((LOSSY, default, "0.02", 1.0), Counter())
    rows.append(["2 % lost, default profile", "0 PASS", with_interval(two, PASS), _met(two, two[PASS] == 0)])
    two = own.get((LOSSY, cells.SIZED, "0.02", 1.0), Counter())
    rows.append([f"2 % lost, `{cells.SIZED}`", "FAIL in 95 %", with_interval(two, FAIL), _met(two, sees(two))])
    about = "Counted are verdicts of trials that are to be trusted; INVALID ones are below."
    return _section("Targets", about, _grid(["target", "wanted", "found", ""], rows))


def _met(words: Words, holds: bool) -> str:
    return ("holds so far" if holds else "**broken**") if words else "not tried yet"


def _sum(counts: Iterable[Words]) -> Words:
    return sum(counts, Counter())


def _alarms(by_check: dict[tuple[str, str], Words]) -> str:
    rows = []
    for check in sorted({check for part, check in by_check if part in (HEALTHY, TWIN, LIVE_HEALTHY)}):
        virtual, twin, live = (by_check.get((part, check), Counter()) for part in (HEALTHY, TWIN, LIVE_HEALTHY))
        rows.append([f"`{check}`", with_interval(virtual, FAIL), of(virtual, OPEN), of(virtual, INVALID),
                     of(twin, FAIL), of(live, FAIL), of(live, OPEN), of(live, INVALID)])  # fmt: skip
    about = (
        "The healthy stub: what is not PASS is an alarm (FAIL), undecided, or a trial that nobody is blamed for. Twins "
        "look suspicious and are right; with them are counted the profiles that are there for one defect."
    )
    head = ["check", "false FAIL", "INCONCLUSIVE", "INVALID", "twins: false FAIL", "live: false FAIL", "INCONCLUSIVE",
            "INVALID"]  # fmt: skip
    return _section("False alarms", about, _grid(head, rows))


def _misses(by_check: dict[tuple[str, str], Words]) -> str:
    rows = []
    for check in sorted({check for part, check in by_check if part in (DEFECT, LIVE_DEFECT)}):
        virtual, live = by_check.get((DEFECT, check), Counter()), by_check.get((LIVE_DEFECT, check), Counter())
        defects = sum(check == one.caught_by[0] for one in DEFECTS.values() if one.caught_by)
        rows.append([f"`{check}`", str(defects), with_interval(virtual, FAIL), of(virtual, PASS), of(virtual, OPEN),
                     of(virtual, INVALID), of(live, FAIL)])  # fmt: skip
    head = ["check", "defects", "FAIL", "false PASS", "INCONCLUSIVE", "INVALID", "live: FAIL"]
    return _section("Misses at full strength", "Every defect of a check, by the check that is there for it.",
                    _grid(head, rows))  # fmt: skip


def _lost(own: dict[Series, Words]) -> str:
    rows = []
    for (part, profile, share, factor), words in sorted(own.items(), key=lambda one: (one[0][1], *one[0][2:])):
        if part == LOSSY:
            long = f", {factor:g} times as long" if factor != 1 else ""
            rows.append(
                [f"`{profile}`{long}", f"{float(share):.1%}", *(of(words, word) for word in (PASS, OPEN, FAIL))]
            )
    about = "So large a share of the ordinary tenants' calls in the burst is refused, whatever room there is."
    return _section("A loss of a stated share (`fairness.ordinary_unmoved`)", about,
                    _grid(["profile", "lost", PASS, OPEN, FAIL], rows))  # fmt: skip


def _small(own: dict[Series, Words]) -> str:
    rows = []
    for name, one in strengths.SMALL.items():
        found = {factor: w for (part, _, laid, factor), w in own.items() if part == SMALL and laid == name}
        if found:
            rows.append([one.about, f"`{one.caught_by[0]}`", *(of(found.get(f, Counter()), FAIL) for f in (1.0, LONG))])
    head = ["breach", "check", "FAIL", f"FAIL, {LONG:g} times as long"]
    return _section("Wrong by one", "Full strength would be wrong by all.", _grid(head, rows))


def smallest(found: Callable[[int], Words]) -> str:
    """The weakest form of a defect that is still seen."""
    seen = [one_in for one_in in ONE_IN if sees(found(one_in))]
    return f"1 in {max(seen)}" if seen else ""


def _diluted(own: dict[Series, Words]) -> str:
    found: dict[str, dict[tuple[int, float], Words]] = defaultdict(dict)
    for (part, _, laid, factor), words in own.items():
        if part == DILUTED:
            name, _, one_in = laid.partition("~")
            found[name][int(one_in), factor] = words
    rows = []
    for name in sorted(found, key=lambda name: (DEFECTS[name].caught_by[0], name)):
        cells_of = found[name]
        short = [of(cells_of.get((k, 1.0), Counter()), FAIL) for k in ONE_IN]
        at = [smallest(lambda k, f=f, c=cells_of: _or_shorter(c, k, f)) or "full" for f in (1.0, LONG)]  # type: ignore[misc]
        rows.append([f"`{DEFECTS[name].caught_by[0]}`", f"`{name}`", *short, *at])
    about = (
        f"FAILs of trials in which a defect is met by one decision in two, in ten, in a hundred; and the weakest form "
        f"that FAILs {SEEN:.0%} of the time, with the profile as it is and {LONG:g} times as long. Empty: not tried, "
        f"because the stronger form was never seen. Without a dilution: "
        + "; ".join(f"`{name}` ({why.partition(':')[0]})" for name, why in sorted(strengths.WHOLE.items()))
        + "."
    )
    head = ["check", "defect", *(f"1 in {k}" for k in ONE_IN), "seen from", f"{LONG:g} times as long"]
    return _section("The smallest breach seen", about, _grid(head, rows))


def _or_shorter(found: dict[tuple[int, float], Words], one_in: int, factor: float) -> Words:
    """Of the long trials; where they were not needed, what the short ones have shown already."""
    return found.get((one_in, factor)) or found.get((one_in, 1.0), Counter())


def _lengths(own: dict[Series, Words]) -> str:
    rows = []
    factors = sorted({1.0, *cells.LENGTHS})
    for profile in sorted({profile for part, profile, *_ in own if part == LENGTH}):
        words = [own.get((LENGTH if f != 1 else HEALTHY, profile, "-", f), Counter()) for f in factors]
        check = own_check(Cell(LENGTH, profile, "-", 1.0, 0))
        rows.append([f"`{check}`", f"`{profile}`", *(of(one, OPEN) for one in words)])
    head = ["check", "profile", *(f"x {factor:g}" for factor in factors)]
    about = "INCONCLUSIVE on the healthy stub, in trials of other lengths. Empty: the profile has no such form."
    return _section("Undecided, by the length of a trial", about, _grid(head, rows))
