"""What the caller as a whole sends: re-plans after failures, the wave after an outage, probes of what may be well.

A re-plan is a new call, with another body, that follows a failure of the same identity. `Overload-Round` says so
exactly. Without it only time tells, and a steady caller that would have come anyway is counted too: the inferred share
is an upper bound. So it can acquit, and never convict: over the bound it is INCONCLUSIVE, and says what to add.
"""

from __future__ import annotations

import numpy as np

from harness.callers.calls import Call
from harness.callers.seen import SUBJECT, Seen
from harness.checks import rules
from harness.checks.rules import Rule
from harness.checks.rulings import never
from harness.checks.verdict import Finding, Verdict, Word
from harness.measure.replans import inferred
from harness.profile.units import NS_PER_S

REPLANS, STORM, HALF_OPEN = "caller.replan_share", "caller.no_storm", "caller.half_open"


def replan_share(seen: Seen) -> Verdict:
    rounds = [_round(call) for call in seen.calls]
    told = bool(rounds) and all(found is not None for found in rounds)
    replans = [number or 0 for number in rounds] if told else [int(follows) for follows in _inferred(seen)]
    calls, share = len(replans), sum(1 for number in replans if number) / max(len(replans), 1)
    params = seen.params
    how = "by Overload-Round" if told else f"inferred: another call within {params.replan_within / NS_PER_S:g} s"
    add = "calls that fail and are answered by other calls, such as --scenario down with a whole agent"
    failing = sum(1 for call in seen.calls if call.failed)
    deepest = max(replans, default=0)
    found = [
        _share(share, params.replan_share, calls, how, told),
        rules.enough(SUBJECT, "calls", calls, params.least_replans, "calls", add),
        rules.enough(SUBJECT, "failed calls", failing, max(1, params.least_replans // 2), "calls", add),
    ]
    if told:
        witnesses = [call.id for call, number in zip(seen.calls, replans, strict=True) if number > params.rounds]
        sentence = f"{SUBJECT}: a call of round {deepest} where {params.rounds} are allowed"
        found.append(rules.at_most(SUBJECT, "rounds", deepest, params.rounds, "rounds", calls, sentence, witnesses))
    if any(rule.evidence and rule.finding.word is Word.INCONCLUSIVE for rule in found):
        found = [rule for rule in found if rule.finding.word is not Word.FAIL or rule.finding.quantity == "rounds"]
    passed = f"{share:.0%} of {calls} calls followed a failure ({how}), {params.replan_share:.0%} allowed."
    return rules.verdict(REPLANS, found, passed)


def _share(share: float, bound: float, calls: int, how: str, told: bool) -> Rule:
    over = share > bound
    word = Word.PASS if not over else Word.FAIL if told else Word.INCONCLUSIVE
    sentence = f"{SUBJECT}: {share:.0%} of {calls} calls followed a failure ({how}), {bound:.0%} allowed"
    finding = Finding(SUBJECT, "re-plan share", word, share, None, None, bound, "share", calls, how)
    return Rule(finding, sentence, (), "Overload-Round on each request: 0 for original work, 1 and up for what follows")


def _round(call: Call) -> int | None:
    raw = call.attempts[0].said.get("round", "")
    return int(raw) if raw.isascii() and raw.isdigit() and len(raw) < 7 else None


def _inferred(seen: Seen) -> list[bool]:
    """Which calls begin soon after another call of the same identity had failed for good."""
    if not seen.calls:
        return []
    names = {name: place for place, name in enumerate(dict.fromkeys(c.attempts[0].identity for c in seen.calls))}
    # Two events a call: it began, and it ended. Only beginnings are asked about; only failed ends count as failures.
    who = np.array([names[c.attempts[0].identity] for c in seen.calls] * 2, dtype=np.int64)
    began = [call.attempts[0].at_ns for call in seen.calls]
    ended = [call.attempts[-1].over_ns for call in seen.calls]
    failed = np.array([False] * len(began) + [call.failed for call in seen.calls], dtype=np.bool_)
    follows = inferred(who, np.array(began + ended, dtype=np.int64), failed, seen.params.replan_within)
    return [bool(found) for found in follows[: len(began)]]


def no_storm(seen: Seen) -> Verdict:
    """The busiest moment from the outage on, against the busiest one before it."""
    window = next((w for w in seen.log.manifest.windows if w.every == 1 and not w.probes and w.from_ns > 0), None)
    if window is None or not seen.work:
        return rules.withheld(STORM, "there was no outage after a time of calm", "--scenario outage")
    first = seen.work[0].at_ns
    from_ns = first + window.from_ns
    calm = [a.at_ns for a in seen.work if a.at_ns < from_ns]
    later = [a for a in seen.work if a.at_ns >= from_ns]
    params = seen.params
    base, _ = peak(calm, params.storm_window)
    high, at = peak([a.at_ns for a in later], params.storm_window)
    # The luckiest window of an even stream is a little busier than another one: three calls are no storm.
    allowed = params.storm * base + 3
    length = f"{params.storm_window / NS_PER_S:g} s"
    sentence = (
        f"{SUBJECT}: {high} arrivals within {length}, where calm had {base} at most and {allowed:.0f} are allowed"
    )
    witnesses = [a.id for a in later if at <= a.at_ns < at + params.storm_window]
    add = "a steady load from before the outage until after it, --scenario outage for 8 s or more"
    found = [
        rules.at_most(SUBJECT, "peak of arrivals", high, allowed, "arrivals", len(later), sentence, witnesses),
        rules.enough(SUBJECT, "arrivals in calm", len(calm), params.least_calm, "arrivals", add),
        rules.enough(SUBJECT, "failed in the outage", sum(a.failed for a in later), 5, "arrivals", add),
    ]
    thin = any(rule.finding.word is Word.INCONCLUSIVE for rule in found)
    passed = f"At most {high} arrivals within {length} from the outage on; calm had {base}, {allowed:.0f} are allowed."
    return rules.verdict(STORM, [r for r in found if r.evidence] if thin else found, passed)


def peak(at_ns: list[int], window_ns: int) -> tuple[int, int]:
    """(most arrivals in any window of this length, when the first such window begins). at_ns: sorted."""
    most, begins, low = 0, 0, 0
    for high, at in enumerate(at_ns):
        while at_ns[low] <= at - window_ns:
            low += 1
        if high - low + 1 > most:
            most, begins = high - low + 1, at_ns[low]
    return most, begins


def half_open(seen: Seen) -> Verdict:
    """While the service is half-open, no more than its probes are sent to it at a time."""
    place = next((n for n, w in enumerate(seen.log.manifest.windows) if w.probes), None)
    if place is None:
        return rules.withheld(HALF_OPEN, "the service was never half-open", "--scenario half_open")
    probes = seen.log.manifest.windows[place].probes
    inside = [a for a in seen.work if a.window == place]
    turned_away = [(a.id, f"answered {a.status}") for a in inside if a.failed and not a.hung_up]
    waiting = {a.content for a in seen.work if a.failed and a.window != place}
    add = f"more than {probes} different calls that fail before, such as --scenario half_open with parallel calls"
    found = [
        never(SUBJECT, f"came while {probes} probes were out", turned_away, len(inside), 1, add, "attempts"),
        rules.enough(SUBJECT, "calls in trouble", len(waiting), probes + 1, "calls", add),
    ]
    passed = f"{len(inside)} attempts while half-open, {probes} at a time at most, {len(waiting)} calls in trouble."
    return rules.verdict(HALF_OPEN, found, passed)
