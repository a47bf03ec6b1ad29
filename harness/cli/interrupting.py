"""Ctrl-C where a command does several things: what runs is ended in order, and nothing further begins.

A trial takes a Ctrl-C as "stop": it drains, writes what it has, and is judged INVALID. So a command that drives several
must ask before it begins the next one. Worker processes are ended, and say nothing of it.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager

from harness.trial import Judged


def until_interrupted(trials: Iterable[Judged]) -> list[Judged]:
    """Takes trials that run as they are asked for, up to and including one that was interrupted."""
    judged = []
    for one in trials:
        judged.append(one)
        if one.interrupted:
            break
    return judged


@contextmanager
def worker_pool(processes: int) -> Iterator[ProcessPoolExecutor]:
    """A pool whose work is given up, not waited for, when the block ends by an exception such as Ctrl-C.

    The terminal sends SIGINT to the workers too; this process decides for them.
    """
    pool = ProcessPoolExecutor(processes, initializer=signal.signal, initargs=(signal.SIGINT, signal.SIG_IGN))
    try:
        yield pool
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for worker in multiprocessing.active_children():
            worker.terminate()
        raise
    finally:
        pool.shutdown()
