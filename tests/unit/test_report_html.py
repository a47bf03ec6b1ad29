"""The HTML and JSON reports without a browser: escaping, policy, size, stable keys."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from harness.checks.verdict import Finding, Verdict, Word
from harness.ledger.reader import LedgerError
from harness.report import write_html, write_reports
from harness.report.html import page
from harness.report.html_parts import MOST_FINDINGS, esc
from harness.report.json_report import report_json
from harness.report.offline import json_in_script
from harness.report.stories import stories_of
from harness.report.terminal import show
from tests.unit.report_trials import HOSTILE, call, manifest, profile, random_rows, story_trial, story_verdicts, write


class Elements(HTMLParser):
    """Every element and attribute, and the text outside scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.scripts: list[str] = []
        self._within = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self._within = tag

    def handle_endtag(self, tag: str) -> None:
        if tag == self._within:
            self._within = ""

    def handle_data(self, data: str) -> None:
        if self._within:
            self.scripts.append(data)
        else:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def story_page(tmp_path: Path) -> Elements:
    return Elements(page(story_trial(tmp_path), story_verdicts()))


def test_verdict_comes_first_and_everything_is_there(tmp_path: Path) -> None:
    elements = story_page(tmp_path)
    sections = [attrs.get("id") for tag, attrs in elements.seen if tag == "section"]
    assert [id_ for id_ in sections if id_] == [
        "verdicts", "hurt", "time", "shapes", "rounds", "tenants", "witnesses", "log", "trial",
    ]  # fmt: skip
    text = elements.text
    parts = ["✕ FAIL small, simulated", "A rule was broken", "fairness.ordinary_unmoved", "25 pp", "served share down",
             "13.1 to 42.2", "trial.on_time", "Run it live.", "served in burst", "75.0", "latency"]  # fmt: skip
    places = [text.index(part) for part in parts]
    assert places == sorted(places)


def test_witnesses_are_linked_to_their_rows(tmp_path: Path) -> None:
    seen = story_page(tmp_path).seen
    targets = {attrs["id"] for _, attrs in seen if "id" in attrs}
    links = [attrs["href"] or "" for tag, attrs in seen if tag == "a"]
    assert links
    assert {link[1:] for link in links} <= targets
    assert sum(bool(re.match(r"#w\d", link)) for link in links) == 2  # 9.99 is no call of this trial: shown, not linked


def test_nothing_is_fetched_and_only_our_scripts_may_run(tmp_path: Path) -> None:
    text = page(story_trial(tmp_path), story_verdicts())
    elements = Elements(text)
    policy = next(a["content"] or "" for tag, a in elements.seen if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    for tag, kind in (("script", "script-src"), ("style", "style-src")):
        bodies = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.S)
        assert bodies
        allowed = policy.split(kind)[1].split(";")[0]
        for body in bodies:
            digest = base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()
            assert f"'sha256-{digest}'" in allowed
    for tag, attrs in elements.seen:
        assert tag not in ("iframe", "img", "object", "embed", "form", "base")
        assert not any(name.startswith("on") or name == "style" for name in attrs)
        assert (attrs.get("src") or attrs.get("href") or "#").startswith(("#", "data:"))


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    names = [*HOSTILE, "<!--<script>", '"><svg onload=x()>', "\u2028x", "&lt;b&gt;"]
    rows = [call(i, n, 0, 5_000, reason=n, retry_after=n) for i, n in enumerate(names)]
    head = manifest(profile(names, names, about=names[3]), variant=names[3], target={"kind": "url", "url": names[5]})
    trial = write(tmp_path, rows, head)
    findings = tuple(Finding(n, n, Word.FAIL, 1.0, 0.5, 1.5, 0.0, n, 1, n) for n in names)
    ids = tuple(f"{i}.0" for i in range(len(names)))
    verdicts = [Verdict(n, Word.FAIL, 1.0, 0.0, n, 1, n, (*ids, n), n, findings) for n in names]
    text = page(trial, verdicts)
    elements = Elements(text)
    assert {tag for tag, _ in elements.seen}.isdisjoint({"img", "b", "iframe"})
    assert sum(tag == "script" for tag, _ in elements.seen) == 4  # data, uPlot, charts, report
    for _, attrs in elements.seen:
        assert not any(name.startswith("on") for name in attrs)
    assert "</script><img src=x onerror=x()>" in elements.text
    assert "&lt;b&gt;" in elements.text
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u2028\u2029\u202a-\u202e\u2066-\u2069]", text)
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    assert data
    assert len(json.loads(data[1])["lines"]) == 8


@given(st.recursive(st.text() | st.none() | st.integers(-(2**53), 2**53), lambda inner: st.lists(inner, max_size=4)))
@settings(deadline=None)
def test_json_in_a_script_element_cannot_leave_it(value: Any) -> None:
    try:
        text = json_in_script(value)
    except orjson.JSONEncodeError:  # a lone surrogate: names are made safe before they come here
        assert "\\ud" in json.dumps(value)
        return
    assert not re.search("[<>&\u2028\u2029]", text)
    assert json.loads(text) == value


@given(st.text())
@settings(deadline=None)
def test_escaped_text_is_only_text(text: str) -> None:
    shown = esc(text)
    assert not re.search("[<>\"']", shown)
    assert Elements(f'<p title="{shown}">{shown}</p>').seen[0][0] == "p"


def test_hundred_thousand_calls_stay_under_two_megabytes(tmp_path: Path) -> None:
    names = [f"tenant-{i}" for i in range(50)]
    rows = random_rows(1, names, 2_000)
    assert len(rows) >= 100_000
    trial = write(tmp_path, rows, manifest(profile(names, names[:40])))
    findings = tuple(Finding(n, "served share down", Word.FAIL, 1.0, 0.5, 1.5, 0.0, "pp", 9) for n in names * 20)
    ids = tuple(f"0.{i}" for i in range(20))
    verdicts = [Verdict(f"check.{i}", Word.FAIL, 1.0, 0.0, "pp", 1, "So it is.", ids, "", findings) for i in range(8)]
    paths = write_reports(trial, verdicts)
    assert paths["html"].stat().st_size < 2_000_000
    text = paths["html"].read_text("utf-8")
    assert f"the first {MOST_FINDINGS} are shown" in text
    assert "tenants with fewer calls share one row" in text


def test_reports_are_written_beside_the_ledger(tmp_path: Path) -> None:
    paths = write_reports(story_trial(tmp_path), story_verdicts())
    assert {name: path.name for name, path in paths.items()} == {"html": "report.html", "json": "report.json"}
    assert json.loads(paths["json"].read_bytes())["verdict"] == {
        "word": "FAIL", "exit_code": 1, "sentence": "A rule was broken; the witnesses are named.",
    }  # fmt: skip
    again = tmp_path / "again.html"
    write_html(story_trial(tmp_path), story_verdicts(), again)
    assert again.read_bytes() == paths["html"].read_bytes()
    assert not list(tmp_path.glob("*.part"))


def test_a_folder_that_cannot_be_written_is_one_clear_error(tmp_path: Path) -> None:
    trial = story_trial(tmp_path)
    with pytest.raises(LedgerError, match=r"no/report\.html: cannot be written \(No such file or directory\)"):
        write_html(trial, [], tmp_path / "no" / "report.html")


def test_json_keys_are_stable(tmp_path: Path) -> None:
    document = report_json(story_trial(tmp_path), story_verdicts(), series=True)
    assert list(document) == [
        "schema", "trial_id", "created", "driver", "variant", "seed", "time_scale", "target", "profile", "verdict",
        "verdicts", "calls", "rows", "capacity", "rounds", "recorded", "not_observable", "series",
    ]  # fmt: skip
    assert list(document["rows"][0]) == [
        "tenant", "kind", "ordinary", "phase", "due", "offered", "served", "refused", "abandoned", "failed",
        "held_back", "dropped", "open", "other", "replans", "attempts", "outcomes", "wait", "wait_all", "latency",
        "served_share", "replan_share",
    ]  # fmt: skip
    assert list(document["rows"][0]["wait"]) == [
        "samples", "mean_ms", "p50_ms", "p95_ms", "p99_ms", "p95_firm", "p99_firm",
    ]  # fmt: skip
    assert [verdict["word"] for verdict in document["verdicts"]] == ["FAIL", "INCONCLUSIVE", "PASS"]
    assert list(document["series"]) == ["width_s", "starts_s", "end_s", "lines", "bulkheads"]
    assert "series" not in report_json(story_trial(tmp_path), [])


def test_json_has_no_nan(tmp_path: Path) -> None:
    nan = float("nan")
    findings = (Finding("a", "q", Word.FAIL, nan, float("inf"), -float("inf"), nan, "ms", 0),)
    verdicts = [Verdict("c", Word.FAIL, nan, nan, "ms", 0, "s", findings=findings)]
    document = report_json(story_trial(tmp_path), verdicts)
    json.dumps(document, allow_nan=False)
    assert document["verdicts"][0]["measured"] is None
    assert "nan" in page(story_trial(tmp_path), verdicts)  # shown, and drawn nowhere: no crash


def test_stories_hold_every_attempt_and_ignore_what_is_no_call(tmp_path: Path) -> None:
    rows = [call(0, "a", 3, 0, "failed", retried=True), call(0, "a", 3, 0, attempt=2), call(0, "a", 4, 9)]
    trial = write(tmp_path, rows, manifest(profile(["a"], [])))
    found = stories_of(trial, ["0.3", "0.9", "x", "", "0.-1", "٣.٣", "1e9.2", "99999999999999.1", "0.4.1"], None)
    attempts = {id_: [row["attempt"] for _, row in story.calls] for id_, story in found.items()}
    assert attempts == {"0.3": [1, 2], "0.4.1": [1]}


def test_the_account_of_a_recording_is_shown(tmp_path: Path) -> None:
    trial = story_trial(tmp_path)
    sample = {"where": "access.log:7", "reason": "no time", "text": HOSTILE[3]}
    account = {
        "lines": 1_212,
        "aside": 7,
        "broken": {"no time": 5},
        "broken_lines": 5,
        "kept": 1_200,
        "planned": 1_200,
        "samples": [sample],
    }
    (tmp_path / "recorded.json").write_bytes(orjson.dumps({"account": account, "duration_ns": 1}))
    elements = Elements(page(trial, []))
    assert "lines read 1,212 never sent 7 broken 5 kept 1,200 planned 1,200" in elements.text
    assert "access.log:7: no time: </script><img src=x onerror=x()>" in elements.text
    assert not any(tag == "img" for tag, _ in elements.seen)
    assert report_json(trial, [])["recorded"]["account"] == account
    stream = io.StringIO()
    show(trial, [], Console(file=stream, force_terminal=False))
    assert "Recorded traffic: 1,212 lines read, 7 never sent, 5 broken, 1,200 kept, 1,200 planned." in stream.getvalue()


@pytest.mark.parametrize("content", [b"", b"[]", b'{"account": 3}', b'{"account": {"broken": {"x": "y"}}}'])
def test_a_damaged_account_is_said_to_be_damaged(tmp_path: Path, content: bytes) -> None:
    trial = story_trial(tmp_path)
    (tmp_path / "recorded.json").write_bytes(content)
    assert "The account of the recording (recorded.json) cannot be read." in Elements(page(trial, [])).text
    assert report_json(trial, [])["recorded"] is None


def test_the_note_of_a_finding_stands_with_what_it_is_about(tmp_path: Path) -> None:
    """Not in a column of its own at the far right, where a narrow page hides it."""
    findings = (Finding("a", "attempts", Word.FAIL, 9.0, None, None, 3.0, "", 1, "by <two> layers"),)
    text = page(story_trial(tmp_path), [Verdict("c", Word.FAIL, 9.0, 3.0, "", 1, "s", findings=findings)])
    assert '<td>attempts<div class="note">by &lt;two&gt; layers</div></td>' in text
