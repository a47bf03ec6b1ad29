"""capacity.adaptive_bounded at its bounds, row by row: which rows tell the limit, what is in flight, and who waits."""

from __future__ import annotations

import pytest

from harness.checks.adaptive_bounded import NAME
from harness.checks.judge import judge_one
from harness.checks.verdict import Word
from harness.ledger.stalls import stalls
from tests.unit.capacity_rows import ADAPTIVE, BESIDE, CALLS_ONLY, MS, profile, said, seen, trial
from tests.unit.capacity_trials import failed
from tests.unit.cost_trials import found

BOUNDS = {**ADAPTIVE["adaptive"], "lowest": 2, "highest": 4}
PROFILE = profile(dependencies={"model": BESIDE, "moving": {**ADAPTIVE, "adaptive": BOUNDS}})
OVER, UNDER, IN_FLIGHT = "showed a limit over 4", "showed a limit under 2", "reads in flight at once"
STARVED = "saw steps wait with fewer than 2 reads in flight"
HIGH, LOW = "taken at the limit 4", "taken at the limit 2"
MOVING = {"dependency": "moving", "operation": "read"}


def judged(tmp_path, *rows, stood_still=()):
    decisions, arrivals = ([row for row in rows if ("kind" in row) is told] for told in (True, False))
    decisions = [said(0, "run", "opened"), *decisions]
    mine = trial(tmp_path, decisions=decisions, arrivals=arrivals, document=PROFILE)
    mine.memo["stalls"] = stalls(stood_still)
    return judge_one(mine, NAME, {})


def told(at, outcome, step="b0.0", limit=3, kind="step", **more):
    return said(at, kind, outcome, step=step, limit=limit, **{**MOVING, **more})


def read(begin, end, step, **more):
    return seen(begin, end, **{**MOVING, "step": step, **more})


def test_without_an_adaptive_limit_there_is_nothing_to_judge(tmp_path):
    for place, document in enumerate((profile(dependencies={"model": BESIDE}), CALLS_ONLY)):
        mine = trial(
            tmp_path / str(place), decisions=[told(1, "served")], arrivals=[read(0, 1, "a")], document=document
        )
        verdict = judge_one(mine, NAME, {})
        assert (verdict.word, verdict.sentence) == (
            Word.INCONCLUSIVE, "Cannot be judged: no dependency of the profile has an adaptive limit.",
        )  # fmt: skip


@pytest.mark.parametrize(
    ("row", "broken", "seen_n"),
    [
        (told(5, "served", limit=4), set(), 1), (told(5, "served", limit=5), {OVER}, 1),
        (told(5, "served", limit=2), set(), 1), (told(5, "served", limit=1), {UNDER}, 1),
        (told(5, "lowered", limit=1, kind="limit", run=None), {UNDER}, 1),
        (told(5, "served", limit=9, dependency="model"), set(), 0),
        (told(5, "served", limit=9, operation="write"), set(), 0), (told(5, "served", limit=None), set(), 0),
    ],
)  # fmt: skip
def test_any_decision_about_its_reads_that_shows_a_limit_past_a_bound_is_a_breach(tmp_path, row, broken, seen_n):
    verdict = judged(tmp_path, row)
    assert failed(verdict) == broken
    assert [found(verdict, what).samples for what in (OVER, UNDER)] == [seen_n, seen_n]
    if not broken:
        words = [found(verdict, what).word for what in (OVER, UNDER)]
        assert words == [Word.PASS if seen_n else Word.INCONCLUSIVE] * 2


@pytest.mark.parametrize(
    ("row", "sentence", "witness"),
    [
        (told(2500, "served", limit=5), "Moving: 1 decisions showed a limit over 4 (first r/b0.0: limit 5 at 2.50 s).",
         "r/b0.0"),
        (told(2500, "raised", limit=5, kind="limit", run=None),
         "Moving: 1 decisions showed a limit over 4 (first moving: limit 5 at 2.50 s).", "moving"),
    ],
)  # fmt: skip
def test_a_breach_names_its_step_else_its_dependency(tmp_path, row, sentence, witness):
    verdict = judged(tmp_path, row)
    assert (verdict.sentence, verdict.witnesses) == (sentence, (witness,))


def crowd(n, begin=100, end=200):
    return [read(begin, end, f"c{i}") for i in range(n)]


@pytest.mark.parametrize(
    ("rows", "most"),
    [
        (crowd(4), 4), (crowd(5), 5),
        ([*crowd(4), read(50, 100, "e")], 4), ([*crowd(4), read(199, 300, "e")], 5),
        ([*crowd(4), read(100, 200, "e", dependency="model")], 4),
        ([*crowd(4), read(100, 200, "e", operation="write")], 4),
        # The timeout of reads is a second: a call without an answer was given up by then, one with an answer was not.
        ([*crowd(4, 1500, 1600), read(400, 1550, "e", status=0)], 4),
        ([*crowd(4, 1300, 1350), read(400, 1550, "e", status=0)], 5),
        ([*crowd(4, 1500, 1600), read(400, 1550, "e")], 5),
        ([*crowd(4, 1500, 1600), read(1000, 1400, "e", status=0)], 4),
    ],
)  # fmt: skip
def test_reads_in_flight_are_those_that_the_layer_has_not_given_up(tmp_path, rows, most):
    verdict = judged(tmp_path, *rows)
    assert (found(verdict, IN_FLIGHT).measured, failed(verdict)) == (most, {IN_FLIGHT} if most > 4 else set())


def test_those_that_were_in_flight_at_once_are_named(tmp_path):
    others = read(50, 120, "before"), read(120, 130, "d"), read(120, 130, "e"), read(200, 201, "after")
    verdict = judged(tmp_path, *crowd(4), *others)
    assert verdict.witnesses == ("r/c0", "r/c1", "r/c2", "r/c3", "r/d", "r/e")
    assert "6 reads were in flight at 0.12 s" in verdict.sentence


def waits(from_ms, to_ms, step="w", until="admitted", **more):
    return [told(from_ms, "queued", step, **more), told(to_ms, until, step, **more)]


RUNNING = [read(0, 2000, "x"), read(0, 2000, "y")]


@pytest.mark.parametrize(
    ("rows", "starved"),
    [
        (waits(100, 200), False), (waits(100, 200.001), True), (waits(100, 200.001, until="expired"), True),
        ([*waits(100, 900), *RUNNING], False), ([*waits(100, 900), RUNNING[0]], True),
        ([*waits(100, 400), read(0, 150, "x"), read(0, 300, "y")], True),
        ([*waits(100, 400), read(0, 300, "x"), read(0, 310, "y")], False),
        ([*waits(100, 400), read(0, 299, "x"), read(0, 310, "y")], True),
        ([*waits(100, 160), *waits(150, 220, "v")], True), ([*waits(100, 160), *waits(161, 220, "v")], False),
        ([*waits(100, 160), *waits(160, 220, "v")], True),
        (waits(100, 900, dependency="model"), False), (waits(100, 900, operation="write"), False),
        ([*waits(100, 900), read(0, 2000, "x", dependency="model"), read(0, 2000, "y", operation="write")], True),
        ([told(100, "queued", "w")], False), ([*waits(100, 120), told(900, "served", "w")], False),
        ([told(50, "admitted", "w"), *waits(100, 150), told(900, "served", "w")], False),
        ([*waits(100, 150), *waits(300, 350)], False), ([*waits(100, 150), *waits(300, 450)], True),
        ([told(100, "queued", "w"), told(100, "admitted", "w"), told(900, "served", "w")], False),
        ([told(100, "queued", "w"), told(120, "scheduled", "w", kind="retry"), told(900, "served", "w")], True),
        ([told(100, "queued", "w"), told(110, "noted", "w"), told(900, "served", "w")], True),
        ([read(0, 10, "x"), read(5000, 5010, "y")], False),
    ],
)  # fmt: skip
def test_fewer_reads_than_the_lowest_for_longer_than_a_moment_while_steps_wait_are_a_limit_below_it(
    tmp_path, rows, starved
):
    assert failed(judged(tmp_path, *rows)) == ({STARVED} if starved else set())


def test_what_was_seen_of_starving_is_told_once_with_its_figures(tmp_path):
    rows = [*waits(100, 450), *waits(100, 300, "v"), *waits(900, 1300, "u"), read(0, 2000, "x")]
    verdict = judged(tmp_path, *rows)
    rule = found(verdict, STARVED)
    assert (rule.measured, rule.samples) == (1, 3)
    assert rule.note == (
        "moving: 1 waits saw steps wait with fewer than 2 reads in flight, out of 3 "
        "(first moving: 1 in flight, 2 waiting, from 0.10 s to 0.30 s)"
    )


def test_time_in_which_the_stub_stood_still_starves_nobody(tmp_path):
    rows = waits(100, 900)
    assert failed(judged(tmp_path / "still", *rows, stood_still=[(200 * MS, 900 * MS)])) == set()
    assert failed(judged(tmp_path / "awake", *rows, stood_still=[(201 * MS, 900 * MS)])) == {STARVED}


def test_both_bounds_must_have_been_reached_and_the_limit_moved_both_ways(tmp_path):
    rows = [
        told(1, "raised", limit=3, kind="limit"), told(2, "raised", limit=4, kind="limit"),
        told(3, "lowered", limit=2, kind="limit"), told(4, "raised", limit=3),
        *(told(5, "served", f"h{i}", limit=4) for i in range(4)),
        *(told(6, "served", f"l{i}", limit=2) for i in range(5)),
        told(7, "scheduled", "h0", limit=4, kind="retry"), told(8, "served", "m", limit=3),
    ]  # fmt: skip
    verdict = judged(tmp_path, *rows)
    counts = [(found(verdict, what).measured, found(verdict, what).unit) for what in ("raised", "lowered", HIGH, LOW)]
    assert counts == [(2, "changes"), (1, "changes"), (4, "decisions"), (5, "decisions")]
    assert [str(found(verdict, what).word) for what in (HIGH, LOW)] == ["INCONCLUSIVE", "PASS"]
