"""What tasks print, a line at a time, each behind the name of its task.

On a terminal, a line that a task draws over itself (it ends in a carriage return) stays at the bottom, one
for each task, under what scrolls by. Elsewhere it is a line like others.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from typing import BinaryIO

# A line that goes on for longer is broken, so that a task which never ends one does not fill the memory.
LONGEST_LINE = 1 << 16
_BREAK = re.compile(rb"(\r\n|\n|\r)")
_ESCAPE = re.compile(rb"\x1b\[[0-9;]*[A-Za-z]")
_COLOURS = (36, 33, 32, 35, 34, 31, 96, 93, 92, 95)  # cyan, yellow, green, ...: the first tasks differ most
_RESET, _UP, _CLEAR_BELOW = b"\x1b[0m", b"\x1b[%dA", b"\r\x1b[J"


class Screen:
    """Lines that scroll by, and on a terminal one below them for each task that draws.

    Args:
      terminal: where the drawn lines are; None where there is no terminal.
      width: gives the columns of the terminal: a drawn line is cut to them.
    """

    def __init__(self, terminal: BinaryIO | None = None, width: Callable[[], int] = lambda: 80) -> None:
        self.terminal, self._width = terminal, width
        self._drawn: dict[bytes, bytes] = {}

    def write(self, sink: BinaryIO, lines: Iterable[bytes]) -> None:
        """Whole lines, to the terminal or elsewhere."""
        text = b"".join(line + b"\n" for line in lines)
        if text:
            self._erase()
            sink.write(text)
            sink.flush()
            self._draw()

    def draw(self, prefix: bytes, line: bytes | None) -> None:
        """Show the line of a task at the bottom, in place of its last; None: no longer."""
        if line is None and prefix not in self._drawn:
            return
        self._erase()
        if line is None:
            del self._drawn[prefix]
        else:
            room = max(0, self._width() - 1 - len(_ESCAPE.sub(b"", prefix)))
            self._drawn[prefix] = _ESCAPE.sub(b"", line).decode(errors="replace")[:room].encode()
        self._draw()

    def _erase(self) -> None:
        if self.terminal is not None and self._drawn:
            self.terminal.write(_UP % len(self._drawn) + _CLEAR_BELOW)
            self.terminal.flush()

    def _draw(self) -> None:
        if self.terminal is not None and self._drawn:
            order = sorted(self._drawn, key=lambda prefix: _ESCAPE.sub(b"", prefix))
            self.terminal.write(b"".join(p + self._drawn[p] + b"\n" for p in order))
            self.terminal.flush()


class LinePrefixer:
    """Lines of one stream of one task, written whole, behind a prefix."""

    def __init__(self, prefix: bytes, sink: BinaryIO, screen: Screen) -> None:
        self._prefix, self._sink, self._screen, self._rest = prefix, sink, screen, b""
        self._returned: bytes | None = None  # the line whose '\r' ended the last data: a '\n' may follow

    def feed(self, data: bytes) -> None:
        """Write the lines that `data` completes."""
        is_live = self._screen.terminal is not None
        lines: list[bytes] = []
        if self._returned is not None and data.startswith(b"\n"):
            data = data[1:]
            if is_live or not self._returned:  # else it is written
                lines.append(self._returned)
        *pieces, self._rest = _BREAK.split(self._rest + data)
        drawn = None
        for line, end in zip(pieces[::2], pieces[1::2]):
            if end == b"\r" and is_live:
                drawn = line or drawn
            elif line or end != b"\r":
                lines.append(line)
                drawn = None
        self._returned = pieces[-2] if pieces and pieces[-1] == b"\r" and not self._rest else None
        while len(self._rest) > LONGEST_LINE:
            lines.append(self._rest[:LONGEST_LINE])
            self._rest = self._rest[LONGEST_LINE:]
        self._write(lines)
        if drawn is not None:
            self._screen.draw(self._prefix, drawn)

    def close(self) -> None:
        """Write what is left without the end of its line."""
        rest, self._rest = self._rest, b""
        self._write([rest] if rest else [])
        self._screen.draw(self._prefix, None)

    def _write(self, lines: list[bytes]) -> None:
        if lines:
            self._screen.draw(self._prefix, None)
            self._screen.write(self._sink, (self._prefix + line for line in lines))


def prefixes(names: list[str], coloured: bool) -> list[bytes]:
    """'worker:0 | ' and so on, as wide as the longest, each in a colour of its own where `coloured`."""
    width = max(map(len, names))
    plain = [f"{name:<{width}} | ".encode() for name in names]
    if not coloured:
        return plain
    return [b"\x1b[%dm" % _COLOURS[i % len(_COLOURS)] + text + _RESET for i, text in enumerate(plain)]


def wants_colour(is_terminal: bool) -> bool:
    """Colours on a terminal, unless NO_COLOR or a dumb TERM asks for none."""
    return is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
