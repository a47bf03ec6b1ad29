"""One worker of a trial that several processes drive: its share of the tenants, its rows shipped as it goes.

It gets everything from the master but its tokens, which come from its own environment. It goes only when the master has
acknowledged its last row; a worker whose master is gone stops at once, for nobody keeps the record any more.
Messages are sent from greenlets, never from the hub: a send may have to wait.
"""

from __future__ import annotations

import errno
import gc
import os
import socket
import tempfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from time import monotonic_ns
from typing import Any

import gevent
import orjson
from gevent.event import Event

from harness.errors import BadInput
from harness.live.described import described_in
from harness.live.distributed import wire
from harness.live.distributed.shipping import MOST_HELD_BYTES, Outbox
from harness.live.manifest import manifest_of, recordings, target_in
from harness.live.requests import Target
from harness.live.trial import ERROR, PARENT_GONE, LiveTrial
from harness.live.users import UserTask, fire_request, forget_seconds, tasks_of, user_classes
from harness.profile.errors import ProfileError
from harness.target.tokens import tokens_of
from harness.workload.dealing import Part

FORGET_NS = 50_000_000
REACH_S = 5.0
_TURN_S = 0.05


class Shipped:
    """The ledger of a worker: rows wait here until the master has them."""

    def __init__(self, outbox: Outbox, wake: Event) -> None:
        self._outbox = outbox
        self._wake = wake

    def add(self, line: bytes) -> None:
        if self._outbox.held_bytes > MOST_HELD_BYTES:
            raise OSError(errno.ENOBUFS, "the master takes no rows, and there is no room for more")
        self._outbox.add(line)

    def flush(self) -> None:
        self._outbox.close_batch()
        self._wake.set()

    def close(self) -> None:
        self.flush()


class Worker:
    """runner: Locust's worker runner, connected. folder: where recorded arrivals are, if they are on this machine.
    `gone` is set when there is nothing left to do; `failed` then says why, unless all is well. stays: it waits for the
    next trial instead."""

    def __init__(
        self,
        runner: Any,
        environment: Mapping[str, str],
        name: str,
        *,
        local: bool,
        folder: Path | None,
        stays: bool = False,
    ) -> None:
        self.trial: LiveTrial | None = None
        self.tasks: dict[int, UserTask] = {}
        self.gone = Event()
        self.failed: str | None = None
        self._began = False
        self._runner = runner
        self._environment = environment
        self._tokens = tokens_of(environment)
        self._name = name
        self._local = local
        self._folder = folder
        self._stays = stays
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self._number = 0
        self._outbox = Outbox()
        self._wake = Event()
        self._heard_ns = self._turned_ns = monotonic_ns()
        self._progress_ns = self._drained_ns = 0
        wire.register(
            runner,
            {
                wire.WHO: self._on_who,
                wire.PING: self._on_ping,
                wire.FILE: self._on_file,
                wire.PLAN: self._on_plan,
                wire.BEGIN: self._on_begin,
                wire.ACK: self._on_ack,
                wire.BEAT: self._on_beat,
                wire.INTERRUPT: self._on_interrupt,
                wire.HALT: self._on_halt,
                wire.OVER: self._on_over,
                wire.AWAY: self._on_away,
            },
        )

    def join(self) -> None:
        """Tells the master that it is there, and turns from then on."""
        self._say_hello()
        gevent.spawn(self._turn)

    def _say_hello(self) -> None:
        said = {"protocol": wire.PROTOCOL, "name": self._name, "host": socket.gethostname(), "pid": os.getpid()}
        self._send(wire.HELLO, {**said, "local": self._local})

    def leave(self) -> None:
        """Somebody stops this worker: the trial ends everywhere, in order. A second time: here at once."""
        if self.trial is None:
            self._go("stopped before the trial began")
        elif self.trial.reason == "interrupted":
            self.trial.halt("interrupted")
        else:
            self._send(wire.LEAVING, {"trial": self._number})
            self.trial.interrupt()

    def task_of(self, place: int) -> UserTask:
        return self.tasks.get(place) or UserTask([])

    @property
    def never_began(self) -> bool:
        """It sent no call, and so took no part."""
        return not self._began

    def _send(self, kind: str, data: dict[str, Any]) -> None:
        self._runner.send_message(kind, data)

    def _go(self, why: str | None = None) -> None:
        self.failed = self.failed or why
        self.gone.set()

    def _of_this(self, data: Mapping[str, Any]) -> LiveTrial | None:
        self._heard_ns = monotonic_ns()
        return self.trial if data.get("trial") == self._number else None

    def _on_who(self, _: str, data: Mapping[str, Any]) -> None:
        self._say_hello()

    def _on_ping(self, _: str, data: Mapping[str, Any]) -> None:
        self._send(wire.PONG, {"n": wire.number(data["n"]), "ns": monotonic_ns()})
        self._heard_ns = monotonic_ns()

    def _on_file(self, _: str, data: Mapping[str, Any]) -> None:
        """A piece of a tenant's recorded arrivals."""
        pure = PurePosixPath(wire.text(data["name"]))
        if pure.is_absolute() or ".." in pure.parts or not isinstance(data["data"], bytes):
            raise ValueError("a schedule file lies inside its trial's folder")
        if self._scratch is None:
            self._scratch = tempfile.TemporaryDirectory(prefix="overload-worker-")
        path = Path(self._scratch.name) / pure
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb" if data["first"] else "ab") as file:
            file.write(data["data"])

    def _on_plan(self, _: str, data: Mapping[str, Any]) -> None:
        self._heard_ns = monotonic_ns()
        self._number = wire.number(data["trial"])
        gevent.spawn(self._prepare, data)

    def _prepare(self, data: Mapping[str, Any]) -> None:
        said: dict[str, Any] = {"trial": self._number}
        try:
            parts = {name: (k, n) for name, (k, n) in data["parts"].items()}
            self._make_trial(orjson.loads(data["manifest"]), parts, data["place"], data["of"])
            said["users"] = len(self.tasks)
        except (BadInput, ProfileError) as error:
            said["error"] = str(error)
        except Exception as error:  # whatever it is, the master must hear of it, or it would wait
            said["error"] = f"cannot prepare its share ({type(error).__name__}: {error})"
        self._send(wire.PREPARED, said)

    def _make_trial(self, document: dict[str, Any], parts: dict[str, Part], place: int, of: int) -> None:
        folder = self._folder or (Path(self._scratch.name) if self._scratch else Path("."))
        manifest = manifest_of(document, "the manifest from the master")
        recorded = recordings(manifest.profile, folder, manifest.time_scale)
        described = described_in(manifest, self._environment, list(parts))
        target = target_in(manifest)
        must_reach(target)
        self._outbox, self._wake = Outbox(), Event()
        events = self._runner.environment.events
        rows = Shipped(self._outbox, self._wake)
        self._drained_ns = 0
        self.trial = LiveTrial(
            manifest.profile,
            target,
            self._tokens,
            rows,
            recorded,
            fire_request(events),
            parts,
            manifest.caller_defect,
            described.share(place, of) if described is not None else None,
        )
        self.trial.on_abort = lambda: gevent.spawn(self._send, wire.LEAVING, {"trial": self._number})
        self.tasks = tasks_of(self.trial)
        self._runner.environment.user_classes[:] = user_classes(list(manifest.profile.tenants), self.task_of)

    def _on_begin(self, _: str, data: Mapping[str, Any]) -> None:
        trial = self._of_this(data)
        if trial is not None and not trial.begun:
            epoch_ns = wire.number(data["epoch_ns"])
            self._began = True
            gc.collect()
            gc.freeze()  # what is there now stays; collections look only at what the trial makes
            trial.begin(epoch_ns)
            trial.scheduler.every(FORGET_NS, forget_seconds(self._runner.stats))

    def _on_ack(self, _: str, data: Mapping[str, Any]) -> None:
        if self._of_this(data) is not None:
            self._outbox.acknowledged(wire.number(data["seq"]), monotonic_ns())
            self._wake.set()

    def _on_beat(self, _: str, data: Mapping[str, Any]) -> None:
        self._heard_ns = monotonic_ns()

    def _on_interrupt(self, _: str, data: Mapping[str, Any]) -> None:
        trial = self._of_this(data)
        if trial is not None and not trial.ending:  # also by its own abort rule: it drains
            trial.interrupt()

    def _on_halt(self, _: str, data: Mapping[str, Any]) -> None:
        trial = self._of_this(data)
        if trial is not None:
            trial.halt(PARENT_GONE if data.get("reason") == PARENT_GONE else "interrupted")

    def _on_over(self, _: str, data: Mapping[str, Any]) -> None:
        trial = self._of_this(data)
        if trial is not None and trial.finished.is_set() and self._outbox.empty:
            trial.close()
            self.trial = None
            if not self._stays:
                self._go()

    def _on_away(self, _: str, data: Mapping[str, Any]) -> None:
        why = f"turned away by the master: {wire.text(data['why'])}"
        trial, self.trial = self.trial, None
        if trial is not None:
            trial.halt(ERROR)
            trial.close()
        if not self._stays:
            self._go(why)

    def _turn(self) -> None:
        while not self.gone.is_set():
            self._wake.wait(_TURN_S)
            self._wake.clear()
            now_ns = monotonic_ns()
            if now_ns - self._turned_ns > wire.STUCK_NS:
                self._heard_ns = now_ns
            self._turned_ns = now_ns
            trial = self.trial
            if trial is not None:
                self._report(trial, now_ns)
            if not self._stays and now_ns - self._heard_ns > wire.SILENT_NS * (10 if self._local else 1):
                if trial is not None:
                    trial.halt(PARENT_GONE)
                self._go("the master is gone: stopped at once, what it had not acknowledged is lost")

    def _report(self, trial: LiveTrial, now_ns: int) -> None:
        finished = trial.finished.is_set()
        if finished:
            self._outbox.close_batch()
        for batch in self._outbox.due(now_ns):
            self._send(wire.ROWS, {"trial": self._number, "seq": batch.seq, "count": batch.count, "data": batch.data})
        drained = finished and self._outbox.empty and now_ns >= self._drained_ns
        if trial.begun and (drained or now_ns >= self._progress_ns):
            self._progress_ns = now_ns + int(wire.BEAT_S * 1e9)
            self._send(wire.PROGRESS, {"trial": self._number, "progress": orjson.dumps(trial.progress())})
        if drained:
            self._drained_ns = now_ns + int(wire.BEAT_S * 1e9)
            self._send(wire.DRAINED, {"trial": self._number, **_last_words(trial)})


def _last_words(trial: LiveTrial) -> dict[str, Any]:
    done = trial.done()
    return {key: done.get(key) for key in ("reason", "calls", "cpu_ns", "error")}


def must_reach(target: Target) -> None:
    """Raises BadInput if no connection to the target can be made from here: every call would fail. Sends nothing."""
    host, port = target.address
    try:
        socket.create_connection((host, port), REACH_S).close()
    except OSError as error:
        why = error.strerror or str(error)
        raise BadInput(f"cannot reach the target at {target.host} from {socket.gethostname()} ({why})") from None
