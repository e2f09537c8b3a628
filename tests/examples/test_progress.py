"""The progress line of the examples."""

import importlib.util
import io
from pathlib import Path

import pytest

FILE = Path(__file__).parents[2] / "examples" / "progress.py"


@pytest.fixture
def clock(monkeypatch):
    """The module with a clock that a test moves: (module, [seconds])."""
    spec = importlib.util.spec_from_file_location("progress_under_test", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    now = [0.0]
    monkeypatch.setattr(module.time, "perf_counter", lambda: now[0])
    monkeypatch.delenv("GRAPHRT_PROGRESS", raising=False)
    return module, now


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_without_a_terminal_there_is_a_line_at_each_tenth(clock):
    module, now = clock
    out = io.StringIO()
    progress = module.Progress(200, out=out)
    shown = []
    for step in range(1, 201):
        now[0] += 0.001
        if progress.is_due(step):
            shown.append(step)
            progress.show(step, "loss 0.5")
    assert shown == list(range(20, 201, 20))
    assert out.getvalue().splitlines()[0] == "step  20/200  loss 0.5  1.00 ms a step"


def test_a_loop_that_begins_later_counts_from_there(clock):
    module, now = clock
    out = io.StringIO()
    progress = module.Progress(100, first=50, out=out)
    now[0] = 0.1
    assert not progress.is_due(59) and progress.is_due(60)
    progress.show(60, "x")
    assert "10.00 ms a step" in out.getvalue()


def test_steps_beyond_the_end_show_the_end(clock):
    module, now = clock
    out = io.StringIO()
    progress = module.Progress(10, out=out)
    assert progress.is_due(12)
    progress.show(12, "x")
    assert out.getvalue().startswith("step 10/10 ")


def test_a_terminals_line_is_drawn_over_ten_times_a_second_and_ended_at_the_end(clock):
    module, now = clock
    out = Terminal()
    progress = module.Progress(4, out=out)
    now[0] = 0.05
    assert not progress.is_due(1)
    now[0] = 0.2
    assert progress.is_due(2)
    progress.show(2, "loss 1")
    assert out.getvalue() == f"[{'#' * 12:<24}] step 2/4  loss 1  100.00 ms a step, 0 s to go   \r"
    now[0] = 0.4
    progress.show(4, "loss 0")
    assert out.getvalue().endswith("step 4/4  loss 0  100.00 ms a step, 0.4 s   \n")


def test_a_launcher_on_a_terminal_can_ask_for_drawing(clock, monkeypatch):
    module, _ = clock
    monkeypatch.setenv("GRAPHRT_PROGRESS", "live")
    out = io.StringIO()
    module.Progress(4, out=out).show(1, "x")
    assert out.getvalue().endswith("\r")
