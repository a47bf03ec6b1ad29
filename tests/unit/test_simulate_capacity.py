"""Agent runs in virtual time: the running example end to end, determinism, the drain limit, and what is refused."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import orjson
import pytest

from harness import trial
from harness.errors import BadInput
from harness.ledger.reader import ARRIVALS, CALLS, DECISIONS, EFFECTS, MANIFEST
from harness.profile.loader import from_document, load
from harness.profile.model import Profile
from harness.simulate.capacity import CapacitySimulation
from harness.simulate.service import capacity_config
from harness.workload.plan import planned
from stub_service.capacity import config as made
from stub_service.capacity.config import from_json, to_json
from stub_service.defects.registry import CAPACITY, DEFECTS, SHARED, Defect

ROOT = Path(__file__).resolve().parents[2]
TICKET = ROOT / "profiles" / "support_ticket.yaml"
FILES = (CALLS, DECISIONS, ARRIVALS, EFFECTS)
S = 1_000_000_000

SMALL = {
    "name": "small",
    "duration": "2s",
    "drain": "1s",
    "capacity": {
        "ceiling": 10,
        "dependencies": {
            "customer": {
                "workers": 4,
                "service_time": "100ms",
                "reads": {"limit": 4, "timeout": "1s"},
                "writes": {"limit": 4, "timeout": "1s"},
                "circuit": {"window": "1s", "slow": "500ms", "open_for": "1s", "lease": "1s"},
            }
        },
        "retry": {"base": "100ms", "most": "1s"},
        "recovery": {"from_rate": "5/s", "to_rate": "50/s", "ramp": "1s"},
    },
    "tenants": {"A": {"runs": [{"name": "g", "at": "0s", "count": 3, "batches": [[{"dependency": "customer"}]]}]}},
}


def document(**changes) -> dict:
    return orjson.loads(orjson.dumps({**SMALL, **changes}))


def simulated(folder: Path, profile=None, **options) -> Path:
    folder.mkdir()
    trial.simulate(profile or load(TICKET, **options), folder)
    return folder


def rows(folder: Path, name: str) -> list[dict]:
    return [orjson.loads(line) for line in (folder / name).read_bytes().splitlines()]


def digest(folder: Path) -> str:
    return hashlib.sha256(b"".join((folder / name).read_bytes() for name in FILES)).hexdigest()


@pytest.mark.parametrize("variant", [None, "flood"])
def test_the_running_example_is_served_and_its_audit_passes(tmp_path, variant):
    folder = simulated(tmp_path / "trial", variant=variant)
    calls = rows(folder, CALLS)
    assert Counter(row["outcome"] for row in calls) == {"served": len(calls)}
    opens = Counter(row["tenant"] for row in calls if row["action"] == "open")
    assert opens == {"support": 178, "staff": 30, "background": 300 if variant else 100}
    assert {row["user_status"] for row in calls if row["action"] == "submit"} == {"done"}
    verdicts = {verdict.check: verdict.word.value for verdict in trial.judge(folder, write=False).verdicts}
    assert {name: verdicts[name] for name in ("trial.conserved", "trial.on_time")} == {
        "trial.conserved": "PASS",
        "trial.on_time": "PASS",
    }
    ended = orjson.loads((folder / MANIFEST).read_bytes())["ended"]
    assert ended["leftovers"]
    assert set(ended["leftovers"].values()) == {0}


def test_the_rows_of_all_files_belong_together(tmp_path):
    folder = simulated(tmp_path / "trial")
    steps = [
        row for row in rows(folder, DECISIONS) if row["kind"] == "step" and row["outcome"] in ("served", "coalesced")
    ]
    arrivals = rows(folder, ARRIVALS)
    started = Counter((row["run"], row["step"]) for row in steps if row["outcome"] == "served")
    assert started == Counter((row["run"], row["step"]) for row in arrivals)
    coalesced = [row for row in steps if row["outcome"] == "coalesced"]
    assert {row["tool"] for row in coalesced} == {"enrich_ticket"}
    payments = [row for row in rows(folder, EFFECTS) if row["dependency"] == "billing"]
    assert len(payments) == len({row["idempotency_key"] for row in payments}) == 58 + 30
    requests = {row["request"] for row in rows(folder, DECISIONS) if "request" in row and row["kind"] == "batch"}
    assert requests == {f"{row['call']}.1" for row in rows(folder, CALLS) if row["action"] == "submit"}


def test_same_seed_same_bytes(tmp_path):
    one, two = simulated(tmp_path / "one", variant="flood"), simulated(tmp_path / "two", variant="flood")
    assert digest(one) == digest(two)


def test_same_bytes_in_another_process(tmp_path):
    here = digest(simulated(tmp_path / "here"))
    code = (
        "import sys; from pathlib import Path; from harness import trial; from harness.profile.loader import load\n"
        "trial.simulate(load(Path(sys.argv[1])), Path(sys.argv[2]))"
    )
    for salt in ("1", "2"):
        there = tmp_path / salt
        there.mkdir()
        subprocess.run(
            [sys.executable, "-c", code, str(TICKET), str(there)],
            check=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": salt},
        )
        assert digest(there) == here


def test_counts_do_not_depend_on_the_time_scale(tmp_path):
    counts = [
        Counter(
            (row["tenant"], row["action"], row["outcome"]) for row in rows(simulated(tmp_path / name, **scale), CALLS)
        )
        for name, scale in (("whole", {}), ("half", {"time_scale": 0.5}))
    ]
    assert counts[0] == counts[1]


def test_instants_are_exact(tmp_path):
    folder = simulated(tmp_path / "trial", from_document(document()))
    calls = [(row["action"], row["due_ns"], row["done_ns"]) for row in rows(folder, CALLS)]
    assert calls == [
        *[("open", 0, 0)] * 3,
        *[("submit", 0, S // 10)] * 3,
        *[("finish", S // 10, S // 10)] * 3,
    ]
    arrivals = [(row["t_ns"], row["started_ns"], row["ended_ns"]) for row in rows(folder, ARRIVALS)]
    assert arrivals == [(0, 0, S // 10)] * 3
    assert orjson.loads((folder / MANIFEST).read_bytes())["ended"]["at_ns"] == S // 10


def test_what_has_not_ended_by_the_drain_limit_is_open_and_the_audit_says_so(tmp_path):
    hanging = [{"dependency": "customer", "kind": "hang"}]
    envelope = {"deadline": "60s", "retry_tokens": 0}
    changed = document(faults=hanging)
    changed["capacity"]["dependencies"]["customer"]["reads"]["timeout"] = "50s"
    changed["capacity"]["envelope"] = envelope
    folder = simulated(tmp_path / "trial", from_document(changed))
    left = [row for row in rows(folder, CALLS) if row["outcome"] == "open"]
    assert [(row["action"], row["reason"], row["done_ns"]) for row in left] == [("submit", "drain_limit", 3 * S)] * 3
    (verdict,) = trial.judge(folder, ["trial.conserved"], write=False).verdicts
    assert verdict.word.value == "PASS"
    assert "3 run(s) had not come to their end at the drain limit" in verdict.sentence


def test_an_error_in_the_controller_is_told_at_once(monkeypatch):
    simulation = CapacitySimulation(Profile.model_validate(document()), lambda call: None)

    async def broken(*_):
        raise ZeroDivisionError("in the controller")

    monkeypatch.setattr("stub_service.capacity.controller.Controller.submit", broken)
    with pytest.raises(ZeroDivisionError, match="in the controller"):
        simulation.run()


def test_a_defect_is_laid_over_the_controller(monkeypatch):
    seen = []

    def lay(controller, config):
        seen.append((type(controller).__name__, type(config).__name__))

    monkeypatch.setitem(DEFECTS, "probe", Defect("probe", "for this test", (), lay, part=CAPACITY))
    CapacitySimulation(Profile.model_validate(document()), lambda call: None, defect="probe").run()
    assert seen == [("Controller", "CapacityConfig")]


def test_a_defect_that_nothing_would_meet_is_bad_input(tmp_path, monkeypatch):
    monkeypatch.setitem(DEFECTS, "shared_one", Defect("shared_one", "", (), lambda service, config: None, part=SHARED))
    folder = tmp_path / "trial"
    folder.mkdir()
    with pytest.raises(BadInput) as error:
        trial.run(from_document(document()), folder, trial.SIMULATOR, "shared_one")
    assert str(error.value) == (
        "defect 'shared_one' needs tenants that call the shared service: nothing in profile 'small' would meet it"
    )
    assert not folder.exists()


def test_runs_without_a_capacity_layer_are_bad_input(tmp_path):
    changed = document()
    del changed["capacity"]
    with pytest.raises(BadInput) as error:
        trial.run(from_document(changed), trial.new_folder(tmp_path, "trial"), trial.SIMULATOR)
    assert str(error.value) == "profile 'small' describes no capacity layer: add `capacity:` to simulate its runs"


def test_runs_and_shared_calls_in_one_trial_are_for_live_only(tmp_path):
    changed = document()
    changed["tenants"]["B"] = {"rate": "1/s"}
    with pytest.raises(BadInput) as error:
        trial.run(from_document(changed), trial.new_folder(tmp_path, "trial"), trial.SIMULATOR)
    assert str(error.value) == (
        "tenant 'B' calls the shared service, and others have runs: in virtual time a trial has either kind; split the "
        "profile, or run it live (overload run)"
    )


def test_planned_counts_the_runs_that_begin():
    assert planned(load(TICKET).profile) == {
        "support": {"calm": 58, "burst": 60, "recovery": 60},
        "staff": {"calm": 10, "burst": 10, "recovery": 10},
        "background": {"burst": 100},
    }


def test_the_configuration_is_that_of_the_profile():
    changed = document(
        seed=9,
        faults=[
            {"dependency": "customer", "kind": "slow", "factor": 10, "from": "1s", "to": "2s", "operation": "read"},
            {"dependency": "customer", "kind": "retry_after", "retry_after": "2", "times": 3},
        ],
    )
    changed["capacity"]["reserves"] = {"interactive": {"slots": 2, "floor": 1}}
    changed["capacity"]["shares"] = {"A": {"slots": 1, "queue": 7}}
    changed["capacity"]["envelope"] = {"budgets": {"customer": 6}}
    config = capacity_config(Profile.model_validate(changed))
    assert config.dependencies[0].expected_ns == config.dependencies[0].service_ns == S // 10
    assert config.dependencies[0].reads == made.Bulkhead(4, 50, S)
    assert config.reserves == (made.Reserve("interactive", 2, 1),)
    assert config.shares == (made.TenantShare("A", 1, 7),)
    assert config.envelope == made.EnvelopeDefaults(90 * S, 20, 3, 2, (("customer", 6),))
    assert config.recovery == made.Recovery(5.0, 50.0, S)
    assert config.seed == 9
    assert config.faults == (
        made.Fault("customer", "slow", S, 2 * S, 0, "read", 10.0),
        made.Fault("customer", "retry_after", times=3, retry_after="2"),
    )
    assert from_json(orjson.loads(orjson.dumps(to_json(config)))) == config
