"""The same tenants under Locust's own command, headless or with its web page.

    OVERLOAD_PROFILE=profiles/worked_example.yaml locust -f harness/live/locustfile.py --headless --host http://127.0.0.1:8000

Options (each also as an environment variable, OVERLOAD_PROFILE and so on): --overload-profile FILE,
--overload-variant NAME, --overload-time-scale X, --overload-trial DIR (keeps the ledger there; `overload check DIR`
reads it). A test is a trial: it begins when all users run, ends by itself, and starts anew from the web page. Users and
spawn rate follow from the profile. One process only; the host must be loopback.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic_ns
from typing import Any

import gevent
from locust import events
from locust.runners import LocalRunner

from harness.errors import BadInput
from harness.ledger import manifest as manifests
from harness.ledger.reader import CALLS, MANIFEST
from harness.ledger.writer import write_manifest
from harness.live.requests import reached, target_of, tokens_of
from harness.live.trial import LiveTrial
from harness.live.users import UserTask, fire_request, tasks_of, user_classes
from harness.profile.errors import ProfileError
from harness.profile.loader import Loaded, load
from harness.recorded.schedule import source
from harness.workload.plan import planned

LEAD_NS = 100_000_000
logger = logging.getLogger("overload")

OPTIONS: dict[str, tuple[type, Any, str]] = {
    "profile": (Path, None, "the profile to drive"),
    "variant": (str, None, "a variant of the profile"),
    "time-scale": (float, 1.0, "shrinks every duration and raises every rate alike"),
    "trial": (Path, None, "keep the ledger in this folder (not there yet, or empty)"),
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


class Session:
    """The trial of the test that runs now, and what it takes to make the next."""

    def __init__(self, loaded: Loaded, options: argparse.Namespace) -> None:
        self.loaded = loaded
        self.folder: Path | None = options.overload_trial
        self.recorded = source(options.overload_profile.parent, options.overload_time_scale)
        self.trial: LiveTrial | None = None
        self.tasks: dict[int, UserTask] = {}
        self._environment: Any = None
        self._manifest: dict[str, Any] = {}

    def task_of(self, place: int) -> UserTask:
        """Without a trial (it could not be prepared) a user has nothing to do."""
        return self.tasks[place] if self.tasks else UserTask([])

    def prepare(self, environment: Any) -> None:
        """A test starts. Raises BadInput before anything is sent."""
        self._environment, self.trial, self.tasks = environment, None, {}
        target = reached(target_of("url", environment.host or ""))
        calls_file = self._begin_ledger(environment.host) if self.folder else None
        on_call = fire_request(environment.events)
        profile = self.loaded.profile
        self.trial = LiveTrial(profile, target, tokens_of(os.environ), calls_file, self.recorded, on_call)
        self.tasks = tasks_of(self.trial)

    def _begin_ledger(self, host: str) -> Path:
        folder = self.folder
        assert folder is not None
        folder.mkdir(parents=True, exist_ok=True)
        if any((folder / name).exists() for name in (CALLS, MANIFEST)):
            raise BadInput(f"{folder}: a trial is kept there already; give --overload-trial another folder")
        loaded = self.loaded
        self._manifest = manifests.begin(
            folder.name,
            datetime.now(UTC).isoformat(timespec="seconds"),
            "live",
            loaded.document,
            loaded.time_scale,
            loaded.profile.seed,
            loaded.variant,
            {"kind": "url", "url": host},
            "separate",
            planned(loaded.profile, self.recorded),
            {"decisions": False},
        )
        write_manifest(folder, self._manifest)
        return folder / CALLS

    def begin(self) -> None:
        """All users run."""
        if self.trial is not None:
            self.trial.begin(monotonic_ns() + LEAD_NS)
            gevent.spawn(self._end_by_itself, self.trial)

    def _end_by_itself(self, trial: LiveTrial) -> None:
        trial.finished.wait()
        if trial is self.trial:
            self.end_test()

    def end_test(self) -> None:
        """Headless, the command ends with its test; the web page waits for the next."""
        runner = self._environment.runner
        (runner.quit if self._environment.parsed_options.headless else runner.stop)()

    def stop(self) -> None:
        """The test is being stopped: no new call, what is in flight is drained."""
        if self.trial is not None and not self.trial.finished.is_set():
            self.trial.interrupt()
            self.trial.finished.wait()

    def close(self) -> None:
        trial, self.trial = self.trial, None
        if trial is None:
            return
        done = trial.done()
        trial.close()
        if self.folder is not None:
            write_manifest(
                self.folder, manifests.end(self._manifest, done["reason"], done["at_ns"], done["calls"], None)
            )
        logger.info("trial %s: %d calls%s", done["reason"], done["calls"], f", {trial.error}" if trial.error else "")


def refuse(message: object) -> None:
    """The one way in which this file turns bad input down: a sentence, and exit code 2."""
    print(f"overload: {message}", file=sys.stderr)
    sys.exit(2)


def open_session() -> Session:
    options = options_now()
    if options.overload_profile is None:
        refuse("no profile given; set OVERLOAD_PROFILE or --overload-profile to a profile's file")
    try:
        loaded = load(
            options.overload_profile, variant=options.overload_variant, time_scale=options.overload_time_scale
        )
    except (BadInput, ProfileError) as error:
        refuse(error)
    return Session(loaded, options)


def on_parser(parser: Any) -> None:
    add_options(parser)
    parser.set_defaults(num_users=len(classes), spawn_rate=min(len(classes), 100))


def on_init(environment: Any, runner: Any, **_: Any) -> None:
    if not isinstance(runner, LocalRunner):
        refuse("a profile is driven by one process; leave out --master, --worker and --processes")
    if environment.host:
        try:
            target_of("url", environment.host)
        except BadInput as error:
            refuse(error)


def on_test_start(environment: Any, **_: Any) -> None:
    try:
        session.prepare(environment)
    except (BadInput, OSError) as error:
        logger.error("not started: %s", error)
        environment.process_exit_code = 2
        gevent.spawn(session.end_test)


session = open_session()
classes = user_classes(list(session.loaded.profile.tenants), session.task_of)
globals().update({made.__name__: made for made in classes})
events.init_command_line_parser.add_listener(on_parser)
events.init.add_listener(on_init)
events.test_start.add_listener(on_test_start)
events.spawning_complete.add_listener(lambda **_: session.begin())
events.test_stopping.add_listener(lambda **_: session.stop())
events.test_stop.add_listener(lambda **_: session.close())
