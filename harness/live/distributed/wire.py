"""What master and workers say to each other, as custom messages of Locust's own runners (msgpack over ZeroMQ).

    worker                                master
    HELLO  name, version, host, pid   ->
                                      <-  PING n        (some; PONG n, its clock)
                                      <-  FILE          (recorded arrivals of its tenants, in pieces)
                                      <-  PLAN          manifest without secrets, and its parts
    PREPARED  error?                  ->                 Locust's own `spawn`: a user a tenant
                                      <-  BEGIN          the epoch, on the worker's clock
    ROWS  seq, count, data            ->
                                      <-  ACK seq        they are in the file
    PROGRESS                          ->
    DRAINED  reason, calls            ->                 again and again, until
                                      <-  OVER           it may go: everything is acknowledged
    LEAVING                           ->                 somebody stopped this worker: all of them drain

Besides, BEAT from the master twice a second, INTERRUPT and HALT to end a trial, AWAY to a worker that is not wanted,
and WHO to have a worker say HELLO again: under Locust's own command it stays for the next trial.
Every message of a trial names it (`trial`): what is left over from another changes nothing.

Whoever can reach the master's port can speak this (and Locust's own messages): a trusted network, as for Locust. Both
sides bound and check what they hear. Tokens are never in any of it: a worker has its own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

PROTOCOL = 1
HELLO, WHO, PING, PONG, FILE, PLAN, PREPARED = (
    f"overload_{word}" for word in ("hello", "who", "ping", "pong", "file", "plan", "prepared")
)
BEGIN, ROWS, ACK, PROGRESS, DRAINED, OVER = (
    f"overload_{word}" for word in ("begin", "rows", "ack", "progress", "drained", "over")
)
LEAVING, BEAT, INTERRUPT, HALT, AWAY = (f"overload_{word}" for word in ("leaving", "beat", "interrupt", "halt", "away"))

DEFAULT_PORT = 5557
BEAT_S = 0.5
SILENT_NS = 3_000_000_000
"""Of the other side, six beats in a row: it is gone."""
STUCK_NS = 1_000_000_000
"""A loop that itself did not turn for so long cannot say that the other side was silent."""
MOST_SAID = 2_000

Act = Callable[[str, Mapping[str, Any]], None]
"""(client id, what was said)"""


def register(runner: Any, acts: Mapping[str, Act]) -> None:
    """Has Locust call these, instead of what an earlier trial had it call. What cannot be read is one line in the log:
    it is nobody's that takes part."""
    for kind, act in acts.items():
        runner.custom_messages.pop(kind, None)
        runner.register_message(kind, _listener(kind, act))


def _listener(kind: str, act: Act) -> Callable[..., None]:
    def listen(msg: Any, **_: Any) -> None:
        try:
            act(msg.node_id, msg.data if isinstance(msg.data, dict) else {})
        except (KeyError, TypeError, ValueError) as error:
            what = f"{type(error).__name__}: {error}"[:200]
            logging.getLogger("overload").error("a message %s cannot be read (%s)", kind, what)

    return listen


def text(value: object, most: int = MOST_SAID) -> str:
    """What another process says, bounded, on one line."""
    if not isinstance(value, str):
        raise TypeError(f"a text was expected, not {type(value).__name__}")
    return "".join(char if char.isprintable() else " " for char in value[:most])


def number(value: object) -> int:
    if type(value) is not int:
        raise TypeError(f"a whole number was expected, not {type(value).__name__}")
    return value
