"""Agent runs as callers: exact sequences of calls, with answers given by hand."""

from __future__ import annotations

from random import Random

import orjson

from harness.profile.capacity import RunGroup
from harness.workload.callers import NEVER
from harness.workload.runs import RunCaller

MS = 1_000_000
S = 1_000 * MS
READ = {"dependency": "customer"}
WRITE = {"dependency": "billing", "operation": "write", "tool": "charge", "high_risk": True}


def caller(group: dict, *more: dict, end_ns: int = 10 * S, **options) -> RunCaller:
    groups = [RunGroup.model_validate({"name": f"g{i}", **one}) for i, one in enumerate((group, *more))]
    return RunCaller("A", 4, groups, end_ns, Random(1), **options)


def end(of: RunCaller, call, done_ns: int, outcome: str = "served", **answer) -> None:
    call.outcome, call.done_ns = outcome, done_ns
    call.answer = {"outcome": outcome, **answer}
    of.on_outcome(call)


def opened(of: RunCaller, now_ns: int, run: str = "r1"):
    """Takes the open call that is due, and answers it at once."""
    (call,) = of.on_due(now_ns)
    assert call.action == "open"
    end(of, call, now_ns, run=run)
    return call


def told(call) -> tuple:
    return call.due_ns, call.action, call.path, call.round


def sequence(of: RunCaller, answer=lambda call: {}, took_ns: int = MS) -> list[tuple]:
    """Drives it alone, each call taking `took_ns`; answer: outcome and body of a call, by default served."""
    seen, runs = [], 0
    while of.next_ns != NEVER:
        now = of.next_ns
        for call in of.on_due(now):
            seen.append(told(call))
            wish = dict(answer(call))
            if call.action == "open" and "outcome" not in wish:
                runs += 1
                wish["run"] = f"r{runs}"
            end(of, call, now + took_ns, **wish)
    return seen


def test_a_run_opens_submits_its_batches_one_after_another_and_finishes():
    of = caller({"at": "1s", "batches": [[READ], [READ, READ]]})
    assert sequence(of) == [
        (S, "open", "/runs", 0),
        (S + 1 * MS, "submit", "/runs/r1/steps", 0),
        (S + 2 * MS, "submit", "/runs/r1/steps", 0),
        (S + 3 * MS, "finish", "/runs/r1/finish", 0),
    ]


def test_nothing_follows_until_the_call_before_has_ended():
    of = caller({"at": "0s", "batches": [[READ], [READ]]})
    opened(of, 0)
    (first,) = of.on_due(5)
    assert of.next_ns == NEVER
    assert of.on_due(10 * S) == []
    end(of, first, 7)
    assert of.next_ns == 7


def test_parallel_batches_are_submitted_at_one_instant_and_finish_comes_after_the_last():
    of = caller({"at": "0s", "parallel": True, "batches": [[READ], [READ], [READ]]})
    opened(of, 0)
    calls = of.on_due(0)
    assert [orjson.loads(call.body)["batch"] for call in calls] == ["b0", "b1", "b2"]
    end(of, calls[2], 5)
    end(of, calls[0], 6)
    assert of.next_ns == NEVER
    end(of, calls[1], 9)
    assert [told(call) for call in of.on_due(9)] == [(9, "finish", "/runs/r1/finish", 0)]


def test_bodies_say_what_the_profile_says():
    of = caller(
        {
            "name": "ticket",
            "class": "interactive",
            "priority": 3,
            "at": "0s",
            "envelope": {"deadline": "1500ms", "attempts": 9, "parallel": 2, "retry_tokens": 0, "budgets": {"x": 0}},
            "batches": [[{**READ, "repeat": 2, "coalesce": "t7", "may_wait": False}, WRITE, {**WRITE, "key": "k"}]],
        }
    )
    (call,) = of.on_due(0)
    assert (call.method, call.parent, call.run, call.run_id) == ("POST", None, 0, None)
    assert orjson.loads(call.body) == {
        "traffic_class": "interactive", "task_class": "ticket", "priority": 3, "deadline_ms": 1500, "attempts": 9,
        "parallel": 2, "retry_tokens": 0, "budgets": {"x": 0},
    }  # fmt: skip
    end(of, call, 0, run="r7")
    (call,) = of.on_due(0)
    assert (call.method, call.parent, call.run, call.run_id) == ("POST", "4.0", 0, "r7")
    lookup = {"dependency": "customer", "operation": "read", "tool": "call", "coalesce": "t7", "may_wait": False}
    charge = {"dependency": "billing", "operation": "write", "tool": "charge", "high_risk": True}
    assert orjson.loads(call.body) == {
        "batch": "b0",
        "round": 0,
        "wait": True,
        "steps": [
            {"step": "b0.0", **lookup},
            {"step": "b0.1", **lookup},
            {"step": "b0.2", "idempotency_key": "r7/b0.2", **charge},
            {"step": "b0.3", "idempotency_key": "k", **charge},
        ],
    }


def test_a_write_without_a_key_has_none_and_parts_of_a_millisecond_are_kept():
    of = caller({"at": "0s", "envelope": {"deadline": "1500us"}, "batches": [[{**WRITE, "key": "none"}]]})
    call = opened(of, 0)
    assert orjson.loads(call.body)["deadline_ms"] == 1.5
    (call,) = of.on_due(0)
    assert "idempotency_key" not in orjson.loads(call.body)["steps"][0]


def test_replans_follow_a_batch_that_was_not_all_served_and_obey_the_cap_on_rounds():
    of = caller(
        {"at": "0s", "batches": [[READ], [WRITE]], "replans": {"batch": [READ, READ], "after": "10ms", "rounds": 2}}
    )
    refused = {"outcome": "throttled"}
    seen = []

    def answer(call):
        if call.action == "submit":
            seen.append((orjson.loads(call.body)["batch"], orjson.loads(call.body)["round"]))
        return refused if call.action == "submit" and len(seen) < 5 else {}

    assert sequence(of, answer) == [
        (0, "open", "/runs", 0),
        (1 * MS, "submit", "/runs/r1/steps", 0),
        (12 * MS, "submit", "/runs/r1/steps", 1),
        (23 * MS, "submit", "/runs/r1/steps", 2),
        (24 * MS, "submit", "/runs/r1/steps", 0),
        (35 * MS, "submit", "/runs/r1/steps", 1),
        (36 * MS, "finish", "/runs/r1/finish", 0),
    ]
    assert seen == [("b0", 0), ("b0.r1", 1), ("b0.r2", 2), ("b1", 0), ("b1.r1", 1)]


def test_coalesced_is_served():
    of = caller({"at": "0s", "batches": [[READ]], "replans": {"batch": [READ], "rounds": 1}})
    opened(of, 0)
    (call,) = of.on_due(0)
    end(of, call, 1, "coalesced")
    assert [told(call)[1] for call in of.on_due(1)] == ["finish"]


def test_a_batch_that_needs_a_person_is_the_last():
    of = caller({"at": "0s", "batches": [[WRITE], [READ]], "replans": {"batch": [READ], "rounds": 2}})
    opened(of, 0)
    (call,) = of.on_due(0)
    end(of, call, 1, "needs_person")
    assert [told(call)[1] for call in of.on_due(1)] == ["finish"]


def test_a_run_that_is_not_opened_is_over():
    for answer in ({"outcome": "budget_exhausted"}, {"run": "../../x"}, {"run": 7}, {}):
        of = caller({"at": "0s", "batches": [[READ]], "cancel_after": "1s", "children": [{"batches": [[READ]]}]})
        (call,) = of.on_due(0)
        end(of, call, 3, **{"outcome": "served", **answer})
        assert of.next_ns == NEVER
        wrong = call.outcome == "failed" and call.reason == "no_run_id"
        assert wrong or call.outcome == "budget_exhausted"


def test_children_open_before_the_first_batch_and_the_parent_finishes_after_them():
    child = {"batches": [[READ]], "envelope": {"attempts": 2}, "count": 2}
    of = caller({"name": "p", "at": "0s", "batches": [[READ]], "children": [child]})
    opened(of, 0)
    first, second = of.on_due(0)
    assert (first.parent, first.run, first.round) == ("4.0", 1, 0)
    assert orjson.loads(first.body) == {
        "traffic_class": "autonomous", "task_class": "p.child", "priority": 0, "attempts": 2, "parent_run": "r1",
    }  # fmt: skip
    end(of, first, 1, run="r2")
    (of_child,) = of.on_due(1)
    assert (of_child.path, of_child.parent, of_child.run) == ("/runs/r2/steps", "4.1", 1)
    end(of, second, 2, "budget_exhausted")  # its own child's refusal does not hold the parent up
    (own,) = of.on_due(2)
    assert (own.path, own.parent, own.run) == ("/runs/r1/steps", "4.0", 0)
    end(of, own, 3)
    assert of.next_ns == NEVER
    end(of, of_child, 4)
    (finish,) = of.on_due(4)
    assert finish.path == "/runs/r2/finish"
    end(of, finish, 5)
    (finish,) = of.on_due(5)
    assert finish.path == "/runs/r1/finish"
    end(of, finish, 6)
    assert of.next_ns == NEVER


def test_a_cancelled_run_goes_on_until_it_is_told_and_is_not_finished():
    of = caller({"at": "1s", "cancel_after": "5ms", "batches": [[READ], [READ], [READ]]})
    opened(of, S)
    (first,) = of.on_due(S)
    (cancel,) = of.on_due(S + 5 * MS)
    assert told(cancel) == (S + 5 * MS, "cancel", "/runs/r1/cancel", 0)
    end(of, cancel, S + 6 * MS)
    end(of, first, S + 7 * MS)
    (second,) = of.on_due(S + 7 * MS)  # follow-up work, for the service to refuse
    assert second.action == "submit"
    end(of, second, S + 8 * MS, "cancelled")
    assert of.next_ns == NEVER


def test_a_run_that_finishes_first_is_not_cancelled():
    of = caller({"at": "0s", "cancel_after": "5s", "batches": [[READ]]}, {"at": "9s", "batches": [[READ]]})
    opened(of, 0)
    (call,) = of.on_due(0)
    end(of, call, 1)
    (finish,) = of.on_due(1)
    assert of.next_ns == 9 * S
    end(of, finish, 2)
    assert [told(call) for call in of.on_due(9 * S)] == [(9 * S, "open", "/runs", 0)]


def test_a_cancel_that_was_refused_leads_to_a_finish():
    of = caller({"at": "0s", "cancel_after": "1ms", "batches": [[READ]]})
    opened(of, 0)
    (call,) = of.on_due(0)
    (cancel,) = of.on_due(MS)
    end(of, call, 2 * MS)
    end(of, cancel, 3 * MS, "failed")
    assert [told(call)[1] for call in of.on_due(3 * MS)] == ["finish"]


def test_runs_begin_as_their_groups_say_and_none_at_or_after_the_end():
    of = caller(
        {"at": "1s", "count": 3, "batches": [[READ]]},
        {"rate": "2/s", "from": "500ms", "to": "2s", "batches": [[READ]]},
        {"at": "3s", "batches": [[READ]]},
        {"rate": "1/s", "batches": [[READ]]},
        end_ns=3 * S,
    )
    begins = [(call.due_ns, orjson.loads(call.body)["task_class"]) for call in of.on_due(100 * S)]
    assert begins == [
        (0, "g3"), (500 * MS, "g1"), (S, "g0"), (S, "g0"), (S, "g0"), (S, "g1"), (S, "g3"), (1500 * MS, "g1"),
        (2 * S, "g3"),
    ]  # fmt: skip


def test_what_has_begun_goes_on_past_the_end():
    of = caller({"at": "0s", "batches": [[READ]]}, end_ns=S)
    opened(of, 0)
    (call,) = of.on_due(0)
    end(of, call, 5 * S)
    assert [told(call) for call in of.on_due(5 * S)] == [(5 * S, "finish", "/runs/r1/finish", 0)]


def test_sequences_have_no_gap_and_runs_do_not_mix():
    of = caller({"rate": "1000/s", "batches": [[READ], [READ]], "replans": {"batch": [READ]}}, end_ns=S // 10)
    rng, open_calls, seen, now = Random(7), [], [], 0
    while of.next_ns != NEVER or open_calls:
        if open_calls and (of.next_ns == NEVER or rng.random() < 0.5):
            call = open_calls.pop(rng.randrange(len(open_calls)))
            now += rng.randrange(2 * MS)
            run = {"run": f"r{call.seq}"} if call.action == "open" else {}
            end(of, call, now, "served" if run or rng.random() < 0.7 else "throttled", **run)
        else:
            now = max(now, of.next_ns)
            calls = of.on_due(now)
            open_calls += calls
            seen += calls
    assert sorted(call.seq for call in seen) == list(range(len(seen)))
    opens = {call.seq: call for call in seen if call.action == "open"}
    assert len(opens) == 100
    for call in seen:
        if call.action != "open":
            assert call.path.split("/")[2] == f"r{call.run}"
            assert call.parent == opens[call.run].id
    assert sum(call.action == "finish" for call in seen) == 100


def test_poisson_begins_are_those_of_the_seed():
    def dues(seed: int) -> list[int]:
        group = RunGroup.model_validate({"name": "g", "rate": "50/s", "batches": [[READ]]})
        of = RunCaller("A", 0, [group], S, Random(seed), "poisson")
        return [call.due_ns for call in of.on_due(S)]

    assert dues(1) == dues(1) != dues(2)
    assert 20 < len(dues(1)) < 100
