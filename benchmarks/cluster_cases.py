"""Programs over one parameter server and one worker on loopback: each engine speaks to its own kind.

The worker is the benchmark's process, with its server in it, as in a between-graph program; the parameter
server is a process of its own, which ends when its parent closes its standard input.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from typing import Any

import numpy as np

from benchmarks.cases import Case, Step, _images

_HELD: list[Any] = []  # servers and processes live as long as the benchmark's process


def _free_ports(n: int) -> list[int]:
    sockets = [socket.socket() for _ in range(n)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def _session(tf: Any) -> Any:
    """A session on the worker of a fresh cluster, for the default graph."""
    ps, worker = _free_ports(2)
    cluster = {"ps": [f"127.0.0.1:{ps}"], "worker": [f"127.0.0.1:{worker}"]}
    engine = "graphrt" if tf.__name__.startswith("graphrt") else "tensorflow"
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.parameter_server", engine, json.dumps(cluster)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    if process.stdout.readline() != b"ready\n":
        raise RuntimeError(f"the {engine} parameter server ended with code {process.wait()}")
    server = tf.train.Server(tf.train.ClusterSpec(cluster), job_name="worker", task_index=0)
    _HELD.extend([process, server])
    session = tf.Session(server.target)
    session.run(tf.global_variables_initializer())
    return session


def server_run(tf: Any) -> Step:
    """run of a constant on a server"""
    c = tf.constant(3.0)
    with tf.device("/job:ps/task:0"):
        tf.Variable(0.0)
    session = _session(tf)
    return lambda: session.run(c)


def ps_null_fetch(tf: Any) -> Step:
    """fetch of a scalar from a parameter server"""
    with tf.device("/job:ps/task:0"):
        v = tf.Variable(1.0)
    session = _session(tf)
    return lambda: session.run(v)


def ps_scalar_update(tf: Any) -> Step:
    """scalar computed on the worker, added on the ps"""
    x = tf.placeholder(tf.float32, [])
    with tf.device("/job:ps/task:0"):
        v = tf.Variable(1.0)
    with tf.device("/job:worker/task:0"):
        delta = v * 0.001 + x
    with tf.device("/job:ps/task:0"):
        update = tf.assign_add(v, delta)
    session = _session(tf)
    return lambda: session.run(update.op, {x: 1.0})


def ps_softmax(tf: Any) -> Step:
    """softmax regression step, variables on the ps"""
    with tf.device("/job:ps/task:0"):
        w, b = tf.Variable(tf.zeros([784, 10])), tf.Variable(tf.zeros([10]))
    with tf.device("/job:worker/task:0"):
        x, labels = tf.placeholder(tf.float32, [None, 784]), tf.placeholder(tf.float32, [None, 10])
        logits = tf.matmul(x, w) + b
        loss = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(labels=labels, logits=logits))
    train = tf.train.GradientDescentOptimizer(0.5).minimize(loss)
    session = _session(tf)
    images, wanted = _images(100)
    return lambda: session.run(train, {x: images, labels: wanted})


def _large(megabytes: int) -> Any:
    def build(tf: Any) -> Step:
        with tf.device("/job:ps/task:0"):
            v = tf.Variable(tf.zeros([megabytes * 262144]))
        with tf.device("/job:worker/task:0"):
            delta = v * np.float32(0.5) + np.float32(1.0)
        with tf.device("/job:ps/task:0"):
            update = tf.assign_add(v, delta)
        session = _session(tf)
        return lambda: session.run(update.op)

    build.__name__, build.__doc__ = f"ps_{megabytes}mb", f"{megabytes} MB fetched and updated on the ps"
    return build


CLUSTER_CASES = [
    Case(server_run, 500),
    Case(ps_null_fetch, 500),
    Case(ps_scalar_update, 300),
    Case(ps_softmax, 300, 1.0),
    Case(_large(1), 60),
    Case(_large(100), 3),
]
