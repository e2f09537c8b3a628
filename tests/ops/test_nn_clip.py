"""Clipping builds TensorFlow's nodes and gives its values, of IndexedSlices too."""

import numpy as np
import pytest

import graphrt
from tests.same_graph import assert_same_nodes, assert_same_values

RNG = np.random.default_rng(2)
A, B = RNG.standard_normal((4, 3)).astype(np.float32) * 3, RNG.standard_normal(5).astype(np.float32)


def slices(tf):
    return tf.IndexedSlices(tf.constant(A), tf.constant([0, 2, 5, 6]), tf.constant([9, 3]))


def parts(x):
    return [x.values, x.indices] if hasattr(x, "indices") else x


BUILDS = {
    "by value": lambda tf: tf.clip_by_value(tf.constant(A), -1.0, 1.0),
    "by tensors": lambda tf: tf.clip_by_value(A, tf.constant(-1.0), tf.constant(A * 0.5), name="c"),
    "ints by value": lambda tf: tf.clip_by_value(tf.constant([1, 5, 9]), 2, 6),
    "slices by value": lambda tf: parts(tf.clip_by_value(slices(tf), -1.0, 1.0)),
    "by norm": lambda tf: tf.clip_by_norm(tf.constant(A), 2.0),
    "by norm of rows": lambda tf: tf.clip_by_norm(tf.constant(A), 2.0, axes=[1], name="n"),
    "by a norm tensor": lambda tf: tf.clip_by_norm(tf.constant(A), tf.constant(2.0)),
    "by a negative norm": lambda tf: tf.clip_by_norm(tf.constant(A), -2.0),
    "zeros by norm": lambda tf: tf.clip_by_norm(tf.zeros([3]), 2.0),
    "slices by norm": lambda tf: parts(tf.clip_by_norm(slices(tf), 2.0)),
    "by average norm": lambda tf: tf.clip_by_average_norm(tf.constant(A), 0.1),
    "global norm": lambda tf: tf.global_norm([tf.constant(A), None, tf.constant(B)]),
    "global norm of slices": lambda tf: tf.global_norm([slices(tf), tf.constant(B)], name="g"),
    "by global norm": lambda tf: tf.clip_by_global_norm([tf.constant(A), None, tf.constant(B)], 2.0),
    "by a large global norm": lambda tf: tf.clip_by_global_norm([tf.constant(A), tf.constant(B)], 2000.0),
    "by a known global norm": lambda tf: tf.clip_by_global_norm(
        [tf.constant(A), tf.constant(B)], 2.0, use_norm=tf.constant(4.0), name="k"
    ),
    "slices by global norm": lambda tf: [
        parts(x) for x in tf.clip_by_global_norm([slices(tf), tf.constant(B)], 2.0)[0]
    ],
}


@pytest.mark.parametrize("name", BUILDS)
def test_nodes_are_tensorflows(tf, name):
    assert_same_nodes(tf, BUILDS[name])


@pytest.mark.parametrize("name", BUILDS)
def test_values_are_tensorflows(tf, name):
    assert_same_values(tf, BUILDS[name])


def test_gradients_are_tensorflows_at_zero_too(tf):
    def build(module):
        x, zero = module.constant(A), module.zeros([3])
        return [
            module.gradients(module.clip_by_norm(x, 2.0), x),
            module.gradients(module.clip_by_norm(zero, 2.0), zero),
            module.gradients(module.clip_by_value(x, -1.0, 1.0), x),
        ]

    assert_same_values(tf, build)


def test_a_norm_that_is_not_finite_makes_every_gradient_nan():
    with graphrt.Graph().as_default(), graphrt.Session() as session:
        clipped, norm = session.run(
            graphrt.clip_by_global_norm([graphrt.constant([1.0, np.inf]), graphrt.constant([2.0])], 1.0)
        )
        assert np.isinf(norm) and all(np.isnan(c).all() for c in clipped)


def test_bad_arguments_are_named():
    with graphrt.Graph().as_default():
        with pytest.raises(TypeError, match="should be a sequence"):
            graphrt.global_norm(graphrt.constant(A))
        with pytest.raises(ValueError, match="incompatible"):
            graphrt.clip_by_value(graphrt.constant(B), 0.0, graphrt.ones([2, 5]))
