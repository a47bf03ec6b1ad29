"""What a profile may say of agents: short forms, contradictions with their place, and the sentences about it."""

from __future__ import annotations

from fractions import Fraction

import pytest

from harness.profile.demand import amplification, worst_case_rate_per_s
from harness.profile.describe import describe
from harness.profile.errors import ProfileError
from harness.profile.loader import from_document

S = 1_000_000_000


def loaded(tenant, **more):
    return from_document({"name": "p", "duration": "10s", "tenants": {"A": {"rate": "10/s", **tenant}}, **more})


def agent(**tenant):
    return loaded(tenant).profile.tenants["A"]


def test_a_budget_alone_stands_for_the_list_of_it_and_null_for_none():
    one, both = {"rate": "1/s", "burst": 2}, {"rate": "9/s", "burst": 3, "scope": "run"}
    assert agent(budget=one).budget == agent(budget=[one]).budget
    assert agent(budget=None).budget == agent().budget == []
    assert [budget.scope for budget in agent(budget=[one, both]).budget] == ["tenant", "run"]
    assert (agent(budget=[one, both]).is_agent, agent(budget=one).is_agent, agent().open_loop) == (True, False, True)


def test_defaults_are_those_of_the_book():
    assert agent(throttle={"adaptive": {}}).throttle.adaptive.model_dump() == {"k": 2.0, "window": 120 * S}
    retries = agent(retries={"budget": "10%"}).retries
    assert (retries.attempts, retries.budget) == (3, Fraction(1, 10))


@pytest.mark.parametrize(
    ("tenant", "place", "rule"),
    [
        ({"budget": [{"rate": "1/s", "burst": 1}] * 2}, "tenants.A.budget.1", "another budget of scope tenant"),
        ({"budget": {"rate": "1/s", "burst": 0}}, "tenants.A.budget.burst", "at least 1"),
        ({"budget": [{"rate": "1/s"}]}, "tenants.A.budget.0", "'burst' is missing"),
        ({"budget": 5}, "tenants.A.budget", "expected a mapping with keys such as rate"),
        ({"retries": {"budget": "0%"}}, "tenants.A.retries.budget", "a share above 0% and up to 100%"),
        ({"retries": {"budget": 0.1}}, "tenants.A.retries.budget", "a share above 0%"),
        ({"retries": {"attempts": 1}}, "tenants.A.retries.attempts", "at least 2"),
        ({"retries": {"on": []}}, "tenants.A.retries.on", "at least 1 entries"),
        ({"retries": {"on": ["served"]}}, "tenants.A.retries.on.0", "expected one of"),
        ({"retries": {"window": "0s"}}, "tenants.A.retries.window", "above zero"),
        ({"throttle": {"adaptive": {"k": 0.5}}}, "tenants.A.throttle.adaptive.k", "at least 1"),
        ({"throttle": {"adaptive": {"window": "0s"}}}, "tenants.A.throttle.adaptive.window", "above zero"),
        ({"loop": {}}, "tenants.A.loop", "iterations, branch_tokens or both"),
        ({"retries": {}, "on_refusal": "result"}, "tenants.A.on_refusal", "give retries, or this"),
        (
            {"replans": {"calls": 1, "after": "1s", "rounds": 1, "tools": ["a", "a"]}},
            "tenants.A.replans.tools",
            "a tool is named twice",
        ),
        (
            {"replans": {"calls": 1, "after": "1s", "rounds": 1, "tools": ["../x"]}},
            "tenants.A.replans.tools.0",
            "letters, digits",
        ),
    ],
)
def test_what_cannot_be_is_told_with_its_place(tenant, place, rule):
    with pytest.raises(ProfileError) as told:
        loaded(tenant)
    (problem,) = told.value.problems
    assert problem.path == place
    assert rule in problem.rule


def test_a_tenant_with_runs_has_none_of_it():
    group = {"name": "g", "class": "autonomous", "at": "0s", "count": 1, "batches": [[{"dependency": "d"}]]}
    capacity = {"dependencies": {"d": {"workers": 1, "service_time": "1ms", "reads": {"limit": 1, "queue": 1}}}}
    more = {"throttle": {"adaptive": {}}, "loop": {"iterations": 1}, "retries": {}}
    with pytest.raises(ProfileError) as told:
        from_document(
            {"name": "p", "duration": "10s", "capacity": capacity, "tenants": {"A": {"runs": [group], **more}}}
        )
    rules = {problem.path: problem.rule for problem in told.value.problems}
    assert all("it is for tenants that call a shared service" in rules[f"tenants.A.{field}"] for field in more)


@pytest.mark.parametrize(
    ("tenant", "most"),
    [
        ({"retries": {"attempts": 3}}, 3),
        ({"on_refusal": "result"}, 2),
        ({"replans": {"calls": 2, "after": "1s", "rounds": 3}}, 15),
        ({"replans": {"calls": 2, "after": "1s", "rounds": 3, "order": "sequence"}}, 7),
    ],
)
def test_the_worst_case_counts_every_attempt(tenant, most):
    assert amplification(agent(**tenant)) == most
    assert worst_case_rate_per_s(loaded(tenant).profile) <= 10 * most


def test_budgets_and_loops_bound_the_worst_case():
    storm = {"replans": {"calls": 5, "after": "10ms", "rounds": 5}}
    assert worst_case_rate_per_s(loaded({**storm, "loop": {"iterations": 4}}).profile) <= 40
    both = [{"rate": "5/s", "burst": 5, "scope": "run"}, {"rate": "20/s", "burst": 10}]
    assert worst_case_rate_per_s(loaded({**storm, "budget": both}).profile) <= 30


def test_what_it_will_do_is_said_in_sentences():
    said = " ".join(
        describe(
            loaded(
                {
                    "replans": {
                        "calls": 2,
                        "after": "1s",
                        "rounds": 1,
                        "tools": ["search", "fetch"],
                        "order": "sequence",
                    },
                    "retries": {"budget": "10%"},
                    "throttle": {"adaptive": {}},
                    "loop": {"iterations": 8, "branch_tokens": 2000},
                },
                checks=["agent.refusal_is_a_result", "agent.budget_per_tenant"],
            ).profile
        ).sentences
    )
    for part in (
        "2 new calls 1s later, each that long after the one before, to search and fetch in turn",
        "up to 3 times, 100ms later and more, retries at most 10 % of the calls of the last 10s",
        "it rejects calls by itself while fewer than one in 2 of the last 2m is served",
        "a run ends after 8 attempts, and a branch of it may spend 2,000 tokens",
        "agent.refusal_is_a_result: it cannot be judged without a tenant's `on_refusal: result`",
        "agent.budget_per_tenant: it cannot be judged without",
    ):
        assert part in said
