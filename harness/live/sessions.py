"""Trials under Locust's own command: a test is a trial, in one process, or dealt to workers by a master.

All three have one shape for locustfile.py: `prepare` when a test starts (raises BadInput before anything is sent),
`begin` when all users run, `stop` while it is being stopped, `close` when it has; `task_of` is what a user does.
"""

from __future__ import annotations

import argparse
import logging
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic_ns
from typing import Any, Protocol

import gevent
import orjson

from harness.errors import BadInput
from harness.ledger import manifest as manifests
from harness.ledger.reader import CALLS, MANIFEST
from harness.ledger.writer import JsonLines, write_manifest
from harness.live.distributed import wire
from harness.live.distributed.master import Master
from harness.live.distributed.settled import Settled
from harness.live.distributed.worker import Worker
from harness.live.manifest import Manifest
from harness.live.requests import reached, target_of
from harness.live.trial import LiveTrial
from harness.live.users import UserTask, fire_request, tasks_of
from harness.profile.loader import Loaded
from harness.recorded.schedule import source
from harness.target.tokens import tokens_of
from harness.workload.plan import RecordedSource, planned

LEAD_NS = 100_000_000
FAR_LEAD_NS = 500_000_000
"""Where workers must first hear of it."""
JOIN_S = 10.0
LAST_S = 10.0
"""Beyond the drain limit: for a worker's last rows, and the master's word that it has them."""
logger = logging.getLogger("overload")


class Session(Protocol):
    """What the locustfile asks of a trial."""

    def task_of(self, place: int) -> UserTask: ...

    def prepare(self, environment: Any) -> None: ...

    def begin(self) -> None: ...

    def stop(self) -> None: ...

    def close(self) -> None: ...

    def progress(self) -> Mapping[str, Any] | None:
        """Of the trial that runs."""
        ...


class Kept:
    """The folder of a trial, if it is to be kept, and its manifest."""

    def __init__(self, loaded: Loaded, folder: Path | None, recorded: RecordedSource, host: str) -> None:
        self.folder = folder
        self.manifest = manifests.begin(
            folder.name if folder else loaded.profile.name,
            datetime.now(UTC).isoformat(timespec="seconds"),
            "live",
            loaded.document,
            loaded.time_scale,
            loaded.profile.seed,
            loaded.variant,
            {"kind": "url", "url": host},
            "separate",
            planned(loaded.profile, recorded),
            {"decisions": False},
        )
        if folder is None:
            return
        folder.mkdir(parents=True, exist_ok=True)
        if any((folder / name).exists() for name in (CALLS, MANIFEST)):
            raise BadInput(f"{folder}: a trial is kept there already; give --overload-trial another folder")
        write_manifest(folder, self.manifest)

    @property
    def calls_file(self) -> Path | None:
        return self.folder / CALLS if self.folder else None

    def end(self, done: Mapping[str, Any]) -> None:
        if self.folder is not None:
            ended = manifests.end(
                self.manifest, done["reason"], done["at_ns"], done["calls"], None, None, done.get("workers")
            )
            write_manifest(self.folder, ended)
        error = f", {done['error']}" if done.get("error") else ""
        logger.info("trial %s: %d calls%s", done["reason"], done["calls"], error)


def end_test(environment: Any) -> None:
    """Headless, the command ends with its test; the web page waits for the next."""
    runner = environment.runner
    (runner.quit if environment.parsed_options.headless else runner.stop)()


class Alone:
    """One process: the trial of the test that runs now, and what it takes to make the next."""

    def __init__(self, loaded: Loaded, options: argparse.Namespace) -> None:
        self.loaded = loaded
        self.folder = Path(options.overload_trial) if options.overload_trial else None
        self.recorded = source(Path(options.overload_profile).parent, options.overload_time_scale)
        self.trial: LiveTrial | None = None
        self.tasks: dict[int, UserTask] = {}
        self._environment: Any = None
        self._kept: Kept | None = None

    def progress(self) -> Mapping[str, Any] | None:
        return self.trial.progress() if self.trial is not None else None

    def task_of(self, place: int) -> UserTask:
        """Without a trial (it could not be prepared) a user has nothing to do."""
        return self.tasks.get(place) or UserTask([])

    def prepare(self, environment: Any) -> None:
        self._environment, self.trial, self.tasks = environment, None, {}
        host = environment.host or ""
        target = reached(target_of("url", host))
        self._kept = kept = Kept(self.loaded, self.folder, self.recorded, host)
        on_call = fire_request(environment.events)
        profile = self.loaded.profile
        self.trial = LiveTrial(profile, target, tokens_of(os.environ), kept.calls_file, self.recorded, on_call)
        self.tasks = tasks_of(self.trial)

    def begin(self) -> None:
        if self.trial is not None:
            self.trial.begin(monotonic_ns() + LEAD_NS)
            gevent.spawn(self._end_by_itself, self.trial)

    def _end_by_itself(self, trial: LiveTrial) -> None:
        trial.finished.wait()
        if trial is self.trial:
            end_test(self._environment)

    def stop(self) -> None:
        """No new call, what is in flight is drained."""
        if self.trial is not None and not self.trial.finished.is_set():
            self.trial.interrupt()
            self.trial.finished.wait()

    def close(self) -> None:
        trial, self.trial = self.trial, None
        if trial is None or self._kept is None:
            return
        done = trial.done()
        trial.close()
        self._kept.end(done)


class OfMaster:
    """`locust --master`: whoever has joined by the time that a test starts gets a share of it."""

    def __init__(self, loaded: Loaded, options: argparse.Namespace, runner: Any) -> None:
        wire.register(runner, {wire.HELLO: lambda client_id, data: None})  # asked again when a test starts
        self._loaded = loaded
        self._folder = Path(options.overload_trial) if options.overload_trial else None
        self._profiles = Path(options.overload_profile).parent
        self._recorded = source(self._profiles, options.overload_time_scale)
        self._made: Master | None = None
        self._kept: Kept | None = None
        self._rows: JsonLines | None = None
        self._environment: Any = None
        self._tests = 0

    def progress(self) -> Mapping[str, Any] | None:
        return self._made.progress() if self._made is not None else None

    def task_of(self, place: int) -> UserTask:
        return UserTask([])

    def dispatcher(self, worker_nodes: list[Any], user_classes: list[type[Any]]) -> Settled:
        """For Locust's `Environment.dispatcher_class`; made before the trial is."""
        nobody = {node.id: {made.__name__: 0 for made in user_classes} for node in worker_nodes}
        return Settled(lambda: self._made.dealt() if self._made is not None else nobody)

    def prepare(self, environment: Any) -> None:
        self._environment, self._made = environment, None
        host, runner = environment.host or "", environment.runner
        target_of("url", host)
        self._kept = kept = Kept(self._loaded, self._folder, self._recorded, host)
        self._rows = JsonLines(kept.calls_file, 1) if kept.calls_file else None
        self._tests += 1
        document = orjson.loads(orjson.dumps(kept.manifest))
        manifest = Manifest(self._loaded.profile, "url", host, self._loaded.time_scale, document)
        clients = list(runner.clients.all)
        made = Master(runner, manifest, self._recorded, self._profiles, self._rows, len(clients), self._tests)
        made.listen()
        for client in clients:
            runner.send_message(wire.WHO, {}, client.id)
        try:
            made.join(JOIN_S, lambda names: None, "this one, with this locustfile")
            made.prepare(kept.manifest["plan"])
        except BadInput as error:
            made.dismiss(str(error))
            raise
        self._made = made

    def begin(self) -> None:
        if self._made is not None:
            self._made.begin(monotonic_ns() + FAR_LEAD_NS)
            gevent.spawn(self._end_by_itself, self._made)

    def _end_by_itself(self, made: Master) -> None:
        made.finished.wait()
        if made is self._made:
            end_test(self._environment)

    def stop(self) -> None:
        made = self._made
        if made is None:
            return
        if not made.finished.is_set():
            made.interrupt()
            made.finished.wait()
        made.measure_again()
        made.release()

    def close(self) -> None:
        made, self._made = self._made, None
        if made is None or self._kept is None:
            return
        if self._rows is not None:
            self._rows.close()
        done = made.done()
        self._kept.end(done)
        if done["reason"] != "completed":
            self._environment.process_exit_code = 4


class OfWorker:
    """`locust --worker`: waits for a master's trials, one after another."""

    def __init__(self, environment: Any) -> None:
        self._worker = Worker(
            environment.runner,
            os.environ,
            environment.runner.client_id,
            local=False,
            folder=None,
            stays=True,
        )
        self._worker.join()

    def progress(self) -> Mapping[str, Any] | None:
        """The page is the master's."""
        return None

    def task_of(self, place: int) -> UserTask:
        return self._worker.task_of(place)

    def prepare(self, environment: Any) -> None: ...

    def begin(self) -> None: ...

    def stop(self) -> None:
        """If somebody stops this worker while its trial runs, the master is told, and gets the rest."""
        trial = self._worker.trial
        if trial is not None:
            self._worker.leave()
            with gevent.Timeout(trial.profile.drain / 1e9 + LAST_S, False):
                while self._worker.trial is not None:
                    gevent.sleep(0.05)

    def close(self) -> None: ...
