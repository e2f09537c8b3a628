"""`graphrt trace`: the table and the file."""

import json

import pytest
from google.protobuf import text_format

from graphrt.protos import config_pb2
from graphrt.tools import trace
from tests.tools.test_timeline import CHAIN, CPU0, CPU1, stats


@pytest.fixture
def metadata(tmp_path):
    made = config_pb2.RunMetadata(step_stats=stats(*CHAIN))
    (tmp_path / "step.pb").write_bytes(made.SerializeToString())
    (tmp_path / "step.pbtxt").write_text(text_format.MessageToString(made))
    return tmp_path


@pytest.mark.parametrize("file", ["step.pb", "step.pbtxt"])
def test_the_table_says_what_took_how_long_where(metadata, capsys, file):
    assert trace.main([str(metadata / file)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "The step took 0.085 ms from its first kernel to its last."
    # 5 + 30 + 15 of 85 us
    assert f"{CPU0}: 3 kernels, 0.050 ms in them, busy 59 % of the step" in lines
    assert f"{CPU1}: 1 kernels, 0.010 ms in them, busy 12 % of the step" in lines
    ranked = [line.split() for line in lines if line.endswith(" x")]
    assert ranked[0] == ["MatMul", "30.0", "us", "60.0", "%", "1", "x"]
    assert [line[0] for line in ranked] == ["MatMul", "Sum", "Const", "Tanh"]


def test_the_table_lists_nodes_if_asked_and_no_more_than_asked(metadata, capsys):
    assert trace.main([str(metadata / "step.pb"), "--by-node", "--top", "1"]) == 0
    out = capsys.readouterr().out
    assert "y (MatMul)" in out and "Sum" not in out and "... and 2 more (--top)" in out


def test_kernels_at_the_same_time_are_one_busy_time():
    together = stats((CPU0, "a = A()", 0, 10), (CPU0, "b = B()", 5, 10), (CPU0, "c = C()", 40, 1))
    assert trace.busy(trace.Timeline(together).events) == 16_000


def test_the_trace_is_written_where_asked(metadata, capsys):
    out = metadata / "trace.json"
    assert trace.main([str(metadata / "step.pb"), "-o", str(out), "--memory"]) == 0
    assert f"Trace: {out}" in capsys.readouterr().out
    phases = {e["ph"] for e in json.loads(out.read_text())["traceEvents"]}
    assert phases == {"M", "X", "s", "f", "C"}
    assert trace.main([str(metadata / "step.pb"), "-o", str(out), "--no-dataflow"]) == 0
    assert {e["ph"] for e in json.loads(out.read_text())["traceEvents"]} == {"M", "X"}


@pytest.mark.parametrize(("content", "said"), [
    (None, "there is no file"),
    (b"\xff\xff\xff", "is not a RunMetadata"),
    (b"", "has no step statistics: run the step with RunOptions(trace_level=RunOptions.FULL_TRACE)"),
])
def test_a_file_that_is_something_else_is_refused(tmp_path, capsys, content, said):
    file = tmp_path / "step.pb"
    if content is not None:
        file.write_bytes(content)
    assert trace.main([str(file)]) == 2
    assert said in capsys.readouterr().err


def test_a_trace_that_cannot_be_written_is_an_error(metadata, capsys):
    assert trace.main([str(metadata / "step.pb"), "-o", str(metadata / "no" / "folder.json")]) == 2
    assert "No such file or directory" in capsys.readouterr().err
