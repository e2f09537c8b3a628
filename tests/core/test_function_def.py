"""Functions of the library: written for TensorFlow, read from TensorFlow, built when they are needed."""

import numpy as np
import pytest

from graphrt.core import raw
from graphrt.core.attr_values import FunctionRef
from graphrt.core.dtypes import float32
from graphrt.core.errors import UnimplementedError
from graphrt.core.function_def import add_to_library, call_op_def, from_proto, import_library
from graphrt.core.graph import Graph
from graphrt.core.graph_def import import_graph_def
from graphrt.core.shapes import TensorShape
from graphrt.protos import function_pb2, graph_pb2
from tests.compiler.interpreter import Interpreter, compiled
from tests.compiler.test_lower import const, function


def proto_of(definition):
    library = function_pb2.FunctionDefLibrary()
    add_to_library(definition, library)
    return library.function[0]


def run_call(definition, *values, library=None):
    """What a call of the definition gives, by the compiler and the kernels."""
    g = Graph()
    g.functions = {**(library or {}), definition.name: definition}
    with g.as_default():
        feeds = [raw.Placeholder(dtype=d, name=f"x{i}") for i, d in enumerate(definition.argument_types)]
        made = raw.StatefulPartitionedCall(feeds, Tout=definition.result_types,
                                           f=FunctionRef(definition.name), name="call")
    return Interpreter().run(compiled(g, fetches=made, feeds=feeds), list(values))


def test_a_definition_knows_its_ends_and_whether_it_has_effects():
    f = function("f", lambda x, n: [raw.AddV2(x, x, name="Twice")], ("float32", "int32"))
    assert (f.argument_names, f.result_names) == (["arg0", "arg1"], ["twice"])
    assert ([d.name for d in f.argument_types], f.result_types) == (["float32", "int32"], [float32])
    assert not f.is_stateful
    assert function("r", lambda n: [raw.RandomUniform(n, dtype="float32")], ("int32",)).is_stateful


def test_argument_names_do_not_meet_those_of_nodes():
    f = function("f", lambda x: [raw.Neg(x, name="x")])
    g = Graph()
    with g.as_default():
        x = raw.Placeholder(dtype="float32", name="X")
        y = raw.Neg(raw.Exp(x, name="x_1"), name="x_2")
    from graphrt.core.function_def import FunctionDefinition
    made = FunctionDefinition("g", g, [x], [y])
    assert made.argument_names == ["x"] and f.argument_names == ["arg0"]
    assert [n.name for n in proto_of(made).node_def] == ["x_1", "x_2"]


def test_a_function_def_comes_back_as_it_was():
    def body(x, n):
        a, b = raw.Split(const(0, "int32", name="axis"), x, num_split=2, name="parts")
        with x.graph.control_dependencies([raw.NoOp(name="n")]):
            c = raw.AddV2(b, a, name="c")
        return [c, n, a], [x.graph.get_operation_by_name("n")]

    f = function("f", lambda x, n: tuple(body(x, n)), ("float32", "int64"), shapes={0: [4]})
    proto = proto_of(f)
    assert dict(proto.ret) == {f.result_names[0]: "c:z:0", f.result_names[1]: "arg1",
                               f.result_names[2]: "parts:output:0"}
    inputs = next(list(n.input) for n in proto.node_def if n.name == "c")
    assert inputs == ["parts:output:1", "parts:output:0", "^n"]
    assert list(proto.control_ret.values()) == ["n"]
    back = from_proto(function_pb2.FunctionDef.FromString(proto.SerializeToString()), {})
    for what in ("argument_names", "result_names", "argument_types", "result_types"):
        assert getattr(back, what) == getattr(f, what)
    assert back.inputs[0].shape == TensorShape([4]) and [c.name for c in back.control_outputs] == ["n"]
    made = run_call(back, np.array([1, 2, 3, 4], np.float32), np.int64(9))
    assert [m.tolist() for m in made] == [[4, 6], 9, [1, 2]]


def test_the_graph_of_a_read_function_is_built_when_it_is_asked_for():
    proto = function_pb2.FunctionDef()
    proto.signature.name = "strange"
    proto.node_def.add(name="x", op="AnOpThatNobodyHas")
    g = Graph()
    import_library(function_pb2.FunctionDefLibrary(function=[proto]), g)
    definition = g.functions["strange"]
    assert repr(definition) == "<function strange() -> ()>"
    with pytest.raises(Exception, match="AnOpThatNobodyHas"):
        _ = definition.graph


def test_a_function_without_concrete_types_is_an_error_where_it_is_called():
    proto = function_pb2.FunctionDef()
    proto.signature.name = "generic"
    proto.signature.input_arg.add(name="x", type_attr="T")
    definition = from_proto(proto, {})
    with pytest.raises(UnimplementedError,
                       match="'generic' leaves the types of its arguments to attrs of its caller"):
        _ = definition.graph


def test_what_is_behind_a_resource_argument_is_kept():
    g = Graph()
    with g.as_default():
        v = raw.VarHandleOp(dtype="float32", shape=[2, 3], name="v")
        inner = Graph()
        with inner.as_default():
            handle = raw.Placeholder(dtype="resource", shape=[], name="handle")
            handle.handle = v.handle
            read = raw.ReadVariableOp(handle, dtype="float32", name="read")
    assert read.shape == TensorShape([2, 3])
    from graphrt.core.function_def import FunctionDefinition
    back = from_proto(proto_of(FunctionDefinition("f", inner, [handle], [read])), {})
    assert back.outputs[0].shape == TensorShape([2, 3])


def test_a_call_by_name_has_a_definition_of_its_own():
    f = function("f", lambda x: [raw.AddV2(x, x)])
    op_def = call_op_def(f)
    assert (op_def.name, op_def.stateful, call_op_def(f)) == ("f", False, op_def)
    g = Graph()
    g.functions["f"] = f
    with g.as_default():
        y = op_def(raw.Placeholder(dtype="float32", name="x"), name="y")
    again = Graph()
    with again.as_default():
        import_graph_def(graph_pb2.GraphDef.FromString(g.as_graph_def().SerializeToString()), name="")
    assert again.get_operation_by_name("y").type == "f"
    assert Interpreter().run(compiled(again, fetches="y:0", feeds="x:0"), [np.float32(2)]) == [4]
    assert y.dtype is float32


# -- with TensorFlow ---------------------------------------------------------------------------------------


def test_tensorflows_functional_conditionals_run_here(tf):
    v1 = tf.compat.v1
    with tf.Graph().as_default() as theirs:
        v1.enable_control_flow_v2()
        p, q, i = (v1.placeholder(d, [], name=n)
                   for d, n in ((tf.bool, "p"), (tf.bool, "q"), (tf.int32, "i")))
        x = v1.placeholder(tf.float32, [2], name="x")
        inner = lambda: v1.cond(q, lambda: x * 2.0, lambda: tf.exp(x))  # noqa: E731
        y = tf.identity(v1.cond(p, inner, lambda: -x), name="y")
        z = tf.identity(tf.switch_case(i, [lambda: x + 1.0, lambda: y * x, lambda: tf.zeros([2])]), name="z")
        f = tf.function(lambda a, b: (a @ b, tf.reduce_sum(a)), autograph=False)
        u, w = f(tf.reshape(x, [1, 2]), tf.reshape(y, [2, 1]))
        tf.identity(u, name="u"), tf.identity(w, name="w")
        serialized = theirs.as_graph_def().SerializeToString()
        assert {"If", "StatelessIf"} & {op.type for op in theirs.get_operations()}
        value = np.array([0.5, -2.0], np.float32)
        cases = [(a, b, k) for a in (True, False) for b in (True, False) for k in (-1, 0, 1, 2, 5)]
        with v1.Session() as session:
            wanted = [session.run(["y:0", "z:0", "u:0", "w:0"], {p: a, q: b, i: k, x: value})
                      for a, b, k in cases]
    ours = Graph()
    with ours.as_default():
        import_graph_def(graph_pb2.GraphDef.FromString(serialized), name="")
    assert z.dtype == tf.float32
    step = compiled(ours, fetches=["y:0", "z:0", "u:0", "w:0"], feeds=["p:0", "q:0", "i:0", "x:0"])
    for (a, b, k), expected in zip(cases, wanted):
        made = Interpreter().run(step, [np.array(a), np.array(b), np.int32(k), value])
        for m, e in zip(made, expected):
            np.testing.assert_allclose(m, e, rtol=1e-6)


def test_effects_in_functions_happen_where_they_do_in_tensorflow(tf):
    """Control outputs always, other stateful nodes in calls by name (Defun) only, both in taken branches
    only."""
    from tensorflow.python.framework import function as tf_function
    v1 = tf.compat.v1
    with tf.Graph().as_default() as theirs:
        v1.enable_control_flow_v2()
        variables = [v1.Variable(0.0, use_resource=True, name=f"v{i}") for i in range(4)]
        x, p = v1.placeholder(tf.float32, [], name="x"), v1.placeholder(tf.bool, [], name="p")

        def add(i):
            return variables[i].assign_add(1.0)

        @tf_function.Defun(tf.float32, tf.resource, func_name="by_name")
        def by_name(a, handle):
            tf.raw_ops.AssignAddVariableOp(resource=handle, value=tf.constant(1.0))
            return a

        traced = tf.function(lambda a: (add(1), a)[1], autograph=False)
        unreturned = lambda: (add(2), x)[1]  # noqa: E731
        needed = lambda: x + add(3)  # noqa: E731
        made = [by_name(x, variables[0].handle), traced(x), v1.cond(p, unreturned, lambda: x),
                v1.cond(p, needed, lambda: x)]
        fetches = [tf.identity(t, name=f"y{i}") for i, t in enumerate(made)]
        init = v1.global_variables_initializer()
        reads = [tf.identity(v, name=f"read{i}") for i, v in enumerate(variables)]
        serialized = theirs.as_graph_def().SerializeToString()
        with v1.Session() as session:
            session.run(init)
            wanted = []
            for taken in (True, False):
                session.run(fetches, {x: 1.0, p: taken})
                wanted.append(session.run(reads))
    ours = Graph()
    with ours.as_default():
        import_graph_def(graph_pb2.GraphDef.FromString(serialized), name="")
    run = Interpreter()
    run.run(compiled(ours, targets=init.name))
    step = compiled(ours, fetches=[f.name for f in fetches], feeds=["x:0", "p:0"])
    for taken, expected in zip((True, False), wanted):
        run.run(step, [np.float32(1.0), np.array(taken)])
        assert run.run(compiled(ours, fetches=[r.name for r in reads])) == expected
    assert wanted[0] == [1.0, 1.0, 0.0, 1.0]


def test_tensorflow_runs_our_functions(tf):
    v1 = tf.compat.v1
    g = Graph()
    then = function("then", lambda x: [raw.AddV2(x, const(1.0), name="sum")], library=g.functions)
    other = function("other", lambda x: [raw.Mul(raw.Exp(x, name="e"), x, name="product")],
                     library=g.functions)
    with g.as_default():
        p = raw.Placeholder(dtype="bool", shape=[], name="p")
        x = raw.Placeholder(dtype="float32", shape=[2], name="x")
        raw.If(p, [x], Tout=["float32"], then_branch=FunctionRef(then.name),
               else_branch=FunctionRef(other.name), name="y")
    with tf.Graph().as_default():
        tf.graph_util.import_graph_def(v1.GraphDef.FromString(g.as_graph_def().SerializeToString()), name="")
        value = np.array([0.5, -2.0], np.float32)
        with v1.Session() as session:
            for taken in (True, False):
                theirs = session.run("y:0", {"p:0": taken, "x:0": value})
                ours, = Interpreter().run(compiled(g, fetches="y:0", feeds=[p, x]), [np.array(taken), value])
                np.testing.assert_allclose(ours, theirs, rtol=1e-6)
