"""Partitions as RegisterGraph carries them: ours to TensorFlow and back, TensorFlow's to ours."""

import numpy as np
import pytest

from graphrt.compiler.graph_def import from_graph_def, to_graph_def
from graphrt.compiler.options import CompileOptions
from graphrt.compiler.pipeline import compile_partition
from graphrt.compiler.verify import verify
from graphrt.core import raw
from graphrt.core.attr_values import FunctionRef
from graphrt.core.dtypes import float32, int32
from graphrt.core.errors import InvalidArgumentError, NotFoundError
from graphrt.core.graph import Graph
from graphrt.core.shapes import TensorShape
from graphrt.protos import graph_pb2
from tests.compiler.interpreter import Interpreter, compiled, devices, plain_options, same_bits
from tests.compiler.test_lower import const, function

FULL = "/job:localhost/replica:0/task:0/device:CPU:0"


@pytest.fixture
def g():
    graph = Graph()
    with graph.as_default():
        yield graph


def message(*nodes):
    """A GraphDef of (name, op, inputs, attrs) on CPU:0."""
    from graphrt.core.attr_values import attr_to_proto
    made = graph_pb2.GraphDef()
    for name, op, inputs, attrs in nodes:
        node = made.node.add(name=name, op=op, input=inputs, device=FULL)
        for key, value in attrs.items():
            node.attr[key].CopyFrom(attr_to_proto(value))
    return made


FLOAT = float32
ONE = np.array(1.0, np.float32)


def test_a_partition_comes_back_as_it_was(g):
    x = raw.Placeholder(dtype="float32", shape=[2, 2], name="x")
    with g.control_dependencies([raw.NoOp(name="n")]):
        y = raw.MatMul(x, x, transpose_b=True, name="y")
    a, b = raw.Split(const(0, "int32"), y, num_split=2)
    step = compiled(g, fetches=[b, a], feeds=x)
    back, record = from_graph_def(to_graph_def(step.partitions[0]))
    verify(back, "registration")
    assert record.nodes_after == len(step.step)
    value = np.array([[1, 2], [3, 4]], np.float32)
    for made, wanted in zip(Interpreter().run(back, [value]), Interpreter().run(step, [value])):
        assert same_bits(made, wanted)
    assert {n.name: n.shapes for n in back.nodes if n.name in ("y", "Split")} == {
        n.name: n.shapes for n in step.step.nodes if n.name in ("y", "Split")}, "shapes are sent or inferred"


def test_attrs_with_their_default_are_left_out_and_filled_in(g):
    x = raw.Placeholder(dtype="float32", shape=[2, 2], name="x")
    y = raw.MatMul(x, x, transpose_b=True, name="y")
    sent = to_graph_def(compiled(g, fetches=y, feeds=x).partitions[0])
    node = next(n for n in sent.node if n.name == "y")
    assert set(node.attr) >= {"T", "transpose_b"} and "transpose_a" not in node.attr
    assert node.device == FULL and sent.versions.producer > 0
    back, _ = from_graph_def(sent)
    attrs = next(n for n in back.nodes if n.name == "y").attrs
    assert (attrs["transpose_a"], attrs["transpose_b"]) == (False, True)


def test_tensorflows_bookkeeping_is_ignored():
    attrs = {"value": ONE, "dtype": FLOAT, "_src": b"c", "_dst": b"d", "other": 3}
    step, _ = from_graph_def(message(("c", "Const", [], attrs)))
    assert set(step.nodes[0].attrs) == {"value", "dtype", "other"}


def test_shapes_are_taken_from_the_message_or_inferred():
    constant = ("c", "Const", [], {"value": np.zeros((2, 3), np.float32), "dtype": FLOAT})
    step, _ = from_graph_def(message(constant, ("y", "Neg", ["c"], {"T": FLOAT})))
    assert step.nodes[1].shapes == [TensorShape([2, 3])]


def test_what_nothing_takes_runs_for_its_effect():
    step, _ = from_graph_def(message(("a", "NoOp", [], {}), ("b", "NoOp", ["^a"], {})))
    assert [t.name for t in step.targets] == ["b"]


CONSTANT = ("c", "Const", [], {"value": ONE, "dtype": FLOAT})
INTEGER = ("c", "Const", [], {"value": np.array(1, np.int32), "dtype": int32})


@pytest.mark.parametrize("nodes,kind,told", [
    ([("y", "NoSuchOp", [], {})], NotFoundError, "Op type not registered 'NoSuchOp' .node 'y'."),
    ([("y", "Neg", ["x"], {"T": FLOAT})], InvalidArgumentError,
     "node 'y' takes 'x', which is not in the GraphDef"),
    ([("a", "NoOp", [], {}), ("a", "NoOp", [], {})], InvalidArgumentError, "two nodes called 'a'"),
    ([CONSTANT, ("y", "Neg", ["c:1"], {"T": FLOAT})], InvalidArgumentError,
     "takes 'c:1', and 'c' .Const. has 1 outputs"),
    ([CONSTANT, ("y", "AddV2", ["c"], {"T": FLOAT})], InvalidArgumentError,
     "'y' .AddV2. has 1 inputs where its attrs say 2"),
    ([INTEGER, ("y", "Neg", ["c"], {"T": FLOAT})], InvalidArgumentError,
     "takes 'c:0' as float32, and that is int32"),
    ([("a", "NoOp", ["^b"], {}), ("b", "NoOp", ["^a"], {})], InvalidArgumentError, "cycle through"),
    ([("y", "Neg", [], {})], InvalidArgumentError, "'y' .Neg. lacks the attr 'T'"),
])
def test_a_malformed_graph_is_an_error_that_names_the_node(nodes, kind, told):
    with pytest.raises(kind, match=told):
        from_graph_def(message(*nodes))


def test_functions_travel_with_the_nodes_that_name_them(g):
    inner = function("inner", lambda x: [raw.Neg(x)], library=g.functions)
    f = function("f", lambda x: [raw.PartitionedCall([x], Tout=["float32"], f=FunctionRef("inner"))[0]],
                 library=g.functions)
    function("unused", lambda x: [x], library=g.functions)
    x = raw.Placeholder(dtype="float32", shape=[], name="x")
    y, = raw.PartitionedCall([x], Tout=f.result_types, f=FunctionRef("f"), name="call")
    assert inner.name == "inner"
    from graphrt.compiler.prune import prune
    from graphrt.compiler.step_graph import Partition, Signature
    step, _ = prune(g, Signature(("x:0",), ("call:0",), ()))
    for node in step.nodes:
        node.device = FULL
    sent = to_graph_def(Partition(FULL, step))
    assert sorted(f.signature.name for f in sent.library.function) == ["f", "inner"]
    made = compile_partition(sent, devices("cpu:0"), CompileOptions(FULL, verify=True))
    assert Interpreter().run(made, [np.float32(3)]) == [-3]
    assert y.dtype.name == "float32"


def test_a_worker_cuts_its_part_again_with_names_of_its_own(g):
    on = devices("/job:w/task:0/cpu:0", "/job:w/task:1/cpu:0", "/job:w/task:1/cpu:1")
    x = raw.Placeholder(dtype="float32", shape=[], name="x")
    with g.device("/job:w/task:1/cpu:0"):
        a = raw.Neg(x, name="a")
    with g.device("/job:w/task:1/cpu:1"):
        y = raw.Exp(a, name="y")
    step = compiled(g, fetches=y, feeds=x, on=on, by_task=True)
    parts = [step.partitions[0]]
    worker = CompileOptions(on[1].name, name_suffix="_G", verify=True)
    made = compile_partition(to_graph_def(step.partitions[1]), on[1:], worker)
    parts += made.partitions
    assert [p.device[-5:] for p in made.partitions] == ["CPU:0", "CPU:1"]
    names = [n.name for p in parts for n in p.graph]
    assert len(names) == len(set(names)) and any("_G" in n for n in names)
    assert same_bits(Interpreter(on).run(parts, [np.float32(0.5)])[0], np.exp(np.float32(-0.5)))


# -- with TensorFlow ---------------------------------------------------------------------------------------


def test_tensorflow_reads_our_partitions(tf, g):
    v = raw.VariableV2(shape=[2], dtype="float32", name="v")
    x = raw.Placeholder(dtype="float32", shape=[2], name="x")
    with g.device("/cpu:1"):
        y = raw.MatMul(raw.Reshape(raw.Mul(v, x), const([1, 2], "int32")), const([[1.0], [2.0]]), name="y")
    step = compiled(g, fetches=y, feeds=x, on=devices("cpu:0", "cpu:1"), **plain_options())
    for part in step.partitions:
        ours = to_graph_def(part)
        theirs = tf.compat.v1.GraphDef.FromString(ours.SerializeToString())
        assert {n.name: (n.op, n.device, list(n.input)) for n in theirs.node} == {
            n.name: (n.op, n.device, list(n.input)) for n in ours.node}
        for node in theirs.node:
            definition = tf.raw_ops.__dict__.get(node.op)
            if definition is not None:
                known = {a.name for a in _op_def(tf, node.op).attr}
                assert {a for a in node.attr if not a.startswith("_")} <= known


def _op_def(tf, name):
    from tensorflow.python.framework import op_def_registry
    return op_def_registry.get(name)


def test_what_tensorflow_exports_with_stripped_defaults_runs_here(tf):
    v1 = tf.compat.v1
    with tf.Graph().as_default() as theirs:
        x = v1.placeholder(tf.float32, [3, 4], name="x")
        h = tf.nn.relu(tf.matmul(x, tf.constant(np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)),
                                 transpose_b=True))
        h = tf.concat([h, h * 2.0 + 1.0], axis=1)
        y = tf.identity(tf.reduce_sum(tf.transpose(h), axis=0, keepdims=True), name="y")
        value = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
        with v1.Session() as session:
            wanted = session.run(y, {x: value})
        exported = v1.train.export_meta_graph(strip_default_attrs=True).graph_def
    graph_def = graph_pb2.GraphDef.FromString(exported.SerializeToString())
    for node in graph_def.node:
        node.device = FULL
        if node.op == "Placeholder":
            node.op = "_Arg"
            node.attr["T"].CopyFrom(node.attr.pop("dtype"))
            node.attr["index"].i = 0
            del node.attr["shape"]
    graph_def.node.add(name="out", op="_Retval", input=["y"], device=FULL)
    graph_def.node[-1].attr["T"].type = 1
    graph_def.node[-1].attr["index"].i = 0
    assert theirs is not None
    step, _ = from_graph_def(graph_def)
    verify(step, "registration")
    made, = Interpreter().run(step, [value])
    np.testing.assert_allclose(made, wanted, rtol=1e-6)
