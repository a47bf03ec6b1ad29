"""What became of a log on its way into a trial, for people (lines) and for machines (JSON)."""

from __future__ import annotations

from typing import Any

from harness.profile.units import show_rate
from harness.recorded.account import Account
from harness.recorded.errors import printable
from harness.recorded.prepare import Prepared

LONG_NS = 1_800_000_000_000
"""Half an hour: from here on a replay says first how long it will take."""


def prepared_json(prepared: Prepared) -> dict[str, Any]:
    """The account and the plan, for machines."""
    runaway = prepared.runaway
    return {
        "account": prepared.account.as_json(),
        "duration_ns": prepared.duration_ns,
        "begin_ns": prepared.begin_ns,
        "peak_per_s": prepared.peak_per_s,
        "runaway": None if runaway is None else {
            "tenant": runaway.tenant, "rate_per_s": float(runaway.rate_per_s), "from_ns": runaway.from_ns,
            "to_ns": runaway.to_ns, "cost": runaway.cost, "calls": prepared.account.runaway,
        },
        "tenants": [
            {"tenant": t.name, "recorded": t.recorded, "added": t.added, "refused_then": t.refused}
            for t in prepared.tenants
        ],
    }  # fmt: skip


def read_lines(account: Account) -> list[str]:
    """What was read, and what was not: the first lines of an account."""
    unread = [
        f"{count:,} {what}"
        for what, count in (("blank", account.blank), ("header", account.header), ("never sent", account.aside))
        if count
    ]
    lines = [f"lines     {account.lines:,}" + (f"  ({', '.join(unread)})" if unread else "")]
    if account.broken_lines:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in sorted(account.broken.items()))
        lines.append(f"broken    {account.broken_lines:,}  ({reasons})")
        lines += [f"          {b.where}: {b.reason}" + (f": {b.text}" if b.text else "") for b in account.samples]
    lines.append(f"calls     {account.read:,}  (read as {', '.join(sorted(set(account.formats.values())))})")
    if account.without_tenant:
        lines.append(f"          {account.without_tenant:,} name no tenant and count as (none)")
    if account.bodies_left:
        lines.append(f"          {account.bodies_left:,} bodies are too large, or no text, and were left out")
    lines.append(f"window    {account.kept:,} in it, {account.outside:,} outside")
    return lines


def account_lines(prepared: Prepared) -> list[str]:
    """The account as people read it: one line a step, each the remainder of the one before."""
    account, runaway = prepared.account, prepared.runaway
    lines = read_lines(account)
    if account.squeezed_gaps:
        lines.append(f"squeezed  {account.squeezed_gaps:,} silences, {_span(account.squeezed_ns)} less in all")
    if account.folded:
        lines.append(f"folded    {account.folded:,} calls into one tenant")
    if account.amplified:
        lines.append(f"amplified {account.amplified:,} calls more")
    if runaway is not None:
        lines.append(
            f"runaway   {account.runaway:,} calls of {printable(runaway.tenant)} at {show_rate(runaway.rate_per_s)}, "
            f"{_span(runaway.from_ns or 0)} to {_span(runaway.to_ns or 0)}"
        )
    lines.append(f"planned   {account.planned:,} calls in {_span(prepared.duration_ns)}")
    return lines


def takes_long(prepared: Prepared) -> str:
    """For a replay in real time that hardly anybody means to sit through."""
    return (
        f"a trial takes {_span(prepared.duration_ns)}; --squeeze-gaps 5s, --speed 60 or --from and --to shorten it, "
        "and --simulate sends nothing"
    )


def _span(ns: int) -> str:
    return f"{ns / 3.6e12:.1f} h" if ns >= 3_600_000_000_000 else f"{ns / 1e9:.1f} s"
