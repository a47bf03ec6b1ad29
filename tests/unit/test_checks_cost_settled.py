"""cost.reconciled and cost.unwound on trials told row by row: settlements, balances, forecasts and pools."""

from __future__ import annotations

import pytest

from harness.checks import cost_reconciled as reconciled
from harness.checks import cost_unwound as unwound
from harness.checks.verdict import Word
from tests.unit.cost_trials import S, document, found, group, ns, opened, said, told, turned_away
from tests.unit.ledgers import manifest_edited

# --- cost.reconciled

FEW = {"settled": 1, "crashed": 1, "cancelled": 1, "refused": 1, "orders": 1, "alike": 2}
NORTH = {"tenants": {"north": {"rate": "100/s", "burst": 10_000}}, "lease": "2s"}
LATE, NEVER, TWICE = "were settled late", "were never settled", "were settled more than once"


def on(tmp_path, *asked, cost=NORTH, params=None, groups=None, stop=20, **capacity):
    profile = document(cost, {"north": groups or [group()], "south": [group()]}, **capacity)
    mine = told(tmp_path / "trial", profile, *asked, at_ns=ns(stop))
    return reconciled.judge(mine, reconciled.Params(**{**FEW, **(params or {})}))


def run(name, at, tokens=100, *, settled=None, actual=None, forecast=100, used_at=None, closed=None, **more):
    """Admitted when it begins, closed a second later, and settled then, unless told."""
    end = at + 1 if closed is None else closed
    calls = [(at if used_at is None else used_at, tokens)] if tokens else []
    one = opened("north", name, at, used=calls, closed=end or None, **more)
    said(one, "admitted", at, forecast=forecast)
    for when in [end] if settled is None else settled:
        said(one, "settled", when, actual=tokens if actual is None else actual)
    return one


def broken(verdict):
    return {one.quantity for one in verdict.findings if one.word is Word.FAIL}


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"settled": [3]}, set()),
        ({"settled": [3 + 1e-9]}, {LATE}),
        ({"settled": [6], "used_at": 5}, set()),
        ({"settled": [6 + 1e-9], "used_at": 5}, {LATE}),
        ({"settled": [8], "used_at": 5, "closed": 0}, set()),
        ({"settled": [8 + 1e-9], "used_at": 5, "closed": 0}, {LATE}),
        ({"settled": [2, 2]}, {TWICE}),
        ({"settled": [2, 9, 9]}, {TWICE}),
        ({"settled": []}, {NEVER}),
    ],
    ids=["a_second_after_its_end", "later", "a_second_after_its_last_call", "later_than_that",
         "a_second_after_its_lease", "later_than_its_lease", "twice", "thrice", "never"],
)  # fmt: skip
def test_a_run_is_settled_once_and_within_a_second_of_its_end_or_of_its_last_call_or_of_its_lease(
    tmp_path, more, expected
):
    """It began at 1 s, and unless told was closed at 2 s; a lease is of two seconds after the last call."""
    assert broken(on(tmp_path, run("a", 1, **more))) == expected


@pytest.mark.parametrize(
    ("stop", "closed", "expected"),
    [(8, 0, {NEVER}), (8 - 1e-9, 0, set()), (2, 2, {NEVER})],
    ids=["its_lease_is_over", "the_trial_ended_before", "it_was_closed"],
)
def test_a_run_was_never_settled_if_it_was_closed_or_its_time_was_up_before_the_trial_ended(
    tmp_path, stop, closed, expected
):
    verdict = on(tmp_path, run("a", 1, used_at=5 if not closed else 1, closed=closed, settled=[]), stop=stop)
    assert broken(verdict) == expected


@pytest.mark.parametrize(
    ("deadline", "last", "settled", "expected", "seen"),
    [(6, 2, [7], set(), 1), (6, 2, [7 + 1e-9], {LATE}, 1), (6, 9, [10], set(), 1), (6, 9, [10 + 1e-9], {LATE}, 1),
     (6, 2, [], {NEVER}, 1), (None, 2, [], set(), 0), (None, 2, [15], set(), 0)],
    ids=["in_time", "late", "in_time_after_its_last_call", "late_after_it", "never", "unknown", "unknown_and_settled"],
)  # fmt: skip
def test_without_a_lease_a_run_whose_agent_vanished_is_settled_after_its_deadline(
    tmp_path, deadline, last, settled, expected, seen
):
    one = run("a", 1, used_at=last, closed=0, settled=settled, task="chat")
    if deadline is not None:
        one.decisions[0]["deadline_ns"] = ns(deadline)
    verdict = on(tmp_path, one, cost={"tenants": NORTH["tenants"]})
    assert broken(verdict) == expected
    assert found(verdict, NEVER).samples == seen


def test_a_run_of_which_nobody_says_how_long_it_may_last_cannot_be_late(tmp_path):
    """Neither a lease, nor a deadline, nor an end; nor a word of the layer that it was opened."""
    verdict = on(tmp_path, run("a", 1, closed=0, settled=[19]), cost={"tenants": NORTH["tenants"]})
    assert found(verdict, NEVER).samples == 0


def test_what_is_said_of_a_late_settlement_and_of_one_that_is_missing(tmp_path):
    verdict = on(tmp_path, run("a", 1, settled=[5.5]), run("b", 1, closed=0, settled=[]), run("c", 1, settled=[]))
    assert "first a: 3500 ms after it was closed" in verdict.sentence
    assert "first b: its agent vanished, 100 tokens used" in verdict.sentence


def test_a_run_that_was_not_opened_has_nothing_to_settle(tmp_path):
    verdict = on(tmp_path, run("a", 1), turned_away("north", 1, answered=2))
    assert (found(verdict, NEVER).samples, broken(verdict)) == (1, {"were refused though their own bucket held enough"})


@pytest.mark.parametrize(("tokens", "actual", "wrong"), [(0, None, 0), (0, 0, 0), (0, 1, 1), (7, 6, 1), (7, 7, 0)])
def test_a_settlement_is_of_what_arrived_and_of_nothing_if_it_does_not_say(tmp_path, tokens, actual, wrong):
    one = run("a", 1, tokens, actual=actual)
    if actual is None:
        one.decisions[-1].pop("actual")
    rule = found(on(tmp_path, one, run("b", 1, settled=[])), "were not of what arrived")
    assert (rule.measured, rule.samples) == (wrong, 1)


def test_a_pass_says_how_many_were_settled_and_how_they_ended(tmp_path):
    asked = [
        run("a", 1, tokens=2000), run("b", 2, tokens=2000, how="cancel"), run("c", 3, 2000, closed=0, settled=[5]),
        run("e", 5, tokens=2000, forecast=2000), run("f", 6, tokens=2000, forecast=2000), turned_away("north", 3),
        run("d", 19, closed=0, settled=[]),
    ]  # fmt: skip
    verdict = on(tmp_path, *asked, groups=[group(2000)])
    assert verdict.word is Word.PASS, verdict.sentence
    assert "5 runs were settled" in verdict.sentence
    assert "1 whose agent had vanished and 1 that were cancelled" in verdict.sentence


def test_nothing_that_was_refused_breaks_no_rule_of_refusals(tmp_path):
    assert found(on(tmp_path, run("a", 1)), "were refused though their own bucket held enough").word is Word.PASS


@pytest.mark.parametrize("decided", [True, False])
@pytest.mark.parametrize("cost", [None, NORTH])
def test_where_nobody_counts_nothing_is_decided(tmp_path, cost, decided):
    one = run("a", 1) if decided else opened("north", "a", 1, task="chat")
    verdict = on(tmp_path, one, cost=cost)
    withheld = cost is None or not decided
    assert bool(verdict.findings) is not withheld
    assert ("a layer that tells of it" in verdict.add) is withheld


# What is left of a bucket


def balance(tmp_path, *said_so, off=0.01):
    """A bucket of 10,000 that is refilled by 100 a second; `a` uses 5,000 and `b` 3,000.

    said_so: (of which run, outcome, when, the balance that is told).
    """
    runs = {"a": opened("north", "a", 1, used=[(1, 5000)], closed=1), "b": opened("north", "b", 1, used=[(1, 3000)])}
    runs["?"] = turned_away("north", 1)
    for name, outcome, at, left in said_so:
        said(runs[name], outcome, at, balance=left, request=f"of_{name}")
    runs["a"].decisions.append({"t_ns": 0, "kind": "cost", "outcome": "admitted", "tenant": "south", "balance": 1.0})
    return on(tmp_path, *runs.values(), params={"off": off})


@pytest.mark.parametrize(
    ("rows", "off"),
    [
        ([("a", "admitted", 1, 10_000)], 0),
        ([("a", "admitted", 1, 9_900)], 100),
        ([("a", "settled", 1, 5000), ("b", "admitted", 2, 5100)], 0),
        ([("a", "settled", 1, 5000), ("b", "settled", 3, 2200)], 0),
        ([("a", "settled", 1, 5000), ("b", "settled", 3, 2150)], 50),
        ([("a", "settled", 1, 5070), ("b", "settled", 3, 2150)], 70),
        ([("a", "settled", 1, None), ("b", "settled", 3, 7000)], 0),
        ([("a", "settled", 1, 5000), ("b", "admitted", 90, 10_000)], 0),
    ],
    ids=["full", "off", "refilled", "both_settled", "too_little", "the_worst", "not_told", "never_above_its_burst"],
)
def test_a_balance_is_the_buckets_charged_with_what_arrived_at_each_settlement(tmp_path, rows, off):
    rule = found(balance(tmp_path, *rows), "balance off")
    assert (rule.subject, rule.samples) == ("north", sum(left is not None for *_, left in rows))
    assert rule.measured == pytest.approx(off / 10_000)


@pytest.mark.parametrize(("off", "word"), [(0.01, Word.PASS), (0.0099, Word.FAIL)])
def test_a_balance_may_be_off_by_a_hundredth_of_the_burst(tmp_path, off, word):
    assert found(balance(tmp_path, ("a", "admitted", 1, 9900), off=off), "balance off").word is word


@pytest.mark.parametrize(("name", "witness"), [("a", "a"), ("?", "of_?")])
def test_the_run_or_the_request_of_the_worst_balance_is_named(tmp_path, name, witness):
    rows = [("b", "admitted", 1, 9900), (name, "refused", 2, 900), ("b", "admitted", 3, 9900)]
    named = balance(tmp_path, *rows).witnesses
    assert witness in named
    assert (f"of_{name}" in named) is (name == "?")


def test_a_settlement_of_a_run_that_nobody_opened_charges_no_bucket(tmp_path):
    one = run("a", 1, tokens=0)
    one.decisions.append(
        {"t_ns": S, "kind": "cost", "outcome": "settled", "tenant": "north", "run": "x", "balance": 10_000}
    )
    assert found(on(tmp_path, one), "balance off").measured == 0


def test_who_has_no_bucket_or_is_told_no_balance_is_off_by_nothing(tmp_path):
    one = said(opened("south", "b", 1, used=[(1, 1)], closed=1), "settled", 1, actual=1, balance=3)
    assert "balance off" not in {rule.quantity for rule in on(tmp_path, one, run("a", 1)).findings}


# Forecasts

WRONG = "error of the later forecasts, chat_turn"


def runs(*costs, forecasts=(), **more):
    told_so = [*forecasts, *[100] * (len(costs) - len(forecasts))]
    return [run(f"r{n}", n, cost, forecast=told_so[n], **more) for n, cost in enumerate(costs)]


@pytest.mark.parametrize(
    ("wrong", "word"), [(0.25, Word.PASS), (0.24, Word.FAIL)], ids=["a_quarter_off", "more_than_allowed"]
)
def test_the_last_third_of_the_forecasts_is_what_the_runs_cost(tmp_path, wrong, word):
    asked = runs(*[100] * 6, forecasts=[900, 900, 900, 900, 120, 130])
    verdict = on(tmp_path, *asked, params={"alike": 6, "wrong": wrong})
    rule = found(verdict, WRONG)
    assert (rule.subject, rule.word, rule.samples) == ("north", word, 2)
    assert rule.measured == pytest.approx(0.25)
    assert verdict.witnesses == (("r4", "r5") if word is Word.FAIL else ())


def test_a_forecast_that_is_not_told_is_of_nothing(tmp_path):
    asked = runs(100, 100, 100)
    asked[2].decisions[0].pop("forecast")
    assert found(on(tmp_path, *asked, params={"alike": 3}), WRONG).measured == 1


@pytest.mark.parametrize(
    ("costs", "alike", "judged"),
    [([100, 100, 100], 3, 1), ([100, 100, 100], 4, 0), ([50, 150], 2, 1), ([49, 151], 2, 0)],
    ids=["as_many_as_are_needed", "too_few", "just_even_enough", "too_uneven"],
)
def test_forecasts_are_judged_of_enough_runs_that_cost_nearly_the_same(tmp_path, costs, alike, judged):
    verdict = on(tmp_path, *runs(*costs), params={"alike": alike, "even": 0.5})
    assert found(verdict, "that cost the same again and again").samples == judged


def test_a_class_that_is_too_rare_or_too_uneven_hides_no_other(tmp_path):
    rare = [run("s", 0, 1, task="rare")]
    uneven = [run(f"u{n}", n, cost, task="odd") for n, cost in enumerate((1, 999))]
    even = [run(f"e{n}", n, 100, task="chat") for n in range(2)]
    groups = [group(500, name="odd", request_class="tool_heavy"), group(),
              group(1, name="rare", request_class="deep_research")]  # fmt: skip
    verdict = on(tmp_path, *rare, *uneven, *even, groups=groups)
    assert found(verdict, WRONG).measured == 0
    assert "error of the later forecasts, tool_heavy" not in {one.quantity for one in verdict.findings}


@pytest.mark.parametrize(
    ("more", "counts"),
    [({}, True), ({"how": "cancel"}, False), ({"closed": 0}, False), ({"tokens": 0}, False)],
    ids=["whole", "cancelled", "vanished", "used_nothing"],
)
def test_runs_that_were_cut_off_are_not_like_their_like(tmp_path, more, counts):
    asked = [*runs(100), run("last", 3, **more)]
    verdict = on(tmp_path, *asked, params={"even": 2})
    assert found(verdict, "that cost the same again and again").samples == int(counts)


def test_runs_that_nobody_admitted_say_nothing_of_a_forecast(tmp_path):
    asked = runs(100, 100)
    asked[1].decisions.pop(0)
    assert found(on(tmp_path, *asked), "that cost the same again and again").samples == 0


CHILD = {"batches": [[{"dependency": "model", "tool": "of_9", "usage": {"tokens": 9}}]], "envelope": {"attempts": 1}}


@pytest.mark.parametrize(
    ("priced", "children", "judged"),
    [(None, [], 1), (None, [CHILD], 1), (0, [CHILD], 1), (5, [], 1), (5, [CHILD], 0)],
)
def test_a_forecast_is_not_of_a_tree_whose_delegations_have_a_price_of_their_own(tmp_path, priced, children, judged):
    envelope = {"deadline": "3s", "attempts": 50, "parallel": 3, "retry_tokens": 0, "credits": 90}
    if priced is not None:
        envelope["delegate_cost"] = priced
    verdict = on(tmp_path, *runs(100, 100), groups=[group(children=children)], envelope=envelope)
    assert found(verdict, "that cost the same again and again").samples == judged


def test_a_run_whose_group_is_not_known_is_of_a_class_of_its_own(tmp_path):
    groups = [group(), group(500, name="odd", request_class="tool_heavy")]
    verdict = on(tmp_path, *runs(100, 100), groups=groups, envelope={"delegate_cost": 5, "attempts": 50, "credits": 9})
    assert found(verdict, "error of the later forecasts, ").measured == 0


def test_how_much_there_was_to_see(tmp_path):
    asked = [
        run("a", 1, tokens=20), run("b", 1, tokens=5, closed=0, settled=[]), run("c", 1, tokens=0, how="cancel"),
        turned_away("north", 1), turned_away("north", 1, "sessions"), turned_away("north", 1, "tokens", "expired"),
    ]  # fmt: skip
    verdict = on(tmp_path, *asked)
    have = {one.quantity: one.samples for one in verdict.findings if one.subject == "evidence"}
    assert have == {
        "vanished": 1, "cancelled": 1, "refused for tokens": 1, "between the smallest and the largest cost": 4,
        "that cost the same again and again": 0,
    }  # fmt: skip


def test_where_nothing_was_used_no_costs_are_apart(tmp_path):
    verdict = on(tmp_path, run("a", 1, tokens=0))
    assert found(verdict, "between the smallest and the largest cost").samples == 0


# --- cost.unwound

POOLS = {"tenants": {"north": {"rate": "100/s", "burst": 1000}}, "pools": {"sessions": 2, "memory": 2, "tools": 2}}
REFUSED = "were refused though every pool should have been whole"


def on_pools(tmp_path, *asked, cost=POOLS, recovery=("10s", "15s"), whole=1, stalls=(), **ended):
    """One request was refused at each pool, at 1 s."""
    refused = [turned_away("north", 1, pool) for pool in ("sessions", "tokens", "memory", "tools")]
    profile = document(cost, {"north": [group()], "south": [group()]})
    profile["phases"] = {} if recovery is None else {"recovery": [*recovery]}
    mine = told(tmp_path / "trial", profile, *refused, *asked, stalls=stalls, at_ns=ns(20), **ended)
    return unwound.judge(mine, unwound.Params(refusals=4, each=1, whole=whole))


def ok(at=12, name="ok"):
    return opened("south", name, at, used=[(at + 0.1, 1)], closed=at + 1)


def test_runs_of_the_recovery_are_those_that_asked_in_it(tmp_path):
    asked = [ok(10, "first"), ok(14.9, "last"), turned_away("south", 9.9, "sessions"), turned_away("south", 15)]
    verdict = on_pools(tmp_path, *asked)
    assert verdict.word is Word.PASS, verdict.sentence
    assert (found(verdict, REFUSED).samples, "2 runs got the whole" in verdict.sentence) == (2, True)


def test_a_run_that_was_opened_and_of_which_nothing_arrived_got_no_pool(tmp_path):
    verdict = on_pools(tmp_path, ok(), opened("south", "idle", 12, call="1.77"))
    assert (verdict.word, verdict.witnesses) == (Word.FAIL, ("1.77",))
    assert "south: opened, and nothing of it arrived" in verdict.sentence


@pytest.mark.parametrize(
    ("asked", "word"),
    [
        (opened("south", "x", 12, answered=13), Word.INCONCLUSIVE),
        (opened("south", "x", 12, used=[(13, 1)]), Word.PASS),
        (turned_away("south", 12, None, "failed", 13), Word.INCONCLUSIVE),
        (turned_away("south", 12, "sessions", answered=13), Word.FAIL),
    ],
    ids=["opened_and_idle", "did_arrive", "failed", "refused"],
)
def test_a_stall_of_the_stub_excuses_only_what_had_no_chance_to_arrive(tmp_path, asked, word):
    assert on_pools(tmp_path, ok(14), asked, stalls=[(12.1, 12.9)], whole=2).word is word


@pytest.mark.parametrize(
    ("earlier", "word"),
    [
        (opened("south", "e", 1, closed=12), Word.FAIL),
        (opened("south", "e", 1, closed=12.001), Word.INCONCLUSIVE),
        (opened("south", "e", 1, used=[(12, 1)], closed=5), Word.FAIL),
        (opened("south", "e", 1, used=[(12.001, 1)], closed=5), Word.INCONCLUSIVE),
        (opened("south", "e", 1, used=[(12.001, 1)]), Word.INCONCLUSIVE),
        (turned_away("south", 1, None, "expired", 13), Word.FAIL),
        (opened("south", "e", 11, used=[(11.5, 1)], closed=14), Word.FAIL),
    ],
    ids=["just_closed", "not_closed", "its_last_call_had_ended", "a_call_was_under_way", "vanished_with_a_call",
         "never_opened", "of_the_recovery_itself"],
)  # fmt: skip
def test_a_pool_that_an_earlier_run_still_held_proves_nothing(tmp_path, earlier, word):
    """A run is refused a session at 12 s; those of the recovery must all fit."""
    asked = [ok(11, "first"), turned_away("south", 12, "sessions"), earlier]
    assert on_pools(tmp_path, *asked, whole=2).word is word


@pytest.mark.parametrize(
    ("tenant", "used", "word"),
    [("north", (11, 200), Word.INCONCLUSIVE), ("north", (11, 102), Word.INCONCLUSIVE), ("north", (11, 101), Word.FAIL),
     ("north", (2.1, 1000), Word.INCONCLUSIVE), ("north", (2, 1000), Word.FAIL), ("south", (11, 200), Word.FAIL)],
    ids=["spent", "not_quite_whole", "whole_but_for_a_thousandth", "refilled_too_little", "refilled", "of_another"],
)  # fmt: skip
def test_a_bucket_that_was_not_whole_proves_nothing_of_a_refusal_for_tokens(tmp_path, tenant, used, word):
    """A bucket of 1,000 that is refilled by 100 a second; the run asks at 11.5 s, and is refused at 12 s."""
    at, tokens = used
    asked = [ok(14), opened(tenant, "e", 1, used=[(at, tokens)], closed=11), turned_away("north", 11.5, answered=12)]
    assert on_pools(tmp_path, *asked, whole=2).word is word


def test_a_tenant_without_a_bucket_has_no_reason_to_be_refused_for_tokens(tmp_path):
    asked = [ok(14), opened("south", "e", 1, used=[(11, 9000)], closed=13), turned_away("south", 12)]
    assert on_pools(tmp_path, *asked).word is Word.FAIL


@pytest.mark.parametrize(
    ("key", "name"),
    [("sessions", "sessions"), ("memory", "memory"), ("tools", "tools"), ("reserved_cost", "reserved tokens")],
)
def test_a_single_unit_of_any_pool_that_is_held_at_the_end_fails(tmp_path, key, name):
    verdict = on_pools(tmp_path, ok(), leftovers={"sessions": 0, "memory": 0, "tools": 0, "reserved_cost": 0, key: 1})
    rule = found(verdict, "still held at the end", name)
    assert (verdict.word, rule.measured, rule.samples) == (Word.FAIL, 1, 1)


@pytest.mark.parametrize("leftovers", [None, {}, {"sessions": None, "memory": "2"}, [1]])
def test_what_nobody_tells_of_the_end_is_not_held(tmp_path, leftovers):
    verdict = on_pools(tmp_path, ok(), leftovers=leftovers)
    assert "still held at the end" not in {one.quantity for one in verdict.findings}


@pytest.mark.parametrize(("cost", "recovery"), [(None, ("10s", "15s")), (POOLS, None)])
def test_without_pools_or_a_recovery_nothing_is_decided(tmp_path, cost, recovery):
    verdict = on_pools(tmp_path, ok(), cost=cost, recovery=recovery)
    assert (verdict.word, "`phases.recovery`" in verdict.add) == (Word.INCONCLUSIVE, True)


def test_of_a_trial_that_was_cut_off_and_without_arrivals_it_is_said_what_is_missing(tmp_path):
    mine = told(tmp_path / "trial", document(POOLS, {"north": [group()]}), run("a", 1))
    cut = manifest_edited(mine, lambda manifest: manifest.pop("ended"))
    assert reconciled.judge(cut, reconciled.Params()).word is Word.INCONCLUSIVE
    (cut.folder / "arrivals.jsonl").unlink()
    again = manifest_edited(cut, lambda manifest: None)
    for check in (unwound, reconciled):
        assert "arrivals.jsonl" in check.judge(again, check.Params()).sentence


def test_a_trial_that_was_cut_has_held_nothing_at_its_end(tmp_path):
    profile = document(POOLS, {"north": [group()], "south": [group()]})
    profile["phases"] = {"recovery": ["10s", "15s"]}
    mine = told(tmp_path / "trial", profile, turned_away("north", 1, "sessions"), ok(), at_ns=ns(20))
    cut = manifest_edited(mine, lambda manifest: manifest.pop("ended"))
    verdict = unwound.judge(cut, unwound.Params(refusals=4, each=1, whole=1))
    assert verdict.word is Word.INCONCLUSIVE
    assert "still held at the end" not in {one.quantity for one in verdict.findings}
