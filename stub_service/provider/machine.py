"""Which answer a request gets: a plain state machine over a scenario. It is given the time, and has no clock.

A script is followed by content (who, what, which body), never by idempotency key: a caller that makes a new key for
every attempt must meet the success that its second attempt was promised, or it would look like one that cannot recover.
Of one content several calls may be under way side by side: an attempt that comes while another has no answer yet is not
its repeat, and begins a script of its own; one that comes later goes on where the longest ended has left off.
An idempotency key counts where it should: work done under a key is not done again; its effect is told once more.
Memory is bounded: the contents and keys seen longest ago are forgotten.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, replace

from stub_service.provider.scenario import SERVED, Answer, Scenario, Window

MOST_REMEMBERED = 20_000
_SERVED = Answer()


@dataclass(frozen=True, slots=True)
class Ticket:
    """What a request gets. effect: number of the effect that it made or was told of again (`replayed`).

    content: whose script it goes on with; empty where none decided. step: of the script, from 0. window: the number of
    the window that decided, or -1. probe: let through half-open.
    """

    answer: Answer
    step: int = 0
    window: int = -1
    probe: bool = False
    effect: int | None = None
    replayed: bool = False
    content: str = ""


class Machine:
    """`arrive` for each request, `ended` when its answer has left (or could not)."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.effects = 0
        self._first_ns: int | None = None
        self._left_off: OrderedDict[str, deque[int]] = OrderedDict()
        self._scripts = 0
        self._done: OrderedDict[str, int] = OrderedDict()
        self._met = [0] * len(scenario.windows)
        self._probing = [0] * len(scenario.windows)
        self._recovered = [0] * len(scenario.windows)

    def arrive(self, now_ns: int, content: str, key: str | None, writes: bool) -> Ticket:
        """content: who wants what, with which body. key: the scope in which work is done once. writes: it is work that
        leaves an effect."""
        if self._first_ns is None:
            self._first_ns = now_ns
        since_ns = now_ns - self._first_ns
        ticket = self._by_window(since_ns) or self._by_script(content)
        if not writes or not (ticket.answer.kind == SERVED or ticket.answer.commits):
            return ticket
        effect, replayed = self._commit(key)
        return replace(ticket, effect=effect, replayed=replayed)

    def ended(self, ticket: Ticket, delivered: bool) -> None:
        """The answer has left (delivered), or its caller had gone."""
        if ticket.probe:
            self._probing[ticket.window] -= 1
            self._recovered[ticket.window] += delivered
        if ticket.content and ticket.step < len(self.scenario.script):
            self._leave_off(ticket.content, ticket.step + 1)

    def look_up(self, key: str) -> int | None:
        """The effect that was made under a key, which is how a caller reads back before it repeats."""
        return self._done.get(key)

    def _by_window(self, since_ns: int) -> Ticket | None:
        for place, window in enumerate(self.scenario.windows):
            if window.from_ns <= since_ns < window.to_ns and not self._closed(place, window):
                self._met[place] += 1
                if window.probes and self._probing[place] < window.probes:
                    self._probing[place] += 1
                    return Ticket(Answer(hold_ns=window.answer.hold_ns), window=place, probe=True)
                if window.probes or self._met[place] % window.every == 0:
                    held = window.answer
                    return Ticket(_unheld(held) if window.probes else held, window=place)
        return None

    def _closed(self, place: int, window: Window) -> bool:
        return bool(window.recover) and self._recovered[place] >= window.recover

    def _by_script(self, content: str) -> Ticket:
        script = self.scenario.script
        if not script:
            return Ticket(_SERVED)
        step = self._go_on(content)
        if step >= len(script) and not self.scenario.lasting:
            return Ticket(_SERVED, step, content=content)  # and the next one of this content begins anew
        return Ticket(script[min(step, len(script) - 1)], step, content=content)

    def _go_on(self, content: str) -> int:
        steps = self._left_off.pop(content, None)
        if not steps:
            return 0
        self._scripts -= 1
        step = steps.popleft()
        if steps:
            self._left_off[content] = steps
        return step

    def _leave_off(self, content: str, step: int) -> None:
        self._left_off.setdefault(content, deque()).append(step)
        self._left_off.move_to_end(content)
        self._scripts += 1
        while self._scripts > MOST_REMEMBERED:
            oldest = next(iter(self._left_off))
            self._left_off[oldest].popleft()
            self._scripts -= 1
            if not self._left_off[oldest]:
                del self._left_off[oldest]

    def _commit(self, key: str | None) -> tuple[int, bool]:
        if key is not None and key in self._done:
            return self._done[key], True
        self.effects += 1
        if key is not None:
            _remember(self._done, key, self.effects)
        return self.effects, False


def _unheld(answer: Answer) -> Answer:
    """A half-open window holds its probes, not those that it turns away."""
    return Answer(answer.kind, answer.status, answer.headers, answer.retry_after_s, answer.code, answer.commits)


def _remember(memory: OrderedDict[str, int], name: str, value: int) -> None:
    memory[name] = value
    if len(memory) > MOST_REMEMBERED:
        memory.popitem(last=False)
