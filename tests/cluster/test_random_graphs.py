"""Random graphs over 3 tasks of 2 devices each give what one process gives."""

import os

import numpy as np
import pytest

import graphrt as tf

TASKS, DEVICES, GRAPHS, BATCH = 3, 2, 300, 25
_PLACES = ["", *[f"/job:w/task:{t}/cpu:{d}" for t in range(TASKS) for d in range(DEVICES)]]


@pytest.fixture(scope="module", params=["in-process", "grpc"])
def target(request):
    """Servers that all graphs share; half of the graphs run over gRPC."""
    if request.param == "grpc":
        from socket import socket

        held = [socket() for _ in range(TASKS)]
        for each in held:
            each.bind(("127.0.0.1", 0))
        addresses = [f"localhost:{each.getsockname()[1]}" for each in held]
        for each in held:
            each.close()
    else:
        addresses = [f"{os.urandom(4).hex()}:{i + 1}" for i in range(TASKS)]
    config = tf.ConfigProto(device_count={"CPU": DEVICES})
    servers = [
        tf.train.Server({"w": addresses}, "w", i, protocol=request.param, config=config) for i in range(TASKS)
    ]
    yield servers[0].target
    for server in servers:
        server.stop()


class Program:
    """A random graph: placeholders, variables of both kinds, arithmetic, branches, control edges, strings;
    and its steps.

    Args:
      seed: decides everything but where nodes are.
      places: a generator of devices, or None for no device at all.
    """

    def __init__(self, seed: int, places: np.random.Generator | None) -> None:
        self.rng = np.random.default_rng(seed)
        self.places = places
        with self.somewhere():
            self.x = tf.placeholder(tf.float32, [3, 3], name="x")
            self.choose = tf.placeholder(tf.bool, [], name="choose")
        self.values = [self.x]
        self.variables = []
        for i in range(int(self.rng.integers(1, 4))):
            initial = self.rng.normal(size=(3, 3)).astype(np.float32)
            with self.somewhere():
                self.variables.append(
                    tf.get_variable(f"v{i}", initializer=initial, use_resource=bool(self.rng.integers(2)))
                )
                self.values.append(self.variables[-1] * 1.5)
        for _ in range(int(self.rng.integers(5, 20))):
            with self.somewhere():
                self.values.append(self.node())
        self.updates = []
        for variable in self.variables:
            before = [self.pick().op, *[t.op for t in self.values]]
            with tf.control_dependencies(before):
                self.updates.append(tf.assign_add(variable, tf.tanh(self.pick())).op)
        with self.somewhere():
            self.text = tf.strings.join(
                [tf.as_string(tf.cast(tf.reduce_sum(self.pick()), tf.int32)), tf.constant("!")]
            )

    def somewhere(self):
        return tf.device(_PLACES[self.places.integers(len(_PLACES))] if self.places is not None else None)

    def pick(self):
        return self.values[int(self.rng.integers(len(self.values)))]

    def node(self):
        a, b = self.pick(), self.pick()
        kind = int(self.rng.integers(8))
        if kind == 0:
            return tf.tanh(tf.matmul(a, b))
        if kind == 1:
            return a + b
        if kind == 2:
            return tf.sigmoid(a) * b
        if kind == 3:
            return tf.concat([a[:2], b[2:]], 0)
        if kind == 4:
            return tf.cond(self.choose, lambda: a * 2.0, lambda: self.elsewhere(b))
        if kind == 5:
            with tf.control_dependencies([a.op]):
                return tf.identity(b)
        if kind == 6:
            first, second, third = tf.split(a, 3, 1)
            return tf.concat([third, first, second], 1)
        return tf.transpose(a) - tf.reduce_mean(b, 0, keepdims=True)

    def elsewhere(self, value):
        """The same branch, with an op on another device."""
        with self.somewhere():
            return tf.nn.relu(value) - 0.5

    def run(self, target: str) -> list:
        fetched = [t for t in self.values[1:]][-4:]
        seen = []
        with tf.Session(target) as session:
            session.run(tf.global_variables_initializer())
            for step in range(3):
                feeds = {
                    self.x: np.full((3, 3), 0.1 * step, np.float32) + np.eye(3, dtype=np.float32),
                    self.choose: step % 2 == 0,
                }
                seen += session.run([fetched, self.text], feeds)
                session.run(self.updates, feeds)
                seen.append(session.run(self.variables))
        return seen


@pytest.mark.parametrize(
    "batch", [0, *[pytest.param(i, marks=pytest.mark.slow) for i in range(1, GRAPHS // BATCH // 2)]]
)
def test_placement_does_not_change_what_a_graph_computes(target, batch):
    offset = GRAPHS if target.startswith("grpc") else 0
    for seed in range(offset + batch * BATCH, offset + (batch + 1) * BATCH):
        with tf.Graph().as_default():
            expected = Program(seed, None).run("")
        with tf.Graph().as_default():
            made = Program(seed, np.random.default_rng(seed + 1)).run(target)
        tf.Session.reset(target)
        for a, b in zip(expected, made):
            if isinstance(a, list):
                for x, y in zip(a, b):
                    np.testing.assert_allclose(y, x, rtol=1e-4, atol=1e-5, err_msg=f"seed {seed}")
            else:
                assert a == b, f"seed {seed}"
