"""What a profile will do, in plain sentences, before anything is sent; and whether it is long enough for its verdicts.

Figures come from demand.py; what is said of runs, of cost, of trees and of the evidence for verdicts has a file each
(*_describe.py). Nothing here sends, or reads a file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

from harness.profile import run_describe
from harness.profile.demand import (
    NO_PEAKS,
    WORKER_PER_S,
    PhaseLoad,
    amplification,
    calls_within,
    capacity_per_s,
    most_calls,
    peak_rate_per_s,
    stub_limit_per_s,
    stub_refusal,
    workers_needed,
    worst_case_rate_per_s,
)
from harness.profile.evidence_describe import MOST_GROUPS, evidence_sentences
from harness.profile.model import Profile, ServiceTime, Tenant, Window
from harness.profile.units import NS_PER_S, show_duration
from harness.profile.wording import names_of, plural


@dataclass(frozen=True, slots=True)
class Description:
    """sentences: all of it for people. stub_refusal: why the bundled stub will not run it; None if it will.
    workers_needed: processes, each with a core of its own, that can send the worst case on time."""

    name: str
    sentences: tuple[str, ...]
    phases: tuple[PhaseLoad, ...]
    peak_rate_per_s: float
    worst_case_rate_per_s: float
    original_calls: int
    most_calls: int
    stub_refusal: str | None
    workers_needed: int

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "phases": [asdict(phase) for phase in self.phases]}


def describe(profile: Profile, *, cores: int = 2, recorded_peaks: Mapping[str, Fraction] = NO_PEAKS) -> Description:
    """cores: of the machine that would run the bundled stub. recorded_peaks: as demand.py takes them."""
    phases = tuple(_load(profile, name, window) for name, window in _windows(profile))
    described = profile.service is not None or profile.capacity is not None
    refusal = stub_refusal(profile, cores, recorded_peaks) if described else None
    sentences = [
        _who(profile),
        *(_phase_sentence(profile, phase) for phase in phases),
        *run_describe.sentences(profile),
        _recorded_sentence(profile),
        _patience_sentence(profile),
        *_amplified_sentences(profile, recorded_peaks),
        *(sentence for check in profile.checks for sentence in evidence_sentences(profile, phases, check)),
        *_worker_sentences(profile, recorded_peaks),
        _stub_sentence(profile, cores, refusal),
    ]
    return Description(
        profile.name,
        tuple(sentence for sentence in sentences if sentence),
        phases,
        float(peak_rate_per_s(profile, None, recorded_peaks)),
        float(worst_case_rate_per_s(profile, recorded_peaks)),
        _original_calls(profile),
        most_calls(profile),
        refusal,
        workers_needed(profile, recorded_peaks),
    )


def _windows(profile: Profile) -> list[tuple[str, Window]]:
    whole = Window.model_construct(from_ns=0, to_ns=profile.duration)
    return [(str(name), window) for name, window in profile.phases.items()] or [("whole trial", whole)]


def _load(profile: Profile, name: str, window: Window) -> PhaseLoad:
    counts = {t: calls_within(profile, tenant, window) for t, tenant in profile.tenants.items()}
    calls = {tenant: count for tenant, count in counts.items() if count is not None}
    capacity = capacity_per_s(profile, window)
    return PhaseLoad(
        name,
        window.from_ns,
        window.to_ns,
        sum(calls.values()) * NS_PER_S / (window.to_ns - window.from_ns),
        float(peak_rate_per_s(profile, window)),
        None if capacity is None else (float(capacity[0]), float(capacity[1])),
        calls,
    )


def _original_calls(profile: Profile) -> int:
    return sum(calls_within(profile, tenant) or 0 for tenant in profile.tenants.values())


def _who(profile: Profile) -> str:
    tenants, ordinary = len(profile.tenants), len(profile.ordinary)
    who = f"{tenants} tenant{plural(tenants)}"
    if ordinary:
        who += f", of whom {names_of(profile.ordinary)} must not be hurt"
    return f"{profile.name}: {show_duration(profile.duration)}, {who}."


def _phase_sentence(profile: Profile, phase: PhaseLoad) -> str:
    span = f"{phase.phase} ({show_duration(phase.from_ns)} to {show_duration(phase.to_ns)})"
    offered = f"{_rate(phase.offered_per_s)} offered"
    if phase.peak_per_s > phase.offered_per_s * 1.02:
        offered += f" (up to {_rate(phase.peak_per_s)})"
    return f"{span}: {offered}{_against(profile, phase)}. {_who_offers(phase)}"


def _against(profile: Profile, phase: PhaseLoad) -> str:
    if profile.service is None or phase.capacity_per_s is None:
        return ""
    least, most = phase.capacity_per_s
    if most == 0:
        return " against no worker at all"
    capacity = _rate(most) if least == most else f"{_rate(least)} to {_rate(most)}"
    word = "fits"
    if max(phase.offered_per_s, phase.peak_per_s) > least:
        times = max(phase.offered_per_s, phase.peak_per_s) / least if least else math.inf
        word = f"overload, {times:.2g} times the capacity" if least else "overload while there is no worker"
    return f" against a capacity of {capacity} ({_service_time(profile.service.service_time)}): {word}"


def _service_time(time: ServiceTime) -> str:
    kind = "" if time.distribution == "fixed" else ", log-normal"
    load = ", at full load" if time.load_slope else ""
    return f"service time {show_duration(time.mean or 0)}{kind}{load}"


def _who_offers(phase: PhaseLoad) -> str:
    seconds = (phase.to_ns - phase.from_ns) / NS_PER_S
    groups: dict[str, list[str]] = {}
    for tenant, calls in phase.calls.items():
        groups.setdefault(_rate(calls / seconds), []).append(tenant)
    shown = [f"{names_of(names)} {rate}{' each' if len(names) > 1 else ''}" for rate, names in groups.items()]
    rest = f"; and {len(shown) - MOST_GROUPS} more rates" if len(shown) > MOST_GROUPS else ""
    return "; ".join(shown[:MOST_GROUPS]) + rest + "." if shown else ""


def _recorded_sentence(profile: Profile) -> str:
    names = [name for name, tenant in profile.tenants.items() if tenant.recorded]
    if not names:
        return ""
    return f"{names_of(names)} call{'' if len(names) > 1 else 's'} as recorded: not counted in the figures here."


def _patience_sentence(profile: Profile) -> str:
    groups: dict[str, list[str]] = {}
    for name, tenant in profile.tenants.items():
        if not tenant.runs:  # theirs is the deadline of their envelope
            groups.setdefault(_patience_text(profile, name), []).append(name)
    if not groups:
        return ""
    if len(groups) == 1:
        return f"Callers {next(iter(groups))}."
    texts = [f"{names_of(names)} {text}" for text, names in list(groups.items())[:MOST_GROUPS]]
    return f"Callers' patience: {'; '.join(texts)}."


def _patience_text(profile: Profile, name: str) -> str:
    patience_ns = profile.patience_of(name)
    if patience_ns is None:
        return "wait for ever"
    until = "a call to start" if profile.patience_until == "start" else "an answer"
    return f"wait {show_duration(patience_ns)} for {until}, then abandon it"


def _amplified_sentences(profile: Profile, recorded_peaks: Mapping[str, Fraction]) -> Iterable[str]:
    peak, worst = peak_rate_per_s(profile, None, recorded_peaks), worst_case_rate_per_s(profile, recorded_peaks)
    for text_of in (_replan_text, _budget_text, _loop_text, _throttle_text, _retries_text, _claims_text):
        for text, names in _by_text(profile, text_of):
            yield f"{names_of(names)}: {text}."
    original = _original_calls(profile)
    runs = any(tenant.runs for tenant in profile.tenants.values())
    about = "about " if any(tenant.rate and tenant.pace == "poisson" for tenant in profile.tenants.values()) else ""
    yield f"Original calls{' and runs' if runs else ''}: {about}{original:,} in all, at most {_rate(peak)}."
    wrong = "everything fails, attempts at dependencies counted in" if runs else "every call refused"
    yield f"Worst case, {wrong}: {_rate(worst)}, and {most_calls(profile):,} calls in all."


def _by_text(profile: Profile, text_of: Callable[[Tenant], str]) -> list[tuple[str, list[str]]]:
    groups: dict[str, list[str]] = {}
    for name, tenant in profile.tenants.items():
        if text := text_of(tenant):
            groups.setdefault(text, []).append(name)
    return list(groups.items())[:MOST_GROUPS]


def _claims_text(tenant: Tenant) -> str:
    claims = tenant.claims
    if claims is None:
        return ""
    return f"claims in {claims.header} to be another tenant with each call, of {claims.values:,}; its credential stays"


def _replan_text(tenant: Tenant) -> str:
    rule = tenant.replans
    if rule is None or not rule.calls or not rule.rounds:
        return ""
    becomes = f"{rule.calls} new call{plural(rule.calls)} {show_duration(rule.after)} later"
    if rule.order == "sequence":
        becomes += ", each that long after the one before" if rule.calls > 1 else ""
    if rule.tools:
        becomes += f", to {names_of(rule.tools)} in turn"
    rounds = f"for at most {rule.rounds} round{plural(rule.rounds)}"
    what = "an abandoned call" if tenant.on_refusal == "result" else "a refused or abandoned call"
    return f"{what} becomes {becomes}, {rounds}: one call can become {amplification(tenant):,}"


def _budget_text(tenant: Tenant) -> str:
    texts = []
    for budget in tenant.budget:
        whose = "for the whole tenant" if budget.scope == "tenant" else "for each run"
        texts.append(f"{_rate(budget.rate)} leave, {budget.burst:,} at once, {whose}")
    return f"its own budget lets {'; and '.join(texts)}" if texts else ""


def _loop_text(tenant: Tenant) -> str:
    loop, texts = tenant.loop, []
    if loop is not None and loop.iterations is not None:
        texts.append(f"a run ends after {loop.iterations:,} attempt{plural(loop.iterations)}")
    if loop is not None and loop.branch_tokens is not None:
        texts.append(f"a branch of it may spend {loop.branch_tokens:,} tokens")
    return ", and ".join(texts)


def _throttle_text(tenant: Tenant) -> str:
    if tenant.throttle is None:
        return ""
    rule = tenant.throttle.adaptive
    window = show_duration(rule.window)
    return f"it rejects calls by itself while fewer than one in {rule.k:g} of the last {window} is served"


def _retries_text(tenant: Tenant) -> str:
    rule = tenant.retries
    if rule is None:
        waits = "waits as long as Retry-After says, tries that once, and plans nothing else"
        return f"to it a refusal is a result: it {waits}" if tenant.on_refusal == "result" else ""
    within = (
        f"retries at most {float(rule.budget) * 100:.3g} % of the calls of the last {show_duration(rule.window)}"
        if rule.budget is not None
        else "with no budget for retries"
    )
    return (
        f"it tries a call that ended {_or(rule.on)} up to {rule.attempts} times, {show_duration(rule.delay)} later and "
        f"more, {within}"
    )


def _stub_sentence(profile: Profile, cores: int, refusal: str | None) -> str:
    if profile.service is None and profile.capacity is None:
        if any(tenant.runs for tenant in profile.tenants.values()):
            return ""
        return (
            "No service is described: it can be run against a target only, neither simulated nor on the bundled stub."
        )
    if refusal:
        return f"Not on the bundled stub here: {refusal}."
    limit = stub_limit_per_s(cores)
    return f"The bundled stub can be trusted with that here (up to {limit:,}/s on {cores} core{plural(cores)})."


def _worker_sentences(profile: Profile, recorded_peaks: Mapping[str, Fraction]) -> Iterable[str]:
    needed, each = workers_needed(profile, recorded_peaks), f"up to {WORKER_PER_S:,}/s with a core of its own"
    if needed == 1:
        yield f"One process can send that on time ({each})."
        return
    yield (
        f"To send that on time takes {needed:,} worker processes ({each}): overload run --workers {needed}, or some of "
        "them on other machines (docs/distributed.md)."
    )
    whole = [name for name, tenant in profile.tenants.items() if not tenant.open_loop and _alone(profile, name) > 1]
    if whole:
        yield (
            f"{names_of(whole)} cannot be shared out by call, and alone may ask more than one worker can send on time: "
            "it will be late at its worst. Cut its rate, rounds or re-plans, or give it a budget."
        )


def _alone(profile: Profile, name: str) -> int:
    """Workers that one tenant needs."""
    return workers_needed(profile.model_copy(update={"tenants": {name: profile.tenants[name]}}))


def _or(words: Iterable[str]) -> str:
    return " or ".join(words)


def _rate(rate: float | Fraction) -> str:
    value = float(rate)
    text = f"{value:,.0f}" if value >= 100 else f"{value:.3f}".rstrip("0").rstrip(".")
    return f"{text}/s"


__all__ = [
    "Description",
    "describe",
    "stub_limit_per_s",
    "stub_refusal",
    "worst_case_rate_per_s",
]
