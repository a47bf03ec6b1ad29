"""Baselines: the same bytes for the same trial, intervals that hold, and what is a regression and what is not."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from harness import checks
from harness.baseline import model
from harness.baseline.compare import POOLED, Change, Margins, compare
from harness.baseline.model import Baseline, CheckFigures, Quantity, Situation, Tenant, Window
from harness.baseline.pooling import together
from harness.baseline.take import environment_of, situation_of
from harness.baseline.view import document, results, show
from harness.checks.verdict import Word
from harness.errors import BadInput
from harness.report.junit import junit
from harness.report.markdown import markdown
from tests.conftest import CAP, FAIR, ROOT
from tests.unit.ledgers import edited, simulated
from tests.unit.test_cli import overload
from tests.unit.test_report_terminal import plain_console, read, terminal_console

FAIR_QUEUES = {"service.admission": FAIR, "checks": ["fairness.ordinary_unmoved"]}


def taken(trial) -> Baseline:
    situation = situation_of(trial, checks.judge_all(trial))
    return Baseline(environment=environment_of(trial), situations={"worked-example": situation})


@pytest.fixture(scope="module")
def fair(tmp_path_factory):
    return simulated(tmp_path_factory.mktemp("fair"), FAIR_QUEUES)


@pytest.fixture(scope="module")
def base(fair):
    return taken(fair)


def share(hits: int, n: int, low: float, high: float) -> Quantity:
    return Quantity(estimate=hits / n, low=low, high=high, n=n, hits=hits)


def built(served: Quantity, word: Word = Word.PASS, ordinary: bool = True, **more: Quantity) -> Baseline:
    """One tenant in one phase."""
    window = Window(due=served.n, offered=served.n, quantities={"served": served, **more})
    situation = Situation(
        profile="p", profile_hash="h", time_scale=1.0, parts={}, served_by={}, wait="queue wait", service_time_ms=200.0,
        tenants={"A": Tenant(ordinary=ordinary, phases={"burst": window})}, pooled={},
        checks={"v05.one_retry_owner": CheckFigures(word=word)},
    )  # fmt: skip
    return Baseline(environment={"driver": "live"}, situations={"p": situation})


def only_row(found, quantity="served"):
    (row,) = [row for row in found.rows if row.quantity == quantity]
    return row


# --- what is kept


def test_the_same_trial_gives_the_same_bytes_and_they_read_back(fair, base, tmp_path):
    data = model.dump(base)
    assert data == model.dump(taken(fair))
    path = tmp_path / "x.json"
    path.write_bytes(data)
    assert model.dump(model.parse(model.read_document(path), path)) == data
    made = json.loads(data)
    assert json.dumps(made) == json.dumps(made, sort_keys=True)
    assert len(data) < 20_000
    assert max(map(len, data.decode().splitlines())) < 250


def test_it_counts_what_the_checks_count(base):
    situation = base.situations["worked-example"]
    burst = situation.tenants["A"].phases["burst"].quantities
    assert (burst["served"].hits, burst["served"].n) == (320, 320)
    assert burst["served"].low < 1 - 0.008 < burst["served"].high == 1
    assert situation.tenants["A"].ordinary
    assert not situation.tenants["D"].ordinary
    assert situation.pooled["burst"].due == 960
    assert situation.wait == "queue wait"
    assert set(situation.tenants["A"].phases) == {"calm", "burst", "recovery"}
    assert 40 < burst["wait_mean_ms"].estimate < 60
    assert situation.checks["fairness.ordinary_unmoved"].word is Word.PASS
    assert situation.tenants["D"].phases["burst"].quantities["replans"].estimate > 0.5


def test_where_no_wait_is_told_it_is_the_latency(fair, tmp_path):
    trial = simulated(tmp_path / "t", FAIR_QUEUES)

    def forget(rows):
        for row in rows:
            row.pop("queue_wait_ns", None)

    situation = taken(edited(trial, forget)).situations["worked-example"]
    assert situation.wait == "latency"
    assert situation.tenants["A"].phases["calm"].quantities["wait_mean_ms"].estimate == pytest.approx(200, abs=1)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda made: made.update(schema=2), "schema 2 is not 1"),
        (lambda made: made.update(extra=1), "extra: Extra inputs are not permitted"),
        (
            lambda made: made["situations"]["worked-example"].pop("wait"),
            "situations.worked-example.wait: Field required",
        ),
        (lambda made: made.update(situations={}), "situations"),
        (lambda made: made.update(confidence=0.5), "confidence: Value error, its intervals are not of 0.95"),
        (
            lambda made: made["situations"]["worked-example"]["pooled"]["calm"]["quantities"]["served"].update(
                high=1.5
            ),
            "served is a share: from 0 to 1",
        ),
    ],
)
def test_an_edited_file_is_one_message(base, tmp_path, edit, message):
    made = json.loads(model.dump(base))
    edit(made)
    path = tmp_path / "x.json"
    path.write_text(json.dumps(made))
    with pytest.raises(BadInput) as error:
        model.parse(model.read_document(path), path)
    assert message in str(error.value)
    assert str(path) in str(error.value)


def test_an_interval_that_is_none_is_refused():
    with pytest.raises(ValueError, match="in this order"):
        Quantity(estimate=0.5, low=0.6, high=0.7, n=3)
    with pytest.raises(ValueError, match="hits at most n"):
        Quantity(estimate=0.5, low=0.4, high=0.7, n=3, hits=4)


# --- what is a change


def test_a_trial_is_no_regression_against_itself(base):
    found = compare(base, base)
    assert found.word is Word.PASS
    assert {row.word for row in found.rows if row.gates} <= {Change.SAME, Change.THIN}
    assert any(row.word is Change.SAME and row.subject == POOLED for row in found.rows)


@pytest.mark.parametrize("values", [{}, {"service.admission": CAP}])
def test_a_worse_policy_is_a_regression_and_back_again_an_improvement(base, tmp_path, values):
    worse = taken(simulated(tmp_path / "t", {"checks": ["fairness.ordinary_unmoved"], **values}))
    found = compare(base, worse, across_environments=True)
    assert found.word is Word.FAIL
    served = [row for row in found.rows if row.quantity == "served" and row.phase == "burst" and row.subject == POOLED]
    assert [row.word for row in served] == [Change.WORSE]
    assert served[0].change.high < -1
    assert [row.word for row in found.checks if row.check == "fairness.ordinary_unmoved"] == [Change.WORSE]
    back = compare(worse, base, across_environments=True)
    assert back.count(Change.WORSE) == 0
    assert back.count(Change.BETTER) > 3
    assert {row.word for row in back.checks if row.check == "fairness.ordinary_unmoved"} == {Change.BETTER}


def test_a_defect_in_the_same_place_needs_no_override(base, tmp_path):
    broken = taken(simulated(tmp_path / "t", FAIR_QUEUES, defect="one_bound_for_all_queues"))
    assert compare(base, broken).word is Word.FAIL


@pytest.mark.parametrize(
    ("hits", "word"),
    [(2000, Change.SAME), (1999, Change.SAME), (1960, Change.WORSE), (1985, Change.UNCLEAR)],
)
def test_worse_needs_evidence_and_size_and_same_rules_a_change_out(hits, word):
    lossless, n = share(2000, 2000, 0.99865, 1.0), 2000
    wide = 2.0 * (hits / n * (1 - hits / n) / n) ** 0.5 + 0.0013
    new = share(hits, n, hits / n - wide, min(1.0, hits / n + wide))
    assert only_row(compare(built(lossless), built(new))).word is word


def test_a_change_that_is_sure_but_small_is_none():
    one, two = share(50_000, 50_000, 0.99995, 1.0), share(49_750, 50_000, 0.9945, 0.9955)
    assert only_row(compare(built(one), built(two))).word is Change.SAME  # half a point
    assert only_row(compare(built(one), built(two), margins=Margins(shares_pp=0.2))).word is Change.WORSE


def test_getting_better_is_no_harm_and_is_shown():
    one, two = share(1800, 2000, 0.88, 0.915), share(2000, 2000, 0.99865, 1.0)
    found = compare(built(one), built(two))
    assert (only_row(found).word, found.word) == (Change.BETTER, Word.PASS)


def test_few_calls_are_not_judged_alone_unless_the_loss_is_plain():
    found = compare(built(share(40, 40, 0.94, 1.0)), built(share(38, 40, 0.86, 0.98)))
    assert (only_row(found).word, found.word) == (Change.THIN, Word.PASS)  # the check decides
    plain = compare(built(share(40, 40, 0.94, 1.0)), built(share(4, 40, 0.04, 0.2)))
    assert only_row(plain).word is Change.WORSE


def test_what_a_runaway_gets_is_shown_and_decides_nothing():
    one, two = share(2000, 2000, 0.99865, 1.0), share(200, 2000, 0.09, 0.11)
    found = compare(built(one, ordinary=False), built(two, ordinary=False))
    assert (only_row(found).word, found.word) == (Change.WORSE, Word.PASS)
    assert "no tenant is named under `ordinary:`" in found.notes[0]


def test_where_nothing_of_the_target_could_be_compared_there_is_no_pass():
    same = built(share(2000, 2000, 0.99865, 1.0), ordinary=False)
    situation = same.situations["p"]
    alone = same.model_copy(update={"situations": {"p": situation.model_copy(
        update={"checks": {"trial.conserved": CheckFigures(word=Word.PASS)}}
    )}})  # fmt: skip
    assert compare(alone, alone).word is Word.INCONCLUSIVE


def test_many_questions_need_more_evidence_for_each():
    """A change that would be `worse` alone is not, among thirty."""
    one, two = share(1980, 2000, 0.985, 0.9935), share(1955, 2000, 0.9705, 0.9835)
    alone = only_row(compare(built(one), built(two)), "served")
    tenants = {
        f"T{n}": Tenant(ordinary=True, phases={"burst": Window(due=2000, offered=2000, quantities={"served": q})})
        for n, q in enumerate([two] + [one] * 29)
    }
    many = built(one).situations["p"].model_copy(update={"tenants": tenants})
    before = {name: tenant.model_copy(update={"phases": tenants["T1"].phases}) for name, tenant in tenants.items()}
    sides = [
        Baseline(environment={"driver": "live"}, situations={"p": many.model_copy(update={"tenants": one})})
        for one in (before, tenants)
    ]
    among = next(row for row in compare(*sides).rows if row.subject == "T0")
    assert (alone.word, among.word) == (Change.WORSE, Change.UNCLEAR)


@pytest.mark.parametrize(
    ("before", "after", "word", "code"),
    [
        (Word.PASS, Word.PASS, Change.SAME, 0),
        (Word.PASS, Word.FAIL, Change.WORSE, 1),
        (Word.FAIL, Word.FAIL, Change.SAME, 0),
        (Word.FAIL, Word.PASS, Change.BETTER, 0),
        (Word.PASS, Word.INCONCLUSIVE, Change.UNCLEAR, 3),
        (Word.INCONCLUSIVE, Word.INCONCLUSIVE, Change.SAME, 0),
        (Word.INCONCLUSIVE, Word.FAIL, Change.WORSE, 1),
        (Word.FAIL, Word.INCONCLUSIVE, Change.UNCLEAR, 3),
    ],
)
def test_words_of_checks(before, after, word, code):
    same = share(2000, 2000, 0.99865, 1.0)
    found = compare(built(same, before), built(same, after))
    assert ([row.word for row in found.checks], found.exit_code) == ([word], code)


@pytest.mark.parametrize(
    ("unit", "note"), [("pp", "its bound was 1 pp and is 2 pp"), ("ms", "")], ids=["moved", "of_another_finding"]
)
def test_a_bound_has_moved_only_if_it_is_of_the_same_thing(unit, note):
    same = share(2000, 2000, 0.99865, 1.0)
    one, two = built(same), built(same)
    before = CheckFigures(word=Word.PASS, measured=0.0, bound=1.0, unit="pp")
    one.situations["p"].checks["v05.one_retry_owner"] = before
    two.situations["p"].checks["v05.one_retry_owner"] = before.model_copy(update={"unit": unit, "bound": 2.0})
    (row,) = compare(one, two).checks
    assert (row.word, row.note) == (Change.SAME, note)


def test_rows_stand_in_one_order_however_a_side_is_given(base, tmp_path):
    path = tmp_path / "b.json"
    path.write_bytes(model.dump(base))
    kept = model.parse(model.read_document(path), path)
    places = [[(row.subject, row.phase, row.quantity) for row in compare(side, base).rows] for side in (base, kept)]
    assert places[0] == places[1]
    assert list(dict.fromkeys(phase for _, phase, _ in places[0])) == ["calm", "burst", "recovery"]
    assert [row.check for row in compare(kept, base).checks] == [row.check for row in compare(base, base).checks]


def test_a_check_or_a_situation_that_is_gone_is_no_way_to_pass():
    same = built(share(2000, 2000, 0.99865, 1.0))
    gone = same.situations["p"].model_copy(update={"checks": {}})
    assert compare(same, same.model_copy(update={"situations": {"p": gone}})).word is Word.INCONCLUSIVE
    two = same.model_copy(update={"situations": {"p": same.situations["p"], "q": same.situations["p"]}})
    assert compare(two, same.model_copy(update={"situations": {"p": same.situations["p"], "r": gone}})).exit_code == 3


def test_waits_without_a_known_service_time_cannot_be_told_without_a_margin():
    wait = Quantity(estimate=50.0, low=45.0, high=55.0, n=2000)
    same = built(share(2000, 2000, 0.99865, 1.0), wait_mean_ms=wait)
    unknown = {"p": same.situations["p"].model_copy(update={"service_time_ms": None})}
    blind = same.model_copy(update={"situations": unknown})
    found = compare(blind, blind)
    assert only_row(found, "wait_mean_ms").word is Change.UNCLEAR
    assert "--margin" in only_row(found, "wait_mean_ms").note
    assert compare(blind, blind, margins=Margins(wait_ms=30.0)).word is Word.PASS


# --- what cannot be compared


def test_other_profiles_and_environments_are_refused_with_all_that_differs(base):
    other = base.model_copy(update={"environment": {**base.environment, "machine cores": "64"}})
    with pytest.raises(BadInput, match="machine cores: not recorded and 64"):
        compare(base, other)
    assert compare(base, other, across_environments=True).word is Word.PASS
    situation = base.situations["worked-example"]
    moved = situation.model_copy(update={"parts": {**situation.parts, "tenants": "x", "duration": "y"}})
    with pytest.raises(BadInput, match="worked-example: profiles differ in duration, tenants"):
        compare(base, base.model_copy(update={"situations": {"w": moved}}), across_environments=True)


def test_seed_and_checks_are_not_the_profile(base, tmp_path):
    other = taken(simulated(tmp_path / "t", {**FAIR_QUEUES, "seed": 7, "checks": ["agent.replan_share"]}))
    found = compare(base, other)
    assert [(row.check, row.word) for row in found.checks if row.new is None] == [
        ("fairness.ordinary_unmoved", Change.UNCLEAR)
    ]


# --- several trials


def test_several_trials_know_how_much_trials_differ():
    estimates = [0.80, 0.90, 0.85, 0.95]
    trials = [
        built(Quantity(estimate=e, low=e - 0.01, high=min(1, e + 0.01), n=1000, hits=int(e * 1000))).situations["p"]
        for e in estimates
    ]
    pooled = together(trials).tenants["A"].phases["burst"].quantities["served"]
    assert pooled.estimate == pytest.approx(np.mean(estimates))
    assert (pooled.n, pooled.hits) == (4000, 3500)
    assert pooled.low < 0.72
    assert pooled.high == 1.0
    assert together(trials).trials == 4
    alike = together([trials[0]] * 3).tenants["A"].phases["burst"].quantities["served"]
    assert (alike.low, alike.high) == (0.79, 0.81)  # never narrower than a trial's own
    assert together(trials[:1]) is trials[0]


def test_the_worst_word_of_several_trials_counts():
    same = share(2000, 2000, 0.99865, 1.0)
    trials = [built(same, word).situations["p"] for word in (Word.PASS, Word.FAIL)]
    assert together(trials).checks["v05.one_retry_owner"].word is Word.FAIL


# --- the commands


@pytest.fixture
def saved(fair, tmp_path):
    done = overload("baseline", "save", fair.folder, "--baselines", tmp_path / "b", "--name", "fair")
    assert done.returncode == 0, done.stderr
    return tmp_path / "b"


def test_save_and_diff(fair, saved, tmp_path):
    again = overload("baseline", "save", fair.folder, "--baselines", saved, "--name", "fair")
    assert again.stdout.startswith("same")
    done = overload("diff", "fair", fair.folder, "--baselines", saved)
    assert (done.returncode, done.stdout.splitlines()[0].split()[0]) == (0, "PASS")
    files = {name: tmp_path / name for name in ("out.xml", "out.md")}
    broken = simulated(tmp_path / "t", FAIR_QUEUES, defect="one_bound_for_all_queues")
    done = overload("diff", saved / "fair.json", broken.folder, "--json", "--junit", files["out.xml"], "--markdown",
                    files["out.md"], "--annotations", "github")  # fmt: skip
    made = json.loads(done.stdout)
    assert (done.returncode, made["verdict"], made["counts"]["worse"] > 5) == (1, "FAIL", True)
    assert "::error title=FAIL " in done.stderr
    assert b'type="FAIL"' in files["out.xml"].read_bytes()
    assert "FAIL: overload diff" in files["out.md"].read_text()
    assert overload("diff", saved / "fair.json", broken.folder).returncode == 1


def test_diff_tells_of_an_invalid_trial_and_save_refuses_it(fair, saved, tmp_path):
    trial = simulated(tmp_path / "t", FAIR_QUEUES)
    edited(trial, lambda rows: rows[:-50])
    assert overload("diff", "fair", trial.folder, "--baselines", saved).returncode == 4
    done = overload("baseline", "save", trial.folder, "--baselines", saved)
    assert (done.returncode, "INVALID, so nothing can be compared with it" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("diff", "fairr", "x"), "fairr: no such trial, file or baseline; did you mean fair?"),
        (("diff", "fair", "{trial}", "--margin", "x"), "--margin x: expected points such as 1pp, or a duration"),
        (("diff", "fair", "{trial}", "--margin", "0pp"), "--margin 0pp"),
        (("diff", "fair", "{trial}", "--margin", "0ms"), "--margin 0ms"),
        (("baseline", "save", "{trial}", "--name", "../x"), "--name ../x: letters, digits"),
        (("baseline", "save", "pyproject.toml"), "pyproject.toml: not JSON"),
        (("baseline", "save", "docs/profile.schema.json"), "neither a trial's folder nor what"),
        (("diff", "fair", "{trial}", "--junit", "/nowhere/x.xml"), "/nowhere/x.xml: cannot be written"),
    ],
)
def test_bad_input_is_one_message(fair, saved, arguments, message):
    told = [str(fair.folder) if argument == "{trial}" else argument for argument in arguments]
    done = overload(*told, "--baselines", saved)
    assert (done.returncode, message in done.stderr) == (2, True), done.stderr
    assert "Traceback" not in done.stderr


def test_a_verification_is_kept_and_compared_whole(tmp_path):
    defects = {"a": (), "b": ("--defect", "write_reported_failed")}
    runs = {
        name: overload(
            "verify", "--simulate", "--only", "v09,coalesced", "--json", "--reports", tmp_path / name, *defect
        )
        for name, defect in defects.items()
    }
    for name, done in runs.items():
        (tmp_path / f"{name}.json").write_text(done.stdout)
    b = tmp_path / "b0"
    done = overload("baseline", "save", tmp_path / "a.json", "--baselines", b)
    assert done.stdout.rstrip().endswith("verify.json  (2 situations, 2 trials)")
    assert overload("diff", "verify", tmp_path / "a.json", "--baselines", b).returncode == 0
    done = overload("diff", "verify", tmp_path / "b.json", "--baselines", b, "--json")
    worse = [row["check"] for row in json.loads(done.stdout)["checks"] if row["word"] == "worse"]
    assert (done.returncode, worse) == (1, ["v09.ambiguous_write"])


def test_one_trial_is_not_several(fair, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(fair.folder, copy)
    for other in (fair.folder, copy):
        done = overload("baseline", "save", fair.folder, other, "--baselines", tmp_path / "b")
        assert (done.returncode, "are one trial (seed 1)" in done.stderr) == (2, True), done.stderr
    assert not (tmp_path / "b").exists()


def test_the_order_in_which_trials_are_given_makes_no_difference(fair, tmp_path):
    other = simulated(tmp_path / "t", {**FAIR_QUEUES, "seed": 2})
    made = []
    for name, folders in {"one": (fair.folder, other.folder), "two": (other.folder, fair.folder)}.items():
        done = overload("baseline", "save", *folders, "--baselines", tmp_path / name, "--name", "x")
        assert done.returncode == 0, done.stderr
        made.append((tmp_path / name / "x.json").read_bytes())
    assert made[0] == made[1]


def test_trials_that_do_not_belong_together_are_no_baseline(fair, tmp_path):
    other = simulated(tmp_path / "t", {"service.admission": CAP})
    done = overload("baseline", "save", fair.folder, other.folder, "--baselines", tmp_path / "b")
    assert (done.returncode, "what serves differs" in done.stderr) == (2, True)
    assert not (tmp_path / "b").exists()


def test_git_keeps_baselines_and_no_trials():
    ignored = subprocess.run(
        ["git", "check-ignore", "--no-index", "reports/baselines/x.json", "reports/20250102-030405-x/calls.jsonl"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if ignored.returncode == 128 or not Path(ROOT / ".git").exists():
        pytest.skip("no git here")
    assert ignored.stdout.split() == ["reports/20250102-030405-x/calls.jsonl"]


def test_the_table_fits_a_terminal_and_says_what_changed(base, tmp_path):
    worse = taken(simulated(tmp_path / "t", {"checks": ["fairness.ordinary_unmoved"]}))
    found = compare(base, worse, ("steady", "reports/x"), across_environments=True)
    for width in (80, 200):
        console, stream = terminal_console(width, color=False)
        show(found, console)
        text = stream.getvalue()
        assert max(map(len, text.splitlines())) <= width
        assert text.startswith("FAIL  steady -> reports/x\n")
    assert re.search(r"all ordinary tenants +burst +served share +worse +100 % ", text)
    assert re.search(r"fairness.ordinary_unmoved +worse +PASS +FAIL", text)
    console, stream = plain_console()
    show(compare(base, base), console, everything=True)
    assert "other" not in read(stream).splitlines()[0]


def test_hostile_names_stay_on_their_line(base):
    situation = base.situations["worked-example"]
    odd = "|\x1b[31m<img src=x>@team\n::error::"
    tenants = {odd: situation.tenants["A"]}
    made = base.model_copy(update={"situations": {odd: situation.model_copy(update={"tenants": tenants})}})
    found = compare(made, made)
    text = markdown(results(found))
    assert "<img" not in text
    assert "@team" not in text
    assert "\x1b" not in text
    assert b"\x1b" not in junit(results(found))
    assert json.dumps(document(found), allow_nan=False)
