"""The witnesses of the verdicts, a click away: each with its rows, the calls beside it, and what was decided."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness.checks.verdict import Verdict
from harness.report.decision_log import HEADS as DECISION_HEADS
from harness.report.decision_log import Row, texts_of
from harness.report.html_parts import cells, chip, esc, name, table
from harness.report.stories import Story
from harness.report.text import MISSING, count

_CALL_KEYS = (
    "call", "attempt", "tenant", "round", "due_ns", "sent_ns", "done_ns", "queue_wait_ns", "outcome", "reason",
)  # fmt: skip
_CALL_HEADS = ("", "call", "tenant", "round", "due", "sent", "done", "queued ms", "outcome", "reason", "more")
_ARRIVAL_KEYS = ("t_ns", "ended_ns", "dependency", "operation", "status", "attempt", "run", "step")
_ARRIVAL_HEADS = ("arrived", "ended", "dependency", "operation", "status", "attempt", "more")


def witness_anchors(verdicts: Sequence[Verdict], stories: Mapping[str, Story]) -> list[dict[str, str]]:
    """For each verdict: witness -> the id of its story in the page, which several verdicts may share."""
    places: dict[str, str] = {}
    found = []
    for place, verdict in enumerate(verdicts):
        mine = [id_ for id_ in verdict.witnesses if id_ in stories]
        for number, id_ in enumerate(mine):
            places.setdefault(id_, f"w{place}-{number}")
        found.append({id_: places[id_] for id_ in mine})
    return found


def witness_section(
    verdicts: Sequence[Verdict], stories: Mapping[str, Story], anchors: Sequence[Mapping[str, str]]
) -> str:
    """The stories of all witnesses, verdict by verdict. Empty without one."""
    parts, told = [], set[str]()
    for place, (verdict, ids) in enumerate(zip(verdicts, anchors, strict=True)):
        new = [(id_, at) for id_, at in ids.items() if at not in told]
        told |= set(ids.values())
        if new:
            parts.append(
                f'<h3>{chip(verdict.word)} <code>{esc(verdict.check, 80)}</code> <a class="back" href="#v{place}">'
                "the verdict</a></h3>" + "".join(_story(stories[id_], at) for id_, at in new)
            )
    note = "<p class=note>Open a witness for the call itself, those beside it, and what was decided about it.</p>"
    return note + "".join(parts) if parts else ""


def _story(story: Story, anchor: str) -> str:
    parts = []
    if story.calls:
        rows = [_call(relation, row) for relation, row in story.calls]
        parts.append(_titled("Calls, as their caller saw them", _CALL_HEADS, rows, f"Calls of {story.id}"))
    if story.decisions:
        rows = [f"<tr>{cells(f'<bdi>{esc(text)}</bdi>' for text in texts_of(row))}</tr>" for row in story.decisions]
        parts.append(_titled("Decisions of the service", DECISION_HEADS, rows, f"Decisions about {story.id}"))
    if story.arrivals:
        rows = [_arrival(row) for row in story.arrivals]
        parts.append(_titled("What reached a dependency", _ARRIVAL_HEADS, rows, f"Arrivals of {story.id}"))
    left = ", ".join(f"{count(number)} {what}" for what, number in story.left_out.items())
    more = f"<p class=note>Not shown: {esc(left)}. They are in the ledger.</p>" if left else ""
    return (
        f'<details class="witness shut" id="{anchor}"><summary><code>{esc(story.id, 80)}</code> {_gist(story)}'
        f"</summary>{''.join(parts)}{more}</details>"
    )


def _gist(story: Story) -> str:
    """One line: who, when, how it ended."""
    mine = [row for relation, row in story.calls if relation == "this"]
    if not mine:
        ends = [row for row in story.decisions if row.get("outcome") not in ("queued", "admitted")]
        last = (ends or list(story.decisions) or [{}])[-1]
        said = [str(last.get(key)) for key in ("tenant", "dependency", "outcome", "reason") if last.get(key)]
        return f"<span>{story.kind}</span> " + " ".join(f"<span><bdi>{esc(text, 60)}</bdi></span>" for text in said)
    row = mine[-1]
    wait, outcome = row.get("queue_wait_ns"), str(row.get("outcome", MISSING)).replace("_", " ")
    parts = [
        name(row.get("tenant", MISSING)),
        f"round {esc(row.get('round', MISSING), 20)}",
        f"due {_instant(row.get('due_ns'))}",
        f"<strong>{esc(outcome, 40)}</strong> at {_instant(row.get('done_ns'))}",
        f"queued {wait / 1e6:,.1f} ms" if isinstance(wait, int) else "",
        f"{len(mine)} attempts" if len(mine) > 1 else "",
    ]
    return " ".join(f"<span>{part}</span>" for part in parts if part)


def _titled(title: str, heads: Sequence[str], rows: Sequence[str], label: str) -> str:
    return f"<h4>{title}</h4>" + table(f"<tr>{cells(heads, 'th')}</tr>", rows, label, "ledger")


def _call(relation: str, row: Row) -> str:
    attempt = row.get("attempt", 1)
    call = f"{row.get('call')}.{attempt}" if isinstance(attempt, int) and attempt > 1 else str(row.get("call"))
    wait = row.get("queue_wait_ns")
    instants = "".join(f'<td class="n">{_instant(row.get(key))}</td>' for key in ("due_ns", "sent_ns", "done_ns"))
    waited = f"{wait / 1e6:,.1f}" if isinstance(wait, int) else MISSING
    return (
        f'<tr class="{"itself" if relation == "this" else ""}"><td>{esc(relation, 30)}</td>'
        f"<td><code>{esc(call, 60)}</code></td><td>{name(row.get('tenant', MISSING))}</td>"
        f'<td class="n">{esc(row.get("round", MISSING), 20)}</td>{instants}<td class="n">{waited}</td>'
        f"<td>{esc(row.get('outcome', MISSING), 40)}</td><td><bdi>{esc(row.get('reason', ''), 80)}</bdi></td>"
        f"<td class=note>{_more(row, _CALL_KEYS)}</td></tr>"
    )


def _arrival(row: Row) -> str:
    instants = "".join(f'<td class="n">{_instant(row.get(key))}</td>' for key in ("t_ns", "ended_ns"))
    told = [row.get(key, MISSING) for key in ("dependency", "operation", "status", "attempt")]
    figures = cells(f"<bdi>{esc(value, 60)}</bdi>" for value in told)
    return f"<tr>{instants}{figures}<td class=note>{_more(row, _ARRIVAL_KEYS)}</td></tr>"


def _more(row: Mapping[str, Any], without: Sequence[str]) -> str:
    return esc(", ".join(f"{key} {value}" for key, value in row.items() if key not in without), 300)


def _instant(at_ns: object) -> str:
    return f"{at_ns / 1e9:,.3f} s" if isinstance(at_ns, int) and at_ns >= 0 else MISSING
