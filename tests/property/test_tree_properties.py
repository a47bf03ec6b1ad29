"""Whatever a tree does, it never holds more than its envelope, nothing is lost on the way, and all of it comes back."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from stub_service.capacity.tree import DIVIDED, NO_LIMITS, REASONS, Branch, Prices, TreeLimits, Trees

few = st.none() | st.integers(1, 6)
amounts = st.none() | st.integers(1, 2000)
limits = st.builds(
    TreeLimits, depth=st.none() | st.integers(0, 4), fan_out=few, sessions=few, bytes=amounts, payload=amounts,
    context_tokens=amounts, credits=st.none() | st.integers(0, 40), agent_tokens=amounts, iterations=few,
    branch_tokens=amounts,
)  # fmt: skip
asked = st.just(NO_LIMITS) | limits
moves = st.lists(
    st.tuples(st.sampled_from(["delegate", "batch", "answer", "end"]), st.integers(0, 30), asked, st.integers(0, 900)),
    max_size=60,
)


def play(root: Branch, played):
    """Returns all branches, and what was handed on: (branch, tokens, bytes) of answers that fitted."""
    branches, handed = [root], []
    for move, which, wish, n in played:
        branch = branches[which % len(branches)]
        if branch.ended:
            continue
        if move == "delegate":
            made = branch.delegate(wish)
            assert isinstance(made, Branch) or made in REASONS
            branches += [made] if isinstance(made, Branch) else []
        elif move == "batch":
            branch.admit(n % 4)
        elif move == "answer" and branch.spent() is None:
            answer = {"usage": {"tokens": n // 3, "bytes": n}}
            if branch.take_in(answer) is None:
                handed.append((branch, n // 3, n))
        elif move == "end":
            branch.end()
    return branches, handed


def under(branch, top):
    return top in branch.upwards()


@settings(max_examples=150, deadline=None)
@given(limits, moves)
def test_no_tree_holds_more_than_its_envelope(envelope, played):
    root = Trees(NO_LIMITS, Prices(3, 1)).root(envelope)
    if root is None:
        return
    branches, handed = play(root, played)
    levels = [len(list(branch.upwards())) - 1 for branch in branches]
    assert envelope.depth is None or max(levels) <= envelope.depth
    assert envelope.fan_out is None or len(branches) - 1 <= envelope.fan_out
    assert envelope.sessions is None or sum(not branch.settled for branch in branches) <= envelope.sessions
    assert envelope.bytes is None or sum(n for _, _, n in handed) <= envelope.bytes
    for top in branches:
        mine = [(tokens, n) for branch, tokens, n in handed if under(branch, top)]
        assert sum(n for _, n in mine) <= (top.limits.payload or 0)
        assert top.limits.context_tokens is None or sum(t for t, _ in mine) <= top.limits.context_tokens


@settings(max_examples=150, deadline=None)
@given(limits, moves)
def test_what_is_carved_out_is_neither_lost_nor_made(envelope, played):
    """Of sessions: all are back. Of the others: what all branches together have left never grows."""
    trees = Trees(NO_LIMITS, Prices(3, 1))
    root = trees.root(envelope)
    if root is None:
        return
    branches, _ = play(root, played)
    assert all(pool.left >= 0 for branch in branches for name, pool in branch.own.items() if name != "agent_tokens")
    for branch in reversed(branches):
        branch.end()
    assert all(branch.settled for branch in branches)
    assert trees.branches == 0
    for name in DIVIDED:
        given_out = getattr(envelope, name)
        assert given_out is None or root.own[name].left <= given_out
    assert envelope.sessions is None or root.own["sessions"].left == envelope.sessions


@settings(max_examples=100, deadline=None)
@given(limits, asked, moves)
def test_a_refusal_changes_nothing(envelope, wish, played):
    root = Trees(NO_LIMITS, Prices(3, 1)).root(envelope)
    if root is None:
        return
    for branch in play(root, played)[0]:
        for ask in (lambda one: one.delegate(wish), lambda one: one.admit(10**6)):
            before = [(level.view(), level.below) for level in branch.upwards()]
            if isinstance(ask(branch), str):
                assert [(level.view(), level.below) for level in branch.upwards()] == before
