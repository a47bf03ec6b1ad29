"""A shadow is told of every arrival, decides nothing, and tells what its policy would have decided."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.ledger.reader import DECISIONS, read_decisions
from harness.matrix import trial_in_virtual_time
from stub_service.admission.service import SharedService
from stub_service.admission.shadow import Shadow
from stub_service.config import AdmissionConfig, ServiceTimeConfig, SharedServiceConfig, from_json, to_json
from tests.conftest import WORKED_EXAMPLE, with_values
from tests.unit.ledgers import rows_of

FIFO = {"policy": "shared_fifo", "queue": 20}
SHORT = {
    "duration": "12s",
    "phases": {"calm": ["0s", "4s"], "burst": ["4s", "10s"]},
    "tenants.D.rate": ["8/s", {"from": "4s", "to": "10s", "rate": "60/s"}],
}
POLICIES = (
    FIFO,
    {"policy": "tenant_cap", "queue": 30, "cap": 3},
    {"policy": "fair_queues", "queue_per_tenant": 5},
    {"policy": "fair_queues", "queue_per_tenant": 5, "weights": {"A": 3}},
    {"policy": "shuffle_sharded", "queues": 8, "hand": 2, "queue": 6},
)
TIMES = ("200ms", {"distribution": "lognormal", "mean": "200ms", "sigma": 0.6}, {"mean": "100ms", "load_slope": 1.0})


def run(folder, values, **options):
    folder.mkdir()
    return trial_in_virtual_time(folder, with_values(WORKED_EXAMPLE, {**SHORT, **values}), **options)


def lines(folder, shadow):
    """The real decisions, or those of the shadow, as they stand in the file."""
    kept = (folder / DECISIONS).read_bytes().splitlines()
    return [line for line in kept if (orjson.loads(line).get("part") == "shadow") == shadow]


@settings(max_examples=8)
@given(
    decides=st.sampled_from(POLICIES),
    shadow=st.sampled_from(POLICIES),
    time=st.sampled_from(TIMES),
    seed=st.integers(0, 99),
    until=st.sampled_from(["start", "done"]),
)
def test_a_shadow_never_changes_what_is_decided(tmp_path_factory, decides, shadow, time, seed, until):
    folder = tmp_path_factory.mktemp("shadow")
    values = {"service.admission": decides, "service.service_time": time, "seed": seed, "patience_until": until}
    run(folder / "without", values)
    run(folder / "with", {**values, "service.shadow": shadow})
    assert lines(folder / "with", shadow=False) == lines(folder / "without", shadow=False)
    assert (folder / "with" / "calls.jsonl").read_bytes() == (folder / "without" / "calls.jsonl").read_bytes()
    assert lines(folder / "with", shadow=True)


def outcomes(folder, shadow):
    """Call -> (outcome, wait), of what started, was refused, or left the queue."""
    found = {}
    for row in rows_of(folder, DECISIONS):
        if (row.get("part") == "shadow") == shadow and row["outcome"] in (
            "served",
            "throttled",
            "expired",
            "cancelled",
        ):
            outcome = "expired" if row["outcome"] == "cancelled" else row["outcome"]
            found[row["call"]] = (outcome, row.get("queue_wait_ns") if outcome == "served" else None)
    return found


@pytest.mark.parametrize("time", TIMES, ids=str)
@pytest.mark.parametrize("until", ["start", "done"])
@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy["policy"])
def test_the_deciding_policy_in_shadow_tells_just_what_is_decided(tmp_path, policy, time, until):
    workers = [6, {"from": "6s", "to": "8s", "workers": 2}]
    values = {"service.admission": policy, "service.shadow": policy, "service.workers": workers}
    values |= {"patience": "300ms"}
    run(tmp_path / "t", {**values, "service.service_time": time, "patience_until": until})
    told, fact = outcomes(tmp_path / "t", shadow=True), outcomes(tmp_path / "t", shadow=False)
    assert {call: told[call] for call in fact} == fact
    assert {outcome for outcome, _ in fact.values()} == {"served", "throttled", "expired"}


def test_of_an_open_loop_a_shadow_foretells_the_trial_in_which_it_is_switched_on(tmp_path):
    fair = {"policy": "fair_queues", "queue_per_tenant": 5}
    still = {"tenants.D.replans": None}
    run(tmp_path / "shadow", {**still, "service.admission": FIFO, "service.shadow": fair})
    run(tmp_path / "on", {**still, "service.admission": fair})
    assert outcomes(tmp_path / "shadow", shadow=True) == outcomes(tmp_path / "on", shadow=False)


def test_rows_of_a_shadow_say_what_they_are_and_count_for_no_decision(tmp_path):
    trial = run(tmp_path / "t", {"service.admission": FIFO, "service.shadow": POLICIES[2]})
    rows = [row for row in rows_of(tmp_path / "t", DECISIONS) if "part" in row]
    assert {(row["part"], row["policy"]) for row in rows} == {("shadow", "fair_queues")}
    assert {row["outcome"] for row in rows} <= {"served", "throttled", "expired"}
    assert len({row["call"] for row in rows}) == len(rows)
    real = [row for row in rows_of(tmp_path / "t", DECISIONS) if "part" not in row and row["outcome"] != "started"]
    assert len(read_decisions(trial).key) == len(real)


def config(policy="shared_fifo", **fields):
    return SharedServiceConfig(((0, 2),), ServiceTimeConfig("fixed", 100), AdmissionConfig(policy, queue=2), **fields)


def test_ends_come_before_arrivals_of_an_instant_and_starts_after_them():
    told = []
    shadow = Shadow(SharedService(config()), lambda ticket, outcome, _, at: told.append((ticket.ref, outcome, at)))
    for ref, at in (("a", 0), ("b", 0), ("c", 50), ("d", 60), ("e", 70), ("f", 100)):
        shadow.arrive("A", 1.0, ref, 45, at)
    shadow.advance(201)
    assert told == [
        ("a", "served", 0), ("b", "served", 0), ("e", "throttled", 70), ("c", "expired", 95), ("d", "served", 100),
        ("f", "served", 100),
    ]  # fmt: skip


def test_a_new_epoch_moves_changes_of_workers_and_nothing_that_is_under_way():
    told = []
    changing = replace(config(), workers=((0, 1), (500, 2)))
    shadow = Shadow(SharedService(changing), lambda ticket, outcome, _, at: told.append((ticket.ref, at)), epoch_ns=10)
    shadow.arrive("A", 1.0, "a", None, 1000)
    shadow.set_epoch(1020)
    shadow.arrive("A", 1.0, "b", None, 1030)
    shadow.advance(2000)
    assert told == [("a", 1000), ("b", 1030)]


def test_a_configuration_with_a_shadow_and_weights_travels_as_json():
    weighted = AdmissionConfig("fair_queues", queue_per_tenant=3, weights=(("A", 2), ("B", 5)))
    made = replace(config(), admission=weighted, shadow=AdmissionConfig("shuffle_sharded", 4, queues=8, hand=2, salt=9))
    assert from_json(orjson.loads(orjson.dumps(to_json(made)))) == made
    older = to_json(config())
    del older["shadow"]
    assert from_json(older).shadow is None


def test_a_shadow_of_ten_thousand_instants_keeps_every_call():
    rng, told = Random(5), []
    shadow = Shadow(SharedService(config()), lambda ticket, outcome, _, at: told.append(ticket.ref))
    at = 0
    for ref in range(10_000):
        at += rng.randrange(60)
        shadow.arrive("A", 1.0, ref, rng.choice([None, 30, 300]), at)
    shadow.advance(at + 10_000)
    assert sorted(told) == list(range(10_000))
