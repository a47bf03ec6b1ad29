"""What the audits of a ledger are made of: contradictions with their witnesses, and joins by call id."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from harness.ledger.outcomes import ABANDONED, CANCELLED, FAILED, OPEN
from harness.ledger.reader import Ints, Trial

Mask = npt.NDArray[np.bool_]
Places = npt.NDArray[np.intp]
MOST_WITNESSES = 20

UNSEEN_OK = (FAILED, ABANDONED, OPEN, CANCELLED)
"""How one of our calls may end that the service never saw, or never settled."""


@dataclass(frozen=True, slots=True)
class Contradiction:
    """rule: what must hold. count: how often it did not. witnesses: call ids, at most 20."""

    rule: str
    sentence: str
    count: int
    witnesses: tuple[str, ...] = ()


def broken(trial: Trial, rule: str, sentence: str, mask: Mask) -> Iterator[Contradiction]:
    """One contradiction of the calls in the mask; none if it is empty."""
    places = np.flatnonzero(mask)
    if len(places):
        ids = tuple(trial.calls.id(int(place)) for place in places[:MOST_WITNESSES])
        yield Contradiction(rule, f"{len(places)} call(s) {sentence}", len(places), ids)


def call_key(trial: Trial) -> Ints:
    """One integer a call: tenant and sequence."""
    return np.asarray((trial.calls.tenant << 40) | trial.calls.seq)


def places_of(trial: Trial, order: Places, children: Places) -> tuple[Places, Mask]:
    """(place of the parent of each of the children, whether it is there). order: that sorts `call_key`."""
    calls, keys = trial.calls, call_key(trial)[order]
    wanted = (calls.tenant[children] << 40) | calls.parent[children]
    place = np.minimum(np.searchsorted(keys, wanted), max(0, len(order) - 1))
    known = keys[place] == wanted if len(order) else np.zeros(0, dtype=np.bool_)
    return order[place] if len(order) else place, known
