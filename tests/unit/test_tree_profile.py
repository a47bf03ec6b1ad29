"""Trees in a profile: sub-agents of sub-agents, their limits, what is said beforehand, and what is refused."""

from __future__ import annotations

from copy import deepcopy
from random import Random

import orjson
import pytest
from pydantic import ValidationError

from harness.errors import BadInput
from harness.matrix import profile_of_check
from harness.profile.loader import load
from harness.profile.model import Profile
from harness.profile.run_demand import of_group, steps_in
from harness.profile.run_describe import sentences
from harness.profile.tree_demand import limits_of, prices_of, wanted_by
from harness.simulate.service import capacity_config
from harness.workload.runs import RunCaller
from stub_service.capacity.tree import REASONS, UNSAID_PAYLOAD, TreeLimits
from tests.conftest import with_values

DOCUMENT = load(profile_of_check("tree.bounded")).document
LOOK = [[{"dependency": "model", "tool": "look"}]]


def group(**values):
    document = deepcopy(DOCUMENT)
    document["tenants"] = {"A": {"runs": [{"name": "g", "at": "0s", "batches": LOOK, **values}]}}
    profile = Profile.model_validate(document)
    return profile, profile.tenants["A"].runs[0]


def nested(levels, **child):
    found = []
    for _ in range(levels):
        found = [{"batches": LOOK, **child, **({"children": found} if found else {})}]
    return found


def test_what_a_tree_asks_for_is_counted_at_every_level():
    children = [{"batches": LOOK * 2, "count": 2, "children": [{"batches": LOOK, "count": 3}]}, {"batches": LOOK}]
    profile, made = group(children=children)
    assert [(count, level) for _, count, level in made.sub_agents()] == [(2, 1), (1, 1), (6, 2)]
    wanted = wanted_by(profile, made)
    assert (wanted.of["fan_out"], wanted.of["depth"], wanted.of["sessions"], wanted.steps) == (9, 2, 10, 12)
    demand = of_group(profile, made)
    assert (demand.calls, demand.steps) == (2 + 1 + 2 * (2 + 2) + 6 * 3 + 3, 12)
    assert len(list(steps_in(made))) == 5


def test_agents_open_their_sub_agents_and_these_theirs():
    _, made = group(children=nested(3), envelope={"depth": 3, "loop": {"iterations": 4}})
    caller, opened, bodies = RunCaller("A", 0, [made], 10**9, Random(1)), {}, []
    while caller.next_ns < 10**9:
        for call in caller.on_due(caller.next_ns):
            call.done_ns, call.outcome = call.due_ns, "served"
            if call.action == "open":
                body = orjson.loads(call.body)
                bodies.append(body)
                opened[f"r{len(bodies)}"] = body.get("parent_run")
                call.answer = {"run": f"r{len(bodies)}"}
            caller.on_outcome(call)
    assert opened == {"r1": None, "r2": "r1", "r3": "r2", "r4": "r3"}
    assert (bodies[0]["depth"], bodies[0]["iterations"]) == (3, 4)
    assert "depth" not in bodies[1]


def test_runs_without_limits_ask_as_before():
    _, made = group(children=nested(1))
    caller = RunCaller("A", 0, [made], 10**9, Random(1))
    assert orjson.loads(caller.take().body) == {"traffic_class": "autonomous", "task_class": "g", "priority": 0}


def test_limits_are_those_of_the_run_and_else_of_the_layer():
    profile, made = group(envelope={"fan_out": 3, "context_tokens": 9})
    assert limits_of(profile, made) == {"fan_out": 3, "context": 9, "payload": UNSAID_PAYLOAD}
    document = with_values(DOCUMENT, {"capacity.envelope": {"sessions": 7, "delegate_cost": 5}})
    profile = Profile.model_validate(document)
    assert limits_of(profile, None)["sessions"] == 7
    assert limits_of(profile, None, bundled=False) == {}
    assert prices_of(profile) == (5, 1)
    made = capacity_config(profile).envelope
    assert (made.tree, made.delegate_cost, made.tool_cost) == (TreeLimits(sessions=7), 5, None)


def test_a_reason_stands_for_each_limit_of_the_layer():
    assert {*REASONS} == {*wanted_by(*group()).of}


def test_what_a_tree_will_be_refused_is_said_beforehand():
    profile, _ = group(children=[{"batches": LOOK, "count": 9}], envelope={"fan_out": 4, "sessions": 30})
    said = " ".join(sentences(profile))
    assert "its tree asks for 9 sub-agents of 4, so some of it will end budget_exhausted." in said
    profile, _ = group(envelope={"fan_out": 4})
    assert "its tree" not in " ".join(sentences(profile))


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"children": nested(9)}, "may be 8 levels deep"),
        ({"children": nested(5, count=100)}, "at most 10,000"),
        ({"envelope": {"sessions": 0}}, "greater than or equal to 1"),
        ({"envelope": {"loop": {}}}, "a loop guard needs iterations, branch_tokens or both"),
        ({"envelope": {"fanout": 1}}, "fanout"),
    ],
)
def test_what_cannot_be_is_refused(values, said):
    with pytest.raises(ValidationError) as caught:
        group(**values)
    assert said in str(caught.value)


def test_a_sub_agent_two_levels_down_is_named_by_its_path(tmp_path):
    document = deepcopy(DOCUMENT)
    run = {"name": "g", "at": "0s", "batches": LOOK, "children": nested(2)}
    run["children"][0]["children"][0]["batches"] = [[{"dependency": "nobody"}]]
    document["tenants"] = {"A": {"runs": [run]}}
    path = tmp_path / "p.yaml"
    path.write_text(orjson.dumps(document).decode())
    with pytest.raises(BadInput) as caught:
        load(path)
    assert "tenants.A.runs.0.children.0.children.0.batches.0.0.dependency" in str(caught.value)
