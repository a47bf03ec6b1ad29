"""agent.refusal_is_a_result: a refusal reaches the model as data ("busy, try again in 2 s"), and it waits.

For each tenant with `on_refusal: result`, from what followed each typed refusal with a readable Retry-After:

    a further attempt of the call     not before the stated instant, and one at most
    calls that follow from it         none before the stated instant: no plan around the refusal

An agent that takes a refusal for an error like any other answers it with a new plan at once: more calls, while the
service is busy. A refusal without a typed body, or with a Retry-After that nobody can read, is no result to begin with.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import numpy as np
from pydantic import Field

from harness.checks.attempt_rows import NOT_STATED, before, call_keys, ids, of_tenant, stated_wait_ns
from harness.checks.context import Mask, profile_of
from harness.checks.registry import CHECKS, Check
from harness.checks.rules import Rule, enough, none_of, verdict, withheld
from harness.checks.verdict import Verdict
from harness.ledger.outcomes import REFUSED
from harness.ledger.reader import Calls, Ints, Trial
from harness.profile.base import DurationNs, Part

NAME = "agent.refusal_is_a_result"
ATTEMPTS = 2
"""The call, and the one time that it is tried again."""


class Params(Part):
    """waited: refusals that must have been waited out. early: how much before the stated instant is not early."""

    waited: Annotated[int, Field(ge=1, strict=True)] = 20
    early: DurationNs = 1_000_000


def judge(trial: Trial, params: Params) -> Verdict:
    profile = profile_of(trial)
    told = [name for name, tenant in profile.tenants.items() if tenant.on_refusal == "result"]
    if not told:
        return withheld(NAME, "no tenant takes a refusal as a result", "`on_refusal: result`")
    calls = trial.attempts
    stated = np.where((calls.untyped <= 0) & calls.is_outcome(*REFUSED), stated_wait_ns(calls), NOT_STATED)
    plans = early_plans(calls, stated, params.early)
    rules = [rule for name in told for rule in _rules(trial, name, stated, plans, params)]
    names = ", ".join(told[:5])
    return verdict(
        NAME, rules, f"{names} waited as long as each refusal said, tried once, and planned nothing around it."
    )


def _rules(trial: Trial, name: str, stated: Ints, plans: Mask, params: Params) -> Iterator[Rule]:
    calls = trial.attempts
    mine = of_tenant(trial, calls, name)
    again, earlier = before(calls)
    after = mine[again] & (stated[earlier] != NOT_STATED)
    again, earlier = again[after], earlier[after]
    early = again[calls.start_ns[again] < calls.done_ns[earlier] + stated[earlier] - params.early]
    often = np.flatnonzero(mine & (calls.attempt > ATTEMPTS))
    around = np.flatnonzero(mine & plans)
    refusals = int((mine & (stated != NOT_STATED)).sum())
    waited = len(again) - len(early)
    n = f"{name}: {{}} calls were"
    yield from (
        none_of(name, "follow-up calls at once", ids(calls, around), refusals, "refusals",
                f"{n.format(len(around))} planned around a refusal before the instant that it stated"),
        none_of(name, "tried again too early", ids(calls, early), refusals, "refusals",
                f"{n.format(len(early))} tried again before the instant that their refusal stated"),
        none_of(name, "tried again more than once", ids(calls, often), refusals, "refusals",
                f"{n.format(len(often))} tried again more than once"),
        enough(name, "refusals waited out", waited, params.waited, "refusals",
               "a service that refuses, and time after it: the stated instants lie beyond the trial's end"),
    )  # fmt: skip


def early_plans(calls: Calls, stated: Ints, early_ns: int) -> Mask:
    """Calls that follow from a refused one and were due before the instant that the refusal states."""
    found = np.zeros(len(calls), dtype=np.bool_)
    refused = np.flatnonzero(stated != NOT_STATED)
    children = np.flatnonzero(calls.parent >= 0)
    if not len(refused) or not len(children):
        return found
    key = call_keys(calls)[refused]
    order = np.lexsort((calls.done_ns[refused], key))
    refused, key = refused[order], key[order]
    parent = (calls.tenant[children] << 40) | calls.parent[children]
    # Of the parent's refusals, the last one before the child was due.
    for step in range(1, ATTEMPTS + 1):
        place = np.searchsorted(key, parent, side="right") - step
        mine = (place >= 0) & (key[np.maximum(place, 0)] == parent)
        row = refused[np.maximum(place, 0)]
        due = calls.due_ns[children]
        waits = (due >= calls.done_ns[row]) & (due < calls.done_ns[row] + stated[row] - early_ns)
        found[children] |= mine & waits
    return found


CHECKS[NAME] = Check(
    NAME,
    "a refusal with Retry-After is waited out and tried once: nothing is planned around it",
    "a tenant with `on_refusal: result`, and refusals that can be waited out within the trial",
    Params,
    judge,
)
