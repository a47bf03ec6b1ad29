"""The checks of delegation trees on trials told row by row: who is of a tree, and its limits at just their bounds."""

from __future__ import annotations

import pytest

from harness.checks import tree_bounded as bounded
from harness.checks import tree_guard as guard
from harness.checks import tree_priced as priced
from harness.checks.tree_rows import begun_when_spent, handed_on, refused_modestly, trees_of, untold
from harness.checks.verdict import Word
from tests.unit.cost_trials import Asked, S, document, found, group, ns, opened, told, turned_away

ENVELOPE = {"deadline": "30s", "attempts": 90, "parallel": 3, "retry_tokens": 0}


def child(tokens=100, count=1, batches=1, **more):
    step = {"dependency": "model", "tool": f"of_{tokens}", "usage": {"tokens": tokens}}
    return {"batches": [[step]] * batches, "count": count, "envelope": {"attempts": batches}, **more}


def agent(run, at, calls=(), *, tenant="north", place=0, outcomes=(), sizes=(), **more) -> Asked:
    """A run whose open call is 0.<place>, and whose calls were told as served, unless `outcomes` says what."""
    one = opened(tenant, run, at, used=calls, call=f"{0 if tenant == 'north' else 1}.{place}", **more)
    ends = dict(enumerate(outcomes))
    for number, row in enumerate(one.arrivals):
        row |= {"bytes": dict(enumerate(sizes)).get(number, 0)}
        end = {"t_ns": row["ended_ns"], "kind": "step", "run": run, "step": row["step"]}
        one.decisions.append({**end, "outcome": "served", **ends.get(number, {})})
    return one


def refuse(one: Asked, reason, action="submit", outcome="budget_exhausted", at=9) -> Asked:
    """Its caller was refused a batch, or a sub-agent."""
    row = {"due_ns": ns(at), "outcome": outcome, "reason": reason, "action": action}
    above = one.calls[0]
    client, _, place = above["call"].partition(".")
    row["call"] = f"{client}.{1000 * (1 + int(place)) + len(one.calls)}"
    row |= {"parent": above["call"], "run": 900} if action == "open" else {"run_id": above["run_id"]}
    one.calls.append(row)
    return one


def trial(tmp_path, *asked, groups=None, cost=None, south=(), stalls=(), **envelope):
    tenants = {"north": groups or [group()], "south": list(south) or [group()]}
    profile = document(cost, tenants, envelope={**ENVELOPE, **envelope})
    return told(tmp_path / "trial", profile, *asked, stalls=stalls)


def trees(tmp_path, *asked, **more):
    return trees_of(trial(tmp_path, *asked, **{"depth": 3, **more}), "any")[1]


# --- whose tree it is


def test_levels_and_spans_of_a_tree_are_from_its_callers_and_from_what_arrived(tmp_path):
    mine = [
        agent("a", 1, [(3, 1)], place=0, closed=4), agent("b", 1, [(5, 1)], place=1, parent="0.0"),
        agent("c", 2, [(3, 1), (8, 1)], place=2, parent="0.1", closed=6), agent("d", 2, place=3, parent="0.0"),
        agent("e", 0, place=4), agent("f", 1, [(2, 1)], place=5, closed=7, how="cancel"),
    ]  # fmt: skip
    mine[1].calls.append({"due_ns": 9 * S, "outcome": "failed", "action": "submit", "run_id": "b"})
    first, *others = sorted(trees(tmp_path, *mine), key=lambda tree: tree.root)
    assert (first.root, first.agents, [tree.root for tree in others]) == ("a", 3, ["e", "f"])
    spans = {run: (node.level, node.opened_ns, node.closed_ns) for run, node in first.nodes.items()}
    assert spans == {"a": (0, S, 8 * S), "b": (1, S, 8 * S), "c": (2, 2 * S, 8 * S), "d": (1, 2 * S, 2 * S)}
    assert {node.run for node in first.under("b")} == {"b", "c"}
    assert [tree.nodes[tree.root].closed_ns for tree in others] == [0, 7 * S]


def test_a_run_was_open_when_its_first_call_arrived_if_that_is_known_sooner(tmp_path):
    (tree,) = trees(tmp_path, agent("a", 1, [(3, 1), (9, 1)], answered=5))
    assert tree.nodes["a"].opened_ns == 3 * S - 1


def test_only_the_answer_that_opened_it_says_since_when_a_run_was_open(tmp_path):
    mine = agent("a", 3, [(4, 1)], closed=6)
    mine.calls.append({"due_ns": 2 * S, "done_ns": S, "outcome": "open", "action": "submit", "run_id": "a"})
    (tree,) = trees(tmp_path, mine)
    assert (tree.nodes["a"].opened_ns, tree.nodes["a"].closed_ns) == (3 * S, 6 * S)


def test_a_run_that_nobody_opened_is_no_tree(tmp_path):
    mine = agent("a", 1, [(2, 1), (3, 1)])
    mine.arrivals[1]["run"] = "stray"
    assert [tree.root for tree in trees(tmp_path, mine)] == ["a"]


def test_a_run_that_is_said_to_be_its_own_parent_is_the_root_of_its_tree(tmp_path):
    mine = [agent("a", 1, [(2, 1)], place=0), agent("b", 1, place=1, parent="0.0")]
    mine[0].decisions.append({"t_ns": 0, "kind": "run", "outcome": "opened", "run": "a", "parent_run": "a"})
    (tree,) = trees(tmp_path, *mine)
    assert {run: node.level for run, node in tree.nodes.items()} == {"a": 0, "b": 1}


def test_a_run_that_no_caller_asked_for_or_whose_tree_has_no_limit_is_not_judged(tmp_path):
    stray = Asked("north", [], [{**agent("x", 1, [(2, 1)]).arrivals[0]}], [])
    limited, free = group(envelope={"depth": 1}), group(name="free")
    asked = [agent("a", 1, task="chat"), agent("b", 1, place=1, task="free"), stray]
    mine = trial(tmp_path, *asked, groups=[limited, free])
    assert [tree.root for tree in trees_of(mine, "any")[1]] == ["a"]


def test_a_refusal_without_a_reason_tells_nothing_and_one_for_another_limit_is_not_of_the_tree(tmp_path):
    silent, other = refuse(agent("a", 1), None), refuse(agent("b", 1, place=1), "attempts")
    mine = refuse(refuse(agent("c", 1, place=2), "attempts"), "depth", "open")
    failed = refuse(agent("d", 1, place=3), "depth", outcome="failed")
    read = trees(tmp_path, silent, other, mine, failed)
    assert [[reason for reason, _ in tree.told] for tree in read] == [[], ["attempts"], ["attempts", "depth"], []]
    assert refused_modestly(read) == ([("c", "refused for depth")], 4)


DRAWN = {"distribution": "lognormal", "mean": 9, "sigma": 1.0}


@pytest.mark.parametrize(
    ("calls", "agents", "groups", "short"),
    [
        (1, 1, [group(children=[child()])], False),
        (0, 1, [group(children=[child()])], True),
        (1, 0, [group(children=[child()])], True),
        (2, 0, [group(children=[child()])], True),
        (0, 0, [group(DRAWN)], False),
        (0, 0, [group(), group(50, name="other")], False),
    ],
    ids=["whole", "a_call_is_missing", "an_agent_is_missing", "an_agent_whose_call_was_made", "drawn", "not_known"],
)
def test_a_tree_is_cut_short_if_it_is_known_what_it_wanted_and_some_is_missing(tmp_path, calls, agents, groups, short):
    mine = [agent("a", 1, [(2 + n, 1) for n in range(calls)])]
    mine += [agent(f"b{n}", 1, [(2, 1)], place=n + 1, parent="0.0") for n in range(agents)]
    (tree,) = trees(tmp_path, *mine, groups=groups, depth=0)
    assert untold([tree]) == (([("a", "no `budget_exhausted` with a reason")], 1) if short else ([], 0))
    assert tree.wants_more("depth") is (len(groups) == 1 and bool(groups[0].get("children")))


@pytest.mark.parametrize(
    ("groups", "modest"),
    [([group()], True), ([group(children=[child()])], False), ([group(DRAWN)], False),
     ([group(), group(50, name="other")], False)],
    ids=["asks_for_little", "asks_for_more", "drawn", "not_known"],
)  # fmt: skip
def test_a_tree_is_modest_if_it_is_known_to_ask_for_no_more_than_it_may(tmp_path, groups, modest):
    (tree,) = trees(tmp_path, agent("a", 1), groups=groups, depth=0)
    assert tree.modest is modest


def test_only_answers_to_reads_that_were_served_were_handed_on(tmp_path):
    calls = [(2, 1), (3, 20), (4, 300), (5, None), (6, 5000)]
    mine = agent("a", 1, calls, outcomes=[{}, {"outcome": "failed"}, {}, {}, {"outcome": "queued"}])
    mine.arrivals[2]["operation"] = "write"
    frame, (tree,), _ = trees_of(trial(tmp_path, mine, depth=3), "any")
    assert handed_on(frame, tree.arrivals, "tokens") == 1


@pytest.mark.parametrize(
    ("limit", "expected"),
    [(300, [("a/b2.0", "1000 ms after 300 tokens")]), (301, []), (100, [("a/b1.0", "1000 ms after 100 tokens"),
     ("a/b2.0", "2000 ms after 100 tokens")])],
)  # fmt: skip
def test_nothing_begins_once_what_came_in_has_used_up_the_limit(tmp_path, limit, expected):
    mine = agent("a", 1, [(2, 100), (3, 200), (4, None)])
    frame, (tree,), _ = trees_of(trial(tmp_path, mine, depth=3), "any")
    assert begun_when_spent(frame, tree.arrivals, "tokens", limit, S // 2) == expected


def test_what_began_just_when_an_answer_can_have_been_heard_of_is_not_late(tmp_path):
    mine = agent("a", 1, [(2, 100), (3, 1)])
    frame, (tree,), _ = trees_of(trial(tmp_path, mine, depth=3), "any")
    for late_ns, n in ((S - 1, 0), (S - 2, 1)):
        assert len(begun_when_spent(frame, tree.arrivals, "tokens", 100, late_ns)) == n


# --- tree.bounded

FEW = bounded.Params(trees=1, modest=1)


def on_bounded(tmp_path, *asked, groups=None, **envelope):
    return bounded.judge(trial(tmp_path, *asked, groups=groups, **envelope), FEW)


def test_a_profile_that_limits_no_tree_says_nothing_of_trees(tmp_path):
    verdict = on_bounded(tmp_path, agent("a", 1, [(2, 1)]))
    assert (verdict.word, "`envelope` with depth" in verdict.add) == (Word.INCONCLUSIVE, True)


@pytest.mark.parametrize(("limit", "word"), [(3, Word.PASS), (2, Word.FAIL)])
def test_runs_that_were_open_at_once_each_until_its_longest_branch_was_over(tmp_path, limit, word):
    mine = [
        agent("a", 1, [(2, 1)], place=0), agent("b", 3, [(5, 1)], place=1, parent="0.0"),
        agent("c", 4, place=2, parent="0.0"), agent("d", 6, [(7, 1)], place=3, parent="0.0"),
    ]  # fmt: skip
    rule = found(on_bounded(tmp_path, *mine, sessions=limit), "sessions over the envelope")
    assert (rule.word, rule.measured) == (word, 3 - limit)


@pytest.mark.parametrize(("limit", "over"), [(60, 0), (59, 1), (31, 29)])
def test_what_any_one_branch_handed_up_is_that_of_all_below_it(tmp_path, limit, over):
    mine = [
        agent("a", 1, [(2, 1)], place=0, sizes=[10]), agent("b", 1, [(2, 1)], place=1, parent="0.0", sizes=[20]),
        agent("c", 1, [(2, 1)], place=2, parent="0.1", sizes=[30]),
    ]  # fmt: skip
    assert found(on_bounded(tmp_path, *mine, payload=limit), "payload over the envelope").measured == over


@pytest.mark.parametrize(
    ("envelope", "quantity"),
    [({"bytes": 50}, "began when the bytes was used up"),
     ({"context_tokens": 50}, "began when the context was used up")],
)  # fmt: skip
@pytest.mark.parametrize(("second", "word"), [(2.05, Word.PASS), (2.051, Word.FAIL)], ids=["under_way", "afterwards"])
def test_nothing_of_a_tree_begins_when_its_bytes_or_its_context_are_used_up(tmp_path, envelope, quantity, second, word):
    calls = [(2, 50), (second, 0)] if "context_tokens" in envelope else [(2, 0), (second, 0)]
    mine = agent("a", 1, calls, sizes=[50 if "bytes" in envelope else 0])
    verdict = on_bounded(tmp_path, mine, **envelope)
    assert found(verdict, quantity).word is word


def test_a_limit_that_no_tree_has_is_broken_by_nothing(tmp_path):
    verdict = on_bounded(tmp_path, agent("a", 1, [(2, 1)]), depth=1)
    assert found(verdict, "began when the bytes was used up").word is Word.PASS
    assert found(verdict, "bytes over the envelope").word is Word.INCONCLUSIVE


def test_the_worst_tree_is_told_with_its_figures(tmp_path):
    mine = [agent("a", 1, [(2, 1)], place=0), agent("b", 1, place=1), agent("c", 1, place=2)]
    mine += [agent(f"k{n}", 1, place=10 + n, parent="0.1" if n < 3 else "0.2") for n in range(5)]
    verdict = on_bounded(tmp_path, *mine, fan_out=1)
    assert found(verdict, "fan_out over the envelope").measured == 2
    assert "run b and its sub-agents: 3 sub-agents where its fan_out is 1 (2 such)" in verdict.sentence.lower()
    assert verdict.witnesses[:2] == ("b", "c")


# --- tree.inward_guard

LOOP = group(envelope={"loop": {"iterations": 1}}, batches=group()["batches"] * 3, name="loop")
HONEST = group(envelope={"loop": {"iterations": 1}}, name="honest")
FREE = group(envelope={"depth": 0}, children=[child()], name="free")
BUCKETS = {"tenants": {"north": {"rate": "1/s", "burst": 1000}}}
GUARD = guard.Params(runs=1, modest=1, left=0.5)


def on_guard(tmp_path, *asked, cost=BUCKETS, groups=(LOOP, HONEST), south=(HONEST,), params=GUARD):
    return guard.judge(trial(tmp_path, *asked, cost=cost, groups=[*groups], south=south), params)


def looping(run="a", tokens=100, **more):
    """It was stopped after one batch of three, and told so."""
    one = agent(run, 1, [(2, tokens)], task="loop", closed=8, **more)
    return refuse(one, "iterations", at=3)


def honest(run="h", at=4, place=5, **more):
    return agent(run, at, [(at, 100)], place=place, task="honest", closed=at + 1, **more)


def test_a_loop_that_its_own_guard_stops_leaves_its_tenant_its_budget(tmp_path):
    verdict = on_guard(tmp_path, looping(), honest())
    asked_for_more = {one.quantity for one in verdict.findings if one.word is Word.INCONCLUSIVE}
    assert {one.quantity for one in verdict.findings if one.word is Word.FAIL} == set()
    assert asked_for_more == {
        "ask for more than their branch_tokens", "ask for more than their agent_tokens",
        "began calls beyond their token ceiling", "began calls beyond their own budget",
    }  # fmt: skip


@pytest.mark.parametrize(("tokens", "left", "word"), [(500, 0.5, Word.PASS), (501, 0.499, Word.FAIL)])
def test_what_the_agents_of_a_tenant_left_of_its_bucket(tmp_path, tokens, left, word):
    idle = refuse(agent("i", 1, place=3, task="honest"), "attempts")
    asked = [looping(tokens=tokens), idle, honest("h", 600)]
    asked[-1].arrivals[0]["tokens"] = 1
    verdict = on_guard(tmp_path, *asked)
    rule = found(verdict, "left of its bucket")
    assert (rule.subject, rule.word, rule.samples) == ("north", word, 2)
    assert rule.measured == pytest.approx(left)
    assert verdict.witnesses == (("a", "h") if word is Word.FAIL else ())


@pytest.mark.parametrize(
    ("tenant", "reason", "outcome", "n"),
    [("north", "tokens", "throttled", 1), ("north", "tokens", "budget_exhausted", 1),
     ("north", "sessions", "throttled", 0), ("north", "tokens", "expired", 0),
     ("north", None, "failed", 0), ("south", "tokens", "throttled", 0)],
)  # fmt: skip
def test_no_run_of_a_tenant_whose_agents_loop_is_refused_for_its_budget(tmp_path, tenant, reason, outcome, n):
    """Another tenant's guards stop nobody: what it is refused is not the matter of this check."""
    other = agent("s", 4, [(5, 100)], tenant="south", task="honest", closed=6)
    refused = turned_away(tenant, 5, reason, outcome, call=f"{0 if tenant == 'north' else 1}.9")
    rule = found(on_guard(tmp_path, looping(), honest(), other, refused),
                 "of a tenant whose agents loop were refused for its budget")  # fmt: skip
    assert (rule.measured, rule.samples) == (n, 3 if tenant == "north" else 2)


def test_modest_runs_are_those_of_the_same_tenant_and_any_of_them(tmp_path):
    modest = group(7, envelope={"depth": 1}, name="modest")
    other = refuse(agent("s", 4, [(5, 100)], tenant="south", task="honest"), "iterations")
    mine = refuse(agent("m", 4, [(5, 7)], place=6, task="modest"), "sessions")
    verdict = on_guard(tmp_path, looping(), honest(), other, mine, groups=(LOOP, HONEST, modest))
    rule = found(verdict, "were stopped though they asked for no more than they may")
    assert (rule.measured, rule.samples, verdict.witnesses) == (1, 2, ("m",))


def test_trees_without_a_guard_are_none_that_a_guard_stopped(tmp_path):
    """Its sub-agent was never opened, and nobody said so: of another check."""
    verdict = on_guard(tmp_path, looping(), agent("f", 4, [(5, 100)], place=6, task="free"), groups=(LOOP, FREE))
    rule = found(verdict, "were stopped and not told why")
    assert (rule.measured, rule.samples) == (0, 1)


def test_one_tenant_with_a_bucket_is_enough(tmp_path):
    other = refuse(agent("s", 1, [(2, 9)], tenant="south", task="loop"), "iterations", at=3)
    verdict = on_guard(tmp_path, looping(), other, south=(LOOP,))
    assert {one.subject for one in verdict.findings if one.quantity == "left of its bucket"} == {"north"}


@pytest.mark.parametrize("groups", [(HONEST,), (FREE,)])
def test_where_nobody_loops_nothing_is_said(tmp_path, groups):
    verdict = on_guard(tmp_path, agent("a", 1, [(2, 9)]), groups=groups)
    assert (verdict.findings, "`envelope` with `loop`" in verdict.add) == ((), True)


# --- tree.delegate_priced

PRICES = {"delegate_cost": 5, "tool_cost": 2}
SEEN = priced.Params(delegations=1, calls=1, modest=1)
SOON = "were refused while they had the credits"


def on_priced(tmp_path, *asked, groups=None, **envelope):
    return priced.judge(trial(tmp_path, *asked, groups=groups, **{"credits": 20, **PRICES, **envelope}), SEEN)


def calls(n, run="a", **more):
    """A run with so many calls, in batches of their own."""
    return agent(run, 1, [(2 + place, 0) for place in range(n)], **more)


@pytest.mark.parametrize(("n", "agents", "over"), [(10, 0, 0), (11, 0, 2), (5, 2, 0), (3, 3, 1)])
def test_delegations_and_calls_are_paid_for_at_their_own_prices(tmp_path, n, agents, over):
    subs = [agent(f"b{place}", 1, place=place + 1, parent="0.0") for place in range(agents)]
    verdict = on_priced(tmp_path, calls(n), *subs)
    rule = found(verdict, "credits over the envelope")
    assert (rule.measured, rule.word is Word.FAIL, verdict.witnesses) == (over, over > 0, ("a",) * (over > 0))


def test_the_tree_that_spent_most_is_told_and_those_that_kept_within_are_not_named(tmp_path):
    asked = [calls(n, run, place=place) for place, (run, n) in enumerate((("a", 10), ("b", 11), ("c", 13), ("d", 1)))]
    verdict = on_priced(tmp_path, *asked)
    assert found(verdict, "credits over the envelope").measured == 6
    assert "0 sub-agents and 13 calls cost 26 credits where it has 20 (2 such)" in verdict.sentence
    assert verdict.witnesses == ("c", "b")


@pytest.mark.parametrize(
    ("n", "sold_out", "soon"),
    [
        (8, lambda one: refuse(one, "credits", "open"), 0),
        (7, lambda one: refuse(one, "credits", "open"), 1),
        (7, lambda one: refuse(one, "depth", "open"), None),
        (7, lambda one: refuse(one, "credits"), None),
    ],
    ids=["four_left_of_five", "six_left_of_five", "for_another_reason", "no_delegation"],
)
def test_a_delegation_is_refused_only_where_fewer_credits_are_left_than_it_costs(tmp_path, n, sold_out, soon):
    rule = found(on_priced(tmp_path, sold_out(calls(n))), SOON)
    assert (rule.measured, rule.samples) == ((0, 0) if soon is None else (soon, 1))


@pytest.mark.parametrize(
    ("n", "ends", "soon"),
    [
        (8, [("b9", "budget_exhausted", "credits")] * 3, 0),
        (7, [("b9", "budget_exhausted", "credits")] * 3, 1),
        (8, [("b8", "budget_exhausted", "credits"), ("b9", "budget_exhausted", "credits")], 1),
        (7, [("b8", "budget_exhausted", "credits"), *[("b9", "budget_exhausted", "credits")] * 9], 1),
        (7, [("b9", "budget_exhausted", "attempts")], None),
        (7, [("b9", "failed", "credits")], None),
        (7, [("b9", "queued", None)], None),
    ],
    ids=["four_left_of_six", "six_left_of_six", "two_batches_of_one", "the_cheapest", "another_reason", "failed",
         "no_end"],
)  # fmt: skip
def test_a_batch_is_refused_only_where_fewer_credits_are_left_than_all_its_calls_cost(tmp_path, n, ends, soon):
    mine = calls(n)
    mine.decisions += [
        {"t_ns": 9 * S, "kind": "step", "run": "a", "step": f"{batch}.{place}", "batch": batch, "outcome": outcome,
         "reason": reason}
        for place, (batch, outcome, reason) in enumerate(ends)
    ]  # fmt: skip
    rule = found(on_priced(tmp_path, mine), SOON)
    assert (rule.measured, rule.samples) == ((0, 0) if soon is None else (soon, 1))


@pytest.mark.parametrize(("envelope", "seen"), [({"attempts": 1}, 2), ({"attempts": 1, "credits": 2}, 1)])
def test_credits_that_were_carved_out_for_a_sub_agent_are_not_left_and_hide_no_other_tree(tmp_path, envelope, seen):
    carving = group(children=[child(envelope=envelope)])
    plain = group(9, name="plain")
    first = refuse(calls(1, task="chat"), "credits", "open")
    second = refuse(calls(1, "b", place=3, task="plain"), "credits", "open")
    rule = found(on_priced(tmp_path, first, second, groups=[carving, plain]), SOON)
    assert (rule.measured, rule.samples) == (seen, seen)


def test_trees_without_credits_are_not_judged_by_them(tmp_path):
    some, none = group(envelope={"credits": 3}), group(9, name="none", envelope={"depth": 1})
    asked = [calls(2, task="chat"), calls(3, "b", place=1, task="none")]
    verdict = priced.judge(trial(tmp_path, *asked, groups=[none, some], **PRICES), SEEN)
    assert (found(verdict, "credits over the envelope").samples, verdict.witnesses) == (1, ("a",))


@pytest.mark.parametrize(
    ("envelope", "groups"), [({"delegate_cost": 2}, None), ({"credits": None}, [group(envelope={"depth": 1})])]
)
def test_without_credits_or_two_prices_nothing_is_said(tmp_path, envelope, groups):
    verdict = on_priced(tmp_path, calls(1), groups=groups, **envelope)
    assert (verdict.findings, "`credits` in an envelope" in verdict.add) == ((), True)
