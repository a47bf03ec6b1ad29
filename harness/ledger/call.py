"""One call of a caller, from due to done. Mutable on purpose: it is the hot object of both drivers."""

from __future__ import annotations

from typing import Any

CALL_STEP = "call"
"""Overload-Step of a plain call; its Overload-Run is the call's id (docs/controller.md)."""


class Call:
    """What a caller wanted done, once. Instants are ns since the trial began; -1 where they did not happen.

    id: `<tenant index>.<sequence>`, unique in a trial. run: sequence of the original call that it descends from.
    round: 0 for original work. parent: id of the call whose failure led to it. queue_wait_ns and service_ns are as the
    service tells them; -1 unknown. typed: False if an answer other than success had no typed outcome in its body.

    action: what a call of an agent run does (`open`, `submit`, `cancel`, `finish`); None for a call of the shared
    service. With an action there is a body to send, and `answer` is the JSON object that came back, None if there was
    none. run_id: the run's id at the service.

    attempt: 1, or of a call that is tried again 2, 3, ...: an attempt is an object of its own, with the call's id.
    again_ns: when that further attempt was due. retried: it has ended and another attempt follows; the call has not
    ended. tool: what a re-planned call goes to, where its profile names tools.

    polls: how often a service that had only queued it was asked how it stands. These are requests, and no attempts.
    """

    __slots__ = (
        "action",
        "again_ns",
        "answer",
        "attempt",
        "body",
        "cost",
        "done_ns",
        "driver",
        "due_ns",
        "method",
        "outcome",
        "parent",
        "path",
        "polls",
        "queue_wait_ns",
        "reason",
        "retried",
        "retry_after",
        "round",
        "run",
        "run_id",
        "sent_ns",
        "seq",
        "service_ns",
        "status",
        "tenant",
        "tenant_index",
        "tool",
        "typed",
    )

    def __init__(
        self, tenant: str, tenant_index: int, seq: int, due_ns: int, round_: int, run: int, parent: str | None
    ) -> None:
        self.tenant = tenant
        self.tenant_index = tenant_index
        self.seq = seq
        self.due_ns = due_ns
        self.round = round_
        self.run = run
        self.parent = parent
        self.outcome: str | None = None
        self.reason: str | None = None
        self.sent_ns = -1
        self.done_ns = -1
        self.queue_wait_ns = -1
        self.service_ns = -1
        self.status = 0
        self.retry_after: str | None = None
        self.typed = True
        self.cost: float = -1.0
        self.method: str | None = None
        self.path: str | None = None
        self.action: str | None = None
        self.body: bytes | None = None
        self.answer: dict[str, Any] | None = None
        self.run_id: str | None = None
        self.driver: Any = None
        self.attempt = 1
        self.again_ns = -1
        self.retried = False
        self.tool: str | None = None
        self.polls = 0

    def next_attempt(self, again_ns: int) -> Call:
        """The same call once more, due at `again_ns`."""
        made = Call(self.tenant, self.tenant_index, self.seq, self.due_ns, self.round, self.run, self.parent)
        made.cost, made.method, made.path, made.tool = self.cost, self.method, self.path, self.tool
        made.attempt, made.again_ns = self.attempt + 1, again_ns
        return made

    @property
    def id(self) -> str:
        return f"{self.tenant_index}.{self.seq}"
