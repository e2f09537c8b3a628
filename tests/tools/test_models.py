"""`graphrt inspect` and `graphrt coverage`: what they say of a model."""

import json

import pytest
from google.protobuf import text_format

import graphrt as tf
from graphrt.core.registry import OPS
from graphrt.protos import graph_pb2, saved_model_pb2
from graphrt.tools import coverage, inspect


@pytest.fixture
def model(tmp_path):
    """A softmax model as a .pb file."""
    x = tf.placeholder(tf.float32, [None, 784], name="x")
    with tf.device("/job:ps/task:0"):
        w = tf.Variable(tf.zeros([784, 10]), name="w")
    tf.nn.softmax(tf.matmul(x, w), name="y")
    file = tmp_path / "model.pb"
    file.write_bytes(tf.get_default_graph().as_graph_def().SerializeToString())
    return file


@pytest.fixture
def unknown(tmp_path):
    """A model with ops that graphrt does not have, one of them in a function, and a call of the function."""
    made = graph_pb2.GraphDef()
    made.node.add(name="a", op="Const")
    made.node.add(name="b", op="NoSuchOp", input=["a"])
    made.node.add(name="c", op="NoSuchOp", input=["b"])
    made.node.add(name="d", op="body", input=["c"])
    function = made.library.function.add()
    function.signature.name = "body"
    function.node_def.add(name="e", op="NeitherThisOne")
    file = tmp_path / "unknown.pbtxt"
    file.write_text(text_format.MessageToString(made))
    return file


def test_a_summary_has_inputs_variables_ends_and_devices(model, capsys):
    assert inspect.main([str(model)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"{len(tf.get_default_graph().get_operations())} nodes, 0 functions")
    assert "  x  Placeholder float32 (?, 784)" in lines
    assert "  w  VariableV2 float32 (784, 10)" in lines
    assert lines[lines.index("Ends (nothing takes their outputs): 2") + 1:][:2] == [
        "  w/Assign  Assign", "  y         Softmax"]
    assert any(line.endswith("/job:ps/task:0") for line in lines)


def test_nodes_are_listed_by_pattern(model, capsys):
    assert inspect.main([str(model), "--nodes", "^w/|Softmax"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(" = ")[0] for line in lines] == ["w/Assign", "w/read", "y"]
    assert lines[1:] == ["w/read = Identity(w) /job:ps/task:0", "y = Softmax(MatMul)"]
    assert inspect.main([str(model), "--nodes"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(tf.get_default_graph().get_operations())


@pytest.mark.parametrize(("pattern", "said"), [("zzz", "no node's name or type matches 'zzz'"),
                                               ("(", "'(' is not a regular expression")])
def test_a_pattern_that_finds_nothing_is_refused(model, capsys, pattern, said):
    assert inspect.main([str(model), "--nodes", pattern]) == 2
    assert said in capsys.readouterr().err


def test_nodes_of_functions_are_behind_their_functions_name(unknown, capsys):
    assert inspect.main([str(unknown), "--nodes", "Neither"]) == 0
    assert capsys.readouterr().out == "body: e = NeitherThisOne()\n"


def test_a_saved_models_signatures_are_shown(tmp_path, capsys):
    made = saved_model_pb2.SavedModel()
    signature = made.meta_graphs.add().signature_def["serving_default"]
    signature.method_name = "tensorflow/serving/predict"
    signature.inputs["image"].name, signature.inputs["image"].dtype = "x:0", 1
    signature.inputs["image"].tensor_shape.dim.add(size=-1)
    signature.outputs["digit"].name, signature.outputs["digit"].dtype = "y:0", 9
    (tmp_path / "saved_model.pb").write_bytes(made.SerializeToString())
    assert inspect.main([str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "Signature serving_default (tensorflow/serving/predict)" in out
    assert "  feed  image: x:0 float32 (?,)" in out and "  fetch digit: y:0 int64 ()" in out


def test_coverage_lists_every_op(capsys):
    assert coverage.main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"{len(OPS):,} ops, ")
    listed = [name for line in lines if line.startswith("  ") for name in line.split()]
    assert sorted(listed) == sorted(OPS)
    assert coverage.main(["--json"]) == 0
    assert json.loads(capsys.readouterr().out) == sorted(OPS)


def test_a_model_of_known_ops_is_covered(model, capsys):
    assert coverage.main([str(model)]) == 0
    assert "graphrt runs all of them." in capsys.readouterr().out


def test_ops_that_are_missing_are_named_and_counted_also_those_in_functions(unknown, capsys):
    assert coverage.main([str(unknown)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("4 nodes of 3 op types.")
    assert [line.split() for line in lines[2:]] == [["NoSuchOp", "2", "x"], ["NeitherThisOne", "1", "x"]]
    assert coverage.main([str(unknown), "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == {
        "needed": {"Const": 1, "NoSuchOp": 2, "NeitherThisOne": 1}, "missing": ["NeitherThisOne", "NoSuchOp"]}


@pytest.mark.parametrize("command", [inspect, coverage])
@pytest.mark.parametrize(("content", "said"), [
    (None, "there is no file"), (b"\xff\xff", "is not a GraphDef")])
def test_a_file_that_is_no_model_is_refused(tmp_path, capsys, command, content, said):
    file = tmp_path / "model.pb"
    if content is not None:
        file.write_bytes(content)
    assert command.main([str(file)]) == 2
    out, err = capsys.readouterr()
    assert said in err and out == ""
