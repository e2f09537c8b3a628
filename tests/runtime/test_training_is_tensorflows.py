"""Whole runs of 50 steps, seeds and feeds the same, give TensorFlow's losses, values and random numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import graphrt

tensorflow = pytest.importorskip("tensorflow")
v1 = tensorflow.compat.v1
STEPS = 50


@pytest.fixture(scope="module", autouse=True)
def as_tensorflow_1() -> Any:
    """Switch/Merge conditionals and ref variables, as scripts have them after disable_v2_behavior()."""
    v1.disable_control_flow_v2()
    v1.disable_resource_variables()
    yield
    v1.enable_control_flow_v2()
    v1.enable_resource_variables()


class Built(NamedTuple):
    """What a step fetches (nested lists are fine), and feeds by placeholder for step number i."""

    fetches: Any
    feeds: Callable[[int], dict[Any, Any]]


def run(tf: Any, build: Callable[[Any], Built], steps: int = STEPS) -> list[list[np.ndarray]]:
    """The fetches of each step, flat."""
    with (graphrt if tf is graphrt else tensorflow).Graph().as_default() as graph:
        tf.set_random_seed(42)
        built = build(tf)
        init = tf.global_variables_initializer()
        with tf.Session(graph=graph) as session:
            session.run(init)
            return [
                [np.asarray(v) for v in session.run(built.fetches, built.feeds(i)) if v is not None]
                for i in range(steps)
            ]


def assert_same_runs(
    build: Callable[[Any], Built], rtol: float = 1e-5, atol: float = 0.0, steps: int = STEPS
) -> list[list[np.ndarray]]:
    ours, theirs = run(graphrt, build, steps), run(v1, build, steps)
    for number, (a, b) in enumerate(zip(ours, theirs)):
        assert len(a) == len(b) and a
        for x, y in zip(a, b):
            assert x.dtype == y.dtype and x.shape == y.shape
            np.testing.assert_allclose(x, y, rtol=rtol, atol=atol, err_msg=f"step {number}")
    return ours


def digits(i: int, batch: int) -> tuple[np.ndarray, np.ndarray]:
    """Images that tell their label, with noise: a batch of another one each step."""
    random = np.random.default_rng(i)
    labels = random.integers(0, 10, batch)
    images = random.random((batch, 784), np.float32) * 0.3
    for row, label in zip(images, labels):
        row[label * 70 : label * 70 + 70] += 0.7
    return images, labels.astype(np.int64)


def classifier(tf: Any, logits: Callable[[Any], Any], optimizer: Any, batch: int = 32) -> Built:
    x = tf.placeholder(tf.float32, [None, 784], name="x")
    y = tf.placeholder(tf.int64, [None], name="y")
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits(x))
    loss = tf.reduce_mean(losses)
    train = optimizer.minimize(loss)

    def feeds(i: int) -> dict[Any, Any]:
        images, labels = digits(i, batch)
        return {x: images, y: labels}

    return Built([loss, train], feeds)


def dense(tf: Any, x: Any, outer: int, name: str, resource: bool = False) -> Any:
    with tf.variable_scope(name, use_resource=resource):
        w = tf.get_variable(
            "w", [int(x.shape[-1]), outer], initializer=tf.truncated_normal_initializer(stddev=0.1)
        )
        b = tf.get_variable("b", [outer], initializer=tf.zeros_initializer())
    return tf.matmul(x, w) + b


def falls(runs: list[list[np.ndarray]]) -> None:
    assert runs[-1][0] < 0.7 * runs[0][0], "it learns, so the comparison has something to compare"


@pytest.mark.parametrize("resource", [False, True])
def test_softmax_regression(resource: bool) -> None:
    falls(
        assert_same_runs(
            lambda tf: classifier(
                tf, lambda x: dense(tf, x, 10, "softmax", resource), tf.train.GradientDescentOptimizer(0.1)
            )
        )
    )


@pytest.mark.parametrize("resource", [False, True])
def test_a_perceptron_with_adam(resource: bool) -> None:
    def build(tf: Any) -> Built:
        def logits(x: Any) -> Any:
            h = tf.nn.relu(dense(tf, x, 128, "one", resource))
            return dense(tf, tf.tanh(dense(tf, h, 64, "two", resource)), 10, "three", resource)

        return classifier(tf, logits, tf.train.AdamOptimizer(1e-3))

    falls(assert_same_runs(build))


def test_lenet_with_dropout_and_adam() -> None:
    def build(tf: Any) -> Built:
        def convolution(x: Any, outer: int, name: str) -> Any:
            with tf.variable_scope(name):
                w = tf.get_variable(
                    "w",
                    [5, 5, int(x.shape[-1]), outer],
                    initializer=tf.truncated_normal_initializer(stddev=0.1),
                )
                b = tf.get_variable("b", [outer], initializer=tf.constant_initializer(0.1))
            h = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(x, w, [1, 1, 1, 1], "SAME"), b))
            return tf.nn.max_pool(h, [1, 2, 2, 1], [1, 2, 2, 1], "SAME")

        def logits(x: Any) -> Any:
            h = convolution(convolution(tf.reshape(x, [-1, 28, 28, 1]), 8, "conv1"), 16, "conv2")
            h = tf.nn.relu(dense(tf, tf.reshape(h, [-1, 7 * 7 * 16]), 128, "fc1"))
            return dense(tf, tf.nn.dropout(h, rate=0.4), 10, "fc2")

        return classifier(tf, logits, tf.train.AdamOptimizer(3e-4), batch=16)

    falls(assert_same_runs(build))


def test_branches_with_effects() -> None:
    def build(tf: Any) -> Built:
        x = tf.placeholder(tf.float32, [None, 3])
        w = tf.Variable([[0.5], [-0.25], [0.125]], use_resource=False)
        ups, downs = tf.Variable(0, use_resource=False), tf.Variable(0, use_resource=True)
        loss = tf.reduce_mean(tf.square(tf.matmul(x, w) - 1.0))

        def up() -> Any:
            with tf.control_dependencies([tf.assign_add(ups, 1), tf.assign_add(w, 0.01 * tf.ones([3, 1]))]):
                return tf.identity(loss) * 2.0

        def down() -> Any:
            with tf.control_dependencies([tf.assign_add(downs, 2)]):
                return tf.cond(loss > 0.8, lambda: -loss, lambda: loss + tf.random_uniform([], seed=3))

        with tf.control_dependencies([loss]):
            chosen = tf.cond(tf.reduce_sum(x) > 0.0, up, down)
        with tf.control_dependencies([chosen]):
            train = tf.train.GradientDescentOptimizer(0.05).minimize(chosen)
        with tf.control_dependencies([train]):
            after = [tf.identity(ups) + 0, tf.identity(downs.read_value()), w + 0.0]
        return Built(
            [chosen, *after, train],
            lambda i: {x: np.random.default_rng(i).normal(size=(4 + i % 3, 3)).astype(np.float32)},
        )

    runs = assert_same_runs(build, rtol=1e-5, atol=1e-7)
    assert runs[-1][1] > 10 and runs[-1][2] > 20, "both branches were taken"


def read_then_add(tf: Any, resource: bool, through_identity: bool) -> Built:
    """A read, then assign_add(5), then a use of the read."""
    v = tf.Variable(1.0, use_resource=resource)
    early = v.read_value() if through_identity else v.value()
    with tf.control_dependencies([early]):
        added = tf.assign_add(v, 5.0)
    with tf.control_dependencies([added]):
        used = early + 0.0
        fresh = v.read_value() + 0.0
    return Built([used, fresh], lambda i: {})


@pytest.mark.parametrize("through_identity", [False, True])
def test_an_earlier_read_of_a_ref_variable_gives_the_new_value_of_a_resource_variable_the_old(
    through_identity: bool,
) -> None:
    ref = assert_same_runs(lambda tf: read_then_add(tf, False, through_identity))
    assert ref[0] == [6.0, 6.0] and ref[9] == [51.0, 51.0]
    resource = assert_same_runs(lambda tf: read_then_add(tf, True, through_identity))
    assert resource[0] == [1.0, 6.0] and resource[9] == [46.0, 51.0]


@pytest.mark.parametrize("resource", [False, True])
def test_reads_and_assignments_in_one_step(resource: bool) -> None:
    """Views of a read, updates of rows, and reads between them, ordered by control dependencies."""

    def build(tf: Any) -> Built:
        v = tf.Variable(np.arange(12, dtype=np.float32).reshape(4, 3), use_resource=resource)
        x = tf.placeholder(tf.float32, [3])
        first = tf.reshape(v.read_value(), [-1])
        with tf.control_dependencies([first]):
            scattered = tf.scatter_add(v, [0, 2, 0], tf.stack([x, 2.0 * x, -x]))
        with tf.control_dependencies([scattered]):
            between = tf.transpose(v.read_value())
            viewed = first + 0.0
        with tf.control_dependencies([between, viewed]):
            assigned = tf.assign(v, v.read_value() * 0.5)
        with tf.control_dependencies([assigned]):
            late = [first * 1.0, between * 1.0, v.read_value() * 1.0, viewed * 1.0]
        with tf.control_dependencies(late):
            last = tf.assign_sub(v, tf.ones([4, 3]))
        with tf.control_dependencies([last]):
            return Built([*late, v.read_value() + 0.0], lambda i: {x: np.full(3, i, np.float32)})

    assert_same_runs(build)


def test_gated_gradients_see_the_values_of_before_the_update() -> None:
    def build(tf: Any) -> Built:
        a, b = tf.Variable(2.0, use_resource=False), tf.Variable(3.0, use_resource=False)
        loss = tf.square(a * b - 1.0)
        train = tf.train.GradientDescentOptimizer(0.01).minimize(
            loss, gate_gradients=tf.train.Optimizer.GATE_GRAPH
        )
        with tf.control_dependencies([train]):
            return Built([a + 0.0, b + 0.0], lambda i: {})

    assert_same_runs(build)


# -- random numbers ----------------------------------------------------------------------------------------


def streams(tf: Any) -> tuple[list[Any], list[Any]]:
    """Uniform tensors, which are equal to the bit, and normal ones."""
    n = tf.placeholder_with_default(np.int32(5), [], name="n")
    uniform = [
        tf.random_uniform([3, 5], seed=7),
        tf.random_uniform([n], -2.0, 3.0),
        tf.random_uniform([4], 0, 100, tf.int32, seed=9),
        tf.random_uniform([n, 2], 0, 10**12, tf.int64),
        tf.random_uniform([7], dtype=tf.float64, seed=1),
        tf.random_shuffle(tf.range(10), seed=2),
    ]
    normal = [
        tf.random_normal([6], seed=7),
        tf.random_normal([n, 3]),
        tf.truncated_normal([9], 1.0, 2.0, seed=5),
        tf.random_normal([5], dtype=tf.float64, seed=4),
    ]
    return uniform, normal


def drawn(tf: Any) -> list[list[np.ndarray]]:
    """What several signatures of two sessions draw, interleaved."""
    made = []
    with (graphrt if tf is graphrt else tensorflow).Graph().as_default() as graph:
        tf.set_random_seed(1234)
        uniform, normal = streams(tf)
        wanted = [
            uniform,
            normal,
            uniform[:2] + normal[:1],
            [uniform[1]],
            normal[1:] + uniform[3:],
            uniform + normal,
        ]
        for _ in range(2):
            with tf.Session(graph=graph) as session:
                for i in range(12):
                    fetches = wanted[i % len(wanted)]
                    made.append([np.asarray(v) for v in session.run(fetches, {"n:0": 3 + i % 4})])
    return made


def test_seeded_uniforms_are_equal_to_the_bit_and_normals_to_1e_6_over_signatures_and_sessions() -> None:
    ours, theirs = drawn(graphrt), drawn(v1)
    kinds = {0: "u" * 6, 1: "n" * 4, 2: "uun", 3: "u", 4: "nnnuuu", 5: "u" * 6 + "n" * 4}
    for number, (a, b) in enumerate(zip(ours, theirs)):
        for kind, x, y in zip(kinds[number % 12 % 6], a, b):
            assert x.dtype == y.dtype and x.shape == y.shape
            if kind == "u":
                np.testing.assert_array_equal(x, y, err_msg=f"run {number}")
            else:
                np.testing.assert_allclose(x, y, rtol=1e-6, atol=1e-6, err_msg=f"run {number}")
    for a, b in zip(ours[:12], ours[12:]):
        for x, y in zip(a, b):
            np.testing.assert_array_equal(x, y, err_msg="a second session draws the same")


def test_dropout_masks_are_tensorflows() -> None:
    def build(tf: Any) -> Built:
        x = tf.placeholder(tf.float32, [None, 32])
        dropped = tf.nn.dropout(x, rate=0.3)
        return Built(
            [dropped, tf.gradients(dropped, x)[0]], lambda i: {x: np.ones((1 + i % 5, 32), np.float32)}
        )

    assert_same_runs(build, rtol=1e-6)


@pytest.mark.parametrize("resource", [False, True])
@pytest.mark.parametrize("columns", [3, 16])
def test_views_of_a_read_see_later_updates_where_tensorflows_do(resource: bool, columns: int) -> None:
    """Slices of a ref variable's first axis share its memory if they begin on a boundary."""

    def build(tf: Any) -> Built:
        v = tf.Variable(np.arange(4 * columns, dtype=np.float32).reshape(4, columns), use_resource=resource)
        read = v.read_value()
        views = [
            read[1:3],
            read[2],
            read[:, 1:],
            tf.transpose(read),
            tf.reverse(read, [0]),
            tf.reshape(read, [-1]),
            tf.expand_dims(read, 0),
            tf.slice(read, [1, 0], [2, columns]),
            *tf.split(read, 2),
            *tf.split(read, 1, 1),
            *tf.unstack(read),
            tf.reshape(read[2:], [-1]),
            tf.stop_gradient(read),
        ]
        with tf.control_dependencies(views):
            added = tf.assign_add(v, 100.0 * tf.ones([4, columns]))
        with tf.control_dependencies([added]):
            return Built([x * 1.0 for x in views], lambda i: {})

    assert_same_runs(build, steps=3)
