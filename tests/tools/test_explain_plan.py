"""`graphrt explain --plan`: the Python that each partition becomes."""

import ast
import re

import pytest

import graphrt as tf
from graphrt.tools import explain


@pytest.fixture
def model(tmp_path):
    with tf.device("/cpu:1"):
        x = tf.placeholder(tf.float32, [None, 4], name="x")
        y = tf.matmul(x, tf.ones([4, 2]), name="y")
    with tf.device("/cpu:0"):
        tf.tanh(y, name="z")
    file = tmp_path / "model.pb"
    file.write_bytes(tf.get_default_graph().as_graph_def().SerializeToString())
    return str(file)


def test_every_partition_is_shown_as_code_with_a_legend_of_its_numbers(model, capsys):
    arguments = [model, "--fetch", "z", "--feed", "x", "--device", "cpu:0", "--device", "cpu:1"]
    assert explain.main(arguments) == 0
    without = capsys.readouterr().out
    assert explain.main([*arguments, "--plan"]) == 0
    out = capsys.readouterr().out
    assert "Plan of" not in without and "Plan of" in out
    plans = re.split(r"^Plan of (\S+)\n", out, flags=re.MULTILINE)[1:]
    shown = dict(zip(plans[::2], plans[1::2]))
    assert [name.rpartition("/")[2] for name in shown] == ["device:CPU:0", "device:CPU:1"]
    for text, wanted in zip(shown.values(), ("Tanh z", "MatMul y")):
        code, _, legend = text.rpartition("\n\n  ")
        functions = [n for n in ast.parse(code).body if isinstance(n, ast.FunctionDef)]
        assert functions and all(f.name == "segment" for f in functions)
        number = re.search(rf"(\d+)  {wanted}$", legend, re.MULTILINE)[1]
        assert f"k{number}(" in code


def test_a_plan_is_of_a_device_not_of_a_task(model, capsys):
    assert explain.main([model, "--fetch", "z", "--feed", "x", "--plan", "--by-task"]) == 2
    assert "--plan shows what a device runs: leave out --by-task" in capsys.readouterr().err
