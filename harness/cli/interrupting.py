"""Ctrl-C where a command does several things: what runs is ended in order, and nothing further begins.

A trial takes a Ctrl-C as "stop": it drains, writes what it has, and is judged INVALID. So a command that drives several
must ask before it begins the next one. Worker processes are ended, and say nothing of it; they end by themselves when
their parent is gone, which a parent that was killed tells nobody.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import TYPE_CHECKING

from harness.errors import TrialBroken

if TYPE_CHECKING:  # the lab's processes begin here too, and have no use for all that a live trial needs
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

    Raises TrialBroken where one of its processes was ended from outside.
    """
    pool = ProcessPoolExecutor(processes, initializer=begin_worker)
    try:
        yield pool
    except BrokenProcessPool:
        said = "a process of this command was ended from outside (out of memory?): nothing is judged; start it again"
        raise TrialBroken(said) from None
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for worker in multiprocessing.active_children():
            worker.terminate()
        raise
    finally:
        pool.shutdown()


def begin_worker() -> None:
    """In a process of a pool, before its work. The terminal sends SIGINT to it, too; its parent decides."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
