"""The lab's runs: the figures of `overload simulate`, verdicts of the very checks, a trace that adds up, a bound."""

from __future__ import annotations

from collections import Counter

import orjson
import pytest

from harness.checks.verdict import Word
from harness.lab import run as lab
from harness.lab.inputs import DEFAULTS, TOUR, read
from harness.matrix import judge_in_virtual_time
from harness.simulate.ensemble import figures, member

SHORT = {**DEFAULTS, "duration": "40s", "burst.from": "10s", "burst.for": "15s"}


def answered(inputs):
    return orjson.loads(lab.run(inputs))


@pytest.fixture(scope="module")
def answer():
    return answered(SHORT)


@pytest.mark.parametrize("change", [{}, {"policy": "fair_queues"}, {"budget": "on"}, {"patience": ""}], ids=str)
def test_figures_are_those_of_overload_simulate(change):
    inputs = {**SHORT, **change}
    loaded = read(inputs).loaded
    assert loaded is not None
    theirs, mine = figures(loaded.profile), answered(inputs)["summary"]
    assert mine["ordinary_served"] == theirs.ordinary_served
    assert (mine["worst"] or {}).get("share") == theirs.worst_ordinary
    assert mine["agent_offered"] == theirs.agent_offers
    assert (mine["agent_replans"], mine["agent_held_back"]) == (theirs.replans, theirs.held_back)
    assert (mine["open"], mine["worker_s"]) == (theirs.open, theirs.worker_s)


def test_members_of_the_ensemble_are_those_of_overload_simulate():
    loaded = read(SHORT).loaded
    assert loaded is not None
    made = orjson.loads(lab.members(SHORT, (0, 5)))["members"]
    for number, one in zip((0, 5), made, strict=True):
        theirs = member(loaded.profile, 1, number)
        assert one["summary"]["ordinary_served"] == theirs.ordinary_served
        assert one["summary"]["agent_offered"] == theirs.agent_offers
        assert one["word"] == "FAIL"


@pytest.mark.parametrize("step", TOUR, ids=lambda step: step.title)
def test_verdicts_are_those_of_a_ledger_on_a_disk(step):
    """A trial in memory is judged as one that was written and read back, on all six rows."""
    inputs = {**DEFAULTS, **dict(step.change)}
    loaded = read(inputs).loaded
    assert loaded is not None
    written = {v.check: v for v in judge_in_virtual_time(loaded.document).verdicts}
    mine = {v["check"]: v for v in answered(inputs)["verdicts"]}
    for check in ("fairness.ordinary_unmoved", "agent.replan_share"):
        assert mine[check]["word"] == written[check].word.value
        assert mine[check]["sentence"] == written[check].sentence
    hurt = step.variant in ("", "no_replans", "tenant_cap")
    assert mine["fairness.ordinary_unmoved"]["word"] == (Word.FAIL if hurt else Word.PASS).value


def test_thin_evidence_is_inconclusive_and_says_what_to_add():
    inputs = {**SHORT, "policy": "fair_queues", "duration": "8s", "burst.from": "3s", "burst.for": "2s"}
    verdict = next(v for v in answered(inputs)["verdicts"] if v["check"] == "fairness.ordinary_unmoved")
    assert verdict["word"] == "INCONCLUSIVE"
    assert verdict["add"]


def test_a_run_repeats_and_another_seed_does_not():
    poisson = {**SHORT, "pace": "poisson"}
    assert lab.run(poisson) == lab.run(poisson)
    assert answered(poisson)["tenants"] != answered({**poisson, "seed": "2"})["tenants"]


def test_the_trace_adds_up_to_the_table(answer):
    trace, rows = answer["trace"], answer["tenants"]
    columns = trace["columns"]
    assert {len(column) for column in columns.values()} == {trace["total"]}
    assert columns["t_us"] == sorted(columns["t_us"])
    seen = Counter(
        (tenant, trace["kinds"][kind]) for tenant, kind in zip(columns["tenant"], columns["kind"], strict=True)
    )
    for place, row in enumerate(rows):
        assert seen[place, "served"] == row["served"] == seen[place, "started"]
        assert seen[place, "refused"] == row["refused"]
        assert seen[place, "abandoned"] == row["abandoned"]
        assert seen[place, "queued"] + seen[place, "refused"] == row["offered"]


def test_each_replan_names_the_call_that_it_follows(answer):
    columns = answer["trace"]["columns"]
    rounds = {}
    for tenant, seq, round_, parent in zip(*(columns[n] for n in ("tenant", "seq", "round", "parent")), strict=True):
        rounds[tenant, seq] = round_
        assert (parent >= 0) == (round_ > 0)
        if parent >= 0:
            assert rounds[tenant, parent] == round_ - 1


def test_calls_held_back_are_in_trace_and_table():
    made = answered({**SHORT, "budget": "on"})
    held = made["trace"]["columns"]["kind"].count(lab.KINDS.index("held_back"))
    assert held == made["tenants"][-1]["held_back"] > 0


def test_the_queue_over_time_has_the_highest_of_each_bin(answer):
    series, columns = answer["series"], answer["trace"]["columns"]
    assert max(series["waiting"]) == max(columns["waiting"]) == answer["summary"]["most_waiting"]
    assert max(series["running"]) == 8
    assert len(series["waiting"]) == len(series["starts"]) == len(series["lines"][0]["offered"])


def test_every_tenant_has_a_line_of_its_own():
    many = {**DEFAULTS, "tenants": "12", "duration": "5s", "burst.from": "1s", "burst.for": "1s"}
    for i in range(12):
        many |= {f"tenant.{i}.name": f"t{i}", f"tenant.{i}.rate": "1/s", f"tenant.{i}.weight": "1"}
    made = answered(many)
    assert [line["name"] for line in made["series"]["lines"]] == [*(f"t{i}" for i in range(12)), "D"]


def test_a_run_without_a_call_is_told_and_not_a_fault():
    nothing = {**SHORT, "agent.rate": "0/s", "burst.rate": "0/s", "tenants": "1", "tenant.0.rate": "0/s"}
    made = answered({k: v for k, v in nothing.items() if not k.startswith(("tenant.1", "tenant.2"))})
    assert made["calls"] == 0
    assert {verdict["word"] for verdict in made["verdicts"]} == {"INCONCLUSIVE"}


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"burst.rate": "1000000/s"}, "duration"),
        ({"duration": "720h", "burst.from": "1h"}, "duration"),
        ({"replans.calls": "100", "replans.rounds": "20"}, "replans.rounds"),
    ],
)
def test_a_run_that_is_too_long_is_refused_with_the_rule(change, field, monkeypatch):
    monkeypatch.setattr(lab, "MOST_CALLS", 20_000)
    made = answered({**DEFAULTS, **change})
    assert list(made["errors"]) == [field]
    assert "at most 20,000 calls" in made["errors"][field][0]
    assert "errors" in orjson.loads(lab.members({**DEFAULTS, **change}, (0,)))


def test_a_trace_is_cut_and_says_so_while_the_figures_stay_whole(monkeypatch, answer):
    monkeypatch.setattr(lab, "MOST_TRACED", 100)
    made = answered(SHORT)
    assert len(made["trace"]["columns"]["t_us"]) == 100
    assert made["trace"]["total"] == answer["trace"]["total"]
    assert made["tenants"] == answer["tenants"]
    assert made["series"] == answer["series"]


def test_wrong_inputs_come_back_as_errors_from_every_question():
    for answer in (lab.run({**DEFAULTS, "workers": "x"}), lab.members({**DEFAULTS, "workers": "x"}, (0,))):
        assert orjson.loads(answer)["errors"].keys() == {"workers"}
