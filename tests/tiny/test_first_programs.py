"""Programs of a few lines, one for each thing the engine does. When everything is red, begin here.

They stand in the order of what they need: a program that fails makes those after it uninteresting.
"""

from __future__ import annotations

import numpy as np
import pytest

import graphrt as tf


def test_a_constant() -> None:
    with tf.Session() as sess:
        assert sess.run(tf.constant(3.0)) == 3.0


def test_an_op() -> None:
    with tf.Session() as sess:
        assert sess.run(tf.constant([1, 2]) + 1).tolist() == [2, 3]


def test_a_feed() -> None:
    x = tf.placeholder(tf.float32)
    with tf.Session() as sess:
        assert sess.run(x * 2.0, {x: 4.0}) == 8.0


def test_the_same_step_again_and_with_another_shape() -> None:
    x = tf.placeholder(tf.float32, [None])
    y = tf.reduce_sum(tf.square(x) + 1.0)
    with tf.Session() as sess:
        assert [sess.run(y, {x: [1.0] * n}) for n in (2, 2, 2, 3, 3, 3)] == [4, 4, 4, 6, 6, 6]


def test_only_what_is_asked_for_runs() -> None:
    x = tf.placeholder(tf.float32)
    y = x + 1.0
    with tf.Session() as sess:
        assert sess.run(tf.constant(1.0)) == 1.0
        assert sess.run(y * 3.0, {y: 2.0}) == 6.0


@pytest.mark.parametrize("resource", [False, True])
def test_a_variable(resource: bool) -> None:
    v = tf.Variable([1.0, 2.0], use_resource=resource)
    grow = tf.assign_add(v, [1.0, 1.0])
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        sess.run(grow)
        assert sess.run(v).tolist() == [2.0, 3.0]


def test_control_dependencies() -> None:
    v = tf.Variable(1)
    with tf.control_dependencies([tf.assign(v, 5)]):
        after = tf.identity(v) + 0
    with tf.Session() as sess:
        sess.run(v.initializer)
        assert sess.run(after) == 5


def test_a_gradient() -> None:
    x = tf.placeholder(tf.float32)
    (dy,) = tf.gradients(x * x * x, x)
    with tf.Session() as sess:
        assert sess.run(dy, {x: 2.0}) == 12.0


def test_training() -> None:
    w = tf.Variable(0.0)
    loss = tf.square(w - 3.0)
    train = tf.train.GradientDescentOptimizer(0.25).minimize(loss)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        assert [sess.run([train, loss])[1] for _ in range(3)] == [9.0, 2.25, 0.5625]


def test_a_branch() -> None:
    p, v = tf.placeholder(tf.bool), tf.Variable(0)
    y = tf.cond(p, lambda: tf.assign_add(v, 1) * 10, lambda: tf.constant(-1))
    with tf.Session() as sess:
        sess.run(v.initializer)
        assert [sess.run(y, {p: flag}) for flag in (True, False, True)] == [10, -1, 20]


def test_random_numbers_with_a_seed() -> None:
    tf.set_random_seed(1)
    x = tf.random_uniform([2])
    drawn = []
    for _ in range(2):
        with tf.Session() as sess:
            drawn.append([sess.run(x).tolist() for _ in range(2)])
    assert drawn[0] == drawn[1] and drawn[0][0] != drawn[0][1]


def test_a_queue() -> None:
    queue = tf.FIFOQueue(10, tf.int32)
    put, take = queue.enqueue_many([[1, 2]]), queue.dequeue()
    with tf.Session() as sess:
        sess.run(put)
        assert [sess.run(take), sess.run(take)] == [1, 2]


def test_two_devices() -> None:
    with tf.device("/cpu:0"):
        a = tf.constant([1.0, 2.0])
    with tf.device("/cpu:1"):
        b = a * 2.0
    with tf.device("/cpu:0"):
        c = b + a
    with tf.Session(config=tf.ConfigProto(device_count={"CPU": 2})) as sess:
        assert sess.run(c).tolist() == [3.0, 6.0]


def test_a_simulated_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHRT_SIM_GPUS", "1")
    x = tf.placeholder(tf.float32, [2, 2])
    with tf.device("/gpu:0"):
        y = tf.matmul(x, x)
    with tf.Session() as sess:
        assert [d.device_type for d in sess.list_devices()] == ["CPU", "GPU"]
        np.testing.assert_array_equal(sess.run(y, {x: [[1, 2], [3, 4]]}), [[7, 10], [15, 22]])


def test_a_graph_that_travels() -> None:
    tf.add(tf.placeholder(tf.float32, name="x"), 1.0, name="y")
    message = tf.get_default_graph().as_graph_def()
    with tf.Graph().as_default() as other:
        tf.import_graph_def(message, name="")
        with tf.Session(graph=other) as sess:
            assert sess.run("y:0", {"x:0": 2.0}) == 3.0


def test_an_error_names_the_op_and_the_line() -> None:
    x, y = tf.placeholder(tf.float32, [None]), tf.placeholder(tf.float32, [None])
    z = tf.add(x, y, name="sum")
    with (
        tf.Session() as sess,
        pytest.raises(tf.errors.InvalidArgumentError, match=r"(?s)'sum' \(AddV2\).*test_first_programs\.py"),
    ):
        sess.run(z, {x: [1.0, 2.0], y: [1.0, 2.0, 3.0]})
