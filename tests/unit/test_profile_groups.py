"""One tenant with a count becomes many alike, under every name that stands for them."""

from __future__ import annotations

import pytest

from harness import checks
from harness.profile.describe import describe
from harness.profile.errors import ProfileError
from harness.profile.loader import from_document, load
from harness.profile.model import Profile
from harness.simulate.driver import Simulation
from tests.conftest import ROOT

SERVICE = {
    "workers": 4,
    "service_time": "10ms",
    "admission": {"policy": "fair_queues", "queue_per_tenant": 5, "weights": {"many": 3}},
    "shadow": {"policy": "fair_queues", "queue_per_tenant": 5, "weights": {"one": 2}},
}
DOCUMENT = {
    "name": "groups",
    "duration": "1s",
    "service": SERVICE,
    "tenants": {"one": {"rate": "1/s"}, "many": {"count": 12, "rate": "2/s", "pace": "poisson"}},
    "ordinary": ["many"],
}
NAMES = [f"many-{i:02d}" for i in range(1, 13)]


def load_with(**over):
    return from_document({**DOCUMENT, **over}, checks=checks.PARAMETERS)


def test_a_group_is_dealt_out_wherever_its_name_stands():
    loaded = load_with()
    assert list(loaded.profile.tenants) == ["one", *NAMES]
    assert loaded.profile.ordinary == NAMES
    assert loaded.profile.service.admission.weights == dict.fromkeys(NAMES, 3)
    assert loaded.profile.service.shadow.weights == {"one": 2}
    assert {(loaded.profile.tenants[name].count, loaded.profile.tenants[name].pace) for name in NAMES} == {
        (1, "poisson")
    }


def test_the_resolved_document_loads_again_to_the_same():
    loaded = load_with()
    assert from_document(loaded.document).profile == loaded.profile == Profile.model_validate(loaded.document)
    assert loaded.document["tenants"]["many-01"] is not loaded.document["tenants"]["many-02"]


def test_a_group_is_changed_as_one_before_it_is_dealt_out(tmp_path):
    path = tmp_path / "p.yaml"
    path.write_text(
        "name: p\nduration: 1s\ntenants:\n  many: {count: 3, rate: 1/s}\nvariants:\n  more: {tenants.many.count: 5}\n"
    )
    assert len(load(path, variant="more").profile.tenants) == 5
    assert load(path, sets=["tenants.many.rate=4/s"]).document["tenants"]["many-3"] == {"rate": "4/s"}


def test_a_mistake_in_a_group_is_told_of_once_and_at_its_line(tmp_path):
    path = tmp_path / "p.yaml"
    path.write_text("name: p\nduration: 1s\ntenants:\n  many: {count: 5000, rate: 1}\n")
    with pytest.raises(ProfileError) as error:
        load(path)
    assert str(error.value).count("p.yaml:4:") == 1


@pytest.mark.parametrize(
    ("tenants", "said"),
    [
        ({"many": {"count": 2, "rate": "1/s"}, "many-1": {"rate": "1/s"}}, "two tenants have one name"),
        ({"a": {"count": 60_000, "rate": "1/s"}, "b": {"count": 60_000, "rate": "1/s"}}, "at most 100000"),
        ({"n" * 199: {"count": 100, "rate": "1/s"}}, "groups"),
    ],
)
def test_groups_that_cannot_be_are_refused(tenants, said):
    with pytest.raises(ProfileError) as error:
        from_document({"name": "p", "duration": "1s", "tenants": tenants})
    assert said in str(error.value)


def test_a_weight_needs_its_tenant():
    admission = {"policy": "fair_queues", "queue_per_tenant": 5, "weights": {"nobody": 3}}
    with pytest.raises(ProfileError, match="there is no such tenant"):
        load_with(service={**SERVICE, "admission": admission})


@pytest.mark.parametrize(
    ("admission", "said"),
    [
        ({"policy": "shuffle_sharded", "queues": 8, "queue": 5}, "needs hand"),
        ({"policy": "shuffle_sharded", "queues": 4, "hand": 5, "queue": 5}, "cannot be dealt from 4 queues"),
        ({"policy": "shared_fifo", "queue": 5, "weights": {"one": 2}}, "does not use weights"),
        ({"policy": "fair_queues", "queue_per_tenant": 5, "weights": {"one": 0}}, "expected at least 1"),
        ({"policy": "fair_queues", "queue_per_tenant": 5, "hand": 2}, "does not use hand"),
    ],
)
def test_an_admission_that_cannot_be_is_refused(admission, said):
    with pytest.raises(ProfileError) as error:
        load_with(service={**SERVICE, "admission": admission})
    assert said in str(error.value)


@pytest.mark.parametrize("header", ["Authorization", "Overload-Call", "host", "X Tenant", "X:Y", ""])
def test_a_claim_is_no_credential_and_no_header_of_the_harness(header):
    tenants = {"one": {"rate": "1/s", "claims": {"header": header, "values": 2}}}
    with pytest.raises(ProfileError):
        from_document({"name": "p", "duration": "1s", "tenants": tenants})


def test_ten_thousand_tenants_are_simulated():
    """A few seconds of the profile."""
    shorter = ["duration=6s", "phases={calm: [1s, 5s]}", "tenants.heavy.rate=[0/s, {from: 5s, to: 6s, rate: 6000/s}]"]
    made = load(ROOT / "profiles" / "ten_thousand_tenants.yaml", sets=shorter, checks=checks.PARAMETERS)
    assert len(made.profile.tenants) == 10_000
    ended = []
    Simulation(made.profile, lambda call: ended.append((call.tenant_index > 0, call.outcome))).run()
    assert len(ended) > 15_000
    assert {outcome for light, outcome in ended if light} == {"served"}
    assert (False, "throttled") in ended


def test_a_claim_is_described_before_it_is_made():
    tenants = {"one": {"rate": "1/s", "claims": {"values": 50}}, "two": {"rate": "1/s"}}
    said = describe(from_document({"name": "p", "duration": "1s", "tenants": tenants}).profile).sentences
    assert "one: claims in X-Tenant to be another tenant with each call, of 50; its credential stays." in said
