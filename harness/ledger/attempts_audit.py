"""Nothing is lost, for calls that are tried again: attempts are numbered without a gap, in order of time, and the call
ends with its last one. Asked by audit.py. Pure over a Trial.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from harness.ledger.contradictions import Contradiction, Mask, Places, broken, call_key
from harness.ledger.reader import Trial
from harness.profile.model import Profile


def attempts_of_calls(trial: Trial, profile: Profile) -> Iterator[Contradiction]:
    """Each attempt of a call that has several, against the one before."""
    if trial.calls is trial.attempts:
        return
    rows = trial.by_attempt()
    calls, retried = rows.calls, trial.retried
    # An end that was never sent (attempt 0) comes after all attempts that were.
    number = np.where(retried | (calls.attempt > 0), calls.attempt, np.iinfo(np.int64).max)
    order = np.lexsort((number, call_key(rows)))
    key = call_key(rows)[order]
    follows = np.concatenate(([False], key[1:] == key[:-1]))
    last = np.append(~follows[1:], True)
    before = np.roll(order, 1)
    wrong = follows & (number[order] != number[before] + 1) & (calls.attempt[order] > 0)
    wrong |= ~follows & (calls.attempt[order] > 1)
    yield from broken(rows, "attempts in a row", "have attempts that are numbered with a gap", _at(order, wrong))
    yield from broken(rows, "one end a call", "go on after their end, or have none", _at(order, retried[order] == last))
    early = follows & ((calls.again_ns[order] < calls.done_ns[before]) | ~retried[before])
    early |= ~follows & (calls.again_ns[order] >= 0)
    yield from broken(rows, "attempts in order", "were tried again before they had ended", _at(order, early))
    other = follows & (
        (calls.due_ns[order] != calls.due_ns[before])
        | (calls.round[order] != calls.round[before])
        | (calls.run[order] != calls.run[before])
        | (calls.parent[order] != calls.parent[before])
    )
    sentence = "say of themselves what another attempt does not"
    yield from broken(rows, "attempts of one call", sentence, _at(order, other))
    tenants = [profile.tenants[name] for name in trial.tenants]
    may = np.array([tenant.retries is not None or tenant.on_refusal == "result" for tenant in tenants], dtype=np.bool_)
    sentence = "were tried again, and their tenant never does"
    yield from broken(rows, "attempts of one call", sentence, retried & ~may[calls.tenant])


def _at(order: Places, mask: Mask) -> Mask:
    """The mask, given in order, in the order of the rows."""
    found = np.zeros(len(order), dtype=np.bool_)
    found[order[mask]] = True
    return found
