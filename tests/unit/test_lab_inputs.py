"""The lab's fields: they describe the worked example, and every problem of a profile is told at its field."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from harness.lab.inputs import DEFAULTS, FIELDS, MOST_TENANTS, POLICIES, TOUR, Inputs, document, read
from harness.profile.loader import load, variant_names
from stub_service.admission.registry import POLICIES as REGISTERED

WORKED = Path(__file__).resolve().parents[2] / "profiles" / "worked_example.yaml"


def with_(**changes: str) -> dict[str, str]:
    """The defaults with some inputs changed; a dot is written `__`."""
    return {**DEFAULTS, **{name.replace("__", "."): value for name, value in changes.items()}}


def errors(inputs: Inputs) -> dict[str, list[str]]:
    found = read(inputs)
    assert found.loaded is None
    return found.errors


def comparable(made: dict[str, object]) -> dict[str, object]:
    return {key: value for key, value in made.items() if key not in ("name", "about", "seed")}


@pytest.mark.parametrize("step", TOUR, ids=lambda step: step.title)
def test_the_tour_is_the_worked_example_row_by_row(step):
    """Defaults and steps are the profile that people read, and each of its variants."""
    loaded = read({**DEFAULTS, **dict(step.change)}).loaded
    published = load(WORKED, variant=step.variant or None)
    assert loaded is not None
    mine, theirs = loaded.profile.model_dump(), published.profile.model_dump()
    assert comparable(mine) | {"variants": {}} == comparable(theirs) | {"variants": {}}


def test_the_tour_has_every_variant():
    assert [step.variant for step in TOUR[1:]] == list(variant_names(WORKED))


def test_every_policy_of_the_service_can_be_chosen_and_runs():
    assert set(POLICIES) == set(REGISTERED)
    for policy in POLICIES:
        assert read(with_(policy=policy)).loaded is not None


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"workers": "x"}, "workers", "whole number"),
        ({"workers": "0"}, "workers", "at least 1"),
        ({"workers": "-3"}, "workers", "whole number"),
        ({"service_time": "200"}, "service_time", "with its unit"),
        ({"service_time": "0s"}, "service_time", "above zero"),
        ({"policy": "fifo"}, "policy", "expected one of"),
        ({"queue": "0"}, "queue", "at least 1"),
        ({"policy": "fair_queues", "queue_per_tenant": "many"}, "queue_per_tenant", "whole number"),
        ({"policy": "tenant_cap", "cap": "9"}, "cap", "above the 8 workers"),
        ({"policy": "shuffle_sharded", "queues": "2", "hand": "4"}, "hand", "cannot be dealt"),
        ({"tenant__1__rate": "8"}, "tenant.1.rate", "rate with its unit"),
        ({"tenant__1__name": "  "}, "tenant.1.name", "no space at its ends"),
        ({"policy": "fair_queues", "tenant__2__weight": "0"}, "tenant.2.weight", "at least 1"),
        ({"policy": "fair_queues", "agent__weight": "1000"}, "agent.weight", "at most 100"),
        ({"agent__name": "A"}, "agent.name", "another tenant"),
        ({"agent__rate": "fast"}, "agent.rate", "rate with its unit"),
        ({"burst__rate": ""}, "burst.rate", "rate with its unit"),
        ({"burst__from": "soon"}, "burst.from", "duration with its unit"),
        ({"burst__for": "40"}, "burst.for", "duration with its unit"),
        ({"burst__for": "0s"}, "burst.for", "end after it begins"),
        ({"burst__for": "200s"}, "burst.for", "ends after the trial"),
        ({"replans__calls": "101"}, "replans.calls", "at most 100"),
        ({"replans__rounds": "1.5"}, "replans.rounds", "whole number"),
        ({"replans__after": "half"}, "replans.after", "duration with its unit"),
        ({"budget": "on", "budget__rate": "10"}, "budget.rate", "rate with its unit"),
        ({"budget": "on", "budget__burst": "0"}, "budget.burst", "at least 1"),
        ({"budget": "on", "budget__scope": "call"}, "budget.scope", "expected one of"),
        ({"patience": "0s"}, "patience", "abandons every call"),
        ({"duration": "0s"}, "duration", "longer than zero"),
        ({"seed": "-1"}, "seed", "whole number"),
        ({"tenants": "0"}, "tenants", "1 to 12"),
        ({"tenants": "1e3"}, "tenants", "1 to 12"),
        ({"workers": "8" * 201}, "workers", "at most 200 characters"),
    ],
)
def test_a_problem_is_told_at_its_field(changes, field, words):
    found = errors(with_(**changes))
    assert field in found, found
    assert any(words in message for message in found[field]), found


def test_problems_come_all_at_once_each_at_its_own_field():
    found = errors(with_(workers="x", service_time="1", tenant__0__rate="y", budget="on", budget__burst="z"))
    assert set(found) == {"workers", "service_time", "tenant.0.rate", "budget.burst"}


def test_what_a_policy_does_not_use_is_not_asked_of_it():
    assert read(with_(cap="nonsense", queues="nonsense", budget__rate="nonsense")).loaded is not None


def test_names_that_need_quotes_find_their_fields():
    found = errors(with_(tenant__0__name="a.b c", tenant__0__rate="x", agent__name='q"uote', burst__rate="y"))
    assert set(found) == {"tenant.0.rate", "burst.rate"}


def test_inputs_that_no_form_made_are_refused():
    assert "missing" in errors({k: v for k, v in DEFAULTS.items() if k != "workers"})["workers"][0]
    assert "no input 'hostile'" in errors({**DEFAULTS, "hostile": "1"})[""][0]
    assert "no input 'tenant.7.rate'" in errors({**DEFAULTS, "tenant.7.rate": "1/s"})[""][0]
    assert errors({}).keys() >= {"tenants"}
    assert errors(with_(tenants=str(MOST_TENANTS + 1))).keys() == {"tenants"}


def test_phases_follow_the_burst():
    made, _ = document(with_(burst__from="0s", burst__for="120s"))
    assert made["phases"] == {"burst": ["0s", "2m"]}
    made, _ = document(with_(burst__from="1500ms", burst__for="0.5s", duration="5s"))
    assert made["phases"] == {"calm": ["0s", "1500ms"], "burst": ["1500ms", "2s"], "recovery": ["2s", "5s"]}


def test_a_document_is_a_profile_as_yaml_says_it():
    for changes in ({}, {"policy": "fair_queues", "tenant__0__weight": "3"}, {"patience": ""}, {"pace": "poisson"}):
        loaded = read(with_(**changes)).loaded
        assert loaded is not None
        assert yaml.safe_load(yaml.safe_dump(loaded.document)) == loaded.document


def test_every_field_has_a_default_and_a_label():
    assert all(field.label and field.name in DEFAULTS for field in FIELDS)
