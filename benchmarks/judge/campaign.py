"""Runs the cells that are still to do: virtual time in processes beside, live trials one after another in this one.

Live trials run on a busy machine: beside a process of virtual time that never rests, or, when there is none of that
left to do, beside a burner (burner.py). Ends when all is done, when its time is over, or on Ctrl-C; whatever has ended
by then is on record.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path

from benchmarks.judge import cells, record
from benchmarks.judge.burner import Burner
from benchmarks.judge.cells import Cell
from benchmarks.judge.record import Row
from benchmarks.judge.trials import quiet_worker, run

AHEAD, AHEAD_OF_LIVE = 4, 100
"""Cells handed to a process before they are asked for; more, where a live trial keeps this one from looking."""
TELL_S = 10.0


@dataclass(slots=True)
class Campaign:
    """seeds: part -> numbers of it. done: rows by key, this run's among them."""

    seeds: dict[str, int]
    seed: int = 0
    only: Sequence[str] = ()
    jobs: int = 1
    until: float = float("inf")
    path: Path = record.RESULTS
    done: dict[str, Row] = field(default_factory=dict)
    seen: dict[str, list[str]] = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)
    told: float = 0.0
    fresh: int = 0

    def __post_init__(self) -> None:
        for row in record.read(self.path).values():
            self._know(row)

    def _know(self, row: Row) -> None:
        self.done[row.key] = row
        cell = cells.parsed(row.key)
        self.seen.setdefault(row.series, []).append(row.word(cells.own_check(cell), cells.may_fail(cell)))

    def keep(self, row: Row) -> None:
        record.append(row, self.path)
        self._know(row)
        self.fresh += 1
        for said in row.said if "healthy" in row.key and "INVALID" not in row.words.values() else ():
            if " FAIL:" in said:
                print(f"FALSE ALARM {row.key}: {said}", file=sys.stderr, flush=True)
        self.tell()

    def tell(self, now: bool = False) -> None:
        if now or time.monotonic() - self.told > TELL_S:
            self.told = time.monotonic()
            passed_s = self.told - self.began
            print(
                f"{passed_s:7.0f} s  {self.fresh:,} trials, {len(self.done):,} on record", file=sys.stderr, flush=True
            )

    def stages(self) -> Iterator[list[Cell]]:
        """What is to do of each stage, as far as is known when it begins."""
        for stage in cells.stages(self.seeds, self.seed):
            todo = [cell for cell, before in stage if self._wanted(cell) and cells.worth_it(cell, before, self.seen)]
            if todo:
                yield todo

    def _wanted(self, cell: Cell) -> bool:
        return cell.key not in self.done and cells.is_asked(cell, self.only)

    @property
    def over(self) -> bool:
        return time.monotonic() >= self.until

    def go(self) -> None:
        """Raises KeyboardInterrupt after what had begun is on record."""
        live = [cell for cell in cells.live_cells(self.seeds) if self._wanted(cell)]
        with ExitStack() as stack:
            context = get_context("spawn")
            begun = context.Value("i", 0)
            pool = stack.enter_context(ProcessPoolExecutor(self.jobs, context, quiet_worker, (begun,)))
            stack.callback(pool.shutdown, wait=True, cancel_futures=True)
            for todo in self.stages():
                self._stage(pool, todo, live)
                if self.over:
                    return
            if live and not self.over:
                stack.enter_context(Burner())
            while live and not self.over:
                self.keep(run(live.pop(0)))

    def _stage(self, pool: ProcessPoolExecutor, todo: list[Cell], live: list[Cell]) -> None:
        waiting: set[Future[Row]] = set()
        rest = iter(todo)
        try:
            while not self.over:
                ahead = self.jobs * (AHEAD_OF_LIVE if live else AHEAD)
                while len(waiting) < ahead and (cell := next(rest, None)) is not None:
                    waiting.add(pool.submit(run, cell))
                if not waiting:
                    return
                if busy := bool(live) and len(waiting) >= ahead:
                    self.keep(run(live.pop(0)))
                ready, waiting = wait(waiting, timeout=0 if busy else 1.0, return_when=FIRST_COMPLETED)
                for future in ready:
                    self.keep(future.result())
        finally:
            for future in waiting:
                if not future.cancel():
                    self.keep(future.result())
