"""A delegation tree by hand: what a sub-agent takes of its parent, what goes up, what comes back, and when."""

from __future__ import annotations

import pytest

from stub_service.capacity.tree import NO_LIMITS, REASONS, UNSAID_PAYLOAD, Branch, Prices, TreeLimits, Trees

ONE_EACH = Prices()


def tree(prices: Prices = ONE_EACH, **limits) -> Branch:
    root = Trees(NO_LIMITS, prices).root(TreeLimits(**limits))
    assert root is not None
    return root


def answer(tokens=0, bytes=0):
    return {"value": "v", "usage": {"tokens": tokens, "bytes": bytes}}


def below(branch, **asked) -> Branch:
    made = branch.delegate(TreeLimits(**asked))
    assert isinstance(made, Branch), made
    return made


def refused(branch, **asked) -> str:
    made = branch.delegate(TreeLimits(**asked))
    assert made in REASONS
    return made


def test_nothing_is_counted_where_nothing_is_limited():
    trees = Trees(NO_LIMITS, Prices())
    assert trees.root(None) is None
    assert trees.root(NO_LIMITS) is None
    assert trees.leftovers() == {}


def test_what_a_run_does_not_name_is_the_default():
    trees = Trees(TreeLimits(depth=3, sessions=9), Prices())
    root = trees.root(TreeLimits(sessions=4))
    assert root.view() == {"depth": 3, "sessions": 3, "payload": UNSAID_PAYLOAD}


def test_depth_is_one_less_at_each_level():
    root = tree(depth=2)
    grandchild = below(below(root))
    assert refused(grandchild) == "depth"
    assert refused(root, depth=2) == "depth"
    assert refused(below(root, depth=0)) == "depth"


def test_fan_out_is_of_the_whole_tree_and_is_not_given_back():
    root = tree(fan_out=3)
    first = below(root)
    below(first)
    below(root).end()
    assert [refused(branch) for branch in (root, first)] == ["fan_out"] * 2


def test_a_child_is_paid_out_of_its_parent_and_what_it_leaves_goes_back():
    root = tree(fan_out=5, bytes=1000, agent_tokens=500, credits=20)
    child = below(root, fan_out=2, bytes=400, agent_tokens=200, credits=6)
    left = {name: pool.left for name, pool in root.pools.items()}
    assert left == {"fan_out": 2, "bytes": 600, "agent_tokens": 300, "credits": 13}
    assert refused(root, bytes=601) == "bytes"
    assert refused(child, agent_tokens=201) == "agent_tokens"
    below(child).end()
    child.take_in(answer(50, 100))
    child.end()
    left = {name: pool.left for name, pool in root.pools.items()}
    assert left == {"fan_out": 3, "bytes": 900, "agent_tokens": 450, "credits": 18}


def test_a_refusal_takes_nothing():
    root = tree(fan_out=5, sessions=3, credits=4)
    before = root.view()
    assert refused(root, credits=4) == "credits"
    assert refused(root, fan_out=5) == "fan_out"
    assert refused(root, sessions=3) == "sessions"
    assert (root.view(), root.below) == (before, 0)


def test_a_session_is_held_until_the_longest_branch_below_is_over():
    root = tree(sessions=3)
    child = below(root)
    grandchild = below(child)
    child.end()
    assert refused(root) == "sessions"
    grandchild.end()
    assert root.view()["sessions"] == 2
    below(root, sessions=2)
    assert refused(root) == "sessions"


def test_sessions_that_were_carved_out_come_back_together():
    root = tree(sessions=5)
    child = below(root, sessions=3)
    grandchild = below(child)
    assert (root.view()["sessions"], child.view()["sessions"]) == (1, 1)
    child.end()
    assert root.view()["sessions"] == 1
    grandchild.end()
    assert root.view()["sessions"] == 4


def test_a_branch_is_settled_once_however_often_it_ends():
    root = tree(sessions=3)
    child = below(root)
    for _ in range(3):
        child.end()
    assert root.view()["sessions"] == 2
    root.end()
    root.end()
    assert root.trees.leftovers() == {"branches": 0}


def test_bytes_are_those_of_all_levels():
    root = tree(bytes=1000)
    child = below(root)
    assert root.take_in(answer(bytes=300)) is None
    assert below(child).take_in(answer(bytes=700)) is None
    assert [branch.spent() for branch in (root, child)] == ["bytes"] * 2
    assert refused(root) == "bytes"


def test_an_answer_that_does_not_fit_is_cut_off_and_fills_what_was_left():
    root = tree(bytes=1000)
    assert root.take_in(answer(bytes=1001)) == "bytes"
    assert root.view()["bytes"] == 0
    assert root.admit(1) == "bytes"


def test_what_goes_up_counts_at_every_level_above():
    root = tree(payload=1000, context_tokens=100)
    child, other = below(root, payload=600, context_tokens=80), below(root)
    assert child.take_in(answer(60, 500)) is None
    assert child.take_in(answer(10, 101)) == "payload"
    assert child.spent() == "payload"
    assert other.take_in(answer(31, 1)) == "context"
    assert (other.spent(), root.spent()) == ("context", "context")


def test_a_child_has_no_larger_payload_than_its_parent():
    root = tree(payload=1000)
    assert below(root, payload=5000).view()["payload"] == 1000
    assert below(root).view()["payload"] == 1000


def test_delegating_and_calling_cost_what_each_costs():
    root = tree(Prices(delegate=5, tool=2), credits=20)
    below(root)
    assert root.admit(7) is None
    assert root.view()["credits"] == 1
    assert (root.admit(1), refused(root)) == ("credits", "credits")
    root.give_back()
    assert root.admit(1) is None


def test_iterations_are_of_each_run_and_a_refused_batch_is_none():
    root = tree(iterations=2, credits=3)
    child = below(root)
    assert root.admit(9) == "credits"
    assert [root.admit(1), root.admit(0), root.admit(0)] == [None, None, "iterations"]
    assert [child.admit(1), child.admit(0), child.admit(0)] == [None, None, "iterations"]


def test_a_branch_has_a_ceiling_of_its_own_and_the_agent_one_budget():
    root = tree(branch_tokens=500, agent_tokens=1200)
    first, second = below(root), below(root)
    first.take_in(answer(600))
    assert (first.spent(), second.spent(), root.spent()) == ("branch_tokens", None, None)
    second.take_in(answer(600))
    assert root.spent() == "agent_tokens"


@pytest.mark.parametrize("usage", [None, 1, {}, {"bytes": -1}, {"bytes": "9"}, {"bytes": True}, {"bytes": 10**16}])
def test_usage_that_cannot_be_is_none(usage):
    root = tree(bytes=1)
    assert root.take_in({"usage": usage}) is None
    assert root.spent() is None
