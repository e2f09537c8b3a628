"""Initializers: with the same seeds TensorFlow's nodes and values."""

import numpy as np
import pytest

import graphrt
from tests.same_graph import assert_same_nodes, assert_same_values

BUILDS = {
    "zeros": lambda tf: tf.zeros_initializer()([2, 3]),
    "zeros of ints": lambda tf: tf.initializers.zeros(tf.int32)([2]),
    "ones": lambda tf: tf.ones_initializer()([2, 3]),
    "bools": lambda tf: tf.ones_initializer()([2], dtype=tf.bool),
    "constant": lambda tf: tf.constant_initializer(2.5)([2, 3]),
    "constant list": lambda tf: tf.constant_initializer([1, 2, 3, 4])([2, 2]),
    "constant array": lambda tf: tf.constant_initializer(np.arange(4.0))([4], dtype=tf.float64),
    "random_uniform": lambda tf: tf.random_uniform_initializer(-1, 2, seed=4)([2, 3]),
    "random_uniform of ints": lambda tf: tf.random_uniform_initializer(0, 9, seed=4, dtype=tf.int32)([5]),
    "random_uniform by default": lambda tf: tf.random_uniform_initializer()([3]),
    "random_normal": lambda tf: tf.random_normal_initializer(1.0, 0.5, seed=4)([2, 3]),
    "truncated_normal": lambda tf: tf.truncated_normal_initializer(stddev=0.1, seed=4)([2, 3]),
    "uniform_unit_scaling": lambda tf: tf.uniform_unit_scaling_initializer(1.4, seed=4)([3, 2, 3]),
    **{
        f"variance_scaling {m} {d}": lambda tf, m=m, d=d: tf.variance_scaling_initializer(2.0, m, d, seed=4)(
            [3, 3, 2, 4]
        )
        for m in ("fan_in", "fan_out", "fan_avg")
        for d in ("normal", "uniform", "truncated_normal", "untruncated_normal")
    },
    "variance_scaling of a vector": lambda tf: tf.variance_scaling_initializer(seed=4)([5]),
    "variance_scaling of a scalar": lambda tf: tf.variance_scaling_initializer(seed=4)([]),
    "glorot_uniform": lambda tf: tf.glorot_uniform_initializer(seed=4)([4, 3]),
    "glorot_normal": lambda tf: tf.glorot_normal_initializer(seed=4)([4, 3]),
    "glorot_uniform of a TensorShape": lambda tf: tf.initializers.glorot_uniform(seed=4)(
        tf.TensorShape([4, 3])
    ),
    **{
        n: lambda tf, n=n: getattr(tf.initializers, n)(seed=4)([4, 3])
        for n in ("he_normal", "he_uniform", "lecun_normal", "lecun_uniform")
    },
    "float64": lambda tf: tf.glorot_uniform_initializer(seed=4)([4, 3], dtype=tf.float64),
    "orthogonal": lambda tf: tf.orthogonal_initializer(seed=4)([4, 3]),
    "orthogonal of more axes": lambda tf: tf.orthogonal_initializer(gain=2.0, seed=4)([2, 2, 5]),
    "identity": lambda tf: tf.initializers.identity(gain=2.0)([3, 3]),
    "identity of a rectangle": lambda tf: tf.initializers.identity()([2, 3]),
}


@pytest.mark.parametrize("name", BUILDS)
def test_nodes_and_values_are_tensorflows(tf, name):
    def build(module):
        module.set_random_seed(5)
        return BUILDS[name](module)

    assert_same_nodes(tf, build)
    assert_same_values(tf, build, atol=1e-5)


def test_without_an_own_seed_each_takes_the_graphs_next_one(tf):
    def build(module):
        module.set_random_seed(5)
        return [
            module.glorot_uniform_initializer()([3]),
            module.random_normal_initializer()([3]),
            module.truncated_normal_initializer()([3]),
        ]

    assert_same_nodes(tf, build)
    assert_same_values(tf, build)


def test_an_orthogonal_matrix_is_orthogonal():
    with graphrt.Graph().as_default(), graphrt.Session() as session:
        for shape in ([6, 3], [3, 6]):
            q = session.run(graphrt.orthogonal_initializer(seed=1)(shape))
            product = q.T @ q if shape[0] > shape[1] else q @ q.T
            np.testing.assert_allclose(product, np.eye(3), atol=1e-5)


CONFIGS = [
    ("zeros_initializer", {}),
    ("ones_initializer", {"dtype": "float64"}),
    ("constant_initializer", {"value": 3}),
    ("random_uniform_initializer", {"minval": -1, "maxval": 1, "seed": 2}),
    ("random_normal_initializer", {"mean": 1.0, "stddev": 2.0, "seed": 3}),
    ("truncated_normal_initializer", {"stddev": 2.0}),
    ("uniform_unit_scaling_initializer", {"factor": 1.5}),
    ("variance_scaling_initializer", {"scale": 2.0, "mode": "fan_out", "distribution": "uniform"}),
    ("orthogonal_initializer", {"gain": 2.0, "seed": 1}),
    ("glorot_uniform_initializer", {"seed": 4}),
    ("glorot_normal_initializer", {"seed": 4}),
]


@pytest.mark.parametrize(("name", "arguments"), CONFIGS)
def test_configs_are_tensorflows_and_give_the_initializer_back(tf, name, arguments):
    kind = getattr(graphrt, name)
    config = kind(**arguments).get_config()
    assert config == getattr(tf.compat.v1, name)(**arguments).get_config()
    assert kind.from_config(config).get_config() == config


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (
            lambda tf: tf.variance_scaling_initializer(scale=0.0),
            ValueError,
            "`scale` must be a positive float",
        ),
        (lambda tf: tf.variance_scaling_initializer(mode="fan"), ValueError, "`mode` should be one of"),
        (
            lambda tf: tf.variance_scaling_initializer(distribution="cauchy"),
            ValueError,
            "`distribution` should be one of",
        ),
        (
            lambda tf: tf.random_normal_initializer(dtype=tf.int32),
            ValueError,
            "expected to be floating point",
        ),
        (lambda tf: tf.orthogonal_initializer()([3]), ValueError, "at least two-dimensional"),
        (lambda tf: tf.initializers.identity()([3]), ValueError, "must be two-dimensional"),
        (lambda tf: tf.constant_initializer({}), TypeError, "Invalid type for initial value"),
        (lambda tf: tf.constant_initializer([1, 2, 3])([2]), ValueError, "Too many elements"),
        (lambda tf: tf.constant_initializer([1, 2], verify_shape=True)([3]), TypeError, "shape"),
    ],
)
def test_bad_arguments_are_named(build, error, message):
    with graphrt.Graph().as_default(), pytest.raises(error, match=message):
        build(graphrt)


def test_a_part_of_a_variable_is_scaled_and_cut_as_the_whole(tf):
    """A partitioned variable's parts have the whole's fans, and an identity's parts are cut from the
    whole."""

    class Part:
        full_shape, var_offset = [6, 4], [2, 0]

    def build(module):
        return [
            init([2, 4], partition_info=Part)
            for init in (
                module.glorot_uniform_initializer(seed=4),
                module.uniform_unit_scaling_initializer(seed=4),
                module.initializers.identity(),
            )
        ]

    assert_same_values(tf, build)
