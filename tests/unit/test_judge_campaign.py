"""The campaign that measures the judge: its cells, its record, its lengths and strengths, and what its tables say."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace

import pytest

import harness.workload.defects  # noqa: F401  registers those of callers
from benchmarks.judge import cells, record, table, trials
from benchmarks.judge.burner import Burner
from benchmarks.judge.campaign import Campaign
from benchmarks.judge.cells import DEFECT, DILUTED, HEALTHY, LENGTH, LOSSY, Cell
from benchmarks.judge.lengths import NO_LONGER, longer
from benchmarks.judge.record import Row
from benchmarks.judge.trials import run
from benchmarks.processes import Process, gone_within, tree_of
from harness.errors import BadInput
from harness.matrix import judge_in_virtual_time, profile_of_defect
from harness.profile.model import Profile
from harness.shipped import VERIFICATION
from harness.workload.plan import planned
from stub_service.defects import strengths
from stub_service.defects.registry import DEFECTS

OWN = {path.stem: cells.loaded(path.stem).document for path in sorted(VERIFICATION.glob("*.yaml"))}
FAIRNESS = Cell(HEALTHY, "fairness", "-", 1.0, 3)


def calls_of(document):
    return sum(n for phases in planned(Profile.model_validate(document)).values() for n in phases.values())


# --- cells


def test_a_key_says_all_of_a_cell():
    for cell in (
        FAIRNESS,
        Cell(DILUTED, "v07", "retry_after_early~10", 4.0, 17),
        Cell(LOSSY, "fairness", "0.02", 1, 5),
    ):
        assert cells.parsed(cell.key) == cell
    assert FAIRNESS.series == "healthy|fairness|-|x1"


@pytest.mark.parametrize("key", ["", "healthy|v04", "healthy|v04|-|xx|1", "sick|v04|-|x1|1", "healthy|v04|-|x1|one"])
def test_what_is_no_key_is_told(key):
    with pytest.raises(BadInput, match="is no cell"):
        cells.parsed(key)


def test_early_stages_have_something_of_everything_and_no_cell_comes_twice():
    seeds = {**cells.SEEDS, HEALTHY: 30}
    planned_ = [cell for stage in cells.stages(seeds) for cell, _ in stage]
    assert len({cell.key for cell in planned_}) == len(planned_)
    firsts = [cell for cell in planned_ if cell.number <= 10]
    assert {cell.part for cell in firsts} == {*cells.VIRTUAL}
    assert sum(cell.part == HEALTHY for cell in planned_) == 30 * len(OWN)


def test_another_seed_is_other_trials():
    one, other = ({cell.key for stage in cells.stages({HEALTHY: 3}, seed) for cell, _ in stage} for seed in (0, 1))
    assert one
    assert not one & other


def test_a_weaker_form_is_not_tried_below_what_nobody_sees_nor_a_longer_one_beyond_what_everybody_does():
    weak, before = Cell(DILUTED, "v07", "x~10", 1.0, 1), "diluted|v07|x~2|x1"
    assert cells.worth_it(weak, "", {})
    assert not cells.worth_it(weak, before, {})
    assert cells.worth_it(weak, before, {before: ["PASS", "FAIL"]})
    assert not cells.worth_it(weak, before, {before: ["PASS", "INCONCLUSIVE"]})
    long = Cell(DILUTED, "v07", "x~10", 4.0, 1)
    assert cells.worth_it(long, "", {"diluted|v07|x~10|x1": ["FAIL", "PASS"]})
    assert not cells.worth_it(long, "", {"diluted|v07|x~10|x1": ["FAIL", "FAIL"]})


def test_a_cell_is_asked_for_by_part_check_family_profile_and_defect():
    cell = Cell(DILUTED, "v07", "retry_after_early~10", 1.0, 1)
    for word in ("diluted", "virtual", "v07.retry_after", "v07", "retry_after_early", "retry_after_early~10"):
        assert cells.is_asked(cell, [word])
    assert not cells.is_asked(cell, ["live"])
    assert not cells.is_asked(cell, ["v08"])


def test_every_check_that_has_defects_is_tried_live_once():
    live = [cell for cell in cells.live_cells({cells.LIVE_DEFECT: 1}) if cell.part == cells.LIVE_DEFECT]
    assert {cells.own_check(cell) for cell in live} == {one.caught_by[0] for one in DEFECTS.values() if one.caught_by}


def test_a_live_trial_is_judged_by_what_its_defect_must_fail_though_the_profile_does_not_ask(monkeypatch):
    asked = []
    monkeypatch.setattr(trials.trial, "run", lambda *given: SimpleNamespace(trial=None))
    monkeypatch.setattr(trials, "judge_all", lambda trial, only: asked.append(only) or [])
    for cell in cells.live_cells({cells.LIVE_DEFECT: 1}):
        trials.verdicts_of(cell)
        assert {*cells.must_see(cell), cells.own_check(cell)} <= {*asked[-1]}, cell
    assert len(asked) > 30


def test_every_twin_is_tried_and_every_check_that_a_defect_must_fail_is_asked():
    stages = [cell for stage in cells.stages({cells.TWIN: 1, DEFECT: 1}) for cell, _ in stage]
    assert {cell.laid for cell in stages} - {"-"} == {*DEFECTS}
    for cell in stages:
        one = DEFECTS.get(cell.laid)
        assert cells.must_see(cell) == ((*one.caught_by, *one.twin_of) if one else ())
    assert cells.must_see(Cell(DILUTED, "v07", "retry_after_early~10", 1.0, 1)) == ()


# --- lengths


@pytest.mark.parametrize("name", sorted(OWN))
def test_a_longer_profile_is_sound_and_has_as_many_times_the_calls(name):
    document = OWN[name]
    if document["name"] in NO_LONGER:
        with pytest.raises(ValueError, match=document["name"]):
            longer(document, 4)
        return
    assert longer(document, 1) == document
    made = longer(document, 4)
    Profile.model_validate(made)
    assert calls_of(made) == pytest.approx(4 * calls_of(document), rel=0.35)


def test_a_longer_profile_leaves_rates_bounds_and_the_service_alone():
    document, made = OWN["fairness"], longer(OWN["fairness"], 4)
    assert made["service"] == document["service"]
    assert made["patience"] == document["patience"]
    assert made["duration"] == "32s"
    assert made["phases"]["burst"] == ["14s", "30s"]


def test_what_happens_at_instants_is_repeated_with_its_faults():
    made = longer(OWN["v07"], 2)
    assert len(made["tenants"]["agents"]["runs"]) == 2 * len(OWN["v07"]["tenants"]["agents"]["runs"])
    assert made["faults"][-1]["from"] == "6s"
    with pytest.raises(ValueError, match="repeated"):
        longer(OWN["v07"], 0.5)


# --- strengths


def test_every_defect_has_a_dilution_or_a_reason():
    broken = {name for name, one in DEFECTS.items() if not one.healthy}
    assert {*strengths.known()} | {*strengths.WHOLE} == broken
    assert not {*strengths.known()} & {*strengths.WHOLE}
    with pytest.raises(ValueError, match="has no dilution"):
        strengths.diluted(DEFECTS["weights_ignored"], 2)


def test_a_coin_falls_as_often_as_stated_and_one_subject_has_one_side():
    coin = strengths.Coin(10, "seed", Random(1))
    subjects = [coin("cancel", (f"run-{n}",)) for n in range(2000)]
    assert sum(subjects) == pytest.approx(200, abs=50)
    assert subjects == [coin("cancel", (f"run-{n}",)) for n in range(2000)]
    assert sum(coin("take", ()) for _ in range(2000)) == pytest.approx(200, abs=50)


@pytest.mark.parametrize(
    "name", ["retry_after_early", "refusal_as_503", "one_round_too_many", "cost_crash_never_settles"]
)
def test_a_dilution_of_one_is_the_defect_and_of_all_but_none_the_healthy_service(name, monkeypatch):
    def word(one_in):
        one = strengths.diluted(DEFECTS[name], one_in)
        monkeypatch.setitem(DEFECTS, one.name, one)
        document = cells.loaded(profile_of_defect(DEFECTS[name]).stem).document
        return judge_in_virtual_time(document, one.name, [one.caught_by[0]]).verdicts[0].word.value

    assert [word(1), word(10**12)] == ["FAIL", "PASS"]


def test_a_stated_share_is_lost_of_the_tenants_in_the_window_only():
    lost = strengths.lossy(0.1, ["A"], 1000, 2000)

    class Service:
        def offer(self, ticket, now_ns):
            return None

    class Config:
        seed = 7

    service = Service()
    lost.lay(service, Config())
    of = {
        (tenant, now_ns): sum(
            service.offer(strengths.Ticket(tenant, 1.0, None), now_ns) == "lossy" for _ in range(2000)
        )
        for tenant in "AD"
        for now_ns in (999, 1000, 2000)
    }
    assert of.pop(("A", 1000)) == pytest.approx(200, abs=50)
    assert {*of.values()} == {0}


# --- the record


def test_a_record_goes_on_after_a_cut_line_and_forgets_other_code(tmp_path):
    path = tmp_path / "judge.jsonl"
    record.append(Row("healthy|v04|-|x1|1", {"v04.bulkheads": "PASS"}, 0.1), path)
    with path.open("ab") as file:
        file.write(b'{"key": "healthy|v04|-|x1|2", "wor')
    record.append(Row("healthy|v04|-|x1|3", {"v04.bulkheads": "FAIL"}, 0.1, ["no"]), path)
    with path.open("ab") as file:
        file.write(b'{"key":"healthy|v04|-|x1|4","words":{},"cpu_s":0,"at":"2026-01-01","code":"other"}\n')
    assert [*record.read(path)] == ["healthy|v04|-|x1|1", "healthy|v04|-|x1|3"]
    assert len(record.read(path, any_code=True)) == 3


def test_what_is_on_record_is_not_run_again(tmp_path):
    campaign = Campaign({HEALTHY: 2, DEFECT: 1}, only=["agent.rounds_capped"], path=tmp_path / "judge.jsonl")
    campaign.go()
    rounds = [name for name, one in DEFECTS.items() if one.caught_by[:1] == ("agent.rounds_capped",)]
    assert len(campaign.done) == campaign.fresh == 2 + len(rounds)
    assert {row.word("agent.rounds_capped") for row in campaign.done.values() if "defect" in row.key} == {"FAIL"}
    again = Campaign({HEALTHY: 2, DEFECT: 1}, only=["agent.rounds_capped"], path=tmp_path / "judge.jsonl")
    assert [*again.stages()] == []


def test_a_campaign_whose_time_is_over_begins_nothing(tmp_path):
    campaign = Campaign({HEALTHY: 2}, only=["agent.rounds_capped"], path=tmp_path / "judge.jsonl", until=0.0)
    campaign.go()
    assert campaign.fresh == 0


def test_a_trial_that_is_not_to_be_trusted_decides_nothing_unless_its_defect_is_why():
    row = Row("defect|decisions|refusals_unrecorded|x1|1", {"a.b": "FAIL", "trial.conserved": "INVALID"}, 0.1)
    assert row.word("a.b") == "INVALID"
    assert row.word("a.b", ("trial.conserved",)) == "FAIL"


def test_a_cell_is_run_and_only_what_surprises_is_said():
    row = run(Cell(DEFECT, "rounds", "one_round_too_many", 1.0, 2))
    assert (row.words["agent.rounds_capped"], row.said) == ("FAIL", [])
    assert {*run(Cell(HEALTHY, "rounds", "-", 1.0, 2)).words.values()} == {"PASS"}


# --- tables


def rows(part, laid, words, profile="fairness", factor=1.0):
    check = cells.asked_by(profile)[0]
    return [Row(Cell(part, profile, laid, factor, n).key, {check: word}, 0.1, [], "2026-11-30T00:00:00Z", "x")
            for n, word in enumerate(words)]  # fmt: skip


def test_the_tables_tell_counts_intervals_targets_and_the_smallest_breach():
    made = [
        *rows(HEALTHY, "-", ["PASS"] * 99 + ["FAIL"]),
        *rows(DEFECT, "round_robin_forgets_place", ["FAIL"] * 3),
        *rows(LOSSY, "0.02", ["INCONCLUSIVE"] * 3 + ["FAIL"]),
        *rows(LENGTH, "-", ["INCONCLUSIVE", "PASS"], factor=0.5),
        *rows(DILUTED, "round_robin_forgets_place~2", ["FAIL"] * 20),
        *rows(DILUTED, "round_robin_forgets_place~10", ["FAIL"] * 10 + ["PASS"] * 10),
        *rows(DILUTED, "round_robin_forgets_place~10", ["FAIL"] * 20, factor=4.0),
    ]
    told = table.tables(made)
    assert "| no false FAIL, virtual time | 0 FAIL | 1 of 100 (0.2 to 5.4 %) | **broken** |" in told
    assert "| no false FAIL, live beside a burner | 0 FAIL |  | not tried yet |" in told
    assert "| 2 % lost, default profile | 0 PASS | 0 of 4 (0.0 to 49.0 %) | holds so far |" in told
    assert "| `fairness` | 2.0% | 0 of 4 | 3 of 4 | 1 of 4 |" in told
    assert "`round_robin_forgets_place` | 20 of 20 | 10 of 20 |  | 1 in 2 | 1 in 10 |" in told
    assert "| `fairness.ordinary_unmoved` | `fairness` |  | 1 of 2 | 0 of 100 |" in told


def test_what_a_check_may_not_say_of_a_twin_or_beside_a_defect_is_an_alarm():
    twin, broken = (next(d for d in DEFECTS.values() if d.healthy == healthy) for healthy in (True, False))
    stem = profile_of_defect(broken).stem
    words = dict.fromkeys(broken.caught_by, "FAIL") | {"trial.conserved": "FAIL"}
    told = table.tables([
        *rows(cells.TWIN, twin.name, ["PASS", "FAIL"], profile=profile_of_defect(twin).stem),
        Row(Cell(DEFECT, stem, broken.name, 1.0, 1).key, words, 0.1, [], "2026-11-30T00:00:00Z", "x"),
    ])  # fmt: skip
    assert "| no false FAIL of a healthy twin, virtual time | 0 FAIL | 1 of 2 (9.5 to 90.5 %) | **broken** |" in told
    assert "| no false FAIL of another check beside a defect | 0 FAIL | 1 of 1 (20.7 to 100.0 %) | **broken** |" in told


def test_tables_go_between_the_markers_and_nowhere_else(tmp_path):
    page = tmp_path / "trust.md"
    page.write_text(f"before\n{table.BEGIN}\nold\n{table.END}\nafter\n")
    table.write([], page)
    told = page.read_text()
    assert told.startswith("before\n")
    assert told.endswith("\nafter\n")
    assert "old" not in told
    assert "Nothing is on record" in told
    page.write_text("no markers")
    with pytest.raises(ValueError, match="missing"):
        table.write([], page)


def test_the_page_has_its_markers():
    assert table.BEGIN in table.PAGE.read_text()
    assert table.END in table.PAGE.read_text()


# --- what runs beside, and what is left


def test_a_burner_ends_with_its_block():
    with Burner() as burner:
        (mine,) = tree_of(burner.pid)
        assert mine.alive
    assert gone_within([mine], 5.0) == []


def test_a_number_that_is_used_again_is_another_process():
    (mine,) = [one for one in tree_of(1) if one.pid == 1]
    assert mine.alive
    assert not Process(mine.pid, mine.parent, mine.born + 1, mine.command).alive
