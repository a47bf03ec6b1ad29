"""The small parts of the stub's shell: who is charged, what headers say, figures of lag, metrics, evidence, timers."""

from __future__ import annotations

import asyncio
import time
from random import Random

import orjson
import pytest

from stub_service import timers as timers_module
from stub_service.evidence import Evidence
from stub_service.exposition import MOST_LABELLED, OTHERS, text
from stub_service.identity import identify_by, parse_tokens
from stub_service.lag import TICK_NS, Histogram, LoopLag, bucket_of, top_of
from stub_service.live import Asked
from stub_service.metrics import MOST_TENANTS, Metrics
from stub_service.requests import read_headers
from stub_service.timers import Timers


@pytest.mark.parametrize(
    ("header", "tenant"),
    [
        ("Bearer token-A", "A"),
        ("bearer  token-A b/é ", "A b/é"),
        ("Bearer s3cret", "B"),
        ("Bearer token-B", None),  # B has another token
        ("Bearer token-", None),
        ("Bearer token-" + "x" * 200, "x" * 200),
        ("Bearer token-" + "x" * 201, None),
        ("Bearer token-\udcff", None),
        ("Bearer A", None),
        ("Bearer", None),
        ("Basic token-A", None),
        ("token-A", None),
        ("", None),
        (None, None),
    ],
)
def test_tenant_of_a_token(header, tenant):
    assert identify_by({"B": "s3cret"})(header) == tenant


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "OVERLOAD_TOKENS is not JSON: unexpected end of data (line 1, column 2)"),
        ("[]", 'OVERLOAD_TOKENS must be a JSON object from tenant to token, such as {"A": "..."}'),
        ('{"A": 1}', 'OVERLOAD_TOKENS must be a JSON object from tenant to token, such as {"A": "..."}'),
        ('{"A": ""}', 'OVERLOAD_TOKENS must be a JSON object from tenant to token, such as {"A": "..."}'),
        ('{"A": "x", "B": "x"}', "OVERLOAD_TOKENS gives two tenants the same token: they could not be told apart"),
    ],
)
def test_bad_tokens_are_told_without_showing_any(text, message):
    with pytest.raises(ValueError) as told:
        parse_tokens(text)
    assert str(told.value) == message


def test_tokens_may_be_absent():
    assert parse_tokens(None) == parse_tokens("") == {}


def test_headers_of_a_call():
    assert read_headers({}) == Asked(None, None, None, None, -1.0)
    assert read_headers(
        {
            "Overload-Call": "3.17",
            "Overload-Attempt": "3.17.1",
            "Overload-Round": "2",
            "Overload-Queue-Deadline-Ms": "0.5",
            "Overload-Cost": "1.5e3",
        }
    ) == Asked("3.17", "3.17.1", 2, 500_000, 1500.0)


def test_headers_out_of_bounds_are_told():
    told = {
        (name, value): read_headers({name: value})
        for name, value in (
            ("Overload-Call", ""),
            ("Overload-Attempt", "a b"),
            ("Overload-Round", "1.0"),
            ("Overload-Queue-Deadline-Ms", "86400001"),
            ("Overload-Cost", "1e99"),
            ("Overload-Cost", "١"),
        )
    }
    assert told == {
        ("Overload-Call", ""): "Overload-Call must be 1 to 200 visible ASCII characters",
        ("Overload-Attempt", "a b"): "Overload-Attempt must be 1 to 200 visible ASCII characters",
        ("Overload-Round", "1.0"): "Overload-Round must be a whole number, such as 0",
        ("Overload-Queue-Deadline-Ms", "86400001"): (
            "Overload-Queue-Deadline-Ms must be decimal milliseconds, at most 86400000, such as 500"
        ),
        ("Overload-Cost", "1e99"): "Overload-Cost must be a decimal number from 0 to 1e+15",
        ("Overload-Cost", "١"): "Overload-Cost must be a decimal number from 0 to 1e+15",
    }


def test_histogram_buckets_hold_their_values_and_are_narrow():
    values = [*range(300), *(Random(3).randrange(2**k) for k in range(1, 60) for _ in range(20)), 2**62]
    for value in values:
        bucket = bucket_of(value)
        assert top_of(bucket) >= value
        assert bucket == 0 or top_of(bucket - 1) < value
        assert top_of(bucket) <= value * (1 + 1 / 16)


def test_histogram_quantiles_against_a_sorted_list():
    rng, histogram = Random(5), Histogram()
    samples = sorted(int(rng.lognormvariate(12, 2)) for _ in range(2000))
    for sample in samples:
        histogram.add(sample)
    for per_mille in (1, 500, 990, 1000):
        exact = samples[-(-len(samples) * per_mille // 1000) - 1]
        assert exact <= histogram.quantile(per_mille) <= exact * (1 + 1 / 16)
    assert histogram.quantile(1000) == histogram.max == samples[-1]
    assert Histogram().quantile(990) == 0


class FakeTimers:
    """Holds the one timer that was set."""

    def at(self, due_ns, kind, callback, subject):
        self.set = (due_ns, callback)


def test_a_stall_counts_every_tick_that_it_swallowed():
    timers = FakeTimers()
    lag = LoopLag(timers, 0)
    due_ns, tick = timers.set
    tick(None, due_ns, due_ns + 5)
    due_ns, tick = timers.set
    assert due_ns == 2 * TICK_NS
    tick(None, due_ns, due_ns + 100 * TICK_NS + 7)  # a second without the loop: a hundred and one ticks, not one
    assert timers.set[0] == 103 * TICK_NS
    figures = lag.figures()
    assert figures["samples"] == 102
    assert figures["max_ns"] == 100 * TICK_NS + 7
    assert 45 * TICK_NS < figures["p50_ns"] < 55 * TICK_NS
    lag.restart()
    assert lag.figures() == {"samples": 0, "p50_ns": 0, "p99_ns": 0, "max_ns": 0}


def test_a_stall_of_hours_is_counted_in_bounded_time():
    timers = FakeTimers()
    lag = LoopLag(timers, 0)
    due_ns, tick = timers.set
    now_ns = 24 * 3600 * 10**9
    tick(None, due_ns, now_ns)
    assert timers.set[0] == now_ns + TICK_NS
    assert lag.figures()["max_ns"] == now_ns - TICK_NS


def said(metrics, workers=1, lag=None, lag_sum_ns=0):
    lag = lag or LoopLag(FakeTimers(), 0).figures()
    return text(metrics.families(workers, lag, lag_sum_ns)).decode()


def test_tenants_beyond_the_bounds_share_a_label():
    metrics = Metrics()
    for place in range(MOST_TENANTS + 50):
        metrics.of(f"t{place}").offered += 1
        metrics.of(f"t{place}").waiting += 2
    assert len(metrics._tenants) == MOST_TENANTS + 1
    lines = said(metrics).splitlines()
    offered = [line for line in lines if line.startswith("overload_offered_total")]
    rest = MOST_TENANTS + 50 - MOST_LABELLED
    assert len(offered) == MOST_LABELLED + 1
    assert offered[-1] == f'overload_offered_total{{source="service",tenant="{OTHERS}"}} {rest}'
    assert f'overload_waiting{{source="service",tenant="{OTHERS}"}} {2 * rest}' in lines


def test_metrics_text():
    metrics = Metrics()
    figures = metrics.of('a"\\\n')
    figures.offered, figures.served, figures.running = 3, 1, 1
    figures.refuse("queue_full")
    figures.started_after(0)
    figures.started_after(1_500_000)
    lines = said(metrics, 8, {"samples": 2, "p50_ns": 1, "p99_ns": 1500, "max_ns": 1501}, 1502)
    label = '{source="service",tenant="a\\"\\\\\\n"}'
    for line in (
        "# TYPE overload_offered_total counter",
        f"overload_offered_total{label} 3",
        f"overload_refused_total{label} 1",
        'overload_stub_refusals_total{reason="queue_full"} 1',
        f"overload_running{label} 1",
        f'overload_queue_wait_seconds_bucket{label[:-1]},le="0.001"}} 1',
        f'overload_queue_wait_seconds_bucket{label[:-1]},le="0.002"}} 2',
        f'overload_queue_wait_seconds_bucket{label[:-1]},le="+Inf"}} 2',
        f"overload_queue_wait_seconds_sum{label} 0.0015",
        "overload_stub_workers 8",
        'overload_stub_loop_lag_seconds{quantile="0.99"} 0.0000015',
        "overload_stub_loop_lag_seconds_count 2",
    ):
        assert line in lines.split("\n")
    assert lines.endswith("\n")


def test_a_new_epoch_clears_counters_and_keeps_what_is_there():
    metrics = Metrics()
    metrics.of("busy").offered += 1
    metrics.of("busy").waiting += 1
    metrics.of("idle").offered += 1
    metrics.restart()
    lines = said(metrics)
    assert 'overload_offered_total{source="service",tenant="busy"} 0' in lines
    assert 'overload_waiting{source="service",tenant="busy"} 1' in lines
    assert "idle" not in lines
    assert metrics.tenants_waiting() == 1


def test_evidence_cursor_never_splits_a_line(tmp_path):
    evidence = Evidence(tmp_path, pytest.fail)
    for place in range(10):
        evidence.add({"place": place, "pad": "x" * place})
    whole, cursor = b"", 0
    while True:
        lines, after = evidence.read(cursor, limit=40)
        if not lines:
            break
        assert lines.endswith(b"\n")
        whole, cursor = whole + lines, after
    assert [orjson.loads(line)["place"] for line in whole.splitlines()] == list(range(10))
    assert cursor == evidence.size() == len(evidence.path.read_bytes())
    for bad in (-1, cursor + 1):
        with pytest.raises(ValueError, match=f"between 0 and {cursor}"):
            evidence.read(bad)
    evidence.close()


def test_evidence_that_breaks_is_told_once_and_writes_no_more(tmp_path):
    told = []
    evidence = Evidence(tmp_path, told.append)
    evidence._file.close()
    evidence._file = open("/dev/full", "wb", buffering=0)  # noqa: SIM115
    for _ in range(3):
        evidence.add({"a": 1})
        evidence.flush()
    assert [error.strerror for error in told] == ["No space left on device"]
    evidence._file.close()


def fired(kind, no_timerfd, monkeypatch, cancel=()):
    """Names of timers in the order in which they fired, all due already when they were set, in reverse order of due."""
    if no_timerfd:
        monkeypatch.setattr(timers_module.sys, "platform", "elsewhere")
    seen = []

    async def scenario():
        timers, done = Timers(asyncio.get_running_loop()), asyncio.Event()
        now_ns = time.monotonic_ns()
        set_ = {}
        for name, due, order in (
            ("late", -1, 1),
            ("deadline", -2, 3),
            ("end", -2, 2),
            ("end2", -2, 2),
            ("early", -3, 9),
        ):
            set_[name] = timers.at(now_ns + due, order, lambda who, due, now: seen.append(who), name)
        for name in cancel:
            timers.cancel(set_[name])
            timers.cancel(set_[name])
        timers.at(now_ns, 0, lambda *_: done.set(), None)
        async with asyncio.timeout(10):
            await done.wait()
        assert len(timers) == 0
        timers.close()

    kind(scenario())
    return seen


@pytest.mark.parametrize("no_timerfd", [False, True])
def test_timers_fire_by_due_then_kind_then_sequence(no_timerfd, monkeypatch):
    assert fired(asyncio.run, no_timerfd, monkeypatch) == ["early", "end", "end2", "deadline", "late"]


@pytest.mark.parametrize("no_timerfd", [False, True])
def test_cancelled_timers_do_not_fire(no_timerfd, monkeypatch):
    assert fired(asyncio.run, no_timerfd, monkeypatch, ("end", "late")) == ["early", "end2", "deadline"]


def test_timers_never_fire_early_and_forget_what_was_cancelled():
    async def scenario():
        timers, done = Timers(asyncio.get_running_loop()), asyncio.Event()
        early = []
        now_ns = time.monotonic_ns()
        for step in range(50):
            timers.at(now_ns + step * 300_000, 0, lambda _, due, now: early.append(now < due), None)
        far = [timers.at(now_ns + 10**15 + n, 0, pytest.fail, None) for n in range(5000)]
        for timer in far:
            timers.cancel(timer)
        assert len(timers) == 50
        assert len(timers._heap) < 2500
        timers.at(now_ns + 50 * 300_000, 0, lambda *_: done.set(), None)
        async with asyncio.timeout(10):
            await done.wait()
        assert early == [False] * 50
        timers.close()

    asyncio.run(scenario())
