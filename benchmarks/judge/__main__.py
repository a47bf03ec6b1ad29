from __future__ import annotations

import argparse
import os
import signal
import statistics
import sys
import time
from collections import defaultdict
from pathlib import Path

import benchmarks.judge
from benchmarks.judge import cells, record, table, trials
from benchmarks.judge.campaign import Campaign
from harness.errors import BadInput
from harness.machine import usable_cores


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.judge", description=benchmarks.judge.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    made.add_argument("--results", type=Path, default=record.RESULTS, help="the record (default: %(default)s)")
    commands = made.add_subparsers(dest="command", required=True)
    for name, about in (("run", "runs what is still to do"), ("plan", "counts what is still to do")):
        one = commands.add_parser(name, help=about)
        one.add_argument("--hours", type=float, default=None, help="stop after so long")
        one.add_argument("--only", default="", help="parts, checks, families, profiles or defects, with commas")
        one.add_argument("--jobs", type=int, default=usable_cores(), help="processes of virtual time (%(default)s)")
        one.add_argument("--seed", type=int, default=0, help="another seed: other trials (%(default)s)")
        one.add_argument("--seeds", type=int, default=None, help="at most so many trials of a series in virtual time")
        one.add_argument("--live-runs", type=int, default=None, help="so many live trials of each healthy situation")
    shown = commands.add_parser("table", help="writes the tables of docs/trust.md")
    shown.add_argument("--print", action="store_true", help="to standard output instead")
    one = commands.add_parser("show", help="runs one cell again and prints its verdicts")
    one.add_argument("key")
    one.add_argument("--keep", type=Path, default=None, help="keep the folder of a live trial here")
    return made


def _campaign(given: argparse.Namespace) -> Campaign:
    if given.jobs < 1 or (given.seeds is not None and given.seeds < 1):
        raise BadInput("--jobs and --seeds are at least 1")
    seeds = {
        part: n if given.seeds is None or part in cells.LIVE else min(n, given.seeds) for part, n in cells.SEEDS.items()
    }
    if given.live_runs is not None:
        seeds[cells.LIVE_HEALTHY] = given.live_runs
        seeds[cells.LIVE_DEFECT] = min(given.live_runs, cells.SEEDS[cells.LIVE_DEFECT])
    until = time.monotonic() + given.hours * 3600 if given.hours is not None else float("inf")
    only = [word.strip() for word in given.only.split(",") if word.strip()]
    return Campaign(seeds, given.seed, only, given.jobs, until, given.results)


def _run(given: argparse.Namespace) -> int:
    campaign = _campaign(given)
    for number in (signal.SIGINT, signal.SIGTERM):  # also where a shell has had it ignored
        signal.signal(number, signal.default_int_handler)
    try:
        campaign.go()
    except KeyboardInterrupt:
        print("stopped; what has ended is on record, and the same command goes on from there", file=sys.stderr)
        return 130
    finally:
        campaign.tell(now=True)
    return 0


def _plan(given: argparse.Namespace) -> int:
    campaign = _campaign(given)
    took: dict[str, list[float]] = defaultdict(list)
    for row in campaign.done.values():
        took[row.series].append(row.cpu_s)
    known = statistics.mean([s for each in took.values() for s in each] or [0.2])
    count: dict[str, int] = defaultdict(int)
    cost: dict[str, float] = defaultdict(float)
    for stage in campaign.stages():
        for cell in stage:
            count[cell.part] += 1
            cost[cell.part] += statistics.mean(took.get(cell.series, [known * cell.factor]))
    for cell in (cell for cell in cells.live_cells(campaign.seeds) if campaign._wanted(cell)):
        count[cell.part] += 1
        cost[cell.part] += cells.loaded(cell.profile).profile.duration / 1e9 + 2
    for part, n in count.items():
        print(f"{part:14} {n:>8,} trials  {cost[part] / 3600:6.2f} h{' live' if part in cells.LIVE else ' CPU'}")
    virtual, live = (sum(s for part, s in cost.items() if (part in cells.LIVE) == of) for of in (False, True))
    print(
        f"about {max(virtual / given.jobs, live) / 3600:.1f} h with {given.jobs} processes; {len(campaign.done):,} done"
    )
    return 0


def _table(given: argparse.Namespace) -> int:
    rows = record.read(given.results).values()
    if given.print:
        print(table.tables(rows))
    else:
        table.write(rows)
    return 0


def _show(given: argparse.Namespace) -> int:
    cell = cells.parsed(given.key)
    for verdict in trials.verdicts_of(cell, given.keep):
        own = "*" if verdict.check == cells.own_check(cell) else " "
        print(f"{own} {verdict.check:32} {verdict.word.value:12} {verdict.sentence}")
    return 0


def main() -> int:
    given = _parser().parse_args()
    try:
        return {"run": _run, "plan": _plan, "table": _table, "show": _show}[given.command](given)
    except (BadInput, ValueError) as error:
        print(f"judge: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


if __name__ == "__main__":
    sys.exit(main())
