"""The HTML report in a real browser: it draws, it fetches nothing, and hostile text stays text."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from harness.checks.verdict import Finding, Verdict, Word
from harness.ledger.reader import Trial
from harness.report import write_html
from tests.browser.chromium import BINARY, Visit, visit
from tests.unit.report_trials import HOSTILE, call, manifest, profile, story_trial, story_verdicts, write

pytestmark = [pytest.mark.browser, pytest.mark.skipif(BINARY is None, reason="there is no chromium on this machine")]

STATE = "({charts: document.documentElement.dataset.charts, errors: document.documentElement.dataset.errors || ''})"
INK = """
[...document.querySelectorAll('canvas')].map((canvas) => {
  const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
  const colours = new Set();
  for (let i = 0; i < pixels.length; i += 4) if (pixels[i + 3] > 200) colours.add(pixels[i] + ',' + pixels[i + 1] + ',' + pixels[i + 2]);
  return colours.size;
})
"""  # noqa: E501
BACKGROUND = "getComputedStyle(document.body).backgroundColor"
SIZES = "({page: document.documentElement.scrollWidth, window: innerWidth})"


def opened(trial: Trial, verdicts: list[Verdict], tmp_path: Path, *expressions: str, **how: object) -> Visit:
    path = tmp_path / "report.html"
    write_html(trial, verdicts, path)
    seen = visit(path, (STATE, *expressions), **how)  # type: ignore[arg-type]
    assert seen.requests == []
    assert seen.faults == []
    assert seen.values[0]["errors"] == ""
    return seen


def png_size(picture: bytes) -> tuple[int, int]:
    assert picture.startswith(b"\x89PNG")
    width, height = struct.unpack(">II", picture[16:24])
    return width, height


def test_it_draws_every_chart_offline(tmp_path: Path) -> None:
    text = "document.body.innerText"
    seen = opened(story_trial(tmp_path), story_verdicts(), tmp_path, INK, text, SIZES, whole=True)
    state, ink, words, sizes = seen.values
    assert state["charts"] == "6"  # two tenants, each with its waiting calls; queue wait, re-plan share
    assert len(ink) == 6
    assert all(colours > 5 for colours in ink)
    assert "The burst cost alice 25.0 points of served share." in words
    assert sizes["page"] <= sizes["window"]
    assert png_size(seen.picture)[1] > 1_500


def test_dark_mode_changes_page_and_charts(tmp_path: Path) -> None:
    line = "getComputedStyle(document.documentElement).getPropertyValue('--c0').trim()"
    pictures = []
    for dark in (False, True):
        seen = opened(story_trial(tmp_path), story_verdicts(), tmp_path, BACKGROUND, line, INK, dark=dark)
        pictures.append((seen.values[1], seen.values[2], seen.picture))
        assert all(colours > 5 for colours in seen.values[3])
    light, dark_one = pictures
    assert light[0] == "rgb(251, 251, 250)"
    assert dark_one[0] == "rgb(20, 23, 27)"
    assert light[1] != dark_one[1]
    assert light[2] != dark_one[2]


def test_it_fits_a_phone_and_paper(tmp_path: Path) -> None:
    seen = opened(story_trial(tmp_path), story_verdicts(), tmp_path, SIZES, width=390, height=844)
    assert seen.values[1] == {"page": 390, "window": 390}
    nav = "getComputedStyle(document.querySelector('nav')).display"
    printed = opened(story_trial(tmp_path), story_verdicts(), tmp_path, nav, BACKGROUND, media="print", dark=True)
    assert printed.values[1:] == ["none", "rgb(255, 255, 255)"]


def test_the_keyboard_reaches_and_reads_the_charts(tmp_path: Path) -> None:
    keys = """(() => {
      const panel = document.querySelectorAll('#charts .panel')[0];
      panel.focus();
      const press = (key) => panel.dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true, cancelable: true}));
      press('Home'); press('ArrowRight'); press('ArrowRight');
      const early = document.getElementById('readout').textContent;
      press('End');
      return [document.activeElement === panel, early, document.getElementById('readout').textContent];
    })()"""
    toggle = """(() => {
      const button = document.querySelector('#legend button');
      button.click();
      return [button.getAttribute('aria-pressed'), document.querySelectorAll('#legend button').length];
    })()"""
    link = """(() => {
      document.querySelector('.witnesses a').click();
      return new Promise((done) => setTimeout(() => done([
        document.querySelectorAll('.witness:target').length,
        document.querySelector('.witness:target').open,
        document.activeElement.tagName,
        document.querySelector('.witness:target').innerText.includes('Calls, as their caller saw them'),
      ]), 200));
    })()"""
    seen = opened(story_trial(tmp_path), story_verdicts(), tmp_path, keys, toggle, link)
    focused, early, end = seen.values[1]
    assert focused
    assert early == "1 s: alice 0 ms, loop 0 ms"
    assert end == "9.5 s: alice –, loop –"
    assert seen.values[2] == ["false", 2]
    assert seen.values[3] == [1, True, "SUMMARY", True]


def test_hostile_text_stays_text(tmp_path: Path) -> None:
    names = [*HOSTILE, "<!--<script>", '"><svg onload=x()>']
    rows = [call(i, n, 0, 5_000, reason=n) for i, n in enumerate(names)]
    trial = write(tmp_path, rows, manifest(profile(names, names, about=names[3]), variant=names[3]))
    findings = tuple(Finding(n, n, Word.FAIL, 1.0, 0.5, 1.5, 0.0, n, 1, n) for n in names)
    ids = tuple(f"{i}.0" for i in range(len(names)))
    verdicts = [Verdict(n, Word.FAIL, 1.0, 0.0, n, 1, n, (*ids, n), n, findings) for n in names]
    alien = "document.querySelectorAll('img, svg[onload], script:not([type]) ~ img').length"
    titles = "[...document.querySelectorAll('#multiples h3')].map((title) => title.textContent)"
    seen = opened(trial, verdicts, tmp_path, alien, titles)
    assert seen.values[1] == 0
    assert "</script><img src=x onerror=x()> · ordinary" in seen.values[2]


def test_the_policy_stops_what_would_slip_through(tmp_path: Path) -> None:
    """The page with a script and an image put into it by force: neither may do anything."""
    path = tmp_path / "report.html"
    write_html(story_trial(tmp_path), story_verdicts(), path)
    forced = "<script>document.title = 'taken'</script><img src='http://127.0.0.1:9/x.png'><p style='color:red'>"
    path.write_text(path.read_text("utf-8").replace("<main>", f"<main>{forced}"), "utf-8")
    seen = visit(path, ("document.title", "getComputedStyle(document.querySelector('main > p')).color"))
    assert "taken" not in seen.values[0]
    assert seen.values[1] != "rgb(255, 0, 0)"
    assert seen.faults  # the browser said that it refused


def test_the_faults_of_a_page_are_noticed(tmp_path: Path) -> None:
    """That a page without faults passes means something only if one with faults does not."""
    path = tmp_path / "broken.html"
    path.write_text("<script>nothing.at.all</script><img src='missing.png'>", "utf-8")
    seen = visit(path)
    assert any("nothing" in fault for fault in seen.faults)
    assert len(seen.requests) == 1
