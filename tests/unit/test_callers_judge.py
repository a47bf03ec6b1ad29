"""Every behaviour that a caller check is about, as arrivals: the defect must FAIL, its healthy twin must PASS."""

from __future__ import annotations

from random import Random

import orjson
import pytest

from harness.callers import calls
from harness.callers.calls import calls_of
from harness.callers.judge import CHECKS, judge, known
from harness.callers.layers import layers_of, rhythm
from harness.callers.log import MOST_LINE_CHARS, read_log
from harness.callers.parameters import Params
from harness.callers.table import rows_of
from harness.checks.verdict import Word
from harness.errors import BadInput
from tests.unit.callers_logs import DATE, Arrivals, instants

SDK = [{"retry_count": str(n)} for n in range(3)]


def counted(arrivals: Arrivals, starts_s, **more) -> Arrivals:
    for number, start in enumerate(starts_s):
        arrivals.at(start, said={**SDK[number % 3], **more.get("said", {})}, body=more.get("body", "b"))
    return arrivals


# --- one owner


def test_two_layers_are_seen_by_counts_that_begin_again():
    verdict = counted(Arrivals(), instants(0.5, 1, 0.7, 0.5, 1, 0.7, 0.5, 1)).judge("one_owner")
    assert verdict.word is Word.FAIL
    assert "3 runs of up to 3 attempts" in verdict.sentence
    assert verdict.witnesses == ("a1",)


def test_two_layers_under_one_key_are_two_layers_still():
    verdict = counted(Arrivals(), instants(0.5, 1, 0.7, 0.5, 1, 0.7, 0.5, 1), said={"key": "k"}).judge("one_owner")
    assert verdict.word is Word.FAIL


def test_one_layer_that_counts_passes():
    verdict = counted(Arrivals(), instants(0.5, 1)).judge("one_owner")
    assert verdict.word is Word.PASS
    assert "one layer retries, with up to 3 attempts" in verdict.sentence


def test_an_outer_layer_over_an_sdk_that_never_retries_is_one_owner():
    arrivals = Arrivals().each(instants(0.5, 1), said={"retry_count": "0"})
    assert arrivals.judge("one_owner").word is Word.PASS


def test_botocore_is_counted_by_its_invocation():
    arrivals = Arrivals()
    for number, start in enumerate(instants(0.1, 0.2, 3, 0.1, 0.2)):
        run, attempt = divmod(number, 3)
        arrivals.at(start, said={"invocation": f"i{run}", "sdk_request": f"attempt={attempt + 1}; max=3"})
    assert arrivals.judge("one_owner").word is Word.FAIL


def test_two_layers_without_headers_are_seen_by_their_rhythm():
    verdict = Arrivals().each(instants(0, 0.3, 1.5, 0.01, 0.31, 1.52, 0, 0.3)).judge("one_owner")
    assert verdict.word is Word.FAIL
    assert "inferred from the delays" in verdict.sentence


def test_one_rhythm_in_one_short_call_is_a_suspicion_and_in_three_a_proof():
    arrivals = Arrivals().each(instants(0.1, 2, 0.1))
    verdict = arrivals.judge("one_owner")
    assert verdict.word is Word.INCONCLUSIVE
    assert "more calls" in verdict.add
    for number in (1, 2):
        arrivals.each([20 * number + t for t in instants(0.1, 2, 0.1)], body=f"c{number}")
    assert arrivals.judge("one_owner").word is Word.FAIL


@pytest.mark.parametrize("gaps", [(0.5, 1, 2, 4, 8), (1, 1, 1, 1, 1), (0.5, 1, 2, 2, 2), (0.9, 0.2, 2.9, 3.1, 0.7)])
def test_one_layer_has_no_rhythm(gaps):
    assert rhythm([round(gap * 1e9) for gap in gaps]) is None


def test_without_a_failure_that_lasts_nothing_is_proved():
    verdict = Arrivals().at(1).served(2).judge("one_owner")
    assert verdict.word is Word.INCONCLUSIVE
    assert "--scenario down" in verdict.add


def test_a_key_for_each_run_is_a_layer_above():
    arrivals = Arrivals()
    for number, start in enumerate(instants(0.9, 0.2, 1.1, 0.3, 0.7)):
        arrivals.at(start, said={"key": f"k{number // 3}"})
    verdict = arrivals.judge("one_owner")
    assert verdict.word is Word.FAIL
    assert "2 runs of up to 3 attempts, each run under a key of its own" in verdict.sentence


@pytest.mark.parametrize(("name", "form"), [("attempt", "3.7.{}"), ("attempt", "{}"), ("envoy_attempt", "{}")])
def test_any_header_that_counts_from_one_tells_layers(name, form):
    def sent(runs: int) -> Word:
        arrivals = Arrivals()
        for number, start in enumerate(instants(0.9, 0.2, 1.1, 0.3, 0.7)):
            arrivals.at(start, said={name: form.format(number % (6 // runs) + 1)})
        return arrivals.judge("one_owner").word

    assert (sent(1), sent(2)) == (Word.PASS, Word.FAIL)


def retried(calls: int, delays) -> Arrivals:
    """Calls that fail for good, one a minute, each with its own delays."""
    arrivals = Arrivals()
    for call in range(calls):
        arrivals.each([call * 60 + start for start in instants(*delays(call))], body=f"b{call}")
    return arrivals


def full_jitter(attempts: int, seed: int):
    rng = Random(seed)
    return lambda call: [rng.random() * 0.5 * 2**n for n in range(attempts - 1)]


def layered_jitter(inner: int, outer: int, seed: int):
    rng = Random(seed)

    def delays(call: int) -> list[float]:
        found: list[float] = []
        for run in range(outer):
            found += [2 + rng.random() * 2] if run else []
            found += [rng.random() * 0.5 * 2**n for n in range(inner - 1)]
        return found

    return delays


def test_few_attempts_without_headers_are_one_layer_whatever_the_delays():
    assert retried(1, lambda call: [0.9, 0.2]).judge("one_owner").word is Word.PASS


def test_jittered_layers_without_headers_are_not_passed_and_many_calls_tell():
    assert retried(1, layered_jitter(3, 3, 1)).judge("one_owner").word is not Word.PASS
    verdict = retried(1, layered_jitter(3, 3, 2)).judge("one_owner")
    assert verdict.word is Word.INCONCLUSIVE
    assert "Overload-Attempt" in verdict.add
    verdict = retried(20, layered_jitter(3, 3, 3)).judge("one_owner")
    assert verdict.word is Word.FAIL
    assert "inferred from the delays" in verdict.sentence


def test_one_jittered_layer_is_not_convicted_and_many_calls_acquit_it():
    assert retried(2, full_jitter(6, 1)).judge("one_owner").word is not Word.FAIL
    assert retried(25, full_jitter(6, 2)).judge("one_owner").word is Word.PASS
    for seed in range(20):
        assert retried(12, full_jitter(4 + seed % 6, seed)).judge("one_owner").word is not Word.FAIL


def test_delays_that_only_grow_are_one_layer_and_equal_ones_cannot_tell():
    assert retried(1, lambda call: [0.5, 1, 2, 4]).judge("one_owner").word is Word.PASS
    assert retried(1, lambda call: [0.5, 1, 2]).judge("one_owner").word is Word.INCONCLUSIVE
    assert retried(2, lambda call: [0.5, 1, 2]).judge("one_owner").word is Word.PASS
    assert retried(9, lambda call: [1, 1, 1, 1, 1]).judge("one_owner").word is Word.INCONCLUSIVE
    assert retried(30, lambda call: [1, 5, 2, 10, 3]).judge("one_owner").word is not Word.FAIL


def test_a_caller_that_was_stopped_may_have_had_more_to_come():
    thin = Arrivals(ended_ns=3 * 10**9).each(instants(0.5, 1)).judge("one_owner")
    assert thin.word is Word.INCONCLUSIVE
    noted = Arrivals(ended_ns=30 * 10**9).each(instants(0.5, 1)).judge("one_owner")
    assert noted.word is Word.PASS
    assert any("was not seen" in finding.note for finding in noted.findings)


# --- calls of one body side by side


def crowd(workers: int, told=lambda worker: {}, lasts: int = 3, apart_s: float = 0.01) -> Arrivals:
    """Each tries three times; all at once, with the same body."""
    arrivals = Arrivals()
    rng = Random(5)
    starts = []
    for worker in range(workers):
        at = worker * apart_s
        for _ in range(lasts):
            starts.append((at, worker))
            at += 0.05 + 0.2 + rng.random()
    for at, worker in sorted(starts):
        arrivals.at(at, took_s=0.05, said=told(worker))
    return arrivals


@pytest.mark.parametrize("check", ["one_owner", "attempts_bounded", "amplification", "backs_off", "jittered"])
def test_attempts_of_calls_that_cannot_be_told_apart_prove_nothing(check):
    assert crowd(10).judge(check).word is Word.INCONCLUSIVE


def test_what_is_missing_is_said_of_calls_that_cannot_be_told_apart():
    arrivals = crowd(10)
    arrivals.manifest.update(ended_ns=10**12, judges=["caller.one_owner"])
    (verdict,) = judge("x", arrivals.log(), Params(), ["caller.one_owner"]).verdicts
    assert "30 arrivals are of calls with one body side by side" in verdict.add


def test_a_key_or_a_call_header_tells_them_apart():
    for name in ("key", "call"):
        arrivals = crowd(10, told=lambda worker, name=name: {name: f"k{worker}"})
        assert arrivals.judge("attempts_bounded").word is Word.PASS
        assert arrivals.judge("backs_off").word is Word.PASS
    assert crowd(10, told=lambda worker: {"key": f"k{worker}"}, lasts=5).judge("attempts_bounded").word is Word.FAIL


def test_two_that_take_turns_over_connections_of_their_own_are_side_by_side():
    arrivals = Arrivals()
    for number in range(6):
        arrivals.at(1 + number * 0.4, took_s=0.05, connection=5000 + number % 2)
    assert arrivals.judge("attempts_bounded").word is Word.INCONCLUSIVE
    one = Arrivals()
    for number in range(6):
        one.at(1 + number * 0.4, took_s=0.05, connection=5000 + number // 3)  # closed, and opened anew
    assert one.judge("attempts_bounded").word is Word.FAIL


def test_calls_side_by_side_that_nothing_follows_are_each_a_call():
    arrivals = crowd(10, lasts=1, apart_s=0.001)
    assert arrivals.judge("attempts_bounded").word is Word.PASS
    assert arrivals.judge("amplification").word is Word.PASS


def test_a_caller_that_hung_up_and_tries_again_is_not_two():
    arrivals = Arrivals().at(1, "hang", took_s=5.01, hung_up=True).served(6)
    assert not any(call.crowded for call in calls_of(arrivals.log().arrivals, 60 * 10**9))


# --- attempts, amplification, budget, final answers


def test_attempts_over_the_bound_fail_with_the_worst_first():
    arrivals = Arrivals().each(instants(1, 1, 1), body="x").each([30 + t for t in instants(1, 1, 1, 1)], body="y")
    verdict = arrivals.judge("attempts_bounded")
    assert (verdict.word, verdict.witnesses) == (Word.FAIL, ("a5", "a1"))
    assert arrivals.judge("attempts_bounded", attempts=5).word is Word.PASS


def test_parallel_calls_of_one_body_are_not_attempts_of_one_call():
    arrivals = Arrivals()
    for number in range(8):
        arrivals.at(1 + number / 1000, took_s=0.5)
    assert len(calls_of(arrivals.log().arrivals, 60 * 10**9)) == 8
    assert arrivals.judge("attempts_bounded").word is Word.PASS


def test_a_steady_poll_is_not_a_retry():
    arrivals = Arrivals()
    for second in range(1, 20):
        arrivals.at(second) if 8 <= second < 14 else arrivals.served(second)
    assert arrivals.judge("attempts_bounded").word is Word.PASS


def test_a_served_call_made_again_is_another_call():
    arrivals = Arrivals().served(1).served(2)
    assert len(calls_of(arrivals.log().arrivals, 60 * 10**9)) == 2


def test_amplification():
    assert Arrivals().each(instants(1, 1, 1)).judge("amplification").word is Word.FAIL
    assert Arrivals().each(instants(1, 1)).judge("amplification").word is Word.PASS


def budget_calls(retried: int, calls: int = 100) -> Arrivals:
    arrivals = Arrivals("brownout")
    for number in range(calls):
        failing = number < max(retried, 20)
        arrivals.at(number, body=f"b{number}") if failing else arrivals.served(number, body=f"b{number}")
        if number < retried:
            arrivals.served(number + 0.5, body=f"b{number}")
    return arrivals


def test_retry_budget():
    assert budget_calls(40).judge("retry_budget").word is Word.FAIL
    assert budget_calls(10).judge("retry_budget").word is Word.PASS
    assert budget_calls(8, 20).judge("retry_budget").word is Word.INCONCLUSIVE


@pytest.mark.parametrize(
    ("status", "more"),
    [
        (400, {}),
        (401, {}),
        (422, {}),
        (429, {"told": {"x-should-retry": "false"}}),
        (429, {"code": "insufficient_quota"}),
    ],
)
def test_what_cannot_succeed_is_not_repeated(status, more):
    once = Arrivals().at(1, "failed", status, **more)
    assert once.judge("non_retryable").word is Word.PASS
    assert once.at(2, "failed", status, **more).judge("non_retryable").word is Word.FAIL


def test_another_request_after_a_400_is_no_retry_of_it():
    arrivals = Arrivals().at(1, "failed", 400).served(2, body="corrected")
    assert arrivals.judge("non_retryable").word is Word.PASS


# --- waits

AHEAD = "Sun, 06 Nov 1994 08:49:40 GMT"  # three seconds after DATE


@pytest.mark.parametrize(
    ("header", "told", "waited_s", "word"),
    [
        ("2", {}, 2.0, Word.PASS),
        ("2", {}, 1.9, Word.FAIL),
        ("1.5", {}, 1.5, Word.PASS),
        ("1.5", {}, 1.0, Word.FAIL),
        (AHEAD, {}, 2.0, Word.PASS),  # within the grain of a second
        (AHEAD, {}, 1.9, Word.FAIL),
        ("Sunday, 06-Nov-94 08:49:40 GMT", {}, 1.9, Word.FAIL),
        ("Sun Nov  6 08:49:40 1994", {}, 1.9, Word.FAIL),
        ("600", {"retry-after-ms": "250"}, 0.25, Word.PASS),
        ("600", {"retry-after-ms": "250"}, 0.1, Word.FAIL),
        ("2", {"retry-after-ms": "-5"}, 0.5, Word.FAIL),
        ("600", {}, 30, Word.FAIL),
    ],
)
def test_retry_after_is_kept(header, told, waited_s, word):
    arrivals = Arrivals().refused(1, header, told=told).served(1.002 + waited_s)
    assert arrivals.judge("retry_after_kept").word is word


def test_a_refusal_that_is_not_retried_is_kept_and_one_watched_too_shortly_is_not_evidence():
    assert Arrivals().refused(1, "2").judge("retry_after_kept").word is Word.PASS
    assert Arrivals(ended_ns=2 * 10**9).refused(1, "60").judge("retry_after_kept").word is Word.INCONCLUSIVE
    left = {"words": ["x"], "exit_code": 0, "ended_ns": 2 * 10**9}
    assert Arrivals(ended_ns=2 * 10**9, command=left).refused(1, "60").judge("retry_after_kept").word is Word.PASS


@pytest.mark.parametrize("header", ["0", "-10", "nan", "abc", "20, 30", "1696004817", "1_000", DATE, None])
def test_nothing_usable_owes_a_backoff(header):
    assert Arrivals().refused(1, header).served(1.005).judge("backs_off").word is Word.FAIL
    assert Arrivals().refused(1, header).served(1.5).judge("backs_off").word is Word.PASS
    assert Arrivals().refused(1, header).served(1.5).judge("retry_after_kept").word is Word.INCONCLUSIVE


def test_full_jitter_is_a_backoff_and_a_hot_loop_is_not():
    def words(seeds: int, pause) -> set[Word]:
        found = set()
        for seed in range(seeds):
            rng = Random(seed)
            found.add(retried(6, lambda call, rng=rng: [pause(rng, n) for n in range(3)]).judge("backs_off").word)
        return found

    assert words(20, lambda rng, n: rng.random() * 0.2 * 2**n) == {Word.PASS}
    assert words(3, lambda rng, n: 0.001 + rng.random() * 0.004) == {Word.FAIL}
    assert words(3, lambda rng, n: 0.0005 if n == 0 else 1.0) == {Word.FAIL}  # the first one always at once
    short = retried(1, lambda call: [0.03, 0.5]).judge("backs_off")
    assert short.word is Word.INCONCLUSIVE
    assert "--scenario down" in short.add


def test_one_attempt_at_once_after_a_reset_is_right():
    assert Arrivals().at(1, "reset").served(1.003).judge("backs_off").word is Word.INCONCLUSIVE


def wave(delays) -> Arrivals:
    arrivals = Arrivals("wave")
    for number, delay in enumerate(delays):
        arrivals.at(1, body=f"b{number}").served(1.002 + delay, body=f"b{number}")
    return arrivals


def test_jitter():
    assert wave([0.5 + n / 5000 for n in range(20)]).judge("jittered").word is Word.FAIL
    assert wave([0.4 + n / 200 for n in range(20)]).judge("jittered").word is Word.PASS
    assert wave([n / 1000 for n in range(20)]).judge("jittered").word is Word.FAIL  # at once: the machine's own spread
    assert wave([0.5 + n / 500 for n in range(20)]).judge("jittered").word is Word.INCONCLUSIVE
    assert wave([0.5] * 5).judge("jittered").word is Word.INCONCLUSIVE


# --- writes


def doubtful(first: dict, second: dict, answer: str = "reset", **more) -> Arrivals:
    return Arrivals().at(1, answer, 500, said=first, effect=1, **more).served(2, said=second, **more)


@pytest.mark.parametrize("answer", ["reset", "hang", "failed"])
def test_a_write_in_doubt(answer):
    assert doubtful({}, {}, answer).judge("idempotent").word is Word.FAIL
    assert doubtful({"key": "k1"}, {"key": "k2"}, answer).judge("idempotent").word is Word.FAIL
    assert doubtful({"key": "k1"}, {"key": "k1"}, answer).judge("idempotent").word is Word.PASS
    assert doubtful({}, {}, answer, token=True).judge("idempotent").word is Word.PASS
    assert Arrivals().at(1, answer, 500).judge("idempotent").word is Word.PASS  # left alone


@pytest.mark.parametrize("nature", ["read", "repeatable"])
def test_what_may_be_repeated_is(nature):
    verdict = doubtful({}, {}, nature=nature).judge("idempotent")
    assert verdict.word is Word.INCONCLUSIVE


def test_a_refused_write_was_not_done():
    verdict = Arrivals().refused(1, "1").served(2.1).judge("idempotent")
    assert verdict.word is Word.INCONCLUSIVE


def test_a_hang_up_leaves_the_write_in_doubt():
    arrivals = Arrivals().served(1, hung_up=True, effect=1).served(2, effect=2)
    verdict = arrivals.judge("idempotent")
    assert verdict.word is Word.FAIL
    assert "2 effects" in verdict.sentence


def test_a_new_plan_for_the_same_write_under_a_new_key():
    arrivals = Arrivals().each(instants(0.5, 1), answer="hang", said={"key": "k1"})
    arrivals.served(20, said={"key": "k2"})
    assert arrivals.judge("idempotent").word is Word.FAIL


def test_a_read_back_before_the_repeat_is_right():
    arrivals = Arrivals().at(1, "reset", said={"key": "k1"})
    arrivals.at(
        1.5, "served", 404, form="readback", method="GET", body="", nature="read", said={"key": "k1"}, committed=False
    )
    assert arrivals.served(2, said={"key": "k2"}).judge("idempotent").word is Word.PASS


# --- the caller as a whole


def replanning(told: bool, children: int) -> Arrivals:
    arrivals = Arrivals()
    for number in range(10):
        start = number * 20
        arrivals.at(start, body=f"o{number}", said={"round": "0"} if told else {})
        for child in range(children):
            said = {"round": "1"} if told else {}
            arrivals.at(start + 1 + child / 10, body=f"r{number}.{child}", said=said)
    return arrivals


def test_replans_by_header_are_exact_and_by_time_only_acquit():
    assert replanning(True, 3).judge("replan_share").word is Word.FAIL
    verdict = replanning(False, 3).judge("replan_share")
    assert verdict.word is Word.INCONCLUSIVE
    assert "Overload-Round" in verdict.add
    assert replanning(False, 0).judge("replan_share").word is Word.PASS
    assert replanning(True, 0).judge("replan_share").word is Word.PASS


def test_rounds_are_capped_where_they_are_told():
    arrivals = replanning(True, 0)
    for depth in range(1, 6):
        arrivals.at(500 + depth, body=f"d{depth}", said={"round": str(depth)})
    verdict = arrivals.judge("replan_share")
    assert verdict.word is Word.FAIL
    assert "round 5" in verdict.sentence


OUTAGE = [{"from_ns": 2 * 10**9, "to_ns": 5 * 10**9, "every": 1, "probes": 0}]


def outage(burst: int) -> Arrivals:
    arrivals = Arrivals("outage", windows=OUTAGE)
    for number in range(80):
        start = number / 10
        arrivals.at(start, body=f"b{number}") if 2 <= start < 5 else arrivals.served(start, body=f"b{number}")
    for number in range(burst):
        arrivals.served(5.5 + number / 1000, body=f"w{number}")
    return arrivals


def test_a_storm_after_an_outage():
    assert outage(40).judge("no_storm").word is Word.FAIL
    assert outage(0).judge("no_storm").word is Word.PASS
    assert outage(6).judge("no_storm").word is Word.PASS
    assert Arrivals("outage", windows=OUTAGE).each([1, 2.5, 3]).judge("no_storm").word is Word.INCONCLUSIVE


def half_open(turned_away: int) -> Arrivals:
    windows = [{"from_ns": 0, "to_ns": 10**9, "probes": 0}, {"from_ns": 10**9, "to_ns": 10**12, "probes": 2}]
    arrivals = Arrivals("half_open", windows=windows)
    for number in range(5):
        arrivals.at(0.1, body=f"b{number}", window=0)
    for number in range(2):
        arrivals.served(2, body=f"b{number}", window=1)
    for number in range(turned_away):
        arrivals.at(2.01, body=f"b{number + 2}", window=1)
    return arrivals


def test_half_open():
    assert half_open(3).judge("half_open").word is Word.FAIL
    assert half_open(0).judge("half_open").word is Word.PASS
    assert Arrivals().at(1).judge("half_open").word is Word.INCONCLUSIVE


# --- the frame


def test_what_a_scenario_asks_for_is_judged_and_the_rest_is_listed():
    log = Arrivals(judges=["caller.jittered", "caller.one_owner", "caller.unknown"], ended_ns=9).at(1).log()
    judged = judge("x", log, Params())
    words = {verdict.check: verdict.word for verdict in judged.verdicts}
    assert words["caller.jittered"] is Word.INCONCLUSIVE
    assert "caller.half_open" in {verdict.check for verdict in judged.not_judged}
    assert set(words) | {verdict.check for verdict in judged.not_judged} == set(CHECKS)
    assert [v.check for v in judge("x", log, Params(), ["caller.half_open"]).verdicts] == ["caller.half_open"]


def test_nothing_that_arrived_is_never_a_pass():
    judged = judge("x", Arrivals(judges=["caller.one_owner"], ended_ns=9).log(), Params())
    assert [verdict.word for verdict in judged.verdicts] == [Word.INCONCLUSIVE]
    assert "Nothing arrived" in judged.verdicts[0].sentence


def test_a_record_that_was_cut_short_is_invalid():
    judged = judge("x", Arrivals(cut_short=True).at(1).log(), Params())
    assert [verdict.word for verdict in judged.verdicts] == [Word.INVALID]


@pytest.mark.parametrize("arrivals", [Arrivals(), Arrivals().at(1)])
def test_what_a_stand_in_that_was_killed_has_seen_is_invalid(arrivals):
    (verdict,) = judge("x", arrivals.log(), Params()).verdicts
    assert verdict.word is Word.INVALID
    assert "was killed or still runs" in verdict.sentence


def test_a_last_line_that_a_kill_has_cut_is_left_out():
    row = b'{"arrival": "a1", "t_ns": 1}'
    for cut in range(1, len(row)):
        assert len(read_log("x", b'{"schema": 1, "scenario": "down"}', [row + b"\n", row[:cut]]).arrivals) == 1


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"{\n", "arrivals.jsonl:1: is not JSON"),
        (b'{"arrival": "a1"}', "t_ns: Field required"),
        (b'{"arrival": "a1", "t_ns": "1"}', "t_ns"),
        (b'{"arrival": "a1", "t_ns": 1, "answer": "loved"}', "answer"),
        (b'{"arrival": "' + b"a" * MOST_LINE_CHARS + b'"}', "longer than"),
        (b"[]", "the row"),
    ],
)
def test_bad_rows_are_told_with_their_line(line, said):
    with pytest.raises(BadInput, match="x/arrivals") as caught:
        read_log("x", orjson.dumps({"schema": 1, "scenario": "down"}), [line])
    assert said in str(caught.value)


def test_bad_manifests_and_mixed_runs_are_refused():
    with pytest.raises(BadInput, match="schema"):
        read_log("x", b'{"schema": 2, "scenario": "down"}', [])
    row = b'{"arrival": "a1", "t_ns": 1}'
    with pytest.raises(BadInput, match="two runs were mixed"):
        read_log("x", b'{"schema": 1, "scenario": "down"}', [row, row])


def test_names_of_checks():
    assert known(["one_owner", "caller.jittered"]) == ["caller.one_owner", "caller.jittered"]
    with pytest.raises(BadInput, match=r"did you mean caller\.one_owner"):
        known(["one_ownr"])


def test_the_table_tells_layers_and_keys():
    arrivals = counted(Arrivals(), instants(0.5, 1, 0.7, 0.5, 1, 0.7, 0.5, 1))
    (row,) = rows_of(calls_of(arrivals.log().arrivals, 60 * 10**9))
    assert (row.calls, row.attempts, row.owners, row.inner, row.outer, row.keys) == (1, 9, 2, 3, 3, "none")
    assert layers_of(calls_of(arrivals.log().arrivals, 60 * 10**9)[0]).owners == 2


@pytest.mark.parametrize("answer", ["served", "failed"])
def test_a_call_is_held_against_those_that_may_still_be_tried_again_only(monkeypatch, answer):
    asked = []
    follows = calls._follows
    monkeypatch.setattr(calls, "_follows", lambda *given: asked.append(given) or follows(*given))
    made = Arrivals().each(range(1, 2001), answer=answer, status=200 if answer == "served" else 503)
    calls_of(made.log().arrivals, Params().within)
    assert len(asked) < 3 * 2000
