"""The programs that are timed. Each is written once against TF1's API and given graphrt or TensorFlow's
compat.v1.

A case is a function of `tf` that builds a graph and returns a step: a callable without arguments. Its
docstring is its line in the table. `CASES` lists them with how many steps make one measurement.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np

Step = Callable[[], Any]


@dataclass(frozen=True)
class Case:
    """`steps` steps are one measurement; `bar` is how many times as fast as TensorFlow graphrt means to be,
    or None."""

    build: Callable[[Any], Step]
    steps: int
    bar: float | None = None

    @property
    def name(self) -> str:
        return self.build.__name__

    @property
    def title(self) -> str:
        return (self.build.__doc__ or self.name).strip()


def _images(n: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    labels = np.zeros((n, 10), np.float32)
    labels[np.arange(n), rng.integers(0, 10, n)] = 1
    return rng.random((n, 784), np.float32), labels


def constant(tf: Any) -> Step:
    """run of a constant"""
    c = tf.constant(3.0)
    session = tf.Session()
    return lambda: session.run(c)


def feed_scalar(tf: Any) -> Step:
    """feed + one scalar op"""
    x = tf.placeholder(tf.float32, [])
    y = x + 1.0
    session = tf.Session()
    return lambda: session.run(y, {x: 2.0})


def softmax(tf: Any) -> Step:
    """softmax regression step, batch 100"""
    x, labels = tf.placeholder(tf.float32, [None, 784]), tf.placeholder(tf.float32, [None, 10])
    w, b = tf.Variable(tf.zeros([784, 10])), tf.Variable(tf.zeros([10]))
    loss = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(labels=labels, logits=tf.matmul(x, w) + b))
    train = tf.train.GradientDescentOptimizer(0.5).minimize(loss)
    return _train(tf, train, {x: 0, labels: 1}, 100)


def _train(tf: Any, train: Any, feeds: dict[Any, int], batch: int) -> Step:
    session = tf.Session()
    session.run(tf.global_variables_initializer())
    batches = _images(batch)
    feed = {t: batches[i] for t, i in feeds.items()}
    return lambda: session.run(train, feed)


def _dense(tf: Any, x: Any, n: int, name: str) -> Any:
    w = tf.get_variable(
        name + "_w", [x.shape[-1], n], initializer=tf.truncated_normal_initializer(stddev=0.1)
    )
    b = tf.get_variable(name + "_b", [n], initializer=tf.zeros_initializer())
    return tf.matmul(x, w) + b


def mlp_adam(tf: Any) -> Step:
    """784-512-512-10 MLP + Adam, batch 100"""
    x, labels = tf.placeholder(tf.float32, [None, 784]), tf.placeholder(tf.float32, [None, 10])
    h = tf.nn.relu(_dense(tf, x, 512, "h1"))
    h = tf.nn.relu(_dense(tf, h, 512, "h2"))
    loss = tf.reduce_mean(
        tf.nn.softmax_cross_entropy_with_logits(labels=labels, logits=_dense(tf, h, 10, "out"))
    )
    return _train(tf, tf.train.AdamOptimizer().minimize(loss), {x: 0, labels: 1}, 100)


def lenet(tf: Any) -> Step:
    """LeNet with dropout + Adam, batch 50"""
    x, labels = tf.placeholder(tf.float32, [None, 784]), tf.placeholder(tf.float32, [None, 10])
    h = tf.reshape(x, [-1, 28, 28, 1])
    for i, (inner, outer) in enumerate(((1, 32), (32, 64))):
        w = tf.get_variable(
            f"conv{i}_w", [5, 5, inner, outer], initializer=tf.truncated_normal_initializer(stddev=0.1)
        )
        b = tf.get_variable(f"conv{i}_b", [outer], initializer=tf.constant_initializer(0.1))
        h = tf.nn.relu(tf.nn.conv2d(h, w, [1, 1, 1, 1], "SAME") + b)
        h = tf.nn.max_pool(h, [1, 2, 2, 1], [1, 2, 2, 1], "SAME")
    h = tf.nn.relu(_dense(tf, tf.reshape(h, [-1, 7 * 7 * 64]), 1024, "fc"))
    h = tf.nn.dropout(h, keep_prob=0.5)
    loss = tf.reduce_mean(
        tf.nn.softmax_cross_entropy_with_logits(labels=labels, logits=_dense(tf, h, 10, "out"))
    )
    return _train(tf, tf.train.AdamOptimizer(1e-4).minimize(loss), {x: 0, labels: 1}, 50)


def chain(tf: Any) -> Step:
    """1,000 chained ops on 16 floats"""
    x = tf.placeholder(tf.float32, [16])
    y = _chain(tf, 1000, x)
    session, ones = tf.Session(), np.ones(16, np.float32)
    return lambda: session.run(y.op, {x: ones})


def _chain(tf: Any, n: int, y: Any) -> Any:
    for _ in range(n // 2):
        y = tf.tanh(y)
        y = y * y
    return y


def _build(n: int) -> Callable[[Any], Step]:
    def build(tf: Any) -> Step:
        def step() -> None:
            with tf.Graph().as_default():
                _chain(tf, n, tf.placeholder(tf.float32, [16]))

        return step

    build.__name__, build.__doc__ = f"build_{n}", f"build a graph of {n:,} nodes"
    return build


def _compile(n: int) -> Callable[[Any], Step]:
    def compile_(tf: Any) -> Any:
        graph = tf.Graph()
        with graph.as_default():
            x = tf.placeholder(tf.float32, [16])
            y = _chain(tf, n, x)

        def step() -> float:
            # The session is made outside of what is timed; a step reports its own seconds.
            session = tf.Session(graph=graph)
            begin = perf_counter()
            session.run(y, {x: np.ones(16, np.float32)})
            took = perf_counter() - begin
            session.close()
            return took

        return step

    compile_.__name__, compile_.__doc__ = f"compile_{n}", f"first run of {n:,} nodes (compile + run)"
    return compile_


CASES = [
    Case(constant, 2000, 6.0),
    Case(feed_scalar, 2000),
    Case(softmax, 500, 3.0),
    Case(mlp_adam, 60),
    Case(lenet, 10),
    Case(chain, 200),
    Case(_build(10_000), 1),
    Case(_build(36_000), 1),
    Case(_compile(10_000), 1),
    Case(_compile(36_000), 1),
]
