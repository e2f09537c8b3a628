"""tf.sparse: TensorFlow's nodes, values and refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphrt
from tests.same_graph import assert_same_nodes, assert_same_values


def sp(tf: Any, values: Any = (1.0, 2.0, 3.0)) -> Any:
    return tf.SparseTensor([[0, 1], [1, 0], [1, 2]], list(values), [2, 3])


def other(tf: Any) -> Any:
    return tf.SparseTensor([[0, 1], [1, 1]], [10.0, -20.0], [2, 3])


def open_shape(tf: Any) -> Any:
    """Of a dense shape that is known in a step only."""
    shape = tf.placeholder_with_default(tf.constant([2, 3], tf.int64), [2])
    return tf.SparseTensor([[0, 1], [1, 0], [1, 2]], [1.0, 2.0, 3.0], shape)


BUILDS = {
    "to_dense": lambda tf: tf.sparse.to_dense(sp(tf)),
    "sparse_tensor_to_dense": lambda tf: tf.sparse_tensor_to_dense(sp(tf), default_value=9.0, name="d"),
    "to_dense of text": lambda tf: tf.sparse_tensor_to_dense(tf.SparseTensor([[1]], ["a"], [3]), ""),
    "sparse_to_dense": lambda tf: tf.sparse_to_dense([[0, 1], [1, 0]], [2, 2], [1.0, 2.0]),
    "sparse_to_dense vector": lambda tf: tf.sparse_to_dense([1, 3], [5], 7, default_value=-1),
    "reorder": lambda tf: tf.sparse_reorder(tf.SparseTensor([[1, 0], [0, 1]], [1.0, 2.0], [2, 2])),
    "reorder of an open shape": lambda tf: tf.sparse.reorder(open_shape(tf)),
    "reshape": lambda tf: tf.sparse_reshape(sp(tf), [3, -1]),
    "reshape of an open shape": lambda tf: tf.sparse.reshape(open_shape(tf), [-1]),
    "concat": lambda tf: tf.sparse_concat(1, [sp(tf), other(tf)]),
    "concat of open shapes": lambda tf: tf.sparse.concat(0, [open_shape(tf), open_shape(tf)]),
    "concat of one": lambda tf: tf.sparse.concat(0, [sp(tf)]),
    "slice": lambda tf: tf.sparse_slice(sp(tf), [0, 1], [2, 2]),
    "split": lambda tf: tf.sparse_split(sp_input=sp(tf), num_split=2, axis=1),
    "add": lambda tf: tf.sparse_add(sp(tf), other(tf)),
    "add with a threshold": lambda tf: tf.sparse.add(sp(tf), other(tf), threshold=5.0),
    "add to a dense one": lambda tf: tf.sparse_add(sp(tf), tf.ones([2, 3])),
    "reduce_sum": lambda tf: tf.sparse_reduce_sum(sp(tf), 1),
    "reduce_sum all": lambda tf: tf.sparse.reduce_sum(sp(tf)),
    "reduce_sum keep": lambda tf: tf.sparse_reduce_sum(sp(tf), axis=[0], keep_dims=True),
    "reduce_max": lambda tf: tf.sparse_reduce_max(sp(tf), axis=0),
    "reduce_sum_sparse": lambda tf: tf.sparse_reduce_sum_sparse(sp(tf), axis=1),
    "reduce_max_sparse": lambda tf: tf.sparse_reduce_max_sparse(sp(tf), axis=1, keepdims=True),
    "retain": lambda tf: tf.sparse_retain(sp(tf), [True, False, True]),
    "fill_empty_rows": lambda tf: list(tf.sparse_fill_empty_rows(tf.SparseTensor([[1, 0]], [5], [3, 2]), -1)),
    "to_indicator": lambda tf: tf.sparse_to_indicator(tf.SparseTensor([[0, 0], [1, 0]], [2, 0], [2, 1]), 4),
    "merge": lambda tf: tf.sparse_merge(
        tf.SparseTensor([[0, 0], [1, 0]], [2, 0], [2, 1]),
        tf.SparseTensor([[0, 0], [1, 0]], [0.5, 1.5], [2, 1]),
        4,
    ),
    "matmul": lambda tf: tf.sparse_tensor_dense_matmul(sp(tf), tf.ones([3, 2])),
    "matmul adjoint": lambda tf: tf.sparse.sparse_dense_matmul(
        sp(tf), tf.ones([4, 2]), adjoint_a=True, adjoint_b=True
    ),
    "matmul of a dense one": lambda tf: tf.sparse.matmul(tf.ones([2, 2]), sp(tf)),
    "softmax": lambda tf: tf.sparse_softmax(sp(tf)),
    "maximum": lambda tf: tf.sparse_maximum(sp(tf), other(tf)),
    "minimum": lambda tf: tf.sparse.minimum(sp(tf), other(tf)),
    "multiply": lambda tf: sp(tf) * tf.constant([[1.0], [2.0]]),
    "divide": lambda tf: sp(tf) / tf.constant([1.0, 2.0, 4.0]),
    "placeholder": lambda tf: tf.sparse_placeholder(tf.float32, [2, 3], name="p").indices,
}
# The same values by other nodes: fewer of them, or of a static shape that TensorFlow does not use.
VALUES_ONLY = {
    "transpose": lambda tf: tf.sparse_transpose(sp(tf)),
    "transpose of an open shape": lambda tf: tf.sparse.transpose(open_shape(tf), [1, 0]),
    "expand_dims": lambda tf: tf.sparse.expand_dims(sp(tf), 1),
    "expand_dims last": lambda tf: tf.sparse.expand_dims(sp(tf)),
    "eye": lambda tf: tf.sparse.eye(2, 3),
    "from_dense": lambda tf: tf.sparse.from_dense([[0, 1], [2, 0]]),
    "reset_shape": lambda tf: tf.sparse_reset_shape(sp(tf), [4, 5]),
    "reset_shape of an open shape": lambda tf: tf.sparse.reset_shape(open_shape(tf), [4, 5]),
    "reset_shape to the smallest": lambda tf: tf.sparse.reset_shape(tf.SparseTensor([[0, 1]], [1.0], [4, 5])),
    "concat expanded": lambda tf: tf.sparse_concat(
        1, [sp(tf), tf.SparseTensor([[2, 0]], [4.0], [3, 1])], expand_nonconcat_dim=True
    ),
}


def _parts(made: Any) -> Any:
    if isinstance(made, (list, tuple)):
        return [p for m in made for p in _parts(m)]
    return [made.indices, made.values, made.dense_shape] if hasattr(made, "dense_shape") else [made]


def unfed(what: str) -> bool:
    return what == "placeholder"


@pytest.mark.parametrize("what", BUILDS)
def test_sparse_functions_build_tensorflows_nodes(what: str, tf: Any) -> None:
    assert_same_nodes(tf, BUILDS[what])


@pytest.mark.parametrize("what", [w for w in (*BUILDS, *VALUES_ONLY) if not unfed(w)])
def test_sparse_functions_give_tensorflows_values(what: str, tf: Any) -> None:
    assert_same_values(tf, lambda m: _parts({**BUILDS, **VALUES_ONLY}[what](m)))


GRADIENTS = {
    "matmul": lambda tf, x: tf.sparse_tensor_dense_matmul(sp(tf, x), tf.constant([[1.0, 2.0]] * 3)),
    "matmul by x": lambda tf, x: tf.sparse_tensor_dense_matmul(sp(tf), tf.reshape(tf.stack(x), [3, 1])),
    "to_dense": lambda tf, x: tf.sparse_tensor_to_dense(sp(tf, x)),
    "reduce_sum": lambda tf, x: tf.sparse_reduce_sum(sp(tf, x), 1),
    "softmax": lambda tf, x: tf.sparse_softmax(sp(tf, x)).values * [1.0, 2.0, 3.0],
    "multiply": lambda tf, x: (sp(tf, x) * tf.constant([[1.0], [2.0]])).values,
    "add": lambda tf, x: tf.sparse_add(sp(tf, x), other(tf)).values * [1.0, 2.0, 3.0, 4.0],
    "reorder": lambda tf, x: (
        tf.sparse_reorder(tf.SparseTensor([[1, 0], [0, 1], [0, 0]], tf.stack(x), [2, 2])).values
        * [1.0, 2.0, 3.0]
    ),
}


@pytest.mark.parametrize("what", GRADIENTS)
def test_gradients_of_sparse_functions_are_tensorflows(what: str, tf: Any) -> None:
    def build(m: Any) -> Any:
        x = m.constant([0.5, -1.0, 2.0])
        return m.convert_to_tensor(m.gradients(GRADIENTS[what](m, m.unstack(x)), x)[0])

    assert_same_values(tf, build)


def test_rows_go_through_strings_and_come_back(tf: Any) -> None:
    def build(m: Any) -> Any:
        rows = m.serialize_many_sparse(sp(m))
        back = m.deserialize_many_sparse(rows, m.float32, rank=2)
        words = m.deserialize_many_sparse([m.serialize_sparse(m.SparseTensor([[1]], ["a"], [3]))], m.string)
        return [*_parts(back), *_parts(words)]

    assert_same_values(tf, build)


def test_our_strings_are_read_by_tensorflow(tf: Any) -> None:
    with graphrt.Session() as session:
        ours = session.run(graphrt.serialize_many_sparse(sp(graphrt)))
    read = tf.io.deserialize_many_sparse(ours.tolist(), tf.float32)
    np.testing.assert_array_equal(tf.sparse.to_dense(read), [[0, 1, 0], [2, 0, 3]])


def test_values_of_a_session_are_fed_back_and_accepted() -> None:
    with graphrt.Session() as session:
        value = session.run(sp(graphrt))
        assert value.dense_shape.tolist() == [2, 3]
        np.testing.assert_array_equal(
            session.run(graphrt.sparse_tensor_to_dense(value)), [[0, 1, 0], [2, 0, 3]]
        )
        placeholder = graphrt.sparse_placeholder("float32")
        total = session.run(graphrt.sparse_reduce_sum(placeholder), {placeholder: value})
        assert total == 6.0


BAD = {
    "out of order": (
        lambda: graphrt.sparse_to_dense([[1], [0]], [2], [1.0, 2.0]),
        r"indices\[1\] = \[0\] is out of order",
    ),
    "repeated": (
        lambda: graphrt.sparse_to_dense([[1], [1]], [2], [1.0, 2.0]),
        r"indices\[1\] = \[1\] is repeated",
    ),
    "outside": (lambda: graphrt.sparse_to_dense([[7]], [2], [1.0]), r"indices\[0\] = \[7\] is out of bounds"),
    "places": (
        lambda: graphrt.raw_ops.SparseReshape(
            input_indices=np.array([[0, 0]]), input_shape=np.array([2, 3]), new_shape=np.array([4, -1])
        ),
        "cannot be reshaped",
    ),
    "reset_shape": (
        lambda: (
            graphrt.sparse.reset_shape(open_shape(graphrt), [1, 1]).values
            + graphrt.cast(graphrt.sparse.reset_shape(open_shape(graphrt), [1, 1]).dense_shape[0], "float32")
        ),
        "below that",
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_what_is_no_sparse_tensor_says_why(what: str) -> None:
    build, message = BAD[what]
    with graphrt.Session() as session, pytest.raises(graphrt.errors.InvalidArgumentError, match=message):
        session.run(build())


def test_misuse_is_refused_when_it_is_built() -> None:
    with pytest.raises(TypeError, match="must be a SparseTensor"):
        graphrt.sparse_reorder(graphrt.ones([2]))
    with pytest.raises(TypeError, match="At least one input should be SparseTensor"):
        graphrt.sparse_add(1.0, 2.0)
    with pytest.raises(ValueError, match="Cannot reshape"):
        graphrt.sparse_reshape(sp(graphrt), [4, 2])
    with pytest.raises(ValueError, match="dimension sizes >="):
        graphrt.sparse_reset_shape(sp(graphrt), [1, 1])
    with pytest.raises(ValueError, match="num_split is required"):
        graphrt.sparse_split(sp_input=sp(graphrt), axis=0)
