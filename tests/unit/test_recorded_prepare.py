from fractions import Fraction

import pytest

from harness.recorded.document import (
    ReplanOption,
    ServiceOption,
    profile_name,
    replay_document,
    service_document,
    size,
    worst_rate_per_s,
)
from harness.recorded.errors import RecordedError
from harness.recorded.fields import parse_map
from harness.recorded.prepare import Bound, Plan, Runaway, prepare
from harness.recorded.reader import Reading
from harness.recorded.schedule import ScheduleError, file_name, source
from harness.recorded.transform import REST, TrialClock, rest_name
from tests.unit.recorded_fixtures import source as log

S = 1_000_000_000
READING = Reading(roles=parse_map("time=t,tenant=who,cost=c"))
BEGIN = 1_431_857_100


def lines(*calls):
    """(second after BEGIN, tenant[, cost]) -> JSON Lines."""
    return "".join(
        f'{{"t": "{BEGIN + at:.3f}", "who": "{who}"' + (f', "c": {cost[0]}' if cost else "") + "}\n"
        for at, who, *cost in calls
    )


BUSY = lines(*[(i * 0.1, "a") for i in range(100)], *[(i * 0.5, "b") for i in range(20)], (3, "c"), (7, "d"))


def prepared(tmp_path, text=BUSY, reading=READING, **plan):
    return prepare([log(text)], reading, Plan(**plan), tmp_path)


def due(tmp_path, place=0):
    return [arrival.due_ns for arrival in source(tmp_path)(file_name(place))]


def counts(found):
    return {tenant.name: tenant.recorded + tenant.added for tenant in found.tenants}


def test_every_call_of_the_log_is_planned_for_its_tenant_busiest_first(tmp_path):
    found = prepared(tmp_path)
    assert counts(found) == {"a": 100, "b": 20, "c": 1, "d": 1}
    assert [len(due(tmp_path, place)) for place in range(4)] == [100, 20, 1, 1]
    assert found.account.planned == found.account.read == 122
    assert found.account.balanced()
    assert due(tmp_path)[:3] == [0, S // 10, S // 5]
    assert found.duration_ns == 9_901_000_000
    assert found.peak_per_s == 13


def test_lines_out_of_order_come_into_order(tmp_path):
    prepared(tmp_path, lines((5, "a"), (1, "a"), (3, "a")))
    assert due(tmp_path) == [0, 2 * S, 4 * S]


@pytest.mark.parametrize(
    ("window", "kept"),
    [
        ({"begin": Bound(2 * S, True)}, 98),
        ({"end": Bound(2 * S, True)}, 24),
        ({"begin": Bound(2 * S, True), "end": Bound(4 * S, True)}, 25),
        ({"begin": Bound((BEGIN + 2) * S, False), "end": Bound((BEGIN + 4) * S, False)}, 25),
    ],
)
def test_a_window_is_half_open_and_what_lies_outside_is_counted(tmp_path, window, kept):
    found = prepared(tmp_path, **window)
    assert (found.account.kept, found.account.outside) == (kept, 122 - kept)
    assert sum(counts(found).values()) == kept


def test_a_window_with_an_end_lasts_to_its_end(tmp_path):
    assert prepared(tmp_path, end=Bound(60 * S, True)).duration_ns == 60 * S


def test_long_silences_shrink_and_the_speed_comes_after(tmp_path):
    text = lines((0, "a"), (1, "a"), (3601, "a"), (3602, "a"), (7202, "a"))
    found = prepared(tmp_path, text, squeeze_ns=2 * S, speed=Fraction(2))
    assert due(tmp_path) == [0, S // 2, 3 * S // 2, 2 * S, 3 * S]
    assert found.account.squeezed_gaps == 2
    assert found.account.squeezed_ns == 7196 * S


def test_a_clock_asked_at_its_begin_is_at_zero():
    assert TrialClock(5 * S, 1, Fraction(3)).at(5 * S) == 0


def test_top_folds_the_others_into_one(tmp_path):
    found = prepared(tmp_path, top=1)
    assert counts(found) == {"a": 100, REST: 22}
    assert found.account.folded == 22
    assert due(tmp_path, 1) == sorted(due(tmp_path, 1))


def test_a_tenant_that_is_called_rest_keeps_its_name():
    assert rest_name(["rest", "rest_"]) == "rest__"


def test_amplifying_multiplies_one_tenant_exactly(tmp_path):
    found = prepared(tmp_path, amplify={"b": 3})
    assert counts(found) == {"a": 100, "b": 60, "c": 1, "d": 1}
    assert found.account.amplified == 40
    assert len(set(due(tmp_path, 1))) > 50
    assert due(tmp_path, 1) == sorted(due(tmp_path, 1))
    assert max(due(tmp_path, 1)) < found.duration_ns


def test_a_runaway_adds_calls_to_the_schedule_of_its_tenant(tmp_path):
    found = prepared(tmp_path, runaway=Runaway("c", Fraction(50), 2 * S, 4 * S), top=1)
    assert counts(found) == {"a": 100, "c": 101, REST: 21}
    assert found.account.runaway == 100
    assert [t for t in due(tmp_path, 1) if t != 3 * S][:2] == [2 * S, 2 * S + S // 50]


def test_the_runaway_costs_what_its_tenant_costs_and_lasts_the_middle_third(tmp_path):
    found = prepared(tmp_path, lines((0, "a", 10), (9, "a", 30), (1, "b", 1)), runaway=Runaway("a", Fraction(1)))
    assert found.runaway == Runaway("a", Fraction(1), 3 * S, 6 * S, 20.0)
    costs = [arrival.cost for arrival in source(tmp_path)(file_name(0))]
    assert costs == [10.0, 20.0, 20.0, 20.0, 30.0]


def test_a_runaway_that_nobody_is_says_who_was_meant(tmp_path):
    text = lines((0, "alice"), (1, "bob"))
    with pytest.raises(RecordedError) as caught:
        prepared(tmp_path, text, runaway=Runaway("alise", Fraction(1)))
    assert str(caught.value) == "--runaway/--amplify: no call in the window is of 'alise'; did you mean alice?"


def test_a_runaway_outside_the_trial_is_refused(tmp_path):
    with pytest.raises(RecordedError) as caught:
        prepared(tmp_path, runaway=Runaway("a", Fraction(1), 5 * S, 20 * S))
    assert str(caught.value) == (
        "--runaway-from/--runaway-to: 5s to 20s is no window of a 9901ms trial; "
        "both count from the beginning of the trial, after squeezing and speed"
    )


def test_anonymising_hides_names_and_paths_and_is_stable(tmp_path):
    text = '10.0.0.9 - - [17/May/2015:10:05:03 +0000] "GET /secret/plan.pdf?u=bob HTTP/1.1" 200 203\n'
    found = [
        prepare([log(text)], Reading(), Plan(anonymise_key=key), tmp_path / key.hex()) for key in (b"1", b"1", b"2")
    ]
    names = [one.tenants[0].name for one in found]
    assert names[0] == names[1] != names[2]
    assert "10.0.0.9" not in names[0]
    assert [arrival.path for arrival in source(tmp_path / b"1".hex())(file_name(0))] == ["/_/_"]


def test_too_many_tenants_are_refused_with_the_advice(tmp_path):
    text = lines(*[(i, f"t{i}") for i in range(501)])
    with pytest.raises(ScheduleError) as caught:
        prepared(tmp_path, text)
    assert str(caught.value) == (
        "501 tenants are more than the 500 that a trial can drive one by one; "
        "keep the busiest and fold the rest into one: --top 20"
    )
    assert sum(counts(prepared(tmp_path, text, top=3)).values()) == 501


def test_an_empty_window_is_an_error(tmp_path):
    with pytest.raises(RecordedError, match=r"no call lies in the window \(122 were read\)"):
        prepared(tmp_path, begin=Bound(3600 * S, True))


def test_a_choice_of_tenant_that_names_nobody_is_a_slip(tmp_path):
    with pytest.raises(RecordedError) as caught:
        prepared(tmp_path, reading=Reading(roles=parse_map("time=t"), tenant="field:whom"))
    assert str(caught.value) == (
        "--tenant: 'field:whom' names nobody on any of 122 lines; "
        "choose another field: remote_addr, user, file, header:x-tenant, field:NAME or path:N"
    )


def test_the_document_has_phases_around_the_runaway(tmp_path):
    found = prepared(tmp_path, runaway=Runaway("a", Fraction(20), 3 * S, 6 * S), top=2)
    service = service_document(ServiceOption("fair_queues", 20_000_000), 4)
    made = replay_document(found, "web", service, 2 * S, "start", ReplanOption(2, 3, S // 2), 7)
    assert made == {
        "name": "replay-web",
        "about": "122 recorded calls of 3 tenants, and a running away at 20/s from 3s to 6s.",
        "duration": "9901ms",
        "seed": 7,
        "phases": {"calm": ["0s", "3s"], "burst": ["3s", "6s"], "recovery": ["6s", "9901ms"]},
        "patience": "2s",
        "patience_until": "start",
        "service": {
            "workers": 4, "service_time": "20ms", "admission": {"policy": "fair_queues", "queue_per_tenant": 50},
        },
        "tenants": {
            "a": {"recorded": {"file": "0000.jsonl"}, "replans": {"calls": 2, "after": "500ms", "rounds": 3}},
            "b": {"recorded": {"file": "0001.jsonl"}},
            "rest": {"recorded": {"file": "0002.jsonl"}},
        },
        "ordinary": ["b", "rest"],
        "checks": ["fairness.ordinary_unmoved", "agent.replan_share"],
    }  # fmt: skip
    assert worst_rate_per_s(found, ReplanOption(2, 3, S)) == 33 + 30 * 14


def test_without_a_runaway_nothing_is_compared(tmp_path):
    made = replay_document(prepared(tmp_path), "web", None)
    assert not {"phases", "checks", "ordinary", "service", "patience"} & set(made)


def test_a_service_is_sized_from_what_the_calls_of_the_window_take(tmp_path):
    found = prepared(tmp_path, runaway=Runaway("a", Fraction(500), 5 * S, 6 * S))
    sizing = size(found, source(tmp_path), "calm", Fraction("1.3"), ServiceOption("shared_fifo", 200_000_000))
    assert (sizing.workers, sizing.calls, sizing.busy) == (4, 61, 2.44)
    assert str(sizing) == (
        "4 workers: the 61 calls of calm keep 2.4 busy on average (2.6 in the busiest second), times 1.3"
    )
    with pytest.raises(RecordedError, match="this trial has no window 'tea'; it has all, calm, burst, recovery"):
        size(found, source(tmp_path), "tea", Fraction(1), ServiceOption("shared_fifo", 1))


def test_cost_sizes_the_service_too(tmp_path):
    found = prepared(tmp_path, lines((0, "a", 100), (1, "a", 1000)))
    by_cost = ServiceOption("shared_fifo", 10_000_000, 1_000_000, 500_000_000)
    assert size(found, source(tmp_path), "all", Fraction(1), by_cost).busy == pytest.approx(0.61 / 1.001)
    assert service_document(by_cost, 2)["service_time"] == {
        "distribution": "recorded_cost", "base": "10ms", "per_unit": "1ms", "cap": "500ms",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "name"),
    [("web access", "replay-web-access"), ("日本", "replay"), ("-", "replay"), ("a" * 300, "replay-" + "a" * 90)],
)
def test_profile_names_are_plain(text, name):
    assert profile_name(text) == name
