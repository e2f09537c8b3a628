"""What tasks print, a line at a time, each behind the name of its task."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import BinaryIO

# A line that goes on for longer is broken, so that a task which never ends one does not fill the memory.
LONGEST_LINE = 1 << 16
_BREAK = re.compile(rb"\r\n|\n|\r")
_COLOURS = (36, 33, 32, 35, 34, 31, 96, 93, 92, 95)  # cyan, yellow, green, ...: the first tasks differ most
_RESET = b"\x1b[0m"


class LinePrefixer:
    """Lines of one stream of one task, written whole, behind a prefix.

    A carriage return ends a line too: a progress display that draws over itself becomes a line a drawing.
    """

    def __init__(self, prefix: bytes, sink: BinaryIO) -> None:
        self._prefix, self._sink, self._rest = prefix, sink, b""

    def feed(self, data: bytes) -> None:
        """Write the lines that `data` completes."""
        text = self._rest + data
        # What '\\r' means is open until the next byte is there.
        end = len(text) - text.endswith(b"\r")
        *lines, rest = _BREAK.split(text[:end])
        self._rest = rest + text[end:]
        while len(self._rest) > LONGEST_LINE:
            lines.append(self._rest[:LONGEST_LINE])
            self._rest = self._rest[LONGEST_LINE:]
        self._write(lines)

    def close(self) -> None:
        """Write what is left without the end of its line."""
        rest, self._rest = self._rest.rstrip(b"\r"), b""
        if rest:
            self._write([rest])

    def _write(self, lines: Iterable[bytes]) -> None:
        made = b"".join(self._prefix + line + b"\n" for line in lines)
        if made:
            self._sink.write(made)
            self._sink.flush()


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
