"""How many layers repeat a call: by what their headers count, by the keys that they give, else by the delays.

A retry count that begins again at 0 for the same call is a second layer: the one above gave the call to its SDK once
more. So is an idempotency key that lasts for some attempts and is then another one. Where neither helps, the delays are
read:

    a rhythm that repeats         two layers: the inner one begins anew with its first, short delay. Jitter may look so
                                  by luck: one long call proves it, short ones only if most of them look so
    fewer than four attempts      one layer: two that each try twice make four
    delays that only grow         one layer: one within another would have begun anew
    jitter, in many calls         An inner layer that begins anew draws its delays from where it drew them before: the
                                  new ones are longer in half of the cases. For one layer that backs off they are longer
                                  in clearly more: a sign test acquits. And the delay that follows the one between two
                                  runs is the shorter one in clearly more than half of the cases, as it never is for one
                                  layer whose delays do not shrink: a sign test convicts.
    else                          nobody can say

Both tests are exact: they assume independent draws, and nothing of how the jitter is made.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import factorial

from harness.callers.calls import Call
from harness.measure.chance import binomial_tail

_ALIKE_NS, _APART_NS = 100_000_000, 250_000_000
_CHANCE_OF_RHYTHM = {(2, 2): 0.05, (3, 2): 0.012, (2, 3): 0.004}
_CHANCE_OF_TWO_RUNS, _CHANCE_OF_MORE = 0.005, 0.0005
"""How often jitter of one layer looks like so many runs of so many attempts: the worst of eight kinds, in 20,000 calls
each. (attempts a run, runs)."""
LEAST_LAYERED = 4
_CHANCE, _SURE, _UNLIKE = 0.01, 0.001, 0.05
"""Of a wrong acquittal, of a wrong conviction; and below which the delays of a new run are not like the old ones."""
_GROWS = 1.3
_GRAIN_NS = 20_000_000


@dataclass(frozen=True, slots=True)
class Layers:
    """How many layers repeat a call: 0, 1 or 2 (at least). inner, outer: attempts a run, and runs.

    inferred: from content, time or delays. sure: enough to say so; else it is a suspicion. by: what tells the layers.
    """

    owners: int
    inner: int
    outer: int
    inferred: bool = False
    sure: bool = True
    by: str = "count"


def layers_of(call: Call) -> Layers:
    runs, attempts = call.runs, len(call.attempts)
    longest = max(len(run.attempts) for run in runs)
    if attempts == 1:
        return Layers(0, 1, 1)
    if call.counted:
        owners = 2 if len(runs) > 1 and longest > 1 else 1
        return Layers(owners, longest, len(runs), inferred=call.inferred)
    keys = [len(list(same)) for key, same in itertools.groupby(a.key for a in call.attempts) if key is not None]
    if len(keys) > 1 and max(keys) > 1:
        return Layers(2, max(keys), len(keys), inferred=call.inferred, by="keys")
    period = rhythm(call.gaps_ns())
    if period is None:
        return Layers(1, 1, attempts, inferred=call.inferred)
    repeats = attempts // period
    return Layers(2, period, repeats, inferred=True, sure=_chance_of_rhythm(period, repeats) <= _SURE, by="delays")


def untold(calls: Sequence[Call]) -> list[Call]:
    """Those of which only the delays can tell whether they are one layer's."""
    return [
        call
        for call in calls
        if len(call.attempts) >= LEAST_LAYERED and not call.counted and layers_of(call).by != "keys"
    ]


def with_rhythm(calls: Sequence[Call]) -> list[tuple[Call, Layers]]:
    """Of calls of which only the delays can tell, those that show a rhythm which luck would not have brought."""
    found = [(call, layers) for call in calls if (layers := layers_of(call)).owners > 1]
    shapes = Counter((layers.inner, layers.outer) for _, layers in found)
    long = Counter(len(call.attempts) for call in calls)
    proved = {
        shape
        for shape, count in shapes.items()
        if binomial_tail(long[shape[0] * shape[1]], _chance_of_rhythm(*shape), count) <= _SURE
    }
    return [(call, layers) for call, layers in found if (layers.inner, layers.outer) in proved]


def _chance_of_rhythm(inner: int, outer: int) -> float:
    return _CHANCE_OF_RHYTHM.get((inner, outer), _CHANCE_OF_TWO_RUNS if outer == 2 else _CHANCE_OF_MORE)


ONE, SEVERAL, UNKNOWN = "one", "several", "unknown"


def read_delays(calls: Sequence[Call]) -> tuple[str, int]:
    """(ONE, SEVERAL or UNKNOWN, attempts a run of the inner layer if SEVERAL): of calls that were retried alike."""
    gaps = [call.gaps_ns() for call in calls]
    if not gaps:
        return ONE, 1
    if all(_clearly_grows(one) for one in gaps) and _chance_of_growth(gaps) <= _CHANCE:
        return ONE, 1
    periods = range(2, (max(len(one) for one in gaps) + 1) // 2 + 1)
    again = {period: _begins_anew(gaps, period) for period in periods}
    if all(_luck(ups, downs) <= _CHANCE for ups, downs in again.values()):
        return ONE, 1
    for period, (ups, downs) in again.items():
        after = _after_runs(gaps, period)
        if _luck(*after) <= _SURE / len(periods) and min(_luck(ups, downs), _luck(downs, ups)) > _UNLIKE:
            return SEVERAL, period
    return UNKNOWN, 1


def _begins_anew(gaps: Sequence[Sequence[int]], period: int) -> tuple[int, int]:
    """(longer, shorter): the delays of a second run of `period` attempts, each against the same one of the first."""
    pairs = [
        (one[place], one[period + place])
        for one in gaps
        for place in range(period - 1)
        if period + place < len(one)
    ]  # fmt: skip
    return _signs(pairs)


def _after_runs(gaps: Sequence[Sequence[int]], period: int) -> tuple[int, int]:
    """(shorter, longer): each delay after the one between two runs, against that one. The last of a call is left out: a
    deadline may have cut it."""
    pairs = [
        (one[place + 1], one[place]) for one in gaps for place in range(period - 1, len(one) - 2, period)
    ]  # fmt: skip
    return _signs(pairs)


def _signs(pairs: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """(how many grow, how many shrink); equal ones, to the grain of timers, count as neither."""
    grow = sum(after > before + _GRAIN_NS for before, after in pairs)
    return grow, sum(before > after + _GRAIN_NS for before, after in pairs)


def _luck(have: int, rest: int) -> float:
    """How probable it is that luck brings so many, or more, of all, if both are equally likely."""
    return binomial_tail(have + rest, 0.5, have)


def _clearly_grows(gaps_ns: Sequence[int]) -> bool:
    return all(after > _GROWS * before + _GRAIN_NS for before, after in itertools.pairwise(gaps_ns))


def _chance_of_growth(gaps: Sequence[Sequence[int]]) -> float:
    """How probable it is, at most, that draws of one range grow like that by luck, in all of these calls."""
    chance = 1.0
    for one in gaps:
        chance /= factorial(min(len(one), 20)) * _GROWS ** (len(one) * (len(one) - 1) / 2 if len(one) < 20 else 190)
    return chance


def rhythm(gaps_ns: Sequence[int]) -> int | None:
    """Attempts of an inner run, if the delays repeat like those of a layer within a layer; else None.

    With p attempts a run and m runs there are m * p - 1 delays: the inner ones of each run are alike (within a quarter,
    or 100 ms), and each delay between runs is longer than the first inner one by more than half and 250 ms. Delays that
    only grow have no period; nor have equal ones.
    """
    attempts = len(gaps_ns) + 1
    for period in range(2, attempts // 2 + 1):
        if attempts % period == 0 and _repeats(gaps_ns, period):
            return period
    return None


def _repeats(gaps_ns: Sequence[int], period: int) -> bool:
    inner = [gaps_ns[start : start + period - 1] for start in range(0, len(gaps_ns), period)]
    between = [gaps_ns[place] for place in range(period - 1, len(gaps_ns), period)]
    first = inner[0]
    alike = all(
        abs(a - b) <= max(max(a, b) / 4, _ALIKE_NS) for run in inner[1:] for a, b in zip(first, run, strict=True)
    )
    apart = all(gap - first[0] > max(gap / 2, _APART_NS) for gap in between)
    return alike and apart and not _grows(gaps_ns)


def _grows(gaps_ns: Sequence[int]) -> bool:
    return all(after >= before for before, after in itertools.pairwise(gaps_ns))
