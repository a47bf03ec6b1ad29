"""The text that Prometheus reads, and who has series of its own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stub_service.exposition import (
    BY_TENANT,
    COUNTER,
    GAUGE,
    INFO,
    OFFERED,
    OTHERS,
    QUEUE_WAIT,
    Busiest,
    Metric,
    family,
    histogram,
    one,
    per_label,
    text,
    wants_openmetrics,
)

HOSTILE = 'q"uo\\te\n{},é\udcff'
FAMILIES = [
    family(OFFERED, [(("service", HOSTILE), 3), (("service", "b"), 0)]),
    histogram(QUEUE_WAIT, [(("service", HOSTILE), [0, 1, *[0] * 13, 2], 3_001_500_000)]),
    one(Metric("overload_x_ratio", GAUGE, "A gauge.", (), "ratio"), 0.25),
    family(Metric("overload_trial_info", INFO, "An info.", ("profile",)), [(("p",), 1)]),
    family(Metric("overload_none_total", COUNTER, "No samples yet.", ("a",)), []),
]


def test_the_text_format():
    said = text(FAMILIES).decode()
    label = 'source="service",tenant="q\\"uo\\\\te\\n{},é\\udcff"'
    for line in (
        "# HELP overload_offered_total Calls that were to be sent, came to admission, or are in the log.",
        "# TYPE overload_offered_total counter",
        f"overload_offered_total{{{label}}} 3",
        f'overload_queue_wait_seconds_bucket{{{label},le="0.001"}} 0',
        f'overload_queue_wait_seconds_bucket{{{label},le="0.002"}} 1',
        f'overload_queue_wait_seconds_bucket{{{label},le="60.0"}} 1',
        f'overload_queue_wait_seconds_bucket{{{label},le="+Inf"}} 3',
        f"overload_queue_wait_seconds_count{{{label}}} 3",
        f"overload_queue_wait_seconds_sum{{{label}}} 3.0015",
        "overload_x_ratio 0.25",
        "# TYPE overload_trial_info gauge",
        "# TYPE overload_none_total counter",
    ):
        assert line in said.split("\n")
    assert "# UNIT" not in said
    assert "# EOF" not in said


def test_openmetrics_names_families_without_their_suffix_and_ends():
    said = text(FAMILIES, openmetrics=True).decode()
    for line in ("# TYPE overload_offered counter", "# UNIT overload_queue_wait_seconds seconds",
                 "# TYPE overload_trial info", 'overload_trial_info{profile="p"} 1'):  # fmt: skip
        assert line in said.split("\n")
    assert said.endswith("\n# EOF\n")


def test_the_reference_parsers_understand_both():
    classic = pytest.importorskip("prometheus_client.parser")
    strict = pytest.importorskip("prometheus_client.openmetrics.parser")
    for parse, openmetrics in ((classic.text_string_to_metric_families, False),
                               (strict.text_string_to_metric_families, True)):  # fmt: skip
        said = {metric.name: metric for metric in parse(text(FAMILIES, openmetrics).decode())}
        (tenant,) = {sample.labels["tenant"] for sample in said["overload_queue_wait_seconds"].samples}
        assert tenant == 'q"uo\\te\n{},é\\udcff'
        assert [sample.value for sample in said["overload_offered"].samples] == [3, 0]


def test_openmetrics_is_for_those_who_ask_for_it():
    assert wants_openmetrics("application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5")
    assert not wants_openmetrics("text/plain")
    assert not wants_openmetrics(None)


# Who has series of its own


def shown(busiest, now, gone=0):
    found = busiest.look({name: (count,) for name, count in now.items()}, (sum(now.values()) + gone,))
    return {name: counters[0] for name, counters in found.items()}


def test_few_tenants_have_series_each():
    assert shown(Busiest(3), {"a": 1, "b": 0}) == {"a": 1, "b": 0}


def test_the_busiest_have_series_and_the_rest_share_one():
    assert shown(Busiest(2), {"a": 1, "b": 5, "c": 3, "d": 2}) == {"b": 5, "c": 3, OTHERS: 3}


def test_a_runaway_that_comes_late_gets_a_place_and_others_do_not_fall():
    busiest = Busiest(2)
    now = {"a": 10, "b": 10, "late": 4}
    assert shown(busiest, now) == {"a": 10, "b": 10, OTHERS: 4}
    now = {"a": 20, "b": 11, "late": 104}
    assert shown(busiest, now) == {"a": 20, "late": 100, OTHERS: 5}  # what it did before, and b's last call
    now = {"a": 30, "b": 111, "late": 304}
    assert shown(busiest, now) == {"late": 300, "b": 100, OTHERS: 15}


def test_one_that_was_forgotten_begins_anew():
    busiest = Busiest(2)
    shown(busiest, {"a": 10, "b": 10})
    assert shown(busiest, {"a": 10}, gone=12) == {"a": 10, OTHERS: 2}
    assert shown(busiest, {"a": 10, "b": 1}, gone=12) == {"a": 10, "b": 1, OTHERS: 2}


def test_a_tenant_called_like_the_others_is_one_of_them():
    assert shown(Busiest(5), {OTHERS: 2, "a": 1}) == {"a": 1, OTHERS: 2}


@given(st.lists(st.lists(st.integers(0, 300), min_size=6, max_size=6), max_size=12), st.integers(1, 4))
def test_no_series_falls_and_everything_is_counted(steps, most):
    """Of a series that goes on; one that ended and began again starts at nothing."""
    busiest = Busiest(most)
    now, before, ended, told = dict.fromkeys("abcdef", 0), {}, 0, 0
    for step in steps:
        now = {name: now[name] + step[place] for place, name in enumerate(now)}
        found = shown(busiest, now)
        assert len(found) <= most + 1
        ended += sum(value for name, value in before.items() if name not in found)
        for name, value in found.items():
            assert value >= before.get(name, 0) or name not in before
        before, told = found, sum(found.values())
        assert told + ended == sum(now.values())


def test_values_of_now_are_those_of_the_labels():
    values = {"a": 1, "b": 2, "c": 3}
    assert dict(per_label(["a"], values)) == {"a": 1}
    assert dict(per_label(["a", OTHERS], values)) == {"a": 1, OTHERS: 5}


def test_every_sample_has_the_labels_of_its_metric():
    with pytest.raises(ValueError):
        family(Metric("overload_x", GAUGE, "", BY_TENANT), [(("only one",), 1)])
