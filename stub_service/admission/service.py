"""The shared service without a clock or a socket: workers, a queue in front of them, an admission policy.

The aiohttp shell and the simulator both drive this very object. The driver owns time: it reports arrivals, departures
and ends with `now_ns`, then calls `start_ready` (last in an instant) and sets a timer `service_ns` for each ticket that
it returns.

    idle = workers(now) - running         may be negative after workers were taken away: running calls are not killed
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import replace
from random import Random

from stub_service.admission import answers, registry
from stub_service.admission.answers import Answer, Refuse
from stub_service.admission.policy import GONE, RUNNING, WAITING, Policy, Ticket
from stub_service.config import SharedServiceConfig
from stub_service.dependency import service_time

Charge = Callable[[str, str | None], str]
"""(tenant of the credential, tenant that the request claims or None) -> who is charged."""


def by_credential(tenant: str, claimed: str | None) -> str:
    """What a request says of itself changes nothing."""
    return tenant


class SharedService:
    """Its parts are attributes, so that a defect can replace one: `policy`, `refuse`, `charge`.

    shadow: a service of the same configuration under the shadow's policy, for shadow.py to run; None without one.
    """

    def __init__(self, config: SharedServiceConfig) -> None:
        self.policy: Policy = registry.build(config.admission)
        self.refuse: Refuse = answers.refuse
        self.charge: Charge = by_credential
        self.shadow: SharedService | None = None
        self.shadow_policy = config.shadow.policy if config.shadow is not None else ""
        if config.shadow is not None:
            self.shadow = SharedService(replace(config, admission=config.shadow, shadow=None))
        self.running = 0
        self.workers = config.workers[0][1]
        self._change_at = [at for at, _ in config.workers]
        self._counts = [count for _, count in config.workers]
        self._mean_ns = config.service_time.mean_ns or config.service_time.base_ns
        self._time = service_time.build(config.service_time, Random(f"{config.seed}:service"))

    def worker_changes(self) -> list[int]:
        """Instants [ns] at which the number of workers changes: call `set_time` then."""
        return self._change_at[1:]

    def set_time(self, now_ns: int) -> None:
        """Brings the number of workers up to date."""
        self.workers = self._counts[max(0, bisect_right(self._change_at, now_ns) - 1)]

    def offer(self, ticket: Ticket, now_ns: int) -> str | None:
        """Accepts the ticket into the queue (None), or refuses it with a reason."""
        free = self.workers - self.running
        reason = self.policy.offer(ticket, free if free > 0 else 0)
        if reason is None:
            ticket.state = WAITING
            ticket.arrived_ns = now_ns
        else:
            ticket.state = GONE
        return reason

    def start_ready(self, now_ns: int) -> list[Ticket]:
        """Starts what may start now, in order; each returned ticket has `started_ns` and `service_ns`."""
        started: list[Ticket] = []
        policy = self.policy
        while self.running < self.workers and policy.waiting:
            ticket = policy.take()
            if ticket is None:
                break
            self.running += 1
            ticket.state = RUNNING
            ticket.started_ns = now_ns
            ticket.service_ns = self._time(ticket.cost, self.running, self.workers)
            started.append(ticket)
        return started

    def finish(self, ticket: Ticket) -> None:
        """A running ticket is done; its worker is free from now on."""
        ticket.state = GONE
        self.running -= 1
        self.policy.finished(ticket)

    def leave(self, ticket: Ticket) -> bool:
        """The caller gave up. A waiting ticket leaves the queue (True); a running one runs on (False)."""
        if ticket.state != WAITING:
            return False
        self.policy.discard(ticket)
        ticket.state = GONE
        return True

    def refusal(self, ticket: Ticket, reason: str) -> Answer:
        """What to tell a caller whose ticket was not accepted: come back when what waits ahead should have started."""
        ahead_ns = self.policy.ahead_of(ticket.tenant) * self._mean_ns // max(1, self.workers)
        return self.refuse(ticket.tenant, reason, max(1, -(-ahead_ns // 1_000_000_000)))
