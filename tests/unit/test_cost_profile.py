"""What a profile says of cost: its rules, its sentences, and what becomes of them in the stub and the simulator."""

from __future__ import annotations

from pathlib import Path
from random import Random

import orjson
import pytest
import yaml

from harness.errors import BadInput
from harness.profile.describe import describe
from harness.profile.loader import load
from harness.profile.model import Profile
from harness.profile.scale import scaled
from harness.simulate.service import capacity_config
from harness.workload.runs import RunCaller
from stub_service.capacity import cost_config as made

PROFILES = Path(__file__).resolve().parents[2] / "profiles" / "verification"
RECONCILED = PROFILES / "cost_reconciled.yaml"
MS = 1_000_000


def changed(tmp_path, edit):
    document = yaml.safe_load(RECONCILED.read_text())
    document.pop("checks")
    edit(document)
    path = tmp_path / "p.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return path


def set_at(document, path, value):
    *steps, last = path
    for step in steps:
        document = document[step]
    document[last] = value


COST = ("capacity", "cost")
SPREAD = ("tenants", "spread", "runs", 0)
WRONG = [
    ((*COST, "tenants", "nobody"), {"rate": "1/s", "burst": 5}, "capacity.cost.tenants.nobody", "no such tenant"),
    ((*COST, "each"), {"rate": "0/s", "burst": 5}, "capacity.cost.each.rate", "a debt would never be paid"),
    (
        (*COST, "classes", "chat_turn", "floor"), 501, "capacity.cost.classes.chat_turn.floor",
        "above what the bucket of 'small' ever holds (burst: 500), so not even the first request would be admitted",
    ),
    ((*COST, "lease"), "0s", "capacity.cost.lease", "leave it out to wait for the deadline"),
    ((*COST, "queues"), {"short": {"kept": 2}}, "capacity.cost.queues.short.kept", "nothing can be kept"),
    ((*COST, "learning", "weight"), 2, "capacity.cost.learning.weight", "expected at most 1.0"),
    ((*COST, "pools"), {"sessions": 0}, "capacity.cost.pools.sessions", "expected at least 1"),
    (("capacity", "dependencies", "model", "quota"), {"rate": "0/s", "burst": 1},
     "capacity.dependencies.model.quota.rate", "above zero"),
    ((*SPREAD, "crash_after"), "0s", "tenants.spread.runs.0.crash_after", "above zero"),
    ((*SPREAD, "request_class"), "chat", "tenants.spread.runs.0.request_class", "chat_turn"),
    ((*SPREAD, "batches", 0, 0, "usage"), {"tokens": {"distribution": "lognormal", "mean": 4}},
     "tenants.spread.runs.0.batches.0.0.usage.tokens", "a lognormal usage needs sigma"),
    ((*SPREAD, "batches", 0, 0, "usage"), {"tokens": {"mean": 4, "values": [1]}},
     "tenants.spread.runs.0.batches.0.0.usage.tokens", "a fixed usage does not use values"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "value", "at", "rule"), WRONG, ids=[case[2] for case in WRONG])
def test_a_contradiction_names_its_place_and_its_remedy(tmp_path, path, value, at, rule):
    with pytest.raises(BadInput) as caught:
        load(changed(tmp_path, lambda document: set_at(document, path, value)))
    line = next(line for line in str(caught.value).splitlines() if f"{at}: " in line)
    assert rule in line


def test_sessions_that_are_all_kept_for_others_are_refused(tmp_path):
    def edit(document):
        document["capacity"]["cost"]["pools"] = {"sessions": 4}
        document["capacity"]["cost"]["queues"] = {"batch": {"kept": 4}}

    with pytest.raises(BadInput, match="all 4 sessions are kept for other sizes, so no short run would ever begin"):
        load(changed(tmp_path, edit))


def test_a_tool_that_uses_two_things_is_refused(tmp_path):
    def edit(document):
        again = {**document["tenants"]["spread"]["runs"][0], "name": "again"}
        again["batches"] = [[{"dependency": "model", "tool": "chat", "usage": {"tokens": 3}}]]
        document["tenants"]["spread"]["runs"].append(again)

    with pytest.raises(BadInput, match=r"runs\.1\.batches\.0\.0\.usage: the tool 'chat' of this tenant uses"):
        load(changed(tmp_path, edit))


def test_what_runs_cost_is_not_asked_where_nobody_counts(tmp_path):
    with pytest.raises(BadInput, match="nobody counts what runs cost here"):
        load(changed(tmp_path, lambda document: document["capacity"].pop("cost")))


def test_profile_check_says_what_will_happen():
    said = " ".join(describe(load(RECONCILED).profile).sentences)
    for sentence in (
        "Cost: a bucket of tokens for each tenant: parallel 100/s up to 1,000, small 500/s up to 500, each other ",
        "tenant 40,000/s up to 60,000.",
        "A run whose agent asks for nothing for 300ms is ended and settled.",
        "a tool_heavy, forecast at 1,000 tokens at first, queued as standard; it uses about 1,200.",
        "gone without a word after 15ms",
        "about 6,000 tokens/s of a bucket of 100/s, so some runs will be refused until it is paid.",
    ):
        assert sentence in said
    said = " ".join(describe(load(PROFILES / "cost_unwound.yaml").profile).sentences)
    assert "it claims 11 memory writes of 10, so every run will be refused." in said
    assert "Runs hold at most 8 sessions, 10 memory writes, 10 tool calls at once" in said
    said = " ".join(describe(load(PROFILES / "cost_corridor.yaml").profile).sentences)
    assert "model serves 40,000 tokens/s to all together (burst 6,000)." in said


def test_the_configuration_is_what_the_profile_says_and_the_layer_is_told_of_no_usage():
    config = capacity_config(load(RECONCILED).profile)
    assert config.cost is not None
    assert config.cost.buckets[0] == made.BucketLimits("parallel", 100.0, 1000)
    assert config.cost.buckets[-1] == made.BucketLimits("", 40000.0, 60000)
    assert config.cost.classes[1] == made.ClassForecast("tool_heavy", "standard", 800, 100)
    assert config.cost.lease_ns == 300 * MS
    spread = next(usage for usage in config.usages if usage.tenant == "spread")
    assert spread.tokens == made.Draw("lognormal", 600, 2.3, 20000)
    assert spread.bytes == made.Draw("fixed", 2000)


def test_a_time_scale_raises_rates_and_leaves_amounts():
    config = capacity_config(scaled(load(RECONCILED).profile, 0.5))
    assert config.cost is not None
    assert config.cost.buckets[0] == made.BucketLimits("parallel", 200.0, 1000)
    assert config.cost.lease_ns == 150 * MS


def test_without_cost_nothing_of_it_is_configured_or_sent():
    profile = load(PROFILES / "v01.yaml").profile
    config = capacity_config(profile)
    assert (config.cost, config.usages) == (None, ())
    name, tenant = next(iter(profile.tenants.items()))
    call = RunCaller(name, 0, tenant.runs, profile.duration, Random(1)).take()
    assert not {"request_class", "forecast"} & set(orjson.loads(call.body))


# --- the agent that vanishes


def caller(**group):
    document = yaml.safe_load(RECONCILED.read_text())
    document.pop("checks")
    one = {"name": "g", "at": "0s", "batches": [[{"dependency": "model"}]] * 2, **group}
    document["tenants"] = {"A": {"runs": [one]}}
    document["capacity"]["cost"]["tenants"] = {}
    profile = Profile.model_validate(document)
    return RunCaller("A", 0, profile.tenants["A"].runs, profile.duration, Random(1))


def play(made, takes_ns=10 * MS):
    """What it does when each call is served `takes_ns` after it was due: (action, due [ms])."""
    seen = []
    while made.next_ns < 2**60:
        call = made.take()
        seen.append((call.action, call.due_ns // MS))
        call.done_ns, call.outcome = call.due_ns + takes_ns, "served"
        call.answer = {"run": f"r{call.seq}"} if call.action == "open" else {}
        made.on_outcome(call)
    return seen


def test_an_agent_that_vanishes_asks_for_nothing_more():
    assert play(caller()) == [("open", 0), ("submit", 10), ("submit", 20), ("finish", 30)]
    assert play(caller(crash_after="15ms")) == [("open", 0), ("submit", 10)]
    assert play(caller(crash_after="25ms")) == [("open", 0), ("submit", 10), ("submit", 20)]
    assert play(caller(crash_after="5ms")) == [("open", 0)]


def test_its_sub_agents_vanish_with_it_and_it_is_not_cancelled_afterwards():
    children = [{"batches": [[{"dependency": "model"}]]}]
    assert play(caller(crash_after="15ms", children=children)) == [("open", 0), ("open", 10)]
    assert play(caller(crash_after="15ms", cancel_after="40ms")) == [("open", 0), ("submit", 10)]


def test_it_says_what_its_run_will_cost():
    call = caller(request_class="tool_heavy", forecast={"tools": 3}).take()
    body = orjson.loads(call.body)
    assert body["request_class"] == "tool_heavy"
    assert body["forecast"] == {"depth": 1, "fan_out": 1, "tools": 3, "memory": 0}
