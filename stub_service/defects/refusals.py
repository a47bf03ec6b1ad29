"""Refusals that a caller cannot act on, for `fairness.refusals_structured` to catch; and twins, which are right."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

from stub_service.admission.answers import Answer, Refuse
from stub_service.admission.service import SharedService
from stub_service.config import SharedServiceConfig
from stub_service.defects.registry import DEFECTS, Defect

STRUCTURED = "fairness.refusals_structured"
HANG_NS = 5_000_000_000


def _laid(name: str, about: str, change: Any, healthy: bool = False) -> None:
    """Registers a change of the healthy answer: (answer, rng) -> answer."""

    def lay(service: SharedService, config: SharedServiceConfig) -> None:
        healthy_refuse: Refuse = service.refuse
        rng = Random(f"{config.seed}:{name}")

        def refuse(tenant: str, reason: str, retry_after_s: int) -> Answer:
            answer: Answer = change(healthy_refuse(tenant, reason, retry_after_s), rng)
            return answer

        service.refuse = refuse

    of = (STRUCTURED,)
    DEFECTS[name] = Defect(name, about, () if healthy else of, lay, healthy, twin_of=of if healthy else ())


def without_retry_after(answer: Answer, rng: Random) -> Answer:
    return replace(answer, retry_after=None)


def as_503(answer: Answer, rng: Random) -> Answer:
    return replace(answer, status=503)


def untyped(answer: Answer, rng: Random) -> Answer:
    return replace(answer, body={"error": "busy"})


def hangs(answer: Answer, rng: Random) -> Answer:
    return replace(answer, delay_ns=HANG_NS)


def garbage(answer: Answer, rng: Random) -> Answer:
    return replace(answer, retry_after=rng.choice(["soon", "-10", "nan", "20, 30", "2025-01-01T00:00:00Z", "1_000"]))


def jittered(answer: Answer, rng: Random) -> Answer:
    """Spread over the seconds after, so that the refused do not all come back at once."""
    later = int(answer.retry_after or 1) + rng.randrange(4)
    return replace(answer, retry_after=str(later), body={**answer.body, "retry_after_s": later})


def dated(answer: Answer, rng: Random) -> Answer:
    """A date that has passed (that of RFC 9110's own example): come back at once. The form is what is judged."""
    return replace(answer, retry_after="Sun, 06 Nov 1994 08:49:37 GMT")


_laid("refusal_without_retry_after", "429 without Retry-After", without_retry_after)
_laid("refusal_as_503", "a refusal is answered 503", as_503)
_laid("refusal_untyped", "the body of a refusal names no outcome", untyped)
_laid("refusal_hangs", "a refusal is given after five seconds", hangs)
_laid("retry_after_garbage", "Retry-After is no delay and no date", garbage)
_laid("twin_retry_after_jittered", "twin: Retry-After is spread over some seconds", jittered, healthy=True)
_laid("twin_retry_after_date", "twin: Retry-After is an HTTP date", dated, healthy=True)
