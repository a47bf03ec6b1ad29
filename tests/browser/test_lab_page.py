"""The lab in a real browser, against the real server: defaults, one change at a time, trace, files, links, keyboard.

Each test opens one page and waits for what it shows, never for a time.
"""
# ruff: noqa: E501 - scripts and links are read better on one line

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from harness import checks
from harness.lab.inputs import DEFAULTS, TOUR, read
from harness.profile.loader import from_document
from harness.simulate.ensemble import figures
from tests.browser.chromium import BINARY, Press, Shot, Visit, visit
from tests.browser.test_report_page import INK, SIZES, png_size

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(BINARY is None, reason="there is no chromium on this machine"),
    pytest.mark.xdist_group("lab"),
]

HELPERS = """
  const byId = (id) => document.getElementById(id);
  const field = (name) => byId('form').elements.namedItem(name);
  const type = (name, value) => { const c = field(name); c.focus(); c.value = value; c.dispatchEvent(new Event('input', {bubbles: true})); };
  const button = (words, root = document) => [...root.querySelectorAll('button')].find((b) => b.textContent.trim() === words);
  const until = (test, what) => new Promise((ok, bad) => {
    const begun = performance.now();
    const look = () => {
      let found; try { found = test(); } catch { found = null; }
      if (found) ok(found); else if (performance.now() - begun > 30000) bad(new Error('never: ' + what)); else setTimeout(look, 30);
    };
    look();
  });
  const done = () => until(() => document.documentElement.dataset.state === 'done', 'done');
  const table = (n = 0) => [...document.querySelectorAll('.who')[n].querySelectorAll('tbody tr')].map((row) =>
    [...row.children].map((cell) => cell.firstChild.nodeType === 3 ? cell.firstChild.textContent : cell.textContent.trim()));
  const word = (n = 0) => document.querySelectorAll('.view .word .chip')[n].textContent.trim().split(' ')[1];
  const downloads = [];
  if (!window.caught) { window.caught = downloads; URL.createObjectURL = (blob) => { window.caught.push(blob); return 'data:,'; }; }
"""


def js(body: str) -> str:
    """An expression that runs the body with the helpers at hand, and gives what it returns."""
    return f"(async () => {{ {HELPERS} {body} }})()"


READY = js("await done(); return document.documentElement.dataset.errors || ''")
SHIFT = """new Promise((ok) => { let sum = 0; new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) if (!entry.hadRecentInput) sum += entry.value;
}).observe({type: 'layout-shift', buffered: true}); setTimeout(() => ok(sum), 100); })"""


@pytest.fixture(scope="module")
def lab() -> Iterator[str]:
    """The command itself, as a person starts it: its address."""
    command = [sys.executable, "-m", "harness", "lab", "--no-open"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).resolve().parents[2]
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        try:
            yield line.removeprefix("the lab is at ").strip()
        finally:
            process.terminate()
            assert process.wait(30) == 0


def opened(url: str, *steps: str | Press | Shot, **how: object) -> Visit:
    """Opens it, waits for the first run, and takes the steps: nothing may be fetched from elsewhere, no script fail."""
    seen = visit(url, (READY, *steps), **how)  # type: ignore[arg-type]
    base = url.partition("#")[0]
    assert [asked for asked in seen.requests if not asked.startswith(base) and not asked.startswith("blob:")] == []
    assert seen.faults == []
    assert seen.values[0] == ""
    return seen


def test_the_defaults_are_the_worked_example(lab: str) -> None:
    texts = js(
        "return [word(), table(), document.body.innerText, document.documentElement.dataset.charts, byId('status').textContent]"
    )
    seen = opened(lab + "#trials=0", texts, INK, SIZES, SHIFT, whole=True)
    word, rows, text, charts, status = seen.values[1]
    loaded = read(DEFAULTS).loaded
    assert loaded is not None
    theirs = figures(loaded.profile)
    assert word == "FAIL"
    assert [row[0] for row in rows] == ["A", "B", "C", "D agent"]
    assert int(rows[3][1].replace(",", "")) == theirs.agent_offers
    assert int(rows[3][6].replace(",", "")) == theirs.replans
    assert f"{theirs.ordinary_served:.1%}".replace("%", " %") in text
    assert "Setting A: FAIL" in status
    assert charts == "7"
    assert all(colours > 3 for colours in seen.values[2])
    assert seen.values[3]["page"] <= seen.values[3]["window"]
    assert seen.values[4] < 0.02
    assert png_size(seen.picture)[1] > 1_500


def test_one_thing_at_a_time(lab: str) -> None:
    """Each step of the tour: its one change in the form, its verdict, its words; and back to the worked example."""
    step = "document.querySelector('[data-step=\"{}\"]').click(); await done(); " + (
        "return [word(), byId('look').textContent, byId('changes').textContent, location.hash, "
        "document.querySelectorAll('.step[aria-current]').length]"
    )
    seen = opened(lab + "#trials=0&workers=9", *(js(step.format(i)) for i in range(len(TOUR))))
    for made, expected, word in zip(
        seen.values[1:], TOUR, ("FAIL", "FAIL", "FAIL", "PASS", "PASS", "PASS"), strict=True
    ):
        assert made[0] == word, expected.title
        assert made[1] == expected.look
        assert made[4] == 1
        changed = {name for name, value in expected.change if DEFAULTS[name] != value}
        assert made[2] == (f"{len(changed)} changed" if changed else "")
        assert all(name in made[3] for name in changed)


def test_a_change_runs_at_once_and_is_marked(lab: str) -> None:
    body = js("""
      const before = table();
      type('workers', '16'); await done();
      const changed = document.querySelector('[data-field="workers"]');
      const marked = [changed.classList.contains('changed'), changed.querySelector('.was').textContent, document.querySelector('.what').textContent];
      byId('reset').click(); await done();
      return [before, marked, word(), table(), field('workers').value, location.hash];
    """)
    before, marked, word, after, workers, link = opened(lab + "#trials=0", body).values[1]
    assert marked == [True, "was 8", "Workers 8 → 16"]
    assert (word, workers, after) == ("FAIL", "8", before)
    assert link in ("", "#")


def test_the_trace_is_stepped_through_and_changes_no_figure(lab: str) -> None:
    body = js("""
      const rows = () => [...document.querySelectorAll('.trace tbody tr:not(.gap):not(.none)')].map((row) => [...row.children].map((cell) => cell.textContent));
      const count = () => document.querySelector('.count').textContent;
      const slider = document.querySelector('input[type=range]'), before = table(), made = {all: count()};
      button('Start').click(); made.none = [count(), rows().length, button('Start').disabled];
      button('Next step').click(); button('Next step').click(); made.two = rows();
      slider.value = '5000'; slider.dispatchEvent(new Event('input', {bubbles: true}));
      made.many = [count(), slider.getAttribute('aria-valuetext'), rows().length];
      const tenant = byId('trace-A-tenant'), kind = byId('trace-A-decision');
      kind.value = '3'; kind.dispatchEvent(new Event('change', {bubbles: true}));
      tenant.value = '0'; tenant.dispatchEvent(new Event('change', {bubbles: true}));
      button('Show all').click(); made.refused = [count(), rows()[0]];
      made.same = JSON.stringify(before) === JSON.stringify(table());
      return [made, before];
    """)
    made, rows = opened(lab + "#trials=0", body).values[1]
    assert made["none"] == ["0 of " + made["all"].split(" of ")[1], 0, True]
    assert [row[:3] for row in made["two"]] == [["0.000", "queued", "A"], ["0.000", "queued", "B"]]
    assert made["many"][0].startswith("5,000 of ")
    assert ", up to " in made["many"][1]
    assert made["many"][2] < 60  # only rows in sight exist
    assert made["refused"][0] == f"{rows[0][4]} of {rows[0][4]}"
    assert made["refused"][1][1:3] == ["refused at admission", "A"]
    assert made["same"]


def test_export_and_import(lab: str) -> None:
    """An export holds inputs, table and trace; imported, it brings the inputs back and meets the same figures."""
    export = js("""
      type('policy', 'tenant_cap'); await done(); type('cap', '3'); await done();
      byId('export').click();
      return await window.caught[0].text();
    """)
    text = opened(lab + "#trials=0", export).values[1]
    document = json.loads(text)
    (setting,) = document["settings"]
    assert (document["format"], document["version"]) == ("overload-lab", 1)
    assert setting["inputs"] == {**DEFAULTS, "policy": "tenant_cap", "cap": "3"}
    assert len(setting["table"]) == 4
    assert len(setting["trace"]["columns"]["t_us"]) == setting["trace"]["total"] > 10_000
    setting["trace"]["columns"] = {}

    give = """
      const give = async (text, name) => {{
        const files = new DataTransfer(); files.items.add(new File([text], name));
        byId('file').files = files.files; byId('file').dispatchEvent(new Event('change'));
        await until(() => byId('said').textContent, 'an answer'); await done(); return byId('said').textContent;
      }};
      const said = await give({}, 'x.json'); return [said, field('cap').value, field('policy').value, table()];
    """
    other = {**document, "settings": [{**setting, "table": []}]}
    sound, stranger = js(give.format(json.dumps(json.dumps(document)))), js(give.format(json.dumps(json.dumps(other))))
    broken, foreign = js(give.format("'{'")), js(give.format('\'{"format": "else"}\''))
    same = opened(lab + "#trials=0", sound).values[1]
    assert same[0] == "Imported. The run gives the same figures as the file."
    assert same[1:3] == ["3", "tenant_cap"]
    assert "gives others" in opened(lab + "#trials=0", stranger).values[1][0]
    assert "is not JSON" in opened(lab + "#trials=0", broken).values[1][0]
    refused = opened(lab + "#trials=0", foreign).values[1]
    assert "no export of the lab" in refused[0]
    assert refused[2] == "shared_fifo"


def test_a_setting_is_saved_as_a_profile(lab: str) -> None:
    save = js("""
      byId('save').click(); await until(() => window.caught.length, 'a file');
      return await window.caught[0].text();
    """)
    text = opened(lab + "#trials=0&policy=fair_queues&agent.weight=2", save).values[1]
    profile = from_document(yaml.safe_load(text), checks=checks.PARAMETERS).profile
    assert profile.service is not None
    assert profile.service.admission.weights == {"D": 2}


def test_wrong_input_is_told_at_its_field(lab: str) -> None:
    wrong = js("""
      type('workers', 'x'); type('tenant.1.rate', '8'); type('burst.for', '10m'); await done();
      await until(() => !byId('wrong').hidden, 'told');
      const told = (name) => [field(name).getAttribute('aria-invalid'), byId('error-' + name).textContent,
        field(name).getAttribute('aria-describedby').split(' ').includes('error-' + name), byId('error-' + name).hidden];
      return [told('workers'), told('tenant.1.rate'), told('queue'), byId('wrong').textContent, byId('wrong').getAttribute('role'),
        document.querySelector('.view').classList.contains('stale')];
    """)
    go = js("[...document.querySelectorAll('#wrong button')][0].click(); return document.activeElement.name")
    right = js("""
      type('workers', '16'); type('tenant.1.rate', '8/s'); type('burst.for', '40s'); await done();
      return [byId('wrong').hidden, word(), field('workers').hasAttribute('aria-invalid')];
    """)
    seen = opened(lab + "#trials=0", wrong, go, Shot(), right)
    workers, rate, queue, box, role, stale = seen.values[1]
    assert workers == ["true", "expected a whole number, such as 8", True, False]
    assert rate[:2] == ["true", "expected a rate with its unit, such as 8/s, 0.5/s or 20/m"]
    assert queue == [None, "", True, True]
    assert "3 inputs to correct" in box
    assert (role, stale) == ("alert", True)
    assert seen.values[2] == "workers"
    assert seen.values[3] == [True, "PASS", False]


def test_the_link_holds_the_inputs(lab: str) -> None:
    state = js(
        "return [field('workers').value, field('tenant.3.name').value, field('tenant.3.rate').value, field('budget').checked, location.hash]"
    )
    link = "#workers=12&tenants=4&tenant.3.name=shop%20%26%20co&tenant.3.rate=1%2Fs&budget=on&trials=0"
    made = opened(lab + link, state).values[1]
    assert made[:4] == ["12", "shop & co", "1/s", True]
    again = opened(lab + made[4], state).values[1]
    assert again == made


def test_a_hostile_link_is_an_error_in_words(lab: str) -> None:
    bad = "#workers=%3Cimg%20src%3Dx%20onerror%3Dx()%3E&tenants=99999&no%3Cscript%3E=1&tenant.0.name=%3C%2Fscript%3E%3Cimg%20src%3Dx%3E"
    state = js(
        "await until(() => !byId('wrong').hidden, 'told'); return [byId('wrong').textContent, document.querySelectorAll('img').length]"
    )
    text, images = opened(lab + bad + "&trials=0", state).values[1]
    assert "1 to 12 ordinary tenants" in text
    assert images == 0
    name = js(
        "return [table()[0][0], document.querySelectorAll('img').length, document.querySelector('#views h3 bdi') !== null]"
    )
    shown = opened(lab + "#trials=0&tenant.0.name=%3C%2Fscript%3E%3Cimg%20src%3Dx%3E", name).values[1]
    assert shown == ["</script><img src=x>", 0, True]


def test_two_settings_side_by_side(lab: str) -> None:
    compare = js("""
      byId('compare').click(); await done();
      const first = [byId('which').querySelector('[aria-checked=true]').textContent, document.querySelectorAll('.view').length];
      type('policy', 'fair_queues'); await done();
      const views = [...document.querySelectorAll('.view')];
      const tops = views.map((view) => Math.round(view.querySelector('.who').getBoundingClientRect().top));
      const made = [first, word(0), word(1), views.map((view) => view.querySelector('.what').textContent), tops, location.hash];
      byId('compare').click(); await done();
      return [...made, document.querySelectorAll('.view').length, field('policy').value];
    """)
    first, a, b, what, tops, link, left, kept = opened(lab + "#trials=0", compare, width=1600, height=1000).values[1]
    assert first == ["B", 2]
    assert (a, b) == ("FAIL", "PASS")
    assert what == ["The worked example, unchanged", "Policy Shared FIFO → Fair queues"]
    assert tops[0] == tops[1]
    assert (left, kept) == (1, "fair_queues")
    again = js("return [word(0), word(1), field('policy').value, document.querySelectorAll('.view').length]")
    assert opened(lab + link, again).values[1] == ["FAIL", "PASS", "shared_fifo", 2]


def test_the_ensemble_is_a_band_and_a_range(lab: str) -> None:
    body = js("""
      await until(() => document.querySelector('.tile .range')?.textContent.startsWith('20 trials:'), 'twenty trials');
      return [[...document.querySelectorAll('.tile .range')].map((r) => r.textContent), document.querySelector('.spread').textContent,
        document.querySelector('.view h2 .note').textContent, document.querySelector('.who td.share small').textContent];
    """)
    short = "#duration=40s&burst.from=10s&burst.for=20s"
    ranges, warning, band, cell = opened(lab + short, body).values[1]
    assert len(ranges) == 4
    assert "median" in ranges[0]
    assert warning.startswith("Over 20 trials with other phases: FAIL in all of them.")
    assert "20 trials" in band
    assert " to " in cell


def test_the_keyboard_alone(lab: str) -> None:
    """Tab to the workers, raise them, come back by Tab to the trace's buttons: every stop is visible and has a name."""
    to_workers = js("field('workers').focus(); return true")
    at = js("await done(); return [document.activeElement.name, document.activeElement.value, word()]")
    stops = js("""
      const reached = [], seen = new Set();
      for (const each of document.querySelectorAll('a[href], button, input, select, [tabindex]')) {
        if (each.disabled || each.tabIndex < 0 || !each.checkVisibility({visibilityProperty: true})) continue;
        const name = each.getAttribute('aria-label') || each.labels?.[0]?.textContent || each.textContent;
        reached.push([each.tagName, name.trim()]);
      }
      return reached;
    """)
    outline = "getComputedStyle(document.activeElement).outlineStyle + ' ' + getComputedStyle(document.activeElement).outlineWidth"
    here = "document.activeElement.id || document.activeElement.textContent"
    seen = opened(
        lab + "#trials=0",
        Press("Tab"), here, outline, Press("Tab"), here, outline,
        to_workers, Press("ArrowUp", 8), at, Press("ArrowDown", 8), at,
        stops,
        js("button('Start').focus(); return true"), Press("Enter"), Press("Tab"), Press("Enter"), here,
        js("return document.querySelector('.count').textContent.split(' ')[0]"),
    )  # fmt: skip
    first, ring, second, ring2, _, up, down, reached, _, last, count = seen.values[1:]
    assert first == "Skip to the results"
    assert second == "reset"
    assert ring == ring2 == "solid 2px"
    assert up == ["workers", "16", "PASS"]
    assert down == ["workers", "8", "FAIL"]
    assert all(name for _, name in reached)
    assert len(reached) > 40
    assert last
    assert count == "1"


def test_charts_are_read_by_keyboard(lab: str) -> None:
    body = js("""
      const panel = document.querySelector('.panel'); panel.focus();
      const press = (key) => panel.dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true, cancelable: true}));
      press('Home'); press('ArrowRight');
      return [document.activeElement === panel, byId('readout').textContent, byId('readout').getAttribute('role')];
    """)
    focused, text, role = opened(lab + "#trials=0", body).values[1]
    assert focused
    assert text == "1 s: waiting 4, running 8"
    assert role == "status"


def test_tenants_are_added_and_taken_away(lab: str) -> None:
    body = js("""
      byId('add').click(); await done();
      const more = [table().map((row) => row[0]), document.activeElement.name, document.documentElement.dataset.charts];
      type('tenant.3.rate', '2/s'); await done();
      document.querySelector('[aria-label="Remove tenant 1"]').click(); await done();
      return [...more, table().map((row) => row[0]), field('tenant.2.rate').value, document.activeElement.name];
    """)
    more, focus, charts, fewer, moved, after = opened(lab + "#trials=0", body).values[1]
    assert more == ["A", "B", "C", "E", "D agent"]
    assert (focus, charts) == ("tenant.3.name", "8")
    assert fewer == ["B", "C", "E", "D agent"]
    assert (moved, after) == ("2/s", "tenant.0.name")


def test_dark_is_dark(lab: str) -> None:
    colours = "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.querySelector('.tile')).backgroundColor]"
    seen = opened(lab + "#trials=0&policy=fair_queues", colours, INK, dark=True)
    assert seen.values[1] == ["rgb(20, 23, 27)", "rgb(28, 32, 38)"]
    assert all(found > 3 for found in seen.values[2])


def test_a_phone_has_no_sideways_scroll_and_folded_settings(lab: str) -> None:
    body = js(
        "return [byId('settings').open, [...document.querySelectorAll('.view button, .bar button')].every((b) => b.getBoundingClientRect().height >= 36)]"
    )
    seen = opened(lab + "#trials=0", SIZES, body, SHIFT, width=375, height=812)
    assert seen.values[1] == {"page": 375, "window": 375}
    assert seen.values[2] == [False, True]
    assert seen.values[3] < 0.02
