"""Which situations are driven, how often, side by side or alone, and what of their verdicts counts."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness import checks, trial, verify
from harness.checks.verdict import Verdict, Word
from harness.errors import BadInput
from harness.profile.loader import load
from harness.report.verification import of_trials
from stub_service.defects.registry import DEFECTS


def verdict(check: str, word: Word = Word.PASS, **more) -> Verdict:
    values = {"measured": 1.0, "bound": 2.0, "unit": "calls", "samples": 10, "sentence": f"{check} said so."}
    return Verdict(check, word, **{**values, **more})


def names(cases) -> list[str]:
    return [case.name for case in cases]


class FakeTrials:
    """Stands in for trial.run: verdicts by situation, one list a try; notes what was driven."""

    def __init__(self, monkeypatch, words: dict[str, list[list[Verdict]]] | None = None):
        self.words = words or {}
        self.driven: list[str] = []
        self.at_once = self.most_at_once = 0
        self.lock = threading.Lock()
        monkeypatch.setattr(trial, "run", self.run)

    def run(self, loaded, folder, target, defect=None, on_progress=lambda event: None):
        check = next(case.check for case in verify.CASES if load(case.path).profile.name == loaded.profile.name)
        name = next(case.name for case in verify.CASES if case.check == check)
        with self.lock:
            self.driven.append(name)
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
            tries = self.words.get(name, [])
            verdicts = tries.pop(0) if len(tries) > 1 else tries[0] if tries else [verdict(check)]
        on_progress({"event": "progress"})
        with self.lock:
            self.at_once -= 1
        return trial.Judged(SimpleNamespace(folder=folder), verdicts)


# --- which


def test_names_checks_and_families_choose_in_the_order_of_the_cases():
    assert names(verify.chosen("v07,v05")) == ["v05", "v07"]
    assert names(verify.chosen(" v05.one_retry_owner ,v05")) == ["v05"]
    assert names(verify.chosen("capacity")) == ["coalesced", "cancelled", "adaptive"]
    assert names(verify.chosen(None, "all")) == names(verify.CASES)
    assert names(verify.chosen(None)) == [f"v{n:02}" for n in range(1, 11)] + [
        "fairness", "coalesced", "cancelled", "adaptive", "decisions"
    ]  # fmt: skip
    assert names(verify.chosen(None, "first")) == ["v02", "v05"]


def test_an_unknown_name_says_what_was_meant_and_what_there_is():
    with pytest.raises(BadInput) as told:
        verify.chosen("v5,v07")
    assert str(told.value) == (
        "--only v5: there is no such situation; did you mean v05? (known: v01, v02, v03, v04, v05, v06, v07, v08, v09, "
        f"v10, {', '.join(names(verify.CASES[10:]))})"
    )
    with pytest.raises(BadInput, match="--only names nothing"):
        verify.chosen(" , ")


@pytest.mark.parametrize("case", verify.CASES, ids=names(verify.CASES))
def test_each_situation_has_a_sound_profile_that_asks_for_its_check(case):
    loaded = load(case.path, checks=checks.PARAMETERS)
    asked = [entry if isinstance(entry, str) else next(iter(entry)) for entry in loaded.document["checks"]]
    assert case.check in asked
    assert case.check in checks.CHECKS


def test_the_ten_and_the_controllers_other_checks_are_all_there():
    wanted = {name for name in checks.CHECKS if name.startswith(("v0", "v1", "capacity."))}
    assert wanted <= {case.check for case in verify.CASES}
    assert sum(name.startswith("v") for name in wanted) == 10


def test_a_defect_is_laid_over_the_part_that_it_belongs_to():
    of_capacity = next(name for name, defect in DEFECTS.items() if defect.part == "capacity")
    assert verify.laid_over(True, of_capacity) == of_capacity
    assert verify.laid_over(False, of_capacity) is None
    assert verify.laid_over(False, "refusal_as_503") == "refusal_as_503"
    assert verify.laid_over(True, "refusal_as_503") is None
    assert verify.laid_over(True, None) is None


def test_an_unknown_defect_is_told_before_anything_runs(monkeypatch, tmp_path):
    fake = FakeTrials(monkeypatch)
    with pytest.raises(BadInput, match="unknown defect 'three_layer_retri'; did you mean three_layer_retry"):
        verify.run(verify.chosen("v05"), verify.Options(tmp_path, defect="three_layer_retri"))
    assert fake.driven == []


def test_a_defect_with_a_profile_of_its_own_is_driven_by_that(monkeypatch, tmp_path):
    own = tmp_path / "defects" / "three_layer_retry.yaml"
    own.parent.mkdir()
    own.write_text("")
    monkeypatch.setattr(verify, "VERIFICATION", tmp_path)
    cases = verify.with_defect(verify.chosen("v05,v09"), "three_layer_retry")
    assert [case.path.name for case in cases] == ["three_layer_retry.yaml", "v09.yaml"]


# --- driving


def test_what_measures_latency_runs_alone_and_the_rest_two_at_a_time(monkeypatch, tmp_path):
    monkeypatch.setattr(verify, "usable_cores", lambda: 2)
    groups = [names(group) for group in verify._groups(verify.CASES, verify.Options(tmp_path))]
    assert groups[1:] == [[case.name] for case in verify.CASES if case.alone]
    assert {"v02", "v03", "v04", "fairness"} <= {case.name for case in verify.CASES if case.alone}
    simulated = verify._groups(verify.CASES, verify.Options(tmp_path, trial.SIMULATOR))
    assert [len(group) for group in simulated] == [1] * len(verify.CASES)
    fake = FakeTrials(monkeypatch)
    verify.run(verify.CASES, verify.Options(tmp_path))
    assert sorted(fake.driven) == sorted(names(verify.CASES))
    assert fake.most_at_once <= 2


def test_on_one_core_nothing_runs_side_by_side(monkeypatch, tmp_path):
    monkeypatch.setattr(verify, "usable_cores", lambda: 1)
    assert all(len(group) == 1 for group in verify._groups(verify.CASES, verify.Options(tmp_path)))


def test_outcomes_come_in_the_order_of_the_cases_and_each_is_told(monkeypatch, tmp_path):
    FakeTrials(monkeypatch)
    told = []
    cases = verify.chosen("v02,v05,v09")
    found = verify.run(cases, verify.Options(tmp_path), lambda case, state, outcome: told.append((case.name, state)))
    assert [outcome.case.name for outcome in found] == ["v02", "v05", "v09"]
    assert sorted(told) == sorted((name, state) for name in ("v02", "v05", "v09") for state in ("running", "done"))


LATE = [verdict("v05.one_retry_owner"), verdict("trial.on_time", Word.INVALID)]


def test_a_late_harness_is_given_a_second_try_and_no_third(monkeypatch, tmp_path):
    good = [verdict("v05.one_retry_owner"), verdict("trial.on_time")]
    fake = FakeTrials(monkeypatch, {"v05": [LATE, good]})
    (outcome,) = verify.run(verify.chosen("v05"), verify.Options(tmp_path))
    assert (outcome.tries, outcome.verdict.word, fake.driven) == (2, Word.PASS, ["v05", "v05"])
    fake = FakeTrials(monkeypatch, {"v05": [LATE]})
    (outcome,) = verify.run(verify.chosen("v05"), verify.Options(tmp_path))
    assert (outcome.tries, outcome.verdict.word, len(fake.driven)) == (2, Word.INVALID, 2)


@pytest.mark.parametrize(
    "verdicts",
    [
        [verdict("v05.one_retry_owner", Word.FAIL), verdict("trial.on_time")],
        [verdict("v05.one_retry_owner", Word.INCONCLUSIVE)],
        [*LATE, verdict("trial.conserved", Word.INVALID)],
        [verdict("v05.one_retry_owner", Word.INVALID)],
    ],
)
def test_nothing_else_is_ever_tried_again(monkeypatch, tmp_path, verdicts):
    fake = FakeTrials(monkeypatch, {"v05": [verdicts]})
    (outcome,) = verify.run(verify.chosen("v05"), verify.Options(tmp_path))
    assert (outcome.tries, fake.driven) == (1, ["v05"])


def test_a_stop_drives_nothing_further_and_what_was_not_driven_is_invalid(monkeypatch, tmp_path):
    fake = FakeTrials(monkeypatch)
    stop = threading.Event()
    stop.set()
    cases, options = verify.chosen("v05,v09"), verify.Options(tmp_path)
    assert verify.run(cases, options, stop=stop) == []
    assert fake.driven == []
    found = verify.verification(cases, [], options)
    assert (found.word, found.exit_code) == (Word.INVALID, 4)
    assert [row.verdict.sentence for row in found.rows] == ["Not driven: stopped before."] * 2


def test_ctrl_c_interrupts_each_trial_once_and_begins_no_other(monkeypatch, tmp_path):
    interrupted = []

    def run(loaded, folder, target, defect, on_progress):
        begun.set()
        while True:
            try:
                on_progress({})
            except KeyboardInterrupt:
                interrupted.append(loaded.profile.name)
                break
        on_progress({})  # it drains: no second interrupt
        return trial.Judged(SimpleNamespace(folder=folder), [verdict("v09.ambiguous_write", Word.INVALID)])

    waiting = verify.wait

    def wait(futures, **how):
        begun.wait()
        if how:
            raise KeyboardInterrupt
        return waiting(futures)

    begun = threading.Event()
    monkeypatch.setattr(trial, "run", run)
    monkeypatch.setattr(verify, "wait", wait)
    monkeypatch.setattr(verify, "usable_cores", lambda: 1)
    found = verify.run(verify.chosen("v09,v10"), verify.Options(tmp_path))
    assert interrupted == ["v09-ambiguous-write"]
    assert [outcome.case.name for outcome in found] == ["v09"]


def test_bad_input_in_one_ends_all(monkeypatch, tmp_path):
    def run(*_):
        raise BadInput("port in use")

    monkeypatch.setattr(trial, "run", run)
    with pytest.raises(BadInput, match="port in use"):
        verify.run(verify.chosen("v05,v09"), verify.Options(tmp_path))


def test_a_stub_that_serves_something_else_is_refused_with_the_command_to_start(monkeypatch, tmp_path):
    class Remote:
        def __init__(self, url):
            pass

        def health(self):
            return {"controller": True, "dependencies": {"billing": {}}}

    fake = FakeTrials(monkeypatch)
    monkeypatch.setattr(verify, "probe", lambda url: "overload-stub")
    monkeypatch.setattr(verify, "RemoteStub", Remote)
    with pytest.raises(BadInput, match=r"does not serve what v05 needs; start one with: overload stub profiles/ver"):
        verify.run(verify.chosen("v05"), verify.Options(tmp_path, "http://127.0.0.1:1"))
    monkeypatch.setattr(verify, "probe", lambda url: "other")
    with pytest.raises(BadInput, match="is no overload stub"):
        verify.run(verify.chosen("v05"), verify.Options(tmp_path, "http://127.0.0.1:1"))
    assert fake.driven == []


def test_in_virtual_time_the_healthy_pass_and_a_defect_is_caught(tmp_path):
    cases, options = verify.chosen("v09,coalesced"), verify.Options(tmp_path, trial.SIMULATOR)
    found = verify.verification(cases, verify.run(cases, options), options)
    assert (found.word, found.exit_code, found.catch()) == (Word.PASS, 0, "")
    assert [(row.case, row.verdict.word, row.tries) for row in found.rows] == [
        ("v09", Word.PASS, 1),
        ("coalesced", Word.PASS, 1),
    ]
    assert {v.check for v in found.beside} >= {"trial.conserved", "trial.on_time", "trial.leak_free"}
    assert all(row.report and row.report.exists() for row in found.rows)
    options = verify.Options(tmp_path, trial.SIMULATOR, "write_reported_failed")
    found = verify.verification(cases, verify.run(cases, options), options)
    assert (found.word, found.exit_code) == (Word.FAIL, 1)
    assert "Caught by v09.ambiguous_write." in found.catch()


# --- what counts


def test_a_trial_that_is_not_to_be_trusted_makes_its_own_verdict_invalid():
    told = verify.trusted("v05.one_retry_owner", LATE)
    assert (told.word, told.add) == (Word.INVALID, "")
    assert told.sentence == "Not to be trusted (trial.on_time): trial.on_time said so."
    assert verify.trusted("v05.one_retry_owner", LATE[:1]) is LATE[0]
    assert verify.trusted("v06.expiry", LATE[:1]).word is Word.INVALID


def test_the_worst_of_a_check_over_all_trials_is_shown_with_all_evidence():
    pairs = [
        ("v01", verdict("trial.on_time", measured=1.0, bound=25.0)),
        ("v02", verdict("trial.on_time", measured=2.0, bound=3.0)),
        ("v01", verdict("trial.conserved", Word.INVALID, witnesses=("0.1",))),
        ("v02", verdict("trial.conserved")),
        ("v03", verdict("trial.conserved", Word.INVALID)),
    ]
    conserved, on_time = of_trials(pairs)
    assert (conserved.word, conserved.samples, conserved.witnesses) == (Word.INVALID, 30, ("0.1",))
    assert conserved.sentence == "v01: trial.conserved said so. And in 1 more."
    assert (on_time.word, on_time.measured) == (Word.PASS, 2.0)
    assert on_time.sentence == "Held in 2 trials; v02: trial.on_time said so."


def test_the_worst_word_of_everything_counts(monkeypatch, tmp_path):
    own = verdict("v05.one_retry_owner")
    for word, code in ((Word.FAIL, 1), (Word.INCONCLUSIVE, 3), (Word.INVALID, 4), (Word.PASS, 0)):
        FakeTrials(monkeypatch, {"v05": [[own, verdict("trial.leak_free", word)]]})
        cases, options = verify.chosen("v05"), verify.Options(tmp_path)
        found = verify.verification(cases, verify.run(cases, options), options)
        assert (found.word, found.exit_code) == (word, code)


def test_a_check_of_the_trial_that_is_a_situation_too_has_one_row(monkeypatch, tmp_path):
    complete = verdict("trial.decisions_complete")
    FakeTrials(monkeypatch, {"decisions": [[complete]], "v06": [[verdict("v06.expiry"), complete]]})
    cases, options = verify.chosen("decisions,v06"), verify.Options(tmp_path)
    found = verify.verification(cases, verify.run(cases, options), options)
    assert [one.check for one in found.verdicts()] == ["v06.expiry", "trial.decisions_complete"]
    assert found.verdicts()[-1].samples == 20


def test_the_profiles_are_found_from_anywhere(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert all(case.path.exists() for case in verify.CASES)
    gone = verify.Case("v99", "v05.one_retry_owner", "", Path("/nowhere/v99.yaml"))
    with pytest.raises(BadInput, match=r"v99\.yaml: no such file"):
        verify.run([gone], verify.Options(tmp_path))
