"""What the checks of cost read from a trial's rows, and the rules of a bucket that they share, at just their bounds."""

from __future__ import annotations

import pytest

from harness.checks import cost_bucket_per_tenant, cost_reconciled
from harness.checks.cost_rows import cost_frame, overdrawn, refusals_by_pool, refused_with_enough, stood_still
from harness.checks.verdict import Word
from tests.unit.cost_trials import Asked, S, document, found, group, opened, said, told, turned_away

CHAT = document({"each": {"rate": "1/s", "burst": 10_000}}, {"north": [group()], "south": [group()]})


def of(burst, tokens=100, rate="1/s", **tenants):
    """A profile with one tenant, whose bucket holds so much and whose runs use so many tokens."""
    return document({"tenants": {"north": {"rate": rate, "burst": burst}}}, {"north": [group(tokens)], **tenants})


def request(tmp_path, *asked, profile=CHAT, **more):
    """The first that was asked for."""
    return cost_frame(told(tmp_path / "trial", profile, *asked, **more)).requests[0]


# --- what was asked for


def test_a_sub_agent_is_no_request_of_its_own_and_what_it_uses_is_its_roots(tmp_path):
    above = opened("north", "a", 1, used=[(2, 300)], closed=4, call="0.7")
    below = opened("north", "b", 1, used=[(3, 500)], closed=3, call="0.8", parent="0.7")
    frame = cost_frame(told(tmp_path / "trial", CHAT, above, below))
    assert [(r.run, r.used) for r in frame.requests] == [("a", [(2 * S, 300), (3 * S, 500)])]


def test_what_is_no_number_of_tokens_is_not_counted(tmp_path):
    one = request(tmp_path, opened("north", "a", 1, used=[(2, 0), (2, -7), (2, "9"), (2, None), (3, 5)]))
    assert one.used == [(3 * S, 5)]


@pytest.mark.parametrize(
    ("sent_ns", "outcome", "closing_ns", "closed_ns"),
    [(S, "served", S, 2 * S), (0, "served", 0, 2 * S), (-1, "served", None, 2 * S), (S, "failed", None, None)],
    ids=["asked", "asked_at_the_beginning", "not_known_when", "not_served"],
)
def test_a_run_is_closed_by_a_request_that_was_served(tmp_path, sent_ns, outcome, closing_ns, closed_ns):
    mine = opened("north", "a", 0, closed=1)
    mine.calls[1].update(sent_ns=sent_ns, outcome=outcome, done_ns=2 * S)
    one = request(tmp_path, mine)
    assert (one.closing_ns, one.closed_ns) == (closing_ns, closed_ns)


def test_of_several_requests_that_close_a_run_the_first_counts(tmp_path):
    mine = opened("north", "a", 0, closed=3)
    again = {**mine.calls[1], "action": "cancel"}
    mine.calls[1:] = [{**again, "sent_ns": 3 * S, "done_ns": 7 * S}, {**again, "sent_ns": 4 * S, "done_ns": 6 * S},
                      {**again, "sent_ns": 5 * S, "done_ns": 8 * S}]  # fmt: skip
    one = request(tmp_path, mine)
    assert (one.closing_ns, one.closed_ns) == (3 * S, 6 * S)


def test_the_last_that_was_heard_of_a_run_is_its_opening_its_end_or_its_last_call(tmp_path):
    asked = [
        opened("north", "a", 1), opened("north", "b", 1, used=[(4, 1), (3, 1)]),
        opened("north", "c", 1, used=[(4, 1)], closed=6),
    ]  # fmt: skip
    frame = cost_frame(told(tmp_path / "trial", CHAT, *asked))
    assert [r.last_ns for r in frame.requests] == [S, 4 * S, 6 * S]


def test_a_run_is_admitted_once_and_only_settlements_settle_it(tmp_path):
    mine = opened("north", "a", 1)
    for outcome, forecast in (("admitted", 5), ("admitted", 6), ("queued", 7), ("settled", 8), ("settled", 9)):
        said(mine, outcome, 2, forecast=forecast)
    one = request(tmp_path, mine)
    assert one.admitted["forecast"] == 5
    assert [row["forecast"] for row in one.settled] == [8, 9]


PAIR = [group(), group(3000, name="study", request_class="deep_research")]


@pytest.mark.parametrize(
    ("request_class", "name"),
    [("chat_turn", "chat"), ("deep_research", "study"), ("tool_heavy", None), (None, None)],
)
def test_a_request_that_was_refused_is_of_the_class_that_the_layer_says(tmp_path, request_class, name):
    refused = turned_away("north", 1, call="0.5")
    if request_class is not None:
        said(refused, "refused", 1, request="0.5.1", request_class=request_class)
    one = request(tmp_path, refused, profile=document({}, {"north": PAIR}))
    assert (one.group.name if one.group else None) == name


def test_a_run_that_was_opened_is_of_the_group_that_its_task_names(tmp_path):
    alike = document({}, {"north": [group(), group(name="other")]})
    one = request(tmp_path, opened("north", "a", 1, task="other"), profile=alike)
    assert (one.group.name, one.request_class) == ("other", "chat_turn")


def test_refusals_are_counted_by_the_pool_that_is_given_as_the_reason(tmp_path):
    refused = [turned_away("north", 1, reason) for reason in ("memory", "tools", "tools", "sessions", "tokens", "moon")]
    others = [turned_away("north", 1, "tokens", "expired"), turned_away("north", 1, "memory", "budget_exhausted")]
    frame = cost_frame(told(tmp_path / "trial", CHAT, *refused, *others))
    assert refusals_by_pool(frame) == {"memory": 2, "tools": 2, "sessions": 1, "tokens": 1}


@pytest.mark.parametrize(("stalled_s", "still"), [(0.4, False), (0.5, False), (0.501, True)])
def test_the_stub_stood_still_if_it_did_so_for_most_of_a_time(tmp_path, stalled_s, still):
    frame = cost_frame(told(tmp_path / "trial", CHAT, opened("north", "a", 1), stalls=[(2, 2 + stalled_s)]))
    assert stood_still(frame, 2 * S, 3 * S) is still


# --- a bucket


def test_how_far_a_bucket_was_overdrawn_and_by_which_runs_the_last_first(tmp_path):
    uses = {"a": (1, 700), "b": (2, 250), "c": (3, 150), "d": (4, 100), "e": (50, 1)}
    asked = [opened("north", run, at, used=[(at, tokens), (51, 1)]) for run, (at, tokens) in uses.items()]
    asked.append(opened("south", "f", 4, used=[(4, 9000)]))
    frame = cost_frame(told(tmp_path / "trial", of(1000, south=[group()]), *asked))
    rule = overdrawn(frame, "north", 0.19)
    # full at 1 s; then 1 a second comes back: 300, 51, -98, -197
    assert rule.finding.measured == pytest.approx(0.197)
    assert (rule.finding.word, rule.finding.samples, rule.witnesses) == (Word.FAIL, 10, ("d", "c", "b", "a"))
    assert overdrawn(frame, "north", 0.2).finding.word is Word.PASS


def test_a_bucket_that_is_never_empty_is_overdrawn_by_nothing(tmp_path):
    frame = cost_frame(told(tmp_path / "trial", of(1000), opened("north", "a", 1, used=[(1, 1000)])))
    assert overdrawn(frame, "north", 0).finding.measured == 0


def test_who_has_no_bucket_or_used_nothing_overdraws_none(tmp_path):
    asked = [opened("south", "a", 1, used=[(1, 5000)]), opened("north", "b", 1)]
    frame = cost_frame(told(tmp_path / "trial", of(1000, south=[group()]), *asked))
    assert overdrawn(frame, "south", 0.3) is None
    assert overdrawn(frame, "north", 0.3) is None


def breaches(tmp_path, profile, *asked: Asked):
    frame = cost_frame(told(tmp_path / "trial", profile, *asked))
    finding = refused_with_enough(frame, 4.0, 0).finding
    return int(finding.measured), finding.samples


@pytest.mark.parametrize(
    ("at", "expected"),
    [(1.5, 1), (2, 0), (5, 0), (5.5, 1)],
    ids=["not_yet_answered", "just_opened", "still_open", "over"],
)
def test_a_bucket_must_hold_enough_for_the_request_and_for_each_run_that_is_open(tmp_path, at, expected):
    """Four times a hundred, for the request and for each open run; a little more than 600 are held."""
    first = opened("north", "a", 0, used=[(0, 9400)], closed=0.5)
    second = opened("north", "b", 0, answered=2, used=[(5.2, 1)], closed=5.5)
    assert breaches(tmp_path, of(10_000), first, second, turned_away("north", at)) == (expected, 1)


@pytest.mark.parametrize(
    ("used", "tokens", "expected"),
    [(0, 3000, 1), (999, 3000, 1), (1001, 3000, 0), (0, 10_000, 1), (0, 10_001, 0)],
    ids=["full", "nine_tenths", "less", "as_much_as_it_can_hold", "more_than_it_can_hold"],
)
def test_nine_tenths_of_a_bucket_are_enough_for_whatever_fits_into_it(tmp_path, used, tokens, expected):
    """Four times 3000 is more than the bucket of 10,000 can ever hold."""
    before = opened("north", "a", 1, used=[(1, used)], closed=1)
    assert breaches(tmp_path, of(10_000, tokens), before, turned_away("north", 1)) == (expected, 1)


def test_the_most_expensive_kind_of_run_says_how_much_is_enough(tmp_path):
    mixed = document({"each": {"rate": "1/s", "burst": 10_000}}, {"north": [group(100), group(2000, name="study")]})
    spent = opened("north", "a", 1, used=[(1, 5000)], closed=1)
    assert breaches(tmp_path, mixed, spent, turned_away("north", 1)) == (0, 1)


@pytest.mark.parametrize(
    ("reason", "outcome", "expected"),
    [("tokens", "throttled", (2, 2)), ("tokens", "budget_exhausted", (2, 2)), ("sessions", "throttled", (0, 0)),
     ("tokens", "expired", (0, 0)), (None, "failed", (0, 0))],
)  # fmt: skip
def test_only_what_was_refused_for_its_tokens_is_held_against_a_bucket(tmp_path, reason, outcome, expected):
    asked = [turned_away("north", 2, reason, outcome), turned_away("north", 3, reason, outcome)]
    assert breaches(tmp_path, of(10_000), *asked) == expected


def test_a_tenant_without_a_bucket_hides_no_other(tmp_path):
    profile = document({"tenants": {"south": {"rate": "1/s", "burst": 1000}}}, {"north": [group()], "south": [group()]})
    asked = [turned_away("north", 1), turned_away("south", 2)]
    assert breaches(tmp_path, profile, *asked) == (1, 1)


@pytest.mark.parametrize("check", [cost_bucket_per_tenant, cost_reconciled])
@pytest.mark.parametrize(("tokens", "word"), [(13_000, Word.PASS), (13_100, Word.FAIL)])
def test_unless_told_a_bucket_is_overdrawn_by_at_most_three_tenths_of_its_burst(tmp_path, check, tokens, word):
    mine = said(opened("north", "a", 1, used=[(1, tokens)]), "admitted", 1)
    verdict = check.judge(told(tmp_path / "trial", CHAT, mine), check.Params())
    assert found(verdict, "used beyond its bucket").word is word


@pytest.mark.parametrize("check", [cost_bucket_per_tenant, cost_reconciled])
@pytest.mark.parametrize(("left", "word"), [(399, Word.PASS), (400, Word.FAIL)])
def test_unless_told_a_bucket_that_holds_four_times_what_a_run_uses_holds_enough(tmp_path, check, left, word):
    mine = said(opened("north", "a", 1, used=[(1, 10_000 - left)], closed=1), "admitted", 1)
    verdict = check.judge(told(tmp_path / "trial", CHAT, mine, turned_away("north", 1)), check.Params())
    assert found(verdict, "were refused though their own bucket held enough").word is word
