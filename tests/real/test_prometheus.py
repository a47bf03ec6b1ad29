"""A real Prometheus: scrapes the harness, the stub and a watch during a trial, and then every panel and alert is asked.

Panels are those of docs/dashboards/overload.json as they stand; only Grafana's variables are filled in.
"""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from contextlib import ExitStack, contextmanager

import pytest

from harness.report.summary import WHOLE
from harness.simulate.service import capacity_config, shared_service
from harness.target.stub import StubProcess
from tests.conftest import ROOT
from tests.live.driving import loaded
from tests.real.services import free_ports, running

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("services")]

DASHBOARDS = ROOT / "docs" / "dashboards"
DASHBOARD = json.loads((DASHBOARDS / "overload.json").read_text())
PROFILE = ROOT / "tests" / "real" / "dashboards.yaml"
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
CONFIG = """
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: [{rules}]
scrape_configs:
  - {{job_name: harness, static_configs: [{{targets: ["127.0.0.1:{harness}"]}}]}}
  - {{job_name: stub, static_configs: [{{targets: ["127.0.0.1:{stub}"]}}]}}
  - {{job_name: watch, static_configs: [{{targets: ["127.0.0.1:{watch}"]}}]}}
"""
VARIABLES = {"$__rate_interval": "4s", "$source": "callers", "$tenant": ".+"}


def installed(name):
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed: apt-get install --no-install-recommends prometheus")
    return found


class Prometheus:
    def __init__(self, port):
        self._api = f"http://127.0.0.1:{port}/api/v1/"

    def ask(self, path, **query):
        url = self._api + path + "?" + urllib.parse.urlencode(query)
        with urllib.request.urlopen(url, timeout=30) as answer:
            said = json.load(answer)
        assert said["status"] == "success", said
        return said["data"]

    def over(self, expr, begin, end):
        """(labels, values) of every series of an expression over a time."""
        asked = {"query": expr, "start": begin, "end": end, "step": "1"}
        found = self.ask("query_range", **asked)["result"]
        return [(one["metric"], [float(value) for _, value in one["values"]]) for one in found]


@contextmanager
def prometheus(folder, **targets):
    (port,) = free_ports(1)
    shutil.copy(DASHBOARDS / "alerts.yaml", folder / "alerts.yaml")
    (folder / "prometheus.yml").write_text(CONFIG.format(rules="alerts.yaml", **targets))
    address = f"127.0.0.1:{port}"
    command = [installed("prometheus"), "--config.file=prometheus.yml", "--storage.tsdb.path=data"]
    with running([*command, f"--web.listen-address={address}", "--log.level=warn"], address, folder):
        yield Prometheus(port)


def log_line(at_s, tenant, status):
    when = time.strftime("%d/%b/%Y:%H:%M:%S +0000", time.gmtime(at_s))
    return f'{tenant} - - [{when}] "GET / HTTP/1.1" {status} 1 "-" "-"\n'


@pytest.fixture(scope="module")
def scraped(tmp_path_factory):
    """(Prometheus, when the trial began and ended): one trial of all, since it takes a quarter of a minute."""
    installed("prometheus")
    folder = tmp_path_factory.mktemp("prometheus")
    made = loaded(PROFILE).profile
    (folder / "evidence").mkdir()
    log = folder / "access.log"
    log.write_text("".join(log_line(time.time() - 60 + at, "looping", 429) for at in range(60)))
    harness, watch = free_ports(2)
    overload = [sys.executable, "-m", "harness"]
    with ExitStack() as stack:
        capacity = capacity_config(made)
        stub = stack.enter_context(StubProcess(shared_service(made), folder / "evidence", capacity=capacity))
        watching = [*overload, "watch", str(log), "--metrics-port", str(watch), "--json"]
        stack.enter_context(running(watching, f"127.0.0.1:{watch}", folder))
        prom = stack.enter_context(prometheus(folder, harness=harness, stub=stub.port, watch=watch))
        begin = time.time()
        run = [*overload, "run", str(PROFILE), "--target", stub.url, "--metrics-port", str(harness), "--json"]
        done = subprocess.run(run, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode in (0, 1, 3, 4), done.stderr
        time.sleep(2)  # for the last scrape, which no event tells of
        yield prom, begin, time.time(), json.loads(done.stdout)


def filled(expr):
    for name, value in VARIABLES.items():
        expr = expr.replace(name, value)
    assert "$" not in expr
    return expr


@pytest.mark.parametrize(
    ("title", "expr"), [(panel["title"], target["expr"]) for panel in PANELS for target in panel["targets"]]
)
def test_every_panel_has_something_to_show(scraped, title, expr):
    prom, begin, end, _ = scraped
    series = prom.over(filled(expr), begin, end)
    values = [value for _, of in series for value in of if not math.isnan(value)]
    assert values, f"{title}: {expr}"
    assert all(math.isfinite(value) for value in values)
    if title not in ("Cost: balance and reserved",):
        assert min(values) >= 0
    if title == "Re-plan share":
        assert max(values) <= 1.2  # rates of two counters that were scraped together, extrapolated


def peak(prom, begin, end, expr, **labels):
    series = prom.over(filled(expr), begin, end)
    found = [max(of) for metric, of in series if labels.items() <= metric.items()]
    assert len(found) == 1, (expr, labels, [metric for metric, _ in series])
    return found[0]


def test_the_figures_are_those_of_the_trial(scraped):
    """Counters at the end against the ledger: what was scraped last may be a second old."""
    prom, begin, end, said = scraped
    rows = {row["tenant"]: row for row in said["trials"][0]["rows"] if row["phase"] == WHOLE}
    for tenant in ("A", "B", "D"):
        for key in ("offered", "served", "refused"):
            scraped_last = peak(prom, begin, end, f'overload_{key}_total{{source="callers"}}', tenant=tenant)
            told = rows[tenant][key]
            assert told * 0.7 - 5 <= scraped_last <= told, (tenant, key)
    ours = peak(prom, begin, end, 'overload_served_total{source="callers"}', tenant="D")
    theirs = peak(prom, begin, end, 'overload_served_total{source="service"}', tenant="D")
    assert abs(ours - theirs) <= 0.3 * theirs + 5


def test_the_runaway_is_seen_and_alerted_on(scraped):
    prom, begin, end, _ = scraped
    (share,) = [target["expr"] for panel in PANELS if panel["title"] == "Re-plan share" for target in panel["targets"]]
    assert peak(prom, begin, end, share, tenant="D") > 0.2 > peak(prom, begin, end, share, tenant="A")
    assert peak(prom, begin, end, "overload_stub_circuit_state", dependency="model") == 2
    assert peak(prom, begin, end, "overload_watch_alerting", tenant="looping", kind="level") == 1
    assert peak(prom, begin, end, 'overload_replan_share{source="log"}', tenant="looping") > 0.9
    alerts = {(metric["alertname"], metric.get("tenant")) for metric, _ in prom.over("ALERTS", begin, end)}
    assert {("OverloadReplanShare", "D"), ("OverloadWatchThreshold", "looping")} <= alerts
    assert ("OverloadOrdinaryTenantRefused", "D") not in alerts
    assert {name for name, _ in alerts} <= {
        rule["name"] for group in prom.ask("rules")["groups"] for rule in group["rules"]
    }


def test_scrapes_are_in_openmetrics_and_none_failed(scraped):
    prom, _, _, _ = scraped
    targets = {one["labels"]["job"]: one for one in prom.ask("targets")["activeTargets"]}
    assert targets["stub"]["lastError"] == targets["watch"]["lastError"] == ""
    kinds = {name: {one["type"] for one in of} for name, of in prom.ask("metadata").items()}
    assert kinds["overload_queue_wait_seconds"] == {"histogram"}
    assert kinds.get("overload_offered", kinds.get("overload_offered_total")) == {"counter"}


@pytest.mark.parametrize("rules", ["check", "test"])
def test_promtool_accepts_the_alerts_and_they_fire_on_what_they_are_for(tmp_path, rules):
    shutil.copy(DASHBOARDS / "alerts.yaml", tmp_path)
    shutil.copy(ROOT / "tests" / "real" / "alerts_test.yaml", tmp_path)
    file = "alerts.yaml" if rules == "check" else "alerts_test.yaml"
    done = subprocess.run(
        [installed("promtool"), rules, "rules", file], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_has_nothing_against_the_stub_s_metrics(tmp_path):
    """Its linter, too: names, units, help."""
    (tmp_path / "evidence").mkdir()
    made = loaded(PROFILE).profile
    with StubProcess(shared_service(made), tmp_path / "evidence", capacity=capacity_config(made)) as stub:
        text = stub.metrics()
    done = subprocess.run(
        [installed("promtool"), "check", "metrics"], input=text, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_the_dashboard_is_one_that_grafana_imports():
    """What its schema asks for: a current version, a data source to choose, panels that do not lie over each other."""
    assert DASHBOARD["schemaVersion"] >= 39
    assert [one["type"] for one in DASHBOARD["templating"]["list"]] == ["datasource", "custom", "query"]
    numbers = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(numbers) == len(set(numbers))
    taken = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert at["x"] + at["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells
    for panel in PANELS:
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert panel["description"]
        assert all(re.search(r"overload_", target["expr"]) for target in panel["targets"])
