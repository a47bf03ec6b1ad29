"""A loop whose time jumps: order, exactness, deadlock, and nothing that goes wrong in silence."""

from __future__ import annotations

import asyncio
import gc

import pytest

from harness.simulate.virtual_loop import Deadlock, VirtualLoop, now_ns, run_virtual

S = 1_000_000_000


def test_time_jumps_to_the_next_timer_and_begins_at_zero():
    async def main():
        began = now_ns()
        await asyncio.sleep(3600)
        return began, now_ns()

    assert run_virtual(main()) == (0, 3600 * S)


def test_equal_times_are_first_in_first_out():
    async def main():
        order = []

        async def one(number):
            await asyncio.sleep(0.1)
            order.append(number)

        await asyncio.gather(*(one(number) for number in range(500)))
        return order

    assert run_virtual(main()) == list(range(500))


def test_what_is_ready_runs_before_a_timer_of_the_same_instant():
    async def main():
        order = []
        loop = asyncio.get_running_loop()
        loop.at_ns(S, lambda: loop.call_soon(order.append, "ready"))
        loop.at_ns(S, loop.at_ns, S, order.append, "timer set at its own instant")
        loop.at_ns(S, order.append, "timer")
        await asyncio.sleep(2)
        return order

    assert run_virtual(main()) == ["timer", "ready", "timer set at its own instant"]


def test_nanoseconds_do_not_drift():
    """Ten thousand sleeps of 1/3 ms, each handed over as a float of seconds."""
    step = 333_333

    async def main():
        for _ in range(10_000):
            await asyncio.sleep(step / S)
        return now_ns()

    assert run_virtual(main()) == 10_000 * step


@pytest.mark.parametrize("at_ns", [1, 999_999_999, 86_400 * S + 1, 2**50 - 1, 2**50 - 12_345])
def test_an_instant_survives_the_way_through_floats(at_ns):
    async def main():
        loop = asyncio.get_running_loop()
        seen = []
        loop.call_at(at_ns / S, lambda: seen.append(loop.now_ns()))
        await asyncio.sleep(at_ns / S)
        before = loop.now_ns()
        async with asyncio.timeout(1):  # asks loop.time() and adds to it
            await asyncio.sleep(7 / S)
        return seen, before, loop.now_ns()

    assert run_virtual(main()) == ([at_ns], at_ns, at_ns + 7)


def test_a_time_limit_is_exact_and_an_instant_in_the_past_is_now():
    async def main():
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 0.25)
        late = []
        loop = asyncio.get_running_loop()
        loop.at_ns(3, lambda: late.append(loop.now_ns()))
        await asyncio.sleep(1)
        return late

    assert run_virtual(main()) == [S // 4]


def test_waiting_for_what_never_comes_is_a_deadlock():
    async def main():
        await asyncio.sleep(1)
        await asyncio.Event().wait()

    with pytest.raises(Deadlock, match=r"deadlock in virtual time at 1000000000 ns: every coroutine waits"):
        run_virtual(main())


def test_a_task_that_breaks_is_told_of_even_if_nobody_waits_for_it():
    async def main():
        async def broken():
            raise KeyError("lost")

        task = asyncio.create_task(broken())
        await asyncio.sleep(1)
        del task

    with pytest.raises(KeyError, match="lost"):
        run_virtual(main())


def test_a_task_that_breaks_is_told_of_even_if_it_is_never_freed():
    async def main():
        async def broken():
            itself = asyncio.current_task()  # noqa: F841  the traceback holds this frame, the frame the task: a cycle
            raise KeyError("lost")

        asyncio.create_task(broken())  # noqa: RUF006
        held = asyncio.create_task(asyncio.sleep(0.1))
        await asyncio.sleep(1)
        return held

    gc.disable()
    try:
        with pytest.raises(KeyError, match="lost"):
            run_virtual(main())
    finally:
        gc.enable()


def test_a_task_whose_failure_was_seen_is_not_told_of_again():
    async def main():
        async def broken():
            raise KeyError("seen")

        task = asyncio.create_task(broken())
        with pytest.raises(KeyError):
            await task
        return task

    assert run_virtual(main()).done()


def test_tasks_that_have_gone_are_forgotten():
    async def main():
        loop = asyncio.get_running_loop()
        for _ in range(20_000):
            await loop.create_task(asyncio.sleep(0.001))
        return len(loop._tasks)

    assert run_virtual(main()) < 2_000


def test_a_callback_that_breaks_is_told_of():
    async def main():
        asyncio.get_running_loop().call_soon(lambda: 1 // 0)
        await asyncio.sleep(1)

    with pytest.raises(ZeroDivisionError):
        run_virtual(main())


def test_what_the_coroutine_raises_comes_out_and_tasks_that_are_left_are_cancelled_in_order():
    ended = []

    async def forever(number):
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(number)

    async def main():
        tasks = [asyncio.create_task(forever(number)) for number in range(20)]
        await asyncio.sleep(1)
        raise LookupError(len(tasks))

    with pytest.raises(LookupError, match="20"):
        run_virtual(main())
    assert ended == list(range(20))


def test_cancelled_timers_do_not_pile_up():
    async def main():
        loop = asyncio.get_running_loop()
        for _ in range(10_000):
            async with asyncio.timeout(60):
                await asyncio.sleep(0.001)
        return len(loop._timers)

    assert run_virtual(main()) < 2_000


def test_outside_of_a_virtual_loop_there_is_no_virtual_time():
    async def main():
        return now_ns()

    with pytest.raises(RuntimeError, match="not a virtual one"):
        asyncio.run(main())


def test_the_standard_runner_takes_it():
    async def main():
        await asyncio.sleep(10)
        return now_ns()

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        assert runner.run(main()) == 10 * S
