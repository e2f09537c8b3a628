"""Function bodies: captures, calls that TensorFlow made, and gradients through calls and branches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphrt as tf  # the fixture `tf` of tests that ask for it is TensorFlow
from graphrt.core import errors, raw
from graphrt.core.attr_values import FunctionRef
from graphrt.functions.func_graph import FuncGraph


def _call(graph: FuncGraph, kind: str = "PartitionedCall") -> list[Any]:
    """A call of a traced function, with what it captured."""
    definition = graph.define()
    return getattr(raw, kind)(
        list(graph.captures), Tout=definition.result_types, f=FunctionRef(definition.name)
    )


# -- tracing -------------------------------------------------------------------------------------------------


def test_what_a_body_uses_from_outside_becomes_an_argument_once():
    x, y = tf.placeholder(tf.float32, [2], name="x"), tf.constant([1.0, 2.0], name="y")
    graph = FuncGraph("f")
    graph.trace(lambda: x * y + x)
    assert list(graph.captures) == [x, y]
    assert [t.op.type for t in graph.inputs] == ["Placeholder", "Placeholder"]
    assert [t.shape.as_list() for t in graph.inputs] == [[2], [2]]
    assert {op.graph for op in graph.get_operations()} == {graph}
    (value,) = _call(graph)
    with tf.Session() as session:
        np.testing.assert_array_equal(session.run(value, {x: [3, 4]}), [6, 12])


def test_bodies_within_bodies_capture_through_each_other():
    x = tf.placeholder(tf.float32, [])
    outer = FuncGraph("outer")

    def body():
        inner = FuncGraph("inner")
        inner.trace(lambda: x * 10.0)
        return _call(inner)[0] + x

    outer.trace(body)
    assert list(outer.captures) == [x]
    (value,) = _call(outer)
    with tf.Session() as session:
        assert session.run(value, {x: 2.0}) == 22.0


def test_a_body_does_not_reach_into_its_neighbour():
    p, box = tf.placeholder(tf.bool, []), []

    def first():
        box.append(tf.constant(1.0) + 1.0)
        return box[0]

    tf.enable_control_flow_v2()
    try:
        with pytest.raises(ValueError, match="Tensor add:0 in true_fn is accessed from false_fn"):
            tf.cond(p, first, lambda: box[0] * 2.0)
    finally:
        tf.disable_control_flow_v2()


def test_a_ref_variable_is_read_but_not_updated_in_a_body():
    w = tf.Variable([1.0, 2.0], use_resource=False, name="w")
    graph = FuncGraph("f")
    graph.trace(lambda: w * 2.0)
    (value,) = _call(graph)
    with tf.Session() as session:
        session.run(w.initializer)
        np.testing.assert_array_equal(session.run(value), [2, 4])
    with pytest.raises(
        TypeError, match="AssignAdd updates the ref variable 'w' from inside of a function .g."
    ):
        FuncGraph("g").trace(lambda: tf.assign_add(w, [1.0, 1.0]))


def test_a_body_returns_tensors():
    with pytest.raises(TypeError, match="f must return tensors, or None; it returned <object"):
        FuncGraph("f").trace(object)
    with pytest.raises(TypeError, match="returned the operation 'NoOp'"):
        FuncGraph("f").trace(tf.no_op)


def test_what_a_body_waits_for_outside_runs_before_the_call():
    v = tf.Variable(0, use_resource=True)
    p = tf.placeholder(tf.bool, [])
    update = v.assign_add(1, read_value=False)

    def branch():
        with tf.control_dependencies([update]):
            return v.read_value()

    tf.enable_control_flow_v2()
    try:
        y = tf.cond(p, branch, lambda: tf.constant(-1))
    finally:
        tf.disable_control_flow_v2()
    with tf.Session() as session:
        session.run(v.initializer)
        assert session.run(y, {p: True}) == 1
        assert session.run(y, {p: True}) == 2
        assert session.run(y, {p: False}) == -1


def test_functions_go_with_their_graph():
    x = tf.placeholder(tf.float32, [], name="x")
    graph = FuncGraph("f")
    graph.trace(lambda: tf.exp(x) * x)
    tf.identity(_call(graph)[0], name="y")
    definition = tf.get_default_graph().as_graph_def()
    with tf.Graph().as_default(), tf.Session() as session:
        tf.import_graph_def(definition, name="")
        assert session.run("y:0", {"x:0": 0.5}) == pytest.approx(np.exp(0.5) * 0.5)


def _times(factor: float) -> Any:
    """A GraphDef whose functions have the names that every such GraphDef gives them; one calls the other."""
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [], name="x")
        outer = FuncGraph("outer")

        def body():
            inner = FuncGraph("inner")
            inner.trace(lambda: x * factor)
            return _call(inner)[0] + 0.0

        outer.trace(body)
        tf.identity(_call(outer)[0], name="y")
    return graph.as_graph_def()


def test_imported_functions_of_one_name_stay_apart():
    x = tf.constant(1.0)
    names = []
    for factor in (2.0, 3.0, 2.0, 3.0):
        definition = _times(factor)
        names.append([f.signature.name for f in definition.library.function])
        (y,) = tf.import_graph_def(definition, {"x": x}, ["y:0"])
        names.append(len(tf.get_default_graph().functions))
        with tf.Session() as session:
            assert session.run(y) == factor
    assert names[0] == names[2]
    # The first definition was there when it came again.
    assert names[1::2] == [2, 4, 4, 6]


def test_a_missing_function_is_named():
    y = raw.PartitionedCall([tf.constant(1.0)], Tout=[tf.float32], f=FunctionRef("nowhere"))
    with (
        tf.Session() as session,
        pytest.raises(errors.NotFoundError, match="the function 'nowhere', which is not in the library"),
    ):
        session.run(y)


def test_device_functions_reach_into_bodies_and_names_come_from_the_call():
    x = tf.placeholder(tf.float32, [])
    graph = FuncGraph("f")
    with tf.device("/cpu:0"):
        graph.trace(lambda: x * 2.0)
    assert {op.device for op in graph.get_operations()} == {""}
    graph = FuncGraph("g")
    with tf.device(lambda op: "/cpu:0"):
        graph.trace(lambda: x * 2.0)
    assert next(op for op in graph.get_operations() if op.type == "Mul").device == "/device:CPU:0"


# -- gradients -----------------------------------------------------------------------------------------------


def _numeric(
    session: Any, y: Any, x: Any, at: np.ndarray, feeds: dict[Any, Any], h: float = 1e-3
) -> np.ndarray:
    found = np.zeros_like(at)
    for i in range(at.size):
        step = np.zeros_like(at)
        step.flat[i] = h
        found.flat[i] = (
            session.run(y, {**feeds, x: at + step}) - session.run(y, {**feeds, x: at - step})
        ).sum() / (2 * h)
    return found


def test_gradients_through_a_call_are_numeric_ones():
    x = tf.placeholder(tf.float64, [3])
    graph = FuncGraph("f")
    graph.trace(lambda: tf.exp(tf.sin(x)) * x)
    (y,) = _call(graph)
    (first,) = tf.gradients(y, x)
    (second,) = tf.gradients(first, x)
    at = np.array([0.3, -0.5, 1.0])
    with tf.Session() as session:
        np.testing.assert_allclose(session.run(first, {x: at}), _numeric(session, y, x, at, {}), rtol=1e-5)
        np.testing.assert_allclose(
            session.run(second, {x: at}), _numeric(session, first, x, at, {}), rtol=1e-5
        )


def test_a_forward_pass_with_random_numbers_is_not_run_twice_for_its_gradient():
    x = tf.placeholder(tf.float32, [100])
    graph = FuncGraph("f")
    graph.trace(lambda: x * tf.random_uniform([100], seed=3))
    (y,) = _call(graph, "StatefulPartitionedCall")
    (gradient,) = tf.gradients(y, x)
    with tf.Session() as session:
        value, slope = session.run([y, gradient], {x: np.full(100, 2.0)})
    np.testing.assert_array_equal(value, 2.0 * slope)


def test_two_gradients_of_one_call_share_its_further_outputs():
    x, y = tf.placeholder(tf.float32, []), tf.placeholder(tf.float32, [])
    graph = FuncGraph("f")
    graph.trace(lambda: tf.exp(x * y))
    (z,) = _call(graph)
    tf.gradients(z, x)
    count = len(z.op.outputs)
    (dy,) = tf.gradients(z, y)
    assert len(z.op.outputs) == count
    with tf.Session() as session:
        assert session.run(dy, {x: 0.5, y: 2.0}) == pytest.approx(0.5 * np.e)


def test_gradients_of_gradients_through_nested_branches_are_numeric_ones():
    x, p, q = tf.placeholder(tf.float64, [2]), tf.placeholder(tf.bool, []), tf.placeholder(tf.bool, [])
    tf.enable_control_flow_v2()
    try:
        y = tf.cond(
            p,
            lambda: tf.cond(q, lambda: tf.exp(x) * tf.sin(x), lambda: x * x * x) * x,
            lambda: tf.cond(q, lambda: tf.constant([1.0, 2.0], tf.float64), lambda: tf.tanh(x)),
        )
        (first,) = tf.gradients(y, x)
        (second,) = tf.gradients(first, x)
    finally:
        tf.disable_control_flow_v2()
    at = np.array([0.3, -0.7])
    with tf.Session() as session:
        for chosen in ((True, True), (True, False), (False, True), (False, False)):
            feeds = {p: chosen[0], q: chosen[1]}
            np.testing.assert_allclose(
                session.run(first, {**feeds, x: at}), _numeric(session, y, x, at, feeds), atol=1e-5
            )
            np.testing.assert_allclose(
                session.run(second, {**feeds, x: at}), _numeric(session, first, x, at, feeds), atol=1e-5
            )


def test_a_gradient_inside_a_body_goes_out_through_its_captures():
    x, p = tf.placeholder(tf.float32, []), tf.placeholder(tf.bool, [])
    y = tf.exp(x)
    tf.enable_control_flow_v2()
    try:
        z = tf.cond(p, lambda: tf.gradients(y * y, x)[0], lambda: tf.gradients(y, y)[0])
    finally:
        tf.disable_control_flow_v2()
    with tf.Session() as session:
        assert session.run(z, {p: True, x: 0.5}) == pytest.approx(2 * np.exp(1.0))
        assert session.run(z, {p: False, x: 0.5}) == 1.0


def test_branches_that_do_not_depend_on_x_have_no_gradient():
    x, p = tf.placeholder(tf.float32, []), tf.placeholder(tf.bool, [])
    tf.enable_control_flow_v2()
    try:
        z = tf.cond(p, lambda: tf.stop_gradient(x) * 2.0, lambda: tf.constant(1.0))
    finally:
        tf.disable_control_flow_v2()
    assert tf.gradients(z, x) == [None]


# -- TensorFlow's functions ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tf1(tf: Any) -> Any:
    tf.compat.v1.disable_control_flow_v2()
    return tf.compat.v1


def _agree(
    tf1: Any,
    build: Any,
    feeds: dict[str, Any],
    initializer: str | None = None,
    fetch: str = "y:0",
    times: int = 2,
) -> None:
    """Run what `build` builds with TensorFlow there and, imported, here."""
    with tf1.Graph().as_default() as theirs:
        build()
    with tf.Graph().as_default() as ours:
        tf.import_graph_def(theirs.as_graph_def(), name="")
    with tf1.Session(graph=theirs) as a, tf.Session(graph=ours) as b:
        for session in (a, b):
            if initializer is not None:
                session.run(initializer)
        for _ in range(times):
            np.testing.assert_allclose(b.run(fetch, feeds), a.run(fetch, feeds), rtol=2e-6)


def test_a_tf_function_runs_here(tf1, tf: Any):  # noqa: F811
    oracle = tf

    def build():
        x = tf1.placeholder(tf1.float32, [3], name="x")

        @oracle.function
        def f(a, b):
            return oracle.exp(a) * b, oracle.reduce_sum(a)

        product, total = f(x, x + 1.0)
        tf1.identity(product * total, name="y")

    _agree(tf1, build, {"x:0": [0.5, 1.0, -1.0]})


def test_gradients_of_a_tf_function_run_here(tf1, tf: Any):  # noqa: F811
    oracle = tf

    def build():
        x = tf1.placeholder(tf1.float32, [3], name="x")

        @oracle.function
        def f(a):
            return oracle.where(oracle.reduce_sum(a) > 0, oracle.exp(a) * a, oracle.sin(a))

        tf1.identity(tf1.gradients(f(x), x)[0], name="y")

    _agree(tf1, build, {"x:0": [0.5, 1.0, -1.0]})
    _agree(tf1, build, {"x:0": [-0.5, -1.0, -1.0]})


def test_a_tf_function_with_state_runs_here(tf1, tf: Any):  # noqa: F811
    oracle = tf

    def build():
        v = tf1.Variable([1.0, 2.0], use_resource=True, name="v")
        p = tf1.placeholder(tf1.bool, [], name="p")

        @oracle.function
        def f(q):
            if q:
                v.assign_add([1.0, 1.0])
            else:
                v.assign(v * 2.0)
            return v.read_value() + v.read_value()

        tf1.identity(f(p), name="y")
        tf1.group(v.initializer, name="start")

    _agree(tf1, build, {"p:0": True}, "start", times=3)
    _agree(tf1, build, {"p:0": False}, "start", times=3)


def test_a_tf_function_that_calls_others_runs_here(tf1, tf: Any):  # noqa: F811
    oracle = tf

    def build():
        x = tf1.placeholder(tf1.float32, [], name="x")

        @oracle.function
        def square(a):
            return a * a

        @oracle.function
        def f(a):
            return oracle.switch_case(
                oracle.cast(a, oracle.int32), [lambda: square(a), lambda: square(square(a)), lambda: a]
            )

        tf1.identity(f(x), name="y")

    for value in (0.5, 1.5, 2.5, 7.5):
        _agree(tf1, build, {"x:0": value})


def test_defuns_run_here_and_their_gradients_are_built_here(tf1):
    from tensorflow.python.framework import function

    def build():
        x = tf1.placeholder(tf1.float32, [2], name="x")

        @function.Defun(tf1.float32, tf1.float32)
        def f(a, b):
            return tf1.exp(a) * b, a + b

        product, total = f(x, x * 2.0)
        tf1.identity(product * total, name="y")

    at = np.array([0.5, -1.0], np.float32)
    _agree(tf1, build, {"x:0": at})
    with tf1.Graph().as_default() as theirs:
        build()
        definition = theirs.as_graph_def()
        (expected,) = tf1.gradients(theirs.get_tensor_by_name("y:0"), theirs.get_tensor_by_name("x:0"))
        with tf1.Session() as session:
            expected = session.run(expected, {"x:0": at})
    with tf.Graph().as_default() as ours:
        tf.import_graph_def(definition, name="")
        (found,) = tf.gradients(ours.get_tensor_by_name("y:0"), ours.get_tensor_by_name("x:0"))
        with tf.Session() as session:
            np.testing.assert_allclose(session.run(found, {"x:0": at}), expected, rtol=2e-6)


@pytest.mark.parametrize("functional", [False, True], ids=["v1", "v2"])
def test_gradients_are_built_here_through_imported_conditionals(tf1, functional):
    with tf1.Graph().as_default() as theirs:
        (tf1.enable_control_flow_v2 if functional else tf1.disable_control_flow_v2)()
        try:
            x, p = tf1.placeholder(tf1.float32, [2], name="x"), tf1.placeholder(tf1.bool, [], name="p")
            y = tf1.cond(p, lambda: tf1.exp(x) * x, lambda: tf1.cond(x[0] > 0.0, lambda: x * x, lambda: -x))
            y = tf1.identity(y, name="y")
            expected = tf1.gradients(y, x)[0]
        finally:
            tf1.disable_control_flow_v2()
    definition = theirs.as_graph_def()
    with tf.Graph().as_default() as ours:
        tf.import_graph_def(definition, name="")
        (found,) = tf.gradients(ours.get_tensor_by_name("y:0"), ours.get_tensor_by_name("x:0"), name="ours")
    with tf1.Session(graph=theirs) as a, tf.Session(graph=ours) as b:
        for chosen in (True, False):
            for at in ([0.5, 2.0], [-0.5, 1.0]):
                feeds = {"x:0": at, "p:0": chosen}
                np.testing.assert_allclose(b.run(found, feeds), a.run(expected, feeds), rtol=2e-6)
