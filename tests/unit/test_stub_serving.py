"""What a stub is told to serve: configurations that cannot be, defects of either part, and what its user reads."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from harness.cli.stub import greeting, parts_of
from harness.errors import BadInput as BadProfile
from harness.profile.loader import load
from stub_service.__main__ import lay_defect
from stub_service.capacity.config import to_json
from stub_service.config import to_json as shared_to_json
from stub_service.defects.registry import CAPACITY, DEFECTS, Defect
from stub_service.served import BadInput, Served, read_served
from tests.live.stub_client import config as shared_config
from tests.unit.dependency_bench import config, dependency, fault

ROOT = Path(__file__).resolve().parents[2]


def read(tmp_path, capacity=None, shared=None):
    path = tmp_path / "served.json"
    path.write_bytes(orjson.dumps({"shared": shared, "capacity": capacity}))
    return read_served(path)


def test_both_parts_come_through_json_unchanged(tmp_path):
    made = config(faults=[fault("slow", factor=2.0)])
    assert read(tmp_path, to_json(made), shared_to_json(shared_config())) == Served(shared_config(), made)
    assert read(tmp_path, to_json(made)) == Served(None, made)


WRONG = {
    "capacity.dependencies must have at least one, each with its own name": config(dependency(), dependency()),
    "capacity.ceiling must be at least 1: with 0 nothing would ever start": config(ceiling=0),
    "capacity.dependencies.: a name has 1 to 200 printable characters": config(dependency("")),
    "capacity.dependencies.billing: workers and service_ns must be above zero, expected_ns not below it": config(
        dependency(workers=0)
    ),
    "capacity.dependencies.billing: limit and timeout_ns of reads and writes must be above zero, queue not below it": (
        config(dependency(limit=0))
    ),
    "capacity.faults[0]: commit_then_timeout happens to writes only": config(
        faults=[fault("commit_then_timeout", operation="read")]
    ),
}


@pytest.mark.parametrize("message", WRONG)
def test_a_capacity_layer_that_cannot_be_is_told(tmp_path, message):
    with pytest.raises(BadInput) as told:
        read(tmp_path, to_json(WRONG[message]))
    assert str(told.value) == f"{tmp_path / 'served.json'}: {message}"


def test_a_defect_is_laid_over_its_own_part_only(monkeypatch):
    laid = []
    monkeypatch.setitem(
        DEFECTS, "of_controller", Defect("of_controller", "", (), lambda *given: laid.append(given), part=CAPACITY)
    )
    served = Served(shared_config(), config())
    service, lay = lay_defect("of_controller", served)
    assert (service.policy is not None, laid) == (True, [])
    lay("the controller", served.capacity)
    assert laid == [("the controller", served.capacity)]
    _, lay = lay_defect("refusal_as_503", served)
    assert lay is None
    assert lay_defect(None, replace(served, shared=None)) == (None, None)


@pytest.mark.parametrize(
    ("name", "served", "message"),
    [
        ("of_controller", Served(shared_config(), None), "is one of the capacity controller, which is not served here"),
        ("refusal_as_503", Served(None, config()), "is one of the shared service, which is not served here"),
    ],
)
def test_a_defect_of_a_part_that_is_not_served_is_bad_input(monkeypatch, name, served, message):
    monkeypatch.setitem(DEFECTS, "of_controller", Defect("of_controller", "", (), lambda *_: None, part=CAPACITY))
    with pytest.raises(BadInput, match=f"--defect {name} {message}"):
        lay_defect(name, served)


def test_an_unknown_defect_is_told():
    with pytest.raises(ValueError, match="unknown defect 'nope'"):
        lay_defect("nope", Served(shared_config(), None))


def test_what_a_profile_serves(worked_example):
    path = ROOT / "profiles" / "support_ticket.yaml"
    profile = load(path).profile
    shared, capacity = parts_of(profile, path, False)
    assert shared is None
    assert parts_of(profile, path, True) == (None, capacity)
    first = capacity.dependencies[0].name
    assert greeting(profile, "http://h", Path("/e"), None, True)[:4] == [
        f"serving {profile.name} at http://h",
        "tokens (unless OVERLOAD_TOKENS gives others):",
        "  not asked for by the dependencies",
        f"try:      curl -i -X POST http://h/dependencies/{first}/read",
    ]
    tenant = next(iter(profile.tenants))
    tries = f"try:      curl -i -H 'Authorization: Bearer token-{tenant}' -X POST http://h/runs"
    assert tries in greeting(profile, "http://h", Path("/e"), None)
    with pytest.raises(
        BadProfile, match="p: --dependencies-only needs a profile with `capacity:`, which says what they"
    ):
        parts_of(worked_example(), Path("p"), True)
