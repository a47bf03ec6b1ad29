"""The ledger rows of the calls that a verdict names: what a reader looks at to believe it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from harness.ledger.reader import Trial

_SEQ_BITS = 44
Key = tuple[int, int]


def witness_rows(trial: Trial, ids: Iterable[str]) -> dict[str, list[dict[str, Any]]]:
    """Call id -> its rows (one an attempt), in file order. An id that is not a call of this trial has no entry."""
    wanted = {(key[0] << _SEQ_BITS) | key[1]: id_ for id_ in ids if (key := _key(id_)) is not None}
    found: dict[str, list[dict[str, Any]]] = {}
    if wanted:
        keys = (trial.calls.tenant << _SEQ_BITS) | trial.calls.seq
        for place in np.nonzero(np.isin(keys, np.array(list(wanted), dtype=np.int64)))[0].tolist():
            found.setdefault(wanted[int(keys[place])], []).append(trial.row(place))
    return found


def _key(call_id: str) -> Key | None:
    """`3.141` or, of an attempt, `3.141.1` -> (3, 141)."""
    parts = call_id.split(".")
    if len(parts) not in (2, 3) or not all(part.isascii() and part.isdigit() and len(part) < 13 for part in parts):
        return None
    tenant, seq = int(parts[0]), int(parts[1])
    return (tenant, seq) if tenant < 1 << 18 else None
