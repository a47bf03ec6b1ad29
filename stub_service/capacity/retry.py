"""The one owner of retries: decides whether a failed attempt is followed by another, when, and pays for it first.

A retry happens only if, in this order: the failure is retryable; the operation is repeatable (a read, a write with an
idempotency key, or a write that a read-back has proved absent); the circuit is closed; what Retry-After states, or
else the backoff, leaves room for the expected service time before the deadline; and an attempt, a unit of budget and a
retry token are left. These are spent here, before the retry is scheduled.

    delay before attempt n + 1 = min(most, base * 2^(n-1)) * (1 + uniform(-jitter, +jitter))
    with Retry-After > 0:        stated + uniform(0, jitter) * min(most, base * 2^(n-1)), as far as the deadline allows

so that it is never early, and a wave of refusals does not come back as one wave. `Retry-After: 0` or a past date means
the backoff, never a hot loop. Draws are seeded by run, step and attempt: they do not depend on what else happens.
Source: M. Brooker, Exponential backoff and jitter (AWS, 2015); RFC 9110, 10.2.3.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from stub_service.capacity import config
from stub_service.capacity.envelope import Envelope
from stub_service.capacity.ports import WRITE, DependencyAnswer, Step
from stub_service.capacity.retry_after import stated_wait_ns

RETRYABLE = frozenset((0, 408, 425, 429, 500, 502, 503, 504))
AMBIGUOUS = frozenset((0, 504))
"""A write that was answered so may have been committed."""

OWNER = "controller"


@dataclass(frozen=True, slots=True)
class Failed:
    """One attempt that failed. proved_absent: a read-back has shown that the write was not committed."""

    run: str
    step: Step
    attempt: int
    answer: DependencyAnswer
    deadline_ns: int
    expected_ns: int
    circuit_closed: bool
    proved_absent: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """denied: why there is no retry; None: there is one, after delay_ns."""

    denied: str | None
    delay_ns: int = 0


class RetryOwner:
    """Its methods are the rules, one each."""

    def __init__(self, retry: config.Retry, seed: int) -> None:
        self.config = retry
        self.seed = seed

    def retryable(self, status: int) -> bool:
        return status in RETRYABLE

    def repeatable(self, failed: Failed) -> bool:
        return failed.step.operation != WRITE or failed.step.idempotency_key is not None or failed.proved_absent

    def ambiguous(self, step: Step, status: int) -> bool:
        return step.operation == WRITE and status in AMBIGUOUS

    def backoff_ns(self, attempt: int) -> int:
        """Before jitter. attempt: the one that failed, from 1."""
        return min(self.config.most_ns, self.config.base_ns << min(attempt - 1, 30))

    def delay_ns(self, failed: Failed, stated_ns: int | None, now_ns: int) -> int:
        backoff_ns = self.backoff_ns(failed.attempt)
        draw = Random(f"{self.seed}:retry:{failed.run}:{failed.step.step}:{failed.attempt}")
        if not stated_ns:
            return int(backoff_ns * (1 + draw.uniform(-self.config.jitter, self.config.jitter)))
        room_ns = max(0, failed.deadline_ns - failed.expected_ns - now_ns - stated_ns)
        return stated_ns + min(room_ns, int(backoff_ns * draw.uniform(0, self.config.jitter)))

    def plan(self, failed: Failed, envelope: Envelope, now_ns: int) -> Plan:
        """Whether and when; what the retry costs has been taken from the envelope if so."""
        if not self.retryable(failed.answer.status):
            return Plan("not_retryable")
        if not self.repeatable(failed):
            return Plan("not_repeatable")
        if not failed.circuit_closed:
            return Plan("circuit_open")
        stated_ns = stated_wait_ns(failed.answer.retry_after, failed.answer.date)
        delay_ns = self.delay_ns(failed, stated_ns, now_ns)
        if now_ns + delay_ns + failed.expected_ns > failed.deadline_ns:
            return Plan("retry_after_beyond_deadline" if stated_ns else "no_time")
        missing = envelope.take_retry(failed.step.dependency)
        return Plan(f"no_{missing}") if missing else Plan(None, delay_ns)
