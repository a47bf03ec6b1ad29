"""Two baselines -> what changed, what did not, and what cannot be told.

    worse     the lower end of the change for the worse is over 0, and the change is larger than the margin
    better    the same the other way
    same      its upper end is under the margin: a change that matters is ruled out
    unclear   neither
    thin      too few calls for any such claim: shown, and not judged alone (as in fairness.ordinary_unmoved)

A gate asks many questions at once. So `worse` and `better` need the evidence of all of them together: with m questions
each end is stretched from one-sided 95 % to 1 - FALSE_ALARMS / m (Bonferroni), and of a hundred comparisons of equal
services one at most is a false alarm. Only ordinary tenants gate; what a runaway gets is shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from harness.baseline.model import CONFIDENCE, SHARES, WAITS, Baseline, CheckFigures, Quantity, Situation, Window
from harness.checks.verdict import EXIT_CODES, Word, worst
from harness.errors import BadInput
from harness.measure.alone import difference, stretched
from harness.measure.intervals import Interval, lossless_needs, newcombe, z_of
from harness.measure.quantiles import may_gate
from harness.report.text import quantity as figure

FALSE_ALARMS = 0.01
"""Of a comparison of two equal services, over all its questions together."""

LEAST_CALLS, FEWEST_CALLS, PLAIN = 50, 10, 0.9999
"""For a mean wait; from how many calls, and at which confidence, a tenant too small to pass is worse by its losses."""

PHASES = ("calm", "burst", "recovery")
POOLED = "all ordinary tenants"
_QUANTILES = {"wait_p50_ms": 0.5, "wait_p95_ms": 0.95}
_MORE_IS_BETTER = frozenset(("served",))


class Change(StrEnum):
    WORSE = "worse"
    UNCLEAR = "unclear"
    BETTER = "better"
    SAME = "same"
    THIN = "thin"


WORST_FIRST = tuple(Change)


@dataclass(frozen=True, slots=True)
class Margins:
    """shares_pp: of served, refused and abandoned. replans_pp: of re-plan shares. wait_ms: of waits; None: half of the
    service time for mean and median, all of it for the 95th percentile."""

    shares_pp: float = 1.0
    replans_pp: float = 20.0
    wait_ms: float | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """One quantity of one tenant in one phase. change: new less base, in `unit`; margin: in `unit`, None unknown.

    n: calls in base and in new. gates: whether it decides.
    """

    situation: str
    subject: str
    phase: str
    quantity: str
    word: Change
    base: float | None
    new: float | None
    change: Interval | None
    margin: float | None
    unit: str
    n: tuple[int, int]
    gates: bool
    note: str = ""


@dataclass(frozen=True, slots=True)
class CheckRow:
    """A check of one situation; None: it was not judged there."""

    situation: str
    check: str
    word: Change
    base: CheckFigures | None
    new: CheckFigures | None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Diff:
    """notes: what else there is to know. invalid: why the new trial is not to be trusted; empty if it is."""

    base: str
    new: str
    rows: tuple[Row, ...]
    checks: tuple[CheckRow, ...]
    notes: tuple[str, ...] = ()
    invalid: str = ""

    @property
    def word(self) -> Word:
        """FAIL: a regression. INCONCLUSIVE: one cannot be ruled out, or nothing of the target could be compared.
        INVALID: the new trial is not to be trusted."""
        if self.invalid:
            return Word.INVALID
        words = {Change.WORSE: Word.FAIL, Change.UNCLEAR: Word.INCONCLUSIVE}
        judged = [row.word for row in self.rows if row.gates and row.word is not Change.THIN]
        found = [words.get(word, Word.PASS) for word in [*judged, *(row.word for row in self.checks)]]
        of_target = judged or any(not row.check.startswith("trial.") for row in self.checks)
        return worst([*found, *([] if of_target else [Word.INCONCLUSIVE])])

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.word]

    def count(self, word: Change) -> int:
        return sum(row.word is word for row in self.rows if row.gates) + sum(row.word is word for row in self.checks)


def compare(
    base: Baseline, new: Baseline, names: tuple[str, str] = ("BASE", "NEW"), margins: Margins | None = None,
    across_environments: bool = False,
) -> Diff:  # fmt: skip
    """names: of both, for messages. Raises BadInput if they cannot be compared, with everything that differs."""
    pairs, notes = _pairs(base, new)
    _comparable(base, new, pairs, names, across_environments)
    margins = margins or Margins()
    rows = [row for name, (one, two) in pairs.items() for row in _situation(name, one, two, margins)]
    checks = [row for name, (one, two) in pairs.items() for row in _checks(name, one.checks, two.checks)]
    checks += [
        CheckRow(name, "", Change.UNCLEAR, None, None, "the new side has no trial of it")
        for name in base.situations
        if name not in pairs
    ]
    if not any(row.gates for row in rows):
        notes.append("no tenant is named under `ordinary:`, so the figures of tenants decide nothing")
    asked = sum(row.gates and row.word is not Change.THIN for row in rows)
    strict = z_of(1 - FALSE_ALARMS / max(1, asked)) / z_of(CONFIDENCE)
    return Diff(*names, tuple(_strict(row, max(1.0, strict)) for row in rows), tuple(checks), tuple(notes))


def _pairs(base: Baseline, new: Baseline) -> tuple[dict[str, tuple[Situation, Situation]], list[str]]:
    """By name; two single trials are a pair whatever their names."""
    if len(base.situations) == len(new.situations) == 1:
        ((name, one),), (two,) = base.situations.items(), new.situations.values()
        return {name: (one, two)}, []
    pairs = {name: (one, new.situations[name]) for name, one in base.situations.items() if name in new.situations}
    more = [name for name in new.situations if name not in base.situations]
    return pairs, [f"not in the baseline, so not compared: {', '.join(more[:20])}"] if more else []


def _comparable(
    base: Baseline,
    new: Baseline,
    pairs: Mapping[str, tuple[Situation, Situation]],
    names: tuple[str, str],
    across: bool,
) -> None:
    if not pairs:
        has = [", ".join(list(side.situations)[:10]) for side in (base, new)]
        raise BadInput(f"{names[0]} and {names[1]} have no situation in common ({has[0]}; {has[1]})")
    problems = [said for name, (one, two) in pairs.items() if (said := profiles_differ(name, one, two))]
    if problems:
        remedy = "compare trials of one profile, or save a new baseline: overload baseline save"
        raise BadInput("\n".join([f"{names[0]} and {names[1]} cannot be compared:", *problems[:20], remedy]))
    differ = [] if across else environments_differ(base, new, pairs)
    if differ:
        remedy = "save a baseline where it is compared, or see it all the same: --across-environments"
        raise BadInput("\n".join([f"{names[0]} and {names[1]} were made in different environments:", *differ, remedy]))


def profiles_differ(name: str, one: Situation, two: Situation) -> str:
    """What makes two trials be of different profiles, in a line; empty if nothing does."""
    differ = [key for key in sorted(one.parts.keys() | two.parts.keys()) if one.parts.get(key) != two.parts.get(key)]
    said = [f"profiles differ in {', '.join(differ)}"] if differ else []
    if one.time_scale != two.time_scale:
        said.append(f"time scale {one.time_scale:g} and {two.time_scale:g}")
    if one.wait != two.wait:
        said.append(f"waits are {one.wait} and {two.wait}")
    return f"  {name}: {'; '.join(said)}" if said else ""


def environments_differ(base: Baseline, new: Baseline, pairs: Mapping[str, tuple[Situation, Situation]]) -> list[str]:
    keys = sorted(base.environment.keys() | new.environment.keys())
    pair = {key: (base.environment.get(key, "not recorded"), new.environment.get(key, "not recorded")) for key in keys}
    told = [f"  {key}: {one} and {two}" for key, (one, two) in pair.items() if one != two]
    served = [name for name, (one, two) in pairs.items() if one.served_by != two.served_by]
    told += [f"  {name}: what serves differs ({served_differs(*pairs[name])} of the profile)" for name in served[:10]]
    return [*told, f"  and {len(served) - 10} situations more"] if len(served) > 10 else told


def served_differs(one: Situation, two: Situation) -> str:
    """Which parts of the profile that say what serves are not the same."""
    keys = sorted(one.served_by.keys() | two.served_by.keys())
    return ", ".join(key for key in keys if one.served_by.get(key) != two.served_by.get(key))


def _situation(name: str, base: Situation, new: Situation, margins: Margins) -> Iterator[Row]:
    bounds = _bounds(base, new, margins)
    for subject, tenant in sorted(base.tenants.items()):
        other = new.tenants.get(subject)
        for phase, window in _in_time(tenant.phases):
            if other is not None and phase in other.phases:
                yield from _window(name, subject, phase, window, other.phases[phase], bounds, tenant.ordinary)
    for phase, window in _in_time(base.pooled):
        if phase in new.pooled:
            yield from _window(name, POOLED, phase, window, new.pooled[phase], bounds, True)


def _in_time(windows: Mapping[str, Window]) -> list[tuple[str, Window]]:
    """By when a phase is, however the side was given: the keys of a file are sorted, those of a trial are not."""
    return sorted(windows.items(), key=lambda item: (PHASES.index(item[0]) if item[0] in PHASES else -1, item[0]))


def _bounds(base: Situation, new: Situation, margins: Margins) -> dict[str, float | None]:
    """Margin of each quantity, in its unit (points, ms)."""
    service_ms = base.service_time_ms or new.service_time_ms
    half = margins.wait_ms if margins.wait_ms is not None else service_ms / 2 if service_ms else None
    whole = margins.wait_ms if margins.wait_ms is not None else service_ms
    shares = dict.fromkeys(SHARES, margins.shares_pp) | {"replans": margins.replans_pp}
    return {**shares, "wait_mean_ms": half, "wait_p50_ms": half, "wait_p95_ms": whole}


def _window(
    situation: str, subject: str, phase: str, base: Window, new: Window, bounds: dict[str, float | None], ordinary: bool
) -> Iterator[Row]:
    for quantity in (*SHARES, *WAITS):
        one, two = base.quantities.get(quantity), new.quantities.get(quantity)
        if one is None and two is None:
            continue
        n = one.n if one else 0, two.n if two else 0
        unit, factor = ("pp", 100.0) if quantity in SHARES else ("ms", 1.0)
        place = (situation, subject, phase, quantity)
        was, is_ = (value.estimate * factor if value else None for value in (one, two))
        if one is None or two is None:
            yield Row(
                *place, Change.THIN, was, is_, None, bounds[quantity], unit, n, ordinary, "one side has no such call"
            )
            continue
        change = difference(_interval(two), _interval(one)).times(factor)
        row = Row(*place, Change.SAME, was, is_, change, bounds[quantity], unit, n, ordinary)
        yield _judged(row, one, two)


def _interval(quantity: Quantity) -> Interval:
    return Interval(quantity.estimate, quantity.low, quantity.high)


def _judged(row: Row, one: Quantity, two: Quantity) -> Row:
    if row.margin is None:
        return replace(row, word=Change.UNCLEAR, note="the service time is not known: give --margin 50ms")
    fewest = min(row.n)
    if row.quantity in SHARES:
        needs = lossless_needs(row.margin / 100, z_of(CONFIDENCE))
        if fewest < max(needs, LEAST_CALLS):
            return _small(row, one, two, needs)
    elif row.quantity in _QUANTILES:
        if not may_gate(_QUANTILES[row.quantity], fewest):
            return replace(row, word=Change.THIN, note=f"{fewest} calls are too few for a quantile")
    elif fewest < LEAST_CALLS:
        return replace(row, word=Change.THIN, note=f"{fewest} calls; {LEAST_CALLS} are needed")
    return replace(row, word=_word(row, 1.0))


def _small(row: Row, one: Quantity, two: Quantity, needs: int) -> Row:
    """Too few calls to rule a change out; plain losses count all the same."""
    note = f"{min(row.n)} calls; {needs} are needed to rule out a change of {row.margin:g} points"
    hits = two.hits or 0, two.n, one.hits or 0, one.n
    sign = -1 if row.quantity in _MORE_IS_BETTER else 1
    plain = newcombe(*hits, z_of(PLAIN))
    low = plain.low if sign > 0 else -plain.high
    change = row.change.estimate * sign if row.change else 0.0
    supported = _word(row, 1.0) is Change.WORSE
    if min(row.n) >= FEWEST_CALLS and low > 0 and change > (row.margin or 0.0) and supported:
        return replace(row, word=Change.WORSE, note=note)
    return replace(row, word=Change.THIN, note=note)


def _word(row: Row, strict: float) -> Change:
    """strict: how much further each end must be for `worse` and `better`."""
    if row.change is None or row.margin is None:
        return row.word
    change = row.change
    if row.quantity in _MORE_IS_BETTER:
        change = Interval(-change.estimate, -change.high, -change.low)
    far = stretched(change, strict)
    if far.low > 0 and change.estimate > row.margin:
        return Change.WORSE
    if far.high < 0 and -change.estimate > row.margin:
        return Change.BETTER
    return Change.SAME if change.high < row.margin else Change.UNCLEAR


def _strict(row: Row, strict: float) -> Row:
    """The evidence of all questions together is asked of the row; of small tenants more was asked already."""
    return row if row.note else replace(row, word=_word(row, strict))


def _checks(situation: str, base: Mapping[str, CheckFigures], new: Mapping[str, CheckFigures]) -> Iterator[CheckRow]:
    for name in sorted(base.keys() | new.keys()):
        one, two = base.get(name), new.get(name)
        yield CheckRow(situation, name, *_check_word(one, two))


_RANK = {Word.PASS: 0, Word.INCONCLUSIVE: 1, Word.FAIL: 2, Word.INVALID: 3}


def _figures(
    one: CheckFigures, two: CheckFigures, word: Change, note: str
) -> tuple[Change, CheckFigures, CheckFigures, str]:
    # The bounds of two findings of one check have nothing to do with each other: points here, milliseconds there.
    if one.unit == two.unit and one.bound != two.bound:
        moved = f"its bound was {figure(one.bound, one.unit)} and is {figure(two.bound, two.unit)}"
        note = f"{note}; {moved}" if note else moved
    return word, one, two, note


def _check_word(
    one: CheckFigures | None, two: CheckFigures | None
) -> tuple[Change, CheckFigures | None, CheckFigures | None, str]:
    if two is None:
        return Change.UNCLEAR, one, two, "it is judged no more"
    if one is None:
        word = Change.SAME if two.word is Word.PASS else Change.UNCLEAR
        return word, one, two, "it is not in the baseline"
    if two.word is Word.FAIL:
        if one.word is Word.FAIL:
            return _figures(one, two, Change.SAME, "it failed before")
        return _figures(one, two, Change.WORSE, "")
    if two.word is one.word:
        return _figures(one, two, Change.SAME, "" if two.word is Word.PASS else "it could not be told before, either")
    if _RANK[two.word] > _RANK[one.word]:
        return _figures(one, two, Change.UNCLEAR, "it cannot be told any more")
    return _figures(one, two, Change.BETTER if two.word is Word.PASS else Change.UNCLEAR, "")
