"""Nothing is lost, for calls that follow from another: every failure that leads to a plan led to just the calls that
the profile says, and nothing else did. Asked by audit.py. Pure over a Trial.

What the callers were to do is held against the profile, unless a defect was laid over them: then only what the ledger
says of itself must fit together, and what the callers did is for the checks to judge.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from harness.ledger.contradictions import Contradiction, Mask, Places, broken, places_of
from harness.ledger.outcomes import ABANDONED, HELD_BACK, OPEN, REPLANNED
from harness.ledger.reader import Ints, Trial
from harness.ledger.run_audit import tenants_with_runs
from harness.profile.model import Profile, Tenant


def family(trial: Trial, profile: Profile, order: Places, notes: list[str]) -> Iterator[Contradiction]:
    """order: that sorts `call_key`."""
    calls = trial.calls
    plain = ~tenants_with_runs(trial, profile)[calls.tenant]
    defect = (trial.manifest.get("target") or {}).get("caller_defect")
    child = (calls.parent >= 0) & plain
    yield from broken(trial, "rounds", "are original and of another run", plain & ~child & (calls.run != calls.seq))
    children = np.flatnonzero(child)
    parents, known = places_of(trial, order, children)
    orphan = np.zeros(len(calls), dtype=np.bool_)
    orphan[children[~known]] = True
    yield from broken(trial, "no call without a cause", "follow from a call that is not there", orphan)
    children, parents = children[known], parents[known]
    if defect is not None:
        notes.append(f"the callers have a defect ({defect}): what they made of failures is for the checks to judge")
        wrong = np.zeros(len(calls), dtype=np.bool_)
        wrong[children] = calls.run[children] != calls.run[parents]
        wrong[children] |= calls.due_ns[children] < calls.due_ns[parents]
        yield from broken(trial, "no call without a cause", "do not fit the call that they follow from", wrong)
        return
    mixed = plain & (child != (calls.round > 0))
    yield from broken(trial, "rounds", "are re-plans without a parent, or original with one", mixed)
    yield from _as_the_profile_says(trial, profile, children, parents)


def _of_tenants(trial: Trial, profile: Profile, figure: str) -> Ints:
    """A figure of its tenant's re-plans for each call."""
    rules = [profile.tenants[name].replans for name in trial.tenants]
    made = np.array([getattr(rule, figure) if rule and rule.rounds else 0 for rule in rules], dtype=np.int64)
    return np.asarray(made[trial.calls.tenant])


def _flags(trial: Trial, profile: Profile, wanted: list[bool]) -> Mask:
    return np.asarray(np.array(wanted, dtype=np.bool_)[trial.calls.tenant])


def _as_the_profile_says(trial: Trial, profile: Profile, children: Places, parents: Places) -> Iterator[Contradiction]:
    calls, tenants = trial.calls, [profile.tenants[name] for name in trial.tenants]
    n, after, rounds = (_of_tenants(trial, profile, figure) for figure in ("calls", "after", "rounds"))
    in_turn = _flags(trial, profile, [_in_turn(tenant) for tenant in tenants])
    result = _flags(trial, profile, [tenant.on_refusal == "result" for tenant in tenants])
    leads = calls.is_outcome(*REPLANNED) & (~result | calls.is_outcome(ABANDONED)) & (calls.round < rounds) & (n > 0)
    begins = leads & (calls.done_ns + after < profile.duration)
    before = parents.copy()
    if in_turn.any():
        before = _before(calls.seq, in_turn, children, parents)
    wrong = np.zeros(len(calls), dtype=np.bool_)
    wrong[children] = (
        (calls.round[children] != calls.round[parents] + 1)
        | (calls.run[children] != calls.run[parents])
        | (calls.due_ns[children] != calls.done_ns[before] + after[children])
    )
    # A sequence is not carried on after a call that failed.
    stopped = leads | calls.is_outcome(*REPLANNED, HELD_BACK)
    wrong[children] |= (before != parents) & stopped[before]
    yield from broken(trial, "re-plans as the profile says", "do not fit their parent (round, run or instant)", wrong)
    born = np.bincount(parents, minlength=len(calls))
    whole = np.where(begins, n, 0)
    # In a sequence: all of it, or up to one that failed, that never ended, or after which the trial was over.
    ends = stopped | calls.is_outcome(OPEN) | (calls.done_ns + after >= profile.duration)
    cut = _last_ends(calls.seq, children, parents, ends, len(calls))
    other = np.where(in_turn & begins, (born < 1) | (born > n) | ((born < n) & ~cut), born != whole)
    sentence = "led to another number of re-plans than the profile says"
    yield from broken(trial, "re-plans as the profile says", sentence, other)


def _in_turn(tenant: Tenant) -> bool:
    return tenant.replans is not None and tenant.replans.order == "sequence"


def _before(seq: Ints, in_turn: Mask, children: Places, parents: Places) -> Places:
    """For each child the call after whose end it is due: its parent, or in a sequence the one before it."""
    order = np.lexsort((seq[children], parents))
    family, row = parents[order], children[order]
    further = np.concatenate(([False], family[1:] == family[:-1])) & in_turn[row]
    made = parents.copy()
    made[order[further]] = row[np.flatnonzero(further) - 1]
    return made


def _last_ends(seq: Ints, children: Places, parents: Places, ends: Mask, calls: int) -> Mask:
    """For each call whether the last of those that follow from it is one of `ends`."""
    order = np.lexsort((seq[children], parents))
    made: npt.NDArray[np.bool_] = np.zeros(calls, dtype=np.bool_)
    made[parents[order]] = ends[children[order]]  # of several the last one stays
    return made
