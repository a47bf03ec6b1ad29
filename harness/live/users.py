"""Tenants as Locust users: a class a tenant with one user (`fixed_count = 1`), whose task is the tenant's schedule.

Plain Locust underneath: its request event is fired for every call that was to be sent, under the tenant's name, so
that its own statistics, listeners and web page work. They are for looking at; the ledger is the record. Locust's
spawning is quadratic in the number of classes, so that from `MOST_USERS` tenants on several share a user.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable
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
from harness.live.trial import LiveTrial, OnCall
from harness.profile.model import Profile

MOST_USERS = 500
SECONDS_KEPT = 60


class UserTask:
    """What a user does: waits until its tenants are finished and drained. If it is stopped, so are they."""

    def __init__(self, tenants: list[LiveTenant]) -> None:
        self._tenants = tenants
        self._left = len(tenants)
        self._finished = Event()
        if not tenants:
            self._finished.set()

    def tenant_finished(self) -> None:
        self._left -= 1
        if not self._left:
            self._finished.set()

    def run(self) -> None:
        try:
            self._finished.wait()
        finally:
            for tenant in self._tenants:
                tenant.stop()


def tasks_of(trial: LiveTrial) -> dict[int, UserTask]:
    """A task for each user that this process has, by its place: tenants are dealt to users in turn. Of a trial that
    several processes drive, each has the users of its own tenants."""
    users = min(MOST_USERS, len(trial.profile.tenants))
    tenants: dict[int, list[LiveTenant]] = {}
    for tenant in trial.tenants:
        tenants.setdefault(tenant.caller.index % users, []).append(tenant)
    tasks = {place: UserTask(own) for place, own in tenants.items()}
    trial.on_finished = lambda tenant: tasks[tenant.caller.index % users].tenant_finished()
    return tasks


def places_of(parts: Iterable[str], profile: Profile) -> list[int]:
    """The users that drive these tenants."""
    indices = {name: index for index, name in enumerate(profile.tenants)}
    users = min(MOST_USERS, len(indices))
    return sorted({indices[name] % users for name in parts})


def user_classes(tenants: list[str], task_of: Callable[[int], UserTask]) -> list[type[Any]]:
    """A Locust user class for each of the first tenants. task_of: asked when a user starts, with its place."""
    return [_user_class(place, name, task_of) for place, name in enumerate(tenants[:MOST_USERS])]


def _user_class(place: int, tenant: str, task_of: Callable[[int], UserTask]) -> type[Any]:
    """Its name is an identifier and unique, whatever the tenant is called."""

    def follow_schedule(_: Any) -> None:
        task_of(place).run()
        raise StopUser

    readable = "".join(char if char.isascii() and char.isalnum() else "_" for char in tenant)[:40]
    body = {"fixed_count": 1, "tasks": [follow_schedule], "abstract": False, "__module__": __name__}
    made: type[Any] = type(User)(f"Tenant{place}_{readable}", (User,), body)
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


def forget_seconds(stats: Any) -> Callable[[], None]:
    """Locust counts each name's calls in every second of a test for ever, and looks at the last few. Each call of the
    returned function forgets old seconds of one name, in turn, so that memory does not grow with the trial."""
    names: list[Any] = []

    def forget() -> None:
        if not names:
            names.extend((stats.total, *stats.entries.values()))
        entry = names.pop()
        before = int(time.time()) - SECONDS_KEPT
        for counts in (entry.num_reqs_per_sec, entry.num_fail_per_sec):
            # Oldest first, as they were put in.
            for second in list(itertools.takewhile(lambda second: second < before, counts)):
                del counts[second]

    return forget


def start_users(classes: list[type[Any]], events: Events) -> Any:
    """Spawns one user of each class in a local runner; returns it once all of them run."""
    environment = Environment(user_classes=classes, events=events)
    runner = environment.create_local_runner()
    spawned = Event()
    events.spawning_complete.add_listener(lambda user_count: spawned.set())
    runner.start(user_count=len(classes), spawn_rate=len(classes))
    spawned.wait()
    gevent.sleep(0)
    return runner
