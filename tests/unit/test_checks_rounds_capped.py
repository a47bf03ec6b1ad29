"""agent.rounds_capped on rows written by hand: how deep a call is by its parents, whose it is, where re-plans went."""

from __future__ import annotations

import pytest

from harness.checks.judge import judge_one
from harness.checks.rounds_capped import DEEPEST, depths
from harness.checks.verdict import Word
from tests.unit.attempt_rows import finding, tried
from tests.unit.ledgers import written

CHECK = "agent.rounds_capped"
DEEP, ENDED = "rounds", "failures at the last round"


def call(seq, parent=None, outcome="throttled", tenant=0, **more):
    row = {**tried(f"{tenant}.{seq}", (seq, outcome))[0], **more}
    follows = {"parent": f"{tenant}.{parent}", "round": 1} if parent is not None else {}
    return {**row, **follows, **more}


def ledger(folder, mine, others=(), **replans):
    rule = {"calls": 1, "after": "1s", "rounds": 2, **replans}
    profile = {"tenants": {"A": {"rate": "1/s", "replans": rule}, "B": {"rate": "1/s"}}}
    return written(folder / "t", {"A": list(mine), "B": list(others)}, profile)


def judged(folder, mine, others=(), params=None, **replans):
    given = {"ended": 1, "elsewhere": 1, **(params or {})}
    return judge_one(ledger(folder, mine, others, **replans), CHECK, given)


CHAIN = [call(0), call(1, 0), call(2, 1)]


@pytest.mark.parametrize(("more", "word"), [([], Word.PASS), ([call(3, 2)], Word.FAIL)])
def test_two_rounds_are_two_failures_that_a_call_comes_after(tmp_path, more, word):
    verdict = judged(tmp_path, CHAIN + more)
    assert (verdict.word, finding(verdict, DEEP).measured) == (word, 2 + len(more))
    assert verdict.witnesses == (("0.3",) if more else ())
    if more:
        assert (
            "1 calls come after more than 2 failures, up to 3 (it says round 1 at most of itself)" in verdict.sentence
        )


def test_another_tenant_has_rounds_of_its_own(tmp_path):
    theirs = [call(0, tenant=1), *(call(i, i - 1, tenant=1) for i in range(1, 6))]
    verdict = judged(tmp_path, CHAIN, theirs)
    assert (verdict.word, finding(verdict, DEEP).measured, finding(verdict, DEEP).samples) == (Word.PASS, 2, 3)


def test_calls_too_deep_are_named_with_none_of_another_tenant(tmp_path):
    theirs = [call(0, tenant=1), *(call(i, i - 1, tenant=1) for i in range(1, 6))]
    assert judged(tmp_path, [*CHAIN, call(3, 2)], theirs).witnesses == ("0.3",)


@pytest.mark.parametrize(
    ("rows", "ended"),
    [
        (CHAIN, 1),
        ([*CHAIN, call(3, 1)], 2),
        ([*CHAIN, call(3, 1, "served")], 1),
        ([*CHAIN[:2], call(2, 1, "served")], 0),
        (CHAIN[:2], 0),
        ([call(0), call(1), call(2)], 0),
    ],
    ids=["one", "two", "one_was_served", "served", "a_round_less", "no_rounds"],
)
def test_a_failure_at_the_last_round_that_was_let_be_is_what_shows_the_cap(tmp_path, rows, ended):
    verdict = judged(tmp_path, rows, [call(0, tenant=1)])
    assert finding(verdict, ENDED).measured == ended
    assert verdict.word is (Word.PASS if ended else Word.INCONCLUSIVE)


def test_a_call_deeper_than_any_cap_is_followed_so_far_and_fails(tmp_path):
    chain = [call(0), *(call(i, i - 1) for i in range(1, DEEPEST + 9))]
    assert depths(ledger(tmp_path, chain)).max() == DEEPEST
    assert judged(tmp_path, chain).word is Word.FAIL


@pytest.mark.parametrize(
    ("row", "word"),
    [
        ({"round": 1}, Word.INCONCLUSIVE),
        ({"round": 0}, Word.PASS),
    ],
    ids=["a_replan", "original"],
)
def test_a_replan_without_its_parent_cannot_be_placed(tmp_path, row, word):
    verdict = judged(tmp_path, [*CHAIN, call(3, **row)])
    assert (verdict.word, "parent" in verdict.add) == (word, word is Word.INCONCLUSIVE)


def test_a_replan_of_another_tenant_without_its_parent_takes_nothing_from_this_one(tmp_path):
    assert judged(tmp_path, CHAIN, [call(0, tenant=1, round=1)]).word is Word.PASS


def test_replans_go_to_each_of_their_tools(tmp_path):
    rows = [*CHAIN[:1], call(1, 0, tool="search"), call(2, 1, tool="files"), call(3, 1, tool="search")]
    theirs = [call(i, tenant=1, tool="files") for i in range(9)]
    verdict = judged(tmp_path, rows, theirs, {"elsewhere": 2}, tools=["search", "files"])
    found = finding(verdict, "re-plans to files")
    assert (found.word, found.measured) == (Word.INCONCLUSIVE, 1)
    (tmp_path / "b").mkdir()
    assert judged(tmp_path / "b", rows, theirs, {"elsewhere": 1}, tools=["search", "files"]).word is Word.PASS


def test_without_tools_nothing_is_asked_of_where_replans_go(tmp_path):
    assert [f.quantity for f in judged(tmp_path, CHAIN).findings] == [DEEP, ENDED]


def test_a_tenant_without_calls_shows_nothing(tmp_path):
    verdict = judged(tmp_path, [], [call(0, tenant=1)])
    assert (verdict.word, finding(verdict, DEEP).measured) == (Word.INCONCLUSIVE, 0)


def test_a_tenant_that_makes_no_calls_of_a_failure_does_not_replan(tmp_path):
    assert judged(tmp_path, CHAIN, calls=0).sentence == "Cannot be judged: no tenant re-plans."


def test_what_a_caller_says_of_itself_is_told_beside_what_its_parents_say(tmp_path):
    rows = [{**row, "round": 0} for row in [*CHAIN, call(3, 2)]]
    assert "up to 3 (it says round 0 at most of itself)" in judged(tmp_path, rows).sentence
