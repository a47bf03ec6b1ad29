"""One recorded call, as every reader yields it and every transformation hands it on."""

from __future__ import annotations

from typing import NamedTuple

NO_TENANT = "(none)"
"""Who a call belongs to when its line names nobody: it is still a call that the service had, so it is replayed."""

MAX_NAME = 200
MAX_PATH = 2_048


class Record(NamedTuple):
    """t_ns: nanoseconds since 1970 as read, since the trial began once planned. place: order of reading, breaks ties.

    A plain tuple on purpose: it sorts by time and then by place, and it spills to a temporary file as it is.
    status 0, cost -1.0, queue_ns -1, duration_ns -1: the line does not say. method, path: safe to send, or None.
    duration_ns: how long the answer took, as the log has it. body: what was sent, where it was kept.
    """

    t_ns: int
    place: int
    tenant: str
    status: int = 0
    cost: float = -1.0
    queue_ns: int = -1
    method: str | None = None
    path: str | None = None
    duration_ns: int = -1
    body: str | None = None
