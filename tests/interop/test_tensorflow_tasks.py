"""Clusters of one graphrt task and one TensorFlow task, each as master of the other."""

import importlib.util
import os

import numpy as np
import pytest

import graphrt

_spec = importlib.util.spec_from_file_location(
    "cluster_processes", os.path.join(os.path.dirname(os.path.dirname(__file__)), "cluster", "processes.py")
)
processes = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(processes)
FIRST, SECOND = "/job:worker/task:0", "/job:worker/task:1"


@pytest.fixture(scope="module", params=["graphrt master", "TensorFlow master"])
def cluster(request, tf):
    """(the library whose client runs, target): the master is task 0, the other library's worker is task 1."""
    is_ours = request.param == "graphrt master"
    addresses = processes.addresses(worker=2)
    started = [
        processes.TaskProcess(addresses, "worker", 0, tensorflow=not is_ours),
        processes.TaskProcess(addresses, "worker", 1, tensorflow=is_ours),
    ]
    try:
        for each in started:
            each.wait_until_ready()
        yield (graphrt if is_ours else tf.compat.v1), started[0].target
    finally:
        for each in started:
            each.close()


def model(lib, use_resource, first, second):
    """A feed-forward step over two devices: variables and a convolution on the second, a layer and the loss
    on the first."""
    rng = np.random.default_rng(0)
    labels = np.eye(5, dtype=np.float32)[rng.integers(0, 5, 32)]
    with lib.variable_scope("m", use_resource=use_resource):
        with lib.device(second):
            w = lib.get_variable("w", initializer=lib.constant(np.full((20, 8), 0.1, np.float32)))
            b = lib.get_variable("b", initializer=lib.constant(np.zeros(8, np.float32)))
        with lib.device(first):
            v = lib.get_variable(
                "v", initializer=lib.constant((np.arange(40).reshape(8, 5) * 0.01).astype(np.float32))
            )
        x, y = lib.placeholder(lib.float32, [None, 20]), lib.placeholder(lib.float32, [None, 5])
        with lib.device(second):
            h = lib.nn.relu(lib.nn.bias_add(lib.matmul(x, w), b))
            image, kernel = (
                lib.reshape(h, [-1, 4, 2, 1]),
                lib.constant(np.full((2, 2, 1, 1), 0.3, np.float32)),
            )
            c = lib.nn.relu(
                lib.nn.bias_add(lib.nn.conv2d(image, kernel, [1, 1, 1, 1], "SAME"), lib.constant([0.1]))
            )
        with lib.device(first):
            logits = lib.matmul(h + lib.reshape(c, [-1, 8]), v)
            loss = lib.reduce_mean(lib.nn.softmax_cross_entropy_with_logits_v2(labels=y, logits=logits))
        op = lib.train.GradientDescentOptimizer(0.1).minimize(loss)
    return loss, op, {x: rng.normal(size=(32, 20)).astype(np.float32), y: labels}


def losses(lib, target, use_resource, first="", second=""):
    with lib.Graph().as_default():
        loss, op, feeds = model(lib, use_resource, first, second)
        with lib.Session(target) as session:
            session.run(lib.global_variables_initializer())
            made = [session.run([loss, op], feeds)[0] for _ in range(20)]
        if target:
            lib.Session.reset(target)
    return made


@pytest.mark.parametrize("use_resource", [False, True], ids=["ref", "resource"])
def test_a_training_step_split_over_both_gives_the_losses_of_one_process(tf, cluster, use_resource):
    lib, target = cluster
    expected = losses(tf.compat.v1, "", use_resource)
    assert np.allclose(losses(lib, target, use_resource, FIRST, SECOND), expected, rtol=1e-5)


def test_dtypes_strings_and_dead_tensors_cross(cluster):
    lib, target = cluster
    with lib.Graph().as_default():
        choose = lib.placeholder(lib.bool, [])
        with lib.device(SECOND):
            there = [
                lib.identity(lib.cast(lib.constant([[0, 1], [2, 3]]), dtype))
                for dtype in (lib.float16, lib.float64, lib.int64, lib.uint8, lib.bool, lib.complex64)
            ]
            text = lib.strings.join([lib.as_string(lib.range(3)), lib.constant("é")])
            big = lib.range(1_000_000)
        with lib.device(FIRST):
            here = [lib.identity(t) for t in there]
            total = lib.reduce_sum(big)
            switched = lib.raw_ops.Switch(data=total, pred=choose)
        with lib.device(SECOND):
            alive = lib.raw_ops.Merge(inputs=[switched[0] * 0 - 1, switched[1] * 1])[0]
        with lib.Session(target) as session:
            made, words, count = session.run([here, lib.strings.join([text, text]), total])
            for value, dtype in zip(made, ("float16", "float64", "int64", "uint8", "bool", "complex64")):
                assert value.dtype == dtype and np.array_equal(
                    value, np.array([[0, 1], [2, 3]]).astype(dtype)
                )
            assert words.tolist() == [f"{i}é{i}é".encode() for i in range(3)]
            assert session.run(alive, {choose: True}) == count and session.run(alive, {choose: False}) == -1


def test_an_error_of_the_other_task_names_its_operation(cluster):
    lib, target = cluster
    with lib.Graph().as_default():
        with lib.device(SECOND):
            x = lib.placeholder_with_default(np.ones((2, 3), np.float32), [None, None])
            bad = lib.matmul(x, x, name="bad")
        with lib.device(FIRST):
            y = bad + 1.0
        with lib.Session(target) as session:
            with pytest.raises(lib.errors.InvalidArgumentError) as caught:
                session.run(y)
    assert caught.value.op.name == "bad" and "task:1" in caught.value.message


def test_a_traced_step_tells_of_both_tasks(cluster):
    lib, target = cluster
    with lib.Graph().as_default():
        x = lib.placeholder(lib.float32, [2])
        with lib.device(SECOND):
            a = x * 2.0
        with lib.device(FIRST):
            b = a + x
        metadata = lib.RunMetadata()
        with lib.Session(target) as session:
            session.run(b, {x: [1.0, 2.0]}, options=lib.RunOptions(trace_level=3), run_metadata=metadata)
    devices = {d.device for d in metadata.step_stats.dev_stats}
    assert {f"/job:worker/replica:0/task:{i}/device:CPU:0" for i in (0, 1)} <= devices
