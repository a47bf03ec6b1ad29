"""agent.budget_at_source: with its own budget on, a runaway agent is stopped before it leaves.

For each tenant with a budget, from the due instants in the ledger and the bucket of the profile:

    held back    = offered - what the bucket allows, call by call: exactly
    sent         <= burst + rate * window, in every window, give or take what the harness may be late; a call that was
                 sent later than that was held up by the harness, and counts as sent when it might have been
    re-plans     about none are sent: a service that never sees the burst refuses nothing

A budget that never had to hold anything back proves nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import numpy as np
import numpy.typing as npt
from pydantic import Field

from harness.checks.budget_replay import counted_as_sent, most_beyond, replay
from harness.checks.context import profile_of, witnesses
from harness.checks.registry import CHECKS, Check
from harness.checks.verdict import Finding, Verdict, Word, worst
from harness.ledger.outcomes import HELD_BACK
from harness.ledger.reader import Trial
from harness.profile.base import DurationNs, Part
from harness.profile.model import Budget
from harness.profile.units import NS_PER_S, show_rate

NAME = "agent.budget_at_source"


class Params(Part):
    """replan_share: of the calls that a budgeted tenant sends, most that may follow a failure. late: how far the
    harness may displace a start, when what was sent is held against rate and burst.
    """

    replan_share: Annotated[float, Field(ge=0, le=1)] = 0.01
    late: DurationNs = 50_000_000


def judge(trial: Trial, params: Params) -> Verdict:
    profile = profile_of(trial)
    budgets = {name: tenant.budget for name, tenant in profile.tenants.items() if tenant.budget}
    if not budgets:
        return Verdict(
            NAME, Word.INCONCLUSIVE, None, None, "calls", 0, "No tenant has a budget of its own.",
            add="give the runaway tenant `budget: {rate: …, burst: …}` (a variant shows both sides)",
        )  # fmt: skip
    findings: list[Finding] = []
    wrong = np.zeros(len(trial.attempts), dtype=np.bool_)
    for name, own in budgets.items():
        findings += _judge_tenant(trial, name, own, params, wrong)
    word = worst(finding.word for finding in findings)
    deciding = next(finding for finding in findings if finding.word is word)
    held = int(trial.calls.is_outcome(HELD_BACK).sum())
    trial = trial.by_attempt()
    sentence = f"{deciding.subject}: {deciding.note}."
    if word is Word.PASS:
        sentence = f"The budgets of {', '.join(list(budgets)[:5])} held back {held} calls, exactly those they must."
    add = "more load than the budget allows, so that it has something to hold back" if word is Word.INCONCLUSIVE else ""
    return Verdict(
        NAME, word, deciding.measured, deciding.bound, deciding.unit, deciding.samples, sentence,
        witnesses(trial, wrong), add, tuple(findings),
    )  # fmt: skip


def _judge_tenant(
    trial: Trial, name: str, budgets: Sequence[Budget], params: Params, wrong: npt.NDArray[np.bool_]
) -> list[Finding]:
    """Marks in `wrong` the attempts on which caller and budgets disagree."""
    calls, asks = trial.attempts, replay(trial, name, budgets)
    wrong[asks.wrong] = True
    n, expected = len(asks.places), int((~asks.allowed).sum())
    exact = Word.PASS if not len(asks.wrong) else Word.FAIL
    if exact is Word.PASS and not expected:
        exact = Word.INCONCLUSIVE
    held = float(asks.held.sum())
    note = f"held back {int(held)} of {n} calls, and its budget says {expected}"
    note = "its budget never had anything to hold back" if exact is Word.INCONCLUSIVE else note
    findings = [Finding(name, "held back", exact, held, None, None, float(expected), "calls", n, note)]
    sent = asks.places[calls.sent_ns[asks.places] >= 0]
    for budget in budgets:
        if budget.scope == "tenant":
            findings.append(_sent(name, budget, counted_as_sent(calls, sent, params.late), params))
    findings.append(_replans(name, calls.round[sent] > 0, params))
    return findings


def _sent(name: str, budget: Budget, sent_ns: npt.NDArray[np.int64], params: Params) -> Finding:
    bound = budget.burst + 1 + float(budget.rate) * params.late / NS_PER_S
    most = most_beyond(budget.rate, sent_ns)
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
