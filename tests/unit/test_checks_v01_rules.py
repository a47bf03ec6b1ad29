"""v01.fan_out_ceiling at its bounds: few runs written by hand, each with just so many calls."""

from __future__ import annotations

import pytest

from harness.checks.registry import CHECKS
from harness.checks.v01_fan_out import NAME
from harness.checks.verdict import Word
from tests.unit.capacity_trials import failed
from tests.unit.written_steps import arrival, decided, judged
from tests.unit.written_steps import opened as opened_of

OVER, OVER_BUDGET, IN_PART = "calls over the ceiling", "calls over a budget", "begun in part"
UNTOLD, HARMED, UNREACHED = "not told", "refused within the envelope", "served without a call"


def batch(*repeats):
    return [{"dependency": "billing", "repeat": repeat} for repeat in repeats]


def group(name="plan", batches=(), attempts=20, budgets=None, **more):
    envelope = {"attempts": attempts, **({"budgets": budgets} if budgets is not None else {})}
    return {"name": name, "at": "0s", "batches": list(batches), "envelope": envelope, **more}


def opened(run="r", **more):
    return opened_of(run, **{"tenant": "agents", **more})


def call(outcome="served", action="submit", run="r", **more):
    return {"action": action, "run_id": run, "outcome": outcome, "due_ns": 0, **more}


def steps(n, name="b0", run="r", **more):
    """So many steps of one batch, each of which arrived once."""
    return [arrival(run, 10, step=f"{name}.{place}", **more) for place in range(n)]


@pytest.fixture
def judge(tmp_path):
    def judge_them(groups, arrivals=(), decisions=(), calls=(), target="stub"):
        says = {"tenants": {"agents": {"runs": list(groups)}}}
        opens = [opened(run) for run in dict.fromkeys(row["run"] for row in arrivals)]
        rows = [*decisions, *(row for row in opens if row["run"] not in {each["run"] for each in decisions})]
        found = judged(NAME, tmp_path, list(arrivals), rows, {}, calls=calls, target=target, says=says)
        assert found.word is not Word.INVALID, found.sentence
        return found

    return judge_them


def measured(verdict, quantity):
    return next(finding.measured for finding in verdict.findings if finding.quantity == quantity)


# --- the ceiling


@pytest.mark.parametrize(
    ("limit", "quantity"), [({}, OVER), ({"budgets": {"billing": 6}, "attempts": 20}, OVER_BUDGET)]
)
def test_one_call_more_than_the_envelope_holds_is_one_too_many(judge, limit, quantity):
    mine = group(**{"batches": [batch(9)], "attempts": 6, **limit})
    held, over = judge([mine], steps(6, "x")), judge([mine], steps(7, "x"))
    assert (failed(held), measured(held, quantity)) == (set(), 0)
    assert (failed(over), measured(over, quantity)) == ({quantity}, 1)
    assert over.sentence.startswith("Run r: 7 calls ")


@pytest.mark.parametrize("budgeted", [False, True])
def test_the_run_that_is_furthest_over_is_named_first_though_another_came_first(judge, budgeted):
    """And though its own envelope is the larger one: what counts is how far it is over."""
    held = {"small": 2, "large": 10}
    limit = {
        name: {"attempts": 99, "budgets": {"billing": n}} if budgeted else {"attempts": n} for name, n in held.items()
    }
    groups = [group(name, [batch(9)], **limit[name]) for name in held]
    opens = [opened(name, task_class=name) for name in held]
    found = judge(groups, [*steps(5, "x", "small"), *steps(15, "x", "large")], opens)
    assert (found.witnesses, found.measured) == (("large", "small"), 5)
    assert "15 calls " in found.sentence
    assert "(2 such runs)" in found.sentence


def test_each_run_whose_limit_is_known_is_judged_though_that_of_another_is_not(judge):
    """A target of its own tells of some runs how many calls they may make; asked for by no group, and by no profile."""
    mine = {name: value for name, value in group(batches=[batch(1)]).items() if name != "envelope"}
    told = [opened(run="a"), opened("b", remaining_attempts=2), opened("c", remaining_attempts=3)]
    rows = [*steps(9, run="a"), *steps(3, run="b"), *steps(3, run="c")]
    calls = [call("budget_exhausted", run="a"), call("budget_exhausted", run="b", action="finish")]
    found = judge([mine], rows, told, calls, target="url")
    assert (failed(found), found.witnesses, found.samples) == ({OVER}, ("b",), 2)


# --- whole, or not at all


@pytest.mark.parametrize(("run", "name", "broken"), [("r", "b0", {"refused, yet begun"}), ("r", "b1", set()),
                                                     ("s", "b0", set())])  # fmt: skip
def test_none_of_the_calls_of_a_refused_batch_arrives(judge, run, name, broken):
    refusal = {**decided(run, 5, "budget_exhausted"), "kind": "batch", "batch": name}
    found = judge([group(batches=[batch(2), batch(2)])], steps(2), [opened(), opened("s"), refusal])
    assert failed(found) == broken
    assert set(found.witnesses) == ({"r/b0.0", "r/b0.1"} if broken else set())


def test_what_was_served_has_arrived(judge):
    assert failed(judge([group(batches=[batch(1)])], steps(1), [opened(), decided("r", 20)])) == set()


def test_a_write_that_was_looked_up_instead_of_called_was_not_served_without_a_call(judge):
    looked = arrival("r", 10, step="b0.0", operation="readback", readback=True)
    assert failed(judge([group(batches=[batch(1)])], [looked], [opened(), decided("r", 20)])) == set()
    assert failed(judge([group(batches=[batch(1)])], [], [opened(), decided("r", 20)])) == {UNREACHED}


@pytest.mark.parametrize(
    ("second", "broken"),
    [
        ({"outcome": "budget_exhausted", "reason": "attempts"}, {IN_PART}),
        ({"outcome": "budget_exhausted"}, {IN_PART}),
        ({"outcome": "budget_exhausted", "reason": "fan_out"}, set()),
        ({"outcome": "budget_exhausted", "reason": "tokens"}, set()),
        ({"outcome": "throttled"}, set()),
        ({"outcome": "queued"}, {IN_PART}),  # and nothing more was heard of it
        ({"outcome": "admitted"}, {IN_PART}),
    ],
)
def test_of_a_batch_that_began_each_call_arrives_or_is_refused_for_a_reason_of_its_own(judge, second, broken):
    """The second of two never arrived."""
    told = [opened(), decided("r", 20, step="b0.1", **second)]
    assert failed(judge([group(batches=[batch(2)])], steps(1), told)) == broken


def test_a_call_that_arrived_and_may_not_be_retried_was_not_left_out_of_its_batch(judge):
    told = [opened(), decided("r", 20, "budget_exhausted", "attempts", step="b0.1")]
    assert failed(judge([group(batches=[batch(2)])], steps(2), told)) == set()


TWO = {"batches": [batch(2), batch(3)], "replans": {"batch": batch(4)}}


@pytest.mark.parametrize(
    ("name", "size"),
    [("b0", 2), ("b1", 3), ("b0.r1", 4), ("b1.r2", 4), ("b2", None), ("x1", None), ("bee", None), ("", None)],
)
def test_how_many_calls_a_batch_has_is_told_by_its_name(judge, name, size):
    """A name that the profile does not know says nothing, and nothing is missed of such a batch."""
    assert failed(judge([group(**TWO)], steps(size or 1, name))) == set()
    assert failed(judge([group(**TWO)], steps(size - 1 if size else 1, name))) == ({IN_PART} if size else set())


def test_a_replan_that_the_profile_does_not_have_misses_nothing(judge):
    assert failed(judge([group(batches=[batch(2)])], steps(1, "b0.r1"))) == set()


def test_a_run_of_no_known_group_misses_nothing(judge):
    groups = [group("one", [batch(2)]), group("two", [batch(3)])]
    assert failed(judge(groups, steps(1))) == set()


def child(*repeats, **more):
    return {"batches": [batch(repeat) for repeat in repeats], **more}


@pytest.mark.parametrize(
    ("children", "broken"),
    [
        ([child(2)], {IN_PART}),
        ([child(1)], set()),
        ([child(2), child(1)], set()),  # which of the two it is, nobody says
        ([child(1), child(2)], set()),
        ([child(2, children=[child(1)])], set()),
        ([child(2, children=[child(1)]), child(2)], set()),
        ([], set()),
    ],
)
def test_a_sub_agents_batch_is_known_where_there_is_one_kind_of_sub_agents(judge, children, broken):
    told = [opened(), opened("below", parent_run="r")]
    found = judge([group(batches=[batch(2)], children=children)], steps(1, run="below"), told)
    assert failed(found) == broken


# --- what a run asked for, and what it was told


@pytest.mark.parametrize(
    ("asked", "limit", "broken"),
    [
        ([batch(3)], {"attempts": 3}, set()),
        ([batch(3)], {"attempts": 2}, {UNTOLD}),
        ([batch(1, 2)], {"attempts": 2}, {UNTOLD}),
        ([batch(2), batch(3)], {"attempts": 5}, set()),
        ([batch(2), batch(3)], {"attempts": 4}, {UNTOLD}),
        ([batch(1), batch(1), batch(3)], {"attempts": 4}, {UNTOLD}),
        ([batch(1, 2)], {"budgets": {"billing": 3}}, set()),
        ([batch(1, 2)], {"budgets": {"billing": 2}}, {UNTOLD}),
        ([batch(2), batch(1)], {"budgets": {"billing": 2}}, {UNTOLD}),
        ([batch(2), batch(1)], {"budgets": {"billing": 3}}, set()),
    ],
)
def test_who_asks_for_more_than_the_envelope_holds_is_told_so(judge, asked, limit, broken):
    ended = [opened(), {**opened(), "outcome": "budget_exhausted"}]
    submits = [call() for _ in asked]
    found = judge([group(batches=asked, **limit)], (), ended, [call(action="open"), *submits])
    assert failed(found) == broken
    told = judge([group(batches=asked, **limit)], (), ended, [*submits[1:], call("budget_exhausted")])
    assert failed(told) == (set() if broken else {HARMED})


@pytest.mark.parametrize(("rounds", "broken"), [((0,), set()), ((0, 1), {UNTOLD}), ((1,), set()), ((1, 2), {UNTOLD})])
def test_a_submit_of_a_later_round_asks_for_the_replan(judge, rounds, broken):
    mine = group(batches=[batch(2)], replans={"batch": batch(3), "rounds": 2}, attempts=4)
    ended = [opened(), {**opened(), "outcome": "budget_exhausted"}]
    assert failed(judge([mine], (), ended, [call(round=number) for number in rounds])) == broken


@pytest.mark.parametrize("strange", [{"round": 1}, {"run": "s"}])
def test_of_a_run_that_asked_for_what_the_profile_does_not_tell_nothing_is_held_against_the_layer(judge, strange):
    """A re-plan that its group does not have; a run of no known group. Perhaps it asked for too much, perhaps not."""
    groups = [group("plan", [batch(1)], 4), group("other", [batch(1)], 4)]
    ended = [opened(task_class="plan"), opened("s", task_class="strange")]
    calls = [call(), call(), call("budget_exhausted", **strange)]
    assert HARMED not in failed(judge(groups, (), ended, calls))


@pytest.mark.parametrize(
    ("refused", "broken"),
    [
        ({}, {HARMED}),
        ({"action": "open"}, {HARMED}),
        ({"action": "finish"}, set()),
        ({"reason": "depth"}, set()),
        ({"reason": "attempts"}, {HARMED}),
        ({"outcome": "throttled"}, set()),
    ],
)
def test_a_refusal_that_blames_the_envelope_is_that_of_an_open_or_a_submit_for_its_number_of_calls(
    judge, refused, broken
):
    calls = [call(), call(**{"outcome": "budget_exhausted", **refused})]
    assert failed(judge([group(batches=[batch(1)])], (), [opened()], calls)) == broken


@pytest.mark.parametrize(("tries", "broken"), [(1, {HARMED}), (2, {HARMED}), (3, {OVER})])
def test_who_retries_beyond_the_envelope_is_not_within_it(judge, tries, broken):
    """Two calls of three that it may make; the first of them was tried so often."""
    rows = [*(arrival("r", 10 + n, n) for n in range(1, tries + 1)), arrival("r", 10, step="b0.1")]
    calls = [call("budget_exhausted")]
    told = [opened(), *(decided("r", 90, "failed", step=f"b0.{n}") for n in (0, 1))]
    assert failed(judge([group(batches=[batch(2)], attempts=3)], rows, told, calls)) == broken


def test_a_step_that_never_arrived_leaves_no_room_for_anothers_retry(judge):
    rows = [arrival("r", 10, step="b0.0"), arrival("r", 11, 2, step="b0.0")]
    told = [opened(), decided("r", 90, "failed"), decided("r", 90, "throttled", step="b0.1")]
    calls = [call("budget_exhausted")]
    assert failed(judge([group(batches=[batch(2)], attempts=2)], rows, told, calls)) == set()


@pytest.mark.parametrize("end", ["done", None, "budget_exhausted"])
def test_who_asked_for_too_much_ends_so(judge, end):
    ended = [opened(), *([{**opened(), "outcome": end}] if end else [])]
    found = judge([group(batches=[batch(3)], attempts=2)], (), ended, [call("budget_exhausted")])
    assert failed(found) == (set() if end == "budget_exhausted" else {"ended otherwise"})
    if end != "budget_exhausted":
        assert f"1 runs asked for more than they may, and ended {end} where" in found.sentence
        assert found.witnesses == ("r",)


def test_of_those_that_asked_for_too_much_only_how_the_others_ended_is_told(judge):
    ended = [row for run, end in (("r", "budget_exhausted"), ("s", "done"), ("t", "done"))
             for row in (opened(run), opened(run, outcome=end))]  # fmt: skip
    calls = [call("budget_exhausted", run=run) for run in "rst"]
    found = judge([group(batches=[batch(3)], attempts=2)], (), ended, calls)
    assert "2 runs asked for more than they may, and ended done where" in found.sentence
    assert found.witnesses == ("s", "t")


def test_who_has_sub_agents_may_be_refused_for_what_they_took(judge):
    mine = group(batches=[batch(1)], attempts=3, children=[child(3)])
    calls = [call("budget_exhausted")]
    assert failed(judge([mine], (), [opened()], calls)) == set()


# --- what a profile may say


def test_a_profile_that_says_nothing_more_is_judged_by_these(judge):
    assert judge([group(batches=[batch(1)])]).word is Word.INCONCLUSIVE
    assert CHECKS[NAME].params().model_dump() == {"runs": 5, "within": 20}
