"""docs/metrics.md against the code: every series that is told is there as it is, and nothing else."""

from __future__ import annotations

import re

import pytest

from harness.profile.model import Profile
from harness.recorded import watch_metrics
from harness.recorded.account import Account
from harness.recorded.watching import Rules, Watch
from harness.report import prometheus
from harness.report.prometheus import TrialMetrics
from stub_service import capacity_metrics, metrics
from stub_service.capacity.cost_config import CostConfig
from stub_service.capacity.costs import CostControl
from stub_service.capacity_metrics import CapacityMetrics
from stub_service.exposition import COMMON, COUNTER, HISTOGRAM, INFO, SUMMARY, Busiest, text
from stub_service.metrics import Metrics
from tests.conftest import ROOT, WORKED_EXAMPLE

PAGE = (ROOT / "docs" / "metrics.md").read_text()
KNOWN = {
    metric.name: metric
    for metric in (*COMMON, *prometheus.METRICS, *metrics.METRICS, *capacity_metrics.METRICS, *watch_metrics.METRICS)
}
LAG = {"samples": 0, "p50_ns": 0, "p99_ns": 0, "max_ns": 0}


def capacity():
    told = CapacityMetrics(["x"])
    return told.families({}, (), CostControl(CostConfig(), lambda: 0, told.decided, lambda run, why: None))


TOLD_BY = {
    "run": TrialMetrics(Profile.model_validate(WORKED_EXAMPLE)).families,
    "stub": lambda: [*Metrics().families(1, LAG, 0), *capacity()],
    "watch": lambda: watch_metrics.families(Watch(Rules()), Account(), Busiest()),
}


def row(metric):
    by = [name for name, families in TOLD_BY.items() if metric in [one.metric for one in families()]]
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    return f"| `{metric.name}` | {metric.kind} | {labels} | {', '.join(by)} | {metric.about} |"


@pytest.mark.parametrize("name", KNOWN)
def test_the_page_has_each_as_it_is(name):
    assert row(KNOWN[name]) in PAGE.splitlines(), f"docs/metrics.md lacks, or has otherwise:\n{row(KNOWN[name])}"


def test_the_page_has_no_other():
    assert set(re.findall(r"^\| `(overload_\w+)`", PAGE, re.MULTILINE)) == set(KNOWN)


@pytest.mark.parametrize("by", TOLD_BY)
def test_nothing_is_told_that_is_not_known(by):
    """Each once in an answer, too: a scrape with a name twice is refused."""
    families = [one.metric for one in TOLD_BY[by]()]
    assert len(families) == len(set(families))
    assert all(KNOWN[metric.name] is metric for metric in families)


@pytest.mark.parametrize("metric", KNOWN.values(), ids=list(KNOWN))
def test_names_keep_the_rules(metric):
    """prometheus.io/docs/practices/naming: base units, `_total` of what only grows."""
    assert re.fullmatch(r"overload_[a-z][a-z_]*", metric.name)
    assert metric.name.endswith("_total") == (metric.kind == COUNTER)
    assert metric.name.endswith("_info") == (metric.kind == INFO)
    assert metric.name.endswith("_seconds") == (metric.unit == "seconds")
    assert metric.unit or metric.kind not in (HISTOGRAM, SUMMARY)
    assert metric.about.endswith(".")
    assert "\n" not in metric.about


def test_the_texts_are_what_the_reference_parsers_take():
    classic = pytest.importorskip("prometheus_client.parser")
    strict = pytest.importorskip("prometheus_client.openmetrics.parser")
    for families in TOLD_BY.values():
        assert list(classic.text_string_to_metric_families(text(families()).decode()))
        assert list(strict.text_string_to_metric_families(text(families(), openmetrics=True).decode()))


if __name__ == "__main__":
    print("\n".join(row(metric) for metric in KNOWN.values()))
