"""A progress line: drawn over and over on a terminal, written at each tenth of the way elsewhere."""

from __future__ import annotations

import os
import sys
import time
from typing import TextIO

_REDRAW_S = 0.1
_BAR = 24


class Progress:
    """How far a loop of `steps` is.

    Args:
      steps: where it ends; first: where it began.
      out: where it is written. `graphrt launch` on a terminal keeps a line for each task, and says so in the
        environment.
    """

    def __init__(self, steps: int, first: int = 0, out: TextIO = sys.stdout) -> None:
        self.steps, self._first, self._out = steps, first, out
        self._is_live = out.isatty() or os.environ.get("GRAPHRT_PROGRESS") == "live"
        self._began = self._drawn = time.perf_counter()
        self._tenth = 10 * first // steps

    def is_due(self, step: int) -> bool:
        """True where a line is to be shown after this step: fetch what it says only then."""
        if step >= self.steps:
            return True
        if self._is_live:
            return time.perf_counter() - self._drawn >= _REDRAW_S
        return 10 * step // self.steps > self._tenth

    def show(self, step: int, text: str) -> None:
        """Show that `step` is done, and `text`."""
        step, self._drawn = min(step, self.steps), time.perf_counter()
        self._tenth = 10 * step // self.steps
        took = self._drawn - self._began
        each, width = took / max(step - self._first, 1), len(str(self.steps))
        line = f"step {step:{width}}/{self.steps}  {text}  {1e3 * each:.2f} ms a step"
        if self._is_live:
            bar = "#" * (_BAR * step // self.steps)
            left = f"{each * (self.steps - step):.0f} s to go" if step < self.steps else f"{took:.1f} s"
            line = f"[{bar:<{_BAR}}] {line}, {left}   "
        print(line, end="\r" if self._is_live and step < self.steps else "\n", file=self._out, flush=True)
