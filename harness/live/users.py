"""Tenants as Locust users: a class a tenant with one user (`fixed_count = 1`), whose task is the tenant's schedule.

Plain Locust underneath: its request event is fired for every call that was to be sent, under the tenant's name, so
that its own statistics, listeners and web page work. They are for looking at; the ledger is the record.
"""

from __future__ import annotations

from typing import Any

import gevent
from gevent.event import Event
from locust import User
from locust.env import Environment
from locust.event import Events
from locust.exception import StopUser

from harness.ledger.call import Call
from harness.ledger.outcomes import SERVED
from harness.live.requests import DEFAULT_METHOD
from harness.live.tenants import LiveTenant
from harness.live.trial import OnCall


class TenantTask:
    """What a tenant's user does: waits until its tenant is finished and drained; if it is stopped, so is the tenant."""

    def __init__(self, tenant: LiveTenant) -> None:
        self.tenant = tenant
        self.finished = Event()

    def run(self) -> None:
        try:
            self.finished.wait()
        finally:
            self.tenant.stop()


def user_classes(tasks: list[TenantTask]) -> list[type[Any]]:
    """A Locust user class a tenant, with names that are identifiers and unique whatever the tenants are called."""
    return [_user_class(index, task) for index, task in enumerate(tasks)]


def _user_class(index: int, task: TenantTask) -> type[Any]:
    def follow_schedule(_: Any) -> None:
        task.run()
        raise StopUser

    readable = "".join(char if char.isascii() and char.isalnum() else "_" for char in task.tenant.name)[:40]
    body = {"fixed_count": 1, "tasks": [follow_schedule], "abstract": False, "__doc__": f"Tenant {task.tenant.name!r}."}
    made: type[Any] = type(User)(f"Tenant{index}_{readable}", (User,), body)
    return made


def fire_request(events: Events) -> OnCall:
    """Tells Locust of a call that has ended: its response time is what people feel, from due to done."""
    request = events.request

    def on_call(call: Call, size: int) -> None:
        served = call.outcome == SERVED
        request.fire(
            request_type=call.method or DEFAULT_METHOD,
            name=call.tenant,
            response_time=(call.done_ns - call.due_ns) / 1e6,
            response_length=size,
            exception=None if served else call.outcome,
            context={},
        )

    return on_call


def start_users(classes: list[type[Any]], events: Events) -> Any:
    """Spawns one user of each class in a local runner; returns it once all of them run."""
    environment = Environment(user_classes=classes, events=events)
    runner = environment.create_local_runner()
    spawned = Event()
    events.spawning_complete.add_listener(lambda user_count: spawned.set())
    runner.start(user_count=len(classes), spawn_rate=max(100, len(classes)))
    spawned.wait()
    gevent.sleep(0)
    return runner
