"""fairness.shuffle_isolation: one heavy tenant hurts no more light ones than the theory of shuffle sharding says.

Each tenant is dealt a hand of H out of Q queues and joins the shortest of its hand. A heavy tenant floods its own hand.
A light one is hurt only if all of its hand is among the flooded queues, which chance does with

    p = P(overlap >= H) = 1 / C(Q, H)              (hypergeometric tail; Q = 128, H = 6: 2 in ten thousand million)

for each light tenant by itself. So of n light tenants the number hurt is binomial (n, p), exactly, and

    FAIL            so many hurt, or more, would happen by chance with less than `chance`
    PASS            no more hurt than that, and a hand of one queue (p = 1 / Q) would have been seen to fail
    INCONCLUSIVE    too few light tenants, no flood, or tenants that are hurt without any

Light are the profile's ordinary tenants. Each other tenant is heavy while its rate is above its base; several floods,
one after the other, are several draws. Hurt is who, while the flood lasts, has a call not served or waiting for longer
than `wait`, by default a whole turn of all queues. Source: MacCarthaigh 2014, "Workload isolation using
shuffle-sharding"; the documentation of Kubernetes' API Priority and Fairness, whose table has the same p.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated

import numpy as np
from pydantic import Field

from harness.checks.context import Mask, asked_of_service, bundled, due_in, profile_of, service_time, witnesses
from harness.checks.registry import CHECKS, Check
from harness.checks.verdict import Finding, Verdict, Word
from harness.ledger.outcomes import SERVED
from harness.ledger.reader import Trial
from harness.measure.chance import binomial_bound, binomial_tail, hypergeometric_tail
from harness.profile.base import Count, DurationNs, Part
from harness.profile.model import Profile, Window

NAME = "fairness.shuffle_isolation"
HURT, HURT_CALM = "light tenants hurt", "light tenants hurt in calm"


class Params(Part):
    """queues, hand: left out, those of the profile's service where it is what ran. chance: of a false alarm. wait: left
    out, the mean service time, or a turn of all queues if that is longer. settle: part of each flood, from its begin,
    that it takes to fill queues. flood_lost: a heavy tenant that loses a smaller part of its calls fills nothing.
    power: how surely a hand of one would have been seen to fail. calm_hurt: most light tenants hurt without a flood.
    """

    queues: Count | None = None
    hand: Count | None = None
    chance: Annotated[float, Field(gt=0, le=0.05)] = 1e-4
    wait: DurationNs | None = None
    settle: Annotated[float, Field(ge=0, le=0.9)] = 0.4
    flood_lost: Annotated[float, Field(gt=0, lt=1)] = 0.1
    power: Annotated[float, Field(gt=0.5, lt=1)] = 0.99
    calm_hurt: Annotated[float, Field(gt=0, lt=1)] = 0.01


@dataclass(frozen=True, slots=True)
class _Flood:
    """One heavy tenant in its window. judged, hurt: light tenants with calls in it, and those of them that were hurt.
    lost: part of its own calls that were not served."""

    heavy: str
    judged: int
    hurt: int
    lost: float


@dataclass(frozen=True, slots=True, eq=False)
class _Evidence:
    """light, bad: of each row, whether it is an original call of a light tenant, and one that was hurt."""

    trial: Trial
    light: Mask
    bad: Mask


def judge(trial: Trial, params: Params) -> Verdict:
    profile = profile_of(trial)
    own = profile.service.admission if bundled(trial) and profile.service is not None else None
    queues = params.queues or (own.queues if own else None)
    hand = params.hand or (own.hand if own else None)
    if queues is None or hand is None or hand > queues:
        return _cannot("How many queues there are, and how large a hand is, is not known.", "give `queues` and `hand`")
    wait_ns = params.wait or _turn_ns(trial, profile, queues)
    if not wait_ns:
        return _cannot("The service time is not known, so no wait is too long.", "give `wait`")
    windows = _windows(profile)
    if not windows or not profile.ordinary:
        return _cannot(
            "Nobody is heavy, or nobody is light.", "name the light tenants under `ordinary:`, beside others"
        )
    if overlap := _overlapping(windows):
        return _cannot(f"{overlap} flood at the same time: the theory is of one.", "one flood after the other")
    evidence = _evidence(trial, profile, wait_ns)
    floods = [_flood(evidence, heavy, window, params) for heavy, window in windows]
    return _judge(evidence, profile, floods, (queues, hand), params)


def _cannot(sentence: str, add: str) -> Verdict:
    return Verdict(NAME, Word.INCONCLUSIVE, None, None, "", 0, sentence, add=add)


def _turn_ns(trial: Trial, profile: Profile, queues: int) -> float:
    """A service time, or what a turn of all queues takes."""
    mean = service_time(trial, profile).mean_ns or 0.0
    workers = profile.service.workers.base if profile.service is not None else queues
    return mean * max(1.0, queues / workers)


def _windows(profile: Profile) -> list[tuple[str, Window]]:
    """When each heavy tenant is: the steps of its rate that are above its base; without any, the burst, or all."""
    found, light = [], set(profile.ordinary)
    always = profile.phases.burst or Window(**{"from": "0s", "to": f"{profile.duration}ns"})
    for name, tenant in profile.tenants.items():
        if name in light:
            continue
        steps = [step for step in tenant.rate.steps if step.rate > tenant.rate.base] if tenant.rate else []
        found += [(name, always.model_copy(update={"from_ns": s.from_ns, "to_ns": s.to_ns})) for s in steps]
        found += [(name, always)] if not steps else []
    return sorted(found, key=lambda item: item[1].from_ns)


def _overlapping(windows: list[tuple[str, Window]]) -> str:
    for (one, before), (other, after) in pairwise(windows):
        if after.from_ns < before.to_ns:
            return f"{one} and {other}"
    return ""


def _evidence(trial: Trial, profile: Profile, wait_ns: float) -> _Evidence:
    calls, ordinary = trial.calls, set(profile.ordinary)
    is_light = np.array([name in ordinary for name in trial.tenants], dtype=np.bool_)
    light = asked_of_service(trial) & is_light[calls.tenant]
    served = calls.is_outcome(SERVED)
    waited = np.where(calls.queue_wait_ns >= 0, calls.queue_wait_ns, calls.done_ns - calls.due_ns)
    return _Evidence(trial, light, light & (~served | (waited > wait_ns)))


def _flood(evidence: _Evidence, heavy: str, window: Window, params: Params) -> _Flood:
    trial, calls = evidence.trial, evidence.trial.calls
    inside = _after_settling(evidence, window, params)
    judged, hurt = _tenants(evidence, inside)
    own = (
        (calls.tenant == trial.tenants.index(heavy)) & (calls.due_ns >= window.from_ns) & (calls.due_ns < window.to_ns)
    )
    lost = float((~calls.is_outcome(SERVED))[own].mean()) if own.any() else 0.0
    return _Flood(heavy, judged, hurt, lost)


def _after_settling(evidence: _Evidence, window: Window, params: Params) -> Mask:
    due, begin = evidence.trial.calls.due_ns, window.from_ns + params.settle * (window.to_ns - window.from_ns)
    return np.asarray((due >= begin) & (due < window.to_ns))


def _tenants(evidence: _Evidence, inside: Mask) -> tuple[int, int]:
    """(light tenants with a call in it, those hurt)."""
    tenant = evidence.trial.calls.tenant
    return len(np.unique(tenant[evidence.light & inside])), len(np.unique(tenant[evidence.bad & inside]))


def _judge(
    evidence: _Evidence, profile: Profile, floods: list[_Flood], shards: tuple[int, int], params: Params
) -> Verdict:
    queues, hand = shards
    p = hypergeometric_tail(queues, hand, hand, hand)
    filled = [flood for flood in floods if flood.lost >= params.flood_lost]
    n, hurt = sum(flood.judged for flood in filled), sum(flood.hurt for flood in filled)
    bound = binomial_bound(n, p, params.chance)
    findings = [_of_flood(flood, p, params) for flood in floods]
    calm, calm_hurt = _in_calm(evidence, profile)
    if calm:
        findings.append(
            Finding("all light tenants", HURT_CALM, Word.PASS, calm_hurt, None, None, None, "tenants", calm)
        )
    said = f"{hurt:,} of {n:,} light tenants were hurt by a heavy one, in {len(filled)} floods"
    theory = f"hands of {hand} out of {queues} queues allow for {n * p:.3g} on average, and under {bound:,}"
    if calm and calm_hurt > params.calm_hurt * calm:
        sentence = f"{calm_hurt:,} of {calm:,} light tenants were hurt without any flood: the service is too small."
        return _made(
            Word.INCONCLUSIVE, hurt, bound, n, sentence, (), "more workers, or smaller light tenants", findings
        )
    if not filled:
        sentence = "No heavy tenant was heavy enough to fill its queues."
        return _made(Word.INCONCLUSIVE, None, None, 0, sentence, (), "a heavy tenant that is refused much", findings)
    if hurt >= bound and hurt:
        shown = np.zeros(len(evidence.bad), dtype=np.bool_)
        for (_, window), flood in zip(_windows(profile), floods, strict=True):
            shown |= _after_settling(evidence, window, params) & (flood in filled)
        ids = witnesses(evidence.trial, evidence.bad & shown)
        return _made(Word.FAIL, hurt, bound, n, f"{said}; {theory}.", ids, "", findings)
    if hand > 1 and binomial_tail(n, 1 / queues, bound) < params.power:
        needed = _needed(n, queues, p, params)
        sentence = f"{said}; so few tenants cannot tell a hand of {hand} from a hand of one."
        return _made(Word.INCONCLUSIVE, hurt, bound, n, sentence, (), f"{needed} times as many light tenants", findings)
    return _made(Word.PASS, hurt, bound, n, f"{said}; {theory}.", (), "", findings)


def _needed(n: int, queues: int, p: float, params: Params) -> int:
    factor = 2
    while factor < 1 << 20:
        many = max(1, n) * factor
        if binomial_tail(many, 1 / queues, binomial_bound(many, p, params.chance)) >= params.power:
            break
        factor *= 2
    return factor


def _in_calm(evidence: _Evidence, profile: Profile) -> tuple[int, int]:
    calm = profile.phases.calm
    return _tenants(evidence, due_in(evidence.trial, calm)) if calm is not None else (0, 0)


def _of_flood(flood: _Flood, p: float, params: Params) -> Finding:
    bound = binomial_bound(flood.judged, p, params.chance)
    word = Word.INCONCLUSIVE if flood.lost < params.flood_lost else Word.PASS
    word = Word.FAIL if word is Word.PASS and flood.hurt >= max(1, bound) else word
    note = f"{flood.lost:.0%} of its own calls were not served"
    return Finding(f"by {flood.heavy}", HURT, word, flood.hurt, None, None, bound, "tenants", flood.judged, note)


def _made(
    word: Word, hurt: int | None, bound: int | None, n: int, said: str, ids: tuple[str, ...], add: str,
    findings: list[Finding],
) -> Verdict:  # fmt: skip
    return Verdict(NAME, word, hurt, bound, "tenants", n, said, ids, add, tuple(findings[:100]))


CHECKS[NAME] = Check(
    NAME,
    "one heavy tenant hurts no more light ones than shuffle sharding allows by chance",
    "hundreds of light tenants (`ordinary`), and heavy ones that flood one after the other",
    Params,
    judge,
)
