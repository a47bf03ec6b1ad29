"""What is drawn anew on a terminal while something goes on, and is gone at its end."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.live import Live


class Renewed:
    """A context manager. `_live` is None until `_begin`, and where nothing can be drawn anew."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None

    def _begin(self, **how: Any) -> Live:
        self._live = Live(console=self._console, transient=True, **how)
        self._live.start()
        return self._live

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
