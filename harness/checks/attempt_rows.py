"""Rows of attempts, joined: what came before, what Retry-After said, whose they are. For the checks of callers."""

from __future__ import annotations

import numpy as np

from harness.checks.context import Mask
from harness.ledger.reader import Calls, Ints, Trial
from harness.measure.retry_after import parse
from harness.profile.units import NS_PER_S

NOT_STATED = -1


def call_keys(calls: Calls) -> Ints:
    """One integer a call, the same in each of its rows."""
    return np.asarray((calls.tenant << 40) | calls.seq)


def stated_wait_ns(calls: Calls) -> Ints:
    """What each row's Retry-After asks to wait; NOT_STATED where there is none, or none that can be counted from."""
    waits = [parse(text) for text in calls.retry_after.table]
    of_code = [round(wait.delay_s * NS_PER_S) if wait.kind == "delay" else NOT_STATED for wait in waits]
    return np.asarray(np.array([*of_code, NOT_STATED], dtype=np.int64)[calls.retry_after.codes])


def before(calls: Calls) -> tuple[Ints, Ints]:
    """(rows that are a further attempt, the row of the attempt before each of them), in order of call and time."""
    order = np.lexsort((calls.start_ns, call_keys(calls)))
    key = call_keys(calls)[order]
    further = np.flatnonzero(np.concatenate(([False], key[1:] == key[:-1]))) if len(key) else np.zeros(0, np.int64)
    return order[further], order[further - 1]


def of_tenant(trial: Trial, calls: Calls, name: str) -> Mask:
    return np.asarray(calls.tenant == trial.tenants.index(name))


def ids(calls: Calls, places: Ints, most: int = 20) -> list[str]:
    """Of the calls of some rows, in order of when their attempts were due."""
    order = np.argsort(calls.start_ns[places], kind="stable")
    return list(dict.fromkeys(calls.id(int(place)) for place in places[order][: most * 4]))
