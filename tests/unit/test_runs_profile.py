"""Runs in a profile: contradictions at their place with their words, and what `profile check` says beforehand."""

from __future__ import annotations

import copy
from fractions import Fraction

import pytest

from harness.profile.demand import calls_within, most_calls, peak_rate_per_s, worst_case_rate_per_s
from harness.profile.describe import describe
from harness.profile.errors import ProfileError
from harness.profile.loader import from_document, load
from harness.profile.model import Profile, Window
from tests.conftest import with_values
from tests.unit.test_simulate_capacity import SMALL, TICKET

RUN = "tenants.A.runs.0"


def problems(**values) -> list[tuple[str, str]]:
    """(path, rule) of every problem of the small profile with values set at dotted paths (`__` for the dot)."""
    changed = copy.deepcopy(SMALL)
    for path, value in values.items():
        place = changed
        *parents, last = [int(step) if step.isdigit() else step for step in path.split("__")]
        for parent in parents:
            place = place[parent] if isinstance(place, list) else place.setdefault(parent, {})
        place[last] = value
    try:
        from_document(changed)
    except ProfileError as error:
        return [(problem.path, problem.rule) for problem in error.problems]
    return []


def test_the_small_profile_is_sound():
    assert problems() == []


CUSTOMER = "capacity__dependencies__customer"
GROUP = "tenants__A__runs__0"
NO_SUCH = "there is no such dependency (known: customer)"

CASES = [
    ({"capacity__ceiling": 3, "capacity__reserves": {"interactive": {"slots": 4}}},
     "capacity.ceiling", "reserves (4) and tenants' shares (0) ask for more slots than that; raise it"),
    ({"capacity__reserves": {"interactive": {"slots": 5}}}, "capacity.dependencies.customer.reads.limit",
     "the reserves ask for 5 slots of every bulkhead; raise it, or cut them"),
    ({"capacity__reserves": {"interactive": {"slots": 3}}, "capacity__shares": {"A": {"slots": 2}}},
     "capacity.dependencies.customer.writes.limit",
     "reserves (3) and tenants' shares (2) ask for more slots than that; raise it"),
    ({"capacity__reserves": {"interactive": {"slots": 1, "floor": 2}}}, "capacity.reserves.interactive",
     "the floor is above the reserve itself"),
    ({"capacity__shares": {"Z": {"slots": 1}}}, "capacity.shares.Z", "there is no such tenant"),
    ({"capacity__envelope": {"budgets": {"mail": 1}}}, "capacity.envelope.budgets.mail", NO_SUCH),
    ({"capacity__envelope": {"deadline": "0s"}}, "capacity.envelope.deadline", "it must be above zero"),
    ({"capacity__recovery__from_rate": "60/s"}, "capacity.recovery.from_rate",
     "the ramp would begin above its end (to_rate: 50/s)"),
    ({"capacity__retry__base": "2s"}, "capacity.retry.base", "the first delay is above the longest (most: 1s)"),
    ({f"{CUSTOMER}__service_time": "0s"}, "capacity.dependencies.customer.service_time", "it must be above zero"),
    ({f"{CUSTOMER}__reads__timeout": "0s"}, "capacity.dependencies.customer.reads.timeout", "it must be above zero"),
    ({f"{CUSTOMER}__circuit__open_for": "0s"}, "capacity.dependencies.customer.circuit.open_for",
     "it must be above zero"),
    ({f"{CUSTOMER}__adaptive": {"lowest": 5, "highest": 9, "slow": "1s", "window": "1s"}},
     "capacity.dependencies.customer.reads.limit", "it begins outside of its bounds (5 to 9)"),
    ({f"{CUSTOMER}__adaptive": {"lowest": 1, "highest": 9, "slow": "1s", "window": "1s"},
      "capacity__reserves": {"interactive": {"slots": 2}}},
     "capacity.dependencies.customer.adaptive.lowest",
     "it must not go below the interactive reserve (2 slots)"),
    ({"faults": [{"dependency": "mail", "kind": "hang"}]}, "faults.0.dependency", NO_SUCH),
    ({"faults": [{"dependency": "customer", "kind": "slow"}]}, "faults.0.kind", "a fault of kind slow needs factor"),
    ({"faults": [{"dependency": "customer", "kind": "error"}]}, "faults.0.kind", "a fault of kind error needs status"),
    ({"faults": [{"dependency": "customer", "kind": "retry_after"}]}, "faults.0.kind",
     "a fault of kind retry_after needs retry_after"),
    ({"faults": [{"dependency": "customer", "kind": "hang", "status": 500}]}, "faults.0.status",
     "a fault of kind hang does not use it"),
    ({"faults": [{"dependency": "customer", "kind": "commit_then_timeout", "operation": "read"}]},
     "faults.0.operation", "only a write can be committed"),
    ({"faults": [{"dependency": "customer", "kind": "hang", "from": "1s", "to": "1s"}]}, "faults.0.to",
     "it must end after it begins"),
    ({"faults": [{"dependency": "customer", "kind": "hang", "from": "2s"}]}, "faults.0.from",
     "it would begin after the trial (duration: 2s)"),
    ({"faults": [{"dependency": "customer", "kind": "hang", "to": "3s"}]}, "faults.0.to",
     "it ends after the trial (duration: 2s); leave it out to last on"),
    ({"tenants__A__replans": {"calls": 1, "after": "1s", "rounds": 1}}, "tenants.A.replans",
     "a tenant with runs has none: runs have re-plans of their own (runs[].replans)"),
    ({"tenants__A__budget": {"rate": "1/s", "burst": 1}}, "tenants.A.budget",
     "a tenant with runs has none: what a run may use is its envelope (runs[].envelope)"),
    ({"tenants__A__patience": "1s"}, "tenants.A.patience",
     "a tenant with runs has none: how long a run may take is its deadline (runs[].envelope.deadline)"),
    ({"tenants__A__traffic_class": "interactive"}, "tenants.A.traffic_class",
     "a tenant with runs has none: each group of runs has its own (runs[].class)"),
    ({f"{GROUP}__at": "2s"}, f"{RUN}.at", "the runs would begin after the trial (duration: 2s)"),
    ({f"{GROUP}__envelope": {"budgets": {"mail": 1}}}, f"{RUN}.envelope.budgets.mail", NO_SUCH),
    ({f"{GROUP}__envelope": {"deadline": "0s"}}, f"{RUN}.envelope.deadline", "it must be above zero"),
    ({f"{GROUP}__batches": [[{"dependency": "customer"}], [{"dependency": "customer"}, {"dependency": "mail"}]]},
     f"{RUN}.batches.1.1.dependency", NO_SUCH),
    ({f"{GROUP}__batches": [{"steps": [{"dependency": "mail"}]}]}, f"{RUN}.batches.0.steps.0.dependency", NO_SUCH),
    ({f"{GROUP}__replans": {"batch": [{"dependency": "mail"}]}}, f"{RUN}.replans.batch.0.dependency", NO_SUCH),
    ({f"{GROUP}__children": [{"batches": [[{"dependency": "mail"}]]}]},
     f"{RUN}.children.0.batches.0.0.dependency", NO_SUCH),
]  # fmt: skip


@pytest.mark.parametrize(("values", "path", "rule"), CASES, ids=[case[1] + " " + case[2][:30] for case in CASES])
def test_a_contradiction_is_told_at_its_place(values, path, rule):
    assert (path, rule) in problems(**values)


def test_rates_of_runs_have_their_windows_in_the_trial():
    def of(**group):
        return problems(**{GROUP: {"name": "g", "batches": [[{"dependency": "customer"}]], "rate": "1/s", **group}})

    assert of() == []
    assert of(**{"from": "2s"}) == [(f"{RUN}.from", "the runs would begin after the trial (duration: 2s)")]
    assert of(**{"from": "1s", "to": "1s"}) == [(f"{RUN}.to", "it must end after it begins")]
    assert of(to="3s") == [(f"{RUN}.to", "it ends after the trial (duration: 2s)")]


def test_two_groups_of_one_name():
    runs = SMALL["tenants"]["A"]["runs"] * 2
    assert problems(tenants__A__runs=runs) == [("tenants.A.runs.1.name", "two groups of runs have this name")]


def test_a_fault_needs_a_layer_and_runs_can_do_without_one():
    changed = copy.deepcopy(SMALL)
    del changed["capacity"]
    assert from_document(changed).profile.capacity is None
    with pytest.raises(ProfileError, match="a fault happens to a dependency of `capacity:`, and the profile describes"):
        from_document({**changed, "faults": [{"dependency": "customer", "kind": "hang"}]})


def test_a_layer_that_is_not_sound_is_not_taken_for_none():
    found = problems(capacity__ceiling=0, faults=[{"dependency": "customer", "kind": "hang"}])
    assert found == [("capacity.ceiling", "expected at least 1")]


def test_the_line_of_a_step_in_a_short_batch_is_that_of_the_file(tmp_path):
    text = TICKET.read_text().replace("{dependency: billing, tool: inspect_plan_rules}", "{dependency: biling}")
    file = tmp_path / "ticket.yaml"
    file.write_text(text)
    line = next(i for i, row in enumerate(text.splitlines(), 1) if "biling}" in row)
    with pytest.raises(ProfileError) as error:
        load(file)
    (problem,) = error.value.problems
    assert (problem.line, problem.path) == (line, "tenants.support.runs.0.batches.1.1.dependency")


def sentences(profile: Profile) -> list[str]:
    return [sentence.replace("**", "") for sentence in describe(profile).sentences]


def test_what_the_running_example_will_do_is_said_beforehand():
    assert sentences(load(TICKET, variant="billing_slow").profile) == [
        "support-ticket: 30s, 3 tenants, of whom support and staff must not be hurt.",
        "calm (0s to 10s): 6.8/s offered (up to 7/s). support 5.8/s; staff 1/s; background 0/s.",
        "burst (10s to 20s): 17/s offered. support 6/s; staff 1/s; background 10/s.",
        "recovery (20s to 30s): 7/s offered. support 6/s; staff 1/s; background 0/s.",
        "Capacity layer: at most 60 calls in flight to customer (50 workers at 50ms; at most 40 reads and 10 writes), "
        "billing (25 workers at 80ms; at most 20 reads and 5 writes), notification (10 workers at 30ms; at most 5 "
        "reads and 10 writes).",
        "Of every bulkhead it keeps 2 for interactive (1 never lent), 2 for approval_resume (1 never lent).",
        "billing is 5 times as slow, 12s to 16s.",
        "support, ticket (interactive): 120 runs at 4/s from 0s to 30s, each with 6 steps in 3 batches: at most 5 "
        "calls and 8 attempts.",
        "support, approved (approval_resume): 58 runs at 2/s from 1s to 30s, each with 3 steps in 2 batches: at most 4 "
        "calls and 5 attempts.",
        "staff, refund (interactive): 30 runs at 1/s from 0s to 30s, each with 1 step in 1 batch: at most 3 calls and "
        "3 attempts.",
        "background, triage (autonomous): 100 runs at 10/s from 10s to 20s, each with 5 steps in 2 batches: at most 4 "
        "calls and 7 attempts.",
        "Original calls and runs: 308 in all, at most 17/s.",
        "Worst case, everything fails, attempts at dependencies counted in: 186/s, and 1,322 calls in all.",
        "One process can send that on time (up to 5,000/s with a core of its own).",
        "The bundled stub can be trusted with that here (up to 2,500/s on 2 cores).",
    ]


def profile(values: dict) -> Profile:
    return Profile.model_validate(with_values(SMALL, values))


def group(**more) -> dict:
    return {"tenants.A.runs": [{"name": "g", "at": "0s", "batches": [[{"dependency": "customer"}]], **more}]}


def told(values: dict) -> list[str]:
    return [sentence for sentence in sentences(profile(values)) if sentence.startswith("A, g")]


def test_what_a_run_will_be_refused_is_said_beforehand():
    batches = [[{"dependency": "customer", "repeat": 7}]]
    made = told(group(batches=batches, envelope={"attempts": 5, "budgets": {"customer": 6}}))
    assert made == [
        "A, g (autonomous): 1 run at 0s, each with 7 steps in 1 batch: at most 3 calls and 5 attempts.",
        "A, g (autonomous): it asks for 7 steps of 5 attempts, so some will end budget_exhausted.",
        "A, g (autonomous): 7 steps at customer of a budget of 6, so some will end budget_exhausted.",
    ]


def test_everything_that_a_run_may_do_is_in_its_sentence():
    one = [{"dependency": "customer"}]
    made = told(
        group(
            count=4,
            batches=[one, one],
            parallel=True,
            children=[{"batches": [one], "count": 2}],
            replans={"batch": [{"dependency": "customer", "repeat": 3}], "rounds": 2},
            cancel_after="1s",
        )
    )
    assert made == [
        "A, g (autonomous): 4 runs at 0s, each with 4 steps in 2 batches, all at once, 2 sub-agents included, "
        "re-planned for 2 rounds if not all is served, cancelled after 1s: at most 15 calls and 18 attempts."
    ]


def test_demand_counts_runs_calls_and_attempts():
    of = profile(group(at="1s", count=10, envelope={"attempts": 3, "retry_tokens": 1}))
    assert peak_rate_per_s(of) == 10
    assert worst_case_rate_per_s(of) == 10 * (3 + 2)
    assert most_calls(of) == 30
    begins = [calls_within(of, of.tenants["A"], window) for window in (None, Window.model_validate(["0s", "1s"]))]
    assert begins == [10, 0]


def test_demand_of_rates_is_that_of_the_plan():
    runs = {
        "tenants.A.runs": [{"name": "g", "rate": "3/s", "from": "250ms", "batches": [[{"dependency": "customer"}]]}]
    }
    of = profile(runs)
    assert calls_within(of, of.tenants["A"]) == 6
    assert peak_rate_per_s(of) == Fraction(3)
    assert worst_case_rate_per_s(of) == 3 * (3 + 3)


def test_a_tenant_with_runs_and_no_layer_is_for_a_target_only():
    changed = copy.deepcopy(SMALL)
    del changed["capacity"]
    made = sentences(Profile.model_validate(changed))
    assert (
        "A has runs, and no `capacity:` is described: they can be run against a target only, neither simulated nor on "
        "the bundled stub."
    ) in made
    assert not any("No service is described" in sentence for sentence in made)


def test_both_kinds_of_tenants_are_for_live_only():
    made = sentences(profile({"tenants.B": {"rate": "1/s"}}))
    assert "Tenants with runs and tenants that call the shared service: it can be run live, not simulated." in made


def test_the_files_that_people_copy_are_sound():
    folder = TICKET.parent
    for file in [TICKET, *sorted((folder / "verification").glob("*.yaml"))]:
        assert load(file).profile.tenants
