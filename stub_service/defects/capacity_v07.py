"""Retry-After misread, for `v07.retry_after` to catch: each is laid over the retry owner, who carries it out."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

from stub_service.capacity.config import CapacityConfig
from stub_service.capacity.controller import Controller
from stub_service.capacity.envelope import Envelope
from stub_service.capacity.retry import Failed, Plan, RetryOwner
from stub_service.capacity.retry_after import epoch_s, stated_wait_ns
from stub_service.defects.registry import become, broken, twin

RETRY_AFTER = "v07.retry_after"
CAP_S = 1
HOT_NS = 1_000_000


def _told(failed: Failed, retry_after: str | None) -> Failed:
    """The same failure with another header."""
    return replace(failed, answer=failed.answer._replace(retry_after=retry_after))


class IgnoresIt(RetryOwner):
    """The header is not looked at."""

    def plan(self, failed: Failed, envelope: Envelope, now_ns: int) -> Plan:
        return super().plan(_told(failed, None), envelope, now_ns)


class Early(RetryOwner):
    """Four fifths of what was stated."""

    def delay_ns(self, failed: Failed, stated_ns: int | None, now_ns: int) -> int:
        return super().delay_ns(failed, stated_ns * 4 // 5 if stated_ns else stated_ns, now_ns)


class Clips(RetryOwner):
    """No more than a second is ever waited."""

    def plan(self, failed: Failed, envelope: Envelope, now_ns: int) -> Plan:
        stated_ns = stated_wait_ns(failed.answer.retry_after, failed.answer.date)
        if stated_ns and stated_ns > CAP_S * 1_000_000_000:
            failed = _told(failed, str(CAP_S))
        return super().plan(failed, envelope, now_ns)


class SleepsForIt(RetryOwner):
    """What cannot be waited for is waited for all the same, until the deadline is there."""

    def plan(self, failed: Failed, envelope: Envelope, now_ns: int) -> Plan:
        plan = super().plan(failed, envelope, now_ns)
        if plan.denied != "retry_after_beyond_deadline" or envelope.take_retry(failed.step.dependency):
            return plan
        return Plan(None, max(0, failed.deadline_ns - now_ns))


class DateIsZero(RetryOwner):
    """A date is not understood, and counts as zero seconds."""

    def plan(self, failed: Failed, envelope: Envelope, now_ns: int) -> Plan:
        if epoch_s((failed.answer.retry_after or "").strip()) is not None:
            failed = _told(failed, "0")
        return super().plan(failed, envelope, now_ns)


class ZeroIsNow(RetryOwner):
    """`Retry-After: 0` is taken at its word: at once, and again."""

    def delay_ns(self, failed: Failed, stated_ns: int | None, now_ns: int) -> int:
        return HOT_NS if stated_ns == 0 else super().delay_ns(failed, stated_ns, now_ns)


class LaterThanStated(RetryOwner):
    """Twin: up to 400 ms later than stated, drawn for each retry, as far as the deadline allows."""

    def delay_ns(self, failed: Failed, stated_ns: int | None, now_ns: int) -> int:
        if not stated_ns:
            return super().delay_ns(failed, stated_ns, now_ns)
        draw = Random(f"{self.seed}:later:{failed.run}:{failed.step.step}:{failed.attempt}")
        room_ns = max(0, failed.deadline_ns - failed.expected_ns - now_ns - stated_ns)
        return stated_ns + min(room_ns, draw.randrange(400_000_000))


class WholeSeconds(RetryOwner):
    """Twin: what is stated is rounded up to whole seconds, if that still fits."""

    def delay_ns(self, failed: Failed, stated_ns: int | None, now_ns: int) -> int:
        delay_ns = super().delay_ns(failed, stated_ns, now_ns)
        whole_ns = -(-delay_ns // 1_000_000_000) * 1_000_000_000
        fits = now_ns + whole_ns + failed.expected_ns <= failed.deadline_ns
        return whole_ns if stated_ns and fits else delay_ns


def _owner(kind: type[RetryOwner]) -> Any:
    def lay(controller: Controller, config: CapacityConfig) -> None:
        become(controller.flow.retry, kind)

    return lay


broken("retry_after_ignored", "the header is ignored: own backoff", _owner(IgnoresIt), RETRY_AFTER)
broken("retry_after_early", "the retry comes at four fifths of what was stated", _owner(Early), RETRY_AFTER)
broken("retry_after_clipped", "what is stated is clipped to a second, and retried", _owner(Clips), RETRY_AFTER)
broken("retry_after_slept_for", "what lies beyond the deadline is slept for", _owner(SleepsForIt), RETRY_AFTER)
broken("retry_after_date_as_zero", "a date is read as zero seconds", _owner(DateIsZero), RETRY_AFTER)
broken(
    "retry_after_zero_hot_loop", "`Retry-After: 0` is retried at once, again and again", _owner(ZeroIsNow), RETRY_AFTER
)
twin("twin_retry_after_later", "the retry comes up to 400 ms later than stated", _owner(LaterThanStated), RETRY_AFTER)
twin("twin_retry_after_rounded_up", "what is stated is rounded up to seconds", _owner(WholeSeconds), RETRY_AFTER)
