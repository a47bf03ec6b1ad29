"""Whether work is done twice: what the caller does when it cannot know if its write was done.

Source: RFC 9110, 9.2.2 (a client must not repeat a non-idempotent request by itself unless it knows that it does no
harm), and the Idempotency-Key header as payment providers have it: one key a logical write, the same in every attempt,
in every layer, and in every new plan for the same thing.

    same key              right
    no key                wrong, unless a look-up came in between and said that nothing had been done
    a key per attempt     wrong: it protects nothing, and looks as if it did

Reads, PUT and DELETE may be repeated as they are. A chat completion is a write: its tokens are paid for again.
"""

from __future__ import annotations

from collections import defaultdict

from harness.callers.calls import Call
from harness.callers.log import Arrival
from harness.callers.seen import SUBJECT, Seen, label
from harness.checks import rules
from harness.checks.rulings import never, noted
from harness.checks.verdict import Verdict

IDEMPOTENT = "caller.idempotent"


def idempotent(seen: Seen) -> Verdict:
    unsure = [a for a in seen.attempts if a.nature == "write" and a.unsure]
    bare: list[tuple[str, str]] = []
    fresh: list[tuple[str, str]] = []
    kept = 0
    for call, before, after in seen.repeated:
        if before.nature != "write" or not _may_be_done(call, before):
            continue
        if _protected(before, after) or _read_back(seen, before, after):
            kept += 1
        elif before.key is None or after.key is None:
            bare.append((after.id, f"after {_how(before)}{label([call])}"))
        else:
            fresh.append((after.id, f"after {_how(before)}, by body and time"))
    add = "writes whose outcome the caller cannot know, such as --scenario commits_then_resets"
    found = [
        never(SUBJECT, "repeated a write that may be done, without a key", bare, len(unsure), 1, add, "attempts"),
        never(SUBJECT, "repeated a write under a new key", fresh, len(unsure), 1, add, "attempts"),
        never(SUBJECT, "did one write twice", _twice(seen), len(unsure), 1, add, "calls"),
    ]
    if unsure and not kept and not bare and not fresh:
        found.append(noted(SUBJECT, "it left such writes alone: whoever called must look whether they were done"))
    passed = f"{len(unsure)} writes ended in doubt: {kept} repeated safely, none done twice."
    return rules.verdict(IDEMPOTENT, found, passed)


def _may_be_done(call: Call, before: Arrival) -> bool:
    """Whether an attempt up to this one may have done the work."""
    return any(a.unsure for a in call.attempts if a.at_ns <= before.at_ns)


def _protected(before: Arrival, after: Arrival) -> bool:
    """Whoever does the work can tell that it is the same."""
    token = before.token and after.token and before.body == after.body
    return token or (before.key is not None and before.key == after.key)


def _read_back(seen: Seen, before: Arrival, after: Arrival) -> bool:
    """It asked whether the work had been done, was told that it had not, and only then repeated."""
    between = [
        a for a in seen.log.arrivals
        if a.form == "readback" and a.identity == before.identity and before.over_ns <= a.at_ns <= after.at_ns
    ]  # fmt: skip
    return any(a.committed is False and a.key == before.key for a in between if before.key is not None)


def _how(before: Arrival) -> str:
    return "it hung up" if before.hung_up else str(before.status) if before.answer == "failed" else f"a {before.answer}"


def _twice(seen: Seen) -> list[tuple[str, str]]:
    """Calls that left more than one effect, with their number."""
    effects: dict[str, set[int]] = defaultdict(set)
    for call in seen.calls:
        if len(call.attempts) > 1:
            effects[call.id] |= {a.effect for a in call.attempts if a.effect is not None and a.nature == "write"}
    return [(call, f"{len(made)} effects") for call, made in effects.items() if len(made) > 1]
