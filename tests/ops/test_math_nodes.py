"""Public mathematics and its gradients build TensorFlow's nodes, name for name: programs look nodes up, and
random ops derive their seeds from the number of nodes before them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphrt

ONES = np.ones((3, 2), np.float32)
Build = Callable[[Any], Any]


def x(tf: Any, shape: Any = (None, 3), dtype: str = "float32") -> Any:
    return tf.placeholder(getattr(tf, dtype), shape, name="x")


def _binary(function: str, **named: Any) -> Build:
    return lambda tf: getattr(tf, function)(x(tf), 2.0, **named)


def _unary(function: str, **named: Any) -> Build:
    return lambda tf: getattr(tf, function)(x(tf), **named)


_BINARY = (
    "add",
    "subtract",
    "multiply",
    "divide",
    "maximum",
    "minimum",
    "squared_difference",
    "truediv",
    "floordiv",
    "mod",
    "pow",
    "equal",
    "not_equal",
    "less",
    "greater",
    "div",
    "floormod",
    "div_no_nan",
)
_UNARY = (
    "abs",
    "exp",
    "log",
    "sqrt",
    "rsqrt",
    "square",
    "tanh",
    "sigmoid",
    "negative",
    "sign",
    "round",
    "floor",
    "ceil",
    "sin",
    "cos",
    "erf",
    "lgamma",
    "log1p",
    "expm1",
    "reciprocal",
    "is_nan",
)
_REDUCE = ("reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_prod", "reduce_logsumexp")

FORWARD: dict[str, Build] = {
    **{name: _binary(name) for name in _BINARY},
    **{f"{name} named": _binary(name, name="hey") for name in _BINARY},
    **{name: _unary(name) for name in _UNARY},
    **{f"{name} named": _unary(name, name="hey") for name in _UNARY},
    **{name: _unary(name) for name in _REDUCE},
    **{f"{name} along 0": _unary(name, axis=0) for name in _REDUCE},
    **{f"{name} kept": _unary(name, axis=[1], keepdims=True, name="r") for name in _REDUCE},
    **{f"{name} of unknown rank": lambda tf, name=name: getattr(tf, name)(x(tf, None)) for name in _REDUCE},
    **{f"{name} of a scalar": lambda tf, name=name: getattr(tf, name)(x(tf, ())) for name in _REDUCE},
    "matmul": lambda tf: tf.matmul(x(tf), ONES),
    "matmul of unknown rank": lambda tf: tf.matmul(x(tf, None), ONES, name="m"),
    "matmul of batches": lambda tf: tf.matmul(x(tf, (2, None, 3)), np.ones((2, 3, 2), np.float32)),
    "operators": lambda tf: [
        x(tf) + 1,
        1 - x(tf),
        x(tf) * 2,
        2 / x(tf),
        x(tf) // 2.0,
        x(tf) % 2.0,
        x(tf) ** 2,
        -x(tf),
        abs(x(tf)),
        x(tf) < 1,
        x(tf) >= 2.0,
        x(tf) @ ONES,
        1.0 * x(tf),
    ],
    "operators of ints": lambda tf: [
        x(tf, (3,), "int32") / 2,
        x(tf, (3,), "int32") // 2,
        5 % x(tf, (3,), "int32"),
        x(tf, (3,), "int32") & 1,
        ~x(tf, (3,), "int32"),
        x(tf, (3,), "int32") | 1,
        x(tf, (3,), "int32") ^ 1,
    ],
    "operators of bools": lambda tf: [
        x(tf, (3,), "bool") & True,
        x(tf, (3,), "bool") | False,
        ~x(tf, (3,), "bool"),
        x(tf, (3,), "bool") ^ True,
    ],
    "cast": lambda tf: [
        tf.cast(x(tf), tf.int32),
        tf.cast(x(tf), tf.float32),
        tf.to_float(x(tf, (), "int32")),
        tf.cast(3, tf.float32),
        tf.saturate_cast(x(tf), tf.uint8),
    ],
    "argmax": lambda tf: [
        tf.argmax(x(tf), 1),
        tf.argmin(x(tf), axis=0),
        tf.argmax(x(tf), 1, output_type=tf.int32),
        tf.arg_max(x(tf), 1),
    ],
    "add_n": lambda tf: [
        tf.add_n([x(tf), x(tf)]),
        tf.add_n([x(tf)], name="q"),
        tf.accumulate_n([x(tf, (2, 3)), x(tf, (2, 3))]),
    ],
    "cumsum": lambda tf: [tf.cumsum(x(tf)), tf.cumprod(x(tf), 1, exclusive=True, reverse=True)],
    "range": lambda tf: [
        tf.range(5),
        tf.range(1, 10, 3),
        tf.range(0.0, 1.0, 0.25),
        tf.range(x(tf, (), "int32")),
        tf.range(tf.constant(3, tf.int64)),
    ],
    "tensordot": lambda tf: [
        tf.tensordot(x(tf, (2, 3)), np.ones((3, 4), np.float32), 1),
        tf.tensordot(x(tf), ONES, [[1], [0]]),
        tf.tensordot(x(tf, (2, 3, 4)), x(tf, (4, 3, 5)), [[1, 2], [1, 0]]),
    ],
    "tensordot of unknown rank": lambda tf: tf.tensordot(x(tf, None), x(tf, None), 1),
    "tensordot of unknown sizes": lambda tf: tf.tensordot(
        x(tf, (None, None, 4)), x(tf, (4, None)), [[2], [0]]
    ),
    "einsum": lambda tf: [
        tf.einsum("ij,jk->ik", x(tf, (2, 3)), x(tf, (3, 4))),
        tf.einsum("ij,jk", x(tf, (2, 3)), x(tf, (3, 4)), name="e"),
    ],
    "segments": lambda tf: [
        tf.segment_sum(x(tf, (3, 2)), [0, 0, 1]),
        tf.unsorted_segment_sum(x(tf, (3, 2)), [0, 0, 1], 2),
        tf.sparse_segment_mean(x(tf, (3, 2)), [0, 1], [0, 0]),
    ],
    "counts": lambda tf: [
        tf.count_nonzero(x(tf)),
        tf.bincount(x(tf, (4,), "int32")),
        tf.histogram_fixed_width(x(tf), [0.0, 1.0]),
    ],
    "variance": lambda tf: [tf.math.reduce_variance(x(tf)), tf.math.reduce_std(x(tf), 0)],
    "matrices": lambda tf: [
        tf.norm(x(tf)),
        tf.norm(x(tf), 1),
        tf.norm(x(tf), axis=1),
        tf.trace(x(tf, (3, 3))),
        tf.eye(3),
        tf.eye(2, 3),
        tf.matrix_diag(x(tf)),
        tf.matrix_inverse(x(tf, (3, 3))),
        tf.cholesky_solve(x(tf, (3, 3)), x(tf, (3, 2))),
    ],
    "complex": lambda tf: [
        tf.complex(x(tf), x(tf)),
        tf.real(tf.complex(x(tf), x(tf))),
        tf.abs(tf.complex(x(tf), x(tf))),
        tf.conj(x(tf)),
    ],
    "logic and bits": lambda tf: [
        tf.scalar_mul(2.0, x(tf)),
        tf.logical_xor(x(tf, (2,), "bool"), True),
        tf.logical_and(x(tf, (2,), "bool"), x(tf, (2,), "bool")),
        tf.bitcast(x(tf), tf.int32),
    ],
}

_SMOOTH = (
    "square",
    "sqrt",
    "exp",
    "log",
    "sigmoid",
    "abs",
    "negative",
    "tanh",
    "rsqrt",
    "log1p",
    "expm1",
    "reciprocal",
    "sign",
    "floor",
    "asin",
    "acos",
    "atan",
    "sin",
    "cos",
    "tan",
    "sinh",
    "cosh",
    "asinh",
    "acosh",
    "atanh",
    "erf",
    "lgamma",
    "digamma",
    "rint",
    "cumsum",
)

BACKWARD: dict[str, Build] = {
    **{name: _unary(name) for name in _SMOOTH},
    **{name: _unary(name) for name in _REDUCE},
    **{f"{name} along 1": _unary(name, axis=1) for name in _REDUCE},
    "mul": lambda tf: x(tf) * x(tf, (3,)),
    "mul of one shape": lambda tf: x(tf, (2, 3)) * x(tf, (2, 3)),
    "mul of doubles": lambda tf: x(tf, (2, 3), "float64") * x(tf, (2, 3), "float64"),
    "add": lambda tf: x(tf) + x(tf, (3,)),
    "add broadcasts": lambda tf: x(tf, (2, 3)) + x(tf, (3,)),
    "sub": lambda tf: x(tf) - x(tf, (3,)),
    "div": lambda tf: x(tf) / x(tf, (3,)),
    "div of one shape": lambda tf: x(tf, (2, 3)) / x(tf, (2, 3)),
    "pow": lambda tf: x(tf) ** 2,
    "maximum": lambda tf: tf.maximum(x(tf), 0.0),
    "squared_difference": lambda tf: tf.squared_difference(x(tf), x(tf)),
    "floormod": lambda tf: x(tf) % 2.0,
    "atan2": lambda tf: tf.atan2(x(tf), x(tf)),
    "xlogy": lambda tf: tf.math.xlogy(x(tf), x(tf)),
    "div_no_nan": lambda tf: tf.div_no_nan(x(tf), x(tf)),
    "sum along 1": lambda tf: tf.reduce_sum(x(tf, (2, 3)), 1),
    "sums of one shape": lambda tf: tf.reduce_sum(
        tf.reduce_sum(x(tf, (2, 3)), 1) + tf.reduce_sum(x(tf, (2, 3)), 1)
    ),
    "sum kept": lambda tf: tf.reduce_sum(x(tf), 1, keepdims=True),
    "mean": lambda tf: tf.reduce_mean(x(tf, (2, 3))),
    "mean kept": lambda tf: tf.reduce_mean(x(tf, (2, 3)), [0, 1], keepdims=True),
    "min along 1": lambda tf: tf.reduce_min(x(tf, (2, 3)), 1),
    "variance": lambda tf: tf.math.reduce_variance(x(tf), 0),
    "matmul": lambda tf: tf.matmul(x(tf), x(tf, (3, 2))),
    "matmul of transposes": lambda tf: tf.matmul(
        x(tf, (3, None)), x(tf, (2, 3)), transpose_a=True, transpose_b=True
    ),
    "matmul of batches": lambda tf: tf.matmul(x(tf, (2, 2, 3)), x(tf, (2, 3, 2))),
    "matmul broadcasts": lambda tf: tf.matmul(x(tf, (None, 2, 3)), x(tf, (1, 3, 2))),
    "tensordot": lambda tf: tf.tensordot(x(tf, (None, 4)), x(tf, (4, 5)), 1),
    "einsum": lambda tf: tf.einsum("bij,jk->bik", x(tf, (2, 2, 3)), x(tf, (3, 2))),
    "cast": lambda tf: tf.cast(x(tf), tf.float64),
    "where": lambda tf: tf.where(x(tf, (2, 3)) > 0, x(tf, (2, 3)), x(tf, (2, 3))),
    "where_v2": lambda tf: tf.where_v2(x(tf, (2, 3)) > 0, x(tf, (2, 3)), 0.0),
    "clip_by_value": lambda tf: tf.clip_by_value(x(tf), 0.0, 1.0),
    "add_n": lambda tf: tf.add_n([x(tf), x(tf)]),
    "norm": lambda tf: tf.norm(x(tf)),
    "l2_loss": lambda tf: tf.nn.l2_loss(x(tf)),
    "complex abs": lambda tf: tf.abs(tf.complex(x(tf), x(tf))),
    "segment_sum": lambda tf: tf.segment_sum(x(tf, (3, 2)), [0, 0, 1]),
    "segment_mean": lambda tf: tf.segment_mean(x(tf, (3, 2)), [0, 0, 1]),
    "segment_max": lambda tf: tf.segment_max(x(tf, (3, 2)), [0, 0, 1]),
    "sparse_segment_mean": lambda tf: tf.sparse_segment_mean(x(tf, (3, 2)), [0, 0, 1], [0, 0, 1]),
    "matrix_inverse": lambda tf: tf.matrix_inverse(x(tf, (3, 3))),
    "matrix_determinant": lambda tf: tf.matrix_determinant(x(tf, (3, 3))),
    "matrix_solve": lambda tf: tf.matrix_solve(x(tf, (3, 3)), x(tf, (3, 3))),
    "trace": lambda tf: tf.trace(x(tf, (3, 3))),
    "erfinv": lambda tf: tf.math.erfinv(x(tf)),
    **{
        f"gradient of {name}": lambda tf, name=name: _gradients(tf, _unary(name))[0]
        for name in ("tanh", "sigmoid", "rsqrt", "sqrt", "reciprocal")
    },
}


def _gradients(tf: Any, build: Build) -> list[Any]:
    y = build(tf)
    placeholders = [
        op.outputs[0] for op in tf.get_default_graph().get_operations() if op.type == "Placeholder"
    ]
    return tf.gradients(y, placeholders)


def _nodes(tf: Any, build: Build) -> list[tuple[str, str]]:
    graph = tf.Graph()
    with graph.as_default():
        build(tf)
    return [(op.name, op.type) for op in graph.get_operations()]


@pytest.mark.parametrize("case", FORWARD)
def test_a_function_builds_tensorflows_nodes(case: str, tf: Any) -> None:
    assert _nodes(graphrt, FORWARD[case]) == _nodes(tf.compat.v1, FORWARD[case])


@pytest.mark.parametrize("case", BACKWARD)
def test_a_gradient_builds_tensorflows_nodes(case: str, tf: Any) -> None:
    def build(module: Any) -> Any:
        return _gradients(module, BACKWARD[case])

    assert _nodes(graphrt, build) == _nodes(tf.compat.v1, build)


@pytest.mark.parametrize(
    "build",
    [
        lambda tf: tf.unsorted_segment_mean(x(tf, (3, 2)), [0, 0, 1], 2),
        lambda tf: _gradients(tf, lambda tf: x(tf, (2, 3)) ** x(tf, (2, 3))),
        lambda tf: _gradients(tf, lambda tf: tf.unsorted_segment_sum(x(tf, (3, 2)), [0, 0, 1], 2)),
    ],
)
def test_as_many_nodes_are_built_where_the_names_of_shapes_differ(build: Build, tf: Any) -> None:
    assert [kind for _, kind in _nodes(graphrt, build)] == [kind for _, kind in _nodes(tf.compat.v1, build)]
