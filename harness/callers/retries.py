"""Who retries, and how often: one owner, bounded attempts, bounded amplification, nothing that cannot succeed.

Sources: the SRE book, "Handling Overload" (retry at one layer only; three attempts a request; a retry budget of 10 %),
and the arithmetic of layers: three attempts at each of three layers are 27.
"""

from __future__ import annotations

from collections.abc import Sequence

from harness.callers.calls import Call, Layers, layers_of
from harness.callers.seen import INFERRED, SUBJECT, Seen, label
from harness.checks import rules
from harness.checks.rules import Rule
from harness.checks.rulings import never, noted
from harness.checks.verdict import Finding, Verdict, Word

ONE_OWNER, ATTEMPTS, AMPLIFICATION = "caller.one_owner", "caller.attempts_bounded", "caller.amplification"
BUDGET, FINAL = "caller.retry_budget", "caller.non_retryable"
PERSIST = "a failure that lasts, such as --scenario down, long enough for the caller to give up"


def one_owner(seen: Seen) -> Verdict:
    """FAIL where the attempts of one call show a layer within a layer."""
    layered = [(call, layers_of(call)) for call in seen.calls]
    sure = [(call, layers) for call, layers in layered if layers.owners > 1 and layers.sure]
    guessed = [(call, layers) for call, layers in layered if layers.owners > 1 and not layers.sure]
    if _same_rhythm(guessed):
        sure, guessed = sure + guessed, []
    given_up = [call for call, _ in layered if call.failed and any(_retryable(a) for a in call.attempts)]
    breaches = [(call.id, _said(layers)) for call, layers in sure]
    found = [
        never(SUBJECT, "were retried by two layers", breaches, len(given_up) or len(breaches), 1, PERSIST, "calls"),
        *([_suspected(guessed)] if guessed and not sure else []),
        *_inferred([call for call, _ in sure]),
    ]
    most = max((layers.owners for _, layers in layered), default=0)
    attempts = max((len(call.attempts) for call in given_up), default=0)
    owner = "nobody retries" if most == 0 else f"one layer retries, with up to {attempts} attempts a call"
    who = ", by what the SDK's headers count" if any(call.counted for call in given_up) else ", by their delays"
    passed = f"{len(given_up)} calls never succeeded: {owner}{who if most else ''}{label(given_up)}."
    return rules.verdict(ONE_OWNER, found, passed)


def _retryable(attempt: object) -> bool:
    return bool(getattr(attempt, "failed", False)) and not bool(getattr(attempt, "final", False))


def _said(layers: Layers) -> str:
    how = ", inferred from the delays" if layers.inferred else ""
    return f"{layers.outer} runs of up to {layers.inner} attempts{how}"


def _same_rhythm(guessed: Sequence[tuple[Call, Layers]]) -> bool:
    """Chance does not give two calls the same rhythm."""
    shapes = [(layers.inner, layers.outer) for _, layers in guessed]
    return any(shapes.count(shape) >= 2 for shape in shapes)


def _suspected(guessed: Sequence[tuple[Call, Layers]]) -> Rule:
    call, layers = guessed[0]
    sentence = f"{SUBJECT}: the delays of call {call.id} look like {_said(layers)}, but one call is too few to say so"
    finding = Finding(SUBJECT, "layers", Word.INCONCLUSIVE, 2.0, None, None, 1.0, "layers", len(guessed), sentence)
    return Rule(finding, sentence, (), "a second call that fails for good, or a client that counts its attempts")


def attempts_bounded(seen: Seen) -> Verdict:
    bound = seen.params.attempts
    over = [(call.id, f"{len(call.attempts)} attempts") for call in seen.calls if len(call.attempts) > bound]
    over.sort(key=lambda breach: -int(breach[1].split()[0]))
    failing = [call for call in seen.calls if any(_retryable(a) for a in call.attempts)]
    add = "calls that fail with something that may be retried, such as --scenario down"
    found = [
        never(SUBJECT, f"took more than {bound} attempts", over, len(failing) or len(over), 1, add, "calls"),
        *_inferred([call for call in seen.calls if len(call.attempts) > bound]),
    ]
    most = max((len(call.attempts) for call in failing), default=0)
    passed = f"{len(failing)} calls met a failure: at most {most} attempts each, {bound} allowed{label(failing)}."
    return rules.verdict(ATTEMPTS, found, passed)


def amplification(seen: Seen) -> Verdict:
    calls, attempts, bound = len(seen.calls), len(seen.work), seen.params.amplification
    if not calls:
        return rules.withheld(AMPLIFICATION, "no call arrived", "a caller that makes calls")
    ratio = attempts / calls
    sentence = f"{SUBJECT}: {attempts} attempts of {calls} calls, {ratio:.2f} a call where {bound:g} are allowed"
    worst = sorted(seen.calls, key=lambda call: -len(call.attempts))
    found = [
        rules.at_most(SUBJECT, "attempts over logical calls", ratio, bound, "attempts a call", calls,
                      sentence + label(seen.calls), [call.id for call in worst[:5]]),
    ]  # fmt: skip
    passed = f"{attempts} attempts of {calls} logical calls: {ratio:.2f} a call, {bound:g} allowed{label(seen.calls)}."
    return rules.verdict(AMPLIFICATION, found, passed)


def retry_budget(seen: Seen) -> Verdict:
    """Retries over calls, once there are enough calls for a share to mean something."""
    calls = len(seen.calls)
    retries = len(seen.work) - calls
    allowed = seen.params.retry_share * calls + seen.params.retry_free
    failing = sum(1 for arrival in seen.work if arrival.failed)
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
    answers = [arrival for arrival in seen.work if arrival.final]
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
