"""What tasks print: whole lines behind their names, and on a terminal drawn lines at the bottom."""

import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphrt.tools import task_output
from graphrt.tools.task_output import LONGEST_LINE, LinePrefixer, Screen, prefixes, wants_colour


def fed(*chunks: bytes) -> bytes:
    sink = io.BytesIO()
    prefixer = LinePrefixer(b"w | ", sink, Screen())
    for chunk in chunks:
        prefixer.feed(chunk)
    prefixer.close()
    return sink.getvalue()


@pytest.mark.parametrize(("chunks", "written"), [
    ([b"one\ntwo\n"], b"w | one\nw | two\n"),
    ([b"on", b"e\ntw", b"o"], b"w | one\nw | two\n"),
    ([b"\n\nx\n"], b"w | \nw | \nw | x\n"),
    ([b"a\r\nb\r\n"], b"w | a\nw | b\n"),
    ([b"a\r", b"\nb"], b"w | a\nw | b\n"),
    ([b"10 %\r20 %\r", b"30 %\rdone\n"], b"w | 10 %\nw | 20 %\nw | 30 %\nw | done\n"),
    ([b"\r10 %", b"\r20 %", b"\n"], b"w | 10 %\nw | 20 %\n"),
    ([b"\xff\xfe\n"], b"w | \xff\xfe\n"),
    ([], b""),
])
def test_lines_are_whole_and_behind_the_prefix(chunks, written):
    assert fed(*chunks) == written


@given(st.lists(st.binary(max_size=6).filter(lambda b: b"\r" not in b), max_size=8))
def test_how_the_bytes_come_does_not_matter(chunks):
    assert fed(*chunks) == fed(b"".join(chunks))


@given(st.text(alphabet="a\r\n", max_size=12), st.lists(st.integers(0, 12), max_size=3))
def test_carriage_returns_mean_the_same_wherever_the_bytes_are_cut(text, cuts):
    data, edges = text.encode(), sorted({0, *cuts})
    assert fed(*(data[a:b] for a, b in zip(edges, [*edges[1:], len(data)]) if a < len(data))) == fed(data)


def test_a_line_without_end_is_broken():
    out = fed(*[b"x" * 50_000] * 3)
    assert max(map(len, out.split(b"\n"))) <= LONGEST_LINE + 4
    assert out.replace(b"w | ", b"").replace(b"\n", b"") == b"x" * 150_000


def rendered(data: bytes) -> list[str]:
    """The lines on a terminal that got these bytes: line feeds, returns, cursor up, clear below, colours."""
    lines, row, column = [""], 0, 0
    for piece in re.findall(r"\x1b\[\d*[A-Za-z]|\r|\n|[^\x1b\r\n]+", data.decode()):
        if piece == "\n":
            row, column = row + 1, 0
            lines += [""] * (row + 1 - len(lines))
        elif piece == "\r":
            column = 0
        elif piece == "\x1b[J":
            del lines[row + 1:]
            lines[row] = lines[row][:column]
        elif piece.endswith("A"):
            row -= int(piece[2:-1])
        elif not piece.startswith("\x1b"):
            lines[row] = lines[row][:column] + piece + lines[row][column + len(piece):]
            column += len(piece)
    return lines


@pytest.fixture
def terminal():
    return io.BytesIO()


@pytest.fixture
def tasks(terminal):
    screen = Screen(terminal, lambda: 30)
    return [LinePrefixer(p, terminal, screen) for p in prefixes(["worker:0", "worker:1"], coloured=True)]


def test_a_drawn_line_of_each_task_stays_under_what_scrolls_by(terminal, tasks):
    first, second = tasks
    first.feed(b"10 %\r")
    second.feed(b"hello\n5 %\r")
    first.feed(b"20 %\rwarning\n30 %\r")
    assert rendered(terminal.getvalue()) == [
        "worker:1 | hello", "worker:0 | warning", "worker:0 | 30 %", "worker:1 | 5 %", ""]


def test_a_drawn_line_gives_way_to_the_next_whole_one(terminal, tasks):
    first, second = tasks
    first.feed(b"10 %\r")
    second.feed(b"50 %\r")
    first.feed(b"done\n")
    assert rendered(terminal.getvalue()) == ["worker:0 | done", "worker:1 | 50 %", ""]
    second.close()
    assert rendered(terminal.getvalue()) == ["worker:0 | done", ""]


def test_a_line_that_ends_in_both_is_a_line_however_it_comes(terminal, tasks):
    tasks[0].feed(b"a\r\nb\r")
    tasks[0].feed(b"\nc\r")
    assert rendered(terminal.getvalue()) == ["worker:0 | a", "worker:0 | b", "worker:0 | c", ""]


def test_a_drawn_line_is_cut_to_the_terminal_and_loses_its_own_escapes(terminal, tasks):
    tasks[0].feed(b"\x1b[2A\x1b[31m" + b"x" * 100 + b"\r")
    assert rendered(terminal.getvalue()) == ["worker:0 | " + "x" * (30 - 1 - 11), ""]


def test_prefixes_are_as_wide_as_the_longest_and_differ_in_colour():
    assert prefixes(["ps:0", "worker:0"], coloured=False) == [b"ps:0     | ", b"worker:0 | "]
    coloured = prefixes(["ps:0", "worker:0"], coloured=True)
    assert [task_output._ESCAPE.sub(b"", p) for p in coloured] == [b"ps:0     | ", b"worker:0 | "]
    assert len({p[:5] for p in coloured}) == 2 and all(p.endswith(b"\x1b[0m") for p in coloured)


@pytest.mark.parametrize(("is_terminal", "environment", "wanted"), [
    (True, {}, True), (False, {}, False), (True, {"NO_COLOR": "1"}, False), (True, {"TERM": "dumb"}, False),
    (True, {"NO_COLOR": ""}, True)])
def test_colours_are_for_terminals_that_want_them(monkeypatch, is_terminal, environment, wanted):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert wants_colour(is_terminal) is wanted
