"""flood.cheap and flood.expensive on runs told row by row: whose loss it is, how slow is slow, what was paid for."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from harness.checks import flood_expensive as expensive
from harness.checks import flood_rows
from harness.checks.cost_rows import cost_frame
from harness.checks.judge import judge_one
from harness.checks.verdict import Word
from tests.unit.cost_trials import document, found, group, ns, opened, told, turned_away

CHEAP, EXPENSIVE = "flood.cheap", "flood.expensive"
LOST, SLOWER = "requests not served", "slower"
BEFORE, BESIDE = "of others before the flood", "of others beside the flood"
FEW = {"requests": 2, "refused": 1, "before": 1, "beside": 1}
TENANTS = ("flood", "north")


def turn(tenant, run, at, took=0.1, outcome="served", more=(), **call):
    """A run that is opened at once, and whose call is answered so much later. more: how its further calls end."""
    one = opened(tenant, run, at, **call)
    row = {"due_ns": ns(at), "done_ns": ns(at + took), "action": "submit", "run_id": run}
    one.calls += [{**row, "outcome": ends} for ends in (outcome, *more)]
    return one


def turns(n, from_s, tenant="north", **how):
    return [turn(tenant, f"{tenant}-{from_s}-{i}", from_s + i / 1000, **how) for i in range(n)]


def flood(*more, n=2, at=5.0):
    """So many small requests of the tenant that floods, of which one more is refused."""
    mine = [opened("flood", f"f{i}", at + i / 1000, used=[(at + 1, 100)]) for i in range(n)]
    return [*mine, turned_away("flood", at + 0.5), *more]


COST = {"tenants": {"flood": {"rate": "100/s", "burst": 1000}}}


def cheap(folder, *asked, params=None, cost=COST, tenants=TENANTS, **more):
    profile = document(cost, {name: [group()] for name in tenants})
    given = {**FEW, "paid": 0.0, **({} if params is None else params)}
    return judge_one(told(folder / "t", profile, *asked, **more), CHEAP, given)


# --- others


def test_others_are_those_beside_the_flood_and_before_it_by_when_they_were_due(tmp_path):
    """What is due with the flood's first request is beside it."""
    verdict = cheap(tmp_path, *turns(2, 1), turn("north", "n", 5.0), *turns(3, 6), *flood(n=9))
    assert (verdict.word, found(verdict, BEFORE).measured, found(verdict, BESIDE).measured) == (Word.PASS, 2.0, 4.0)


@pytest.mark.parametrize(("lost", "word"), [(1, Word.PASS), (2, Word.FAIL)])
def test_one_in_a_hundred_of_others_may_be_lost_and_none_that_was_lost_before_counts(tmp_path, lost, word):
    gone = [turn("north", f"gone{i}", 8 + i / 1000, outcome="failed", call=f"1.{900 + i}") for i in range(lost)]
    early = turns(3, 2, outcome="failed")
    verdict = cheap(tmp_path, *turns(9, 1), *early, *turns(100 - lost, 6), *gone, *flood(n=120))
    rule = found(verdict, LOST)
    assert (rule.word, rule.measured, rule.samples) == (word, lost / 100, 100)
    if word is Word.FAIL:
        assert verdict.sentence.startswith(
            "2 of 100 requests of other tenants were not served while it lasted (north);"
        )
        assert verdict.witnesses[:3] == ("1.900", "1.901", "f119")


def test_only_tenants_that_lost_something_are_named(tmp_path):
    rows = [*turns(5, 6, "north"), *turns(1, 6, "south", outcome="failed"), *flood(n=9)]
    verdict = cheap(tmp_path, *rows, tenants=("flood", "north", "south"))
    assert "were not served while it lasted (south)" in verdict.sentence


@pytest.mark.parametrize(
    ("how", "lost"),
    [
        ({}, 0.0),
        ({"outcome": "coalesced"}, 0.0),
        ({"more": ["served"]}, 0.0),
        ({"more": ["failed"]}, 1.0),
        ({"outcome": "failed", "more": ["served"]}, 1.0),
    ],
    ids=["served", "shared", "all_served", "last_failed", "first_failed"],
)
def test_a_request_is_served_when_all_that_it_submitted_was(tmp_path, how, lost):
    verdict = cheap(tmp_path, *turns(1, 1), turn("north", "n", 6.0, **how), *flood())
    assert found(verdict, LOST).measured == lost


def test_that_a_run_could_not_be_closed_takes_nothing_from_what_it_was_served(tmp_path):
    mine = turn("north", "n", 6.0)
    mine.calls.append({**mine.calls[-1], "action": "finish", "outcome": "failed", "done_ns": ns(9)})
    verdict = cheap(tmp_path, *turns(1, 1), mine, *flood())
    assert (found(verdict, LOST).measured, found(verdict, SLOWER).measured) == (0.0, pytest.approx(1.0))


def test_where_nobody_is_beside_it_nothing_is_lost_and_nothing_shown(tmp_path):
    verdict = cheap(tmp_path, *turns(1, 1), *flood())
    assert [(found(verdict, name).word, found(verdict, name).measured) for name in (LOST, SLOWER)] == [
        (Word.INCONCLUSIVE, 0.0), (Word.INCONCLUSIVE, 0.0),
    ]  # fmt: skip


@pytest.mark.parametrize(("took", "word"), [(0.3, Word.PASS), (0.301, Word.FAIL)])
def test_others_may_take_three_times_as_long_as_before_and_no_longer(tmp_path, took, word):
    """By the median of those that were served: one that was not says nothing of how long it takes."""
    lost = [turn("north", "l", 1.5, took=9, outcome="failed"), turn("north", "m", 8.0, took=9, outcome="failed")]
    rows = [*turns(3, 1), turn("north", "slow", 7.0, took=2, call="1.77"), *turns(4, 6, took=took), *lost, *flood(n=20)]
    verdict = cheap(tmp_path, *rows, params={"lost": 0.5})
    rule = found(verdict, SLOWER)
    assert (rule.word, rule.measured, rule.samples) == (word, pytest.approx(took * 10), 5)
    if word is Word.FAIL:
        assert verdict.sentence.startswith(
            "Requests of other tenants took 301 ms (median) where they took 100 ms before;"
        )
        assert verdict.witnesses[1] == "1.77"


def test_what_took_no_time_before_is_held_to_a_nanosecond(tmp_path):
    mine = turn("north", "n", 6.0, took=0)
    mine.calls[-1]["done_ns"] += 3
    assert found(cheap(tmp_path, *turns(1, 1, took=0), mine, *flood()), SLOWER).measured == 3.0


def test_without_others_before_it_nobody_knows_what_is_slow(tmp_path):
    verdict = cheap(tmp_path, *turns(3, 6), *flood(n=9))
    assert (found(verdict, SLOWER).word, found(verdict, SLOWER).samples) == (Word.INCONCLUSIVE, 0)


@pytest.mark.parametrize("params", [{"lost": -0.1}, {"slower": 0.5}])
def test_shares_are_shares(params):
    with pytest.raises(ValidationError):
        flood_rows.Unmoved.model_validate(params)


@pytest.mark.parametrize("given", [{}, {"lost": 0.01}])
def test_unless_told_otherwise_a_hundredth_may_be_lost_and_threefold_time_be_taken(tmp_path, given):
    """Of forty one is more than a hundredth; ten before the flood, at its instant and later forty."""
    rows = [*turns(10, 1), *turns(39, 6, took=0.35), turn("north", "l", 5.0, outcome="failed")]
    costs = cost_frame(told(tmp_path / "t", document(COST, {name: [group()] for name in TENANTS}), *rows, *flood()))
    rules = flood_rows.unmoved(costs, ["north"], ns(5), flood_rows.Unmoved.model_validate(given))
    assert [r.finding.word for r in rules] == [Word.FAIL, Word.FAIL, Word.PASS, Word.PASS]
    with pytest.raises(ValidationError):
        flood_rows.Unmoved.model_validate({"lost": 1.5})


# --- a flood of small requests


@pytest.mark.parametrize(
    ("cost", "tenants"),
    [({"tenants": {"north": {"rate": "1/s", "burst": 9}}}, TENANTS), (COST, ("flood",)), (None, TENANTS)],
    ids=["no_bucket", "nobody_else", "no_cost"],
)
def test_a_flood_is_of_a_tenant_with_a_bucket_beside_others(tmp_path, cost, tenants):
    asked = [*(turns(1, 6) if "north" in tenants else []), *flood(n=5)]
    verdict = cheap(tmp_path, *asked, cost=cost, tenants=tenants)
    assert verdict.sentence.startswith("Cannot be judged: there is no tenant with a bucket and many requests beside")


@pytest.mark.parametrize(("least", "said"), [(3, False), (4, True)])
def test_so_many_requests_are_a_flood(tmp_path, least, said):
    verdict = cheap(tmp_path, *turns(1, 1), *turns(1, 6), *flood(), params={"requests": least})
    assert ("there is no flood" in verdict.sentence) is said


def test_what_was_refused_of_it_is_counted_and_nothing_else(tmp_path):
    verdict = cheap(tmp_path, *turns(1, 1), *turns(1, 6), *flood(n=5))
    assert found(verdict, "refused of the flood").measured == 1
    assert "6 small requests of flood, 1 of them refused to it alone: the 2 of north" in verdict.sentence


@pytest.mark.parametrize(("tokens", "word"), [(1200, Word.PASS), (1199, Word.FAIL)])
def test_what_its_bucket_held_from_its_first_request_to_its_last_answer_is_what_it_paid_for(tmp_path, tokens, word):
    """1000 at once and 100 a second for ten seconds: of 2000, six tenths."""
    mine = [
        opened("flood", "a", 1.0, used=[(2, 600)]),
        opened("flood", "b", 10.0, answered=11.0, used=[(11, tokens - 600)]),
    ]
    rows = [*turns(1, 0.5), *turns(1, 2), *mine, turned_away("flood", 3.0)]
    rule = found(cheap(tmp_path, *rows, params={"paid": 0.6}), "served of what it paid for")
    assert (rule.word, rule.measured, rule.samples) == (word, tokens / 2000, 1)


def test_a_bucket_is_not_filled_while_the_stub_stands_still(tmp_path):
    mine = [opened("flood", "a", 1.0, used=[(2, 600)]), opened("flood", "b", 10.0, answered=11.0, used=[(11, 600)])]
    rows = [*turns(1, 0.5), *turns(1, 2), *mine, turned_away("flood", 3.0)]
    rule = found(cheap(tmp_path, *rows, stalls=[(4, 9)]), "served of what it paid for")
    assert rule.measured == pytest.approx(1200 / 1500)


TOLD = "of the flood were neither served nor refused"


@pytest.mark.parametrize(
    ("outcome", "call", "wrong"),
    [
        ("failed", {}, 1.0),
        ("expired", {}, 0.0),
        ("throttled", {}, 0.0),
        ("budget_exhausted", {}, 0.0),
        ("failed", {"run_id": "f9"}, 0.0),
    ],
    ids=["failed", "ran_out_of_time", "refused", "its_budget", "opened"],
)  # fmt: skip
def test_each_request_of_the_flood_is_served_or_refused_in_typed_words(tmp_path, outcome, call, wrong):
    odd = turned_away("flood", 7.0, None, outcome, **call)
    verdict = cheap(tmp_path, *turns(1, 1), *turns(1, 6), *flood(odd))
    assert (found(verdict, TOLD).measured, found(verdict, TOLD).samples) == (wrong, 4)


def test_what_failed_while_the_stub_stood_still_is_not_held_against_it(tmp_path):
    odd = turned_away("flood", 7.0, None, "failed", answered=8.0)
    verdict = cheap(tmp_path, *turns(1, 1), *turns(1, 6), *flood(odd), stalls=[(7.1, 7.9)])
    assert (found(verdict, TOLD).measured, found(verdict, TOLD).samples) == (0.0, 3)


def test_one_request_may_be_a_flood(tmp_path):
    rows = [*turns(1, 1), *turns(1, 6, "south"), turned_away("flood", 5.0)]
    verdict = cheap(tmp_path, *rows, params={"requests": 1}, tenants=("flood", "north", "south"))
    assert (found(verdict, TOLD).word, found(verdict, TOLD).samples) == (Word.PASS, 1)


# --- one request of many sub-agents

MODEL = {"dependency": "model", "tool": "look", "usage": {"tokens": 100}}
CHILD = {"batches": [[MODEL]]}
FEW_AGENTS = {"agents": 2, "floods": 1, "modest": 1, "before": 1, "beside": 1}
WIDE = ("flood", "team", "north")


def tree(tenant, run, at, *agents, number=0, used=(), **how):
    """A run with these sub-agents, by how their opening ended."""
    place = WIDE.index(tenant)
    root = turn(tenant, run, at, call=f"{place}.{number}", task="chat", **how)
    root.arrivals += opened(tenant, run, at, used=used).arrivals
    for i, outcome in enumerate(agents, start=1):
        row = {"call": f"{place}.{number + i}", "parent": f"{place}.{number}", "due_ns": ns(at), "done_ns": ns(at),
               "action": "open", "outcome": outcome}  # fmt: skip
        root.calls.append({**row, **({"run_id": f"{run}.{i}"} if outcome == "served" else {})})
    return root


def fanned(folder, *asked, params=None, bucket=250, agents=2, small=1, **more):
    groups = {
        "flood": [group(children=[{**CHILD, "count": agents}])],
        "team": [group(children=[{**CHILD, "count": small}])],
        "north": [group()],
    }
    cost = {"tenants": {"flood": {"rate": "100/s", "burst": bucket}}}
    trial = told(folder / "t", document(cost, groups), *asked, **more)
    return judge_one(trial, EXPENSIVE, {**FEW_AGENTS, **(params or {})})


def scene(*more, agents=("served", "throttled"), team=("served",), flooding=None):
    mine = [tree("flood", "f", 5.0, *agents, used=[(6, 100)])] if flooding is None else flooding
    return [*turns(1, 1), *turns(1, 6), tree("team", "t", 6.0, *team), *mine, *more]


MODEST, OPENED = "with a few sub-agents were not let through whole", "were neither opened nor refused in typed words"


def test_a_tree_that_is_cut_to_what_its_tenant_pays_for_passes(tmp_path):
    verdict = fanned(tmp_path, *scene())
    assert verdict.word is Word.PASS, verdict.sentence
    assert "1 request of flood asked for 2 sub-agents, of which 1 were refused: chat turns of team, north" in (
        verdict.sentence
    )
    assert (found(verdict, MODEST).samples, found(verdict, OPENED).samples) == (1, 2)


def test_a_flood_that_is_lost_itself_is_no_loss_of_others(tmp_path):
    verdict = fanned(tmp_path, *scene(flooding=[tree("flood", "f", 5.0, "throttled", "throttled", outcome="failed")]))
    assert (found(verdict, LOST).measured, found(verdict, BESIDE).measured) == (0.0, 2.0)


def test_alone_a_flood_moves_nobody(tmp_path):
    verdict = fanned(tmp_path, tree("flood", "f", 5.0, "served", "throttled"))
    assert verdict.sentence.startswith("Cannot be judged: no request of a tenant with a bucket fans out")


@pytest.mark.parametrize(
    ("agents", "missing"),
    [
        (("served", "throttled"), 0),
        (("throttled", "budget_exhausted"), 0),
        (("served",), 1),
        (("served", "failed"), 1),
    ],
)
def test_each_sub_agent_is_opened_or_refused_and_the_request_itself_is_none_of_them(tmp_path, agents, missing):
    assert found(fanned(tmp_path, *scene(agents=agents)), OPENED).measured == missing


def test_a_flood_that_was_refused_whole_asked_for_no_sub_agents(tmp_path):
    mine = [tree("flood", "f", 5.0, "served", "throttled"), turned_away("flood", 5.5)]
    verdict = fanned(tmp_path, *scene(flooding=mine))
    assert (found(verdict, OPENED).word, found(verdict, OPENED).samples) == (Word.PASS, 2)


def test_sub_agents_that_were_cut_off_while_the_stub_stood_still_are_not_missed(tmp_path):
    mine = [tree("flood", "f", 5.0, "served", used=[(9.0, 100)])]
    verdict = fanned(tmp_path, *scene(flooding=mine), stalls=[(6.5, 9)])
    assert (found(verdict, OPENED).word, found(verdict, OPENED).samples) == (Word.INCONCLUSIVE, 0)


def test_a_single_sub_agent_may_be_a_flood(tmp_path):
    groups = {"flood": [group(children=[CHILD])], "team": [group()], "north": [group()]}
    profile = document({"tenants": {"flood": {"rate": "100/s", "burst": 150}}}, groups)
    trial = told(tmp_path / "t", profile, *turns(1, 1), *turns(1, 6), tree("flood", "f", 5.0, "served"))
    verdict = judge_one(trial, EXPENSIVE, {**FEW_AGENTS, "agents": 1})
    assert (found(verdict, OPENED).word, found(verdict, OPENED).samples) == (Word.PASS, 1)


@pytest.mark.parametrize(
    ("team", "how", "wrong"),
    [
        (("served",), {}, 0.0),
        (("throttled",), {}, 1.0),
        (("budget_exhausted",), {}, 1.0),
        (("served",), {"outcome": "failed"}, 1.0),
    ],
    ids=["whole", "refused", "refused_by_budget", "its_own_call_failed"],
)
def test_a_tree_of_others_that_is_paid_for_is_let_through_whole(tmp_path, team, how, wrong):
    asked = [
        *turns(1, 1),
        *turns(1, 6),
        tree("flood", "f", 5.0, "served", "throttled"),
        tree("team", "t", 6, *team, **how),
    ]
    verdict = fanned(tmp_path, *asked, params={"lost": 1})
    assert (found(verdict, MODEST).measured, found(verdict, MODEST).samples) == (wrong, 1)


@pytest.mark.parametrize(("team", "wrong", "samples"), [(("served",), 0.0, 0), (("throttled",), 1.0, 1)])
def test_a_stall_excuses_a_tree_that_ran_out_of_time_and_none_that_was_refused(tmp_path, team, wrong, samples):
    late = tree("team", "t", 6.0, *team, outcome="expired", took=2)
    asked = [*turns(1, 1), *turns(1, 6), tree("flood", "f", 5.0, "served", "throttled"), late]
    verdict = fanned(tmp_path, *asked, params={"lost": 1}, stalls=[(6.1, 7.9)])
    assert (found(verdict, MODEST).measured, found(verdict, MODEST).samples) == (wrong, samples)


def test_a_call_of_a_tree_that_is_refused_is_no_sub_agent(tmp_path):
    mine = tree("flood", "f", 5.0, "served", "throttled")
    mine.calls.append({**mine.calls[1], "outcome": "throttled", "parent": "0.0"})
    assert "of which 1 were refused" in fanned(tmp_path, *scene(flooding=[mine])).sentence


@pytest.mark.parametrize(("bucket", "beyond"), [(299, 1.0), (300, 0.0)])
def test_a_flood_is_more_than_its_tenants_bucket_holds(tmp_path, bucket, beyond):
    """A run and two sub-agents, of a hundred tokens each."""
    rule = found(fanned(tmp_path, *scene(), bucket=bucket), "would be more than its bucket")
    assert rule.measured == beyond


@pytest.mark.parametrize(("tokens", "word"), [(325, Word.PASS), (326, Word.FAIL)])
def test_a_flood_may_overdraw_its_bucket_by_three_tenths(tmp_path, tokens, word):
    mine = [tree("flood", "f", 5.0, "served", "throttled", used=[(5, tokens)])]
    assert found(fanned(tmp_path, *scene(flooding=mine)), "used beyond its bucket").word is word


def test_of_a_request_of_which_nothing_is_known_nothing_is_beyond(tmp_path):
    trial = told(tmp_path / "t", document(COST, {name: [group()] for name in TENANTS}), opened("flood", "f", 1))
    costs = cost_frame(trial)
    mine = costs.requests[0]
    mine.tenant = "north"
    assert not expensive._beyond(costs, mine)
    mine.tenant, mine.group = "flood", None
    assert not expensive._beyond(costs, mine)
    assert expensive.agents_of(None) == 0
