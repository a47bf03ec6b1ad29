"""How a trial's rows of runs, steps and bulkheads are joined: whose a run is, what holds a slot, and until when."""

from __future__ import annotations

from typing import get_args

import pytest

from harness.checks import capacity_frames as frames
from harness.checks.capacity_frames import Frame, Run, Step, frame_of
from harness.ledger.stalls import stalls
from harness.profile.base import TrafficClass
from harness.profile.capacity import RunGroup
from harness.workload import runs as workload
from tests.unit.capacity_rows import CALLS_ONLY, MS, asked, profile, said, seen, trial
from tests.unit.cost_trials import S, group
from tests.unit.ledgers import edited

ACTIONS = {"OPEN_RUN": "open", "SUBMIT": "submit", "CANCEL": "cancel", "FINISH": "finish"}


def frame(tmp_path, **rows) -> Frame:
    return frame_of(trial(tmp_path, **rows))


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """Nothing happens in it."""
    return frame(tmp_path_factory.mktemp("plain"))


def test_each_class_of_traffic_is_in_the_foreground_or_in_the_background(tmp_path):
    classes = get_args(TrafficClass)
    groups = [{**group(name=name), "class": name} for name in classes]
    rows = [said(1, "run", "opened", run=name, tenant="north", task_class=name) for name in classes]
    runs = frame(tmp_path, decisions=rows, document=profile({"north": groups})).runs.values()
    parts = [{run.id for run in runs if run.group.traffic_class in part} for part in
             (frames.FOREGROUND, frames.BACKGROUND)]  # fmt: skip
    assert parts == [{"interactive", "approval_resume"}, {"autonomous", "maintenance"}]


def test_actions_are_named_as_callers_name_them():
    calls = tuple({"action": action, "outcome": name} for name, action in ACTIONS.items())
    run = Run("r", None, None, None, None, None, calls)
    assert {name: run.told(getattr(frames, name)) for name in ACTIONS} == {name: [name] for name in ACTIONS}
    assert {name: getattr(workload, name) for name in ACTIONS} == ACTIONS


# --- steps


@pytest.mark.parametrize(
    ("row", "is_one"),
    [({"readback": True, "operation": "write"}, True), ({"operation": "readback"}, True), ({}, False),
     ({"readback": False, "operation": "read"}, False)],
)  # fmt: skip
def test_a_read_back_is_told_by_its_flag_or_by_its_operation(tmp_path, row, is_one):
    mine = frame(tmp_path, arrivals=[{**seen(0, 5), **row}])
    step = mine.steps["r", "b0.0"]
    assert (len(step.readbacks), len(step.arrivals), len(list(frames.work(mine)))) == (is_one, not is_one, not is_one)


@pytest.mark.parametrize(
    ("decisions", "batch"),
    [([], "b0"), ([{}], "b0"), ([{"batch": None}, {"batch": "plan"}, {"batch": "later"}], "plan")],
)
def test_a_step_is_of_the_batch_that_its_decisions_name_else_of_its_ids(decisions, batch):
    assert Step("r", "b0.1", decisions=tuple(decisions)).batch == batch


def test_only_decisions_of_the_kind_step_are_a_steps_own(tmp_path):
    rows = [said(1, "retry", "scheduled", step="b0.0"), said(2, "step", "served", step="b0.0")]
    assert [row["kind"] for row in frame(tmp_path, decisions=rows).steps["r", "b0.0"].decisions] == ["step"]


def test_a_caller_was_told_what_its_calls_of_an_action_ended_as():
    calls = ({"action": "open", "outcome": "served"}, {"action": "submit", "outcome": "failed"}, {"action": "submit"})
    assert Run("r", None, None, None, None, None, calls).told("submit") == ["failed", "None"]


# --- runs


def test_a_frame_is_made_once_a_trial(tmp_path):
    mine = frame(tmp_path)
    assert frame_of(mine.trial) is mine


def test_a_run_is_of_the_tenant_whose_credential_opened_it_whatever_the_layer_says(tmp_path):
    calls = [asked("0.0", run_id="r")]
    rows = [said(1, "run", "opened", tenant="south"), said(1, "run", "opened", run="x", tenant="south")]
    mine = frame(tmp_path, calls=calls, decisions=rows)
    assert {name: run.tenant for name, run in mine.runs.items()} == {"r": "north", "x": None}


def test_a_caller_that_does_not_say_who_it_is_leaves_it_open(tmp_path):
    mine = frame(tmp_path, calls=[asked("0.0", run_id="r")]).trial

    def nameless(rows):
        for row in rows:
            del row["tenant"]

    assert frame_of(edited(mine, nameless)).runs["r"].tenant is None


def test_a_sub_agents_parent_is_known_from_its_caller_and_better_from_the_layer(tmp_path):
    calls = [
        asked("0.0", run_id="a"), asked("0.1", run_id="b", parent="0.0"), asked("0.2", run_id="c", parent="0.1"),
        # Neither a batch, nor a run that was not opened, nor one below it is a sub-agent.
        asked("0.3", "submit", run_id="a", parent="0.1"), asked("0.4", run_id="d", parent="0.3"),
        asked("0.5"), asked("0.6", run_id="e", parent="0.5"),
    ]  # fmt: skip
    none = dict.fromkeys("abcde")
    mine = frame(tmp_path, calls=calls)
    assert {name: run.parent for name, run in mine.runs.items()} == {**none, "b": "a", "c": "b"}
    assert {root: sorted(below) for root, below in mine.trees().items()} == {
        "a": ["a", "b", "c"],
        "d": ["d"],
        "e": ["e"],
    }
    also = frame(tmp_path / "told", calls=calls, decisions=[said(1, "run", "opened", run="c", parent_run="a")])
    assert {name: run.parent for name, run in also.runs.items()} == {**none, "b": "a", "c": "a"}


def test_a_root_of_which_nothing_else_is_known_is_one_and_a_ring_has_one_as_well(tmp_path):
    rows = [
        said(1, "run", "opened", run="orphan", parent_run="gone"), said(1, "run", "opened", run="a", parent_run="b"),
        said(1, "run", "opened", run="b", parent_run="a"),
    ]  # fmt: skip
    mine = frame(tmp_path, decisions=rows)
    assert (mine.root("orphan"), mine.root("a"), mine.root("nobody")) == ("gone", "a", "nobody")


def test_a_call_is_of_the_run_that_it_names_or_of_the_run_that_its_open_call_has_opened(tmp_path):
    calls = [
        asked("0.0", run_id="a", run=0), asked("0.1", run_id="b", run=1, parent="0.0"),
        asked("0.2", "submit", run=0), asked("0.3", "submit", run=1),
        asked("0.4", "submit", run_id="b", run=0),  # its own id counts
        asked("0.5", run=5, parent="0.1", outcome="throttled"),  # a sub-agent that was refused
        asked("0.6", run=6, parent="0.2"), asked("0.9", run=9, parent="0.4"),  # below what is no run
        asked("0.7", run=7), asked("0.8", "submit", run=7),
    ]  # fmt: skip
    mine = frame(tmp_path, calls=calls)
    found = {name: [row["call"] for row in run.calls] for name, run in mine.runs.items()}
    assert found == {"a": ["0.0", "0.2"], "b": ["0.1", "0.3", "0.4", "0.5"]}


TWO = {"north": [group(), group(name="other")], "south": [group(name="only")]}


@pytest.mark.parametrize(
    ("calls", "opened", "name"),
    [
        ([asked("0.0", run_id="r")], {}, None),
        ([asked("0.0", run_id="r")], {"task_class": "other"}, "other"),
        ([asked("0.0", run_id="r")], {"task_class": "unheard_of"}, None),
        ([asked("0.0", run_id="r")], {"task_class": "only", "tenant": "south"}, None),
        ([], {"tenant": "south"}, "only"),
        ([], {"tenant": "south", "task_class": "unheard_of"}, "only"),
        ([], {"tenant": "north", "task_class": "chat"}, "chat"),
        ([], {"task_class": "chat"}, None),
        ([], {"tenant": "west"}, None),
    ],
)
def test_a_run_is_of_the_group_that_its_task_names_or_of_its_tenants_only_one(tmp_path, calls, opened, name):
    mine = frame(tmp_path, calls=calls, decisions=[said(1, "run", "opened", **opened)], document=profile(TWO))
    assert (mine.runs["r"].group.name if mine.runs["r"].group else None) == name


def test_a_sub_agent_has_its_roots_group_at_any_depth_and_a_ring_has_an_end(tmp_path):
    rows = [
        said(1, "run", "opened", run="a", tenant="north", task_class="other"),
        said(1, "run", "opened", run="b", tenant="north", task_class="chat", parent_run="a"),
        said(1, "run", "opened", run="c", tenant="south", task_class="chat", parent_run="b"),
        said(1, "run", "opened", run="x", tenant="south", parent_run="y"),
        said(1, "run", "opened", run="y", tenant="south", parent_run="x"),
        said(1, "run", "opened", run="z", tenant="north", parent_run="x"),
    ]  # fmt: skip
    mine = frame(tmp_path, decisions=rows, document=profile(TWO))
    assert [mine.runs[name].group.name for name in "abcxyz"] == [*["other"] * 3, *["only"] * 3]


def test_a_run_submits_its_own_batches_and_those_of_all_its_sub_agents():
    batch = [{"dependency": "model", "repeat": 2}, {"dependency": "model"}]
    below = {"batches": [batch], "count": 2, "children": [{"batches": [batch, batch], "count": 3}]}
    batches = frames.batches_of(RunGroup.model_validate({**group(), "children": [below]}))
    assert len(batches) == 1 + 2 + 2 * 3 * 2
    assert [frames.size_of(one) for one in batches[:2]] == [1, 3]


# --- what a run may use


def test_an_envelope_is_as_the_group_asks_else_as_the_profile_has_it_where_that_ran_else_as_it_was_opened(tmp_path):
    groups = {"north": [group(envelope={"attempts": 9}), group(name="other")]}

    def limits(target, opened=True, document=None):
        told = {"remaining_attempts": 7, "remaining_retry_tokens": 3} if opened else {"remaining_attempts": "7"}
        rows = [said(1, "run", "opened", run=name, tenant="north", task_class=name, **told) for name in
                ("chat", "other", "unheard_of")]  # fmt: skip
        if not opened:
            rows = [{**row, "kind": "step", "step": "b0.0"} for row in rows[2:]]
        mine = frame(tmp_path / f"{target}{opened}", decisions=rows, document=document or profile(groups),
                     target=target)  # fmt: skip
        return [
            (frames.envelope_limit(mine, run, "attempts"), frames.envelope_limit(mine, run, "retry_tokens"))
            for run in mine.runs.values()
        ]

    assert limits("simulator") == [(9, 0), (50, 0), (50, 0)]
    assert limits("url") == [(9, 3), (7, 3), (7, 3)]
    assert limits("url", opened=False) == [(None, None)]
    assert limits("bare", document=CALLS_ONLY) == [(7, 3), (7, 3), (7, 3)]


def test_budgets_of_the_group_are_laid_over_those_of_the_profile_where_that_ran(tmp_path):
    groups = {"north": [group(envelope={"budgets": {"model": 5}}), group(name="other")]}
    envelope = {"deadline": "3s", "budgets": {"model": 20, "moving": 8}}
    rows = [said(1, "run", "opened", run=name, tenant="north", task_class=name) for name in ("chat", "other", "none")]

    def budgets(target, envelope=envelope):
        mine = frame(tmp_path / f"{target}{len(envelope)}", decisions=rows, target=target,
                     document=profile(groups, envelope=envelope))  # fmt: skip
        return [frames.budgets_of(mine, run) for run in mine.runs.values()]

    common = envelope["budgets"]
    assert budgets("simulator") == [{"model": 5, "moving": 8}, common, common]
    assert budgets("url") == [{"model": 5}, {}, {}]
    assert budgets("simulator", {"deadline": "3s"}) == [{"model": 5}, {}, {}]


# --- bulkheads


def test_the_limit_of_a_bulkhead_is_its_highest_where_reads_adapt_and_a_target_of_its_own_has_none(tmp_path):
    keys = [("model", "read"), ("model", "write"), ("moving", "read"), ("moving", "write"), ("else", "read")]
    mine, own = frame(tmp_path / "mine"), frame(tmp_path / "own", target="url")
    assert [frames.limit_of(mine, key) for key in keys] == [2, 3, 5, 3, None]
    assert [frames.limit_of(own, key) for key in keys] == [None] * 5
    assert frames.bulkheads(own) == {}
    assert list(frames.bulkheads(mine)) == keys[:4]


@pytest.mark.parametrize(
    ("row", "until_ms"),
    [
        (seen(0, 800), 800), (seen(0, 1500), 1000), (seen(0, 1500, status=0), 950), (seen(0, 700, status=0), 700),
        (seen(0, 980), 980), (seen(0, 900, operation="write"), 400), (seen(0, 900, operation="write", status=0), 380),
        (seen(0, 9000, dependency="else"), 9000), (seen(0, 9000, status=0, dependency="else"), 9000),
        (seen(200, 1900), 1200),
    ],
)  # fmt: skip
def test_a_slot_is_held_until_the_call_ends_and_no_longer_than_its_timeout(plain, row, until_ms):
    """Without an answer its caller may have given it up a twentieth sooner."""
    begins, ends = frames.held(plain, [row])
    assert (begins.tolist(), ends.tolist()) == ([row["t_ns"]], [until_ms * MS])


@pytest.mark.parametrize(
    ("row", "stall_s", "may"),
    [
        (seen(500, 700), None, False), (seen(500, 1600), None, False),
        (seen(500, 700), (0.7, 1.45), True), (seen(500, 700), (0.7, 1.449), False),
        (seen(500, 700), (0.0, 0.5), False), (seen(1000, 1200), (0.25, 1.0), True),
        (seen(500, 700, operation="write"), (0.7, 0.88), True),
        (seen(500, 700, operation="write"), (0.7, 0.87), False),
        (seen(500, 700, dependency="else"), (0.7, 9.0), False),
        (seen(500, 1700), (1.0, 1.5), False),
    ],
)  # fmt: skip
def test_a_call_may_have_timed_out_if_with_the_stalls_beside_it_it_took_its_timeout(
    plain, monkeypatch, row, stall_s, may
):
    spans = [(round(stall_s[0] * S), round(stall_s[1] * S))] if stall_s else []
    monkeypatch.setitem(plain.trial.memo, "stalls", stalls(spans))
    assert frames.may_have_timed_out(plain, row) is may


def test_who_holds_a_slot_at_an_instant_and_who_has_just_let_it_go(plain):
    rows = [seen(0, 5, step="b0.0"), seen(5, 9, step="b0.1"), seen(6, 9, step="b0.2"), seen(4, 6, step="b0.3")]
    assert frames.running_at(plain, iter(rows), 5 * MS) == ["r/b0.1", "r/b0.3"]


def words(rules):
    return [(rule.finding.subject, rule.finding.quantity, rule.finding.measured, str(rule.finding.word)) for rule in
            rules]  # fmt: skip


def test_all_dependencies_together_stay_under_the_ceiling(tmp_path):
    """Each bulkhead is full, and none is over its limit; five at once are too many for all."""
    rows = [seen(0, 10, "moving", step="m"), seen(0, 9, step="a"), seen(1, 9, step="b")]
    rows += [seen(2, 9, operation="write", step=f"w{i}") for i in range(2)]
    mine = frame(tmp_path, arrivals=rows)
    found = frames.within_limits(mine)
    assert words(found) == [
        ("model reads", "calls in flight, limit", 2, "PASS"), ("model writes", "calls in flight, limit", 2, "PASS"),
        ("moving reads", "calls in flight, limit", 1, "PASS"),
        ("all dependencies", "calls in flight, ceiling", 5, "FAIL"),
    ]  # fmt: skip
    assert found[3].witnesses == ("r/m", "r/a", "r/b", "r/w0", "r/w1")
    assert words(frames.within_limits(frame(tmp_path / "own", arrivals=rows, target="url"))) == []


def test_one_call_more_than_a_bulkheads_limit_is_one_too_many(tmp_path):
    rows = [seen(0, 9, step="a"), seen(0, 9, step="b"), seen(8, 20, step="c")]
    over = frames.within_limits(frame(tmp_path, arrivals=rows))[0]
    assert (words([over])[0][2:], over.witnesses) == ((3, "FAIL"), ("r/a", "r/b", "r/c"))
    rows[2]["t_ns"] = 9 * MS
    kept = frames.within_limits(frame(tmp_path / "kept", arrivals=rows))[0]
    assert (words([kept])[0][2:], kept.witnesses) == ((2, "PASS"), ())


READS = ("model", "read")


@pytest.fixture(scope="module")
def crowded(tmp_path_factory):
    """Two reads at once from 5 to 10 ms; at 60 ms the layer counts two of them, at 70 ms four calls in all."""
    arrivals = [seen(0, 10, step="a"), seen(5, 12, step="b"), seen(6, 9, step="c", operation="write")]
    decisions = [
        said(60, "step", "admitted", step="d", dependency="model", operation="read", in_use=2, total_in_use=3),
        said(70, "step", "admitted", step="e", dependency="moving", operation="read", in_use=1, total_in_use=4),
        said(75, "step", "admitted", step="f", dependency="model", operation="read"),
        said(80, "step", "queued", step="g", dependency="model", operation="read", in_use=9, total_in_use=9),
        said(85, "batch", "admitted", dependency="model", operation="read", in_use=9, total_in_use=9),
        said(90, "step", "admitted", step="h", dependency="moving", operation="read", in_use=3, total_in_use=3),
    ]  # fmt: skip
    return frame(tmp_path_factory.mktemp("crowded"), arrivals=arrivals, decisions=decisions)


@pytest.mark.parametrize(
    ("key", "window_ms", "full"),
    [
        (READS, (0, 50), True), (READS, (10, 50), False), (READS, (9, 50), True), (READS, (0, 5), False),
        (READS, (60, 61), True), (READS, (55, 80), True), (READS, (90, 91), False),
        (READS, (61, 90), False), (READS, (55, 60), False),
        (("model", "write"), (0, 50), False), (("else", "read"), (0, 99), False), (("moving", "read"), (0, 99), False),
        (None, (0, 50), False), (None, (70, 71), True), (None, (71, 99), False), (None, (50, 70), False),
    ],
)  # fmt: skip
def test_a_bulkhead_was_full_by_its_arrivals_or_by_what_the_layer_counted(crowded, key, window_ms, full):
    assert frames.was_full(crowded, key, window_ms[0] * MS, window_ms[1] * MS) is full


def test_of_all_of_a_trial_and_of_a_target_of_its_own(tmp_path):
    arrivals = [seen(0, 10, step="a"), seen(5, 12, step="b")]
    full = [said(1, "step", "admitted", step="e", dependency="model", operation="read", in_use=2, total_in_use=4)]
    for place, (rows, decisions, target, known) in enumerate(
        [(arrivals, [], "simulator", [True, False]), ([], full, "simulator", [True, True]),
         (arrivals, full, "url", [False, False]), ([], [], "simulator", [False, False])]
    ):  # fmt: skip
        mine = frame(tmp_path / str(place), arrivals=rows, decisions=decisions, target=target)
        assert [frames.was_full(mine, READS), frames.was_full(mine, None)] == known


def test_a_service_without_a_capacity_layer_has_no_bulkheads_and_no_budgets(tmp_path):
    rows = [said(1, "step", "admitted", step="e", total_in_use=9)]
    mine = frame(tmp_path, arrivals=[seen(0, 10)], decisions=rows, document=CALLS_ONLY)
    assert frames.bulkheads(mine) == frames.budgets_of(mine, mine.runs["r"]) == {}
    assert words(frames.within_limits(mine)) == []
    assert not frames.was_full(mine, None)


def test_a_layer_that_does_not_say_how_many_are_in_use_says_nothing_of_a_ceiling_of_one(tmp_path):
    silent = [said(60, "step", "admitted", step="d")]
    for place, rows in enumerate(([], silent)):
        assert not frames.was_full(frame(tmp_path / str(place), decisions=rows, document=profile(ceiling=1)), None)


def test_the_ceiling_is_full_by_what_arrived_at_all_dependencies(tmp_path):
    arrivals = [seen(0, 9, name, step=f"s{i}") for i, name in enumerate(("model", "model", "moving", "moving"))]
    assert frames.was_full(frame(tmp_path, arrivals=arrivals), None)
    assert not frames.was_full(frame(tmp_path / "three", arrivals=arrivals[1:]), None)


# --- waiting


@pytest.mark.parametrize(
    ("after", "until_ms"),
    [
        ([], 10), ([said(30, "step", "admitted")], 30), ([said(40, "step", "expired")], 40),
        ([said(30, "step", "admitted"), said(40, "step", "served")], 30), ([seen(35, 60), seen(20, 21)], 20),
        ([said(30, "step", "admitted"), seen(31, 60), said(60, "step", "served")], 30),
        ([said(5, "step", "admitted"), said(40, "step", "served")], 40),  # admitted and queued again
        ([said(10, "step", "admitted"), said(40, "step", "served")], 10),
    ],
)  # fmt: skip
def test_a_step_waits_from_when_it_is_queued_until_it_starts_or_ends(after, until_ms):
    place = {"dependency": "model", "operation": "write"}
    decisions = [said(10, "step", "queued"), *(row for row in after if "kind" in row)]
    arrivals = sorted((row for row in after if "kind" not in row), key=lambda row: row["t_ns"])
    step = Step(
        "r", "b0.0", tuple({**row, **place} for row in arrivals), decisions=tuple({**row, **place} for row in decisions)
    )
    unqueued = Step("r", "b0.1", (seen(1, 2),))
    assert frames.waits_of([unqueued, step]) == {("model", "write"): [(10 * MS, until_ms * MS, step)]}
