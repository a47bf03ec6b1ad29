"""The live driver as a child process: its manifest, its pipes, its signals. See `__main__.py` for the protocol."""

from __future__ import annotations

import argparse
import gc
import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gevent
import orjson
from locust.event import Events

from harness.errors import BadInput
from harness.ledger.reader import CALLS
from harness.live.described import described_in
from harness.live.distributed import processes
from harness.live.manifest import CannotBegin, read_manifest, recordings, target_in
from harness.live.pipes import LineReader, LineWriter, epoch_in, on_signals
from harness.live.trial import PARENT_GONE, LiveTrial
from harness.live.users import fire_request, forget_seconds, start_users, tasks_of, user_classes
from harness.live.web_ui import opened
from harness.profile.errors import ProfileError
from harness.target.tokens import tokens_of

PROGRESS_NS = 500_000_000
FORGET_NS = 50_000_000


def main(arguments: list[str], environment: Mapping[str, str] = os.environ) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m harness.live", description="Drives one trial; see ARCHITECTURE.md."
    )
    parser.add_argument("--trial", type=Path, metavar="DIR", help="the trial's folder, with its manifest")
    parser.add_argument("--web-port", type=int, metavar="N", help="open Locust's web page there, on 127.0.0.1; 0: any")
    processes.add_options(parser)
    options = parser.parse_args(arguments)
    if options.trial is None and not options.worker:
        parser.error("the following arguments are required: --trial")
    logging.getLogger("locust").setLevel(logging.CRITICAL)  # its advice is about ramps, which there are none of here
    try:
        if options.worker:
            return processes.work(options, environment)
        if options.workers or options.remote_workers:
            return processes.master(options)
        trial, runner = _prepare(options.trial, environment)
        page = opened(runner.environment, options.web_port, trial) if options.web_port is not None else None
    except (BadInput, ProfileError) as error:
        print(f"harness.live: {error}", file=sys.stderr)
        return 2
    return _drive(trial, runner, page)


def _prepare(folder: Path, environment: Mapping[str, str]) -> tuple[LiveTrial, Any]:
    manifest = read_manifest(folder)
    recorded = recordings(manifest.profile, folder, manifest.time_scale)
    described = described_in(manifest, environment)
    target = target_in(manifest)
    events = Events()
    tokens = tokens_of(environment)
    try:
        on_call, defect = fire_request(events), manifest.caller_defect
        trial = LiveTrial(
            manifest.profile, target, tokens, folder / CALLS, recorded, on_call, None, defect, described
        )  # fmt: skip
    except OSError as error:
        raise CannotBegin(f"{folder / CALLS}: {error.strerror}; the ledger cannot be written") from None
    tasks = tasks_of(trial)
    runner = start_users(user_classes(list(manifest.profile.tenants), tasks.__getitem__), events)
    runner.environment.host = manifest.target_url  # for the page to show
    return trial, runner


def _drive(trial: LiveTrial, runner: Any, page: str | None) -> int:
    out = LineWriter(1)
    if page is not None:
        out.offer(orjson.dumps({"event": "page", "url": page}))
    loop = gevent.get_hub().loop

    def on_line(line: bytes) -> None:
        if trial.begun:
            return
        epoch = epoch_in(line)
        if epoch is None:
            trial.halt("error")
            return
        gc.collect()
        gc.freeze()  # what is there now stays; collections look only at what the trial makes
        trial.begin(epoch)
        trial.scheduler.every(PROGRESS_NS, lambda: out.offer(orjson.dumps(trial.progress())))
        trial.scheduler.every(FORGET_NS, forget_seconds(runner.stats))

    reader = LineReader(loop, 0, on_line, lambda: trial.halt(PARENT_GONE))
    on_signals(trial.interrupt)
    out.offer(orjson.dumps({"event": "ready"}))
    trial.finished.wait()
    reader.close()
    out.offer(orjson.dumps(trial.progress()))
    done = trial.done()
    trial.close()
    out.finish(orjson.dumps(done))
    runner.quit()
    return 0
