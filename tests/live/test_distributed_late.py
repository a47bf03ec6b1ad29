"""A worker that a trial was not planned for: turned away, whenever it comes; the trial INVALID, its record whole."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import time

import pytest

from harness import trial
from harness.checks.verdict import Word
from harness.ledger import manifest as manifests
from harness.ledger.writer import write_manifest
from harness.target.driver_process import LiveProcess, Workers
from tests.conftest import ROOT
from tests.live.awkward import OK, manifest_of, rows_of, serving
from tests.live.distributing import free_port, join

pytestmark = pytest.mark.live

TENANTS = {"A": {"rate": "40/s"}, "B": {"rate": "40/s"}}


class Trial:
    """One that a worker here and one elsewhere drive. `one_more` has another join, and returns what that was told."""

    def __init__(self, folder, url, duration):
        self.folder, self.port = folder, free_port()
        profile = {
            "duration": duration,
            "drain": "40s",
            "patience": "40s",
            "patience_until": "done",
            "tenants": TENANTS,
        }
        self.document = manifest_of(profile, url)
        (folder / "manifest.json").write_text(json.dumps(self.document))
        self.worker = join(self.port, "far")
        self.driver = LiveProcess(folder, workers=Workers(1, 1, f"127.0.0.1:{self.port}"))

    def __enter__(self):
        self.driver.ready()
        return self

    def __exit__(self, *_):
        self.driver.close()
        self.worker.kill()
        self.worker.communicate()

    def one_more(self, name="too-late"):
        late = join(self.port, name)
        _, said = late.communicate(timeout=60)
        assert late.returncode == 2, said
        return said

    def done(self, on_progress=lambda event: None):
        for event in self.driver.events():
            if event["event"] == "progress":
                on_progress(event)
        return event

    def sentence(self, done):
        """Of `trial.conserved`, as judged from the folder: INVALID."""
        end = manifests.end(self.document, done["reason"], done["at_ns"], done["calls"], None, None, done["workers"])
        write_manifest(self.folder, end)
        (found,) = [one for one in trial.judge(self.folder).verdicts if one.check == "trial.conserved"]
        assert found.word is Word.INVALID
        return found.sentence


async def served(connection):
    await connection.answer(OK)
    return True


TOLD = (
    "overload worker: turned away by the master: the trial has all of the 2 workers that it was planned for, and is "
    "INVALID now that another has joined; if this one is to take part, ask for 3 at its start\n"
)
PLANNED = (
    ", and the trial was planned for 2 and had them (ask for 3 workers in all, or start no more); "
    "the trial did not complete: it ended as 'late worker too-late'"
)


def test_after_the_deal_and_before_the_epoch_nothing_is_sent(tmp_path):
    with serving(served) as server, Trial(tmp_path, server.url, "60s") as one:
        assert one.one_more() == TOLD
        one.driver.begin(time.monotonic_ns() + 100_000_000)
        done = one.done()
        assert one.worker.wait(20) == 2
        assert "the trial did not begin (late worker too-late)" in one.worker.stderr.read()
    assert server.seen == []
    assert (done["reason"], done["calls"], done["at_ns"]) == ("late worker too-late", 0, 0)
    assert (done["workers"]["turned_away"], done["workers"]["lost"]) == (1, [])
    assert one.sentence(done).startswith("The record does not add up: worker too-late joined before it began" + PLANNED)


def test_in_the_middle_all_drain_and_every_row_is_there(tmp_path):
    told = []

    def once(event):
        if event["now_ns"] > 500_000_000 and not told:
            told.append(one.one_more())

    with serving(served) as server, Trial(tmp_path, server.url, "300s") as one:
        one.driver.begin(time.monotonic_ns() + 100_000_000)
        done = one.done(once)
        assert one.worker.wait(20) == 0, one.worker.stderr.read()
    assert told == [TOLD]
    assert done["reason"] == "late worker too-late"
    assert done["at_ns"] < 120_000_000_000
    assert done["calls"] == len(rows_of(tmp_path)) == len(server.seen) > 20
    ((late),) = done["workers"]["late"]
    assert late["name"] == "too-late"
    assert 500_000_000 < late["at_ns"] < done["at_ns"]
    sentence = one.sentence(done)
    assert sentence.startswith(f"The record does not add up: worker too-late joined at {late['at_ns'] / 1e9:.1f} s")
    assert PLANNED in sentence
    assert "unaccounted" not in sentence


def test_when_all_is_sent_and_the_last_answers_and_rows_are_awaited(tmp_path):
    let_go = threading.Event()

    async def behave(connection):
        if int(connection.request.headers["overload-call"].split(".")[1]) >= 70:
            await asyncio.to_thread(let_go.wait, 60)
        await connection.answer(OK)
        return True

    def once(event):
        if event["now_ns"] > 2_500_000_000 and not let_go.is_set():
            assert one.one_more() == TOLD
            let_go.set()

    with serving(behave) as server, Trial(tmp_path, server.url, "2s") as one:
        one.driver.begin(time.monotonic_ns() + 100_000_000)
        done = one.done(once)
        assert one.worker.wait(20) == 0, one.worker.stderr.read()
    assert done["reason"] == "late worker too-late"
    rows = rows_of(tmp_path)
    assert done["calls"] == len(rows) == len(server.seen) == 160, "nothing is missing, and it is INVALID all the same"
    assert {row["outcome"] for row in rows} == {"served"}
    assert PLANNED in one.sentence(done)


AFTER_THE_LAST_ROW = """
import json
from pathlib import Path
from types import SimpleNamespace

from harness.live.distributed import wire
from harness.live.distributed.master import Master
from harness.live.manifest import manifest_of

said = []
runner = SimpleNamespace(custom_messages={}, register_message=lambda kind, act: None,
                         send_message=lambda kind, data, client_id=None: said.append((kind, client_id)))
master = Master(runner, manifest_of(json.loads(%r), "the manifest"), lambda name: iter(()), Path("."), None, 1)
hello = {"protocol": wire.PROTOCOL, "host": "h", "pid": 1, "local": True}
hear = master._roster.on_hello
hear("one", {**hello, "name": "worker-1"})
master.begin(1)
master.on_drained("one", {"trial": 1, "calls": 0, "cpu_ns": 0, "reason": "completed"})
assert master.finished.is_set() and master.done()["reason"] == "completed"
for n in range(3):
    hear("more", {**hello, "name": "more"})
for n in range(40):
    hear(f"flood-{n}", {**hello, "name": "flood"})
done = master.done()
assert done["reason"] == "late worker more"
assert done["workers"]["turned_away"] == said.count((wire.AWAY, "more")) + 40 == 41
assert len(done["workers"]["late"]) == 20
assert (wire.INTERRUPT, "one") not in said
"""


def test_between_the_last_row_and_the_last_word(tmp_path):
    """In a process of its own: what the master imports patches the process."""
    document = json.dumps(manifest_of({"duration": "1s", "tenants": {"A": {"rate": "1/s"}}}, "http://127.0.0.1:9"))
    done = subprocess.run(
        [sys.executable, "-c", AFTER_THE_LAST_ROW % document], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
