"""fairness.shadow_agrees: what a policy in shadow says that it would refuse is what it refuses once it is switched on.

A shadow is believed before a rollout, so it must be right. Two ways to see that it is, call by call:

    the deciding policy in shadow      the shadow is of the same policy that decides: each call must have become of it
                                       what became of it in the shadow, within what clocks of two workers differ by
    another trial (`other`)            the shadow's policy was switched on there, for the same arrivals: its original
                                       calls are held against those of this trial's shadow. Re-plans are left out, for
                                       they follow from what was really decided

A third, a shadow held against a trial that nobody ran, is a guess and is not offered. What is compared is, for each
tenant, the share that is refused (`throttled` at admission) and the share that expires in the queue; net of chance, for
one and the same call is looked at twice (McNemar 1947: only calls that differ count).

Source: the "shadow mode" of Envoy's rate limit service, which counts what would be refused and lets it pass.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from harness.checks.context import MOST_WITNESSES, profile_of
from harness.checks.registry import CHECKS, Check
from harness.checks.verdict import Finding, Verdict, Word
from harness.ledger.reader import Trial, read_trial
from harness.measure.intervals import Interval, z_of
from harness.profile.base import Part
from harness.profile.model import Profile

NAME = "fairness.shadow_agrees"
REFUSED, EXPIRED = "refused in shadow and not in fact", "expired in shadow and not in fact"
_WORDS = {"throttled": REFUSED, "expired": EXPIRED}


class Params(Part):
    """other: folder of a trial in which the shadow's policy decides: a name beside this trial's folder, or a path. Left
    out, the shadow's policy must be the deciding one. margin_pp: percentage points of a tenant's calls. least_calls: of
    a tenant, for it to be judged. least_refused: calls that one of the two sides refused, in all.
    """

    other: Annotated[str, Field(min_length=1, max_length=4096)] | None = None
    margin_pp: Annotated[float, Field(gt=0, lt=100)] = 5.0
    confidence: Annotated[float, Field(ge=0.8, le=0.9999)] = 0.99
    least_calls: Annotated[int, Field(ge=20, strict=True)] = 100
    least_refused: Annotated[int, Field(ge=1, strict=True)] = 50


@dataclass(frozen=True, slots=True)
class _Both:
    """Calls of which both sides say what became: id -> outcome."""

    shadow: dict[str, str]
    fact: dict[str, str]
    against: str


def judge(trial: Trial, params: Params) -> Verdict:
    profile = profile_of(trial)
    shadow = _outcomes(row for row in trial.decisions() if row.get("part") == "shadow")
    if not shadow:
        add = "a profile with `service.shadow`, on the bundled stub or simulated"
        return _cannot("No policy was in shadow, or the target does not tell what it would have done.", add)
    if params.other:
        both = _against_other(trial, profile, params.other, shadow)
    else:
        both = _against_itself(trial, profile, shadow)
    if isinstance(both, Verdict):
        return both
    ids = [call for call in both.shadow if call in both.fact]
    findings = [finding for name in trial.tenants for finding in _of_tenant(trial, name, ids, both, params)]
    return _verdict(trial, ids, both, findings, params)


def _cannot(sentence: str, add: str) -> Verdict:
    return Verdict(NAME, Word.INCONCLUSIVE, None, None, "", 0, sentence, add=add)


def _outcomes(rows: Iterable[dict[str, Any]]) -> dict[str, str]:
    """Call -> what became of it; interim rows are passed over."""
    found: dict[str, str] = {}
    for row in rows:
        call, outcome = row.get("call"), row.get("outcome")
        if isinstance(call, str) and outcome in ("served", "throttled", "expired", "cancelled"):
            # A caller who hangs up while its call waits has run out of patience, as the shadow would say.
            found[call] = "expired" if outcome == "cancelled" else str(outcome)
    return found


def _decided(trial: Trial) -> dict[str, str]:
    return _outcomes(row for row in trial.decisions() if "part" not in row)


def _against_itself(trial: Trial, profile: Profile, shadow: dict[str, str]) -> _Both | Verdict:
    service = profile.service
    if service is None or service.shadow != service.admission:
        add = "the folder of a trial with the shadow's policy switched on (`other`), or a shadow of the deciding policy"
        return _cannot("Another policy decides than the one in shadow, so this trial alone cannot tell.", add)
    return _Both(shadow, _decided(trial), "the deciding policy")


def _against_other(trial: Trial, profile: Profile, folder: str, shadow: dict[str, str]) -> _Both | Verdict:
    """Raises LedgerError where the other folder is none."""
    path = Path(folder)
    other = read_trial(path if path.is_absolute() else trial.folder.parent / path)
    its = profile_of(other)
    shadowed = profile.service.shadow if profile.service is not None else None
    if its.service is None or shadowed != its.service.admission:
        sentence = f"In {path.name} another policy decides than the one in shadow here."
        return _cannot(sentence, "a trial in which the shadow's policy is switched on")
    if any(getattr(profile, key) != getattr(its, key) for key in _SAME):
        return _cannot(f"{path.name} is of other arrivals than this trial.", "the same profile but for its policy")
    original = {other.calls.id(int(row)) for row in np.flatnonzero(other.calls.round == 0)}
    fact = {call: outcome for call, outcome in _decided(other).items() if call in original}
    mine = {trial.calls.id(int(row)) for row in np.flatnonzero(trial.calls.round == 0)}
    return _Both({call: word for call, word in shadow.items() if call in mine}, fact, path.name)


_SAME = ("tenants", "duration", "seed", "patience", "patience_until")


def _of_tenant(trial: Trial, name: str, ids: list[str], both: _Both, params: Params) -> list[Finding]:
    index = f"{trial.tenants.index(name)}."
    own = [call for call in ids if call.startswith(index)]
    if len(own) < params.least_calls:
        return []
    findings = []
    for word, quantity in _WORDS.items():
        more = sum(both.shadow[call] == word != both.fact[call] for call in own)
        less = sum(both.fact[call] == word != both.shadow[call] for call in own)
        pp = paired(more, less, len(own), z_of(params.confidence)).times(100)
        inside = -params.margin_pp < pp.low and pp.high < params.margin_pp
        outside = pp.low > params.margin_pp or pp.high < -params.margin_pp
        verdict = Word.PASS if inside else Word.FAIL if outside else Word.INCONCLUSIVE
        note = f"{more} calls in shadow only, {less} in fact only"
        findings.append(
            Finding(name, quantity, verdict, pp.estimate, pp.low, pp.high, params.margin_pp, "pp", len(own), note)
        )
    return findings


def paired(more: int, less: int, n: int, z: float) -> Interval:
    """Change of a share when each of n calls is looked at twice, and `more` and `less` of them changed; never without a
    width: a call more of either is always possible."""
    change = (more - less) / n
    spread = z * math.sqrt(more + less + 1 - (more - less) ** 2 / n) / n
    return Interval(change, change - spread, change + spread)


def _verdict(trial: Trial, ids: list[str], both: _Both, findings: list[Finding], params: Params) -> Verdict:
    refused = sum("throttled" in (both.shadow[call], both.fact[call]) for call in ids)
    failed = [finding for finding in findings if finding.word is Word.FAIL]
    open_ = [finding for finding in findings if finding.word is Word.INCONCLUSIVE]
    if not findings or refused < params.least_refused:
        sentence = f"{refused} of {len(ids):,} calls were refused by either: too few to agree on."
        return _made(Word.INCONCLUSIVE, None, len(ids), sentence, (), "a burst that is refused", findings)
    first = max(failed or open_ or findings, key=lambda finding: abs(finding.measured or 0))
    said = f"{first.subject}: {first.measured:+.2f} points {first.quantity}, {first.note}, against {both.against}"
    if failed:
        differ = [call for call in ids if both.shadow[call] != both.fact[call]]
        index = f"{trial.tenants.index(first.subject)}."
        shown = [call for call in differ if call.startswith(index)][:MOST_WITNESSES]
        sentence = f"The shadow is not what it says: {said}."
        return _made(Word.FAIL, first, len(ids), sentence, tuple(shown), "", findings)
    if open_:
        return _made(Word.INCONCLUSIVE, first, len(ids), f"{said}.", (), "more calls of this tenant", findings)
    sentence = f"Of {len(ids):,} calls, {refused:,} of them refused, the shadow foretold what became: {said}."
    return _made(Word.PASS, first, len(ids), sentence, (), "", findings)


def _made(
    word: Word, first: Finding | None, samples: int, said: str, ids: tuple[str, ...], add: str, rows: list[Finding]
) -> Verdict:
    measured, bound = (first.measured, first.bound) if first else (None, None)
    return Verdict(NAME, word, measured, bound, "pp", samples, said, ids, add, tuple(rows))


CHECKS[NAME] = Check(
    NAME,
    "what a policy in shadow says that it would refuse is what it refuses when switched on",
    "a shadow of the deciding policy, or the folder of a trial with the shadow's policy switched on",
    Params,
    judge,
)
