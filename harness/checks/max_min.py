"""fairness.max_min: while there is not enough for all, each tenant is served its weighted max-min share, and no worker
is idle while anybody waits.

A fair service is no equal one: who wants little gets all of it, what is left goes by weight, and a noisy tenant may
have whatever nobody else wants. What each should have been served is computed by water-filling from what each wanted
(harness/measure/fair_shares.py), window by window. FAIL needs one of:

    short        a tenant lacks more than `short` of its share over all windows with a backlog
    starved      it lacks more than `starved` of it in a single window
    idle         workers were idle for more than `idle` of their time while anybody waited

Source: Bertsekas and Gallager, Data Networks, 6.5.2. Jain's index of served over share is reported, and gates nothing.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from harness.checks.context import bundled, profile_of, service_time, witnesses
from harness.checks.registry import CHECKS, Check
from harness.checks.stays import stays_of
from harness.checks.verdict import Finding, Verdict, Word
from harness.ledger.outcomes import SERVED
from harness.ledger.reader import Trial
from harness.measure.fair_share import jain
from harness.measure.fair_shares import Idle, Shares, Stays, idle_while_waiting, shares, shortfall, worst_window
from harness.profile.base import DurationNs, Name, Part
from harness.profile.model import Profile

NAME = "fairness.max_min"
SHORT, STARVED, IDLE = "short of its share", "short in one window", "idle while calls wait"
Percent = Annotated[float, Field(gt=0, lt=100)]


class Params(Part):
    """short_pct, starved_pct: of a tenant's share, over all and in one window. idle_pct: of the workers' time. window:
    left out, four service times. weights: left out, those of the profile's service where it is what ran; 1 for others.
    least_calls, least_in_window: a tenant with a smaller share in all, or in a window, is not judged by it.
    """

    short_pct: Percent = 10.0
    starved_pct: Percent = 50.0
    idle_pct: Percent = 5.0
    window: DurationNs | None = None
    weights: dict[Name, Annotated[float, Field(gt=0)]] | None = None
    confidence: Annotated[float, Field(ge=0.8, le=0.9999)] = 0.99
    least_calls: Annotated[int, Field(ge=10, strict=True)] = 50
    least_in_window: Annotated[int, Field(ge=10, strict=True)] = 15
    least_windows: Annotated[int, Field(ge=3, strict=True)] = 5


def judge(trial: Trial, params: Params) -> Verdict:
    profile = profile_of(trial)
    stays = stays_of(trial)
    window_ns = params.window or int(4 * (service_time(trial, profile).mean_ns or 0))
    if not window_ns:
        return _cannot("The service time is not known, so no window is.", "give `window`, some service times long")
    if not len(stays.tenant):
        return _cannot("Nobody sent a call to a shared service.", "a trial with calls to a shared service")
    tenants = len(trial.tenants)
    found = shares(stays, tenants, _weights(trial, profile, params), window_ns, int(stays.left_ns.max()) + 1)
    if len(found) < params.least_windows:
        told = f"Somebody waited all through {len(found)} windows of {window_ns / 1e6:g} ms; "
        told += f"{params.least_windows} are needed to say who is next."
        return _cannot(told, "offer more than the service can do for longer, so that calls wait", len(stays.tenant))
    findings = [one for index in range(tenants) for one in _of_tenant(trial, found, index, params)]
    idle = idle_while_waiting(trial.decisions())
    findings.append(_of_idle(idle, params))
    return _verdict(trial, stays, found, findings, idle)


def _cannot(sentence: str, add: str, samples: int = 0) -> Verdict:
    return Verdict(NAME, Word.INCONCLUSIVE, None, None, "", samples, sentence, add=add)


def _weights(trial: Trial, profile: Profile, params: Params) -> list[float]:
    """An idle tenant has a weight too, and no share."""
    own = profile.service.admission.weights if bundled(trial) and profile.service is not None else {}
    given = params.weights or {}
    return [float(given.get(name, own.get(name, 1))) for name in trial.tenants]


def _of_tenant(trial: Trial, found: Shares, index: int, params: Params) -> list[Finding]:
    name, total = trial.tenants[index], int(found.share[:, index].sum())
    if total < params.least_calls:
        return []
    findings = []
    part = shortfall(found, index, params.confidence)
    if part is not None:
        pct = part.times(100)
        word = Word.PASS if pct.high < params.short_pct else Word.INCONCLUSIVE
        word = Word.FAIL if pct.low > params.short_pct else word
        note = "" if word is not Word.INCONCLUSIVE else "a longer backlog would tell"
        findings.append(Finding(name, SHORT, word, pct.estimate, pct.low, pct.high, params.short_pct, "%", total, note))
    worst = worst_window(found, index, params.least_in_window)
    if worst is not None:
        pct_, at = worst[0] * 100, found.from_ns[worst[1]] / 1e9
        word = Word.FAIL if pct_ > params.starved_pct else Word.PASS
        note = f"served {found.served[worst[1], index]:g} of {found.share[worst[1], index]:.1f} calls from {at:g} s on"
        findings.append(Finding(name, STARVED, word, pct_, None, None, params.starved_pct, "%", total, note))
    return findings


def _of_idle(idle: Idle | None, params: Params) -> Finding:
    if idle is None:
        note = "the service does not tell how many of its workers are idle"
        return Finding("the service", IDLE, Word.INCONCLUSIVE, None, None, None, params.idle_pct, "%", 0, note)
    pct = idle.part * 100
    word = Word.FAIL if pct > params.idle_pct else Word.PASS
    note = f"for {idle.waiting_ns / 1e9:.3g} s somebody waited"
    return Finding("the service", IDLE, word, pct, None, None, params.idle_pct, "%", idle.rows, note)


def _verdict(trial: Trial, stays: Stays, found: Shares, findings: list[Finding], idle: Idle | None) -> Verdict:
    failed = [finding for finding in findings if finding.word is Word.FAIL]
    open_ = [finding for finding in findings if finding.word is Word.INCONCLUSIVE]
    judged = [finding for finding in findings if finding.quantity == SHORT]
    samples = int(found.served.sum())
    if failed:
        first = max(failed, key=lambda finding: (finding.measured or 0) / (finding.bound or 1))
        sentence = f"{_said(first)}{_and_more(len(failed) - 1)}."
        return _made(Word.FAIL, first, samples, sentence, _shown(trial, stays, found, first, idle), "", findings)
    if open_ or not judged:
        first = open_[0] if open_ else findings[-1]
        add = "tenants that want more than their share for longer" if not judged else _to_add(first)
        sentence = (
            "No tenant had a share large enough to be judged." if not judged else f"{_said(first)}: {first.note}."
        )
        return _made(Word.INCONCLUSIVE, first, samples, sentence, (), add, findings)
    first = max(judged, key=lambda finding: finding.high or 0)
    sentence = (
        f"Each of {len(judged)} tenants was served its share within {first.high:.1f} % in {len(found)} windows with a "
        f"backlog, and workers were idle for {100 * (idle.part if idle else 0):.1f} % of their time while anybody "
        f"waited{_jain(found)}."
    )
    return _made(Word.PASS, first, samples, sentence, (), "", findings)


def _made(
    word: Word, first: Finding, samples: int, sentence: str, ids: tuple[str, ...], add: str, findings: list[Finding]
) -> Verdict:
    return Verdict(
        NAME, word, first.measured, first.bound, first.unit, samples, sentence, ids, add, tuple(findings)
    )  # fmt: skip


def _said(finding: Finding) -> str:
    measured = f"{finding.measured:.1f} %" if finding.measured is not None else "unknown"
    if finding.quantity == IDLE:
        return f"Workers were idle for {measured} of their time while calls waited (bound {finding.bound:g} %)"
    where = f", {finding.note}" if finding.quantity == STARVED else ""
    return f"{finding.subject} was {finding.quantity} by {measured} (bound {finding.bound:g} %{where})"


def _and_more(more: int) -> str:
    return f"; {more} further finding{'s' if more > 1 else ''} failed" if more else ""


def _to_add(finding: Finding) -> str:
    if finding.quantity == IDLE:
        return "a target that gives its decisions, with `waiting`, `running` and `workers`"
    return "a longer burst, or a shorter `window`"


def _jain(found: Shares) -> str:
    share = found.share.sum(axis=0)
    index = jain((found.served.sum(axis=0)[share > 0] / share[share > 0]).tolist())
    return f" (Jain's index of served over share: {index:.3f})" if index is not None else ""


def _shown(trial: Trial, stays: Stays, found: Shares, first: Finding, idle: Idle | None) -> tuple[str, ...]:
    """Calls of the tenant that was short, or that waited while workers were idle, and did not start at once."""
    calls = trial.calls
    lost = ~calls.is_outcome(SERVED) if first.quantity != IDLE else calls.queue_wait_ns > 0
    if first.quantity == IDLE and idle is not None:
        mask = lost & (calls.sent_ns <= idle.worst_ns) & (calls.sent_ns + calls.queue_wait_ns > idle.worst_ns)
        return witnesses(trial, mask if mask.any() else lost)
    of_it = calls.tenant == trial.tenants.index(first.subject)
    in_backlog = (calls.sent_ns >= found.from_ns[0]) & (calls.sent_ns < found.from_ns[-1] + found.window_ns)
    return witnesses(trial, of_it & in_backlog & lost)


CHECKS[NAME] = Check(
    NAME,
    "each tenant is served its weighted max-min share, and nothing is idle while anybody waits",
    "calls that wait, for some windows; the service's decisions",
    Params,
    judge,
)
