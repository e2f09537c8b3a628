"""Public array functions build the nodes that TensorFlow builds, and give its values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphrt
from tests.same_graph import assert_same_nodes, assert_same_values

# Each is given tf and x, a float placeholder of shape [2, 3] (static or unknown), and fed by the same array.
ON_A_MATRIX = {
    "getitem number": lambda tf, x: x[1],
    "getitem range": lambda tf, x: x[:, 1:],
    "getitem steps": lambda tf, x: x[::-1, ::2],
    "getitem ellipsis": lambda tf, x: x[..., 0],
    "getitem newaxis": lambda tf, x: x[:, tf.newaxis, 1],
    "getitem tensor": lambda tf, x: x[tf.constant(1)],
    "getitem int64 tensor": lambda tf, x: x[tf.constant(1, tf.int64) :, 0],
    "getitem tensor range": lambda tf, x: x[0 : tf.constant(1), 1:],
    "getitem mask": lambda tf, x: x[tf.constant([True, False])],
    "getitem of a shape": lambda tf, x: tf.shape(x)[0],
    "shape": lambda tf, x: tf.shape(x),
    "shape int64": lambda tf, x: tf.shape(x, out_type=tf.int64, name="s"),
    "shape_n": lambda tf, x: tf.shape_n([x, x]),
    "size": lambda tf, x: tf.size(x),
    "rank": lambda tf, x: tf.rank(x),
    "reshape": lambda tf, x: tf.reshape(x, [-1, 2]),
    "reshape by tensors": lambda tf, x: tf.reshape(x, [tf.shape(x)[1], -1]),
    "reshape by a stack": lambda tf, x: tf.reshape(x, tf.stack([3, tf.shape(x)[0]]), name="r"),
    "expand_dims": lambda tf, x: tf.expand_dims(x, 1),
    "expand_dims dim": lambda tf, x: tf.expand_dims(x, dim=-1),
    "squeeze": lambda tf, x: tf.squeeze(tf.expand_dims(x, 0), axis=0),
    "squeeze dims": lambda tf, x: tf.squeeze(tf.expand_dims(x, 0), squeeze_dims=[0]),
    "squeeze all": lambda tf, x: tf.squeeze(tf.reshape(x, [1, 6, 1])),
    "transpose": lambda tf, x: tf.transpose(x),
    "transpose perm": lambda tf, x: tf.transpose(x, [1, 0], name="t"),
    "matrix_transpose": lambda tf, x: tf.matrix_transpose(x),
    "stack": lambda tf, x: tf.stack([x, x]),
    "stack axis": lambda tf, x: tf.stack([x, x], axis=2),
    "stack with numbers": lambda tf, x: tf.stack([x[0, 0], 2.0, 3.0]),
    "unstack": lambda tf, x: tf.unstack(x, num=2),
    "unstack axis": lambda tf, x: tf.unstack(x, num=3, axis=1),
    "concat": lambda tf, x: tf.concat([x, x], 0),
    "concat axis": lambda tf, x: tf.concat([x, [[1.0], [2.0]]], axis=1),
    "concat of one": lambda tf, x: tf.concat([x], 0),
    "split": lambda tf, x: tf.split(x, 3, axis=1),
    "split sizes": lambda tf, x: tf.split(x, [1, 2], 1),
    "split first": lambda tf, x: tf.split(x, 2),
    "slice": lambda tf, x: tf.slice(x, [0, 1], [-1, 2]),
    "strided_slice": lambda tf, x: tf.strided_slice(x, [0, 1], [2, 3]),
    "strided_slice strides": lambda tf, x: tf.strided_slice(x, [0, 0], [2, 3], [1, 2], name="part"),
    "gather": lambda tf, x: tf.gather(x, [1, 0, 1]),
    "gather axis": lambda tf, x: tf.gather(x, [[2, 0]], axis=1),
    "gather batch": lambda tf, x: tf.gather(x, [[2], [0]], batch_dims=1),
    "gather_nd": lambda tf, x: tf.gather_nd(x, [[0, 1], [1, 2]]),
    "scatter_nd": lambda tf, x: tf.scatter_nd([[1], [1]], x, [3, 3]),
    "tensor_scatter_nd_update": lambda tf, x: tf.tensor_scatter_nd_update(x, [[0, 1]], [9.0]),
    "tensor_scatter_nd_add": lambda tf, x: tf.tensor_scatter_nd_add(x, [[0, 1], [0, 1]], [9.0, 1.0]),
    "where": lambda tf, x: tf.where(tf.greater(x, 0.0)),
    "where select": lambda tf, x: tf.where(tf.greater(x, 0.0), x, tf.zeros_like(x)),
    "where rows": lambda tf, x: tf.where([True, False], x, -x),
    "where_v2": lambda tf, x: tf.where_v2(tf.greater(x, 0.0), x, 0.0),
    "boolean_mask": lambda tf, x: tf.boolean_mask(x, [True, False]),
    "boolean_mask axis": lambda tf, x: tf.boolean_mask(x, [True, False, True], axis=1),
    "boolean_mask tensor": lambda tf, x: tf.boolean_mask(x, tf.constant([[True, False, True], [False] * 3])),
    "pad": lambda tf, x: tf.pad(x, [[1, 0], [0, 2]]),
    "pad value": lambda tf, x: tf.pad(x, [[1, 0], [0, 2]], constant_values=7.0),
    "pad reflect": lambda tf, x: tf.pad(x, [[1, 1], [2, 0]], "REFLECT"),
    "pad symmetric": lambda tf, x: tf.pad(x, [[1, 1], [2, 0]], mode="symmetric", name="p"),
    "pad by tensors": lambda tf, x: tf.pad(x, [[0, tf.constant(1)], [0, 2]]),
    "tile": lambda tf, x: tf.tile(x, [2, 1]),
    "repeat": lambda tf, x: tf.repeat(x, 2, axis=1),
    "reverse": lambda tf, x: tf.reverse(x, [1]),
    "reverse_sequence": lambda tf, x: tf.reverse_sequence(x, [3, 1], seq_axis=1, batch_axis=0),
    "reverse_sequence dims": lambda tf, x: tf.reverse_sequence(x, [2, 1], seq_dim=1, batch_dim=0),
    "roll": lambda tf, x: tf.roll(x, shift=1, axis=0),
    "zeros_like": lambda tf, x: tf.zeros_like(x),
    "zeros_like dtype": lambda tf, x: tf.zeros_like(x, dtype=tf.int32),
    "zeros_like as it runs": lambda tf, x: tf.zeros_like(x, optimize=False),
    "ones_like": lambda tf, x: tf.ones_like(x),
    "ones_like dtype": lambda tf, x: tf.ones_like(x, tf.bool, name="o"),
    "identity": lambda tf, x: tf.identity(x, name="same"),
    "stop_gradient": lambda tf, x: tf.stop_gradient(x),
    "ensure_shape": lambda tf, x: tf.ensure_shape(x, [None, 3]),
    "check_numerics": lambda tf, x: tf.check_numerics(x, "bad"),
    "broadcast_to": lambda tf, x: tf.broadcast_to(x, [2, 2, 3]),
    "broadcast_dynamic_shape": lambda tf, x: tf.broadcast_dynamic_shape(tf.shape(x), [4, 1, 1]),
    "meshgrid": lambda tf, x: tf.meshgrid(x[0], x[1]),
    "meshgrid ij": lambda tf, x: tf.meshgrid(x[0], [1.0, 2.0], indexing="ij"),
    "dynamic_partition": lambda tf, x: tf.dynamic_partition(x, [1, 0], 2),
    "dynamic_stitch": lambda tf, x: tf.dynamic_stitch([[1], [0, 2]], [x[:1], x]),
    "sequence_mask": lambda tf, x: tf.sequence_mask([1, 3], 4),
    "sequence_mask longest": lambda tf, x: tf.sequence_mask(tf.cast(x, tf.int32), dtype=tf.float32),
    "extract_image_patches": lambda tf, x: tf.extract_image_patches(
        tf.reshape(x, [1, 2, 3, 1]), [1, 2, 2, 1], [1, 1, 1, 1], [1, 1, 1, 1], "SAME"
    ),
    "space_to_batch_nd": lambda tf, x: tf.space_to_batch_nd(
        tf.reshape(x, [1, 2, 3, 1]), [2, 3], [[0, 0], [0, 0]]
    ),
    "space_to_batch": lambda tf, x: tf.space_to_batch(tf.reshape(x, [1, 2, 3, 1]), [[0, 0], [1, 0]], 2),
    "space_to_depth": lambda tf, x: tf.space_to_depth(tf.reshape(x[:, :2], [1, 2, 2, 1]), 2),
    "unique": lambda tf, x: list(tf.unique(x[0])),
    "setdiff1d": lambda tf, x: list(tf.setdiff1d(x[0], x[1])),
    "identity_n": lambda tf, x: tf.identity_n([x, tf.constant(1)]),
    "sort": lambda tf, x: tf.sort(x),
    "sort descending": lambda tf, x: tf.sort(x, direction="DESCENDING", name="s"),
    "sort columns": lambda tf, x: tf.sort(x, axis=0),
    "argsort": lambda tf, x: tf.argsort(x),
    "argsort of ints": lambda tf, x: tf.argsort(tf.cast(x, tf.int32), axis=1, direction="DESCENDING"),
    "slices of a tensor in a list": lambda tf, x: tf.convert_to_tensor([x[0], [1.0, 2.0, 3.0]]),
    "a nested list with tensors": lambda tf, x: tf.stack([[x[0, 0], 1.0], [2.0, x[1, 1]]]),
}
WITHOUT_INPUT = {
    "constant": lambda tf: [
        tf.constant([1, 2]),
        tf.constant(1.5, shape=[2, 2]),
        tf.constant("a", name="text"),
    ],
    "zeros": lambda tf: [
        tf.zeros([2, 3]),
        tf.zeros([], tf.int32),
        tf.zeros([2], tf.string),
        tf.zeros(3, tf.bool),
    ],
    "large zeros": lambda tf: tf.zeros([50, 40]),
    "zeros by tensors": lambda tf: tf.zeros([tf.constant(2), 3]),
    "zeros by a shape tensor": lambda tf: tf.zeros(tf.constant([2, 2]), tf.float64),
    "zeros by a scalar tensor": lambda tf: tf.zeros(tf.constant(2)),
    "ones": lambda tf: [tf.ones([2, 3]), tf.ones([2], tf.bool, name="yes"), tf.ones((40, 50), tf.int64)],
    "fill": lambda tf: [tf.fill([2, 3], 7.0), tf.fill([2], "x")],
    "one_hot": lambda tf: tf.one_hot([0, 2, -1], 3),
    "one_hot dtype": lambda tf: tf.one_hot([[0], [1]], 2, dtype=tf.int32, axis=1),
    "one_hot values": lambda tf: tf.one_hot([1, 0], 2, on_value=5.0, off_value=-1.0, name="hot"),
    "one_hot of bools": lambda tf: tf.one_hot([1, 0], 2, on_value=True, off_value=False, dtype=tf.bool),
    "required_space_to_batch_paddings": lambda tf: tf.required_space_to_batch_paddings([5, 7], [2, 3]),
    "invert_permutation": lambda tf: tf.invert_permutation([2, 0, 1]),
    "searchsorted": lambda tf: tf.searchsorted([[1.0, 3.0, 5.0]], [[3.0, 4.0]], side="right"),
    "edit_distance": lambda tf: tf.edit_distance(
        tf.SparseTensor([[0, 0]], [1], [1, 1]), tf.SparseTensor([[0, 0], [0, 1]], [1, 2], [1, 2])
    ),
    "parallel dims": lambda tf: tf.unravel_index([3, 5], [2, 3]),
    "placeholder_with_default": lambda tf: tf.placeholder_with_default([1.0, 2.0], [None]),
    "batch_gather": lambda tf: tf.gather([[1, 2], [3, 4]], [[0], [1]], axis=1, batch_dims=1),
}
VALUE = np.array([[0.5, -1.0, 2.0], [3.0, 0.5, -2.0]], np.float32)


@pytest.mark.parametrize("known", [True, False], ids=["static", "partial"])
@pytest.mark.parametrize("what", ON_A_MATRIX)
def test_functions_of_a_matrix_build_tensorflows_nodes(what: str, known: bool, tf: Any) -> None:
    function = ON_A_MATRIX[what]
    shape = [2, 3] if known else [None, 3]
    assert_same_nodes(tf, lambda m: function(m, m.placeholder(m.float32, shape, name="x")))


@pytest.mark.parametrize("what", ON_A_MATRIX)
def test_functions_of_a_matrix_give_tensorflows_values(what: str, tf: Any) -> None:
    function = ON_A_MATRIX[what]
    for shape in ([2, 3], [None, 3]):
        assert_same_values(tf, lambda m: function(m, m.placeholder(m.float32, shape, name="x")), {"x": VALUE})  # noqa: B023


@pytest.mark.parametrize("what", WITHOUT_INPUT)
def test_functions_of_values_are_tensorflows(what: str, tf: Any) -> None:
    assert_same_nodes(tf, WITHOUT_INPUT[what])
    assert_same_values(tf, WITHOUT_INPUT[what])


GRADIENTS = {
    "reshape": lambda tf, x: tf.reshape(x, [3, 2]),
    "slice": lambda tf, x: tf.slice(x, [0, 1], [2, 2]),
    "strided slice": lambda tf, x: x[:, 1],
    "concat": lambda tf, x: tf.concat([x, x * 2.0], 1),
    "gather": lambda tf, x: tf.gather(x, [1, 1, 0]),
    "gather axis": lambda tf, x: tf.gather(x, [2, 2], axis=1),
    "gather_nd": lambda tf, x: tf.gather_nd(x, [[0, 1], [0, 1]]),
    "pad": lambda tf, x: tf.pad(x, [[1, 0], [0, 2]]),
    "tile": lambda tf, x: tf.tile(x, [2, 2]),
    "transpose": lambda tf, x: tf.transpose(x),
    "stack": lambda tf, x: tf.stack([x, x]),
    "unstack": lambda tf, x: tf.unstack(x, 2)[0],
    "split": lambda tf, x: tf.split(x, 3, 1)[1],
    "split sizes": lambda tf, x: tf.split(x, [1, 2], 1)[1],
    "squeeze": lambda tf, x: tf.squeeze(tf.expand_dims(x, 0)),
    "boolean_mask": lambda tf, x: tf.boolean_mask(x, [True, False]),
    "broadcast_to": lambda tf, x: tf.broadcast_to(x, [2, 2, 3]),
    "fill": lambda tf, x: tf.fill([2, 2], x[0, 0]),
    "where": lambda tf, x: tf.where(x > 0.0, x, -x),
    "dynamic_partition": lambda tf, x: tf.dynamic_partition(x, [1, 0], 2)[0],
    "dynamic_stitch": lambda tf, x: tf.dynamic_stitch([[1, 0]], [x]),
    "scatter_nd": lambda tf, x: tf.scatter_nd([[1], [0]], x, [3, 3]),
    "reverse": lambda tf, x: tf.reverse(x, [0]),
    "identity": lambda tf, x: tf.identity(x),
}


@pytest.mark.parametrize("what", GRADIENTS)
def test_gradients_of_array_functions_are_tensorflows_nodes(what: str, tf: Any) -> None:
    def build(m: Any) -> Any:
        x = m.placeholder(m.float32, [2, 3], name="x")
        return m.gradients(GRADIENTS[what](m, x), [x])

    assert_same_nodes(tf, build)


@pytest.mark.parametrize("what", GRADIENTS)
def test_gradients_of_array_functions_are_tensorflows_values(what: str, tf: Any) -> None:
    for shape in ([2, 3], [None, 3]):

        def build(m: Any) -> Any:
            x = m.placeholder(m.float32, shape, name="x")  # noqa: B023
            return m.convert_to_tensor(m.gradients(GRADIENTS[what](m, x), [x])[0])

        assert_same_values(tf, build, {"x": VALUE})


def test_a_gather_of_a_concatenation_has_sparse_gradients(tf: Any) -> None:
    def build(m: Any) -> Any:
        a, b = m.placeholder(m.float32, [2, 3], name="x"), m.constant(VALUE)
        grads = m.gradients(m.gather(m.concat([a, b], 0), [0, 3, 0]), [a, b])
        return [m.convert_to_tensor(g) for g in grads] + [grads[0].indices, grads[0].values]

    assert_same_values(tf, build, {"x": VALUE})


def test_a_gather_of_a_concatenation_along_columns_has_sparse_gradients(tf: Any) -> None:
    def build(m: Any) -> Any:
        a, b = m.placeholder(m.float32, [2, 3], name="x"), m.constant(VALUE[:, :2])
        grads = m.gradients(m.gather(m.concat([a, b], -1), [1, 1]), [a, b])
        return [m.convert_to_tensor(g) for g in grads] + [grads[1].values]

    assert_same_values(tf, build, {"x": VALUE})


BAD = {
    "reshape": (lambda x: graphrt.reshape(x, [4]), "6 elements"),
    "concat": (lambda x: graphrt.concat([x, graphrt.zeros([2, 2])], 0), "differ in more than dimension 0"),
    "expand_dims": (lambda x: graphrt.expand_dims(x, 5), "dim 5 is outside"),
    "split": (lambda x: graphrt.split(x, 2, 1), "not a multiple of num_split"),
    "index": (lambda x: x[5], "slice index 5 of dimension 0 out of bounds"),
    "too many indices": (lambda x: x[0, 0, 0], "3 indices"),
    "transpose": (lambda x: graphrt.transpose(x, [0, 0]), "not a permutation"),
    "pad": (lambda x: graphrt.pad(x, [[1, 1]]), "rank"),
    "stack": (lambda x: graphrt.stack([x, x], axis=5), "not in range"),
    "unstack": (lambda x: graphrt.unstack(graphrt.placeholder("float32")), "Cannot infer"),
    "squeeze": (lambda x: graphrt.squeeze(x, 0), "its size is 2, not 1"),
}


@pytest.mark.parametrize("what", BAD)
def test_what_cannot_fit_is_refused_when_it_is_built(what: str) -> None:
    function, message = BAD[what]
    with pytest.raises(ValueError, match=message):
        function(graphrt.placeholder("float32", [2, 3]))


@pytest.mark.parametrize("index", [1.0, "a", [[1]], True, None], ids=str)
def test_only_indices_index(index: Any) -> None:
    x = graphrt.placeholder("float32", [2, 3])
    if index is None:
        assert x[index].shape.as_list() == [1, 2, 3]
    elif index is True:
        with pytest.raises(ValueError, match="mask cannot be scalar"):
            _ = x[index]
    else:
        with pytest.raises(TypeError, match="valid indices"):
            _ = x[index]


AT_RUN_TIME = {
    "gather": (lambda x: graphrt.gather(x, [7]), r"indices\[0\] = 7 is not in \[0, 2\)"),
    "gather below": (lambda x: graphrt.gather(x, [[0], [-1]]), r"indices\[1,0\] = -1"),
    "gather_nd": (lambda x: graphrt.gather_nd(x, [[0, 9]]), r"\[0, 9\] does not index into shape \[2, 3\]"),
    "reshape": (lambda x: graphrt.reshape(x, [-1, 4]), "number of elements must stay the same"),
    "slice": (lambda x: graphrt.slice(x, [1, 0], [2, 1]), "leave dimension 0"),
    "index": (lambda x: x[5], "out of bounds"),
    "concat": (lambda x: graphrt.concat([x, [[1.0]]], 0), "differ in more than dimension 0"),
    "ensure_shape": (lambda x: graphrt.ensure_shape(x, [3, 3]), "not compatible with expected shape"),
    "check_numerics": (lambda x: graphrt.check_numerics(x / 0.0, "oh"), "oh : Tensor had Inf"),
    "placeholder": (
        lambda x: graphrt.placeholder("int32", [2], name="unfed") + 1,
        "must feed a value for placeholder",
    ),
    "scatter": (lambda x: graphrt.scatter_nd([[5]], [1.0], [2]), r"\[5\] does not index"),
    "partition": (lambda x: graphrt.dynamic_partition(x, [0, 3], 2), r"partitions\[1\] = 3"),
}


@pytest.mark.parametrize("what", AT_RUN_TIME)
def test_what_does_not_fit_in_a_step_says_what_and_where(what: str) -> None:
    function, message = AT_RUN_TIME[what]
    x = graphrt.placeholder("float32", name="x")
    y = function(x)
    with (
        graphrt.Session() as session,
        pytest.raises(graphrt.errors.InvalidArgumentError, match=message) as caught,
    ):
        session.run(y, {x: VALUE})
    assert "test_array_public.py" in str(caught.value)


def test_a_fetched_view_does_not_change_with_the_fed_array() -> None:
    x = graphrt.placeholder("float32", [2, 3])
    with graphrt.Session() as session:
        fed = VALUE.copy()
        parts = session.run([x[0], graphrt.transpose(x), graphrt.identity(x)], {x: fed})
        fed[...] = 0
    np.testing.assert_array_equal(parts[0], VALUE[0])
    np.testing.assert_array_equal(parts[1], VALUE.T)
    np.testing.assert_array_equal(parts[2], VALUE)


def test_sparse_placeholder_takes_a_tuple_and_keeps_its_static_shape() -> None:
    sp = graphrt.sparse_placeholder("float32", [2, None], name="sp")
    assert sp.shape.as_list() == [2, None]
    with graphrt.Session() as session:
        made = session.run(graphrt.sparse_tensor_to_dense(sp), {sp: ([[0, 1], [1, 0]], [1.0, 2.0], [2, 2])})
    np.testing.assert_array_equal(made, [[0, 1], [2, 0]])


def test_sort_keeps_the_extremes_of_integers() -> None:
    with graphrt.Session() as session:
        for kind in (np.uint8, np.int8, np.int32):
            ends = np.iinfo(kind)
            values = np.array([ends.max, 0, ends.min, 1], kind)
            np.testing.assert_array_equal(session.run(graphrt.sort(values)), np.sort(values))


def test_batch_gather_nd_picks_in_each_batch_element(tf: Any) -> None:
    def build(m: Any) -> Any:
        x = m.placeholder(m.float32, [2, 3], name="x")
        return [m.gather_nd(x, [[[1], [0]], [[2], [2]]], batch_dims=1), m.batch_gather(x, [[1, 0], [2, 2]])]

    assert_same_values(tf, build, {"x": VALUE})
