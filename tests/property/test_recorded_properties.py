"""What must hold for all logs: nothing but the typed error, no call lost, order, exact factors."""

import gzip
import json
import tempfile
from collections import Counter
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.recorded import sorting, transform
from harness.recorded.account import Account
from harness.recorded.errors import RecordedError
from harness.recorded.fields import parse_map, path_of, tenant_name
from harness.recorded.formats import NAMES
from harness.recorded.prepare import Bound, Plan, Runaway, prepare
from harness.recorded.reader import Reading, read
from harness.recorded.record import Record
from harness.recorded.schedule import file_name, source, write
from harness.workload.callers import Arrival
from tests.unit.recorded_fixtures import COMBINED, CSV, JSON_LINES
from tests.unit.recorded_fixtures import source as log

S = 1_000_000_000
TENANTS = st.sampled_from(["remote_addr", "user", "file", "header:x", "field:time", "field:a.b", "path:1", None])
ROLES = st.sampled_from(["", "time=ts", "time=TIMESTAMP,cost=GeneratedTokens,queue_time=ContextTokens:ms"])
TEXTS = st.one_of(
    st.binary(max_size=300),
    st.binary(max_size=200).map(gzip.compress),
    st.binary(max_size=200).map(lambda data: b"\x1f\x8b" + data),
    st.tuples(st.sampled_from([COMBINED, JSON_LINES, CSV]), st.integers(0, 400), st.binary(max_size=8)).map(
        lambda cut: cut[0].encode()[: cut[1]] + cut[2] + cut[0].encode()[cut[1] :]
    ),
    st.recursive(
        st.none() | st.booleans() | st.floats(-1e9, 1e9) | st.integers() | st.text(max_size=9),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abx"), inner, max_size=3),
        max_leaves=6,
    ).map(lambda value: ('{"time": 1431857103, "x": ' + json.dumps(value) + "}\n").encode("utf-8", "replace")),
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(TEXTS, st.sampled_from(NAMES), TENANTS, ROLES)
def test_reading_any_bytes_gives_records_or_the_typed_error(data, kind, tenant, roles):
    account = Account()
    try:
        found = list(read([log(data)], Reading(kind, parse_map(roles), tenant, spread_seed=1), account))
    except RecordedError as error:
        found = None
        message = str(error)
    if found is None:
        assert message.isprintable()
        return
    account.kept = account.read
    assert account.balanced()
    assert len(found) == account.read
    for record in found:
        assert record.t_ns >= 0
        assert record.tenant.isprintable()
        assert 1 <= len(record.tenant) <= 200
        assert record.path is None or path_of(record.path) == record.path


@given(st.text(max_size=400), st.text(max_size=400))
def test_two_names_become_one_only_if_they_are_one(one, other):
    if one.strip() != other.strip():
        assert tenant_name(one) != tenant_name(other) or tenant_name(one) == "(none)"
    assert tenant_name(tenant_name(one)) == tenant_name(one)


RECORDS = st.lists(st.tuples(st.integers(0, 100 * S), st.sampled_from("abcdef")), min_size=1, max_size=60).map(
    lambda calls: [Record(t_ns, place, tenant) for place, (t_ns, tenant) in enumerate(calls)]
)


@settings(deadline=None)
@given(RECORDS, st.integers(1, 7))
def test_sorting_in_bounded_memory_is_sorting(records, chunk):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sorting, "MERGE_RUNS", 3)
        assert list(sorting.in_order(iter(records), chunk)) == sorted(records)


@settings(deadline=None)
@given(RECORDS, st.integers(1, 7))
def test_a_spool_gives_back_what_went_in_twice(records, chunk):
    with tempfile.TemporaryDirectory() as folder:
        spool = sorting.Spool(records, Path(folder), chunk)
        assert list(spool) == list(spool) == records


INSTANTS = st.lists(st.integers(0, 10**15), min_size=1, max_size=40).map(sorted)


@given(INSTANTS, st.integers(1, 10**13))
def test_squeezing_keeps_short_gaps_shortens_long_ones_and_is_done_once(instants, limit):
    def squeezed(given_ns):
        clock = transform.TrialClock(given_ns[0], limit, Fraction(1))
        return [clock.at(t) for t in given_ns]

    once = squeezed(instants)
    gaps = [b - a for a, b in pairwise(instants)]
    assert [b - a for a, b in pairwise(once)] == [min(gap, limit) for gap in gaps]
    assert squeezed(once) == once


@given(INSTANTS, st.integers(1, 1000), st.integers(1, 1000))
def test_speeds_multiply_up_to_a_nanosecond_and_keep_the_order(instants, one, other):
    def at(given_ns, speed):
        clock = transform.TrialClock(given_ns[0], None, Fraction(speed))
        return [clock.at(t) for t in given_ns]

    both = at(instants, one * other)
    assert both == sorted(both)
    assert all(abs(a - b) <= 1 for a, b in zip(at(at(instants, one), other), both, strict=True))
    assert at(instants, Fraction(1, one)) == [(t - instants[0]) * one for t in instants]


@given(RECORDS, st.integers(1, 5), st.integers(1, 5 * S), st.randoms(use_true_random=False))
def test_amplifying_is_exact_and_in_order(records, factor, spread_ns, rng):
    end_ns = 100 * S + 1
    account = Account()
    found = list(transform.amplify(sorted(records), {"a": factor}, spread_ns, end_ns, Random(rng.random()), account))
    before, after = Counter(r.tenant for r in records), Counter(r.tenant for r in found)
    assert after == Counter({**before, **({"a": before["a"] * factor} if before["a"] else {})})
    assert [r.t_ns for r in found] == sorted(r.t_ns for r in found)
    assert all(0 <= r.t_ns < end_ns for r in found)
    assert account.amplified == before["a"] * (factor - 1)


@settings(max_examples=60, deadline=None)
@given(
    RECORDS,
    st.one_of(st.none(), st.integers(0, 100 * S)),
    st.one_of(st.none(), st.integers(1, 20 * S)),
    st.fractions(Fraction(1, 10), 50),
    st.one_of(st.none(), st.integers(1, 4)),
    st.booleans(),
    st.booleans(),
    st.integers(1, 9),
)
def test_no_call_is_lost_on_the_way(records, begin, squeeze_ns, speed, top, hide, runs_away, chunk):
    text = "".join(f'{{"time": "{r.t_ns / S:.9f}", "who": "{r.tenant}"}}\n' for r in records)
    reading = Reading(roles=parse_map("tenant=who"))
    runaway = Runaway(records[0].tenant, Fraction(5)) if runs_away else None
    plan = Plan(
        None if begin is None else Bound(begin, True), None, squeeze_ns, speed, top, {}, runaway, b"k" if hide else None
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        try:
            found = prepare([log(text)], reading, plan, folder, chunk=chunk)
        except RecordedError:
            return  # nothing in the window, or not of the runaway, or too short a trial for one
        account = found.account
        assert account.balanced()
        assert account.read == len(records)
        written = [list(source(folder)(file_name(place))) for place in range(len(found.tenants))]
        assert [len(rows) for rows in written] == [t.recorded + t.added for t in found.tenants]
        assert sum(map(len, written)) == account.planned == account.kept + account.runaway
        assert all(row.due_ns < found.duration_ns for rows in written for row in rows)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.builds(
            Arrival, st.integers(0, 2**60), st.floats(0, 1e300) | st.just(-1.0), st.none() | st.just("GET"),
            st.none() | st.text(max_size=5).filter(str.isprintable),
        ),
        max_size=30,
    ).map(lambda arrivals: sorted(arrivals, key=lambda arrival: arrival.due_ns))
)  # fmt: skip
def test_a_schedule_file_gives_back_what_was_written(arrivals):
    with tempfile.TemporaryDirectory() as name:
        write(Path(name) / "x.jsonl", arrivals)
        assert list(source(Path(name))("x.jsonl")) == arrivals


@given(st.text(min_size=4, max_size=50), st.binary(min_size=1, max_size=40))
def test_anonymising_is_stable_and_hides_the_name(name, key):
    hidden = transform.Anonymiser(key).name(name)
    assert hidden == transform.Anonymiser(key).name(name)
    assert name not in hidden or name in "t-0123456789abcdef"
    assert hidden != transform.Anonymiser(key + b"x").name(name)
