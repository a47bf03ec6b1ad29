"""capacity.coalesced at its bounds, row by row: whose call a step shared, and whether it was under way."""

from __future__ import annotations

import pytest

from harness.checks.capacity_frames import frame_of
from harness.checks.coalesced import NAME, key_of
from harness.checks.judge import judge_one
from harness.checks.verdict import Word
from harness.ledger.reader import DECISIONS, read_trial
from tests.unit.capacity_rows import asked, profile, said, seen, trial
from tests.unit.capacity_trials import failed
from tests.unit.cost_trials import found, group

TWICE, FOREIGN, NO_CALL = "sent twice at once", "of a foreign call", "without a call"
MERGED, UNSENT = "coalesced", "told as done, never sent"
SHARED, ALONE, ALIKE = "shared a call", "with a coalescing text", "asked the same at once"

LOOK = {"dependency": "model", "tool": "look", "coalesce": "same"}
BOTH = [
    {**LOOK, "tool": "other", "coalesce": None},
    LOOK,
    {**LOOK, "tool": "again"},
    {**LOOK, "operation": "write", "tool": "save"},
]
PROFILE = profile({
    "north": [group(batches=[BOTH])],
    "south": [group(batches=[[{**LOOK, "tool": "see"}, {**LOOK, "tool": "peek", "coalesce": "else"}]])],
    "west": [group(batches=[[{**LOOK, "dependency": "moving"}]], children=[{"batches": [[LOOK]]}])],
})  # fmt: skip


def read(begin, end, tenant="north", tool="look", **more):
    return seen(begin, end, tenant=tenant, tool=tool, **{"run": f"of_{tenant}", **more})


def told(at, outcome, step, tenant="north", operation="read", **more):
    base = {"run": f"of_{tenant}", "tenant": tenant, "dependency": "model", "tool": "look", "operation": operation}
    return said(at, "step", outcome, **{**base, "step": step, **more})


NOTHING = said(0, "run", "opened", run="of_nobody")


def judged(tmp_path, *rows, calls=()):
    decisions, arrivals = ([row for row in rows if ("kind" in row) is told] for told in (True, False))
    mine = trial(tmp_path, calls=calls, decisions=[NOTHING, *decisions], arrivals=arrivals, document=PROFILE)
    return judge_one(mine, NAME, {})


def counted(verdict, quantity):
    finding = found(verdict, quantity)
    return finding.measured, finding.samples


def test_a_call_is_of_the_tenant_whose_credential_opened_its_run_else_of_the_one_that_its_row_names(tmp_path):
    mine = frame_of(trial(tmp_path, calls=[asked("0.0", run_id="r")], decisions=[said(0, "run", "opened", run="s")]))
    row = {"tenant": "south", "dependency": "model", "operation": "read", "tool": "look"}
    owners = [key_of(mine, {**row, "run": run})[0] for run in ("r", "s", "unheard_of")]
    assert owners == ["north", "south", "south"]
    assert key_of(mine, row) == ("south", "model", "read", "look")


@pytest.mark.parametrize(
    ("rows", "twice", "samples"),
    [
        ([read(0, 10), read(10, 20, step="b")], 0, 2),
        ([read(0, 10), read(9, 20, step="b")], 1, 2),
        ([read(0, 90), read(10, 20, step="b"), read(30, 40, step="c")], 2, 3),
        ([read(0, 10), read(5, 20, "south", step="b")], 0, 1),
        ([read(0, 10, tool="other"), read(5, 20, tool="other", step="b")], 0, 0),
        ([read(0, 10, tool="other"), read(5, 20, step="b"), read(6, 9, step="c")], 1, 2),
        ([read(0, 10, tool="save", operation="write"), read(5, 20, tool="save", operation="write", step="b")], 0, 0),
        ([read(0, 10, "west"), read(5, 20, "west", step="b")], 1, 2),
        ([read(0, 10), read(5, 20, readback=True, step="b")], 0, 1),
    ],
)
def test_marked_reads_of_one_tenant_never_overlap(tmp_path, rows, twice, samples):
    verdict = judged(tmp_path, *rows)
    assert (counted(verdict, TWICE), failed(verdict)) == ((twice, samples), {TWICE} if twice else set())


def test_a_tenant_that_claims_to_be_another_is_judged_by_its_credential(tmp_path):
    rows = [read(0, 10, run="r"), read(5, 20, "south", run="r", step="b")]
    assert counted(judged(tmp_path, *rows, calls=[asked("0.0", run_id="r")]), TWICE) == (1, 2)


@pytest.mark.parametrize(
    ("rows", "samples"),
    [
        ([told(5, "coalesced", "f")], 1), ([told(5, "served", "f")], 1), ([told(5, "throttled", "f")], 0),
        ([told(5, "served", "f"), read(900, 901, step="f")], 0),
        ([told(5, "served", "f"), read(900, 901, step="f", readback=True)], 0),
        ([told(5, "queued", "f")], 0), ([read(900, 901, step="f")], 0),
    ],
)  # fmt: skip
def test_a_step_that_is_done_without_a_call_of_its_own_must_be_covered(tmp_path, rows, samples):
    verdict = judged(tmp_path, *rows)
    assert counted(verdict, NO_CALL) == (samples, samples)
    assert counted(verdict, FOREIGN) == (0, samples)


@pytest.mark.parametrize(
    ("begin_ms", "end_ms", "covered"),
    [
        (150, 170, True), (250, 260, True), (250.001, 260, False), (10, 50, True), (10, 49.999, False),
        (0, 500, True),
    ],
)  # fmt: skip
def test_the_call_that_a_step_shared_was_under_way_while_it_waited_give_or_take_the_way(
    tmp_path, begin_ms, end_ms, covered
):
    """It joined at 100 ms and was told at 200 ms; the way is 50 ms."""
    rows = [told(100, "queued", "f"), told(200, "coalesced", "f"), read(begin_ms, end_ms)]
    assert failed(judged(tmp_path, *rows)) == (set() if covered else {NO_CALL})


@pytest.mark.parametrize(
    ("leader", "found_as"),
    [
        ([read(0, 50, step="l")], None),
        ([told(1, "admitted", "l"), read(0, 50, step="x")], None),
        ([read(0, 50, "south", step="l", run="of_north")], "south for north"),
        ([told(1, "admitted", "l", "south", run="of_north"), read(0, 50, step="x")], "south for north"),
        ([told(1, "admitted", "l", "south", run="of_north"), read(0, 50, step="l")], None),
        ([read(0, 50, step="l", operation="write", tool="save")], "a write for a read"),
        ([told(1, "admitted", "l", operation="write"), read(0, 50, step="x")], "a write for a read"),
        # What only looked for a write shares nothing: nobody is named, and another call covers it.
        ([read(0, 50, "south", step="l", run="of_north", readback=True), read(0, 50, step="x")], None),
    ],
)
def test_whose_call_it_was_is_told_by_what_arrived_else_by_what_was_decided(tmp_path, leader, found_as):
    follower = told(20, "coalesced", "f", coalesced_with="of_north/l")
    verdict = judged(tmp_path, follower, *leader)
    assert verdict.word is (Word.FAIL if found_as else Word.INCONCLUSIVE)
    assert failed(verdict) == ({FOREIGN} if found_as else set())
    if found_as:
        assert f"1 steps were given the result of a call that was not theirs ({found_as})" in verdict.sentence


@pytest.mark.parametrize(
    ("rows", "merged", "unsent", "writes"),
    [
        ([told(5, "served", "w", operation="write")], 0, 1, 1),
        ([told(5, "throttled", "w", operation="write")], 0, 0, 1),
        ([told(5, "failed", "w", operation="write")], 0, 0, 1),
        ([told(5, "served", "w", operation="write"), read(0, 4, step="w", operation="write")], 0, 0, 1),
        ([told(5, "served", "w", operation="write"), read(0, 4, step="w", readback=True)], 0, 0, 1),
        ([told(5, "coalesced", "w", operation="write")], 1, 0, 1),
        ([read(0, 4, step="w", operation="write")], 0, 0, 1),
        ([told(5, "served", "w"), read(0, 4, step="w", operation="write")], 0, 0, 1),
        ([read(0, 4, step="w", readback=True)], 0, 0, 0),
        ([told(5, "coalesced", "w")], 0, 0, 0),
    ],
)
def test_a_write_that_is_told_as_done_was_sent_or_looked_for_and_is_never_shared(
    tmp_path, rows, merged, unsent, writes
):
    verdict = judged(tmp_path, *rows)
    assert counted(verdict, MERGED) == (merged, writes)
    assert counted(verdict, UNSENT) == (unsent, writes)


def test_only_shared_reads_and_writes_with_a_text_are_evidence(tmp_path):
    rows = [
        told(5, "coalesced", "a"), told(5, "coalesced", "b", operation="write"), told(5, "served", "c"),
        read(0, 4, step="d", operation="write", tool="save"), read(0, 4, step="e", operation="write", tool="unmarked"),
        read(0, 4, step="f"), read(5, 9, step="g"),
    ]  # fmt: skip
    verdict = judged(tmp_path, *rows)
    assert (counted(verdict, SHARED), counted(verdict, ALONE)) == ((1, 1), (1, 1))


@pytest.mark.parametrize(
    ("other", "pairs"),
    [
        (read(5, 20, "south", "see"), 1), (read(0, 6, "south", "see"), 1), (read(9, 20, "south", "see"), 1),
        (read(10, 20, "south", "see"), 0), (read(0, 2, "south", "see"), 0), (read(50, 60, "south", "see"), 0),
        (read(5, 20, "south", "peek"), 0), (read(5, 20, "south", "unmarked"), 0),
        (read(5, 20, "west", dependency="moving"), 0), (read(5, 20, "west"), 1), (read(10, 20, step="b"), 0),
        (read(5, 20, tool="again"), 0),
        (read(5, 20, "north", "save", operation="write"), 0),
    ],
)  # fmt: skip
def test_two_tenants_ask_alike_if_reads_with_one_text_of_one_dependency_overlap(tmp_path, other, pairs):
    """Against a read of `north` from 2 to 10 ms."""
    assert found(judged(tmp_path, read(2, 10), other), ALIKE).measured == pairs


def test_a_read_that_begins_when_the_other_tenants_has_ended_is_not_beside_it(tmp_path):
    rows = [read(0, 1), read(5, 6, "south", "see"), read(6, 30, step="b")]
    assert found(judged(tmp_path, *rows), ALIKE).measured == 0


def test_reads_without_a_text_are_not_alike(tmp_path):
    rows = [read(2, 10, tool="other"), read(5, 20, "south", "other")]
    assert found(judged(tmp_path, *rows), ALIKE).measured == 0


def test_each_pair_of_tenants_is_looked_at_once_whatever_came_before(tmp_path):
    rows = [read(2, 10), read(3, 9, "south", "peek"), read(4, 9, "west"), read(5, 8, "south", "see")]
    assert found(judged(tmp_path, *rows), ALIKE).measured == 3


def test_without_decisions_it_says_what_it_lacks(tmp_path):
    judged(tmp_path, read(0, 1))
    (tmp_path / "trial" / DECISIONS).unlink()
    verdict = judge_one(read_trial(tmp_path / "trial"), NAME, {})
    assert (verdict.word, verdict.sentence) == (
        Word.INCONCLUSIVE, "Cannot be judged: it needs both arrivals and decisions.",
    )  # fmt: skip
