"""v05.one_retry_owner, rule by rule: trials of a few rows each, at just the bound that a rule has."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from harness.checks.judge import judge_one
from harness.checks.v05_retry_owner import NAME, Params
from harness.checks.verdict import Word
from tests.unit.capacity_trials import ONE_DEPENDENCY, by_hand
from tests.unit.ledgers import manifest_edited

MS = 1_000_000
SMALL = {"steps": 1, "runs": 1, "delays": 3}


def call(status=503, at=0, took=10, run="r1", step="b0.0", **more):
    return {"run": run, "step": step, "dependency": "billing", "operation": "read", "status": status,
            "t_ns": at * MS, "ended_ns": (at + took) * MS, **more}  # fmt: skip


def attempts(statuses, run="r1", step="b0.0", at=0, **more):
    """One after another, 100 ms apart."""
    return [call(status, at + 100 * i, run=run, step=step, **more) for i, status in enumerate(statuses)]


def opened(run="r1", **more):
    return {"kind": "run", "outcome": "opened", "run": run, "tenant": "agents", "task_class": "any", "t_ns": 0, **more}


def scheduled(at, left=0, run="r1", step="b0.0"):
    return {"kind": "retry", "outcome": "scheduled", "run": run, "step": step, "t_ns": at * MS,
            "remaining_retry_tokens": left}  # fmt: skip


def circuit(outcome, at, dependency="billing"):
    return {"kind": "circuit", "outcome": outcome, "dependency": dependency, "t_ns": at * MS}


def verdict(folder, arrivals, decisions=(), envelope=None, spans=(), capacity=None, params=SMALL, telling=True):
    """envelope: of every run, in which `retry_tokens` and `attempts` are unknown unless they are given. spans: in ms.
    telling: whether the controller tells anything at all."""
    group = {"name": "any", "rate": "1/s", "batches": [[{"dependency": "billing"}]], "envelope": envelope or {}}
    profile = {"tenants": {"agents": {"runs": [group]}}, **({"capacity": capacity} if capacity else {})}
    named = {row["run"] for row in decisions if row.get("outcome") == "opened" and row["kind"] == "run"}
    runs = sorted({row["run"] for row in arrivals} - named)
    told = [*map(opened, runs), *decisions] if telling else []
    still = [(begin * MS, end * MS) for begin, end in spans]
    return judge_one(by_hand(folder, told, arrivals, profile, still), NAME, params)


def found(folder, arrivals, *rows, **more):
    """Quantity -> (how many broke it, or how many there were; out of how many)."""
    told = verdict(folder, arrivals, *rows, **more)
    return {finding.quantity: (finding.measured, finding.samples) for finding in told.findings}


ROOM = {"retry_tokens": 2, "attempts": 9}
ONE_STEP, TOKENS, ATTEMPTS = "attempts of one step", "retries beyond the tokens", "attempts beyond the envelope"


def test_calls_of_runs_are_judged_so_whatever_the_target_is(tmp_path):
    """Of a target of its own as of the bundled one: arrivals of steps, not of plain calls."""
    act = {"due_ns": 0, "outcome": "served", "status": 200, "action": "open", "run_id": "r1"}
    mine = by_hand(tmp_path, [opened()], attempts([503, 200]), calls=[act])
    its_own = manifest_edited(mine, lambda manifest: manifest["target"].update(kind="url"))
    told = judge_one(its_own, NAME, SMALL)
    assert {finding.quantity: finding.measured for finding in told.findings}["failed once"] == 1


# --- how many


@pytest.mark.parametrize(
    ("tokens", "made", "over"),
    [(2, 3, None), (2, 4, (4, 1)), (0, 1, None), (0, 2, (2, 1)), (None, 9, None)],
)
def test_a_step_has_one_attempt_and_one_for_each_token(tmp_path, tokens, made, over):
    envelope = {"retry_tokens": tokens} if tokens is not None else {}
    assert found(tmp_path, attempts([503] * made), envelope=envelope).get(ONE_STEP) == over


def test_of_steps_with_as_many_attempts_too_many_the_first_is_named(tmp_path):
    rows = [row for run, n in (("r1", 4), ("r2", 5), ("r3", 5)) for row in attempts([503] * n, run=run)]
    said = verdict(tmp_path, rows, envelope=ROOM)
    assert said.sentence.startswith(
        "Step r2/b0.0: 5 attempts by an unnamed layer where at most 3 are allowed (1 + 2 retry tokens)"
    )
    assert said.witnesses[0] == "r2/b0.0"


@pytest.mark.parametrize(
    ("made", "over_tokens", "over_attempts"),
    [
        # of two tokens and three attempts: attempts of one step, of another, of a step of a sub-agent
        ((2, 2, 0), (0, 1), (1, 1)), ((2, 1, 0), (0, 1), (0, 1)), ((2, 2, 2), (1, 1), (1, 1)),
        ((3, 0, 0), (0, 1), (0, 1)),
        ((1, 1, 2), (0, 1), (1, 1)), ((1, 1, 1), (0, 1), (0, 1)),
        ((3, 2, 0), (1, 1), (1, 1)), ((0, 0, 3), (0, 1), (0, 1)), ((0, 0, 4), (1, 1), (1, 1)),
    ],
)  # fmt: skip
def test_a_run_shares_its_envelope_with_its_steps_and_sub_agents(tmp_path, made, over_tokens, over_attempts):
    places = [("r1", "b0.0"), ("r1", "b0.1"), ("r2", "b0.0")]
    rows = [row for (run, step), n in zip(places, made, strict=True) for row in attempts([503] * n, run, step)]
    decisions = [opened("r1"), opened("r2", parent_run="r1"), opened("r9")]  # r9 has no step
    told = found(tmp_path, rows, decisions, envelope={"retry_tokens": 2, "attempts": 3})
    assert (told[TOKENS], told[ATTEMPTS]) == (over_tokens, over_attempts)


def test_first_attempts_beyond_the_envelope_are_not_a_matter_of_retries(tmp_path):
    firsts = [row for i in range(4) for row in attempts([200], step=f"b0.{i}")]
    limits = {"retry_tokens": 2, "attempts": 3}
    assert found(tmp_path / "firsts", firsts, envelope=limits)[ATTEMPTS] == (0, 1)
    assert found(tmp_path / "again", [*firsts, call(at=500)], envelope=limits)[ATTEMPTS] == (1, 1)


def test_of_what_is_not_known_nothing_is_too_much(tmp_path):
    told = found(tmp_path, attempts([503] * 9))
    assert (told[TOKENS], told[ATTEMPTS]) == ((0, 1), (0, 1))


# --- by whom

SEVERAL, TWICE = "retried by several owners", "attempts sent twice"


@pytest.mark.parametrize(
    ("first", "second", "several", "twice"),
    [
        ({}, {}, 0, 0), ({"owner": "a", "layer": "x"}, {"owner": "a", "layer": "x"}, 0, 0),
        ({"owner": "a"}, {"owner": "b"}, 1, 0), ({"layer": "x"}, {"layer": "y"}, 1, 0), ({"owner": "a"}, {}, 0, 0),
        ({"layer": "x"}, {"layer": ""}, 0, 0), ({"owner": ""}, {"owner": "b"}, 0, 0),
        ({"attempt": 1}, {"attempt": 2}, 0, 0), ({"attempt": 1}, {"attempt": 1}, 0, 1), ({"attempt": 1}, {}, 0, 0),
        ({"attempt": None}, {"attempt": None}, 0, 0),
    ],
)  # fmt: skip
def test_all_attempts_of_a_step_are_of_one_owner_and_layer_and_no_number_comes_twice(
    tmp_path, first, second, several, twice
):
    rows = [call(at=0, **first), call(at=100, **second), call(200, run="r2", owner="z", layer="z", attempt=1)]
    told = found(tmp_path, rows)
    assert (told[SEVERAL], told[TWICE]) == ((several, 1), (twice, 1))


def test_the_layers_of_the_worst_step_are_named_and_counted(tmp_path):
    layers = [call(layer=layer, at=i * 100) for i, layer in enumerate(("b", "a", "b"))]
    said = verdict(tmp_path, layers, envelope={"retry_tokens": 1}).sentence
    assert said.startswith(
        "Step r1/b0.0: 3 attempts by 2 layers (b, a) where at most 2 are allowed (1 + 1 retry tokens)"
    )


def test_layers_are_named_where_they_differ_and_else_the_owners(tmp_path):
    layers = [call(owner=o, layer=w, at=i * 100) for i, (o, w) in enumerate((("b", "y"), ("a", "x")))]
    owners = [call(owner=o, layer="x", at=i * 100) for i, o in enumerate("ba")]
    assert "one owner (y, x)" in verdict(tmp_path / "layers", layers).sentence
    assert "one owner (a, b)" in verdict(tmp_path / "owners", owners).sentence


# --- whether at all

MISSED, AGAIN = "one failure, no retry", "repeated after success"


@pytest.mark.parametrize(
    ("arrivals", "decisions", "envelope", "missed"),
    [
        ([call()], [], ROOM, 1), ([call(200)], [], ROOM, 0), ([call(400)], [], ROOM, 0), ([call(0)], [], ROOM, 1),
        (attempts([503, 503]), [], ROOM, 0),
        ([call(operation="write")], [], ROOM, 0), ([call(operation="write", idempotency_key="k")], [], ROOM, 1),
        ([call(), call(200, 20, operation="readback")], [], ROOM, 0),
        # As near as a second to its deadline, or to an opening of its circuit, it need not be.
        ([call(deadline_ns=1009 * MS)], [], ROOM, 0), ([call(deadline_ns=1010 * MS)], [], ROOM, 1),
        ([call()], [circuit("opened", 1010)], ROOM, 0), ([call()], [circuit("opened", 1011)], ROOM, 1),
        ([call()], [circuit("opened", 2), circuit("closed", 9)], ROOM, 1),
        ([call()], [circuit("opened", 2), circuit("closed", 10)], ROOM, 0),
        ([call()], [circuit("opened", 2), circuit("half_open", 5)], ROOM, 0),
        ([call()], [circuit("opened", 2, "customer")], ROOM, 1),
        ([call(retry_after="1")], [], ROOM, 0),
        ([call()], [opened() | {"outcome": "cancelled"}], ROOM, 0),
        ([call()], [opened() | {"outcome": "failed"}], ROOM, 1),
        ([call()], [], ROOM | {"retry_tokens": 0}, 0), ([call()], [], ROOM | {"attempts": 1}, 0),
        ([call()], [], ROOM | {"budgets": {"billing": 1}}, 0), ([call()], [], ROOM | {"budgets": {"billing": 2}}, 1),
    ],
)  # fmt: skip
def test_one_failure_is_retried_where_it_may_be(tmp_path, arrivals, decisions, envelope, missed):
    assert found(tmp_path, arrivals, decisions, envelope=envelope)[MISSED] == (missed, 1)


@pytest.mark.parametrize("near", [{"deadline_ns": 1010 * MS}, {}])
def test_what_is_near_is_counted_in_time_in_which_the_stub_ran(tmp_path, near):
    decisions = [] if near else [circuit("opened", 1011)]
    assert found(tmp_path, [call(**near)], decisions, envelope=ROOM, spans=[(500, 501)])[MISSED] == (0, 1)


def test_without_decisions_it_is_not_known_whether_a_circuit_forbade_it(tmp_path):
    assert found(tmp_path, [call()], envelope=ROOM, telling=False)[MISSED] == (0, 0)


@pytest.mark.parametrize(
    ("statuses", "spans", "again"),
    [
        ([200], [], 0), ([503, 200], [], 0), ([200, 200], [], 1), ([503, 200, 503], [], 1), ([200, 503, 200], [], 1),
        # With a stall behind it, its caller may have seen no answer in time: nearly the second that it allows.
        ([200, 200], [(10, 950)], 0), ([200, 200], [(10, 949)], 1),
    ],
)  # fmt: skip
def test_what_has_succeeded_is_not_sent_again(tmp_path, statuses, spans, again):
    rows = [call(status, 2000 * i) for i, status in enumerate(statuses)]
    assert found(tmp_path, rows, spans=spans, capacity=ONE_DEPENDENCY)[AGAIN] == (again, 1)


# --- what must not be retried

FINAL, BLIND = "not retryable, retried", "without a key, repeated"


@pytest.mark.parametrize(
    ("statuses", "final"), [([400], (0, 1)), ([400, 200], (1, 1)), ([503, 400], (0, 0)), ([200], (0, 0))]
)
def test_what_no_retry_helps_has_one_attempt(tmp_path, statuses, final):
    assert found(tmp_path, attempts(statuses))[FINAL] == final


@pytest.mark.parametrize(
    ("made", "looked_up", "blind"),
    [
        ([100], [], 0), ([100, 130], [], 1), ([100, 130], [(115, 120)], 0),
        ([100, 130], [(100, 130)], 0), ([100, 130], [(99, 120)], 1), ([100, 130], [(115, 131)], 1),
        ([100, 130, 160], [(115, 120)], 1), ([100, 130, 160], [(145, 150)], 1),
        ([100, 130, 160], [(115, 120), (145, 150)], 0), ([100, 130], [(90, 95), (115, 120)], 0),
    ],
)  # fmt: skip
def test_a_write_without_a_key_is_repeated_only_after_a_look(tmp_path, made, looked_up, blind):
    rows = [call(at=at, operation="write") for at in made]
    rows += [call(200, begin, end - begin, operation="readback") for begin, end in looked_up]
    assert found(tmp_path, rows)[BLIND] == (blind, 1)


# --- circuits and bulkheads

INTO = "into an open circuit"


@pytest.mark.parametrize(
    ("retried_ms", "more", "spans", "into"),
    [
        (150, {}, [], 0), (151, {}, [], 1), (199, {}, [], 1), (200, {}, [], 0), (151, {"probe": True}, [], 0),
        (151, {}, [(120, 121)], 0), (152, {}, [(120, 121)], 1), (151, {"dependency": "customer"}, [], 0),
    ],
)  # fmt: skip
def test_no_retry_goes_into_a_circuit_that_was_open_for_longer_than_its_way(tmp_path, retried_ms, more, spans, into):
    """Open in [100, 200). First attempts are v08's, and those into another circuit none of this one's."""
    rows = [call(), call(at=retried_ms, **more), call(200, at=160, run="r2"), *attempts([503, 200], "r3", at=300)]
    told = found(tmp_path, rows, [circuit("opened", 100), circuit("half_open", 200)], spans=spans)
    assert told[INTO] == (into, 2)


def test_where_no_circuit_opened_there_is_nothing_to_say_of_it(tmp_path):
    assert INTO not in found(tmp_path, attempts([503, 200]), [circuit("closed", 10)])


@pytest.mark.parametrize(
    ("firsts", "retries", "broken"), [(4, 0, False), (3, 1, False), (4, 1, True), (0, 5, True), (5, 1, False)]
)
def test_retries_keep_the_limits_that_first_attempts_keep(tmp_path, firsts, retries, broken):
    """At 1,000 ms, where four reads may run. A limit that first attempts pass themselves is not this check's."""
    rows = [call(200, 1000, 100, run=f"f{i}") for i in range(firsts)]
    for i in range(retries):
        rows += [call(503, 100 * i, run=f"t{i}"), call(200, 1000, 100, run=f"t{i}")]
    told = verdict(tmp_path, rows, capacity=ONE_DEPENDENCY)
    assert any(f.quantity == "calls in flight, limit" and f.word is Word.FAIL for f in told.findings) is broken


# --- decided and paid before

UNDECIDED, UNPAID = "without a decision", "token not spent first"


@pytest.mark.parametrize(
    ("due_ms", "undecided"),
    [([100, 200], 0), ([100, 201], 1), ([101, 200], 1), ([50], 1), ([], 2), ([1, 2, 3], 0)],
)
def test_each_retry_was_decided_before_it_arrived(tmp_path, due_ms, undecided):
    """Retries at 100 and 200. Those of another step of the run, and of another run, are decided as they should be."""
    rows = [*attempts([503, 503, 200]), *attempts([503, 200], "r1", "b0.1"), *attempts([503, 200], "r2")]
    decided = [scheduled(at) for at in due_ms] + [scheduled(9, step="b0.1"), scheduled(100, run="r2")]
    assert found(tmp_path, rows, decided)[UNDECIDED] == (undecided, 4)


@pytest.mark.parametrize(
    ("left", "unpaid"),
    [([1], 0), ([2], 1), ([0], 0), ([None], 1), ([1, 0], 0), ([1, 1], 1), ([2, 0], 1), ([1, None], 1)],
)
def test_with_each_retry_a_token_is_gone(tmp_path, left, unpaid):
    """Of two."""
    decided = [scheduled(50 + i, tokens) for i, tokens in enumerate(left)]
    rows = attempts([503] * (len(left) + 1), at=0)
    assert found(tmp_path, rows, [opened(remaining_retry_tokens=9), *decided], envelope=ROOM)[UNPAID] == (unpaid, 1)


@pytest.mark.parametrize(
    ("given", "left", "unpaid"), [(1, 0, 0), (1, 1, 1), (None, 1, 0), (None, 2, 1), (0, 0, 1), (0, -1, 0)]
)
def test_a_sub_agent_has_the_tokens_that_it_was_opened_with(tmp_path, given, left, unpaid):
    """Its root has two."""
    runs = [opened("r1"), opened("r2", parent_run="r1", remaining_retry_tokens=given)]
    rows = [call(200), *attempts([503, 200], "r2")]
    assert found(tmp_path, rows, [*runs, scheduled(50, left, "r2")], envelope=ROOM)[UNPAID] == (unpaid, 1)


@pytest.mark.parametrize(("left", "unpaid"), [(1, 0), (2, 1)])
def test_a_sub_agent_whose_opening_is_not_told_has_what_its_root_asked_for(tmp_path, left, unpaid):
    ended = {"kind": "run", "outcome": "ended", "run": "r2", "parent_run": "r1", "t_ns": 900 * MS}
    assert found(tmp_path, [call(200)], [ended, scheduled(50, left, "r2")], envelope=ROOM)[UNPAID] == (unpaid, 1)


def test_a_retry_of_a_run_that_is_told_nowhere_else_hides_no_other(tmp_path):
    decided = [scheduled(50, 2, "elsewhere"), scheduled(50, 2, "r1")]
    assert found(tmp_path, attempts([503, 200]), decided, envelope=ROOM)[UNPAID] == (1, 2)
    assert found(tmp_path, attempts([503, 200]), decided)[UNPAID] == (0, 2)  # of how many, nobody knows


def test_where_nothing_is_told_nothing_is_decided(tmp_path):
    told = found(tmp_path, attempts([503, 200]), telling=False)
    assert not {UNDECIDED, UNPAID} & set(told)
    assert told["decided"] == (0, 0)


# --- how far apart

SPREAD, DELAYS = "spread of the first delay", "first delays at one dependency"


def delayed(*delays_ms, dependency="billing", name="r"):
    """A step each, that failed at once and came again after so long."""
    return [row for i, delay in enumerate(delays_ms) for row in
            (call(503, 1000 * i, 0, f"{name}{i}", dependency=dependency),
             call(200, 1000 * i + delay, 10, f"{name}{i}", dependency=dependency))]  # fmt: skip


@pytest.mark.parametrize(
    ("delays_ms", "spans", "spread", "judged"),
    [
        ([100, 150, 200], [], (2 / 3, 3), 3), ([100, 150], [], None, 2), ([100, 100, 100], [], (0, 3), 3),
        ([0, 0, 0], [], (0, 3), 3), ([*[100] * 11, 900], [], (0, 12), 12),  # one that lags makes no wave a spread
        # Those that no stall drew out, if there are three of them; else all, unless they come as one wave.
        ([100, 150, 200, 900], [(3100, 3800)], (2 / 3, 3), 3),
        ([100, 150, 400], [(2100, 2350)], (2, 3), 3),
        ([100, 101, 102], [(2000, 2050)], None, 2), ([100, 101, 102], [(0, 2999)], None, 0),
        ([100, 110, 120], [(2000, 2050)], None, 2), ([90, 100, 110], [(2000, 2050)], (0.2, 3), 3),
    ],
)  # fmt: skip
def test_first_delays_are_judged_where_there_are_enough_that_are_their_own(tmp_path, delays_ms, spans, spread, judged):
    told = found(tmp_path, delayed(*delays_ms), spans=spans)
    assert told.get(SPREAD) == (None if spread is None else (pytest.approx(spread[0]), spread[1]))
    assert told[DELAYS] == (judged, judged)


def test_each_dependency_has_its_own_delays_and_the_most_are_evidence(tmp_path):
    rows = [*delayed(50, 50, 50, 50, dependency="customer", name="b"), *delayed(100, 150, 200, name="a")]
    rows += [*delayed(1, 2, dependency="a_rare_one", name="c"), call(at=9000, run="d", dependency="customer")]
    told = verdict(tmp_path, rows, telling=False)
    spreads = [(f.subject, f.word, f.measured, f.samples) for f in told.findings if f.quantity == SPREAD]
    assert spreads == [("billing", Word.PASS, pytest.approx(2 / 3), 3), ("customer", Word.FAIL, 0, 4)]
    assert next(f.measured for f in told.findings if f.quantity == DELAYS) == 4
    assert set(told.witnesses) == {f"b{i}/b0.0" for i in range(4)}


@pytest.mark.parametrize(("last_ms", "word"), [(110, Word.PASS), (109, Word.FAIL)])
def test_a_spread_of_just_a_fifth_is_enough(tmp_path, last_ms, word):
    told = verdict(tmp_path, delayed(90, 100, last_ms))
    (finding,) = (f for f in told.findings if f.quantity == SPREAD)
    assert (finding.word, "nearly the same delay" in finding.note) == (word, word is Word.FAIL)


# --- how much there was to see


@pytest.mark.parametrize(
    ("rows", "seen"),
    [
        (attempts([503, 200]), {"failed once", "decided"}),
        (attempts([503, 503, 200]), {"failed twice", "decided"}),
        (attempts([503, 503]), {"failed for good", "decided"}),
        (attempts([400]), {"not retryable"}),
        (attempts([503], operation="write"), {"write without a key"}),
    ],
)
def test_each_kind_of_failure_is_counted_as_what_it_is(tmp_path, rows, seen):
    kinds = {"failed once", "failed twice", "failed for good", "not retryable", "write without a key", "decided"}
    told = found(tmp_path, rows, envelope=ROOM)
    assert {kind for kind in kinds if told[kind] == (1, 1)} == seen
    assert {kind for kind in kinds if told[kind] == (0, 0)} == kinds - seen


@pytest.mark.parametrize(
    ("limits", "steps", "tokens", "out"),
    [
        ({"retry_tokens": 0, "attempts": 9}, 1, 0, 0), ({"retry_tokens": 0, "attempts": 9}, 2, 1, 0),
        ({"retry_tokens": 1, "attempts": 9}, 2, 0, 0), ({"retry_tokens": 1, "attempts": 2}, 2, 0, 1),
    ],
)  # fmt: skip
def test_runs_that_ran_out_of_tokens_with_several_steps_or_of_attempts(tmp_path, limits, steps, tokens, out):
    told = found(tmp_path, [call(step=f"b0.{i}") for i in range(steps)], envelope=limits)
    assert (told["several steps, out of tokens"][0], told["out of attempts"][0]) == (tokens, out)


@pytest.mark.parametrize(
    ("at_once", "numbers", "capacity", "retries"),
    [
        (4, (1, 1, 2, 3), ONE_DEPENDENCY, 2), (4, (1, None, None, 1), ONE_DEPENDENCY, 0),
        (3, (1, 1, 2, 3), ONE_DEPENDENCY, 0), (4, (1, 1, 2, 3), None, 0),
    ],
)  # fmt: skip
def test_retries_at_a_full_bulkhead_are_counted(tmp_path, at_once, numbers, capacity, retries):
    """Of four reads; those of a bulkhead that was never full are not."""
    rows = [call(200, 0 if i < at_once else 500, 50, f"r{i}", attempt=n) for i, n in enumerate(numbers)]
    rows.append(call(200, 0, 50, "w", operation="write", attempt=2))
    assert found(tmp_path, rows, capacity=capacity)["retries at a full bulkhead"][0] == retries


@pytest.mark.parametrize(
    ("row", "opened_ms", "until_ms", "envelope", "kept"),
    [
        (call(), 5, 50, ROOM, 1), (call(200), 5, 50, ROOM, 0), (call(400), 5, 50, ROOM, 0),
        (call(), 1009, 2000, ROOM, 1), (call(), 1010, 2000, ROOM, 0), (call(), 5, 10, ROOM, 1), (call(), 5, 9, ROOM, 0),
        (call(), 5, 50, ROOM | {"retry_tokens": 0}, 0), (call(dependency="customer"), 5, 50, ROOM, 0),
        (call(operation="write"), 5, 50, ROOM, 0), (call(operation="write", idempotency_key="k"), 5, 50, ROOM, 1),
    ],
)  # fmt: skip
@pytest.mark.parametrize("ends", ["half_open", "closed"])
def test_what_an_open_circuit_kept_back_is_counted(tmp_path, row, opened_ms, until_ms, envelope, kept, ends):
    decisions = [circuit("opened", opened_ms), circuit(ends, until_ms)]
    assert found(tmp_path, [row], decisions, envelope=envelope)["kept from an open circuit"][0] == kept


def test_of_attempts_that_failed_the_last_tells_whether_it_was_kept_back(tmp_path):
    decisions = [circuit("opened", 105), circuit("half_open", 150)]
    seen = [found(tmp_path / f"{last}", attempts([503, last]), decisions, envelope=ROOM) for last in (503, 200)]
    assert [told["kept from an open circuit"][0] for told in seen] == [1, 0]


def test_what_is_asked_for_where_a_profile_says_nothing():
    assert Params().model_dump() == {
        "steps": 10, "runs": 5, "spread": 0.2, "delays": 20, "in_flight": 50 * MS, "settle": 1000 * MS,
    }  # fmt: skip


@pytest.mark.parametrize("spread", [-0.1, 2.1])
def test_a_spread_is_a_share_of_the_median(spread):
    assert [Params(spread=bound).spread for bound in (0, 2)] == [0, 2]
    with pytest.raises(ValidationError):
        Params(spread=spread)
