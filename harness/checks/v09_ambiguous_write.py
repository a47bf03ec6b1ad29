"""v09.ambiguous_write: a write whose answer never came is looked up before anything else, and told as it really is.

A write is *ambiguous* if it reached its dependency and got no answer (or a gateway's 504). Whether it was committed is
known from the effects alone. Then

    look-up     a read-back arrives before any repeat
    once        each logical mutation is committed at most once; one key for all of its attempts
    no repeat   of a committed one, and no retry token spent on it
    the truth   `served` if, and only if, it was committed; an unresolved one (`needs_person`, `failed`) only if no
                read-back was answered

What the controller decided and what the caller was told are both held against the effects.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from harness.checks import rules
from harness.checks.context import NS_PER_MS
from harness.checks.registry import CHECKS, Check
from harness.checks.rules import Rule
from harness.checks.rulings import Breach, missing, never
from harness.checks.step_rows import Frame, StepRows, answered, at, ended_ns, frame_of
from harness.checks.verdict import Verdict
from harness.ledger.evidence import Row
from harness.ledger.outcomes import COALESCED, SERVED
from harness.ledger.reader import CALLS, Trial, rows_of
from harness.profile.base import Part

NAME = "v09.ambiguous_write"
Least = Annotated[int, Field(ge=0, le=1_000_000, strict=True)]
NO_ANSWER = (0, 504)
_GOOD = (SERVED, COALESCED)


class Params(Part):
    """least: writes without an answer that must have been committed, and as many that must not. unkeyed: of all of
    them, those without an idempotency key. repeated: those not committed that were then repeated.
    """

    least: Least = 5
    unkeyed: Least = 1
    repeated: Least = 1


@dataclass(frozen=True, slots=True)
class Mutation:
    """A write step with an attempt that got no answer. first: that attempt; committed_ns: when it first took effect."""

    step: StepRows
    first: Row
    committed_ns: int | None

    @property
    def id(self) -> str:
        return self.step.id

    @property
    def committed_at_first(self) -> bool:
        """Whether it was committed before any repeat was sent."""
        repeats = self.repeats
        return self.committed_ns is not None and (not repeats or self.committed_ns <= at(repeats[0]))

    @property
    def repeats(self) -> list[Row]:
        """Later attempts to write it; None of them may come before a read-back."""
        place = self.step.attempts.index(self.first)
        return self.step.attempts[place + 1 :]

    @property
    def known(self) -> bool:
        """Whether a read-back after it was answered."""
        return any(200 <= answered(row) < 300 and at(row) >= at(self.first) for row in self.step.readbacks)


def judge(trial: Trial, params: Params) -> Verdict:
    frame = frame_of(trial)
    withheld = missing(NAME, frame.evidence, "decisions", "arrivals", "effects")
    if withheld:
        return withheld
    found = list(_ambiguous(frame))
    committed = [m for m in found if m.committed_at_first]
    absent = [m for m in found if not m.committed_at_first]
    judged = [
        _once(frame),
        _looked_up(found),
        _one_key(found),
        _not_repeated(committed),
        _no_token(frame, committed),
        *_truth(found),
        *_told(trial, frame, found),
        *_evidence(found, committed, absent, params),
    ]
    passed = (
        f"{len(committed)} writes were committed without an answer and {len(absent)} were not: each was looked up "
        f"before anything else, committed at most once, and told as it was."
    )
    return rules.verdict(NAME, judged, passed)


def _ambiguous(frame: Frame) -> Iterator[Mutation]:
    for step in frame.steps.values():
        for attempt in step.attempts:
            if attempt.get("operation") == "write" and answered(attempt) in NO_ANSWER:
                effects = [at(effect) for effect in step.effects]
                yield Mutation(step, attempt, min(effects, default=None))
                break


def _once(frame: Frame) -> Rule:
    """Over all writes of the trial, ambiguous or not."""
    times = Counter(str(e.get("logical") or f"{e.get('run')}/{e.get('step')}") for e in frame.evidence.effects)
    breaches = [(logical, f"{n} times") for logical, n in times.items() if n > 1]
    add = "writes that a dependency commits"
    return never("effects", "were committed more than once", breaches, len(times), 1, add, "mutations")


def _looked_up(found: list[Mutation]) -> Rule:
    breaches: list[Breach] = []
    for m in found:
        for earlier, repeat in zip([m.first, *m.repeats], m.repeats, strict=False):
            if answered(earlier) not in NO_ANSWER:
                continue
            between = [r for r in m.step.readbacks if at(earlier) <= at(r) and ended_ns(r) <= at(repeat) + NS_PER_MS]
            if not between:
                breaches.append((m.id, f"{(at(repeat) - ended_ns(earlier)) / NS_PER_MS:.0f} ms after the first"))
                break
    add = "writes whose answer never comes"
    return never("look-up", "were repeated without looking first", breaches, len(found), 1, add, "writes")


def _one_key(found: list[Mutation]) -> Rule:
    breaches: list[Breach] = []
    for m in found:
        keys = {row.get("idempotency_key") for row in (*m.step.attempts, *m.step.readbacks)}
        if len(keys - {None}) > 1:
            breaches.append((m.id, f"{len(keys)} keys"))
    return never("key", "changed their idempotency key between attempts", breaches, len(found), 0, "", "writes")


def _not_repeated(committed: list[Mutation]) -> Rule:
    breaches = [(m.id, f"{len(m.repeats)} more attempts") for m in committed if m.repeats]
    add = "writes that are committed and then time out (fault `commit_then_timeout`)"
    return never("committed", "were written again", breaches, len(committed), 1, add, "writes")


def _no_token(frame: Frame, committed: list[Mutation]) -> Rule:
    """A retry that was scheduled for it, or a token gone that no retry of its run accounts for."""
    breaches: list[Breach] = []
    for m in committed:
        scheduled = [r for r in m.step.decided("retry", "scheduled") if at(r) >= (m.committed_ns or 0)]
        if scheduled:
            breaches.append((m.id, "a retry was scheduled"))
            continue
        run = frame.runs[m.step.run]
        opened, end = run.opened, m.step.end
        if opened is None or end is None or run.children:
            continue
        before, left = opened.get("remaining_retry_tokens"), end.get("remaining_retry_tokens")
        retries = sum(max(len(s.attempts) - 1, len(s.decided("retry", "scheduled"))) for s in run.steps)
        if before is not None and left is not None and int(before) - int(left) > retries:
            breaches.append((m.id, f"{int(before) - int(left)} tokens are gone, {retries} retries were made"))
    return never("committed", "cost a retry token", breaches, len(committed), 1, "committed writes", "writes")


def _truth(found: list[Mutation]) -> Iterator[Rule]:
    lost: list[Breach] = []
    false: list[Breach] = []
    for m in found:
        outcome = m.step.outcome
        if m.committed_ns is not None and outcome not in _GOOD and (m.known or outcome is None):
            lost.append((m.id, f"told {outcome or 'nothing'}, committed at {m.committed_ns / 1e9:.2f} s"))
        if m.committed_ns is None and outcome in _GOOD:
            false.append((m.id, f"told {outcome}"))
    add = "writes whose answer never comes, and that end"
    yield never("outcome", "were committed and recorded as something else", lost, len(found), 1, add, "writes")
    yield never("outcome", "were recorded as served and never committed", false, len(found), 1, add, "writes")


def _told(trial: Trial, frame: Frame, found: list[Mutation]) -> Iterator[Rule]:
    """The caller's side, for batches of one step: there the call's outcome is the step's."""
    alone: dict[tuple[str, str], int] = defaultdict(int)
    for step in frame.steps.values():
        alone[step.run, step.told("batch") or ""] += 1
    told = {str(row["call"]): row for row in rows_of(trial.folder / CALLS)}
    breaches: list[Breach] = []
    seen = 0
    for m in found:
        call = told.get(frame.request_of(m.step) or "")
        if call is None or alone[m.step.run, m.step.told("batch") or ""] != 1:
            continue
        seen += 1
        good, committed = call.get("outcome") in _GOOD, m.committed_ns is not None
        if good != committed and (good or m.known):
            breaches.append((m.id, f"{'committed' if committed else 'not committed'}, told {call.get('outcome')}"))
    yield never("caller", "were told something else than what happened", breaches, seen, 0, "", "writes")


def _evidence(
    found: list[Mutation], committed: list[Mutation], absent: list[Mutation], params: Params
) -> Iterator[Rule]:
    unkeyed = sum(1 for m in found if m.step.told("idempotency_key") is None)
    repeated = sum(1 for m in absent if m.repeats)
    for what, n, least, add in (
        ("committed without an answer", len(committed), params.least, "fault `commit_then_timeout` on writes"),
        ("neither answered nor committed", len(absent), params.least, "fault `hang` on writes, before they are taken"),
        ("without an idempotency key", unkeyed, params.unkeyed, "write steps with `key: none`"),
        ("repeated once known to be absent", repeated, params.repeated, "time and retry tokens for a repeat"),
    ):
        yield rules.enough("evidence", what, n, least, "writes", add)


CHECKS[NAME] = Check(
    NAME,
    "a write without an answer is looked up before any repeat, committed once, and told as it is",
    "decisions, arrivals and effects of writes that commit and then time out, and of some that do not commit",
    Params,
    judge,
)
