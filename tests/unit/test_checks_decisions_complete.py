"""trial.decisions_complete and trial.leak_free on rows written by hand: which event is missing, twice, or half told."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from harness.checks import decisions_complete as complete
from harness.checks.judge import judge_one
from harness.checks.step_rows import StepRows
from harness.checks.verdict import Word
from harness.ledger.reader import ARRIVALS, DECISIONS, read_trial
from harness.profile.capacity import RunGroup
from tests.unit.ledgers import manifest_edited, write_rows, written
from tests.unit.written_steps import CAPACITY, arrival, decided, opened, turned

CHECK, LEAKS = "trial.decisions_complete", "trial.leak_free"


def step(name="b0.0", decisions=(), attempts=0, readbacks=0, **more):
    rows = [{"kind": "step", "outcome": outcome, "batch": name.partition(".")[0]} for outcome in decisions]
    return StepRows("r1", name, rows, [{}] * attempts, [{}] * readbacks, **more)


def rule(rules, quantity):
    """(word, breaches, samples) of one, or of the only one."""
    rules = [rules] if not hasattr(rules, "__iter__") else list(rules)
    found = next(r.finding for r in rules if quantity in r.finding.quantity)
    return found.word, found.measured, found.samples


# --- batches


def submitted(call, status=200, outcome="served", **more):
    return {"call": call, "action": "submit", "status": status, "outcome": outcome, **more}


def batches(calls, decided_of=(), runs=None, steps=(), groups=None):
    """decided_of: requests that a decision of a batch names."""
    rows = {("r1", "b0"): [{"request": request} if request else {} for request in decided_of]}
    callers = SimpleNamespace(calls=calls, runs=runs or {})
    frame = SimpleNamespace(batches=groups or rows, runs={"r1": SimpleNamespace(steps=list(steps))})
    return list(complete._batches(SimpleNamespace(memo={"capacity": callers}), frame))


ONCE, SIZED = "not decided exactly once", "another number of ends"


@pytest.mark.parametrize("status", [200, 201, 402, 403, 405, 429, 503, 599])
def test_a_batch_that_was_answered_must_have_been_decided(status):
    assert rule(batches([submitted("0.1", status)]), ONCE) == (Word.FAIL, 1.0, 1)


@pytest.mark.parametrize(
    "row",
    [
        *(submitted("0.1", status) for status in (-1, 0, 199, 400, 401, 404, 600)),
        *(submitted("0.1", 504, outcome) for outcome in ("held_back", "abandoned", "dropped", "open")),
        submitted("0.1", action="open"),
        {"call": "0.1", "action": "submit", "outcome": "failed"},
    ],
)
def test_what_never_came_to_be_decided_is_not_missed(row):
    assert rule(batches([row]), ONCE) == (Word.INCONCLUSIVE, 0.0, 0)


@pytest.mark.parametrize(
    ("requests", "word"),
    [
        (["0.1"], Word.PASS),
        (["0.1.2"], Word.PASS),
        (["0.1", "0.1.2"], Word.FAIL),
        (["0.2"], Word.FAIL),
        ([""], Word.FAIL),
    ],
    ids=["once", "of_an_attempt", "twice", "another", "of_none"],
)
def test_a_batch_is_decided_once_whichever_attempt_the_decision_names(requests, word):
    assert rule(batches([submitted("0.1")], requests), ONCE) == (word, float(word is Word.FAIL), 1)


GROUP = RunGroup.model_validate(
    {"name": "mine", "rate": "1/s", "batches": [{"steps": [{"tool": "look", "dependency": "billing", "repeat": 2}]}]}
)


def view(group=GROUP, parent=None):
    return SimpleNamespace(group=group, parent=parent)


@pytest.mark.parametrize(("ends", "word"), [(1, Word.FAIL), (2, Word.PASS), (3, Word.FAIL)])
def test_as_many_steps_end_as_were_submitted(ends, word):
    steps = [step(f"b0.{i}", ["served"]) for i in range(ends)]
    steps += [step("b0.8", ["queued"]), step("b1.0", ["served"])]
    found = batches([], ["0.1"], {"r1": view()}, steps)
    assert rule(found, SIZED) == (word, float(word is Word.FAIL), 1)


@pytest.mark.parametrize(
    ("runs", "batch"),
    [
        ({}, "b0"),
        ({"r1": view(group=None)}, "b0"),
        ({"r1": view(parent="r0")}, "b0"),
        ({"r1": view()}, "b1"),
        ({"r1": view()}, "c0"),
        ({"r1": view()}, "b0x"),
        ({"r1": view()}, "b"),
    ],
    ids=["unknown_run", "unknown_group", "sub_agent", "beyond_its_batches", "other_name", "no_number", "no_place"],
)
def test_a_batch_of_unknown_size_is_left_out_and_the_next_is_not(runs, batch):
    runs = {**runs, "r2": view()}
    groups = {("r1", batch): [], ("r2", "b0"): []}
    callers = SimpleNamespace(calls=[], runs=runs)
    frame = SimpleNamespace(batches=groups, runs={})
    assert list(complete._sizes(callers, frame)) == [(("r2", "b0"), 2)]


def test_where_no_size_is_known_nothing_is_missed():
    assert rule(batches([], ["0.1"]), SIZED) == (Word.PASS, 0.0, 0)


# --- what reached a dependency


def repeated(n):
    return [{"kind": "retry", "outcome": "scheduled"}] * n


ADMITTED, SCHEDULED, RECORDED = "never admitted", "never scheduled", "not recorded"


@pytest.mark.parametrize(
    ("attempts", "admitted", "scheduled", "unadmitted", "unscheduled"),
    [(0, 0, 0, 0, 0), (1, 1, 0, 0, 0), (1, 0, 0, 1, 0), (3, 3, 2, 0, 0), (3, 2, 2, 1, 0), (3, 3, 1, 0, 1)],
)
def test_each_attempt_was_admitted_and_each_repeat_scheduled(attempts, admitted, scheduled, unadmitted, unscheduled):
    mine = step(decisions=["admitted"] * admitted, attempts=attempts)
    mine.decisions += repeated(scheduled)
    found = list(complete._accounted([mine]))
    word = Word.FAIL if unadmitted else Word.PASS if attempts else Word.INCONCLUSIVE
    assert rule(found, ADMITTED) == (word, unadmitted, attempts)
    assert rule(found, SCHEDULED)[1:] == (unscheduled, max(0, attempts - 1))
    assert rule(found, RECORDED) == (Word.PASS, 0.0, 0)


@pytest.mark.parametrize(("recorded", "word"), [(1, Word.FAIL), (2, Word.PASS)])
def test_each_read_back_was_recorded(recorded, word):
    mine = step(readbacks=2)
    mine.decisions += [{"kind": "readback", "outcome": "absent"}] * recorded
    assert rule(complete._accounted([mine]), RECORDED) == (word, float(word is Word.FAIL), 2)


def test_without_an_attempt_nothing_was_seen_of_admissions():
    assert rule(complete._accounted([step()]), ADMITTED)[0] is Word.INCONCLUSIVE


@pytest.mark.parametrize(("ends", "none", "twice"), [([], 1, 0), (["served"], 0, 0), (["served", "failed"], 0, 1)])
def test_each_step_has_one_end(ends, none, twice):
    found = list(complete._ends([step(decisions=ends)], complete.Params(least=1)))
    assert (rule(found, "no terminal decision")[1], rule(found, "more than one")[1]) == (none, twice)
    assert ("served and failed" in found[1].sentence) is bool(twice)


# --- twice


EVENT = {"kind": "step", "outcome": "queued", "run": "r1", "batch": "b0", "step": "b0.0", "attempt": 1,
         "dependency": "billing", "operation": "read", "traffic_class": "interactive", "t_ns": 5}  # fmt: skip


def twice(*events, of_run=()):
    evidence = SimpleNamespace(decisions=list(events))
    return complete._twice(
        SimpleNamespace(evidence=evidence, runs={"r1": SimpleNamespace(run="r1", decisions=list(of_run))})
    )


def test_one_event_may_be_written_once():
    assert rule(twice(EVENT, EVENT), "") == (Word.FAIL, 1.0, 1)
    assert twice(EVENT, EVENT).witnesses == ("r1/b0.0",)


@pytest.mark.parametrize("key", list(EVENT))
def test_events_that_differ_in_anything_are_two(key):
    assert rule(twice(EVENT, {**EVENT, key: "other"}), "") == (Word.PASS, 0.0, 2)


def test_events_of_no_run_are_not_held_to_it():
    of_none = {key: value for key, value in EVENT.items() if key != "run"}
    assert rule(twice(of_none, of_none), "") == (Word.INCONCLUSIVE, 0.0, 0)


def of_run(*outcomes, kind="run"):
    return [{"kind": kind, "outcome": outcome} for outcome in outcomes]


@pytest.mark.parametrize(
    ("events", "word"),
    [
        (of_run("opened", "served"), Word.PASS),
        (of_run("opened", "opened"), Word.FAIL),
        (of_run("opened", "served", "failed"), Word.FAIL),
        (of_run("opened") + of_run("opened", "opened", kind="circuit"), Word.PASS),
        (of_run("served") + of_run("served", "served", kind="step"), Word.PASS),
    ],
    ids=["once", "opened_twice", "ended_twice", "others_opened", "steps_ended"],
)
def test_a_run_is_opened_once_and_ends_once(events, word):
    assert rule(twice(EVENT, of_run=events), "")[0] is word


# --- circuits


@pytest.mark.parametrize(
    ("turns", "word", "n"),
    [
        ([], Word.PASS, 0),
        (["opened", "half_open", "opened", "half_open", "closed"], Word.PASS, 5),
        (["half_open"], Word.FAIL, 1),
        (["opened", "closed"], Word.FAIL, 2),
        (["opened", "opened"], Word.FAIL, 2),
    ],
    ids=["none", "all_that_there_are", "never_opened", "no_probe", "again"],
)
def test_circuits_take_only_the_steps_that_there_are(turns, word, n):
    rows = [turned(at_ms, outcome) for at_ms, outcome in enumerate(turns, start=1)]
    found = complete._transitions(SimpleNamespace(circuits={"billing": rows}))
    assert (found.finding.word, found.finding.samples) == (word, n)


# --- fields


OF_KIND = {
    "run": {"tenant", "request", "user_status"},
    "batch": {"run", "tenant", "traffic_class", "batch", "round", "request", "remaining_attempts"},
    "retry": {"run", "step", "dependency", "attempt", "owner", "reason", "remaining_retry_tokens", "remaining_ns"},
    "readback": {"run", "step", "dependency", "attempt"},
    "circuit": {"dependency", "circuit"},
    "lend": {"traffic_class", "limit", "in_use"},
    "limit": {"dependency", "operation", "limit"},
    "late": {"run", "step"},
    "cost": {"tenant", "request_class", "size_class", "forecast"},
}
"""What a reader needs of each kind, beside kind, outcome and instant."""


def fields(rows, steps=(), runs=None):
    frame = SimpleNamespace(evidence=SimpleNamespace(decisions=rows), runs=runs or {})
    return list(complete._fields(frame, list(steps)))


@pytest.mark.parametrize(("kind", "field"), [(k, f) for k, names in OF_KIND.items() for f in sorted(names)])
def test_a_field_that_a_kind_has_is_missed_by_name(kind, field):
    whole = dict.fromkeys(OF_KIND[kind] | {"outcome", "t_ns"}, "x") | {"kind": kind}
    assert rule(fields([whole]), "lack a field") == (Word.PASS, 0.0, 1)
    half = fields([{name: value for name, value in whole.items() if name != field}])[-1]
    assert half.finding.word is Word.FAIL
    assert f"{kind} x without {field}" in half.sentence


@pytest.mark.parametrize("field", ["kind", "outcome", "t_ns"])
def test_every_event_says_what_it_is_and_when(field):
    row = {"kind": "other", "outcome": "x", "t_ns": 1}
    assert rule(fields([row]), "lack a field")[0] is Word.PASS
    assert rule(fields([{**row, field: None}]), "lack a field")[0] is Word.FAIL


def end_of(outcome="served", attempts=1, run=None, **lacks):
    told = dict.fromkeys((*complete.ALWAYS, "reason", "coalesced_with", "service_ns", "task_class", "release"), "x")
    row = {**told, "kind": "step", "outcome": outcome, **lacks}
    mine = StepRows("r1", "b0.0", [row], [{}] * attempts)
    return fields([row | {"t_ns": 1}], [mine], {"r1": SimpleNamespace(opened=run)})


ENDS = "terminal decision that lacks"


@pytest.mark.parametrize(
    ("outcome", "attempts", "run", "lacks", "word"),
    [
        ("served", 1, None, "reason", Word.PASS),
        ("coalesced", 1, None, "reason", Word.PASS),
        ("throttled", 1, None, "reason", Word.FAIL),
        ("coalesced", 1, None, "coalesced_with", Word.FAIL),
        ("served", 1, None, "coalesced_with", Word.PASS),
        ("served", 1, None, "service_ns", Word.FAIL),
        ("throttled", 0, None, "service_ns", Word.PASS),
        ("served", 1, None, "task_class", Word.PASS),
        ("served", 1, {"task_class": None}, "task_class", Word.PASS),
        ("served", 1, {"task_class": "chat"}, "task_class", Word.FAIL),
        ("served", 1, {"release": "v2"}, "release", Word.FAIL),
        ("served", 1, {"release": "v2"}, "task_class", Word.PASS),
        ("served", 1, {}, "tenant", Word.FAIL),
    ],
)
def test_an_end_has_every_field_that_applies(outcome, attempts, run, lacks, word):
    assert rule(end_of(outcome, attempts, run, **{lacks: None}), ENDS) == (word, float(word is Word.FAIL), 1)


def test_without_an_end_no_field_was_seen():
    assert [r.finding.word for r in fields([])] == [Word.INCONCLUSIVE, Word.INCONCLUSIVE]


# --- how much there was


def test_evidence_is_of_ends_repeats_and_read_backs():
    mine = [step(decisions=["served"], readbacks=2), step(decisions=["failed"]), step(decisions=["queued"])]
    mine[0].decisions += [*repeated(2), {"kind": "retry", "outcome": "denied"}]
    found = list(complete._evidence(mine, complete.Params(outcomes=2, retries=2, read_backs=2)))
    assert [(r.finding.quantity, r.finding.word, r.finding.measured, r.finding.unit) for r in found] == [
        ("different outcomes", Word.PASS, 2.0, "outcomes"), ("scheduled", Word.PASS, 2.0, "retries"),
        ("made", Word.PASS, 2.0, "read-backs"),
    ]  # fmt: skip
    thin = complete._evidence(mine, complete.Params(outcomes=3, retries=3, read_backs=3))
    assert {r.finding.word for r in thin} == {Word.INCONCLUSIVE}


# --- leaks


def leaks(folder, leftovers, arrivals=(), decisions=(), params=None):
    ended = {"reason": "completed", "leftovers": leftovers}
    trial = written(folder / "t", {"agents": []}, {"capacity": CAPACITY}, ended=ended)
    for rows, name in ((arrivals, ARRIVALS), (decisions, DECISIONS)):
        write_rows(trial.folder, rows, name)
    return judge_one(read_trial(trial.folder), LEAKS, {"least": 1, **(params or {})})


SERVED = [opened("r1"), decided("r1", 1, "admitted"), decided("r1", 2)]


def test_only_numbers_are_counts_of_things(tmp_path):
    told = {"slots": 0, "settled": True, "note": "all well", "pools": {"tokens": 0.0, "nothing": None}}
    verdict = leaks(tmp_path, told, [arrival("r1", 1)], SERVED)
    assert (verdict.word, verdict.sentence) == (
        Word.PASS, "Nothing is left of 1 steps: pools.tokens, slots are back at zero.",
    )  # fmt: skip
    assert [(f.subject, f.samples) for f in verdict.findings][:2] == [("pools.tokens", 1), ("slots", 1)]


@pytest.mark.parametrize("told", [{"settled": True}, {"note": "all well"}, {}, [], None])
def test_where_nothing_is_counted_nothing_is_known(tmp_path, told):
    assert leaks(tmp_path, told, [arrival("r1", 1)], SERVED).word is Word.INCONCLUSIVE


def test_a_trial_of_which_no_end_is_told_says_nothing_of_what_is_left(tmp_path):
    trial = manifest_edited(written(tmp_path / "t", {"agents": []}), lambda manifest: manifest.update(ended=None))
    assert judge_one(trial, LEAKS, {}).word is Word.INCONCLUSIVE


@pytest.mark.parametrize(
    ("arrivals", "decisions", "word"),
    [
        ([], [opened("r1"), decided("r1", 1, "queued")], Word.PASS),
        ([], [opened("r1"), decided("r1", 1, "admitted")], Word.FAIL),
        ([arrival("r1", 1)], [opened("r1"), decided("r1", 1, "queued")], Word.FAIL),
        ([arrival("r1", 1)], [opened("r1"), decided("r1", 1, "queued", kind="retry")], Word.FAIL),
        ([], [opened("r1"), decided("r1", 1, "admitted", kind="retry")], Word.PASS),
        ([arrival("r1", 1)], SERVED, Word.PASS),
    ],
    ids=["waits", "admitted", "attempted", "attempted_alone", "other_kind", "ended"],
)
def test_a_step_that_began_and_has_no_end_holds_something(tmp_path, arrivals, decisions, word):
    assert leaks(tmp_path, {"slots": 0}, arrivals, decisions).word is word
