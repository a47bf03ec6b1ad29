"""v04.bulkheads at its bounds: who stands by, what came back and what was held idle, in rows written by hand."""

from __future__ import annotations

import pytest

from harness.checks.registry import CHECKS
from harness.checks.v04_bulkheads import NAME
from harness.checks.verdict import Word
from tests.unit.capacity_trials import failed, open_questions
from tests.unit.written_steps import SERVICE, arrival, decided, holds_to_bounds, judged, ns

BACK, IDLE, IN_USE = "served in recovery", "slots held idle", "slots in use up"
LIMIT = SERVICE["reads"]["limit"]
SLOW = {"dependency": "billing", "kind": "slow", "factor": 10, "operation": "read", "from": "40s", "to": "80s"}
PHASES = {"calm": ["0s", "40s"], "burst": ["40s", "80s"], "recovery": ["80s", "100s"]}
TENANTS = ("slow", "both", "look", "note")


def batch(*called):
    """Steps by `dependency` or `dependency/operation`."""
    parts = [each.partition("/") for each in called]
    return [{"dependency": name, "operation": operation or "read"} for name, _, operation in parts]


def runs(*batches, **more):
    return {"runs": [{"name": "work", "at": "0s", "batches": [batch(*each) for each in batches], **more}]}


AGENTS = {
    "slow": runs(["billing"]), "both": runs(["billing", "customer"]), "look": runs(["customer"]),
    "note": runs(["note"]),
}  # fmt: skip


def call(tenant, due_ms, outcome="served", took_ms=10, **more):
    """A batch that was submitted."""
    name = f"{TENANTS.index(tenant)}.{int(due_ms)}"
    told = {"action": "submit", "tenant": tenant, "run_id": tenant, "call": name, "outcome": outcome}
    return {**told, "due_ns": ns(due_ms), "done_ns": ns(due_ms + took_ms), **more}


@pytest.fixture
def judge(tmp_path):
    def judge_them(
        calls=(), arrivals=(), decisions=(), params=None, faults=(SLOW,), tenants=AGENTS, target="stub", **says
    ):
        capacity = {"dependencies": dict.fromkeys(("billing", "customer", "note"), SERVICE)}
        profile = {"tenants": tenants, "phases": PHASES, "ordinary": [], **says}
        rows = [list(each) for each in (arrivals, decisions)]
        more = {"capacity": capacity, "faults": list(faults), "says": profile, "target": target}
        found = judged(NAME, tmp_path, *rows, params or {}, calls=list(calls), **more)
        assert found.word is not Word.INVALID, found.sentence
        return found

    return judge_them


def of(verdict, quantity):
    return [finding for finding in verdict.findings if finding.quantity == quantity]


def subjects(verdict, quantity):
    return {finding.subject for finding in of(verdict, quantity)}


# --- what is slowed, and who stands by


@pytest.mark.parametrize(
    ("fault", "slowed"),
    [
        ({}, "billing reads"),
        ({"operation": None}, "billing reads, billing writes"),
        ({"operation": "write"}, "billing writes"),
        ({"kind": "hang", "factor": None}, "billing reads"),
        ({"kind": "outage", "factor": None}, None),
        ({"from": "79999ms", "to": None}, "billing reads"),
        ({"from": "80s", "to": None}, None),
        ({"from": "0s", "to": "40001ms"}, "billing reads"),
        ({"from": "0s", "to": "40s"}, None),
    ],
)
def test_slowed_is_what_a_fault_slows_in_the_burst(judge, fault, slowed):
    given = {name: value for name, value in {**SLOW, **fault}.items() if value is not None}
    found = judge(faults=[given])
    assert subjects(found, BACK) == ({slowed} if slowed else set())
    assert ("no fault slows a dependency in the burst" in found.sentence) == (slowed is None)


def test_two_that_are_slowed_are_both_named_in_order(judge):
    also = {**SLOW, "dependency": "customer", "operation": "write"}
    assert subjects(judge(faults=[also, SLOW]), BACK) == {"billing reads, customer writes"}


@pytest.mark.parametrize(
    ("work", "stands_by"),
    [
        (runs(["customer"]), True),
        (runs(["billing/write"]), True),
        (runs(["billing"]), False),
        (runs(["customer"], ["billing"]), False),
        (runs(["customer", "billing"]), False),
        (runs(["customer"], replans={"batch": batch("billing")}), False),
        (runs(["customer"], children=[{"batches": [batch("billing")]}]), False),
        (runs(["customer"], children=[{"batches": [batch("note")], "children": [{"batches": [batch("billing")]}]}]),
         False),
        (runs(["customer"], children=[{"batches": [batch("note")]}]), True),
        ({"runs": [*runs(["customer"])["runs"], {**runs(["billing"])["runs"][0], "name": "other"}]}, False),
        ({"rate": "1/s"}, False),  # it asks the shared service, and no dependency
    ],
)  # fmt: skip
def test_a_bystander_calls_nothing_that_is_slowed_in_any_way_that_its_runs_may_go(judge, work, stands_by):
    found = judge(tenants={"slow": AGENTS["slow"], "look": work})
    assert subjects(found, "calls in calm") == ({"look"} if stands_by else set())


def test_a_bystander_is_held_to_each_phase_by_the_margins_of_that_phase(judge):
    calls = [call("look", 1_000 * at) for at in range(100)]
    params = {"served_down_pp": 3.0, "refusals_up_pp": 4.0, "recovery_pp": 5.0, "latency_up": "20ms"}
    found = judge(calls, params=params)
    bounds = {each.quantity: each.bound for each in found.findings if each.subject == "look"}
    for quantity, burst, later in (
        ("served share down", 3, 5), ("refusals up", 4, 5), ("mean latency up", 20, 20),
    ):  # fmt: skip
        assert (bounds[quantity], bounds[f"{quantity} in recovery"]) == (burst, later)
    short = judge(calls, params=params, phases={name: PHASES[name] for name in ("calm", "burst")})
    assert not [each for each in short.findings if each.quantity.endswith(" in recovery")]
    assert "phase" in open_questions(short)


@pytest.mark.parametrize(("tenant", "broken"), [("look", True), ("slow", False), ("both", False)])
def test_only_a_bystanders_own_calls_are_held_against_the_layer(judge, tenant, broken):
    lost = [call(tenant, 1_000 * at, "throttled" if at >= 40 else "served") for at in range(80)]
    others = [call("note", 1_000 * at + 1) for at in range(80)]
    assert ("served share down" in failed(judge([*lost, *others]))) == broken


def test_of_a_target_of_its_own_half_of_a_service_time_is_not_known(judge):
    found = judge(target="url")
    assert "margin of the latency" in open_questions(found)
    assert "give `latency_up`" in found.add
    assert not of(found, "calls in calm")
    assert subjects(judge(target="url", params={"latency_up": "20ms"}), "calls in calm") == {"look", "note"}


@pytest.mark.parametrize("gone", ["calm", "burst"])
def test_without_either_phase_there_is_nothing_to_compare(judge, gone):
    found = judge(phases={name: span for name, span in PHASES.items() if name != gone})
    assert (found.word, found.add) == (Word.INCONCLUSIVE, "`phases: {calm, burst}`")


# --- slots in use


def admitted(n, in_use, from_s, dependency="customer", **more):
    return [
        decided("look", 1_000 * from_s + at, "admitted", in_use=in_use, step=f"b{from_s}.{at}", dependency=dependency,
                **more)
        for at in range(n)
    ]  # fmt: skip


def test_slots_of_a_bystanders_bulkhead_may_rise_by_one_and_are_told_by_enough_admissions(judge):
    for rise, broken in ((0, set()), (2, {IN_USE})):
        found = judge((), (), [*admitted(50, 1, 10), *admitted(50, 1 + rise, 50)])
        [finding] = of(found, IN_USE)
        assert (failed(found), finding.subject, finding.measured) == (broken, "customer reads", rise)
        assert (finding.bound, finding.samples) == (1, 100)
        told = {each.subject: (each.word, each.measured) for each in of(found, "admissions with slots in use")}
        assert told == {"customer reads": ("PASS", 50), "note reads": ("INCONCLUSIVE", 0)}


@pytest.mark.parametrize(("calm", "burst"), [(49, 50), (50, 49)])
def test_too_few_admissions_in_either_phase_are_told(judge, calm, burst):
    found = judge((), (), [*admitted(calm, 1, 10), *admitted(burst, 1, 50)])
    assert {each.measured for each in of(found, "admissions with slots in use")} == {49, 0}
    assert {each.word for each in of(found, "admissions with slots in use")} == {"INCONCLUSIVE"}


@pytest.mark.parametrize(("calm", "burst"), [(0, 50), (50, 0)])
def test_without_admissions_in_a_phase_there_is_nothing_to_compare(judge, calm, burst):
    assert of(judge((), (), [*admitted(calm, 1, 10), *admitted(burst, 9, 50)]), IN_USE) == []


def test_the_margin_is_a_share_of_the_limit_where_that_is_more_than_a_slot(judge):
    found = judge((), (), [*admitted(50, 1, 10), *admitted(50, 1, 50)], {"slots_up": 0.75})
    assert [each.bound for each in of(found, IN_USE)] == [LIMIT * 0.75]


def test_admissions_at_another_bulkhead_or_that_do_not_tell_are_not_counted(judge):
    rows = [
        *admitted(50, 1, 10), *admitted(50, 1, 50), *admitted(50, 9, 51, operation="write"),
        *admitted(50, None, 52), *admitted(50, 9, 53, "billing"), *admitted(50, 9, 54, "elsewhere"),
    ]  # fmt: skip
    found = judge((), (), rows)
    assert [(each.subject, each.measured) for each in of(found, IN_USE)] == [("customer reads", 0)]


def test_of_a_target_of_its_own_no_limit_is_known_that_they_might_rise_within(judge):
    found = judge((), (), [*admitted(50, 1, 10), *admitted(50, 9, 50)], {"latency_up": "20ms"}, target="url")
    assert of(found, IN_USE) == []
    assert {each.measured for each in of(found, "admissions with slots in use")} == {50, 0}


# --- what comes back


def in_recovery(n, lost=0, tenant="slow", from_ms=81_000, outcome="throttled"):
    return [call(tenant, from_ms + at, outcome if at < lost else "served") for at in range(n)]


@pytest.mark.parametrize(
    ("n", "lost", "outcome", "broken"),
    [
        (20, 1, "throttled", set()),
        (20, 2, "throttled", {BACK}),
        (20, 2, "failed", {BACK}),
        (20, 2, "coalesced", set()),
        (40, 2, "throttled", set()),
    ],
)
def test_one_in_twenty_may_be_lost_once_the_slowness_is_over(judge, n, lost, outcome, broken):
    found = judge(in_recovery(n, lost, outcome=outcome))
    assert failed(found) == broken
    [finding] = of(found, BACK)
    assert (finding.subject, finding.bound, finding.samples) == ("billing reads", 0.95, n)
    assert ("calls in recovery" in open_questions(found)) == (n < 40)
    if broken:
        assert "billing reads: 90% of 20 calls served after the slowness had ended, under 95%" in found.sentence.lower()
        assert set(found.witnesses) == {row["call"] for row in in_recovery(lost)}


@pytest.mark.parametrize(
    ("due_ms", "counts"), [(80_499.999, 0), (80_500, 1), (99_999.999, 1), (100_000, 0), (50_000, 0)]
)
def test_recovery_counts_from_when_it_has_settled_to_its_end(judge, due_ms, counts):
    found = judge([call("slow", due_ms)])
    assert [each.samples for each in of(found, BACK)] == [counts]
    assert (BACK in open_questions(found)) == (counts == 0)


def test_only_runs_that_call_nothing_else_tell_whether_the_slowed_one_is_back(judge):
    found = judge([*in_recovery(40, 40, "both"), *in_recovery(40, 0, "look"), *in_recovery(3, 0, "slow")])
    assert [(each.samples, each.measured) for each in of(found, BACK)] == [(3, 1)]


# --- what is held idle


def ticket(held_ms, name="b0", outcome="throttled", arrives=True, begin_ms=50_000):
    """A batch of both dependencies, whose slot at the other one was admitted so long before anything came of it."""
    of_batch = {"batch": name}
    told = [
        decided("both", begin_ms, "queued", step=f"{name}.0", **of_batch),
        decided("both", begin_ms, "admitted", step=f"{name}.1", dependency="customer", **of_batch),
    ]
    after = arrival("both", begin_ms + held_ms, step=f"{name}.1", dependency="customer")
    if arrives:
        return [after], told
    end = decided("both", begin_ms + held_ms, outcome, step=f"{name}.1", dependency="customer", **of_batch)
    return [], [*told, *([end] if outcome else [])]


def together(*tickets):
    return [row for arrived, _ in tickets for row in arrived], [row for _, told in tickets for row in told]


@pytest.mark.parametrize(
    ("held_ms", "arrives", "outcome", "broken"),
    [
        (150, True, None, set()),
        (150.001, True, None, {IDLE}),
        (150, False, "throttled", set()),
        (151, False, "throttled", {IDLE}),
        (900, False, None, set()),  # nothing came of it that is known: perhaps the trial ended
    ],
)
def test_an_admitted_step_arrives_or_ends_before_it_has_held_its_slot_too_long(
    judge, held_ms, arrives, outcome, broken
):
    found = judge((), *together(ticket(held_ms, "b0", outcome, arrives)), {"held_idle": 0})
    assert failed(found) == broken
    [finding] = of(found, IDLE)
    assert (finding.measured, finding.samples) == (len(broken), 1)
    if broken:
        assert found.witnesses == ("both/b0.1",)


def test_one_may_take_longer_and_the_longest_is_told(judge):
    found = judge((), *together(ticket(200), ticket(300, "b1"), ticket(10, "b2")))
    assert (failed(found), found.measured, found.bound) == ({IDLE}, 2, 1)
    assert "for up to 300 ms" in found.sentence
    assert failed(judge((), *together(ticket(300), ticket(10, "b1")))) == set()


def test_its_first_arrival_ends_the_wait_and_not_what_came_later(judge):
    arrived, told = together(ticket(10))
    later = [arrival("both", 51_000, 2, step="b0.1", dependency="customer")]
    end = decided("both", 59_000, step="b0.1", dependency="customer", batch="b0")
    assert failed(judge((), [*arrived, *later], [*told, end], {"held_idle": 0})) == set()


@pytest.mark.parametrize(("also", "mixed"), [("billing", 1), ("note", 0), ("customer", 0)])
def test_a_batch_is_mixed_that_calls_the_slowed_one_and_another(judge, also, mixed):
    told = [
        decided("both", 50_000, "queued", batch="b0", dependency=also),
        decided("both", 50_000, "admitted", step="b0.1", dependency="customer", batch="b0"),
    ]
    found = judge((), [arrival("both", 51_000, step="b0.1", dependency="customer")], told, {"held_idle": 0})
    assert (failed(found), of(found, IDLE)[0].samples) == ({IDLE} if mixed else set(), mixed)
    assert of(found, "to the slowed one and another")[0].measured == mixed


def test_what_only_arrived_is_of_its_batch_too(judge):
    arrived = [arrival("both", 50_000, step="b0.0"), arrival("both", 51_000, step="b0.1", dependency="customer")]
    told = [decided("both", 50_000, "admitted", step="b0.1", dependency="customer", batch="b0")]
    assert of(judge((), arrived, told), "to the slowed one and another")[0].measured == 1


def test_another_batch_of_the_same_run_does_not_make_one_mixed(judge):
    told = [
        decided("both", 50_000, "queued", batch="b0"),
        decided("both", 50_000, "admitted", step="b1.0", dependency="customer", batch="b1"),
    ]
    assert of(judge((), (), told), "to the slowed one and another")[0].measured == 0


def test_a_wait_for_the_slowed_one_itself_is_no_slot_held_elsewhere(judge):
    _, told = ticket(0, outcome=None, arrives=False)
    own = decided("both", 50_001, "admitted", batch="b0", step="b0.0")
    assert failed(judge((), [arrival("both", 59_000, step="b0.0")], [*told, own], {"held_idle": 0})) == set()


# --- how much there was to see


def seen(verdict, quantity):
    return [finding.measured for finding in of(verdict, quantity)]


@pytest.mark.parametrize(
    ("row", "counts"),
    [
        ({"took_ms": 8_999.999}, 0),
        ({"took_ms": 9_000}, 1),  # the bulkhead's timeout
        ({"status": None}, 1),
        ({"status": 503}, 0),
        ({"took_ms": 9_000, "operation": "write"}, 0),
        ({"took_ms": 9_000, "dependency": "customer"}, 0),
    ],
)
def test_a_call_of_the_slowed_one_that_lasted_to_its_timeout_or_had_no_answer_timed_out(judge, row, counts):
    found = judge((), [arrival("slow", 50_000, **row)])
    assert seen(found, "calls timed out") == [counts]
    assert ("calls timed out" in open_questions(judge((), [arrival("slow", 50_000, **row)], (), {"timeouts": 1}))) == (
        not counts
    )


@pytest.mark.parametrize(
    ("n", "at_ms", "full"), [(LIMIT, 50_000, 1), (LIMIT - 1, 50_000, 0), (LIMIT, 10_000, 0), (LIMIT, 90_000, 0)]
)
def test_the_slowed_one_was_full_if_it_was_so_in_the_burst(judge, n, at_ms, full):
    rows = [arrival("slow", at_ms, step=f"b0.{place}", took_ms=50) for place in range(n)]
    found = judge((), rows)
    assert seen(found, "bulkheads full in the burst") == [full]
    assert ("bulkheads full in the burst" in open_questions(found)) == (not full)


@pytest.mark.parametrize(
    ("tenants", "watched", "whole", "add"),
    [
        (AGENTS, 2, 2, None),
        ({name: AGENTS[name] for name in ("slow", "both", "look")}, 1, 2, "a tenant that calls only note"),
        ({name: AGENTS[name] for name in ("slow", "both")}, 0, 2, "a tenant that calls only customer, note"),
        ({**AGENTS, "look": runs(["customer"], ["billing"])}, 1, 2, "a tenant that calls only customer"),
    ],
)
def test_each_dependency_that_was_not_slowed_has_somebody_who_stands_by(judge, tenants, watched, whole, add):
    found = judge(tenants=tenants)
    [finding] = of(found, "dependencies with one")
    assert (finding.measured, finding.bound) == (watched, whole)
    assert ("dependencies with one" in open_questions(found)) == (add is not None)
    if add:
        assert add in found.add.split("; ")


def test_of_a_target_of_its_own_the_dependencies_are_those_that_its_runs_call(judge):
    tenants = {name: AGENTS[name] for name in ("slow", "both", "look")}
    [finding] = of(judge(tenants=tenants, target="url"), "dependencies with one")
    assert (finding.measured, finding.bound, finding.word) == (1, 1, "PASS")
    alone = judge(tenants={"slow": AGENTS["slow"]}, target="url")
    [finding] = of(alone, "dependencies with one")
    assert (finding.measured, finding.bound, finding.word) == (0, 1, "INCONCLUSIVE")
    assert "a tenant that calls another one" in alone.add.split("; ")


# --- what a profile may say


def test_a_profile_that_says_nothing_more_is_judged_by_these(judge):
    assert judge().word is Word.INCONCLUSIVE
    assert CHECKS[NAME].params().model_dump() == {
        "served_down_pp": 1.0, "refusals_up_pp": 1.0, "recovery_pp": 2.0, "latency_up": None, "confidence": 0.95,
        "slots_up": 0.25, "timeouts": 20, "recovered": 0.95, "settle": ns(500), "back": 40, "mixed": 20,
        "idle": ns(150), "held_idle": 1,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "taken", "refused"),
    [
        ("served_down_pp", (0.001, 99.9), (0, 100)), ("recovery_pp", (0.001, 99.9), (0, 100)),
        ("confidence", (0.8, 0.999), (0.799, 1.0)), ("slots_up", (0.001, 0.999), (0, 1)),
        ("recovered", (0.001, 1), (0, 1.001)), ("held_idle", (0, 1_000_000), (-1, 1_000_001, 1.0)),
    ],
)  # fmt: skip
def test_a_figure_is_taken_up_to_its_bounds_and_refused_beyond_them(judge, name, taken, refused):
    holds_to_bounds(judge, NAME, name, taken, refused)
