"""v05.one_retry_owner: attempts are counted where they arrive; each signature of a wrong owner fails."""

from __future__ import annotations

import pytest

from harness.checks.v05_retry_owner import NAME
from harness.checks.verdict import Word
from tests.unit.capacity_trials import each, failed, judged, open_questions, runs_of, without_runs


def judge(tmp_path, params=None, **edits):
    return judged("v05", NAME, tmp_path, params, **edits)


def doubled(rows, runs, layers):
    """Every attempt of these runs is sent once more by each layer, a millisecond later."""
    made = []
    for row in rows:
        made.append(row)
        if row["run"] in runs:
            made += [{**row, "layer": name, "t_ns": row["t_ns"] + 1_000_000 * i} for i, name in enumerate(layers, 1)]
    return made


def test_a_healthy_trial_passes_and_says_what_was_seen(tmp_path):
    verdict = judge(tmp_path)
    assert verdict.word is Word.PASS
    assert verdict.sentence == (
        "One failure led to exactly two attempts (36 steps), none to more than its tokens allow (56 persistent), each "
        "retry by one owner, paid before, jittered; 12 failures that must not be retried were not."
    )


def test_three_layers_are_named_with_the_attempts_that_they_make(tmp_path):
    runs = set(runs_of("v05", "for_good"))
    layers = ["sdk"] * 4 + ["gateway"] * 4
    verdict = judge(tmp_path, arrivals=lambda rows: doubled(rows, runs, layers))
    assert verdict.word is Word.FAIL
    first = sorted(runs, key=lambda run: int(run[1:]))[0]
    assert verdict.sentence.startswith(
        f"Step {first}/b0.0: 27 attempts by 3 layers (controller, sdk, gateway) where at most 3 are allowed "
        "(1 + 2 retry tokens); "
    )
    assert (verdict.measured, verdict.bound, verdict.unit) == (27, 3, "attempts")
    assert "retried by several owners" in failed(verdict)  # one owner is named, and three layers


def test_one_attempt_too_many_is_one_too_many(tmp_path):
    run = runs_of("v05", "for_good")[0]

    def more(rows):
        return [*rows, {**next(row for row in rows if row["run"] == run), "attempt": 9}]

    verdict = judge(tmp_path, arrivals=more)
    assert {"attempts of one step", "retries beyond the tokens"} <= failed(verdict)
    assert (verdict.measured, verdict.bound) == (4, 3)


def test_a_layer_that_hides_behind_the_same_attempt_is_seen(tmp_path):
    """Client and controller both retry, within the tokens, and the client copies every header."""
    runs = set(runs_of("v05", "once"))

    def twice(rows):
        made = []
        for row in rows:
            made.append(row)
            if row["run"] in runs and row["attempt"] == 1:
                made.append({**row, "t_ns": row["t_ns"] + 1_000_000, "ended_ns": row["ended_ns"] + 1_000_000})
        return made

    verdict = judge(tmp_path, arrivals=twice)
    assert {"attempts sent twice", "retries without a decision"} & failed(verdict) == {"attempts sent twice"}
    assert "somebody below the owner retries" in verdict.sentence


def test_two_owners_of_one_step_fail(tmp_path):
    runs = set(runs_of("v05", "twice"))
    verdict = judge(
        tmp_path,
        arrivals=lambda rows: each(rows, lambda r: r["run"] in runs and r["attempt"] == 2, owner="client"),
    )
    assert failed(verdict) == {"retried by several owners"}
    assert verdict.sentence == "24 steps were retried by more than one owner (client, controller)."


def test_retries_of_a_run_share_its_tokens(tmp_path):
    """Tokens refilled for each step: no step has too many attempts, the run has."""
    run = runs_of("v05", "in_turn")[0]

    def more(rows):
        last = next(row for row in reversed(rows) if row["run"] == run)
        return [*rows, {**last, "attempt": 2, "t_ns": last["t_ns"] + 5, "ended_ns": last["ended_ns"] + 5}]

    verdict = judge(tmp_path, arrivals=more)
    assert {"retries beyond the tokens", "without a decision"} <= failed(verdict)
    assert run in verdict.witnesses


def test_a_token_that_is_spent_late_fails(tmp_path):
    def late(rows):
        each(
            rows,
            lambda r: r["kind"] == "retry" and r["outcome"] == "scheduled",
            remaining_retry_tokens=lambda r: r["remaining_retry_tokens"] + 1,
        )

    verdict = judge(tmp_path, decisions=late)
    assert failed(verdict) == {"token not spent first"}
    assert verdict.sentence.endswith("runs a retry was scheduled before its token was spent.")


@pytest.mark.parametrize(
    ("group", "quantity"), [("bad_request", "not retryable, retried"), ("no_key", "without a key, repeated")]
)
def test_what_must_not_be_retried_fails_if_it_is(tmp_path, group, quantity):
    runs = set(runs_of("v05", group))

    def again(rows):
        return rows + [{**r, "attempt": 2, "t_ns": r["ended_ns"] + 10**8} for r in rows if r["run"] in runs]

    assert quantity in failed(judge(tmp_path, arrivals=again))


def test_a_write_that_was_looked_up_between_its_attempts_is_not_blindly_repeated(tmp_path):
    runs = set(runs_of("v05", "no_key"))

    def looked_up(rows):
        made = list(rows)
        for row in rows:
            if row["run"] in runs:
                end = row["ended_ns"]
                made.append({**row, "operation": "readback", "readback": True, "t_ns": end + 5, "ended_ns": end + 10})
                made.append({**row, "attempt": 2, "t_ns": end + 20, "ended_ns": end + 30})
        return made

    assert "without a key, repeated" not in failed(judge(tmp_path, arrivals=looked_up))


def test_one_failure_without_a_retry_fails(tmp_path):
    run = runs_of("v05", "once")[0]
    verdict = judge(
        tmp_path,
        arrivals=lambda rows: [r for r in rows if not (r["run"] == run and r["attempt"] == 2)],
        decisions=lambda rows: [r for r in rows if not (r.get("run") == run and r["kind"] == "retry")],
    )
    assert (failed(verdict), verdict.witnesses) == ({"one failure, no retry"}, (f"{run}/b0.0",))


def test_a_retry_that_nobody_decided_fails(tmp_path):
    run = runs_of("v05", "once")[0]
    verdict = judge(
        tmp_path, decisions=lambda rows: [r for r in rows if not (r.get("run") == run and r["kind"] == "retry")]
    )
    assert failed(verdict) == {"without a decision"}


def test_a_retry_that_was_decided_only_afterwards_was_not_decided(tmp_path):
    run = runs_of("v05", "once")[0]

    def later(rows):
        each(rows, lambda r: r.get("run") == run and r["kind"] == "retry", t_ns=lambda r: r["t_ns"] + 10**9)

    verdict = judge(tmp_path, decisions=later)
    assert (failed(verdict), verdict.witnesses) == ({"without a decision"}, (f"{run}/b0.0",))


def test_a_retry_into_an_open_circuit_fails_and_one_on_its_way_does_not(tmp_path):
    runs = set(runs_of("v05", "shaky"))

    def into(delay_ns):
        def edit(rows):
            opened = 1_050_000_000  # the runs begin at 1 s and fail after 50 ms
            mine = [r for r in rows if r["run"] in runs]
            return rows + [
                {**r, "attempt": 2, "t_ns": opened + delay_ns, "ended_ns": opened + delay_ns + 1} for r in mine
            ]

        return edit

    assert "into an open circuit" in failed(judge(tmp_path / "late", arrivals=into(200_000_000)))
    assert "into an open circuit" not in failed(judge(tmp_path / "at_once", arrivals=into(20_000_000)))


def test_equal_delays_are_a_wave(tmp_path):
    runs = set(runs_of("v05", "once"))

    def in_step(rows):
        each(rows, lambda r: r["run"] in runs and r["attempt"] == 2, t_ns=300_000_000, ended_ns=350_000_000)

    verdict = judge(tmp_path, arrivals=in_step)
    assert failed(verdict) == {"spread of the first delay"}
    assert verdict.sentence == (
        "Once: 24 first retries came after nearly the same delay (spread 0.00, at least 0.2): no jitter, so they come "
        "as one wave."
    )


def test_a_retry_past_a_full_bulkhead_fails(tmp_path):
    runs = runs_of("v05", "crowded")

    def crowd(rows):
        each(rows, lambda r: r["run"] in runs and r["attempt"] == 2, ended_ns=lambda r: r["ended_ns"] + 60_000_000)

    assert "calls in flight, limit" in failed(judge(tmp_path, arrivals=crowd))


def test_more_attempts_than_the_envelope_has_fail(tmp_path):
    run = runs_of("v05", "two_attempts")[0]

    def third(rows):
        last = next(row for row in reversed(rows) if row["run"] == run)
        return [*rows, {**last, "attempt": 3, "t_ns": last["t_ns"] + 10**8, "ended_ns": last["ended_ns"] + 10**8}]

    assert "attempts beyond the envelope" in failed(judge(tmp_path, arrivals=third))


@pytest.mark.parametrize(
    ("groups", "part"),
    [
        (("twice",), "failed twice"),
        (("bad_request",), "not retryable"),
        (("no_key",), "write without a key"),
        (("two_attempts",), "out of attempts"),
        (("together", "in_turn"), "several steps, out of tokens"),
        (("shaky",), "kept from an open circuit"),
    ],
)
def test_a_kind_of_failure_that_was_not_seen_is_inconclusive_and_named(tmp_path, groups, part):
    verdict = judge(tmp_path, **without_runs(runs_of("v05", *groups)))
    assert (verdict.word, part in open_questions(verdict)) == (Word.INCONCLUSIVE, True)
    assert part in verdict.sentence
    assert verdict.add


# --- each rule by itself, from both sides of its bound


def unretried(tmp_path, deadline_ms=None, decisions=lambda rows: rows, **more):
    """The first of the runs that fail once is not retried. deadline_ms: after its failure; more: of that arrival."""
    run = runs_of("v05", "once")[0]

    def alone(rows):
        kept = [row for row in rows if not (row["run"] == run and row["attempt"] == 2)]
        each(kept, lambda row: row["run"] == run, **more)
        if deadline_ms is not None:
            each(kept, lambda row: row["run"] == run, deadline_ns=lambda row: row["ended_ns"] + deadline_ms * 10**6)
        return kept

    def untold(rows):
        kept = [row for row in rows if not (row.get("run") == run and row["kind"] == "retry")]
        return decisions(kept) or kept

    return judge(tmp_path, arrivals=alone, decisions=untold)


MISSED = "one failure, no retry"


@pytest.mark.parametrize(("deadline_ms", "missed"), [(999, False), (1000, True)])
def test_a_failure_a_second_before_its_deadline_need_not_be_retried(tmp_path, deadline_ms, missed):
    assert (MISSED in failed(unretried(tmp_path, deadline_ms))) is missed


def test_a_failure_that_says_when_to_come_back_is_not_this_checks(tmp_path):
    assert failed(unretried(tmp_path, retry_after="1")) == set()


def test_a_run_that_was_cancelled_need_not_retry(tmp_path):
    run = runs_of("v05", "once")[0]

    def cancelled(rows):
        each(rows, lambda r: r["kind"] == "run" and r["run"] == run and r["outcome"] != "opened", outcome="cancelled")

    assert failed(unretried(tmp_path, decisions=cancelled)) == set()


def test_without_decisions_a_missing_retry_cannot_be_told(tmp_path):
    verdict = judge(
        tmp_path,
        decisions=None,
        arrivals=lambda rows: [r for r in rows if not (r["attempt"] == 2 and r["dependency"] == "once")],
    )
    assert MISSED not in failed(verdict)
    assert {MISSED, "decided"} <= open_questions(verdict)


def test_what_had_succeeded_is_not_sent_again(tmp_path):
    def again(rows):
        done = next(row for row in rows if row["status"] == 200)
        return [
            *rows,
            {**done, "attempt": 3, "t_ns": done["ended_ns"] + 10**8, "ended_ns": done["ended_ns"] + 2 * 10**8},
        ]

    assert "repeated after success" in failed(judge(tmp_path, arrivals=again))


def test_of_steps_with_too_many_attempts_the_worst_is_named(tmp_path):
    runs = runs_of("v05", "for_good")[:3]
    extra = dict(zip(runs, (2, 5, 3), strict=True))

    def more(rows):
        made = list(rows)
        for run, n in extra.items():
            row = next(r for r in rows if r["run"] == run)
            made += [{**row, "attempt": 9 + i, "t_ns": row["t_ns"] + i} for i in range(n)]
        return made

    verdict = judge(tmp_path, arrivals=more)
    assert verdict.sentence.startswith(f"Step {runs[1]}/b0.0: 8 attempts by controller where at most 3 are allowed")
    assert (verdict.measured, verdict.bound) == (8, 3)


@pytest.mark.parametrize(("last_ms", "word"), [(110, Word.PASS), (109, Word.FAIL)])
def test_first_delays_have_to_spread_by_a_fifth_of_their_median(tmp_path, last_ms, word):
    """24 delays: the 3rd, the 12th and the 22nd are p10, median and p90."""
    runs = runs_of("v05", "once")
    delays = dict(zip(runs, [90] * 3 + [100] * 18 + [last_ms] * 3, strict=True))

    def set_apart(rows):
        ended = {row["run"]: row["ended_ns"] for row in rows if row["run"] in delays and row["attempt"] == 1}
        at = lambda row: ended[row["run"]] + delays[row["run"]] * 10**6  # noqa: E731
        each(rows, lambda r: r["run"] in delays and r["attempt"] == 2, t_ns=at, ended_ns=lambda row: at(row) + 10**6)

    def earlier(rows):
        each(rows, lambda r: r.get("run") in delays and r["kind"] == "retry", t_ns=lambda r: r["t_ns"] - 10**9)

    verdict = judge(tmp_path, arrivals=set_apart, decisions=earlier)
    finding = next(f for f in verdict.findings if f.subject == "once" and f.quantity == "spread of the first delay")
    assert (finding.word, finding.measured) == (word, pytest.approx(last_ms / 100 - 0.9))


def test_withheld_arrivals_are_inconclusive(tmp_path):
    verdict = judge(tmp_path, arrivals=None)
    assert verdict.word is Word.INCONCLUSIVE
    assert "--dependencies-only" in verdict.add
