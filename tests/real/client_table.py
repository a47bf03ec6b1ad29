"""What real clients do by default, as a table: read from their runs by the tests, and written to docs/real_clients.md:

python -m tests.real.client_table            (needs the clients' virtual environment: make clients)
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from tests.real.client_runs import ROOT, Met, clients_python, meet_all, versions

STATED = (
    "retry_after_seconds", "retry_after_float", "retry_after_imf", "retry_after_rfc850", "retry_after_asctime",
    "retry_after_503", "retry_after_ms", "retry_after_ms_negative", "retry_after_long", "retry_after_longer",
)  # fmt: skip
UNSTATED = (
    "retry_after_zero", "retry_after_past", "retry_after_negative", "retry_after_nan", "retry_after_inf",
    "retry_after_text", "retry_after_list", "retry_after_iso", "retry_after_epoch", "retry_after_underscore",
    "retry_after_digits", "retry_after_absent",
)  # fmt: skip
RULES = ("down", "throttled", "fails_once", "bad_request", "quota_used_up", "told_not_to", "commits_then_resets")
WHOLE = (*RULES, *STATED, *UNSTATED)
TWO_LAYERS = ("down", "fails_once")
WANTED: dict[str, tuple[str, ...]] = {
    "openai": WHOLE,
    "openai_with_key": ("fails_once", "commits_then_resets"),
    "anthropic": WHOLE,
    "botocore": WHOLE,
    "requests": RULES,
    "requests_retry": WHOLE,
    "requests_retry_bare": ("down", "fails_once"),
    "tenacity_bare": ("down", "throttled"),
    "tenacity_backoff": WHOLE,
    "aiohttp": RULES,
    "celery_over_openai": TWO_LAYERS,
    "celery_over_requests": TWO_LAYERS,
}
LIMIT_S = 60.0
LIMITS_S = {"tenacity_bare": 4.0}

NAMES = {
    "openai": "`openai`",
    "openai_with_key": "`openai`, `extra_headers` with an Idempotency-Key",
    "anthropic": "`anthropic`",
    "botocore": "`botocore` (DynamoDB)",
    "requests": "`requests`",
    "requests_retry": "`requests` + `Retry(total=2, status_forcelist=…, allowed_methods=None, backoff_factor=0.5)`",
    "requests_retry_bare": "the same without a backoff factor",
    "tenacity_bare": "`httpx` + bare `@tenacity.retry`",
    "tenacity_backoff": "`httpx` + `@tenacity.retry(wait_random_exponential, stop_after_attempt(3))`",
    "aiohttp": "`aiohttp`",
    "celery_over_openai": "Celery, 2 retries, over `openai`",
    "celery_over_requests": "Celery, 2 retries, over `requests` + `Retry(total=2)`",
}
SHORT = {"requests_retry": "`requests` + `Retry`", "tenacity_backoff": "`httpx` + `tenacity`", "botocore": "`botocore`"}
Runs = Mapping[str, Mapping[str, Met]]


def run_all(python: Path, folder: Path) -> Runs:
    return asyncio.run(meet_all(python, WANTED, folder, LIMITS_S, LIMIT_S))


def attempts_table(runs: Runs) -> list[str]:
    lines = [
        "| client | attempts while it is down | layers | pause before the 1st, 2nd retry | jitter | after a 400 "
        "| 429 `insufficient_quota` | `x-should-retry: false` | write in doubt |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for client, met in runs.items():
        down = met.get("down")
        cells = [_attempts(down), _layers(down), _pauses(down), _jitter(down)]
        cells += [_attempts(met.get(name)) for name in ("bad_request", "quota_used_up", "told_not_to")]
        lines.append(f"| {NAMES[client]} | {' | '.join([*cells, _write(met.get('commits_then_resets'))])} |")
    return lines


def waits_table(runs: Runs) -> list[str]:
    shown = [client for client, met in runs.items() if "retry_after_seconds" in met]
    short = [SHORT.get(client, NAMES[client]) for client in shown]
    lines = [f"| answer's header | {' | '.join(short)} |", "|---|" + "---|" * len(shown)]
    for scenario in (*STATED, *UNSTATED):
        about = runs[shown[0]][scenario].judged.seen.log.manifest.about
        told = about.partition("success: ")[2] or about.partition(",")[0].removeprefix("a ")
        lines.append(f"| {told} | {' | '.join(_waited(runs[client][scenario]) for client in shown)} |")
    return lines


def _attempts(met: Met | None) -> str:
    if met is None:
        return ""
    # One that was stopped while it hammered has no number of its own.
    return f"**no end** ({met.attempts} in {LIMITS_S['tenacity_bare']:.0f} s)" if endless(met) else str(met.attempts)


def endless(met: Met) -> bool:
    """It was stopped while it still hammered."""
    return met.attempts > 10 and not met.said


def _layers(met: Met | None) -> str:
    from harness.callers.layers import layers_of

    if met is None:
        return ""
    found = max((layers_of(call) for call in met.judged.seen.calls), key=lambda layers: layers.owners, default=None)
    if found is None or found.owners < 2:
        return str(found.owners) if found else ""
    counted = any(call.counted for call in met.judged.seen.calls)
    how = "by `x-stainless-retry-count`" if counted else "by the delays"
    return f"**2: {found.outer} x {found.inner}**, {how}"


def _pauses(met: Met | None) -> str:
    if met is None or not met.gaps_s:
        return ""
    by_place: list[list[float]] = [[], []]
    for call in met.judged.seen.calls:
        for place, gap in enumerate(call.gaps_ns()[:2]):
            by_place[place].append(gap / 1e9)
    return ", ".join(_range(gaps) for gaps in by_place if gaps)


def _range(gaps: list[float]) -> str:
    low, high = min(gaps), max(gaps)
    if high < 0.05:
        return "**none**"
    return f"{low:.1f} s" if high - low < 0.1 else f"{low:.1f} to {high:.1f} s"


def _jitter(met: Met | None) -> str:
    word = met.word("jittered") if met is not None else "-"
    return {"PASS": "yes", "FAIL": "**none**"}.get(word, "")


def _write(met: Met | None) -> str:
    if met is None:
        return ""
    if met.attempts < 2:
        return "left alone"
    return "repeated under its key" if met.word("idempotent") == "PASS" else "**done twice**, no key"


def _waited(met: Met) -> str:
    bad = "FAIL" in (met.word("retry_after_kept"), met.word("backs_off"))
    if met.gaps_s:
        said = f"{met.gaps_s[0]:.1f} s" if met.gaps_s[0] >= 0.05 else "at once"
    elif not met.said:
        said = "still waits"
    else:
        said = "error" if met.said[0] == "InvalidHeader" else "no retry"
    return f"**{said}**" if bad else said


def document(runs: Runs, found: Mapping[str, str], date: str) -> str:
    """The generated part of the page."""
    named = ", ".join(f"{name} {version}" for name, version in found.items())
    return "\n".join([
        f"Measured {date}: {named}.", "", *attempts_table(runs), "",
        "Pauses after an answer with this header, once (bold: early, or a hot loop):", "", *waits_table(runs), "",
    ])  # fmt: skip


BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"


def rewrite(page: Path, text: str) -> None:
    before, _, rest = page.read_text().partition(BEGIN)
    page.write_text(f"{before}{BEGIN}\n\n{text}\n{END}{rest.partition(END)[2]}")


def main() -> int:
    python = clients_python()
    if python is None:
        print("the clients' virtual environment is missing: make clients", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="overload-clients-") as folder:
        runs = run_all(python, Path(folder))
        text = document(runs, versions(python), time.strftime("%Y-%m-%d", time.gmtime()))
    rewrite(ROOT / "docs" / "real_clients.md", text)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
