"""What the stub reads from a request's headers, with every bound. Pure: text in, values or a complaint out."""

from __future__ import annotations

import re
from collections.abc import Mapping

from stub_service.live import Asked

_ID = re.compile(r"[!-~]{1,200}", re.ASCII)
_ROUND = re.compile(r"\d{1,9}", re.ASCII)
_DECIMAL = re.compile(r"\d{1,12}(\.\d{1,9})?", re.ASCII)
_COST = re.compile(r"\d{1,15}(\.\d{1,15})?([eE][+-]?\d{1,2})?", re.ASCII)
MOST_DEADLINE_MS = 86_400_000
MOST_COST = 1e15
CLAIMED = "X-Tenant"
"""In which a request may claim to be of another tenant; whom it is charged to is decided by `SharedService.charge`."""


def read_headers(headers: Mapping[str, str]) -> Asked | str:
    """The call as its headers tell it, or one sentence on what is wrong with them. Absent ones are fine."""
    call = headers.get("Overload-Call")
    attempt_id = headers.get("Overload-Attempt")
    round_, deadline = headers.get("Overload-Round"), headers.get("Overload-Queue-Deadline-Ms")
    cost = headers.get("Overload-Cost")
    if call is not None and not _ID.fullmatch(call):
        return "Overload-Call must be 1 to 200 visible ASCII characters"
    if attempt_id is not None and not _ID.fullmatch(attempt_id):
        return "Overload-Attempt must be 1 to 200 visible ASCII characters"
    if round_ is not None and not _ROUND.fullmatch(round_):
        return "Overload-Round must be a whole number, such as 0"
    if deadline is not None and not (_DECIMAL.fullmatch(deadline) and float(deadline) <= MOST_DEADLINE_MS):
        return f"Overload-Queue-Deadline-Ms must be decimal milliseconds, at most {MOST_DEADLINE_MS}, such as 500"
    if cost is not None and not (_COST.fullmatch(cost) and float(cost) <= MOST_COST):
        return f"Overload-Cost must be a decimal number from 0 to {MOST_COST:.0e}"
    return Asked(
        call,
        attempt_id,
        int(round_) if round_ is not None else None,
        round(float(deadline) * 1_000_000) if deadline is not None else None,
        float(cost) if cost is not None else -1.0,
        headers.get(CLAIMED),
    )
