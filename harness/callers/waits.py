"""How long the caller waits before it tries again: never before Retry-After, never in a hot loop, never in step.

Source: RFC 9110, 10.2.3. An answer may be read in several ways (a date has a grain of a second; a form in milliseconds
stands beside the one in seconds): early means before every reading. Where nothing usable is stated, the caller owes a
backoff of its own. Full jitter, drawn from zero up, is one: some of its pauses are short, and most are not. After a
connection that broke one immediate attempt is right: on a fresh one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from harness.callers.calls import Call, stated_waits_ns
from harness.callers.log import Arrival
from harness.callers.seen import LONG_ENOUGH_NS, SUBJECT, Seen, label
from harness.checks import rules
from harness.checks.rules import Rule
from harness.checks.rulings import never, noted
from harness.checks.verdict import Finding, Verdict, Word
from harness.measure.chance import binomial_tail
from harness.measure.quantiles import quantile
from harness.profile.units import NS_PER_S

KEPT, BACKS_OFF, JITTERED = "caller.retry_after_kept", "caller.backs_off", "caller.jittered"
_SURE, _SURE_OF_ONE, _MANY = 0.01, 0.06, 10
"""Chances of taking full jitter for a hot loop: from several pauses, from a single one that is no pause at all."""
UNCOMMON = ("retry-after-ms", "x-ms-retry-after-ms", "x-amz-retry-after")


def retry_after_kept(seen: Seen) -> Verdict:
    stated = [(a, waits) for a in seen.attempts if (waits := stated_waits_ns(a))]
    breaches, kept, came = [], 0, set()
    for call, before, after in seen.repeated:
        waits = stated_waits_ns(before)
        if not waits:
            continue
        came.add(before.id)
        waited = after.at_ns - before.over_ns
        if waited < min(waits) - seen.params.early:
            breaches.append((after.id, f"{_s(waited)} after {_header(before)}{label([call])}"))
        else:
            kept += 1
    stayed = [a for a, waits in stated if a.id not in came and seen.watched_ns(a) >= min(*waits, LONG_ENOUGH_NS)]
    judged = kept + len(stayed) + len(breaches)
    add = "answers with a usable Retry-After, watched until it is over, such as --scenario refused_once"
    found = [never(SUBJECT, "came before the stated instant", breaches, judged, 1, add, "attempts")]
    if stayed and not kept:
        found.append(noted(SUBJECT, "it did not come back at all: a refusal is handed to whoever called"))
    passed = f"{judged} answers stated a wait: {kept} were followed by an attempt, none early; {len(stayed)} by none."
    return rules.verdict(KEPT, found, passed)


def backs_off(seen: Seen) -> Verdict:
    """A failure without a usable wait is followed by a pause of the caller's own."""
    pauses: list[tuple[int, bool, Arrival, Arrival, Call]] = []
    for call in seen.calls:
        for place, (before, after) in enumerate(call.pairs()):
            if before.failed and not stated_waits_ns(before) and not _broke(before):
                pauses.append((after.at_ns - before.over_ns, place == 0, before, after, call))
    hot = [pause for pause in pauses if pause[0] < seen.params.hot]
    firsts = [pause[0] for pause in pauses if pause[1]]
    loops = _no_luck([pause[0] for pause in pauses], seen.params.hot) or _no_luck(firsts, seen.params.hot)
    breaches = [
        (after.id, f"{_s(waited)} after {_header(before)}{label([call])}") for waited, _, before, after, call in hot
    ]  # fmt: skip
    unanswered = _left_alone(seen)
    within = f"came within {_s(seen.params.hot)} of a failure"
    add = "failures without a usable Retry-After, such as --scenario down, of a caller that retries"
    found = [never(SUBJECT, within, breaches if loops else [], len(pauses) + unanswered, 1, add, "attempts")]
    if hot and not loops:
        found.append(_short(len(hot), len(pauses), seen.params.hot))
    ignored = [a for a in seen.work if not stated_waits_ns(a) and any(name in a.told for name in UNCOMMON)]
    if ignored:
        found.append(
            noted(SUBJECT, "a wait was told in a form that is no standard: nobody can be blamed for missing it")
        )
    shortest = min((pause[0] for pause in pauses), default=0)
    passed = (
        f"{len(pauses)} attempts followed a failure that stated no usable wait, the soonest after {_s(shortest)}"
        + (f"; {len(hot)} of them within {_s(seen.params.hot)}, as full jitter has it." if hot else ".")
        if pauses
        else f"{unanswered} failures stated no usable wait: none was tried again."
    )
    return rules.verdict(BACKS_OFF, found, passed)


def _no_luck(pauses_ns: Sequence[int], hot_ns: int) -> bool:
    """Whether so many short pauses are more than full jitter of at least four times `hot` would have brought."""
    n = len(pauses_ns)
    sure = _SURE_OF_ONE if n == 1 else _SURE
    hot = sum(pause < hot_ns for pause in pauses_ns)
    at_once = sum(pause < hot_ns / 5 for pause in pauses_ns)
    return n > 0 and (binomial_tail(n, 1 / 4, hot) <= sure or binomial_tail(n, 1 / 20, at_once) <= sure)


def _short(hot: int, judged: int, hot_ns: int) -> Rule:
    """Some pauses were short: the luck of a jitter, if there are enough to have shown a hot loop."""
    sentence = f"{SUBJECT}: {hot} of {judged} attempts came within {_s(hot_ns)} of a failure, as full jitter may"
    word = Word.PASS if judged >= _MANY else Word.INCONCLUSIVE
    finding = Finding(SUBJECT, "short pauses", word, float(hot), None, None, judged / 4, "attempts", judged, sentence)
    return Rule(finding, sentence, (), "ten failed attempts or more that are retried, such as --scenario down")


def _left_alone(seen: Seen) -> int:
    """Failures that were not tried again, of a caller that can be known to have stopped."""
    last = [call.attempts[-1] for call in seen.clear if not call.attempts[-1].final]
    return sum(
        1
        for a in last
        if a.failed and not _broke(a) and not stated_waits_ns(a) and seen.watched_ns(a) >= LONG_ENOUGH_NS
    )


def jittered(seen: Seen) -> Verdict:
    """Delays of the first retries, over calls: all the same is a wave that comes back as one."""
    delays = first_delays_ns(seen.calls)
    params = seen.params
    add = f"{params.least_delays} calls or more that fail and are retried, such as --scenario wave with parallel calls"
    evidence = rules.enough(SUBJECT, "first retries", len(delays), params.least_delays, "retries", add)
    if len(delays) < params.least_delays:
        return rules.verdict(JITTERED, [evidence], "")
    values = np.asarray(delays, dtype=np.int64)
    low, middle, high = (quantile(values, p) or 0 for p in (0.1, 0.5, 0.9))
    # Who comes back at once comes back with all others: what differs then is the machine, not the caller.
    spread = (high - low) / max(middle, 1) if middle >= params.hot else 0.0
    shown = f"the middle 80 % of {len(delays)} first retries came {_s(low)} to {_s(high)} after the failure"
    sentence = f"{SUBJECT}: {shown}: as one wave"
    found = [
        rules.at_least(SUBJECT, "spread of the delays", spread, params.spread, "of the median", len(delays), sentence),
        evidence,
    ]
    if params.spread <= spread < params.spread_sure:
        # A few draws of a real jitter may lie close together, and a busy machine spreads what has none.
        found.append(rules.enough(SUBJECT, "between none and some", len(delays), 2 * len(delays), "retries", add))
    return rules.verdict(JITTERED, found, f"{shown[:1].upper()}{shown[1:]}: not in step.")


def first_delays_ns(calls: Sequence[Call]) -> list[int]:
    """Pauses before each call's first retry, where the caller chose them by itself."""
    return [
        after.at_ns - before.over_ns
        for call in calls
        for before, after in call.pairs()[:1]
        if before.failed and not stated_waits_ns(before) and not _broke(before)
    ]


def _broke(answered: Arrival) -> bool:
    return answered.answer in ("reset", "hang") or answered.hung_up


def _header(answered: Arrival) -> str:
    """What the answer said, as it came."""
    told = [f"{name}: {answered.told[name]}" for name in ("retry-after", *UNCOMMON) if name in answered.told]
    return f"{answered.status} with {', '.join(told)}" if told else f"{answered.status} without Retry-After"


def _s(ns: float) -> str:
    return f"{ns / NS_PER_S:.3g} s"
