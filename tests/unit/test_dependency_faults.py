"""Each fault, exactly: when it happens, how often, to which operations, and what is answered and committed."""

from __future__ import annotations

import asyncio
import string
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.measure.retry_after import parse
from stub_service.capacity.ports import DependencyCall
from stub_service.dependency.faults import (
    Faults,
    asctime_date,
    imf_fixdate,
    problem,
    retry_after,
    rfc850_date,
)
from stub_service.dependency.model import VIRTUAL_EPOCH_S
from stub_service.dependency.visits import Visit, headers_of, read_visit
from tests.unit.dependency_bench import MS, S, call, dependency, fault, on_bench

RFC_EXAMPLE = 784_111_777  # Sun, 06 Nov 1994 08:49:37 GMT


def statuses_of(operations, faults, every_ms=20, **made):
    """Statuses of one call each `every_ms`, and the bench."""

    async def flow(bench):
        async def later(place, operation):
            await asyncio.sleep(place * every_ms / 1000)
            return (await bench.call(call(operation, step=f"s{place}", timeout_ms=500))).status

        return await asyncio.gather(*(later(place, operation) for place, operation in enumerate(operations)))

    return on_bench(flow, dependency(workers=10, service_ms=10, **made), faults=faults)


def test_outage_is_half_open_and_answers_503_at_once():
    statuses, bench = statuses_of(["read"] * 5, [fault("outage", from_ns=20 * MS, to_ns=60 * MS)])
    assert statuses == [200, 503, 503, 200, 200]
    out = [a for a in bench.arrivals if a.status == 503]
    assert all(a.t_ns == a.started_ns == a.ended_ns and a.fault == "outage" for a in out)


def test_an_outage_meets_those_that_wait_for_a_worker_at_their_turn():
    async def flow(bench):
        return [a.status for a in await asyncio.gather(*(bench.call(call("write", step=f"s{n}")) for n in range(3)))]

    statuses, bench = on_bench(flow, dependency(workers=1), faults=[fault("outage", from_ns=5 * MS, to_ns=S)])
    assert statuses == [200, 503, 503]
    assert len(bench.effects) == 1
    assert bench.dependencies.in_flight() == {"billing": (0, 0)}


def test_errors_so_many_times_and_none_of_them_commits():
    statuses, bench = statuses_of(["write"] * 4, [fault("error", times=2, status=502)])
    assert statuses == [502, 502, 200, 200]
    assert len(bench.effects) == 2
    assert [a.fault for a in bench.arrivals] == ["error", "error", None, None]
    assert bench.arrivals[0].ended_ns == 10 * MS  # a worker failed over it for its whole service time


def test_a_fault_of_one_operation_leaves_the_others_alone():
    statuses, _ = statuses_of(["read", "write", "readback", "write"], [fault("error", operation="write")])
    assert statuses == [200, 500, 200, 500]


def test_a_fault_of_one_dependency_leaves_the_others_alone():
    async def flow(bench):
        return [(await bench.call(call(dependency=name))).status for name in ("billing", "customer")]

    statuses, _ = on_bench(flow, dependency(), dependency("customer"), faults=[fault("outage")])
    assert statuses == [503, 200]


def test_slow_multiplies_the_service_time():
    faults = [fault("slow", factor=4.0, times=1), fault("slow", factor=2.5, to_ns=30 * MS)]
    statuses, bench = statuses_of(["read"] * 3, faults)
    assert statuses == [200] * 3
    assert {a.step: (a.ended_ns - a.started_ns, a.fault) for a in bench.arrivals} == {
        "s0": (100 * MS, "slow"),
        "s1": (25 * MS, "slow"),
        "s2": (10 * MS, None),
    }


def test_hang_never_answers_and_commits_nothing():
    statuses, bench = statuses_of(["write", "read"], [fault("hang", times=1)])
    assert statuses == [0, 200]
    hung = next(a for a in bench.arrivals if a.step == "s0")
    assert (hung.status, hung.fault, hung.started_ns, hung.ended_ns) == (0, "hang", 0, 500 * MS)
    assert bench.effects == []
    assert bench.dependencies.in_flight() == {"billing": (0, 0)}


def test_commit_then_timeout_commits_and_never_answers():
    statuses, bench = statuses_of(["read", "write", "readback"], [fault("commit_then_timeout", times=1)], every_ms=600)
    assert statuses == [200, 0, 200]
    assert [(e.logical, e.t_ns) for e in bench.effects] == [("r1/s1", 610 * MS)]
    lost = bench.arrivals[1]
    assert (lost.status, lost.fault, lost.ended_ns) == (0, "commit_then_timeout", 1100 * MS)


@pytest.mark.parametrize("raw", ["1", "1.5", "0", "-10", "nan", "20, 30", "abc", "1_000", "2026-01-01T00:00:00Z"])
def test_retry_after_is_sent_as_it_stands(raw):
    async def flow(bench):
        return [await bench.call(call()) for _ in range(2)]

    answers, bench = on_bench(flow, faults=[fault("retry_after", retry_after=raw, times=1)])
    assert [(a.status, a.retry_after) for a in answers] == [(429, raw), (200, None)]
    assert bench.arrivals[0].retry_after == raw
    assert bench.arrivals[0].ended_ns == 0


def test_dates_are_made_when_they_are_sent_against_the_answers_own_date():
    raws = ["{date+2}", "{rfc850-1}", "{asctime+60}"]

    async def flow(bench):
        await asyncio.sleep(1.9)
        return [await bench.call(call()) for _ in raws]

    answers, bench = on_bench(flow, faults=[fault("retry_after", retry_after=raw, times=1) for raw in raws])
    assert [answer.date for answer in answers] == ["Thu, 01 Jan 2026 00:00:01 GMT"] * 3
    assert [answer.retry_after for answer in answers] == [
        "Thu, 01 Jan 2026 00:00:03 GMT",
        "Thursday, 01-Jan-26 00:00:00 GMT",
        "Thu Jan  1 00:01:01 2026",
    ]
    assert [a.date for a in bench.arrivals] == [answer.date for answer in answers]


def test_the_date_forms_of_the_rfc():
    assert imf_fixdate(RFC_EXAMPLE) == "Sun, 06 Nov 1994 08:49:37 GMT"
    assert rfc850_date(RFC_EXAMPLE) == "Sunday, 06-Nov-94 08:49:37 GMT"
    assert asctime_date(RFC_EXAMPLE) == "Sun Nov  6 08:49:37 1994"


@given(st.integers(0, 2_000_000_000), st.integers(-86_400, 86_400), st.sampled_from(["date", "rfc850", "asctime"]))
def test_every_date_reads_as_the_instant_that_was_meant(epoch_s, offset_s, form):
    read = parse(retry_after(f"{{{form}{offset_s:+d}}}", epoch_s))
    if epoch_s + offset_s >= 0:  # two digits of a year say no more
        assert (read.kind, read.at_epoch_s) == ("date", epoch_s + offset_s)


def test_dates_out_of_range_are_still_dates():
    assert retry_after("{date+999999999}", 253_402_300_700) == "Fri, 31 Dec 9999 23:59:59 GMT"
    assert retry_after("{date-999999999}", -62_135_596_700) == "Mon, 01 Jan 0001 00:00:00 GMT"
    assert retry_after("{date2}", VIRTUAL_EPOCH_S) == "{date2}"


def test_the_first_fault_in_order_decides_and_is_the_one_counted():
    faults = Faults([fault("error", times=1, status=500), fault("error", status=503), fault("outage", times=1)])
    assert faults.at_door("billing", "read", 0).kind == "outage"
    assert faults.at_door("billing", "read", 0) is None
    assert [faults.at_work("billing", "read", 0).fault.status for _ in range(3)] == [500, 503, 503]
    assert faults.happened == [1, 2, 1]
    faults.restart()
    assert faults.at_work("billing", "read", 0).fault.status == 500


PROBLEMS = {
    "dependency 'x' is not known (known: billing)": {"dependency": "x", "kind": "outage"},
    "kind 'x' is not known (known: outage, retry_after, error, hang, commit_then_timeout, slow)": {"kind": "x"},
    "operation 'x' is not known (known: read, write, readback; left out: all)": {"kind": "slow", "operation": "x"},
    "commit_then_timeout happens to writes only": {"kind": "commit_then_timeout", "operation": "read"},
    "from_ns must be 0 or more, and below to_ns": {"kind": "slow", "from_ns": 5, "to_ns": 5},
    "times cannot be negative (0: as often as it is met)": {"kind": "slow", "times": -1},
    "factor must be above 0 and at most 1000": {"kind": "slow", "factor": 0.0},
    "status must be between 400 and 599": {"kind": "error", "status": 200},
    "retry_after must be printable ASCII": {"kind": "retry_after", "retry_after": "1\r\nX: y"},
}


@pytest.mark.parametrize("message", PROBLEMS)
def test_a_fault_that_cannot_be_is_told(message):
    assert problem(fault(**PROBLEMS[message]), ["billing"]) == message
    assert problem(fault("outage"), ["billing"]) is None


texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30)
calls = st.builds(
    DependencyCall,
    st.just("billing"), st.sampled_from(["read", "write", "readback"]), texts, texts, st.integers(0, 99), texts, texts,
    st.integers(0, 9), texts, texts, texts, st.integers(-(10**15), 10**17), st.integers(1, 10**12), st.booleans(),
    st.none() | texts,
)  # fmt: skip


@given(calls)
def test_headers_carry_a_call_unchanged(made):
    sent = headers_of(made)
    assert all(set(value) <= set(string.printable) - set("\r\n\t\x0b\x0c") for value in sent.values())
    expected = Visit(**{field.name: getattr(made, field.name) for field in fields(Visit)})
    assert read_visit(made.dependency, made.operation, sent) == expected


@pytest.mark.parametrize(("via", "kept"), [("1.1 edge", "1.1 edge"), ("é", None), ("x" * 2001, None), (None, None)])
def test_what_proxies_say_of_themselves_is_kept_if_it_is_text(via, kept):
    visit = read_visit("billing", "read", {} if via is None else {"Via": via})
    assert isinstance(visit, Visit)
    assert visit.via == kept


@pytest.mark.parametrize(
    ("headers", "message"),
    [
        ({"Overload-Round": "-1"}, "Overload-Round must be a whole number, such as 1"),
        ({"Overload-Attempt-Number": "1.5"}, "Overload-Attempt-Number must be a whole number, such as 1"),
        ({"Overload-Deadline-Ns": "nan"}, "Overload-Deadline-Ns must be a whole number, such as 1"),
        ({"Overload-Run": "x" * 2001}, "Overload-Run must be 1 to 2000 printable ASCII characters"),
        ({"Idempotency-Key": "é"}, "Idempotency-Key must be 1 to 2000 printable ASCII characters"),
    ],
)
def test_a_malformed_header_of_a_call_is_told(headers, message):
    assert read_visit("billing", "read", headers) == message
