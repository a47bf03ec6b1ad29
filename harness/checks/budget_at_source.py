"""agent.budget_at_source: with its own budget on, a runaway agent is stopped before it leaves.

For each tenant with a budget, from the due instants in the ledger and the bucket of the profile:

    held back    = offered - what the bucket allows, call by call: exactly
    sent         <= burst + rate * window, in every window, give or take what the harness may be late; a call that was
                 sent later than that was held up by the harness, and counts as sent when it might have been
    re-plans     about none are sent: a service that never sees the burst refuses nothing

A budget that never had to hold anything back proves nothing.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
import numpy.typing as npt
from pydantic import Field

from harness.checks.context import profile_of, witnesses
from harness.checks.registry import CHECKS, Check
from harness.checks.verdict import Finding, Verdict, Word, worst
from harness.ledger.outcomes import HELD_BACK
from harness.ledger.reader import Trial
from harness.profile.base import DurationNs, Part
from harness.profile.model import Budget
from harness.profile.units import NS_PER_S, show_rate
from harness.workload.budgets import TokenBucket

NAME = "agent.budget_at_source"


class Params(Part):
    """replan_share: of the calls that a budgeted tenant sends, most that may follow a failure. late: how far the
    harness may displace a start, when what was sent is held against rate and burst.
    """

    replan_share: Annotated[float, Field(ge=0, le=1)] = 0.01
    late: DurationNs = 50_000_000


def judge(trial: Trial, params: Params) -> Verdict:
    profile = profile_of(trial)
    budgets = {name: tenant.budget for name, tenant in profile.tenants.items() if tenant.budget is not None}
    if not budgets:
        return Verdict(
            NAME, Word.INCONCLUSIVE, None, None, "calls", 0, "No tenant has a budget of its own.",
            add="give the runaway tenant `budget: {rate: …, burst: …}` (a variant shows both sides)",
        )  # fmt: skip
    findings: list[Finding] = []
    wrong = np.zeros(len(trial.calls), dtype=np.bool_)
    for name, budget in budgets.items():
        findings += _judge_tenant(trial, name, budget, params, wrong)
    word = worst(finding.word for finding in findings)
    deciding = next(finding for finding in findings if finding.word is word)
    held = int(trial.calls.is_outcome(HELD_BACK).sum())
    sentence = f"{deciding.subject}: {deciding.note}."
    if word is Word.PASS:
        sentence = f"The budgets of {', '.join(list(budgets)[:5])} held back {held} calls, exactly those they must."
    add = "more load than the budget allows, so that it has something to hold back" if word is Word.INCONCLUSIVE else ""
    return Verdict(
        NAME, word, deciding.measured, deciding.bound, deciding.unit, deciding.samples, sentence,
        witnesses(trial, wrong), add, tuple(findings),
    )  # fmt: skip


def _judge_tenant(
    trial: Trial, name: str, budget: Budget, params: Params, wrong: npt.NDArray[np.bool_]
) -> list[Finding]:
    """Marks in `wrong` the calls on which caller and bucket disagree."""
    calls = trial.calls
    mine = np.flatnonzero(calls.tenant == trial.tenants.index(name))
    held = calls.is_outcome(HELD_BACK)[mine]
    # Of one instant the bucket grants the first: which of them that was is the caller's order, not the ledger's.
    order = np.lexsort((held, calls.due_ns[mine]))
    mine, held = mine[order], held[order]
    allowed = _allowed(budget, calls.due_ns[mine], calls.run[mine])
    wrong[mine[allowed == held]] = True
    n, expected = len(mine), int((~allowed).sum())
    exact = Word.PASS if not (allowed == held).any() else Word.FAIL
    if exact is Word.PASS and not expected:
        exact = Word.INCONCLUSIVE
    note = f"held back {int(held.sum())} of {n} calls, and its budget says {expected}"
    note = "its budget never had anything to hold back" if exact is Word.INCONCLUSIVE else note
    findings = [Finding(name, "held back", exact, float(held.sum()), None, None, float(expected), "calls", n, note)]
    sent = mine[calls.sent_ns[mine] >= 0]
    if budget.scope == "tenant":
        sent_ns, due_ns = calls.sent_ns[sent], calls.start_ns[sent]
        findings.append(_sent(name, budget, np.sort(np.minimum(sent_ns, due_ns + params.late)), params))
    findings.append(_replans(name, calls.round[sent] > 0, params))
    return findings


def _allowed(budget: Budget, due_ns: npt.NDArray[np.int64], run: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Which calls a bucket as in the profile grants, asked in order of due."""
    if budget.scope == "tenant":
        bucket = TokenBucket(budget.rate, budget.burst)
        return np.array([bucket.take(due) for due in due_ns.tolist()], dtype=np.bool_)
    buckets: dict[int, TokenBucket] = {}
    granted = []
    for due, of_run in zip(due_ns.tolist(), run.tolist(), strict=True):
        if of_run not in buckets:
            buckets[of_run] = TokenBucket(budget.rate, budget.burst, due)
        granted.append(buckets[of_run].take(due))
    return np.array(granted, dtype=np.bool_)


def _sent(name: str, budget: Budget, sent_ns: npt.NDArray[np.int64], params: Params) -> Finding:
    """Most calls sent in any window beyond what the rate allows in it.

    max over i <= j of (j - i + 1) - rate * (t_j - t_i)       [calls]
    """
    rate = float(budget.rate)
    bound = budget.burst + 1 + rate * params.late / NS_PER_S
    most = 0.0
    if len(sent_ns):
        level = np.arange(len(sent_ns)) - rate * (sent_ns - sent_ns[0]) / NS_PER_S
        most = float((level + 1 - np.minimum.accumulate(level)).max())
    note = f"sent {most:.1f} calls beyond {show_rate(budget.rate)} in one window; its burst is {budget.burst}"
    word = Word.FAIL if most > bound else Word.PASS
    return Finding(
        name, "sent beyond the rate", word, round(most, 3), None, None, round(bound, 3), "calls", len(sent_ns), note
    )


def _replans(name: str, is_replan: npt.NDArray[np.bool_], params: Params) -> Finding:
    share = float(is_replan.mean()) if len(is_replan) else 0.0
    word = Word.FAIL if share > params.replan_share else Word.PASS
    still = ": the service refuses it still, with its budget on" if word is Word.FAIL else ""
    note = f"{share:.1%} of the calls that it sent follow a failure{still}"
    return Finding(name, "re-plans sent", word, share, None, None, params.replan_share, "share", len(is_replan), note)


CHECKS[NAME] = Check(
    NAME,
    "an agent's own budget holds back exactly what it must, so that the service never sees the burst",
    "a tenant with a budget, and more load than it allows",
    Params,
    judge,
)
