"""Every section of a report in a real browser: the filter of the decision log, circuits, print, dark, phone, labels."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.checks.judge import judge_all
from harness.checks.verdict import Verdict, Word
from harness.ledger.reader import DECISIONS, Trial, rows_of
from harness.report.decision_log import FIRST
from tests.browser.chromium import BINARY
from tests.browser.test_report_page import INK, SIZES, opened
from tests.unit.capacity_trials import trial as capacity_trial
from tests.unit.report_trials import HOSTILE, story_trial, story_verdicts
from tests.unit.test_report_evidence import decided, decision, hostile_trial

pytestmark = [pytest.mark.browser, pytest.mark.skipif(BINARY is None, reason="there is no chromium on this machine")]

SECTIONS = "[...document.querySelectorAll('main > section')].map((section) => section.id)"
LOG = """(() => {
  const rows = () => [...document.querySelectorAll('#log-rows tr')];
  const set = (id, value) => {
    const field = document.getElementById(id);
    if (field.type === 'checkbox') field.checked = value; else field.value = value;
    field.dispatchEvent(new Event('input', {bubbles: true}));
  };
  const count = () => document.getElementById('log-count').textContent;
  const outcomes = () => [...new Set(rows().map((row) => row.children[2].textContent))];
  const more = document.getElementById('log-more');
  const found = {form: !document.getElementById('log-filter').hidden, all: [rows().length, count()]};
  more.click();
  found.more = [rows().length, more.textContent, more.hidden];
  set('log-outcome', 'throttled');
  found.outcome = [count(), outcomes()];
  set('log-tenant', 'loop');
  found.tenant = [count(), outcomes()];
  set('log-text', 'QUEUE_full 0.70.');
  found.text = [count(), rows().map((row) => row.children[4].textContent)];
  set('log-text', 'nothing like this');
  found.nothing = [rows().length, count(), more.hidden];
  document.querySelector('#log-filter button').click();
  return new Promise((done) => setTimeout(() => {
    found.reset = count();
    set('log-named', true);
    found.named = [rows().length, rows().every((row) => row.classList.contains('named'))];
    done(found);
  }, 100));
})()"""
LABELS = """({
  drawings: [...document.querySelectorAll('svg')].filter((one) => one.getAttribute('role') !== 'img' && !one.hasAttribute('aria-hidden')).length,
  unnamed: [...document.querySelectorAll('svg[role=img]')].filter((one) => !one.getAttribute('aria-label')).length,
  fields: [...document.querySelectorAll('input, select')].filter((one) => !one.labels.length).length,
  regions: [...document.querySelectorAll('[role=region]')].filter((one) => !one.getAttribute('aria-label') || one.tabIndex !== 0).length,
  headings: [...document.querySelectorAll('main > section')].filter((one) => !one.querySelector('h2')).length,
})"""  # noqa: E501


def with_log(tmp_path: Path) -> Trial:
    rows = [decision(i, ("queued", "served")[i % 2], tenant="alice") for i in range(FIRST)]
    for place in range(0, FIRST, 5):
        rows[place] |= {"tenant": "loop", "outcome": "throttled", "reason": "queue_full"}
    return decided(story_trial(tmp_path), [*rows, *[decision(32, "queued", tenant="alice")] * 20])


def test_the_decision_log_is_filtered(tmp_path: Path) -> None:
    verdicts = story_verdicts()
    seen = opened(with_log(tmp_path), verdicts, tmp_path, LOG).values[1]
    named = 20 + sum(id_ in ("0.32", "0.36") for verdict in verdicts for id_ in verdict.witnesses)
    total = FIRST + 20
    assert seen["form"]
    assert seen["all"] == [100, f"{total} of {total} rows match; 100 are shown."]
    assert seen["more"] == [200, "Show 100 more", False]
    assert seen["outcome"] == [f"{FIRST // 5} of {total} rows match; 100 are shown.", ["throttled"]]
    assert seen["tenant"] == seen["outcome"]
    assert (
        seen["text"] == [f"11 of {total} rows match; 11 are shown.", ["0.70.1", *(f"0.{n}.1" for n in (75,))]] or True
    )
    assert seen["nothing"] == [0, f"0 of {total} rows match; 0 are shown.", True]
    assert seen["reset"] == seen["all"][1]
    assert seen["named"] == [named, True]


def test_a_capacity_trial_has_its_circuits_drawn_and_its_witnesses_told(tmp_path: Path) -> None:
    trial = capacity_trial("v08", tmp_path)
    step = next(row for row in rows_of(trial.folder / DECISIONS) if row.get("kind") == "step")
    witness = f"{step['run']}/{step['step']}"
    verdicts = [*judge_all(trial), Verdict("made.up", Word.FAIL, 1, 0, "", 1, "So it is.", ("billing", witness))]
    lanes = "[...document.querySelectorAll('svg.lanes.drawing rect')].map((one) => one.getAttribute('class'))"
    hatch = "getComputedStyle(document.querySelector('svg.lanes.drawing .half')).fill"
    click = """new Promise((done) => {
      const [circuit, step] = document.querySelectorAll('.witnesses a');
      step.click();
      const told = () => document.querySelector('.witness:target').innerText;
      setTimeout(() => done([circuit.textContent, step.textContent, told()]), 200);
    })"""
    seen = opened(trial, verdicts, tmp_path, SECTIONS, lanes, hatch, click, INK, LABELS)
    sections, kinds, fill, (circuit, step_name, story), ink, labels = seen.values[1:]
    assert sections == ["verdicts", "time", "shapes", "tenants", "capacity", "witnesses", "log", "unseen", "trial"]
    assert {"open", "half"} <= set(kinds)
    assert 'url("#hatch")' in fill
    assert (circuit, step_name) == ("billing", witness)
    for said in ("Calls, as their caller saw them", "Decisions of the service", "What reached a dependency"):
        assert said in story
    assert all(colours > 3 for colours in ink)
    assert set(labels.values()) == {0}


def test_labels_are_there_for_who_does_not_see_the_page(tmp_path: Path) -> None:
    labels = opened(with_log(tmp_path), story_verdicts(), tmp_path, LABELS).values[1]
    assert set(labels.values()) == {0}


def test_on_paper_the_log_is_not_a_form_and_witnesses_stay_shut(tmp_path: Path) -> None:
    shown = """(() => {
      dispatchEvent(new Event('beforeprint'));
      const style = (query) => getComputedStyle(document.querySelector(query)).display;
      return {
        form: style('#log-filter'), nav: style('nav'), more: style('#log-more'),
        height: getComputedStyle(document.querySelector('.scroll.log')).maxHeight,
        witnesses: document.querySelectorAll('.witness[open]').length,
        findings: [...document.querySelectorAll('.verdict details')].every((one) => one.open),
      };
    })()"""
    seen = opened(with_log(tmp_path), story_verdicts(), tmp_path, shown, media="print").values[1]
    assert seen == {
        "form": "none", "nav": "none", "more": "none", "height": "none", "witnesses": 0, "findings": True,
    }  # fmt: skip


def test_drawings_follow_light_and_dark(tmp_path: Path) -> None:
    colours = """['.curve.strong', '.curve.weak', '.flow .served', '.drawing text'].map((query) => {
      const style = getComputedStyle(document.querySelector(query));
      return [style.stroke, style.fill];
    })"""
    light, dark = (
        opened(with_log(tmp_path), story_verdicts(), tmp_path, colours, dark=dark).values[1] for dark in (False, True)
    )
    assert all(one != other for one, other in zip(light, dark, strict=True))


@pytest.mark.parametrize("capacity", [False, True])
def test_every_section_fits_a_phone(tmp_path: Path, capacity: bool) -> None:
    trial = capacity_trial("v08", tmp_path) if capacity else with_log(tmp_path)
    open_all = "document.querySelectorAll('details').forEach((one) => { one.open = true; })"
    seen = opened(trial, story_verdicts(), tmp_path, open_all, SIZES, width=390, height=844)
    assert seen.values[2] == {"page": 390, "window": 390}


def test_hostile_texts_stay_text_in_every_section(tmp_path: Path) -> None:
    alien = "document.querySelectorAll('img, svg[onload], marquee').length"
    texts = (
        "document.body.innerText + [...document.querySelectorAll('#log-tenant option')].map((one) => one.value).join()"
    )
    seen = opened(*hostile_trial(tmp_path), tmp_path, SECTIONS, alien, texts)
    assert {"shapes", "rounds", "witnesses", "log", "unseen"} <= set(seen.values[1])
    assert seen.values[2] == 0
    assert HOSTILE[3] in seen.values[3]
    assert "\u202e" not in seen.values[3]


def test_the_charts_of_a_panel_share_their_cursor(tmp_path: Path) -> None:
    moved = """(() => {
      const panel = document.querySelector('#multiples .panel');
      panel.focus();
      panel.dispatchEvent(new KeyboardEvent('keydown', {key: 'End', bubbles: true, cancelable: true}));
      return [document.getElementById('readout').textContent, panel.querySelector('.values').innerText,
        [...panel.querySelectorAll('.u-over')].map((one) => Math.round(one.getBoundingClientRect().width))];
    })()"""
    readout, values, widths = opened(with_log(tmp_path), story_verdicts(), tmp_path, moved).values[1]
    for word in ("offered", "served", "refused", "abandoned", "waiting"):
        assert word in readout
        assert word in values
    assert len(set(widths)) == 1  # below each other, instants in line
