"""Several workers at a service that a target file describes: its rails hold for all of them together."""

from __future__ import annotations

import re

import pytest

from harness import checks, trial
from harness.errors import BadInput
from harness.profile.loader import from_document
from harness.target.driver_process import Workers
from tests.live.awkward import rows_of, serving
from tests.live.target_trials import (
    PLANNED,
    PROFILE,
    TOKENS,
    answer,
    described,
    held_up,
    outcomes,
)

pytestmark = [pytest.mark.live, pytest.mark.untimed, pytest.mark.usefixtures("shop_tokens")]


def by_workers(profile, target, folder, here=2):
    loaded = from_document({**PROFILE, **profile}, checks=checks.PARAMETERS)
    made = trial.new_folder(folder, "trial")
    return trial.run(loaded, made, target, None, lambda event: None, Workers(here=here))


def test_workers_share_the_ceiling_and_sign_each_for_its_own_tenants(tmp_path):
    behave, most = held_up(0.4)
    with serving(behave) as server:
        target = described(server.url, tmp_path, limits={"max_rate": "100/s", "max_in_flight": 3})
        judged = by_workers({}, target, tmp_path)
        assert most() <= 3
        keys = {(seen.headers["overload-call"].split(".")[0], seen.headers["x-api-key"]) for seen in server.seen}
        assert keys == {("0", f"key {TOKENS['A']}"), ("1", f"key {TOKENS['B']}")}
        seen = len(server.seen)
        with pytest.raises(BadInput, match="max_in_flight is 3, and 4 workers are to share it"):
            by_workers({}, target, tmp_path, here=4)
    found = outcomes(judged)
    assert set(found) == {("served", None), ("dropped", "in_flight_ceiling")}
    assert (sum(found.values()), found["served", None]) == (PLANNED, seen)
    assert len(server.seen) == seen


def test_a_worker_that_sees_the_target_suffer_stops_them_all(tmp_path):
    async def behave(connection):
        await connection.answer(answer(503 if connection.request.headers["overload-call"] >= "1." else 200))
        return True

    abort = {"server_errors_pp": 30, "window": "1s", "least": 10}
    with serving(behave) as server:
        judged = by_workers({"duration": "6s"}, described(server.url, tmp_path, abort=abort), tmp_path)
    reason = judged.trial.manifest["ended"]["reason"]
    assert re.match(r"aborted: worker worker-\d: 100 % of the last \d+ calls ended in server errors", reason)
    assert len(server.seen) == len(rows_of(judged.trial.folder)) < 6 * PLANNED / 2
    assert judged.exit_code == 4
