"""fairness.recovers: once a burst is over, goodput is back where it was in calm, in bounded time, and stays there.

An overloaded service that works on calls which nobody waits for any more serves nobody; if each of those comes again as
a re-plan, the overload outlives what began it. That state is metastable: the same load was carried before the trigger,
and would be after it, if only the queue were once empty. So what must be seen is the time after:

    bound = factor * (calls waiting when the burst ends) / (capacity - what is offered then), at least `at_least`

Goodput is the rate of calls, by when they were due, that were served before their caller gave up; of all tenants
together, and of the ordinary ones. FAIL if in either of two windows, just after the bound and from then to the end, it
is lower than in calm by certainly more than `down_pct`; PASS if by certainly less.

Source: Bronson, Aghayev, Charapko and Zhu 2021, "Metastable failures in distributed systems" (HotOS). Which triggers a
badly protected service must recover from, and which not, is in harness/bracket.py.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field

from harness.checks.context import Mask, bundled, profile_of, service_time, witnesses
from harness.checks.registry import CHECKS, Check
from harness.checks.stays import stays_of
from harness.checks.verdict import Finding, Verdict, Word
from harness.ledger.outcomes import NEVER_SENT, SERVED
from harness.ledger.reader import Trial
from harness.measure.blocks import Series, change_of_means
from harness.measure.intervals import Interval
from harness.profile.base import DurationNs, Part, RatePerS
from harness.profile.model import Profile, Window
from harness.profile.units import NS_PER_S

NAME = "fairness.recovers"
SOON, STAYS = "goodput down just after the bound", "goodput down until the end"
ALL, ORDINARY = "all tenants", "all ordinary tenants"
BINS = 40


class Params(Part):
    """factor, at_least: of the bound. down_pct: of goodput in calm. capacity: calls/s that the target can finish; left
    out, workers over service time where the profile's service is what ran. calm_served: least share served in calm.
    """

    factor: Annotated[float, Field(ge=1)] = 2.0
    at_least: DurationNs = 1_000_000_000
    down_pct: Annotated[float, Field(gt=0, lt=100)] = 10.0
    capacity: RatePerS | None = None
    confidence: Annotated[float, Field(ge=0.8, le=0.9999)] = 0.99
    calm_served: Annotated[float, Field(ge=0, le=1)] = 0.95
    least_calls: Annotated[int, Field(ge=20, strict=True)] = 100


@dataclass(frozen=True, slots=True)
class _Bound:
    """ns: after the end of the burst. waiting: calls then. spare_per_s: capacity over what is offered after it."""

    ns: int
    waiting: int
    spare_per_s: float


def judge(trial: Trial, params: Params) -> Verdict:
    profile = profile_of(trial)
    calm, burst = profile.phases.calm, profile.phases.burst
    if calm is None or burst is None:
        return _cannot("The trial has no phases calm and burst.", "give the profile `phases: {calm, burst, recovery}`")
    if not len(stays_of(trial).tenant):
        return _cannot("Nobody sent a call to a shared service.", "a trial with calls to a shared service")
    calls = trial.calls
    asked = ~calls.is_outcome(*NEVER_SENT) & (calls.action.codes < 0)
    served = asked & calls.is_outcome(SERVED)
    problem = _unfit(trial, asked, served, calm, burst, params)
    if problem:
        return problem
    bound = _bound(trial, profile, burst, params)
    if isinstance(bound, Verdict):
        return bound
    windows = _windows(profile, calm, burst.to_ns + bound.ns)
    if windows is None:
        needed = (burst.to_ns + bound.ns + (calm.to_ns - calm.from_ns) // 2) / 1e9
        sentence = f"{_told(bound)}, and the trial ends before it can be seen whether they were."
        return _cannot(sentence, f"a trial of at least {needed:.1f} s with the same burst", int(asked.sum()))
    seed = int(trial.manifest.get("seed", 0))
    findings = []
    for subject, mask in _subjects(trial, profile, asked):
        if int((mask & served & _due(trial, calm)).sum()) >= params.least_calls:
            for quantity, window in zip((SOON, STAYS), windows, strict=True):
                rng = np.random.default_rng([seed, zlib.crc32(f"{subject}:{quantity}".encode())])
                findings.append(_finding(trial, mask & served, subject, quantity, calm, window, params, rng))
    return _verdict(trial, asked & ~served, windows, findings, bound)


def _cannot(sentence: str, add: str, samples: int = 0) -> Verdict:
    return Verdict(NAME, Word.INCONCLUSIVE, None, None, "", samples, sentence, add=add)


def _due(trial: Trial, window: Window) -> Mask:
    due = trial.calls.due_ns
    return np.asarray((due >= window.from_ns) & (due < window.to_ns))


def _unfit(trial: Trial, asked: Mask, served: Mask, calm: Window, burst: Window, params: Params) -> Verdict | None:
    """Why calm is no measure, or the burst no trigger."""
    in_calm, in_burst = asked & _due(trial, calm), asked & _due(trial, burst)
    n = int(in_calm.sum())
    if n < params.least_calls:
        return _cannot(f"{n} calls in calm are too few to say what goodput was.", f"{params.least_calls} of them", n)
    share = float(served[in_calm].mean())
    if share < params.calm_served:
        return _cannot(f"Only {share:.1%} were served in calm: there is nothing to come back to.", "more workers", n)
    waited = bool((trial.calls.queue_wait_ns[in_burst] > 0).any())
    if not waited and served[in_burst].all():
        return _cannot("The burst was none: nobody waited, and nothing was lost.", "a larger burst", n)
    return None


def _bound(trial: Trial, profile: Profile, burst: Window, params: Params) -> _Bound | Verdict:
    capacity = float(params.capacity) if params.capacity is not None else _capacity(trial, profile)
    if capacity is None:
        return _cannot("The capacity of the target is not known.", "give `capacity`, in calls a second")
    calls, stays = trial.calls, stays_of(trial)
    original = (calls.round == 0) & (calls.due_ns >= burst.to_ns) & (calls.action.codes < 0)
    offered = float(original.sum()) * NS_PER_S / max(1, profile.duration - burst.to_ns)
    if not original.any():
        return _cannot("Nothing is offered after the burst.", "a profile that goes on after the burst")
    if capacity <= offered:
        told = f"{offered:.3g} calls/s are offered after the burst, and the capacity is {capacity:.3g}/s."
        return _cannot(told, "more workers, or less after the burst")
    waiting = int(((stays.came_ns < burst.to_ns) & (stays.left_ns >= burst.to_ns)).sum())
    spare = capacity - offered
    return _Bound(max(params.at_least, int(params.factor * waiting / spare * NS_PER_S)), waiting, spare)


def _capacity(trial: Trial, profile: Profile) -> float | None:
    """Calls a second that the described service finishes."""
    mean = service_time(trial, profile).mean_ns
    if not bundled(trial) or profile.service is None or not mean:
        return None
    return profile.service.workers.base * NS_PER_S / mean


def _windows(profile: Profile, calm: Window, at_ns: int) -> tuple[Window, Window] | None:
    """Just after the bound, as long as calm or what is left; and from there to the end. None if too little is left."""
    length, left = calm.to_ns - calm.from_ns, profile.duration - at_ns
    if left < length // 2:
        return None
    soon = calm.model_copy(update={"from_ns": at_ns, "to_ns": at_ns + min(length, left)})
    return soon, calm.model_copy(update={"from_ns": at_ns, "to_ns": profile.duration})


def _subjects(trial: Trial, profile: Profile, asked: Mask) -> list[tuple[str, Mask]]:
    names = set(profile.ordinary)
    ordinary = np.array([name in names for name in trial.tenants], dtype=np.bool_)
    return [(ALL, asked), *([(ORDINARY, asked & ordinary[trial.calls.tenant])] if profile.ordinary else [])]


def _finding(
    trial: Trial, served: Mask, subject: str, quantity: str, calm: Window, window: Window, params: Params,
    rng: np.random.Generator,
) -> Finding:  # fmt: skip
    before, after = (_goodput(trial.calls.due_ns[served], one) for one in (calm, window))
    change = change_of_means(before, after, params.confidence, rng).change
    pct = Interval(change.estimate, change.low, change.high).times(100 / before.mean)
    word = Word.PASS if pct.high < params.down_pct else Word.INCONCLUSIVE
    word = Word.FAIL if pct.low > params.down_pct else word
    note = f"{before.mean:.4g}/s in calm, {after.mean:.4g}/s from {window.from_ns / 1e9:.2f} s on"
    samples = int((served & _due(trial, window)).sum())
    return Finding(subject, quantity, word, pct.estimate, pct.low, pct.high, params.down_pct, "%", samples, note)


def _goodput(due_ns: np.typing.NDArray[np.int64], window: Window) -> Series:
    """Served calls a second, a value a bin."""
    length = window.to_ns - window.from_ns
    inside = due_ns[(due_ns >= window.from_ns) & (due_ns < window.to_ns)]
    counts = np.bincount((inside - window.from_ns) * BINS // length, minlength=BINS)
    return Series(np.asarray(counts * (BINS * NS_PER_S / length), dtype=np.float64), np.ones(BINS))


def _told(bound: _Bound) -> str:
    return (
        f"{bound.waiting:,} calls waited when the burst ended, which a spare {bound.spare_per_s:.3g}/s allow "
        f"{bound.ns / 1e9:.2f} s to be gone"
    )


def _verdict(
    trial: Trial, lost: Mask, windows: tuple[Window, Window], findings: list[Finding], bound: _Bound
) -> Verdict:
    failed = [finding for finding in findings if finding.word is Word.FAIL]
    open_ = [finding for finding in findings if finding.word is Word.INCONCLUSIVE]
    if not findings:
        return _cannot("Too few calls were served in calm to say what goodput was.", "more calls in calm")
    first = max(failed or open_ or findings, key=lambda finding: finding.measured or 0)
    samples = first.samples
    if failed:
        less = f"{first.note}, {first.measured:.0f} % less"
        said = f"Goodput of {first.subject} did not come back: {less}. {_told(bound)}."
        return _made(Word.FAIL, first, samples, said, witnesses(trial, lost & _due(trial, windows[1])), "", findings)
    if open_:
        said = f"Goodput of {first.subject}: {first.note}; that is too noisy to tell."
        return _made(Word.INCONCLUSIVE, first, samples, said, (), "a longer calm and a longer recovery", findings)
    said = f"Goodput was back within {bound.ns / 1e9:.2f} s: {first.subject} {first.note}. {_told(bound)}."
    return _made(Word.PASS, first, samples, said, (), "", findings)


def _made(
    word: Word, first: Finding, samples: int, said: str, ids: tuple[str, ...], add: str, findings: list[Finding]
) -> Verdict:
    return Verdict(NAME, word, first.measured, first.bound, "%", samples, said, ids, add, tuple(findings))


CHECKS[NAME] = Check(
    NAME,
    "after the burst, goodput is back where it was in calm, in bounded time",
    "phases calm and burst, a capacity, and a recovery that outlasts the bound",
    Params,
    judge,
)
