"""What people read in a terminal: snapshots, widths, and names that try to be more than names."""

from __future__ import annotations

import io
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from harness.checks.verdict import Finding, Verdict, Word
from harness.report.terminal import show, worked_example_table
from harness.report.text import clean, fit, interval, percent, quantity, seconds
from harness.report.variants import FIELDS, SHARES, Spread, VariantRow, variants_json
from tests.unit.report_trials import HOSTILE, call, manifest, profile, story_trial, story_verdicts, write

SNAPSHOTS = Path(__file__).parent / "report_snapshots"


def snapshot(name: str, text: str) -> None:
    """Compares with the kept text. OVERLOAD_UPDATE_SNAPSHOTS=1 writes it anew, to be read before it is kept."""
    path = SNAPSHOTS / name
    if os.environ.get("OVERLOAD_UPDATE_SNAPSHOTS"):
        path.write_text(text, "utf-8")
    assert text == path.read_text("utf-8")


def plain_console(width: int = 80, encoding: str = "utf-8") -> tuple[Console, io.TextIOWrapper]:
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding, newline="\n")
    return Console(file=stream, width=width, force_terminal=False, color_system=None), stream


def read(stream: io.TextIOWrapper) -> str:
    stream.flush()
    return stream.buffer.getvalue().decode(stream.encoding)  # type: ignore[attr-defined]


def terminal_console(width: int, color: bool) -> tuple[Console, io.StringIO]:
    stream = io.StringIO()
    system = "standard" if color else None
    return Console(file=stream, width=width, force_terminal=True, color_system=system, no_color=not color), stream


def test_plain_snapshot(tmp_path: Path) -> None:
    console, stream = plain_console()
    show(story_trial(tmp_path), story_verdicts(), console)
    snapshot("plain.txt", read(stream))


@pytest.mark.parametrize("width", [80, 200])
def test_terminal_snapshots(tmp_path: Path, width: int) -> None:
    console, stream = terminal_console(width, color=False)
    show(story_trial(tmp_path), story_verdicts(), console)
    snapshot(f"terminal_{width}.txt", stream.getvalue())


@pytest.mark.parametrize("width", [40, 80, 120, 200])
@pytest.mark.parametrize("color", [True, False])
def test_no_line_is_wider_than_the_terminal(tmp_path: Path, width: int, color: bool) -> None:
    console, stream = terminal_console(width, color)
    show(story_trial(tmp_path), story_verdicts(), console)
    lines = re.sub(r"\x1b\[[0-9;]*m", "", stream.getvalue()).splitlines()
    assert max(cell_len(line) for line in lines) <= width


def test_plain_text_does_not_depend_on_the_width_and_has_no_escapes(tmp_path: Path) -> None:
    texts = []
    for width in (40, 80, 200):
        console, stream = plain_console(width)
        show(story_trial(tmp_path), story_verdicts(), console)
        texts.append(read(stream))
    assert len(set(texts)) == 1
    assert "\x1b" not in texts[0]
    assert re.search(r"^alice +burst +32 +32 +24 +75\.0 ", texts[0], re.M)


def test_verdicts_come_first_and_the_worst_before_the_others(tmp_path: Path) -> None:
    console, stream = plain_console()
    show(story_trial(tmp_path), story_verdicts(), console)
    words = [line.split()[0] for line in read(stream).splitlines() if line.startswith(tuple(Word))]
    assert words == ["FAIL", "FAIL", "INCONCLUSIVE", "PASS"]


def test_no_verdict_is_no_pass(tmp_path: Path) -> None:
    console, stream = plain_console()
    show(story_trial(tmp_path), [], console)
    assert read(stream).startswith("INCONCLUSIVE  small")
    assert "Nothing was judged" in read(stream)


@pytest.mark.parametrize("force", [True, False])
def test_hostile_names_change_nothing_but_their_own_cell(tmp_path: Path, force: bool) -> None:
    names = list(HOSTILE)
    trial = write(tmp_path, [call(i, n, 0, 5_000) for i, n in enumerate(names)], manifest(profile(names, names)))
    findings = tuple(Finding(n, n, Word.FAIL, 1.0, None, None, 0.0, n, 1, n) for n in names)
    verdicts = [Verdict(n, Word.FAIL, 1.0, 0.0, n, 1, n, (n, "0.0"), n, findings) for n in names]
    stream = io.StringIO()
    show(trial, verdicts, Console(file=stream, width=200, force_terminal=force, color_system=None))
    text = stream.getvalue()
    assert "[red]loud[/red]" in text
    assert "\\x1b[31mred" in text
    assert "\\u202e" in text
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", text)


def test_a_tenant_cannot_pass_for_the_pooled_row(tmp_path: Path) -> None:
    names = ["(ordinary)", "b"]
    trial = write(tmp_path, [], manifest(profile(names, names)))
    console, stream = plain_console()
    show(trial, [], console)
    assert len(re.findall(r"^'\(ordinary\)' ", read(stream), re.M)) == 6
    assert len(re.findall(r"^\(ordinary\) ", read(stream), re.M)) == 6


def test_an_output_that_cannot_say_a_character_gets_another(tmp_path: Path) -> None:
    console, stream = plain_console(encoding="ascii")
    names = ["工具", "b"]
    show(write(tmp_path, [], manifest(profile(names, []))), story_verdicts(), console)
    assert "\\u5de5\\u5177" in read(stream)
    assert "measured -, bound 20 ms" in read(stream)


def test_notes_say_what_could_not_be_seen(tmp_path: Path) -> None:
    head = manifest(profile(["a"], []), clock_domain="separate", evidence={"decisions": False}, ended=None)
    rows = [call(0, "a", 0, 0), call(0, "a", 1, 0, queue_wait_ns=None)]
    trial = write(tmp_path, rows, head)
    with (tmp_path / "calls.jsonl").open("ab") as file:
        file.write(b'{"call": "0.2", "cut')
    console, stream = plain_console()
    show(replace(trial, cut_lines=1), [], console)
    snapshot("notes.txt", read(stream).partition("Not observable")[2])


def variants() -> list[VariantRow]:
    spread = {name: Spread(0.85, 0.69, 0.86) if name in SHARES else Spread(14_000, 9_000, 15_000) for name in FIELDS}
    published = {"ordinary_served": 0.842, "worst_ordinary": 0.767, "agent_offers": 14_092, "replans": 11_852}
    return [
        VariantRow("base", 0.842, 0.767, 14_092, 11_852, 0, 960.0, "FAIL", 200, spread, published),
        VariantRow("budget [red]", 1.0, 0.99999, 1_049, 0, 1_191, 480.5, "PASS"),
        VariantRow("bare", None, None, None, None, None, None),
    ]


@pytest.mark.parametrize("width", [80, 200])
def test_worked_example_table(width: int) -> None:
    console, stream = terminal_console(width, color=False)
    worked_example_table(variants(), console)
    snapshot(f"variants_{width}.txt", stream.getvalue())
    assert max(cell_len(line) for line in stream.getvalue().splitlines()) <= width


def test_worked_example_table_plain_names_its_row_on_every_line() -> None:
    console, stream = plain_console()
    worked_example_table(variants(), console)
    lines = read(stream).splitlines()
    assert [line.split()[0] for line in lines] == ["row", "base", "base", "base", "base", "base", "budget", "bare"]


def test_variants_json_has_nulls_and_not_strings() -> None:
    first, second, third = variants_json(variants())
    assert first["published"] == {
        "ordinary_served": 0.842, "worst_ordinary": 0.767, "agent_offers": 14_092, "replans": 11_852,
    }  # fmt: skip
    assert first["ensemble"]["trials"] == 200
    assert first["ensemble"]["replans"] == {"median": 14_000, "low": 9_000, "high": 15_000}
    assert second["ensemble"] is second["published"] is None
    assert third["ordinary_served"] is None


@given(st.text())
@settings(max_examples=300, deadline=None)
def test_clean_leaves_one_line_of_harmless_characters(text: str) -> None:
    shown = clean(text, 50)
    assert len(shown) <= 50
    assert shown == "" or shown.isprintable()
    assert not re.search("[\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff]", shown)


@given(st.text(min_size=1), st.integers(1, 30))
@settings(deadline=None)
def test_fit_never_exceeds_and_keeps_what_fits(text: str, width: int) -> None:
    assert len(fit(text, width)) <= width
    assert len(text) > width or fit(text, width) == text


def test_numbers_for_people() -> None:
    assert [percent(v) for v in (None, 0.0, 0.0001, 0.842, 0.99999, 1.0)] == [
        "–", "0.0 %", "<0.1 %", "84.2 %", "99.9 %", "100.0 %",
    ]  # fmt: skip
    assert [quantity(v, "ms") for v in (None, 0, 1.004, 46.2, 1571.04)] == [
        "–", "0 ms", "1.004 ms", "46.2 ms", "1,571 ms",
    ]  # fmt: skip
    assert quantity(float("nan"), "ms") == "nan ms"
    assert quantity(0.9647, "share") == "96.47 %"
    assert interval(None, None, "ms") == "–"
    assert interval(-0.05, 0.25, "share") == "-5 % to 25 %"
    assert [seconds(int(s * 1e9)) for s in (0, 0.5, 70, 750)] == ["0 s", "0.5 s", "70 s", "12 min 30 s"]
