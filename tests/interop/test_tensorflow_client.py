"""A real TensorFlow client in this process, and a graphrt server in another."""

import importlib.util
import os

import numpy as np
import pytest

_spec = importlib.util.spec_from_file_location(
    "cluster_processes", os.path.join(os.path.dirname(os.path.dirname(__file__)), "cluster", "processes.py")
)
processes = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(processes)


@pytest.fixture(scope="module")
def server(tf):
    cluster = processes.addresses(worker=1)
    made = processes.TaskProcess(cluster, "worker", 0)
    made.wait_until_ready()
    yield made
    made.close()


@pytest.fixture
def v1(tf):
    with tf.Graph().as_default():
        yield tf.compat.v1


@pytest.fixture
def session(v1, server):
    """session(): a TensorFlow session at the server; its containers are cleared at the end."""
    opened = []

    def make():
        opened.append(v1.Session(server.target))
        return opened[-1]

    yield make
    for each in opened:
        each.close()
    v1.Session.reset(server.target)


def trained(tf, target, build, steps):
    v1 = tf.compat.v1
    with tf.Graph().as_default():
        loss, op, feeds = build(v1)
        with v1.Session(target) as session:
            session.run(v1.global_variables_initializer())
            made = [session.run([loss, op], feeds)[0] for _ in range(steps)]
        if target:
            v1.Session.reset(target)
    return made


def softmax_regression(use_resource):
    def build(v1):
        rng = np.random.default_rng(0)
        labels = np.eye(5, dtype=np.float32)[rng.integers(0, 5, 32)]
        with v1.variable_scope("m", use_resource=use_resource):
            x, y = v1.placeholder(v1.float32, [None, 20]), v1.placeholder(v1.float32, [None, 5])
            w = v1.get_variable("w", [20, 5], initializer=v1.random_normal_initializer(seed=3))
            b = v1.get_variable("b", [5], initializer=v1.zeros_initializer())
            loss = v1.reduce_mean(
                v1.nn.softmax_cross_entropy_with_logits_v2(labels=y, logits=v1.nn.relu(v1.matmul(x, w) + b))
            )
            op = v1.train.AdamOptimizer(0.01).minimize(loss)
        return loss, op, {x: rng.normal(size=(32, 20)).astype(np.float32), y: labels}

    return build


def convolution(v1):
    x = v1.placeholder(v1.float32, [None, 12, 12, 1])
    w = v1.get_variable("w", [3, 3, 1, 4], initializer=v1.random_normal_initializer(seed=5))
    h = v1.nn.relu(v1.nn.conv2d(x, w, [1, 1, 1, 1], "SAME"))
    loss = v1.reduce_sum(v1.square(v1.nn.max_pool(h, [1, 2, 2, 1], [1, 2, 2, 1], "SAME")))
    op = v1.train.GradientDescentOptimizer(1e-3).minimize(loss)
    return loss, op, {x: np.random.default_rng(0).normal(size=(4, 12, 12, 1)).astype(np.float32)}


@pytest.mark.parametrize(
    "build, steps",
    [(softmax_regression(False), 50), (softmax_regression(True), 50), (convolution, 20)],
    ids=["ref", "resource", "conv"],
)
def test_training_gives_the_losses_of_tensorflows_own_session(tf, server, build, steps):
    assert np.allclose(trained(tf, server.target, build, steps), trained(tf, "", build, steps), rtol=1e-5)


def test_cond_v2_and_its_gradient(tf, v1, session):
    assert v1.control_flow_v2_enabled() or tf.__version__
    v1.enable_control_flow_v2()
    p = v1.placeholder(v1.bool, [])
    v = v1.get_variable("v", [], use_resource=True, initializer=v1.ones_initializer())
    y = v1.cond(p, lambda: v * 2.0, lambda: v - 1.0)
    g = v1.gradients(y, v)[0]
    assert {"If", "StatelessIf"} & {op.type for op in v1.get_default_graph().get_operations()}
    s = session()
    s.run(v1.global_variables_initializer())
    assert s.run([y, g], {p: True}) == [2.0, 2.0] and s.run([y, g], {p: False}) == [0.0, 1.0]


def test_strings(v1, session):
    a = v1.placeholder(v1.string, [None])
    joined = v1.strings.join([a, v1.constant("!")])
    made, sizes = session().run([joined, v1.strings.length(joined)], {a: ["ab", "cdé"]})
    assert made.tolist() == [b"ab!", "cdé!".encode()] and sizes.tolist() == [3, 5]


def test_partial_run(v1, session):
    a, b = v1.placeholder(v1.float32, []), v1.placeholder(v1.float32, [])
    c = a + 1.0
    d = c * b
    s = session()
    handle = s.partial_run_setup([c, d], [a, b])
    assert s.partial_run(handle, c, {a: 2.0}) == 3.0 and s.partial_run(handle, d, {b: 5.0}) == 15.0


def test_callables(v1, session):
    from tensorflow.core.protobuf import config_pb2

    a = v1.placeholder(v1.float32, [2])
    b = a * 2.0
    s = session()
    assert s.make_callable(b, [a])([1.0, 2.0]).tolist() == [2.0, 4.0]
    options = config_pb2.CallableOptions(feed=[a.name], fetch=[b.name, a.name, b.name])
    call = s._make_callable_from_options(options)
    assert [m.tolist() for m in call(np.array([3.0, 4.0], np.float32))] == [
        [6.0, 8.0],
        [3.0, 4.0],
        [6.0, 8.0],
    ]
    del call


def test_a_full_trace_and_partition_graphs(v1, session):
    x = v1.placeholder(v1.float32, [2, 2])
    y = v1.matmul(x, x, name="product")
    metadata = v1.RunMetadata()
    session().run(
        y,
        {x: np.eye(2)},
        options=v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE, output_partition_graphs=True),
        run_metadata=metadata,
    )
    names = {n.node_name for d in metadata.step_stats.dev_stats for n in d.node_stats}
    assert "product" in names and any(n.name == "product" for g in metadata.partition_graphs for n in g.node)


def test_list_devices(v1, session):
    v1.constant(0)
    (device,) = session().list_devices()
    assert (
        device.name == "/job:worker/replica:0/task:0/device:CPU:0"
        and device.device_type == "CPU"
        and device.incarnation
    )


def test_the_graph_grows_between_runs(v1, session):
    a = v1.constant(1.0)
    s = session()
    assert s.run(a) == 1.0
    assert s.run(a + 2.0) == 3.0


def test_reset_clears_variables(v1, session, server):
    v = v1.get_variable("v", [], initializer=v1.ones_initializer())
    s = session()
    s.run(v.initializer)
    assert session().run(v) == 1.0
    v1.Session.reset(server.target)
    with pytest.raises(v1.errors.FailedPreconditionError):
        session().run(v)


def test_errors_have_the_class_and_the_operation(v1, session):
    x = v1.placeholder(v1.float32, [None, None])
    product = v1.matmul(x, x, name="my_product")
    taken = v1.FIFOQueue(1, v1.float32).dequeue()
    bad_shape = v1.reshape(x, v1.placeholder(v1.int32, [1], name="size"))
    s = session()
    with pytest.raises(v1.errors.InvalidArgumentError, match="inner sizes") as caught:
        s.run(product, {x: [[1.0, 2.0]]})
    assert caught.value.op.name == "my_product"
    with pytest.raises(v1.errors.DeadlineExceededError):
        s.run(taken, options=v1.RunOptions(timeout_in_ms=300))
    with pytest.raises(v1.errors.InvalidArgumentError, match="reshape|Reshape"):
        s.run(bad_shape, {x: [[1.0, 2.0]], "size:0": [3]})


def test_a_feed_of_200_megabytes(v1, session):
    x = v1.placeholder(v1.float32, [None])
    assert session().run(v1.reduce_sum(x), {x: np.ones(50_000_000, np.float32)}) == 50_000_000
