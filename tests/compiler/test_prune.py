import pytest

from graphrt.compiler.prune import prune
from graphrt.compiler.step_graph import Signature
from graphrt.compiler.verify import verify
from graphrt.core import raw
from graphrt.core.errors import InvalidArgumentError, NotFoundError
from graphrt.core.graph import Graph
from graphrt.core.shapes import TensorShape
from tests.compiler.interpreter import Interpreter, compiled


def pruned(graph, fetches=(), targets=(), feeds=()):
    step, record = prune(graph, Signature(tuple(feeds), tuple(fetches), tuple(targets)))
    verify(step, "prune")
    return step, record


def names(step):
    return {n.name for n in step.nodes}


def test_only_what_a_fetch_needs_is_kept():
    g = Graph()
    with g.as_default():
        a = raw.Const(value=_array(1.0), dtype="float32", name="a")
        raw.Neg(a, name="unneeded")
        raw.Exp(a, name="y")
    step, record = pruned(g, ["y:0"])
    assert names(step) == {"a", "y", "_retval_y_0_0"}
    assert (record.nodes_before, record.nodes_after) == (3, 3)
    assert "removed 1" in record.summary


def test_a_feed_cuts_off_what_is_before_it():
    g = Graph()
    with g.as_default():
        x = raw.Placeholder(dtype="float32", name="x")
        h = raw.Neg(x, name="h")
        raw.Exp(h, name="y")
    step, _ = pruned(g, ["y:0"], feeds=["h:0"])
    assert names(step) == {"_arg_h_0_0", "y", "_retval_y_0_0"}
    y = next(n for n in step.nodes if n.name == "y")
    assert y.inputs == [(step.args[0], 0)]


def test_a_node_fed_on_one_output_and_needed_on_another_is_kept():
    g = Graph()
    with g.as_default():
        x = raw.Placeholder(dtype="float32", shape=[4], name="x")
        first, second = raw.Split(raw.Const(value=_array(0, "int32"), dtype="int32"), x, num_split=2,
                                  name="parts")
        raw.AddV2(first, second, name="y")
    step, _ = pruned(g, ["y:0"], feeds=["parts:0", "x:0"])
    y = next(n for n in step.nodes if n.name == "y")
    assert [(s.name, i) for s, i in y.inputs] == [("_arg_parts_0_0", 0), ("parts", 1)]


def test_feeds_become_args_with_index_type_and_shape_and_fetches_retvals():
    g = Graph()
    with g.as_default():
        x = raw.Placeholder(dtype="float32", shape=[None, 3], name="x")
        raw.Placeholder(dtype="int64", name="unused")
        raw.Neg(x, name="y")
    step, _ = pruned(g, ["y:0", "x:0"], feeds=["unused:0", "x:0"])
    assert [(n.name, n.attrs["T"].name, n.attrs["index"]) for n in step.args] == [
        ("_arg_unused_0_0", "int64", 0), ("_arg_x_0_1", "float32", 1)]
    assert step.args[1].attrs["_shape"] == TensorShape([None, 3])
    assert [(n.attrs["index"], n.inputs[0][0].name) for n in step.retvals] == [(0, "y"), (1, "_arg_x_0_1")]


def test_control_inputs_are_followed():
    g = Graph()
    with g.as_default():
        before = raw.NoOp(name="before")
        with g.control_dependencies([before]):
            raw.NoOp(name="after")
    step, _ = pruned(g, targets=["after"])
    assert names(step) == {"before", "after"}
    assert [n.name for n in step.targets] == ["after"]


def test_what_waits_for_a_fed_placeholder_waits_for_its_arg():
    g = Graph()
    with g.as_default():
        x = raw.Placeholder(dtype="float32", name="x")
        with g.control_dependencies([x]):
            raw.NoOp(name="after")
    step, _ = pruned(g, targets=["after"], feeds=["x:0"])
    assert names(step) == {"_arg_x_0_0", "after"}
    assert [c.name for c in step.targets[0].controls] == ["_arg_x_0_0"]


def test_a_control_edge_from_another_fed_node_still_runs_that_node():
    g = Graph()
    with g.as_default():
        h = raw.Const(value=_array(2.0), dtype="float32", name="h")
        y = raw.Neg(h, name="y")
        with g.control_dependencies([y]):
            raw.NoOp(name="after")
    step, _ = pruned(g, targets=["after"], feeds=["y:0"])
    assert {"h", "y"} <= names(step)


def test_nodes_stand_in_the_order_of_the_program_after_their_inputs():
    g = Graph()
    with g.as_default():
        a = raw.NoOp(name="a")
        b = raw.NoOp(name="b")
        raw.NoOp(name="c")
        a._add_control_input(b)  # an edge against the order of making
    step, _ = pruned(g, targets=["a", "c"])
    assert [n.name for n in step.nodes] == ["b", "a", "c"]


def test_a_chain_of_30000_nodes_needs_no_stack():
    g = Graph()
    with g.as_default():
        y = raw.Placeholder(dtype="float32", shape=[], name="x")
        for _ in range(30000):
            y = raw.Neg(y)
    step, _ = pruned(g, [y.name], feeds=["x:0"])
    assert len(step) == 30002


def test_shapes_that_a_fed_constant_decided_are_forgotten():
    g = Graph()
    with g.as_default():
        x = raw.Placeholder(dtype="float32", shape=[6], name="x")
        shape = raw.Const(value=_array([2, 3], "int32"), dtype="int32", name="shape")
        y = raw.Reshape(x, shape, name="y")
        z = raw.Shape(y, name="z")
    assert y.shape == TensorShape([2, 3])
    step = compiled(g, fetches=["z:0"], feeds=["x:0", "shape:0"])
    made, = Interpreter().run(step, [_array([1.0] * 6), _array([3, 2], "int32")])
    assert made.tolist() == [3, 2], "the static shape of the constant must not have been folded in"
    assert z.shape == TensorShape([2])


def test_names_that_are_not_in_the_graph_are_reported_with_near_ones():
    g = Graph()
    with g.as_default():
        raw.NoOp(name="train_step")
    with pytest.raises(NotFoundError, match="target 'train_setp' is not in the graph.*Near it: 'train_step'"):
        pruned(g, targets=["train_setp"])
    with pytest.raises(InvalidArgumentError,
                       match="fetch 'train_step:0' does not exist: 'train_step' .NoOp. has 0 outputs"):
        pruned(g, ["train_step:0"])
    with pytest.raises(InvalidArgumentError, match="feed 'train_step' is not a tensor's name"):
        pruned(g, feeds=["train_step"])


def test_a_fed_variable_cannot_be_assigned():
    g = Graph()
    with g.as_default():
        v = raw.VariableV2(shape=[], dtype="float32", name="v")
        raw.AssignAdd(v, raw.Const(value=_array(1.0), dtype="float32"), name="add")
    with pytest.raises(InvalidArgumentError,
                       match="AssignAdd 'add' updates a variable in place, and that variable is fed"):
        pruned(g, ["add:0"], feeds=["v:0"])


def _array(value, dtype="float32"):
    import numpy as np
    return np.array(value, dtype)
