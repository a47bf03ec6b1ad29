"""The smallest number of workers at which ordinary tenants are unmoved by what the log holds.

Compared with a service that has room for everyone at once, where nobody waits and nobody is refused. Unmoved, of each
ordinary tenant with enough calls, of all of them together, and of all together in their worst window:

    lost      refused or abandoned, of all its calls: the upper end of the share's interval under a margin
    wait      mean queue wait of its calls: the upper end of its interval under a margin

The interval of a share is the hull of Wilson's and of a block bootstrap's, that of a wait a block bootstrap's, each end
one-sided; the worst window is what happened, without an interval. A tenant too small to pass without a single loss is
not judged. More workers usually help, and do not have to: a queue drained sooner lets in calls that hurt others. So the
neighbours of what bisection finds are tried as well, and what is reported has held at each larger number tried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from harness.measure.blocks import block_length, deviations, series
from harness.measure.intervals import lossless_needs, wilson, z_of
from harness.shadow.play import SERVED, Played, most_at_once, play, service_of
from harness.shadow.policies import Policy
from harness.shadow.traffic import Bools, Traffic

NEIGHBOURS = 3
FURTHER = (1.25, 1.5, 2.0)
TOGETHER = "all ordinary tenants"


@dataclass(frozen=True, slots=True)
class Unmoved:
    """What the word means here. lost: a share. wait_ns: a mean wait. window_ns: the length of the worst window, in
    which all together must have at least `least_calls`. noisy: places of the tenants that are not ordinary."""

    lost: float
    wait_ns: float
    confidence: float
    window_ns: int
    least_calls: int
    noisy: tuple[int, ...] = ()
    patience_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Point:
    """One number of workers. who, what: nearest to its margin, or furthest over it; measured, upper and bound in the
    unit of what. stopped: not played to the end, since more than the margin was lost already."""

    workers: int
    unmoved: bool
    who: str = ""
    what: str = ""
    measured: float = 0.0
    upper: float = 0.0
    bound: float = 0.0
    stopped: bool = False


@dataclass(frozen=True, slots=True)
class Found:
    """workers: None if no number that was tried would do. points: all that were tried, in order of workers. judged,
    not_judged: ordinary tenants. monotone: whether every number tried above one that did, did as well."""

    policy: Policy
    rule: Unmoved
    workers: int | None
    points: tuple[Point, ...]
    judged: int
    not_judged: int
    monotone: bool


def ordinary_mask(traffic: Traffic, noisy: Iterable[int]) -> Bools:
    return ~np.isin(traffic.tenant, sorted(noisy))


def find_workers(
    traffic: Traffic, policy: Policy, rule: Unmoved, on_trial: Callable[[int], object] = lambda workers: None
) -> Found:
    """Bisects between one worker and as many as would ever be busy at once, then tries the neighbours."""
    judge = _Judge(traffic, policy, rule)
    points: dict[int, Point] = {}

    def ask(workers: int) -> bool:
        if workers not in points:
            on_trial(workers)
            points[workers] = judge.at(workers)
        return points[workers].unmoved

    most = max(1, most_at_once(traffic.due_ns, traffic.service_ns))
    low, high = 0, most
    if ask(most):
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if ask(middle) else (middle, high)
        _neighbours(ask, points, high, most)
    else:
        for fewer in {max(1, most // 2), max(1, most // 4)}:
            ask(fewer)
    holding = _holding(points)
    ordered = tuple(points[workers] for workers in sorted(points))
    return Found(
        policy, rule, holding, ordered, len(judge.judged), len(judge.small),
        all(b.unmoved for a, b in pairwise(ordered) if a.unmoved),
    )  # fmt: skip


def _neighbours(ask: Callable[[int], bool], points: dict[int, Point], found: int, most: int) -> None:
    """Tries those just below and above, and some further up; where one above is moved, moves on above it."""
    for below in range(max(1, found - NEIGHBOURS), found):
        ask(below)
    at = found
    while True:
        above = {min(most, at + step) for step in range(1, NEIGHBOURS + 1)}
        above |= {min(most, max(at + 1, round(at * factor))) for factor in FURTHER}
        moved = [workers for workers in sorted(above) if not ask(workers)]
        if not moved or at >= most:
            return
        at = min(most, moved[-1] + 1)
        ask(at)


def _holding(points: dict[int, Point]) -> int | None:
    """The smallest number from which on every number that was tried did."""
    best = None
    for workers in sorted(points, reverse=True):
        if not points[workers].unmoved:
            break
        best = workers
    return best


class _Judge:
    def __init__(self, traffic: Traffic, policy: Policy, rule: Unmoved) -> None:
        self._traffic, self._policy, self._rule = traffic, policy, rule
        self._names, self._place = traffic.each
        self._lists = self._place.tolist(), traffic.due_ns.tolist(), traffic.service_ns.tolist()
        self._ordinary = ordinary_mask(traffic, rule.noisy)
        calls = traffic.counts()
        needed = lossless_needs(rule.lost, z_of(rule.confidence))
        own = [place for place in range(len(traffic.tenants)) if place not in rule.noisy]
        self.judged = [place for place in own if calls[place] >= needed]
        self.small = [place for place in own if calls[place] < needed]

    def at(self, workers: int) -> Point:
        rule = self._rule
        played = play(
            self._names, *self._lists, service_of(self._policy.config(workers), workers), rule.patience_ns,
            self._too_much(),
        )  # fmt: skip
        if played.given_up:
            return Point(workers, False, TOGETHER, "lost", rule.lost, rule.lost, rule.lost, True)
        worst = max(self._quantities(played), key=lambda point: point[3] / point[4])
        who, what, measured, upper, bound = worst
        return Point(workers, upper < bound, who, what, measured, upper, bound)

    def _too_much(self) -> Callable[[int, int], bool]:
        """Once ordinary tenants together have lost more than the margin, the rest of the trial cannot change it."""
        noisy = frozenset(np.unique(self._place[~self._ordinary]).tolist())
        left = int(self._rule.lost * int(self._ordinary.sum())) + 1

        def enough(tenant: int, outcome: int) -> bool:
            nonlocal left
            left -= tenant not in noisy
            return left < 0

        return enough

    def _quantities(self, played: Played) -> Iterable[tuple[str, str, float, float, float]]:
        """(who, what, measured, upper end, margin)."""
        subjects = [(TOGETHER, self._ordinary)]
        subjects += [(self._traffic.tenants[place], self._traffic.tenant == place) for place in self.judged]
        for who, mask in subjects:
            yield from self._of(who, mask, played)
        yield from self._worst_window(played)

    def _of(self, who: str, mask: Bools, played: Played) -> Iterable[tuple[str, str, float, float, float]]:
        rule, due = self._rule, self._traffic.due_ns[mask]
        lost = (played.outcome[mask] != SERVED).astype(np.float64)
        share = wilson(int(lost.sum()), len(lost), z_of(rule.confidence))
        yield who, "lost", share.estimate, max(share.high, self._upper(due, lost)), rule.lost
        wait = played.wait_ns[mask].astype(np.float64)
        yield who, "wait", float(wait.mean()), self._upper(due, wait), rule.wait_ns

    def _upper(self, due: np.typing.NDArray[np.int64], values: np.typing.NDArray[np.float64]) -> float:
        """Upper end of the mean: blocks of time drawn with replacement, from one seed."""
        if not values.any():
            return 0.0
        data = series(due, values, 0, self._traffic.duration_ns)
        drawn = deviations(data, block_length(data), self._rule.confidence, np.random.default_rng(1))
        return data.mean + max(0.0, float(np.quantile(drawn, self._rule.confidence)))

    def _worst_window(self, played: Played) -> Iterable[tuple[str, str, float, float, float]]:
        rule, mask = self._rule, self._ordinary
        window = self._traffic.due_ns[mask] // rule.window_ns
        _, window = np.unique(window, return_inverse=True)
        calls = np.bincount(window)
        enough = calls >= rule.least_calls
        if not enough.any():
            return
        for what, values, bound in (
            ("lost", (played.outcome[mask] != SERVED).astype(np.float64), rule.lost),
            ("wait", played.wait_ns[mask].astype(np.float64), rule.wait_ns),
        ):
            worst = float((np.bincount(window, weights=values)[enough] / calls[enough]).max())
            yield f"{TOGETHER}, worst window", what, worst, worst, bound
