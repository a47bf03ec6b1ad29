"""The master of a trial that several processes drive: it deals the tenants, agrees on the epoch, and keeps the record.

    join -> prepare (clocks, shares) -> spawn (Locust's own) -> begin -> ... -> finished -> release

It sends no call itself. Every row that it acknowledges is in the file; a worker that is gone is said to be, with what
it leaves unaccounted, and one that was not planned for is turned away, and said to have come: what is dealt stays
dealt. Either way all drain: such a trial proves nothing, so it puts no more load on the target.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from time import monotonic_ns
from typing import Any, Protocol

import gevent
import orjson
from gevent.event import Event

from harness.live.distributed import clocks, wire
from harness.live.distributed.joining import Roster
from harness.live.distributed.measuring import ClockMeter
from harness.live.distributed.members import Lost, Member
from harness.live.distributed.settled import Settled
from harness.live.distributed.sharing import hand_out, wait_until_prepared
from harness.live.distributed.shipping import Batch, NotInOrder, originals
from harness.live.manifest import CannotBegin, Manifest
from harness.live.progress import merged
from harness.live.trial import COMPLETED, ERROR, INTERRUPTED, WORSE
from harness.live.users import places_of
from harness.workload.plan import RecordedSource, due_by

LAST_ROWS_S = 3.0
"""How long to wait for workers' last rows where nobody waits for the trial any more."""


class Sink(Protocol):
    """Where rows go: a file of the ledger."""

    def add(self, line: bytes) -> None: ...

    def flush(self) -> None: ...


class Master:
    """runner: Locust's master runner. Its `dispatcher` must be the environment's before users are spawned.

    rows: None keeps no ledger. expected: how many workers the trial is planned for. number: of the trial, where this
    runner has had others.
    """

    def __init__(
        self,
        runner: Any,
        manifest: Manifest,
        recorded: RecordedSource,
        folder: Path,
        rows: Sink | None,
        expected: int,
        number: int = 1,
    ) -> None:
        self.finished = Event()
        self.reason = COMPLETED
        self.error: str | None = None
        self.epoch_ns = 0
        self.begun = False
        self._runner = runner
        self._manifest = manifest
        self.profile = manifest.profile
        self._recorded = recorded
        self._folder = folder
        self._rows = rows
        self._number = number
        self._roster = Roster(runner, expected, self.on_late)
        self._ending = False
        self._spoiled: str | None = None
        self._released = False
        self._clocks = ClockMeter(runner)

    @property
    def members(self) -> dict[str, Member]:
        return self._roster.members

    def listen(self) -> None:
        """Has Locust tell this master of what workers say, and lets them hear that it is there."""
        acts = {
            wire.HELLO: self._roster.on_hello,
            wire.PONG: self._clocks.on_pong,
            wire.PREPARED: self.on_prepared,
            wire.ROWS: self.on_rows,
            wire.PROGRESS: self.on_progress,
            wire.DRAINED: self.on_drained,
            wire.LEAVING: self.on_leaving,
        }
        wire.register(self._runner, acts)
        gevent.spawn(self._beat)

    def _beat(self) -> None:
        while not self._released:
            self._tell_all(wire.BEAT, {})
            gevent.sleep(wire.BEAT_S)

    # Before the trial.

    def join(self, within_s: float, waiting: Callable[[list[str]], None], where: str) -> None:
        """Waits until all workers are there. Raises CannotBegin."""
        self._roster.wait_for_all(within_s, waiting, lambda: self._ending, where)

    def prepare(self, plan: Mapping[str, Mapping[str, int]]) -> None:
        """Measures clocks, deals, and has every worker prepare its share. Raises CannotBegin."""
        if self._ending:
            return
        self._clocks.measure(self.members)
        for member in self.members.values():
            if not member.local:
                offset = clocks.estimate(member.exchanges)
                if offset is None:
                    raise CannotBegin(f"worker {member.name} does not answer; nothing was sent. Is it still running?")
                member.offset = offset
        members = self._roster.in_order()
        hand_out(members, self._manifest, plan, self._folder, self._tell)
        wait_until_prepared(members, lambda: self._ending)

    def spawn(self) -> None:
        """Locust spawns the users, each on the worker that its tenant was dealt to."""
        if self._ending:
            return
        users = sum(len(self._places(member)) for member in self.members.values())
        self._runner.start(user_count=users, spawn_rate=users)

    def _places(self, member: Member) -> list[int]:
        return places_of(member.share.parts, self.profile)

    def dispatcher(self, worker_nodes: list[Any], user_classes: list[type[Any]]) -> Settled:
        """For Locust's `Environment.dispatcher_class`."""
        return Settled(self.dealt)

    def dealt(self) -> dict[str, dict[str, int]]:
        """Users of each worker: client id -> name of a user class -> 1 or 0."""
        names = [made.__name__ for made in self._runner.environment.user_classes]
        return {
            member.client_id: dict.fromkeys(names, 0) | {names[place]: 1 for place in self._places(member)}
            for member in self.members.values()
        }

    # While it runs.

    def begin(self, epoch_monotonic_ns: int) -> None:
        if self.begun or self._ending:
            return
        self.begun = True
        self.epoch_ns = epoch_monotonic_ns
        now_ns = monotonic_ns()
        for member in self.members.values():
            member.heard_ns = now_ns
            self._tell(member, wire.BEGIN, {"epoch_ns": epoch_monotonic_ns + member.offset.offset_ns})
        gevent.spawn(self._watch)

    def interrupt(self) -> None:
        """All drain. A second time: at once."""
        if self._ending or not self.begun:
            self.halt(INTERRUPTED)
            return
        self._ending = True
        self._end_with(INTERRUPTED)
        self._tell_all(wire.INTERRUPT, {})

    def halt(self, reason: str) -> None:
        """Everything ends now: unfinished calls are `open`, and what workers still have is shipped."""
        self._ending = True
        self._end_with(reason)
        self._tell_all(wire.HALT, {"reason": reason})
        if self.begun and any(member.under_way for member in self.members.values()):
            gevent.spawn_later(LAST_ROWS_S, self.finished.set)
        else:
            self.finished.set()

    def lose(self, member: Member, why: str) -> None:
        """This worker is gone, or can no longer be believed."""
        if not member.under_way:
            return
        at_ns = max(0, monotonic_ns() - self.epoch_ns) if self.begun else 0
        due = due_by(self.profile, member.share.parts, self._recorded, at_ns) if self.begun else 0
        member.lost = Lost(why, at_ns, max(0, due - member.inbox.original))
        self._send_away(member)
        self._spoil(f"lost worker {member.name}")
        self._see_whether_finished()

    def on_late(self, name: str) -> int | None:
        """One has come that is not planned for. Returns when, since the trial began; None: it has not."""
        self._spoil(f"late worker {name}")
        return max(0, monotonic_ns() - self.epoch_ns) if self.begun else None

    def _spoil(self, why: str) -> None:
        """The trial proves nothing any more: all drain, unless it is ending already for a reason of its own."""
        if self._ending:
            return
        self._spoiled = self._spoiled or why
        if not self.finished.is_set():
            self.interrupt()

    def process_ended(self, name: str, how: str) -> None:
        """A worker that was started here has ended, whatever it was doing."""
        member = next((one for one in self.members.values() if one.local and one.name == name), None)
        if member is None and not (self.begun or self._ending):
            member = self._roster.never_came(name)
        if member is not None:
            self.lose(member, how)

    def _watch(self) -> None:
        turned_ns = monotonic_ns()
        while not self.finished.is_set():
            gevent.sleep(wire.BEAT_S)
            now_ns = monotonic_ns()
            stuck, turned_ns = now_ns - turned_ns - int(wire.BEAT_S * 1e9) > wire.STUCK_NS, now_ns
            for member in self.members.values():
                if stuck:
                    member.heard_ns = now_ns
                # A worker of this machine that ends is known at once; silent, it is only busy.
                elif now_ns - member.heard_ns > wire.SILENT_NS * (10 if member.local else 1):
                    self.lose(member, f"nothing was heard of it for {(now_ns - member.heard_ns) / 1e9:.0f} s")

    def _see_whether_finished(self) -> None:
        if not any(member.under_way for member in self.members.values()):
            self.finished.set()

    # What workers say.

    def _heard(self, client_id: str, data: Mapping[str, Any]) -> Member | None:
        """The worker, if it takes part in this trial and speaks of it."""
        member = self.members.get(client_id)
        if member is None or data.get("trial") != self._number:
            return None
        member.heard_ns = monotonic_ns()
        return member

    def on_prepared(self, client_id: str, data: Mapping[str, Any]) -> None:
        member = self._heard(client_id, data)
        if member is not None:
            member.prepared = wire.text(data["error"]) if "error" in data else ""

    def on_rows(self, client_id: str, data: Mapping[str, Any]) -> None:
        member = self._heard(client_id, data)
        if member is None:
            return
        if member.lost is not None:  # the network was gone, and the worker was not
            self._send_away(member)
            return
        try:
            if not isinstance(data["data"], bytes):
                raise NotInOrder("rows that are not bytes")
            batch = Batch(wire.number(data["seq"]), wire.number(data["count"]), data["data"])
            if member.inbox.expects(batch):
                original = originals(batch.data)
                self._write(batch.data)
                member.inbox.written(batch, original)
        except NotInOrder as error:
            self.lose(member, f"it sent {error}")
            return
        except OSError as error:
            self.error = f"the ledger cannot be written: {error.strerror}"
            self.halt(ERROR)
            return
        self._tell(member, wire.ACK, {"seq": member.inbox.acknowledge})

    def _write(self, data: bytes) -> None:
        if self._rows is not None:
            self._rows.add(data)
            self._rows.flush()

    def on_progress(self, client_id: str, data: Mapping[str, Any]) -> None:
        member = self._heard(client_id, data)
        if member is not None:
            said = orjson.loads(data["progress"])
            member.progress = said if isinstance(said, dict) else {}

    def on_drained(self, client_id: str, data: Mapping[str, Any]) -> None:
        member = self._heard(client_id, data)
        if member is None or not member.under_way:
            return
        calls = wire.number(data["calls"])
        if calls != member.inbox.rows:
            self.lose(member, f"it ended with {calls} calls, of which {member.inbox.rows} came")
            return
        member.drained = {"calls": calls, "cpu_ns": wire.number(data["cpu_ns"])}
        reason = wire.text(data["reason"])
        self._end_with(reason)
        if reason != COMPLETED and not self._ending:
            # A rail stopped it, or it broke: nobody goes on without it.
            self._ending = True
            self._tell_all(wire.INTERRUPT, {})
        if data.get("error"):
            self.error = self.error or f"worker {member.name}: {wire.text(data['error'])}"
        self._see_whether_finished()

    def on_leaving(self, client_id: str, data: Mapping[str, Any]) -> None:
        member = self._heard(client_id, data)
        if member is not None and not self._ending:
            self.interrupt()

    # In the end.

    def release(self) -> None:
        """Workers may go: what they had is written."""
        if not self.begun:
            self.dismiss(f"the trial did not begin ({self._spoiled or 'it was stopped'})")
            return
        self._released = True
        for member in self.members.values():
            with suppress(Exception):
                self._tell(member, wire.OVER, {})

    def _send_away(self, member: Member) -> None:
        """A worker that is lost, should it still run: it must not go on by itself."""
        assert member.lost is not None
        with suppress(Exception):
            self._tell(member, wire.AWAY, {"why": f"it holds this worker for lost ({member.lost.why})"})

    def dismiss(self, why: str) -> None:
        """There is to be no trial. Workers of this machine end with their master, which says why."""
        self._released = True
        for member in self.members.values():
            if member.local:
                continue
            with suppress(Exception):
                self._runner.send_message(wire.AWAY, {"why": why}, member.client_id)

    def measure_again(self) -> None:
        """Once more the clocks of other machines: how far they have drifted apart."""
        self._clocks.measure(self.members)
        for member in self.members.values():
            if not member.local and member.lost is None:
                member.offset = clocks.over_a_trial(member.offset, clocks.estimate(member.exchanges))

    def progress(self) -> dict[str, Any]:
        now_ns = max(0, monotonic_ns() - self.epoch_ns) if self.begun else 0
        return merged([member.progress for member in self.members.values()], now_ns)

    def done(self) -> dict[str, Any]:
        """The last word: as that of a trial in one process, with what there is to say of the workers."""
        members = self._roster.in_order()
        lost = [member.loss() for member in members if member.lost is not None]
        for member in members if self.begun else ():
            if member.under_way:  # it had no time to end
                lost.append({"name": member.name, "why": "it had not ended", "calls": member.inbox.rows})
        reason = self.reason
        if self._spoiled is not None and reason in (COMPLETED, INTERRUPTED):
            reason = self._spoiled
        event: dict[str, Any] = {
            "event": "done",
            "reason": reason,
            "at_ns": max(0, monotonic_ns() - self.epoch_ns) if self.begun else 0,
            "calls": sum(member.inbox.rows for member in members),
            "cpu_ns": sum((member.drained or {}).get("cpu_ns", 0) for member in members),
            "workers": {
                "expected": self._roster.expected,
                "turned_away": self._roster.turned_away,
                "late": [late.told() for late in self._roster.late],
                "lost": lost,
                "all": [member.told() for member in members],
            },
        }
        return event | {"error": self.error} if self.error else event

    def _end_with(self, reason: str) -> None:
        if _badness(reason) > _badness(self.reason):
            self.reason = reason

    def _tell(self, member: Member, kind: str, data: dict[str, Any]) -> None:
        self._runner.send_message(kind, {"trial": self._number, **data}, member.client_id)

    def _tell_all(self, kind: str, data: dict[str, Any]) -> None:
        for member in self.members.values():
            if member.lost is None:
                self._tell(member, kind, data)


def _badness(reason: str) -> int:
    """A reason that this version does not know is as bad as an error."""
    return WORSE.index(reason) if reason in WORSE else WORSE.index(ERROR)
