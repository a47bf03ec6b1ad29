"""The typed outcomes of a call. They stay distinct to the last table (docs: ARCHITECTURE.md, words).

A call ends in exactly one terminal outcome. Strings, because they are what the ledger holds.
"""

from __future__ import annotations

from typing import Final

# From the service.
SERVED: Final = "served"
THROTTLED: Final = "throttled"
EXPIRED: Final = "expired"
BUDGET_EXHAUSTED: Final = "budget_exhausted"
COALESCED: Final = "coalesced"
DEPENDENCY_UNAVAILABLE: Final = "dependency_unavailable"
CANCELLED: Final = "cancelled"
NEEDS_PERSON: Final = "needs_person"
FAILED: Final = "failed"
# From the caller's side.
HELD_BACK: Final = "held_back"  # its own budget
ABANDONED: Final = "abandoned"  # its patience ran out
DROPPED: Final = "dropped"  # the generator could not send it
OPEN: Final = "open"  # unfinished at the drain limit

QUEUED: Final = "queued"  # interim, never terminal

FROM_SERVICE: Final = (
    SERVED,
    THROTTLED,
    EXPIRED,
    BUDGET_EXHAUSTED,
    COALESCED,
    DEPENDENCY_UNAVAILABLE,
    CANCELLED,
    NEEDS_PERSON,
    FAILED,
)
FROM_CALLER: Final = (HELD_BACK, ABANDONED, DROPPED, OPEN)
TERMINAL: Final = FROM_SERVICE + FROM_CALLER

REFUSED: Final = frozenset((THROTTLED, EXPIRED, BUDGET_EXHAUSTED, DEPENDENCY_UNAVAILABLE))
"""Turned away at admission, without having started."""

REPLANNED: Final = REFUSED | {ABANDONED}
"""What a re-planning agent answers with new calls."""

NEVER_SENT: Final = frozenset((HELD_BACK, DROPPED))
