"""Who retries, and how often: one owner, bounded attempts, bounded amplification, nothing that cannot succeed.

Sources: the SRE book, "Handling Overload" (retry at one layer only; three attempts a request; a retry budget of 10 %),
and the arithmetic of layers: three attempts at each of three layers are 27.
"""

from __future__ import annotations

from collections.abc import Sequence

from harness.callers.calls import Call
from harness.callers.layers import LEAST_LAYERED, SEVERAL, UNKNOWN, Layers, layers_of, read_delays, untold, with_rhythm
from harness.callers.seen import INFERRED, SUBJECT, Seen, label
from harness.checks import rules
from harness.checks.rules import Rule
from harness.checks.rulings import never, noted
from harness.checks.verdict import Finding, Verdict, Word
from harness.profile.units import NS_PER_S

ONE_OWNER, ATTEMPTS, AMPLIFICATION = "caller.one_owner", "caller.attempts_bounded", "caller.amplification"
BUDGET, FINAL = "caller.retry_budget", "caller.non_retryable"
PERSIST = "a failure that lasts, such as --scenario down, long enough for the caller to give up"


def one_owner(seen: Seen) -> Verdict:
    """FAIL where the attempts of one call show a layer within a layer."""
    layered = [(call, layers_of(call)) for call in seen.clear]
    given_up = [call for call, _ in layered if call.failed and any(_retryable(a) for a in call.attempts)]
    ended = [call for call in given_up if seen.given_up(call)]
    dark = untold([call for call, _ in layered])
    sure = [(call, layers) for call, layers in layered if layers.owners > 1 and layers.by != "delays"]
    sure += with_rhythm(dark)
    told, period = read_delays(dark)
    if told == SEVERAL and not sure:
        sure = [(call, Layers(2, period, len(call.attempts) // period, True, by="delays")) for call in dark]
    guessed = [(call, layers) for call, layers in layered if layers.owners > 1]
    breaches = [(call.id, _said(layers)) for call, layers in sure]
    found = [
        never(SUBJECT, "were retried by two layers", breaches, len(ended) or len(breaches), 1, PERSIST, "calls"),
        *([_suspected(guessed) if guessed else _untold(dark)] if told == UNKNOWN and not breaches else []),
        *_inferred([call for call, _ in sure]),
        *_watched(seen, ended),
    ]
    most = max((layers.owners for _, layers in layered), default=0)
    attempts = max((len(call.attempts) for call in ended), default=0)
    owner = "nobody retries" if most == 0 else f"one layer retries, with up to {attempts} attempts a call"
    who = ", by what their headers count" if any(call.counted for call in ended) else (
        ", by their delays" if attempts >= LEAST_LAYERED else ""
    )  # fmt: skip
    passed = f"{len(ended)} calls never succeeded: {owner}{who if most else ''}{label(ended)}."
    return rules.verdict(ONE_OWNER, found, passed)


def _retryable(attempt: object) -> bool:
    return bool(getattr(attempt, "failed", False)) and not bool(getattr(attempt, "final", False))


def _said(layers: Layers) -> str:
    how = {"delays": ", inferred from the delays", "keys": ", each run under a key of its own"}.get(layers.by, "")
    return f"{layers.outer} runs of up to {layers.inner} attempts{how}"


def _suspected(guessed: Sequence[tuple[Call, Layers]]) -> Rule:
    call, layers = guessed[0]
    sentence = f"{SUBJECT}: the delays of call {call.id} look like {_said(layers)}, but luck may do that"
    finding = Finding(SUBJECT, "layers", Word.INCONCLUSIVE, 2.0, None, None, 1.0, "layers", len(guessed), sentence)
    return Rule(finding, sentence, (), "some more calls that fail for good, or a client that counts its attempts")


def _untold(calls: Sequence[Call]) -> Rule:
    most = max(len(call.attempts) for call in calls)
    sentence = f"{SUBJECT}: calls took {most} attempts that nothing counts, and their delays do not show whose they are"
    finding = Finding(SUBJECT, "layers", Word.INCONCLUSIVE, None, None, None, 1.0, "layers", len(calls), sentence)
    add = "a count in the headers (Overload-Attempt: CALL.N), 20 calls that fail for good, or one layer switched off"
    return Rule(finding, sentence, (), add)


def _watched(seen: Seen, ended: Sequence[Call]) -> list[Rule]:
    """A caller that was stopped may have had more to come."""
    if seen.log.caller_ended_ns is not None or not ended:
        return []
    shortest = min(seen.watched_ns(call.attempts[-1]) for call in ended)
    note = f"it had not ended by itself: a layer that waits longer than {shortest / NS_PER_S:.0f} s was not seen"
    return [noted(SUBJECT, note)]


def attempts_bounded(seen: Seen) -> Verdict:
    bound = seen.params.attempts
    over = [(call.id, f"{len(call.attempts)} attempts") for call in seen.calls if len(call.attempts) > bound]
    over.sort(key=lambda breach: -int(breach[1].split()[0]))
    failing = [call for call in seen.clear if any(_retryable(a) for a in call.attempts)]
    add = "calls that fail with something that may be retried, such as --scenario down"
    found = [
        never(SUBJECT, f"took more than {bound} attempts", over, len(failing) or len(over), 1, add, "calls"),
        *_inferred([call for call in seen.calls if len(call.attempts) > bound]),
    ]
    most = max((len(call.attempts) for call in failing), default=0)
    passed = f"{len(failing)} calls met a failure: at most {most} attempts each, {bound} allowed{label(failing)}."
    return rules.verdict(ATTEMPTS, found, passed)


def amplification(seen: Seen) -> Verdict:
    calls, attempts, bound = len(seen.clear), len(seen.attempts), seen.params.amplification
    if not calls:
        return rules.withheld(AMPLIFICATION, "no call arrived", "a caller that makes calls")
    ratio = attempts / calls
    sentence = f"{SUBJECT}: {attempts} attempts of {calls} calls, {ratio:.2f} a call where {bound:g} are allowed"
    worst = sorted(seen.clear, key=lambda call: -len(call.attempts))
    found = [
        rules.at_most(SUBJECT, "attempts over logical calls", ratio, bound, "attempts a call", calls,
                      sentence + label(seen.clear), [call.id for call in worst[:5]]),
    ]  # fmt: skip
    passed = f"{attempts} attempts of {calls} logical calls: {ratio:.2f} a call, {bound:g} allowed{label(seen.clear)}."
    return rules.verdict(AMPLIFICATION, found, passed)


def retry_budget(seen: Seen) -> Verdict:
    """Retries over calls, once there are enough calls for a share to mean something."""
    calls = len(seen.clear)
    work = seen.attempts
    retries = len(work) - calls
    allowed = seen.params.retry_share * calls + seen.params.retry_free
    failing = sum(1 for arrival in work if arrival.failed)
    add = f"{seen.params.least_calls} calls or more while many fail, such as --scenario brownout"
    sentence = f"{SUBJECT}: {retries} retries of {calls} calls, where a budget of {seen.params.retry_share:.0%} allows"
    found = [
        rules.at_most(SUBJECT, "retries", retries, allowed, "retries", calls, f"{sentence} {allowed:.0f}"),
        rules.enough(SUBJECT, "calls", calls, seen.params.least_calls, "calls", add),
        rules.enough(SUBJECT, "failed attempts", failing, seen.params.least_calls // 4, "attempts", add),
    ]
    thin = any(rule.finding.word is Word.INCONCLUSIVE for rule in found)
    passed = f"{retries} retries of {calls} calls, {allowed:.0f} allowed, while {failing} attempts failed."
    return rules.verdict(BUDGET, found[1:] if thin else found, passed)


def non_retryable(seen: Seen) -> Verdict:
    """What cannot succeed is not tried again."""
    answers = [arrival for arrival in seen.attempts if arrival.final]
    breaches = [
        (after.id, f"after {before.status}{' ' + before.code if before.code else ''}")
        for _, before, after in seen.repeated
        if before.final
    ]
    add = "answers that no retry can better, such as --scenario bad_request"
    found = [never(SUBJECT, "repeated what cannot succeed", breaches, len(answers), 1, add, "attempts")]
    passed = f"{len(answers)} answers said that no retry can help: none was followed by one."
    return rules.verdict(FINAL, found, passed)


def _inferred(calls: Sequence[Call]) -> list[Rule]:
    return [noted(SUBJECT, INFERRED)] if any(call.inferred for call in calls) else []
