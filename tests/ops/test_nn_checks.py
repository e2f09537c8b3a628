"""tf.Assert, tf.assert_equal, …: checked while the graph is built where that can be, else in the step;
TensorFlow's nodes."""

import numpy as np
import pytest

import graphrt
from graphrt.core.errors import InvalidArgumentError
from tests.same_graph import assert_same_nodes, assert_same_values

BINARY = {
    "assert_equal": ([1, 2], [1, 2], [1, 3]),
    "assert_none_equal": ([1, 2], [2, 1], [2, 2]),
    "assert_less": ([1, 2], [2, 3], [2, 2]),
    "assert_less_equal": ([1, 2], [1, 3], [0, 2]),
    "assert_greater": ([1, 2], [0, 1], [0, 2]),
    "assert_greater_equal": ([1, 2], [1, 0], [1, 3]),
}
UNARY = {
    "assert_positive": ([1, 2], [0, 1]),
    "assert_negative": ([-1, -2], [0, -1]),
    "assert_non_negative": ([0, 1], [-1, 1]),
    "assert_non_positive": ([0, -1], [1, -1]),
}


def x(tf, dtype="float32", name="x"):
    return tf.placeholder(dtype, [2], name=name)


BUILDS = {
    **{n: lambda tf, n=n: getattr(tf, n)(x(tf), x(tf, name="y")) for n in BINARY},
    # TensorFlow's message of assert_non_positive lacks a comma, and so one node.
    **{n: lambda tf, n=n: getattr(tf, n)(x(tf), message="bad") for n in UNARY if n != "assert_non_positive"},
    "of ints": lambda tf: tf.assert_equal(x(tf, "int32"), [1, 2], message="m", name="a"),
    "of constants": lambda tf: tf.assert_less([1.0], [2.0]),
    "with data": lambda tf: tf.assert_less(x(tf), 3.0, data=["see", x(tf, name="y")], summarize=5),
    "of itself": lambda tf: (lambda a: tf.assert_equal(a, a))(x(tf)),
    "assert_near": lambda tf: tf.assert_near(x(tf), x(tf, name="y")),
    "assert_rank": lambda tf: tf.assert_rank(x(tf), 1),
    "assert_rank in the step": lambda tf: tf.assert_rank(tf.placeholder("float32", None), 1),
    "assert_rank_at_least": lambda tf: tf.assert_rank_at_least(
        tf.placeholder("float32", None), 1, message="m"
    ),
    "assert_rank_in": lambda tf: tf.assert_rank_in(tf.placeholder("float32", None), [1, 2]),
    "assert_rank_in now": lambda tf: tf.assert_rank_in(x(tf), (0, 1)),
    "assert_rank of a rank in the step": lambda tf: tf.assert_rank(x(tf), tf.placeholder("int32", [])),
    "assert_integer": lambda tf: tf.assert_integer(x(tf, "int64")),
    "assert_type": lambda tf: tf.assert_type(x(tf), tf.float32),
    "assert_scalar": lambda tf: tf.assert_scalar(1.0),
    "Assert": lambda tf: tf.Assert(tf.reduce_all(x(tf) > 0), ["x", x(tf, name="y")]),
    "Assert of ints": lambda tf: tf.Assert(
        tf.reduce_all(x(tf) > 0), ["x", x(tf, "int32", "y")], summarize=2, name="check"
    ),
    "is_non_decreasing": lambda tf: tf.is_non_decreasing(x(tf)),
    "is_strictly_increasing": lambda tf: tf.is_strictly_increasing(x(tf), name="s"),
    "ensure_shape": lambda tf: tf.ensure_shape(tf.placeholder("float32", None), [2, None]),
}


@pytest.mark.parametrize("name", BUILDS)
def test_nodes_are_tensorflows(tf, name):
    assert_same_nodes(tf, lambda module: [BUILDS[name](module)])


@pytest.mark.parametrize("name", BINARY)
def test_binary_checks_pass_and_fail_in_the_step(name):
    a, good, bad = BINARY[name]
    with graphrt.Graph().as_default(), graphrt.Session() as session:
        p, q = x(graphrt), x(graphrt, name="y")
        check = getattr(graphrt, name)(p, q, message="they do not fit")
        session.run(check, {p: a, q: good})
        with pytest.raises(
            InvalidArgumentError,
            match=r"assertion failed: \[they do not fit\] \[Condition x .* y did not hold element-wise:\]",
        ):
            session.run(check, {p: a, q: bad})


@pytest.mark.parametrize("name", UNARY)
def test_unary_checks_pass_and_fail_in_the_step(name):
    good, bad = UNARY[name]
    with graphrt.Graph().as_default(), graphrt.Session() as session:
        p = x(graphrt)
        with graphrt.control_dependencies([getattr(graphrt, name)(p)]):
            doubled = p * 2.0
        np.testing.assert_array_equal(session.run(doubled, {p: good}), np.array(good) * 2)
        with pytest.raises(InvalidArgumentError, match="did not hold element-wise"):
            session.run(doubled, {p: bad})


@pytest.mark.parametrize("name", BINARY)
def test_constants_are_checked_while_the_graph_is_built(name):
    a, good, bad = BINARY[name]
    with graphrt.Graph().as_default():
        getattr(graphrt, name)(a, good)
        with pytest.raises(InvalidArgumentError, match="did not hold element-wise"):
            getattr(graphrt, name)(a, bad)


def test_near_allows_what_the_tolerances_say():
    with graphrt.Graph().as_default(), graphrt.Session() as session:
        p, q = x(graphrt), x(graphrt, name="y")
        tight, loose = graphrt.assert_near(p, q), graphrt.assert_near(p, q, rtol=0.0, atol=0.5)
        session.run([tight, loose], {p: [1, 2], q: [1, 2]})
        session.run(loose, {p: [1, 2], q: [1.4, 2]})
        for check, far in ((tight, 1.1), (loose, 1.6)):
            with pytest.raises(InvalidArgumentError, match="not equal to tolerance"):
                session.run(check, {p: [1, 2], q: [far, 2]})


@pytest.mark.parametrize(
    ("build", "good", "bad"),
    [
        (lambda p: graphrt.assert_rank(p, 1), [1.0], 1.0),
        (lambda p: graphrt.assert_rank_at_least(p, 1), [[1.0]], 1.0),
        (lambda p: graphrt.assert_rank_in(p, [0, 2]), 1.0, [1.0]),
    ],
)
def test_ranks_are_checked_in_the_step(build, good, bad):
    with graphrt.Graph().as_default(), graphrt.Session() as session:
        p = graphrt.placeholder("float32", None)
        check = build(p)
        session.run(check, {p: good})
        with pytest.raises(InvalidArgumentError, match="must have rank"):
            session.run(check, {p: bad})


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (
            lambda tf: tf.assert_rank(x(tf), 2, message="m"),
            ValueError,
            "m.  Tensor x:0 must have rank 2.  Received rank 1",
        ),
        (lambda tf: tf.assert_rank(x(tf), [1]), ValueError, "Rank must be a scalar"),
        (lambda tf: tf.assert_rank(x(tf), 1.0), TypeError, "must be of type tf.int32"),
        (lambda tf: tf.assert_rank_at_least(x(tf), 2), ValueError, "must have rank at least 2"),
        (lambda tf: tf.assert_rank_in(x(tf), [0, 2]), ValueError, r"must have rank in \(0, 2\)"),
        (lambda tf: tf.assert_integer(x(tf)), TypeError, 'Expected "x" to be integer type'),
        (
            lambda tf: tf.assert_type(x(tf), tf.int32),
            TypeError,
            "x:0 must be of type tf.int32; got tf.float32",
        ),
        (lambda tf: tf.assert_scalar(x(tf)), ValueError, "Expected scalar shape for x:0"),
        (lambda tf: tf.assert_proper_iterable(x(tf)), TypeError, 'to be a "proper" iterable'),
        (lambda tf: tf.assert_proper_iterable(3), TypeError, "to be iterable"),
        (
            lambda tf: tf.assert_same_float_dtype([x(tf), x(tf, "float64", "y")]),
            ValueError,
            "y:0, type=float64, must be of the same type .float32. as x:0",
        ),
        (lambda tf: tf.assert_same_float_dtype([x(tf, "int32")]), ValueError, "Expected floating point type"),
        (lambda tf: tf.is_non_decreasing(tf.constant(["a", "b"])), TypeError, "Expected x to be numeric"),
    ],
)
def test_what_is_known_is_checked_while_the_graph_is_built(build, error, message):
    with graphrt.Graph().as_default(), pytest.raises(error, match=message):
        build(graphrt)


def test_dtypes_and_iterables_that_fit_pass():
    with graphrt.Graph().as_default():
        assert graphrt.assert_same_float_dtype([x(graphrt), None]) is graphrt.float32
        assert graphrt.assert_same_float_dtype() is graphrt.float32
        assert graphrt.assert_same_float_dtype(dtype=graphrt.float64) is graphrt.float64
        graphrt.assert_proper_iterable([1])
        assert (
            graphrt.is_numeric_tensor(x(graphrt))
            and not graphrt.is_numeric_tensor(graphrt.constant("a"))
            and not graphrt.is_numeric_tensor([1])
        )


@pytest.mark.parametrize("values", [[], [1.0], [1.0, 2.0, 2.0], [1.0, 2.0, 3.0], [2.0, 1.0]])
def test_order_of_elements_is_what_tensorflow_says(tf, values):
    def build(module):
        p = module.placeholder("float32", [None], name="p")
        return [module.is_non_decreasing(p), module.is_strictly_increasing(p)]

    assert_same_values(tf, build, {"p": np.array(values, np.float32)})


def test_ensure_shape_refuses_another_shape_in_the_step():
    with graphrt.Graph().as_default(), graphrt.Session() as session:
        p = graphrt.placeholder("float32", None)
        y = graphrt.ensure_shape(p, [2, None])
        assert y.shape.as_list() == [2, None]
        assert session.run(y, {p: np.zeros((2, 3))}).shape == (2, 3)
        with pytest.raises(InvalidArgumentError, match="2"):
            session.run(y, {p: np.zeros(3)})


def test_a_tensor_with_an_infinity_is_refused_in_the_step():
    with graphrt.Graph().as_default(), graphrt.Session() as session:
        p = x(graphrt)
        y = graphrt.debugging.assert_all_finite(p, "not finite")
        np.testing.assert_array_equal(session.run(y, {p: [1, 2]}), [1, 2])
        for bad in (np.inf, np.nan):
            with pytest.raises(InvalidArgumentError, match="not finite"):
                session.run(y, {p: [1, bad]})


def test_shapes_that_fit_together_pass_and_others_are_named():
    d = graphrt.debugging
    with graphrt.Graph().as_default(), graphrt.Session() as session:
        a, b, c = (
            graphrt.zeros([2, 3]),
            graphrt.zeros([3, 4]),
            graphrt.placeholder("float32", [None, 4], name="c"),
        )
        check = d.assert_shapes(
            [(a, ("N", "D")), (b, ("D", 4)), (c, ("N", None)), (graphrt.constant(1.0), ()), (b, (..., 4))]
        )
        session.run(check, {c: np.zeros((2, 4))})
        with pytest.raises(InvalidArgumentError, match="Specified by tensor zeros:0 dimension 0"):
            session.run(check, {c: np.zeros((3, 4))})
        for shapes, message in (
            (
                {a: ("N", 2)},
                "Specified explicitly.  Tensor zeros:0 dimension 1 must have size 2.  Received size 3",
            ),
            ([(a, ("N", "N"))], "must have size 2.  Received size 3"),
            ([(a, ("N", "*"))], "only allowed as the first entry"),
            ([(a, 3)], "must be an iterable"),
            ([(a, (2, 3, 1))], "must have rank 3"),
        ):
            with pytest.raises(ValueError, match=message):
                d.assert_shapes(shapes)
