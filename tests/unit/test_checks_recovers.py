"""fairness.recovers on ledgers written row by row: what is a trigger, how long the bound is, what goodput was."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from harness.checks import recovers
from harness.checks.judge import judge_one
from harness.checks.recovers import ALL, NAME, ORDINARY, SOON, STAYS
from harness.checks.verdict import Word
from tests.unit.ledgers import manifest_edited, steady, written

PHASES = {"calm": ["0s", "20s"], "burst": ["20s", "40s"]}
CAPACITY = {"capacity": "20/s"}
SERVICE = {"workers": 4, "service_time": "200ms", "admission": {"policy": "shared_fifo", "queue": 9}}


def calm(per_s=10, **told):
    return steady(20 * per_s, 0, 20, queue_wait_ns=0, **told)


def burst(per_s=10, **told):
    """Everybody waits a little, and is served."""
    return steady(20 * per_s, 20, 40, **told)


def after(per_s=10, from_s=40, to_s=100, **told):
    return steady(int((to_s - from_s) * per_s), from_s, to_s, queue_wait_ns=0, **told)


def lost(rows, every=2):
    """Every second of them refused, unless told."""
    for row in rows[::every]:
        row.update(outcome="throttled", status=429, queue_wait_ns=-1, service_ns=-1)
    return rows


def recorded(tmp_path, tenants, profile=None, **options):
    rows = tenants if isinstance(tenants, dict) else {"A": tenants}
    return written(tmp_path / "t", rows, {"phases": PHASES, **(profile or {})}, **options)


def judged(tmp_path, tenants, params=CAPACITY, profile=None, **options):
    return judge_one(recorded(tmp_path, tenants, profile, **options), NAME, params)


def of(verdict, subject, quantity):
    return next(f for f in verdict.findings if (f.subject, f.quantity) == (subject, quantity))


def test_goodput_that_is_back_passes_with_both_rates_and_what_the_bound_was_made_of(tmp_path):
    found = judged(tmp_path, calm() + burst() + after())
    assert found.word is Word.PASS
    assert found.sentence.endswith(" 0 calls waited when the burst ended, which a spare 10/s allow 1.00 s to be gone.")
    soon = of(found, ALL, SOON)
    assert (soon.note, soon.samples, soon.bound) == ("10/s in calm, 10/s from 41.00 s on", 200, 10.0)
    assert of(found, ALL, STAYS).samples == 590


def test_goodput_that_is_halved_fails_with_the_first_calls_that_were_lost_after_the_bound(tmp_path):
    found = judged(tmp_path, calm() + burst() + lost(after()))
    assert found.word is Word.FAIL
    assert of(found, ALL, SOON).measured == pytest.approx(50)
    assert of(found, ALL, SOON).note == "10/s in calm, 5/s from 41.00 s on"
    assert "did not come back" in found.sentence
    assert found.witnesses == tuple(f"0.{seq}" for seq in range(410, 450, 2))


def test_goodput_that_is_back_only_long_after_the_bound_fails_by_the_first_window(tmp_path):
    """Just after the bound is as long as calm, and not until the end."""
    found = judged(tmp_path, calm() + burst() + lost(after(to_s=61)) + after(from_s=61), {**CAPACITY, "down_pct": 30})
    assert found.word is of(found, ALL, SOON).word is Word.FAIL
    assert of(found, ALL, STAYS).word is not Word.FAIL
    assert "50 % less" in found.sentence


def test_goodput_that_goes_again_in_the_end_fails_with_the_calls_that_were_lost_then(tmp_path):
    rows = calm() + burst() + after(to_s=62) + lost(after(from_s=62))
    found = judged(tmp_path, rows, {**CAPACITY, "down_pct": 0.1})
    assert (found.word, of(found, ALL, SOON).word, of(found, ALL, STAYS).word) == (Word.FAIL, Word.PASS, Word.FAIL)
    assert found.witnesses[:2] == ("0.620", "0.622")


@pytest.mark.parametrize(("hurt", "words"), [("A", ("PASS", "FAIL")), ("D", ("FAIL", "PASS"))])
def test_the_ordinary_tenants_are_judged_by_themselves_too(tmp_path, hurt, words):
    """A twelfth of all calls is theirs, or what others lost is not theirs."""
    tenants = {"A": calm(5) + burst(5) + after(5), "D": calm(55) + burst(55) + after(55)}
    lost(tenants[hurt][-300 if hurt == "A" else -3300 :])
    found = judged(tmp_path, tenants, {"capacity": "200/s"}, {"ordinary": ["A"]})
    assert (of(found, ALL, SOON).word, of(found, ORDINARY, SOON).word) == words
    assert found.word is Word.FAIL
    assert f"Goodput of {ORDINARY if hurt == 'A' else ALL} did not" in found.sentence


def test_who_is_ordinary_is_nobody_where_the_profile_names_none(tmp_path):
    found = judged(tmp_path, calm() + burst() + after(), profile={"ordinary": []})
    assert {finding.subject for finding in found.findings} == {ALL}


def test_a_subject_with_too_few_calls_served_in_calm_is_not_judged(tmp_path):
    tenants = {"A": calm() + burst() + after(), "B": calm(5) + burst(5) + after(5)}
    for least, subjects in ((100, {ALL, ORDINARY}), (101, {ALL})):
        params = {"capacity": "200/s", "least_calls": least}
        found = judged(tmp_path, tenants, params, {"ordinary": ["B"]})
        assert {finding.subject for finding in found.findings} == subjects


def test_an_interval_that_reaches_the_bound_decides_nothing(tmp_path):
    trial = recorded(tmp_path, calm() + burst() + lost(after(), 3), {"ordinary": []})
    soon = of(judge_one(trial, NAME, CAPACITY), ALL, SOON)
    assert 0 < soon.low < soon.high < 100
    for bound, word in (
        (soon.low - 0.01, "FAIL"),
        (soon.low, "INCONCLUSIVE"),
        (soon.high, "INCONCLUSIVE"),
        (soon.high + 0.01, "PASS"),
    ):
        assert of(judge_one(trial, NAME, {**CAPACITY, "down_pct": bound}), ALL, SOON).word == word
    open_ = judge_one(trial, NAME, {**CAPACITY, "down_pct": soon.measured})
    assert (open_.word, open_.add) == (Word.INCONCLUSIVE, "a longer calm and a longer recovery")
    assert "too noisy to tell" in open_.sentence


def test_what_the_trial_drew_decides_how_it_is_resampled(tmp_path):
    trial = recorded(tmp_path, calm() + burst() + lost(after(), 3))

    def lows(edit):
        found = judge_one(manifest_edited(trial, edit), NAME, CAPACITY)
        return [finding.low for finding in found.findings]

    one, two, zero, none = (
        lows(edit)
        for edit in (
            lambda manifest: manifest.update(seed=1),
            lambda manifest: manifest.update(seed=2),
            lambda manifest: manifest.update(seed=0),
            lambda manifest: manifest.pop("seed"),
        )
    )
    assert one != two
    assert zero == none


# --- what has to be there


@pytest.mark.parametrize("phases", [{}, {"calm": ["0s", "20s"]}, {"burst": ["20s", "40s"]}])
def test_without_a_calm_or_a_burst_there_is_nothing_to_come_back_to(tmp_path, phases):
    found = judged(tmp_path, calm() + burst() + after(), profile={"phases": phases})
    assert (found.word, found.samples, found.add) == (
        Word.INCONCLUSIVE, 0, "give the profile `phases: {calm, burst, recovery}`"
    )  # fmt: skip


@pytest.mark.parametrize(("told", "spare"), [({"action": "search"}, 10), ({"outcome": "held_back", "attempt": 0}, 9)])
def test_calls_of_agent_runs_and_those_that_were_not_sent_are_no_calls_to_a_shared_service(tmp_path, told, spare):
    """What was not sent was offered all the same."""
    found = judged(tmp_path, calm(**told) + burst(**told) + after(**told))
    assert found.sentence == "Nobody sent a call to a shared service."
    beside = calm() + burst() + after() + calm(1, **told) + after(1, **told)
    passed = judged(tmp_path, beside)
    assert passed.word is Word.PASS
    assert f"a spare {spare}/s" in passed.sentence
    few = judged(tmp_path, beside, {**CAPACITY, "least_calls": 201})
    assert few.sentence == "200 calls in calm are too few to say what goodput was."


def test_calm_holds_the_calls_from_its_begin_on_and_up_to_its_end(tmp_path):
    rows = calm() + burst() + after()
    assert judged(tmp_path, rows, {**CAPACITY, "least_calls": 200}).word is Word.PASS
    few = judged(tmp_path, rows, {**CAPACITY, "least_calls": 201})
    assert (few.word, few.samples, few.add) == (Word.INCONCLUSIVE, 200, "201 of them")


def test_fewer_than_a_hundred_calls_in_calm_are_too_few_unless_told(tmp_path):
    found = judged(tmp_path, steady(99, 0, 20) + burst() + after())
    assert found.sentence == "99 calls in calm are too few to say what goodput was."
    assert found.add == "100 of them"


@pytest.mark.parametrize(("losses", "word"), [(10, "PASS"), (11, "INCONCLUSIVE")])
def test_a_calm_that_lost_more_than_one_in_twenty_is_no_measure(tmp_path, losses, word):
    rows = calm()
    lost(rows[-losses:], 1)
    found = judged(tmp_path, rows + burst() + after())
    assert found.word == word
    if word == "INCONCLUSIVE":
        assert found.sentence == "Only 94.5% were served in calm: there is nothing to come back to."


def test_too_few_served_in_calm_of_just_enough_asked(tmp_path):
    rows = steady(100, 0, 20)
    lost(rows[-3:], 1)
    found = judged(tmp_path, rows + burst() + after(5), {**CAPACITY, "down_pct": 30})
    assert found.sentence == "Too few calls were served in calm to say what goodput was."


def test_a_burst_is_a_trigger_if_somebody_waited_or_something_was_lost(tmp_path):
    nobody = burst(queue_wait_ns=0)
    later = after()
    later[0].update(queue_wait_ns=5_000_000)
    found = judged(tmp_path, calm() + nobody + lost(later, 40))
    assert found.sentence == "The burst was none: nobody waited, and nothing was lost."
    assert judged(tmp_path, calm() + burst() + after()).word is Word.PASS
    assert judged(tmp_path, calm() + lost(burst(queue_wait_ns=0)) + after()).word is Word.PASS


# --- the bound


def unknown(found):
    return found.sentence == "The capacity of the target is not known." and found.word is Word.INCONCLUSIVE


def test_capacity_is_that_of_the_profiles_service_only_where_that_is_what_ran(tmp_path):
    rows = calm() + burst() + after()
    untold = [{**row, "service_ns": -1} for row in rows]
    by_cost = {**SERVICE, "service_time": {"distribution": "recorded_cost", "base": "100ms", "per_unit": "1ms"}}
    assert "a spare 10/s" in judged(tmp_path, rows, {}, {"service": SERVICE}, target="stub").sentence
    assert unknown(judged(tmp_path, rows, {}, {"service": SERVICE}))
    assert unknown(judged(tmp_path, rows, {}, target="stub"))
    assert unknown(judged(tmp_path, untold, {}, {"service": by_cost}, target="stub"))


def test_more_or_as_much_offered_as_can_be_finished_never_ends(tmp_path):
    rows = calm() + burst() + after()
    found = judged(tmp_path, rows, {"capacity": "10/s"})
    assert (found.word, found.sentence) == (
        Word.INCONCLUSIVE, "10 calls/s are offered after the burst, and the capacity is 10/s."
    )  # fmt: skip


def test_nothing_offered_after_the_burst_shows_nothing(tmp_path):
    found = judged(tmp_path, calm() + burst())
    assert (found.word, found.sentence) == (Word.INCONCLUSIVE, "Nothing is offered after the burst.")


def test_those_waited_that_left_the_queue_at_the_end_of_the_burst_or_later(tmp_path):
    rows = calm() + burst() + after()
    waits = {390: 1_000_000_000, 391: 900_000_000 - 1, 392: 5_000_000_000}  # due at 39.0, 39.1 and 39.2 s
    for place, wait_ns in waits.items():
        rows[place].update(queue_wait_ns=wait_ns)
    found = judged(tmp_path, rows, {**CAPACITY, "factor": 20.0})
    assert "2 calls waited when the burst ended, which a spare 10/s allow 4.00 s" in found.sentence


@pytest.mark.parametrize(
    ("duration", "needed"), [("50s", None), ("49999ms", "a trial of at least 50.0 s with the same burst")]
)
def test_half_a_calm_must_be_left_after_the_bound(tmp_path, duration, needed):
    """Calm lasts 18 s, and the bound is 1 s after the burst."""
    phases = {"calm": ["2s", "20s"], "burst": ["20s", "40s"]}
    rows = calm() + burst() + after(to_s=49.9)
    found = judged(tmp_path, rows, {**CAPACITY, "down_pct": 40}, {"phases": phases, "duration": duration})
    assert (found.word, found.add) == ((Word.INCONCLUSIVE, needed) if needed else (Word.PASS, ""))
    if needed:
        assert found.samples == len(rows)


def test_of_several_findings_the_farthest_of_the_worst_word_is_told(tmp_path):
    """Of those that pass, too: the one that comes nearest to its bound."""
    tenants = {"A": calm(5) + burst(5) + after(5), "D": calm() + burst() + after()}
    lost(tenants["A"][-300:], 25)
    passed = judged(tmp_path, tenants, {"capacity": "50/s", "down_pct": 20}, {"ordinary": ["A"]})
    assert passed.word is Word.PASS
    assert passed.measured == max(finding.measured for finding in passed.findings) > 3
    failed = judged(tmp_path, tenants, {"capacity": "50/s", "down_pct": 0.1}, {"ordinary": ["A"]})
    worst = max((f for f in failed.findings if f.word is failed.word), key=lambda finding: finding.measured)
    assert failed.measured == worst.measured


def test_of_a_failure_and_a_doubt_the_failure_is_told(tmp_path):
    trial = recorded(tmp_path, calm() + burst() + lost(after()))
    some = judge_one(trial, NAME, CAPACITY).findings[0]
    doubt = replace(some, word=Word.INCONCLUSIVE, measured=70.0)
    good = replace(some, word=Word.PASS, measured=90.0)
    none = np.zeros(len(trial.calls), dtype=np.bool_)
    window = recovers.profile_of(trial).phases.burst
    bound = recovers._Bound(1, 0, 1.0)
    for findings, word, measured in (
        ([good, doubt, some], Word.FAIL, some.measured),
        ([good, doubt], Word.INCONCLUSIVE, 70.0),
        ([replace(good, measured=0.0), good], Word.PASS, 90.0),
        ([replace(good, measured=0.0), replace(good, measured=0.5)], Word.PASS, 0.5),
    ):
        found = recovers._verdict(trial, none, (window, window), findings, bound)
        assert (found.word, found.measured) == (word, measured)
