"""The live driver as a child process: its manifest, its pipes, its signals. See `__main__.py` for the protocol."""

from __future__ import annotations

import argparse
import gc
import json
import logging
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gevent
import orjson
from locust.event import Events

from harness.errors import BadInput
from harness.ledger.reader import CALLS, MANIFEST
from harness.live.pipes import LineReader, LineWriter
from harness.live.requests import target_of, tokens_of
from harness.live.trial import PARENT_GONE, LiveTrial
from harness.live.users import fire_request, forget_seconds, start_users, tasks_of, user_classes
from harness.profile.errors import ProfileError
from harness.profile.loader import from_document
from harness.profile.model import Profile
from harness.workload.plan import RecordedSource, no_recordings

PROGRESS_NS = 500_000_000
FORGET_NS = 50_000_000


class CannotBegin(BadInput):
    """One clear sentence: what, where, and what to do."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """The part of manifest.json that a driver needs."""

    profile: Profile
    target_kind: str
    target_url: str
    recorded: RecordedSource


def main(arguments: list[str], environment: Mapping[str, str] = os.environ) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m harness.live", description="Drives one trial; see ARCHITECTURE.md."
    )
    parser.add_argument(
        "--trial", required=True, type=Path, metavar="DIR", help="the trial's folder, with its manifest"
    )
    folder: Path = parser.parse_args(arguments).trial
    try:
        trial, runner = _prepare(folder, environment)
    except (BadInput, ProfileError) as error:
        print(f"harness.live: {error}", file=sys.stderr)
        return 2
    return _drive(trial, runner)


def read_manifest(folder: Path) -> Manifest:
    """Raises CannotBegin."""
    path = folder / MANIFEST
    try:
        document = orjson.loads(path.read_bytes())
        kind, url = document["target"]["kind"], document["target"]["url"]
        time_scale = float(document["time_scale"])
        profile = from_document(document["profile"], origin=str(path), time_scale=time_scale).profile
    except OSError as error:
        raise CannotBegin(f"{path}: {error.strerror}; give the folder of a trial that has been planned") from None
    except (KeyError, TypeError, ValueError) as error:
        what = f"{type(error).__name__}: {error}"[:200]
        raise CannotBegin(f"{path}: not the manifest of a trial ({what}); was it edited?") from None
    if not isinstance(kind, str) or not isinstance(url, str):
        raise CannotBegin(f"{path}: target.url is not a text; a live trial needs one")
    return Manifest(profile, kind, url, recordings(profile, folder, time_scale))


def recordings(profile: Profile, folder: Path, time_scale: float) -> RecordedSource:
    """Where recorded tenants find their arrivals."""
    if not any(tenant.recorded for tenant in profile.tenants.values()):
        return no_recordings
    from harness.recorded.schedule import source

    found: RecordedSource = source(folder, time_scale)
    return found


def _prepare(folder: Path, environment: Mapping[str, str]) -> tuple[LiveTrial, Any]:
    manifest = read_manifest(folder)
    target = target_of(manifest.target_kind, manifest.target_url)
    events = Events()
    try:
        trial = LiveTrial(
            manifest.profile,
            target,
            tokens_of(environment),
            folder / CALLS,
            manifest.recorded,
            fire_request(events),
        )
    except OSError as error:
        raise CannotBegin(f"{folder / CALLS}: {error.strerror}; the ledger cannot be written") from None
    tasks = tasks_of(trial)
    logging.getLogger("locust").setLevel(logging.ERROR)  # its advice is about ramps, which there are none of here
    return trial, start_users(user_classes(list(manifest.profile.tenants), tasks.__getitem__), events)


def _drive(trial: LiveTrial, runner: Any) -> int:
    out = LineWriter(1)
    loop = gevent.get_hub().loop

    def on_line(line: bytes) -> None:
        if trial.begun:
            return
        try:
            epoch = int(json.loads(line)["epoch_monotonic_ns"])
        except (ValueError, KeyError, TypeError):
            print(
                'harness.live: standard input: expected one line such as {"epoch_monotonic_ns": 123}', file=sys.stderr
            )
            trial.halt("error")
            return
        gc.collect()
        gc.freeze()  # what is there now stays; collections look only at what the trial makes
        trial.begin(epoch)
        trial.scheduler.every(PROGRESS_NS, lambda: out.offer(orjson.dumps(trial.progress())))
        trial.scheduler.every(FORGET_NS, forget_seconds(runner.stats))

    reader = LineReader(loop, 0, on_line, lambda: trial.halt(PARENT_GONE))
    for number in (signal.SIGINT, signal.SIGTERM):
        gevent.signal_handler(number, trial.interrupt)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    out.offer(orjson.dumps({"event": "ready"}))
    trial.finished.wait()
    reader.close()
    done = trial.done()
    trial.close()
    out.finish(orjson.dumps(done))
    runner.quit()
    return 0
