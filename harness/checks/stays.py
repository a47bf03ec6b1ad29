"""When each call of a shared service came, and when it left the queue: what checks of queues begin with."""

from __future__ import annotations

import numpy as np

from harness.ledger.outcomes import ABANDONED, NEVER_SENT, OPEN, SERVED
from harness.ledger.reader import Trial
from harness.measure.fair_shares import Stays


def stays_of(trial: Trial) -> Stays:
    """Calls that were sent, but for those of agent runs. As the service tells its queue wait; where it does not, a call
    leaves the queue when it is done."""
    calls = trial.calls
    rows = np.flatnonzero(~calls.is_outcome(*NEVER_SENT) & (calls.action.codes < 0))
    came, wait = calls.sent_ns[rows], calls.queue_wait_ns[rows]
    waited = calls.is_outcome(SERVED, ABANDONED, OPEN)[rows]
    left = np.where(waited, np.where(wait >= 0, came + wait, calls.done_ns[rows]), came)
    return Stays(calls.tenant[rows], came, left, calls.is_outcome(SERVED)[rows])
