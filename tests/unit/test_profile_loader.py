"""Reading profiles: what comes back, variants, sets, the traps of YAML, and bounds on what a text may cost."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from harness.profile import nodes
from harness.profile.errors import ProfileError
from harness.profile.loader import from_document, load, variant_names
from harness.profile.model import Profile

PROFILES = Path(__file__).parents[2] / "profiles"
WORKED = PROFILES / "worked_example.yaml"

MINIMAL = "name: a\nduration: 10s\ntenants: {A: {rate: 1/s}}\n"


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Writes a profile; messages then name it `p.yaml`."""
    monkeypatch.chdir(tmp_path)

    def _write(text: str | bytes) -> Path:
        Path("p.yaml").write_bytes(text if isinstance(text, bytes) else text.encode())
        return Path("p.yaml")

    return _write


def problems(path: Path, **options) -> list[str]:
    with pytest.raises(ProfileError) as caught:
        load(path, **options)
    assert caught.value.problems
    return str(caught.value).splitlines()


@pytest.mark.parametrize("path", sorted(PROFILES.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_profile_that_people_copy_loads_with_every_variant(path):
    assert isinstance(load(path).profile, Profile)
    for name in variant_names(path):
        assert load(path, variant=name).variant == name


def test_the_worked_example_is_the_published_scenario():
    profile = load(WORKED).profile
    assert list(profile.tenants) == ["A", "B", "C", "D"]
    assert profile.tenants["D"].rate.steps[0].rate == 40
    assert (profile.service.workers.base, profile.service.service_time.mean) == (8, 200_000_000)
    assert variant_names(WORKED) == ("no_replans", "tenant_cap", "fair_queues", "budget", "workers_doubled")


def test_the_resolved_document_is_the_profile_as_yaml_without_its_variants():
    loaded = load(WORKED, variant="budget", sets=["tenants.A.rate=9/s"])
    assert loaded.document["tenants"]["D"]["budget"] == {"rate": "10/s", "burst": 10}
    assert loaded.document["tenants"]["A"] == {"rate": "9/s"}
    assert "variants" not in loaded.document


@pytest.mark.parametrize("variant", [None, *variant_names(WORKED)])
def test_the_resolved_document_loads_to_the_same_profile_at_any_scale(variant):
    loaded = load(WORKED, variant=variant, time_scale=0.25)
    again = from_document(loaded.document, time_scale=0.25)
    assert again.profile == loaded.profile
    assert again.document == loaded.document
    assert loaded.document["duration"] == "120s"


def test_a_variant_changes_only_what_it_names():
    base, doubled = load(WORKED).document, load(WORKED, variant="workers_doubled").document
    assert doubled["service"].pop("workers") == 16
    assert base["service"].pop("workers") == 8
    assert base == doubled


def test_an_unknown_variant_names_those_that_there_are():
    assert problems(WORKED, variant="fair_queue") == [
        "--variant fair_queue: there is no such variant; did you mean 'fair_queues'? "
        "(variants: no_replans, tenant_cap, fair_queues, budget, workers_doubled)"
    ]


@pytest.mark.parametrize(
    ("assignment", "path", "value"),
    [
        ("service.workers=16", ("service", "workers"), 16),
        ("tenants.D.rate.1.rate=50/s", ("tenants", "D", "rate", 1, "rate"), "50/s"),
        ("tenants.D.budget={rate: 1/s, burst: 2}", ("tenants", "D", "budget"), {"rate": "1/s", "burst": 2}),
        ("tenants.D.budget=null", ("tenants", "D", "budget"), None),
        ("ordinary=[A]", ("ordinary",), ["A"]),
        ("about=a=b", ("about",), "a=b"),
        ("about=", ("about",), ""),
        ("drain=3s", ("drain",), "3s"),
    ],
)
def test_a_set_replaces_one_value(assignment, path, value):
    document = load(WORKED, sets=[assignment]).document
    for step in path:
        document = document[step]
    assert document == value


def test_sets_apply_in_order_and_after_the_variant():
    sets = ["service.workers=20", "service.workers=21"]
    assert load(WORKED, variant="workers_doubled", sets=sets).profile.service.workers.base == 21


def test_a_tenant_whose_name_holds_a_dot_is_quoted_in_paths(write):
    path = write('name: a\nduration: 10s\ntenants: {eu.billing: {rate: 1/s}, "say \\"hi\\"": {rate: 1/s}}\n')
    loaded = load(path, sets=['tenants."eu.billing".rate=2/s', 'tenants."say \\"hi\\"".rate=3/s'])
    assert [tenant.rate.base for tenant in loaded.profile.tenants.values()] == [2, 3]
    assert problems(path, sets=["tenants.eu.billing.rate=2/s"]) == [
        '--set tenants.eu.billing.rate=2/s: there is no tenants.eu; did you mean tenants."eu.billing".rate?'
    ]


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("tenants.E.rate=1/s", "there is no tenants.E (there are: A, B, C, D)"),
        ("tennants.A.rate=1/s", "there is no tennants; did you mean 'tenants'? "),
        ("tenants.D.rate.7=1/s", "there is no tenants.D.rate.7; places in this list are 0 to 1"),
        (
            "tenants.D.budget.rate=1/s",
            "tenants.D.budget is not given, so it holds no rate; set tenants.D.budget as a whole",
        ),
        ("service.service_time.mean=1s", "service.service_time is '200ms', so it holds no mean; "),
        ("variants.budget={}", "a variant cannot be changed from here; edit the profile"),
        ("service.workers", "expected path=value, such as tenants.D.rate=40/s"),
        ("=3", "expected a dotted path, such as tenants.D.rate"),
        ("about=[", "not YAML: "),
        ("about=!!python/name:os.system", "tags are not supported"),
        ("about=\x1b[31m", "control characters are not text"),
        ("tenants.D.rate=40", "tenants.D.rate: '40': expected a rate with its unit, such as 8/s"),
        ("duration=60s", "phases.recovery: \"['70s', '120s']\": the phase ends after the trial (duration: 1m)"),
    ],
)
def test_a_set_that_cannot_be_is_told_with_its_text(assignment, message):
    shown = problems(WORKED, sets=[assignment])
    assert any(message in line for line in shown)
    if assignment != "duration=60s":
        assert all(line.startswith("--set ") for line in shown)
        assert all(line.isprintable() for line in shown)


@pytest.mark.parametrize(
    "word", ["on", "off", "yes", "no", "y", "n", "12:30", "1e3", "0x10", "2023-11-16", "null", "010"]
)
def test_words_that_yaml_1_1_turns_into_something_else_never_change_in_silence(write, word):
    text = f"name: a\nduration: 10s\nabout: {word}\ntenants: {{A: {{rate: 1/s}}}}\n"
    if word in ("1e3", "null"):  # numbers and null also to YAML 1.2: refused where text is due
        assert any("about" in line and "quote it" in line for line in problems(write(text)))
    else:
        assert load(write(text)).document["about"] == word


def test_a_tenant_may_be_called_no(write):
    assert list(load(write("name: a\nduration: 10s\ntenants: {no: {rate: 1/s}, on: {rate: 1/s}}")).profile.tenants) == [
        "no",
        "on",
    ]


def test_an_anchor_may_be_used_again(write):
    text = "name: a\nduration: 10s\ntenants: {A: &t {rate: 2/s}, B: *t}\n"
    assert load(write(text)).profile.tenants["B"].rate.base == Fraction(2)


BOMB = "a0: &a0 [1,1,1,1,1,1,1,1,1]\n" + "".join(
    f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 30)
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "p.yaml:1:1: the document is empty"),
        ("# only a comment\n", "the document is empty"),
        ("[]", "a profile is a mapping of keys"),
        ("just words", "'just words': a profile is a mapping of keys"),
        ("a: b: c", "p.yaml:1:5: not YAML: mapping values are not allowed"),
        ("a:\n\t- b", "not YAML: "),
        ("a: 'b", "not YAML: "),
        (MINIMAL + "---\n" + MINIMAL, "p.yaml:4:1: a profile is one document; this starts another"),
        (MINIMAL + "about: !!python/object/apply:os.system [ls]", "tags are not supported"),
        (MINIMAL + "about: !secret x", "p.yaml:4:8: about: '!secret': tags are not supported"),
        (MINIMAL + "about: &x [*x]", "alias *x stands inside what it names"),
        (MINIMAL + "about: *x", "there is no anchor &x before this alias"),
        (MINIMAL + "x: &x {b: 1}\nc: {<<: *x}", "p.yaml:5:5: c: '<<': merge keys are not supported"),
        (MINIMAL + "1: x", "p.yaml:4:1: '1': a key must be text; write \"1\" in quotes"),
        (MINIMAL + "? [a]\n: x", "a key must be text"),
        (
            MINIMAL + "name: b",
            "p.yaml:4:1: name: 'name': the key stands twice (first in line 1); remove one of the two",
        ),
        (MINIMAL + "seed: " + "9" * 100_000, "seed: '" + "9" * 56 + "...: a number has at most 18 digits"),
        (MINIMAL + "seed: 1e999", "seed: '1e999': the number is too large"),
        (MINIMAL + "drain: 1e999s", "drain: '1e999s': expected a duration with its unit"),
        (MINIMAL + 'about: "\\0"', "control characters are not text"),
        (MINIMAL + 'about: "\\ud800"', "p.yaml:4:"),
        (b"name: a\0", "p.yaml:1:8: 'U+0000': control characters are not text"),
        (b"name: \xff", "p.yaml:1:1: '0xff': a profile is UTF-8 text; this byte is not"),
        ("name: a".encode("utf-16"), "a profile is UTF-8 text"),
        ("x" * ((1 << 20) + 1), "p.yaml: a profile is at most 1 MiB of text"),
        ("[" * 100_000, "a profile is nested at most 40 deep"),
        ("{a: " * 50_000, "a profile is nested at most 40 deep"),
        (BOMB, "a profile holds at most 300000 values, aliases written out"),
    ],
    ids=lambda value: str(value)[:25].encode("ascii", "replace").decode() if not isinstance(value, bytes) else "bytes",
)
def test_a_text_that_is_no_profile_is_told_why(write, text, message):
    assert any(message in line for line in problems(write(text)))


@pytest.mark.parametrize("path", sorted(PROFILES.glob("*.yaml")), ids=lambda path: path.stem)
def test_without_libyaml_profiles_read_the_same(monkeypatch, path):
    fast = load(path)
    monkeypatch.setattr(nodes, "_Parser", None)
    assert load(path) == fast


@pytest.mark.parametrize(
    "text", ["a: b: c", "a: [", "a: 'b", "[" * 1000, BOMB, "a:\n\t- b", '"\\q"', "%YAML 3.0\n---\na: 1"]
)
def test_without_libyaml_a_text_that_is_no_profile_is_refused_too(monkeypatch, write, text):
    monkeypatch.setattr(nodes, "_Parser", None)
    assert problems(write(text))


def test_the_profile_in_the_docs_loads(write):
    text = (PROFILES.parent / "docs" / "profiles.md").read_text()
    assert load(write(text.split("```yaml\n")[1].split("```")[0])).profile.name == "smallest"


def test_a_byte_order_mark_is_allowed(write):
    assert load(write(b"\xef\xbb\xbf" + MINIMAL.encode())).profile.name == "a"


def test_a_file_that_cannot_be_read_is_told(tmp_path):
    assert "the file cannot be read: No such file or directory" in problems(tmp_path / "none.yaml")[0]
    assert "the file cannot be read" in problems(tmp_path)[0]


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        "x",
        {"name": "a", 1: 2},
        {"name": object},
        {"name": b"a"},
        {"name": float("nan")},
        {"seed": 10**30},
        {"name": "a\0"},
        {"name": {"a": {"b": (1, 2)}}},
    ],
    ids=repr,
)
def test_a_document_in_memory_is_judged_alike(document):
    with pytest.raises(ProfileError) as caught:
        from_document(document, origin="manifest.json")
    assert all(problem.file == "manifest.json" for problem in caught.value.problems)


def test_a_document_that_holds_itself_is_refused():
    document: dict = {"name": "a"}
    document["about"] = document
    with pytest.raises(ProfileError, match="nested at most 40 deep"):
        from_document(document)


@pytest.mark.parametrize("scale", [0, -1, float("nan"), float("inf"), 0.0001, 1e9])
def test_a_time_scale_out_of_range_is_refused(scale):
    assert any("a time scale lies from 0.001 to 1000" in line for line in problems(WORKED, time_scale=scale))


def test_a_sound_profile_may_not_leave_the_sound_range_when_scaled(write):
    text = "name: a\nduration: 600h\nphases: {calm: [1ns, 2ns]}\ntenants: {A: {rate: 9000000/s}}\n"
    load(write(text))
    assert "the trial would last" in problems(write(text), time_scale=2)[0]
    shown = problems(write(text), time_scale=0.5)
    assert "--time-scale: '0.5': a rate would be above 10000000/s" in shown
    assert "--time-scale: '0.5': a window would be shorter than a nanosecond; scale less" in shown
