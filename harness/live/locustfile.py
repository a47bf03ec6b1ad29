"""The same tenants under Locust's own command, headless or with its web page, in one process or in several.

    OVERLOAD_PROFILE=profiles/worked_example.yaml locust -f harness/live/locustfile.py --headless --host http://127.0.0.1:8000
    ... --processes 2                                       a master and two workers on this machine
    ... --master --expect-workers 2                         a master; and on each other machine
    ... --worker --master-host HOST                         a worker

Options (each also as an environment variable, OVERLOAD_PROFILE and so on): --overload-profile FILE,
--overload-variant NAME, --overload-time-scale X, --overload-trial DIR (keeps the ledger there; `overload check DIR`
reads it). A test is a trial: it begins when all users run, ends by itself, and starts anew from the web page. Users and
spawn rate follow from the profile. Of several processes the master's options count; the host must be loopback, and
the page is on loopback unless --web-host says otherwise.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from typing import Any

import gevent
from locust import events
from locust.runners import MasterRunner, WorkerRunner

from harness.errors import BadInput
from harness.live.requests import target_of
from harness.live.sessions import Alone, OfMaster, OfWorker, Session, end_test
from harness.live.users import UserTask, user_classes
from harness.live.web_ui import extend
from harness.profile.errors import ProfileError
from harness.profile.loader import Loaded, load

logger = logging.getLogger("overload")

OPTIONS: dict[str, tuple[type, Any, str]] = {
    "profile": (str, None, "the profile to drive"),
    "variant": (str, None, "a variant of the profile"),
    "time-scale": (float, 1.0, "shrinks every duration and raises every rate alike"),
    "trial": (str, None, "keep the ledger in this folder (not there yet, or empty)"),
}


def add_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("overload")
    for name, (kind, default, about) in OPTIONS.items():
        variable = "OVERLOAD_" + name.replace("-", "_").upper()
        given = os.environ.get(variable) or default  # argparse converts a default that is text
        group.add_argument(f"--overload-{name}", type=kind, default=given, help=f"{about} [{variable}]")


def options_now() -> argparse.Namespace:
    """Locust collects user classes before it parses its options, so that ours are read on their own."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    add_options(parser)
    return parser.parse_known_args()[0]


def refuse(message: object) -> None:
    """The one way in which this file turns bad input down: a sentence, and exit code 2."""
    print(f"overload: {message}", file=sys.stderr)
    sys.exit(2)


def loaded_now() -> Loaded:
    if options.overload_profile is None:
        refuse("no profile given; set OVERLOAD_PROFILE or --overload-profile to a profile's file")
    try:
        return load(options.overload_profile, variant=options.overload_variant, time_scale=options.overload_time_scale)
    except (BadInput, ProfileError) as error:
        refuse(error)
        raise


def on_parser(parser: Any) -> None:
    add_options(parser)
    # Locust's page listens everywhere unless told otherwise, and whoever opens it can start a test.
    parser.set_defaults(num_users=len(classes), spawn_rate=min(len(classes), 100), web_host="127.0.0.1")


def on_init(environment: Any, runner: Any, **_: Any) -> None:
    global session
    try:
        if isinstance(runner, MasterRunner):
            session = of_master = OfMaster(loaded, options, runner)
            environment.dispatcher_class = of_master.dispatcher
        elif isinstance(runner, WorkerRunner):
            session = OfWorker(environment)
        if environment.host and not isinstance(runner, WorkerRunner):
            target_of("url", environment.host)
        if environment.web_ui is not None:
            extend(environment.web_ui, loaded.profile, session.progress)
    except BadInput as error:
        refuse(error)


def on_test_start(environment: Any, **_: Any) -> None:
    try:
        session.prepare(environment)
    except (BadInput, OSError) as error:
        logger.error("not started: %s", error)
        environment.process_exit_code = 2
        gevent.spawn(end_test, environment)


def task_of(place: int) -> UserTask:
    return session.task_of(place)


options = options_now()
loaded = loaded_now()
session: Session = Alone(loaded, options)
classes = user_classes(list(loaded.profile.tenants), task_of)
globals().update({made.__name__: made for made in classes})
events.init_command_line_parser.add_listener(on_parser)
events.init.add_listener(on_init)
events.test_start.add_listener(on_test_start)
events.spawning_complete.add_listener(lambda **_: session.begin())
events.test_stopping.add_listener(lambda **_: session.stop())
events.test_stop.add_listener(lambda **_: session.close())
