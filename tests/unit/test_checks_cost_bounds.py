"""Checks of cost on trials told row by row: a tenant's own bucket, the corridor, and sizes, at just their bounds."""

from __future__ import annotations

import pytest

from harness.checks import cost_bucket_per_tenant as bucket
from harness.checks import cost_corridor as corridor
from harness.checks import cost_size_class as sizes
from harness.checks.rules import at_most
from harness.checks.verdict import Word
from tests.unit.cost_trials import document, found, group, opened, told, turned_away

# --- cost.bucket_per_tenant

NORTH = {"tenants": {"north": {"rate": "100/s", "burst": 1000}}}
ENOUGH = bucket.Params(refused=2, served=1)


def on_bucket(tmp_path, *asked, cost=NORTH, params=ENOUGH, stalls=()):
    profile = document(cost, {"north": [group()], "south": [group()]})
    return bucket.judge(told(tmp_path / "trial", profile, *asked, stalls=stalls), params)


def spends_and_is_refused():
    """From 1 s to 6 s its bucket held 1,500: it used 1,100 by then, and more later."""
    return [
        opened("north", "a", 1, used=[(2, 950)], closed=2),
        turned_away("north", 3, call="0.30"),
        turned_away("north", 7, "sessions", call="0.31"),
        opened("north", "b", 6, used=[(6.5, 150)], closed=7),
        turned_away("north", 6, call="0.32"),
        opened("north", "c", 8, used=[(8, 300)], closed=8),
        turned_away("north", 9, "tokens", "expired", call="0.33"),
        opened("south", "d", 1, used=[(2, 5000)], closed=2),
    ]


@pytest.mark.parametrize(
    ("wasted", "word"), [(1100 / 1500, Word.PASS), (1101 / 1500, Word.FAIL)], ids=["just_used", "wasted"]
)
def test_a_tenant_that_is_refused_has_used_what_its_bucket_held_until_then(tmp_path, wasted, word):
    verdict = on_bucket(tmp_path, *spends_and_is_refused(), params=bucket.Params(wasted=wasted, refused=2, served=1))
    rule = found(verdict, "of its bucket used")
    assert (rule.subject, rule.word, rule.samples) == ("north", word, 7)
    assert rule.measured == pytest.approx(1100 / 1500)
    assert verdict.witnesses == (("0.30", "0.32") if word is Word.FAIL else ())


def test_a_bucket_was_not_refilled_while_the_stub_stood_still(tmp_path):
    verdict = on_bucket(tmp_path, *spends_and_is_refused(), stalls=[(2, 4)])
    assert found(verdict, "of its bucket used").measured == pytest.approx(1100 / 1300)


def test_a_pass_names_who_was_refused_and_how_often(tmp_path):
    verdict = on_bucket(tmp_path, *spends_and_is_refused())
    assert (verdict.word, "north was refused 2 times" in verdict.sentence) == (Word.PASS, True)


def test_what_was_not_refused_is_no_refusal_and_one_tenant_alone_shows_nothing(tmp_path):
    verdict = on_bucket(tmp_path, *spends_and_is_refused(), params=bucket.Params(refused=3, served=2))
    assert found(verdict, "refused for its tokens").samples == 2
    assert found(verdict, "of other tenants").samples == 1
    assert verdict.word is Word.INCONCLUSIVE


def test_a_tenant_that_is_refused_nothing_and_one_without_a_bucket_waste_nothing(tmp_path):
    asked = [opened("north", "a", 1), *(turned_away("south", at) for at in (2, 3))]
    verdict = on_bucket(tmp_path, *asked)
    assert "of its bucket used" not in {one.quantity for one in verdict.findings}


@pytest.mark.parametrize("cost", [None, {}, {"tenants": {"west": {"rate": "1/s", "burst": 1}}}])
def test_without_a_bucket_of_anybody_nothing_is_decided(tmp_path, cost):
    profile = document(cost, {"north": [group()], "south": [group()], "west": [group()]})
    verdict = bucket.judge(told(tmp_path / "trial", profile, opened("north", "a", 1)), ENOUGH)
    assert (verdict.word, verdict.add) == (Word.INCONCLUSIVE, "`capacity.cost` with `tenants` or `each`")


@pytest.mark.parametrize("check", [bucket, corridor])
def test_without_arrivals_it_is_said_what_is_missing(tmp_path, check):
    mine = told(tmp_path / "trial", document(NORTH, {"north": [group()]}), opened("north", "a", 1))
    (mine.folder / "arrivals.jsonl").unlink()
    verdict = check.judge(mine, check.Params())
    assert (verdict.word, "arrivals.jsonl" in verdict.sentence) == (Word.INCONCLUSIVE, True)


# --- cost.corridor

CORRIDOR = corridor.Params(queue_age="1s", throttles=0.25, runs=1, arrivals=1, waited=1)


def on_corridor(tmp_path, *asked, params=CORRIDOR, cost=NORTH, **capacity):
    profile = document(cost, {"north": [group()]}, **capacity)
    return corridor.judge(told(tmp_path / "trial", profile, *asked), params)


def throttled(one, *places):
    for place in places:
        one.arrivals[place]["status"] = 429
    return one


@pytest.mark.parametrize(
    ("asked", "waited_ms"),
    [
        (turned_away("north", 1, "sessions", answered=1.3), 300),
        (turned_away("north", 1, None, "expired", answered=1.4), 400),
        (turned_away("north", 1, "sessions", "budget_exhausted", answered=1.5), 500),
        (opened("north", "z", 1, answered=1.6), 600),
        (turned_away("north", 1, "tokens", answered=1.7), None),
        (turned_away("north", 1, "sessions", "failed", answered=1.7), None),
        (turned_away("north", 1, None, "dropped", answered=1.7), None),
    ],
    ids=["refused", "expired", "out_of_budget", "opened", "for_its_tokens", "failed", "dropped"],
)
def test_who_was_let_in_or_turned_away_for_want_of_a_session_waited_for_one(tmp_path, asked, waited_ms):
    verdict = on_corridor(tmp_path, opened("north", "a", 1, used=[(2, 1)]), asked)
    runs = found(verdict, "that asked for a session").samples
    waits = [0] if waited_ms is None else [0, waited_ms]
    assert runs == len(waits)
    assert found(verdict, "age").measured == pytest.approx(0.95 * max(waits))


def test_the_longest_that_waited_are_named_first(tmp_path):
    asked = [opened("north", f"r{place}", 1, answered=1 + wait, call=f"0.{place}", used=[(9, 1)])
             for place, wait in enumerate((2.0, 4.0, 3.0))]  # fmt: skip
    verdict = on_corridor(tmp_path, *asked)
    assert (verdict.word, verdict.witnesses) == (Word.FAIL, ("0.1", "0.2", "0.0"))
    assert found(verdict, "note").note == "below the corridor"


@pytest.mark.parametrize(
    ("throttles", "word", "place"), [(0.25, Word.PASS, "in"), (0.24, Word.FAIL, "above")], ids=["just_in", "above"]
)
def test_the_share_of_what_arrived_that_was_throttled(tmp_path, throttles, word, place):
    mine = throttled(opened("north", "a", 1, used=[(at, 1) for at in (2, 3, 4, 5)]), 2)
    mine.arrivals[0].pop("status")
    params = CORRIDOR.model_copy(update={"throttles": throttles})
    verdict = on_corridor(tmp_path, mine, params=params)
    rule = found(verdict, "throttled")
    assert (rule.word, rule.measured, rule.samples) == (word, 0.25, 4)
    assert verdict.witnesses == (("a/b2.0",) if word is Word.FAIL else ())
    assert found(verdict, "note").note == f"{place} the corridor"


def test_a_pass_says_how_long_runs_waited_and_how_much_was_throttled(tmp_path):
    some = [throttled(opened("north", run, 1, answered=1.5, used=[(at, 1) for at in range(2, 12)]), 0) for run in "ab"]
    assert "runs waited 500 ms" in (sentence := on_corridor(tmp_path / "some", *some).sentence)
    assert "throttled 10.0%" in sentence
    none = on_corridor(tmp_path / "none", *(opened("north", run, 1, used=[(2, 1)]) for run in "ab")).sentence
    assert "runs waited 0 ms" in none
    assert "throttled 0.0%" in none


def test_a_layer_that_lets_nobody_in_was_in_no_corridor(tmp_path):
    verdict = on_corridor(tmp_path, turned_away("north", 1))
    assert verdict.word is Word.INCONCLUSIVE
    assert found(verdict, "throttled").word is Word.INCONCLUSIVE


@pytest.mark.parametrize(
    ("age", "share", "place"),
    [(1, 1, "in"), (2, 1, "below"), (1, 2, "above"), (2, 2, "below and above")],
)
def test_where_a_trial_is_placed(age, share, place):
    rules = [at_most("x", "y", measured, 1, "", 1, "") for measured in (age, share)]
    assert corridor.place_of(*rules) == place


@pytest.mark.parametrize(
    ("quotas", "places", "judged"),
    [((True, True), (), True), ((False, True), (), True), ((False, False), (0,), True), ((False, False), (), False)],
    ids=["all", "one_of_two", "none_told_and_one_did", "none"],
)  # fmt: skip
def test_some_dependency_must_say_when_it_is_too_much(tmp_path, quotas, places, judged):
    base = document(NORTH, {"north": [group()]})["capacity"]["dependencies"]["model"]
    bare = {key: value for key, value in base.items() if key != "quota"}
    dependencies = {name: base if has else bare for name, has in zip(("model", "search"), quotas, strict=True)}
    mine = throttled(opened("north", "a", 1, used=[(at, 1) for at in range(2, 12)]), *places)
    assert bool(on_corridor(tmp_path, mine, dependencies=dependencies).findings) is judged


def test_without_a_description_of_cost_there_is_no_corridor(tmp_path):
    verdict = on_corridor(tmp_path, opened("north", "a", 1), cost=None)
    assert (verdict.word, verdict.add) == (Word.INCONCLUSIVE, "`capacity.cost.pools.sessions`")


@pytest.mark.parametrize(
    ("due", "pressed"), [(1, 1), (2.9, 1), (3, 0), (4, 0)], ids=["together", "open", "just_over", "over"]
)
@pytest.mark.parametrize("how", ["closed", "vanished"])
def test_a_run_is_under_pressure_if_another_was_open_when_it_asked(tmp_path, due, pressed, how):
    """The first asks at 1 s and is over at 3 s. It says so, or that is when its last call has ended."""
    end = {"closed": 3, "used": [(1.5, 1)]} if how == "closed" else {"used": [(3, 1)]}
    asked = [opened("north", "a", 1, **end), opened("north", "b", 0, closed=0.5), opened("north", "c", due)]
    verdict = on_corridor(tmp_path, *asked)
    assert found(verdict, "that asked while others ran").samples == pressed


# --- cost.size_class

SIZES = {"pools": {"sessions": 3}}
TWO = sizes.Params(wait=0.25, refused=0.5, began=0.25, short=1, waited=1)
BURST = {"burst": ["2s", "10s"]}


def on_sizes(tmp_path, *asked, params=TWO, cost=SIZES, phases=BURST, stalls=()):
    groups = {"people": [group()], "study": [group(3000, request_class="deep_research")],
              "tools": [group(500, request_class="tool_heavy")],
              "mixed": [group(7), group(8, name="two", request_class="deep_research")]}  # fmt: skip
    profile = {**document(cost, groups if cost is not None else {"people": [group()]}), "phases": phases}
    return sizes.judge(told(tmp_path / "trial", profile, *asked, stalls=stalls), params)


def person(at, wait, run=None, **more):
    return opened("people", run or f"p{at}", at, answered=at + wait, **more)


def study(at, wait, run=None, **more):
    return opened("study", run or f"s{at}", at, answered=at + wait, **more)


@pytest.mark.parametrize(("wait", "word"), [(0.25, Word.PASS), (0.26, Word.FAIL)], ids=["a_quarter", "more"])
def test_short_runs_wait_at_most_a_share_of_the_median_of_large_ones_that_waited(tmp_path, wait, word):
    asked = [person(3, wait, call="0.0"), study(3, 0), study(4, 1), study(5, 1), study(6, 5)]
    verdict = on_sizes(tmp_path, *asked)
    rule = found(verdict, "wait")
    assert (rule.word, rule.measured, rule.samples) == (word, pytest.approx(wait), 1)
    assert found(verdict, "that waited for a session").samples == 3


def test_those_that_waited_longest_are_named_first(tmp_path):
    asked = [person(3 + place / 10, wait, call=f"0.{place}") for place, wait in enumerate((0.5, 0.9, 0.7))]
    assert on_sizes(tmp_path, *asked, study(4, 1)).witnesses == ("0.1", "0.2", "0.0")


def test_large_runs_that_gave_up_waiting_have_waited_and_those_that_were_refused_have_not(tmp_path):
    asked = [person(3, 0), turned_away("study", 4, None, "expired", 6), turned_away("study", 4, "sessions", answered=9)]
    verdict = on_sizes(tmp_path, *asked, params=TWO.model_copy(update={"began": 0}))
    assert found(verdict, "that waited for a session").samples == 1
    assert found(verdict, "wait").samples == 1


def test_only_the_burst_is_judged_where_there_is_one(tmp_path):
    asked = [person(1.9, 1), person(2, 0), person(9.9, 0), person(10, 1), study(2, 1), study(10, 9), study(1, 9)]
    inside = on_sizes(tmp_path / "burst", *asked)
    assert found(inside, "that began while large ones queued").samples == 2
    assert found(inside, "that waited for a session").samples == 1
    everything = on_sizes(tmp_path / "all", *asked, phases={})
    assert found(everything, "that began while large ones queued").samples == 4
    assert found(everything, "that waited for a session").samples == 3


def test_what_is_neither_short_nor_large_or_not_known_is_not_judged(tmp_path):
    asked = [
        person(3, 0, closed=4),
        study(4, 1),
        opened("tools", "t", 3, answered=9),
        turned_away("mixed", 3, "sessions"),
    ]
    verdict = on_sizes(tmp_path, *asked)
    assert verdict.word is Word.PASS, verdict.sentence
    assert found(verdict, "wait").samples == 1
    assert found(verdict, "that waited for a session").samples == 1


def test_where_no_large_run_waited_short_ones_are_compared_with_nothing(tmp_path):
    verdict = on_sizes(tmp_path, person(3, 0), study(4, 0))
    assert verdict.word is Word.INCONCLUSIVE
    assert {one.word for one in verdict.findings if one.quantity in ("wait", "sessions", "without a session")} == {
        Word.INCONCLUSIVE
    }


def test_where_no_short_run_began_large_ones_are_compared_with_nothing(tmp_path):
    verdict = on_sizes(tmp_path, study(4, 1), turned_away("people", 3, "sessions"))
    assert found(verdict, "sessions", "batch runs").word is Word.INCONCLUSIVE
    none = on_sizes(tmp_path / "none", study(4, 1))
    assert found(none, "wait").measured == 0
    assert found(none, "wait").word is found(none, "without a session").word is Word.INCONCLUSIVE


@pytest.mark.parametrize(
    ("reason", "outcome", "turned"),
    [("sessions", "throttled", 1), ("sessions", "budget_exhausted", 1), (None, "expired", 1),
     ("tokens", "throttled", 0), ("sessions", "failed", 0)],
)  # fmt: skip
@pytest.mark.parametrize("stalls", [(), [(5, 5.9)]], ids=["", "stalled"])
def test_a_short_run_has_no_session_if_it_was_refused_one_or_waited_for_it_in_vain(
    tmp_path, reason, outcome, turned, stalls
):
    """But not if its time ran out while the stub stood still."""
    asked = [person(3, 0), turned_away("people", 5, reason, outcome, answered=6, call="0.9"), study(4, 1)]
    verdict = on_sizes(tmp_path, *asked, params=sizes.Params(refused=0.4, wait=1, short=1, waited=1), stalls=stalls)
    excused = outcome == "expired" and bool(stalls)
    rule = found(verdict, "without a session")
    assert (rule.measured, rule.samples) == ((0, 1) if excused else (turned / 2, 2))
    assert rule.word is (Word.FAIL if turned and not excused else Word.PASS)
    assert ("0.9" in verdict.witnesses) is (rule.word is Word.FAIL)


def test_large_runs_have_their_share_of_the_sessions(tmp_path):
    asked = [*(person(3 + place / 10, 0) for place in range(3)), study(4, 1), turned_away("study", 4, "sessions")]
    just = on_sizes(tmp_path / "just", *asked)
    assert found(just, "sessions", "batch runs").measured == 0.25
    assert found(just, "sessions", "batch runs").word is Word.PASS
    few = on_sizes(tmp_path / "few", *asked, person(5, 0))
    assert found(few, "sessions", "batch runs").word is Word.FAIL


def held(verdict):
    return int(found(verdict, "held at once").measured)


@pytest.mark.parametrize(
    ("begins", "most"),
    [(4.9, 2), (4.99, 1), (5, 1)],
    ids=["before", "a_moment_before_that_was_answered", "after"],
)
def test_a_session_is_free_when_its_caller_asked_so_or_a_moment_before_that_was_answered(tmp_path, begins, most):
    asked = [person(3, 0, closed=5), person(begins, 0, closed=7)]
    assert held(on_sizes(tmp_path, *asked)) == most


def test_runs_that_were_never_opened_or_closed_hold_no_session_for_certain(tmp_path):
    asked = [person(3, 0, "a", closed=5), person(3, 0, "b"), turned_away("people", 3), study(3, 1, closed=6)]
    verdict = on_sizes(tmp_path, *asked)
    assert (held(verdict), found(verdict, "held at once").samples) == (2, 2)
    assert found(verdict, "held at once").bound == 3


def test_more_sessions_than_there_are_fail(tmp_path):
    asked = [person(3, 0, f"p{place}", closed=5) for place in range(4)]
    assert found(on_sizes(tmp_path, *asked), "held at once").word is Word.FAIL


@pytest.mark.parametrize("cost", [None, {}, {"pools": {"memory": 1}}])
def test_without_sessions_no_size_is_kept_apart(tmp_path, cost):
    verdict = on_sizes(tmp_path, person(3, 0, closed=4), cost=cost)
    assert (verdict.word, verdict.add) == (Word.INCONCLUSIVE, "`capacity.cost.pools.sessions`, and `queues`")
