"""Mathematics without an oracle: accuracy against Python's own functions and identities, and what bad input
says."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import graphrt as tf
from graphrt.core import raw
from graphrt.ops import special_functions
from graphrt.ops.linalg import solve_triangular
from graphrt.ops.segments import combine_rows


def run(*tensors: Any, feeds: Any = None) -> Any:
    with tf.Session(graph=tensors[0].graph) as session:
        values = session.run(list(tensors), feeds)
    return values[0] if len(values) == 1 else values


@pytest.fixture(autouse=True)
def quiet_floats():
    """Steps ignore floating-point warnings; here the functions are called outside of one."""
    with np.errstate(all="ignore"):
        yield


WIDE = np.concatenate([np.linspace(-6, 6, 4001), np.linspace(-27, 27, 997), [0.0, 1e-300, 1e-9]])


@pytest.mark.parametrize(
    "name, domain, exact",
    [
        ("erf", WIDE, math.erf),
        ("erfc", WIDE[WIDE < 26], math.erfc),
        (
            "lgamma",
            np.concatenate([np.linspace(0.01, 60, 5001), [1e-8, 1e5, 1e12], -np.linspace(0.05, 9.93, 199)]),
            math.lgamma,
        ),
    ],
)
def test_special_functions_are_exact_to_a_few_bits(name: str, domain: np.ndarray, exact: Any) -> None:
    ours = getattr(special_functions, name)(np, domain)
    wanted = np.array([exact(v) for v in domain])
    # lgamma has zeros, beside which the error is measured against 1.
    floor = 1.0 if name == "lgamma" else 0.0
    error = np.abs(ours - wanted) / np.maximum(np.abs(wanted), max(floor, 1e-300))
    assert error.max() < 3e-15


def test_inverses_undo_their_functions() -> None:
    x = np.concatenate([np.linspace(-0.999, 0.999, 2001), 1 - np.logspace(-14, -1, 50)])
    np.testing.assert_allclose(
        special_functions.erf(np, special_functions.erfinv(np, x)), x, rtol=4e-16, atol=0
    )
    p = np.concatenate([np.linspace(0.001, 0.999, 999), np.logspace(-300, -1, 300)])
    back = special_functions.erfc(np, -special_functions.ndtri(np, p) / math.sqrt(2)) / 2
    # A tail's relative error is the argument's times its square.
    np.testing.assert_allclose(back, p, rtol=1e-12)


def test_gamma_and_beta_functions_keep_their_identities() -> None:
    x = np.linspace(0.1, 40, 500)
    np.testing.assert_allclose(
        special_functions.digamma(np, x + 1) - special_functions.digamma(np, x), 1 / x, rtol=1e-10
    )
    n = np.full_like(x, 2.0)
    np.testing.assert_allclose(
        special_functions.polygamma(np, n, x) - special_functions.polygamma(np, n, x + 1),
        -2 / x**3,
        rtol=1e-9,
    )
    np.testing.assert_allclose(special_functions.zeta(np, n, np.ones_like(x)), math.pi**2 / 6, rtol=1e-14)
    one = np.ones_like(x)
    np.testing.assert_allclose(special_functions.igamma(np, one, x)[0], -np.expm1(-x), rtol=1e-12)
    np.testing.assert_allclose(special_functions.igammac(np, one, x), np.exp(-x), rtol=1e-11)
    np.testing.assert_allclose(
        special_functions.betainc(np, one, x, np.full_like(x, 0.3)), -np.expm1(x * math.log(0.7)), rtol=1e-12
    )


def test_poles_and_ends_of_special_functions() -> None:
    assert special_functions.lgamma(np, np.array([0.0, -1, -7, np.inf])).tolist() == [math.inf] * 4
    assert np.isnan(special_functions.digamma(np, np.array([0.0, -1]))).all()
    assert special_functions.erfinv(np, np.array([-1.0, 1.0])).tolist() == [-math.inf, math.inf]
    assert np.isnan(special_functions.erfinv(np, np.array([-1.5, 1.5, np.nan]))).all()
    assert special_functions.erf(np, np.array([-np.inf, np.inf])).tolist() == [-1, 1]


def test_a_sum_over_many_rows_keeps_its_digits() -> None:
    x = (np.random.default_rng(0).random((100_000, 3)) + 0.5).astype(np.float32)
    exact = x.astype(np.float64).sum(0)
    np.testing.assert_allclose(run(tf.reduce_sum(x, 0)), exact, rtol=1.5e-6)
    np.testing.assert_allclose(run(tf.reduce_mean(x, 0)), exact / len(x), rtol=1.5e-6)
    np.testing.assert_allclose(run(tf.reduce_sum(x.T.copy(), 1)), exact, rtol=1.5e-6)


@given(hnp.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=40), st.data())
def test_every_way_to_sum_gives_what_numpy_does(shape: tuple[int, ...], data: Any) -> None:
    axes = data.draw(st.lists(st.integers(0, len(shape) - 1), unique=True, max_size=len(shape)))
    keep = data.draw(st.booleans())
    x = np.random.default_rng(1).integers(-8, 8, shape).astype(np.float32)
    with tf.Graph().as_default():
        made = run(raw.Sum(x, np.array(axes, np.int32), keep_dims=keep))
    assert np.array_equal(made, x.sum(tuple(axes), keepdims=keep))


def test_half_floats_accumulate_in_float32() -> None:
    for dtype in (tf.float16, tf.bfloat16):
        x = tf.ones([5000], dtype)
        rounded = np.float32(5000).astype(dtype.as_numpy_dtype)
        total, mean, product = run(tf.reduce_sum(x), tf.reduce_mean(x), tf.matmul(x[None], x[:, None]))
        assert (total, mean, product[0, 0]) == (rounded, 1, rounded)


@given(st.lists(st.integers(0, 6), max_size=30), st.integers(1, 3))
def test_rows_of_one_id_are_combined_in_any_order(ids: list[int], width: int) -> None:
    rows = np.random.default_rng(2).integers(-9, 9, (len(ids), width)).astype(np.float64)
    wanted = np.zeros((7, width))
    for i, row in zip(ids, rows):
        wanted[i] += row
    made = combine_rows(np.add, rows, np.array(ids, np.int64), np.zeros((7, width)))
    assert np.array_equal(made, wanted)


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("of_adjoint", [True, False])
@pytest.mark.parametrize("n", [1, 31, 33, 70])
def test_triangular_systems_are_solved_in_blocks(n: int, lower: bool, of_adjoint: bool) -> None:
    rng = np.random.default_rng(n)
    matrix = rng.standard_normal((n, n)) / n + 2 * np.eye(n)
    rhs = rng.standard_normal((2, n, 3))
    triangle = np.tril(matrix) if lower else np.triu(matrix)
    x = solve_triangular(matrix, rhs, lower, of_adjoint)
    np.testing.assert_allclose((triangle.T if of_adjoint else triangle) @ x, rhs, rtol=1e-10, atol=1e-12)


def test_integers_divide_as_c_and_python_do() -> None:
    x, y = tf.constant([7, -7, 7, -7]), tf.constant([2, 2, -2, -2])
    values = run(tf.truncatediv(x, y), tf.truncatemod(x, y), tf.floordiv(x, y), tf.floormod(x, y))
    assert [v.tolist() for v in values] == [[3, -3, -3, 3], [1, -1, 1, -1], [3, -4, -4, 3], [1, 1, -1, -1]]


def test_casts_cut_fractions_and_take_all_but_zero_as_true() -> None:
    values = run(
        tf.cast([1.9, -1.9], tf.int32),
        tf.cast([0.0, -0.0, np.nan, 0.1], tf.bool),
        tf.cast([True, False], tf.float32),
    )
    assert [v.tolist() for v in values] == [[1, -1], [False, False, True, True], [1, 0]]


@pytest.mark.parametrize(
    "build, says",
    [
        (lambda x, i: tf.floordiv(i, 0), "Integer division by zero"),
        (lambda x, i: i % tf.constant([1, 0, 2]), "Integer division by zero"),
        (lambda x, i: tf.pow(i, -1), "negative integer powers"),
        (lambda x, i: tf.matrix_inverse(tf.zeros([2, 2]) * x[0]), "not invertible"),
        (lambda x, i: tf.cholesky(-tf.eye(2) * x[0]), "not successful"),
        (lambda x, i: tf.segment_sum(x, i), "not increasing"),
        (lambda x, i: tf.unsorted_segment_sum(x, i, 2), r"segment_ids\[0\] = 2 is out of range \[0, 2\)"),
        (lambda x, i: tf.sparse_segment_sum(x, i + 5, [0, 0, 0]), r"indices\[0\] == 7 out of range \[0, 3\)"),
        (lambda x, i: tf.reduce_sum(x, i[0]), r"Invalid reduction dimension \(2 for input with 1 dimension"),
        (lambda x, i: tf.argmax(x, i[0]), "Expected dimension in the range"),
        (lambda x, i: tf.histogram_fixed_width(x * np.nan, [0.0, 1.0]), "must not contain NaN"),
        (lambda x, i: tf.range(0, i[0], -1), "Requires start >= limit"),
        (lambda x, i: tf.bincount(i - 5), "non-negative"),
    ],
)
def test_bad_values_are_invalid_arguments_that_name_the_op_and_the_line(build: Any, says: str) -> None:
    with tf.Graph().as_default():
        x, i = tf.placeholder(tf.float32, [None]), tf.placeholder(tf.int32, [None])
        y = build(x, i)
        with pytest.raises(tf.errors.InvalidArgumentError, match=says) as caught:
            run(y, feeds={x: [1.0, 2.0, 3.0], i: [2, 1, 0]})
    assert "test_math_values.py" in str(caught.value)


@pytest.mark.parametrize(
    "build, kind, says",
    [
        (
            lambda: tf.matmul(tf.zeros([100, 784]), tf.zeros([10, 784])),
            ValueError,
            r"transpose_b=True would give \[100, 10\]",
        ),
        (lambda: tf.zeros([2, 3]) + tf.zeros([4, 3]), ValueError, "sizes 2 and 4 differ"),
        (lambda: tf.constant(1) + tf.constant(1.0), TypeError, "tf.cast"),
        (lambda: tf.constant(1) / tf.constant(1.0), TypeError, "same dtype"),
        (lambda: tf.reduce_sum(tf.zeros([2, 3]), 2), ValueError, "from -2 to 1"),
        (lambda: tf.reduce_sum(tf.zeros([2, 3]), [0, -2]), ValueError, "duplicate"),
        (
            lambda: tf.reduce_sum(tf.zeros([2]), axis=0, reduction_indices=0),
            ValueError,
            "one argument's two names",
        ),
        (lambda: tf.add_n([]), ValueError, "at least one"),
        (lambda: tf.add_n([tf.zeros([2]), tf.zeros([3])]), ValueError, "one shape"),
        (lambda: tf.einsum("ij,jk->iz", tf.zeros([2, 3]), tf.zeros([3, 4])), ValueError, "'z'"),
        (
            lambda: tf.einsum("ij,jk->ik", tf.zeros([2, 3]), tf.zeros([4, 4])),
            ValueError,
            "label 'j' has size 3 and size 4",
        ),
        (lambda: tf.einsum("ij->j", tf.zeros([2, 3]), tf.zeros([2])), ValueError, "Got 2 inputs"),
        (lambda: tf.tensordot(tf.zeros([2, 3]), tf.zeros([3, 4]), 5), ValueError, "must not be larger"),
        (
            lambda: tf.matmul(tf.zeros([2, 2]), tf.zeros([2, 2]), transpose_a=True, adjoint_a=True),
            ValueError,
            "Only one of",
        ),
        (lambda: tf.range(tf.constant(3, tf.int8)), TypeError, "name the dtype"),
        (lambda: tf.complex(1.0, tf.constant(1.0, tf.float64)), TypeError, "incorrect types"),
        (lambda: tf.scalar_mul([1.0, 2.0], tf.zeros([2])), ValueError, "0-D"),
        (lambda: tf.norm(tf.zeros([2, 2]), "fro"), ValueError, "vector norm"),
        (lambda: tf.math.polyval(tf.zeros([2]), 1.0), ValueError, "list"),
        (lambda: tf.matrix_inverse(tf.zeros([2, 3])), ValueError, "must be square"),
        (lambda: tf.spectral.dct(tf.zeros([4]), type=1, norm="ortho"), ValueError, "Type-I"),
        (lambda: tf.eye(2.5), TypeError, "integer"),
    ],
)
def test_what_cannot_be_built_says_why(build: Any, kind: type, says: str) -> None:
    with tf.Graph().as_default(), pytest.raises(kind, match=says):
        build()


def test_numpy_arrays_on_the_left_make_tensors() -> None:
    made = np.ones((2, 2), np.float32) * tf.constant([[1.0, 2.0], [3.0, 4.0]])
    assert isinstance(made, tf.Tensor) and run(made).tolist() == [[1, 2], [3, 4]]


def test_an_object_that_knows_tensors_answers_the_operator_that_a_tensor_cannot() -> None:
    class Knows:
        def __radd__(self, other: Any) -> str:
            return "known"

    assert tf.constant(1.0) + Knows() == "known"


def test_gradients_of_gradients_are_derivatives() -> None:
    x = tf.constant(np.linspace(-0.9, 0.9, 7), tf.float64)
    for function, second in (
        (tf.tanh, lambda v: -2 * np.tanh(v) * (1 - np.tanh(v) ** 2)),
        (tf.exp, np.exp),
        (tf.sin, lambda v: -np.sin(v)),
        (tf.square, lambda v: np.full_like(v, 2)),
        (lambda t: 1 / (t + 2), lambda v: 2 / (v + 2) ** 3),
        (lambda t: tf.rsqrt(t + 2), lambda v: 0.75 * (v + 2) ** -2.5),
        (lambda t: tf.sqrt(t + 2), lambda v: -0.25 * (v + 2) ** -1.5),
    ):
        first = tf.gradients(function(x), x)[0]
        value, at = run(tf.gradients(first, x)[0], x)
        np.testing.assert_allclose(value, second(at), rtol=1e-12, atol=1e-14)


def test_rare_functions_say_what_to_install_where_scipy_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "scipy.special", None)
    monkeypatch.setitem(sys.modules, "scipy", None)
    x = tf.placeholder(tf.float32, [])
    with pytest.raises(tf.errors.UnimplementedError, match="pip install scipy"):
        run(tf.math.bessel_i0(x), feeds={x: 1.0})
