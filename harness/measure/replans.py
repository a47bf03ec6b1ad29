"""The re-plan share: how much of a tenant's traffic follows a failure, over all and over time.

Exact where rounds are recorded. In an access log they are not: there a call counts as a re-plan if it begins within W
after a failure of the same identity, and the figure is labelled inferred (a steady caller who would have come anyway is
counted too, so it is an upper bound in busy logs).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
MOST_CELLS = 4_000_000


@dataclass(frozen=True, slots=True, eq=False)
class SharesOverTime:
    """calls and replans: counts, [tenants, windows]; window w is [w, w + 1) * window_ns."""

    window_ns: int
    calls: Ints
    replans: Ints

    def total(self, tenant: int) -> tuple[int, int]:
        """(re-plans, calls) of the whole trial."""
        return int(self.replans[tenant].sum()), int(self.calls[tenant].sum())

    def window_shares(self, tenant: int, least_calls: int) -> npt.NDArray[np.float64]:
        """Share a window; NaN where it has fewer calls than `least_calls`."""
        calls = self.calls[tenant]
        return np.where(calls >= least_calls, self.replans[tenant] / np.maximum(calls, 1), np.nan)


def shares_over_time(
    tenant: Ints, due_ns: Ints, is_replan: npt.NDArray[np.bool_], tenants: int, window_ns: int
) -> SharesOverTime:
    """Counts per tenant and window of due. Windows are made longer where there would be more than MOST_CELLS counts."""
    end_ns = int(due_ns.max()) + 1 if len(due_ns) else 1
    window_ns = max(window_ns, -(-end_ns * tenants // MOST_CELLS), 1)
    windows = (end_ns - 1) // window_ns + 1
    place = tenant * windows + due_ns // window_ns
    size = tenants * windows
    calls = np.bincount(place, minlength=size).reshape(tenants, windows).astype(np.int64)
    replans = np.bincount(place[is_replan], minlength=size).reshape(tenants, windows).astype(np.int64)
    return SharesOverTime(window_ns, calls, replans)


def inferred(identity: Ints, at_ns: Ints, failed: npt.NDArray[np.bool_], within_ns: int) -> npt.NDArray[np.bool_]:
    """Which calls begin within `within_ns` after an earlier call of the same identity that failed. Any order of rows.

    at_ns: when a call began, which is all that a log tells. Calls of one instant do not follow from each other.
    """
    if not len(at_ns):
        return np.zeros(0, dtype=np.bool_)
    order = np.lexsort((at_ns, identity))
    who, when, bad = identity[order], at_ns[order], failed[order]
    # For each place the last failure strictly before its instant: of places before the first row of that instant.
    new = np.concatenate(([True], (who[1:] != who[:-1]) | (when[1:] != when[:-1])))
    first_of_instant = np.maximum.accumulate(np.where(new, np.arange(len(who)), 0))
    last_bad = np.maximum.accumulate(np.where(bad, np.arange(len(who)), -1))
    before = np.where(first_of_instant > 0, last_bad[np.maximum(first_of_instant - 1, 0)], -1)
    follows = (before >= 0) & (who[before] == who) & (when - when[before] <= within_ns)
    result = np.zeros(len(who), dtype=np.bool_)
    result[order] = follows
    return result
