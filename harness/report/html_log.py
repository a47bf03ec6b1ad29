"""The decision log of the HTML report: a bounded sample, filtered by report.js, and honest about what it leaves out."""

from __future__ import annotations

from harness.checks.tiers import ADD, Tier
from harness.report.decision_log import FIRST, HEADS, MOST_BYTES, NEIGHBOURS, NUMBERS, Log
from harness.report.html_parts import esc
from harness.report.text import count

_MOST_KINDS = 12


def log_section(log: Log | None) -> str:
    """The section; what to add where the service's decisions are not there."""
    if log is None or not log.total:
        return f"<p>No decision of the service could be read. To see them, add {esc(ADD[Tier.DECISIONS], 400)}.</p>"
    heads = "".join(
        f'<th{" class=n" if place in NUMBERS else ""} scope="col">{head}</th>' for place, head in enumerate(HEADS)
    )
    return (
        f"<p>{esc(_extent(log), 900)}</p><p class=note>{esc(_kinds(log), 900)}</p>"
        '<form id="log-filter" class="filter" hidden>'
        '<label>Tenant <select id="log-tenant"><option value="">all</option></select></label>'
        '<label>Outcome <select id="log-outcome"><option value="">all</option></select></label>'
        '<label>Text <input id="log-text" type="search" autocomplete="off" placeholder="words, ids, reasons"></label>'
        '<label><input id="log-named" type="checkbox"> about witnesses only</label>'
        '<button type="reset">Reset</button></form>'
        '<p class="note" id="log-count" role="status" aria-live="polite"></p>'
        '<div class="scroll log" tabindex="0" role="region" aria-label="Decision log"><table class="ledger">'
        f'<thead><tr>{heads}</tr></thead><tbody id="log-rows"></tbody></table></div>'
        '<button type="button" class="plain" id="log-more" hidden>Show more</button>'
        "<noscript><p>The log is shown with JavaScript; it is decisions.jsonl in the trial's folder.</p></noscript>"
    )


def _extent(log: Log) -> str:
    if log.whole:
        return f"All {count(log.total)} decisions of this trial."
    named = sum(entry.named for entry in log.entries)
    around = f", the {count(named)} that are about witnesses, and {NEIGHBOURS} before and after each" if named else ""
    left = f" {count(log.around_left_out)} more about witnesses are left out." if log.around_left_out else ""
    if log.cut:
        return (
            f"A sample: the first {count(log.total)} decisions. The log is larger than {MOST_BYTES // 1_000_000} MB; "
            "the rest of it was not read. The whole of it is decisions.jsonl."
        )
    return (
        f"A sample: {count(len(log.entries))} of {count(log.total)} decisions: the first {FIRST}{around}.{left} "
        "The filter looks in the sample alone; the whole log is decisions.jsonl."
    )


def _kinds(log: Log) -> str:
    shown = [f"{count(number)} {outcome}" for outcome, number in list(log.outcomes.items())[:_MOST_KINDS]]
    more = len(log.outcomes) - _MOST_KINDS
    whole = "Of those read: " if log.cut else "In all: "
    return whole + ", ".join(shown) + (f", and {more} outcomes more." if more > 0 else ".")
