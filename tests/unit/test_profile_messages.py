"""What people read when a profile is wrong: every problem at once, in the words that were settled on (snapshots)."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.profile.base import DurationNs, Part
from harness.profile.errors import Problem, ProfileError
from harness.profile.loader import load


class Params(Part):
    margin: float = 1.0
    window: DurationNs = 0


CHECKS: dict[str, type[Part]] = {"fairness.ordinary_unmoved": Params, "agent.replan_share": Part}

BROKEN = """\
name: bad one
durations: 120s
duration: 120
phases: {calm: [0s, 30s], burst: [20s, 200s], recovery: [70s]}
patience: 0s
patience_until: begin
service:
  workers: [8, {from: 20s, to: 10s, workers: 1}]
  service_time: 200
  admission: {policy: shared_fifo, queue: 0}
tenants:
  A: {rate: 8}
  B: {rate: 8/s, rates: 2/s}
  B: {rate: 8/s}
  1: {rate: 1/s}
  C: {rate: 8/s, recorded: {file: x.jsonl}}
  "x\\ty": {pace: even}
  D:
    rate: [8/s, {from: 30s, to: 70s, rate: 40}]
    replans: {calls: 2.5, after: 500, round: 3}
    budget: {rate: 10/s}
ordinary: [A, b, 5, A]
variants: {x: {tenants.E.rate: 4/s}, y: {service.admision.cap: 3}, z: 3}
checks: [fairness.ordinary, {fairness.ordinary_unmoved: {margn: 1, window: 2}}, {a: 1, b: 2}]
"""

SAID = """\
p.yaml:1:7: name: 'bad one': expected letters, digits, '.', '_' and '-', at most 100, a letter or digit first
p.yaml:2:1: durations: unknown key; did you mean 'duration'? (keys here: name, about, duration, phases, patience, \
patience_until, drain, seed, service, capacity, faults, tenants, ordinary, variants and 1 more)
p.yaml:3:11: duration: '120': expected a duration with its unit, such as 200ms, 2s, 5m or 1h
p.yaml:4:34: phases.burst: "['20s', '200s']": phases may not overlap, and 'calm' ends at 30s
p.yaml:4:57: phases.recovery: "['70s']": a window is [from, to], two durations
p.yaml:5:11: patience: '0s': a patience of 0 abandons every call; leave it out for endless patience
p.yaml:6:17: patience_until: 'begin': expected one of start, done
p.yaml:8:12: service.workers: "[8, {'from': '20s', 'to': '10s', 'workers': 1}]": a worker step must end after it begins
p.yaml:9:17: service.service_time: '200': expected a duration with its unit, such as 200ms, 2s, 5m or 1h
p.yaml:10:43: service.admission.queue: '0': policy shared_fifo needs a queue of at least 1 (a queue of 0 has nothing \
to order)
p.yaml:12:13: tenants.A.rate: '8': expected a rate with its unit, such as 8/s, 0.5/s or 20/m
p.yaml:13:18: tenants.B.rates: unknown key; did you mean 'rate'? (keys here: count, rate, pace, phase, recorded, \
runs, replans, on_refusal, budget, loop, throttle, retries, patience, claims and 1 more)
p.yaml:14:3: tenants.B: 'B': the key stands twice (first in line 13); remove one of the two
p.yaml:15:3: tenants: '1': a key must be text; write "1" in quotes
p.yaml:16:6: tenants.C: a tenant needs one of a rate, recorded arrivals or runs, and not more than one
p.yaml:17:3: tenants."x\\ty": a name has 1 to 200 characters, no control characters, and no space at its ends
p.yaml:17:11: tenants."x\\ty": a tenant needs one of a rate, recorded arrivals or runs, and not more than one
p.yaml:19:44: tenants.D.rate.1.rate: '40': expected a rate with its unit, such as 8/s, 0.5/s or 20/m
p.yaml:20:5: tenants.D.replans: 'rounds' is missing
p.yaml:20:22: tenants.D.replans.calls: '2.5': expected a whole number, such as 8
p.yaml:20:34: tenants.D.replans.after: '500': expected a duration with its unit, such as 200ms, 2s, 5m or 1h
p.yaml:20:39: tenants.D.replans.round: unknown key; did you mean 'rounds'? (keys here: calls, after, rounds, tools, \
order)
p.yaml:21:5: tenants.D.budget: 'burst' is missing
p.yaml:22:15: ordinary.1: 'b': there is no such tenant (tenants: A, B, C, x\\ty, D)
p.yaml:22:18: ordinary.2: '5': expected text; quote it if it looks like a number or a word such as true
p.yaml:22:21: ordinary.3: 'A': the tenant is named twice
p.yaml:23:16: variant x: 'tenants.E.rate': there is no tenants.E (there are: A, B, C, x\\ty, D)
p.yaml:23:42: variant y: 'service.admision.cap': there is no service.admision; did you mean 'admission'? (there are: \
workers, service_time, admission)
p.yaml:23:71: variants.z: '3': a variant is a mapping: {dotted.path: value}
p.yaml:24:10: checks.0: 'fairness.ordinary': there is no such check; did you mean 'fairness.ordinary_unmoved'? \
(checks: fairness.ordinary_unmoved, agent.replan_share)
p.yaml:24:58: checks.1."fairness.ordinary_unmoved".margn: unknown key; did you mean 'margin'? (keys here: \
margin, window)
p.yaml:24:76: checks.1."fairness.ordinary_unmoved".window: '2': expected a duration with its unit, such as 200ms, \
2s, 5m or 1h
p.yaml:24:81: checks.2: a check is its name, or its name with parameters: {name: {parameter: value}}"""


@pytest.fixture
def said(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def _said(text: str, **options) -> list[str]:
        Path("p.yaml").write_text(text)
        with pytest.raises(ProfileError) as caught:
            load(Path("p.yaml"), checks=CHECKS, **options)
        return str(caught.value).splitlines()

    return _said


def test_every_problem_at_once(said):
    assert said(BROKEN) == SAID.splitlines()


SOUND = """\
name: a
duration: 100s
phases: {calm: [0s, 30s], burst: [30s, 70s]}
service:
  workers: [8, {from: 30s, to: 60s, workers: 4}]
  service_time: 200ms
  admission: {policy: tenant_cap, queue: 10, cap: 8}
tenants:
  A: {rate: [8/s, {from: 30s, to: 70s, rate: 40/s}]}
ordinary: [A]
"""


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (
            "cap: 8",
            "cap: 9",
            "7:51: service.admission.cap: '9': the cap is above the 8 workers, so it would never bind",
        ),
        (", cap: 8", "", "7:14: service.admission: policy tenant_cap needs cap"),
        ("to: 70s", "to: 101s", "the step ends after the trial (duration: 100s)"),
        ("to: 70s, rate", "to: 20s, rate", "a rate step must end after it begins"),
        ("[30s, 70s]", "[30s, 101s]", "3:34: phases.burst: \"['30s', '101s']\": the phase ends after the trial"),
        ("[30s, 70s]", "[20s, 70s]", "phases may not overlap, and 'calm' ends at 30s"),
        ("[30s, 70s]", "[70s, 30s]", "a window must end after it begins"),
        ("ordinary: [A]", "ordinary: [B]", "there is no such tenant (tenants: A)"),
        ("duration: 100s", "duration: 0s", "2:11: duration: '0s': a trial must last longer than zero"),
        ("from: 30s, to: 60s", "from: 100s, to: 160s", "5:16: service.workers.1: the step begins after the trial"),
        ("service_time: 200ms", "service_time: {distribution: lognormal, mean: 2s}", "'lognormal' needs sigma"),
        ("service_time: 200ms", "service_time: 0s", "a service time must be above zero"),
        ("service_time: 200ms", "service_time: {distribution: recorded_cost, base: 0s, per_unit: 0s}", "above zero"),
        ("policy: tenant_cap", "policy: fair", "'fair': expected one of shared_fifo, tenant_cap, fair_queues"),
        ("policy: tenant_cap", "policy: fair_queue", "; did you mean 'fair_queues'?"),
        ("ordinary: [A]", "tenants: {}", "the key stands twice (first in line 8)"),
        ("workers: [8, {", "workers: [0, {", "service.workers.0: '0': expected at least 1"),
        ("workers: [8, {", "workers: [true, {", "service.workers.0: 'true': expected a whole number"),
        ("ordinary: [A]", "ordinary: A", "ordinary: 'A': expected a list, such as [a, b]"),
        (
            "phases: {calm: [0s, 30s], burst: [30s, 70s]}",
            "phases: 5",
            "expected a mapping with keys such as calm, burst",
        ),
    ],
)
def test_contradictions_are_refused_where_they_stand(said, before, after, message):
    assert before in SOUND
    assert any(message in line for line in said(SOUND.replace(before, after)))


def test_the_healthy_twin_of_the_contradictions_loads(tmp_path):
    path = tmp_path / "p.yaml"
    path.write_text(SOUND)
    load(path, checks=CHECKS)


def test_rules_between_fields_are_told_beside_broken_fields(said):
    text = SOUND.replace("[A]", "[B]").replace("cap: 8", "cap: 9").replace("[30s, 70s]", "[20s, 170s]") + "seed: x\n"
    text = text.replace("service_time: 200ms", "service_time: 200")
    shown = "\n".join(said(text))
    for message in ("no such tenant", "would never bind", "may not overlap", "after the trial", "seed: 'x'", "unit"):
        assert message in shown


def test_a_value_of_a_variant_is_blamed_on_the_variant(said):
    text = SOUND + "variants:\n  slow:\n    service.service_time: 200\n    ordinary: [Z]\n"
    assert said(text, variant="slow") == [
        "p.yaml:13:27: variant slow: service.service_time: '200': expected a duration with its unit, such as 200ms, "
        "2s, 5m or 1h",
        "p.yaml:14:16: variant slow: ordinary.0: 'Z': there is no such tenant (tenants: A)",
    ]


def test_a_long_list_of_problems_is_cut(said):
    text = "name: a\nduration: 1s\ntenants:\n" + "".join(f"  t{i}: {{rate: {i}}}\n" for i in range(5000))
    shown = said(text)
    assert len(shown) == 51
    assert shown[-1].startswith("... and at least 150 more")


def test_nothing_in_a_message_can_move_a_cursor():
    problem = Problem("p\n.yaml", 1, 2, 'tenants."\\u202e"', "\x1b[31m\n\u2028", "rule", variant="\x07")
    assert str(problem).isprintable()
