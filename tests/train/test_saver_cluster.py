"""A checkpoint of variables on two servers: written by both, in two shards, and restored on others."""

import os
import socket

import numpy as np

import graphrt as tf


def _addresses(count):
    """Addresses that were free a moment ago."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    made = [f"127.0.0.1:{s.getsockname()[1]}" for s in sockets]
    for s in sockets:
        s.close()
    return made


def _model():
    for task in range(2):
        with tf.device(f"/job:ps/task:{task}"):
            tf.get_variable(f"w{task}", initializer=np.arange(5.0) + task)
    with tf.device(tf.train.replica_device_setter(2)):
        tf.get_variable(
            "parts",
            [6, 2],
            partitioner=tf.fixed_size_partitioner(2),
            initializer=tf.random_normal_initializer(seed=1),
        )
    return tf.train.Saver(sharded=True)


def test_variables_on_two_servers_are_saved_in_two_shards_and_restored(tmp_path):
    values = []
    for is_restored in (False, True):
        cluster = tf.train.ClusterSpec({"ps": _addresses(2)})
        servers = [tf.train.Server(cluster, "ps", task) for task in range(2)]
        try:
            with tf.Graph().as_default(), tf.Session(servers[0].target) as session:
                saver = _model()
                if is_restored:
                    saver.restore(session, tf.train.latest_checkpoint(str(tmp_path)))
                else:
                    session.run(tf.global_variables_initializer())
                    prefix = saver.save(session, str(tmp_path / "m"), global_step=7)
                values.append(session.run(tf.global_variables()))
        finally:
            for server in servers:
                server.stop()
    for before, after in zip(*values):
        np.testing.assert_array_equal(before, after)
    assert sorted(os.listdir(tmp_path)) == [
        "checkpoint",
        *(f"m-7.{kind}" for kind in ("data-00000-of-00002", "data-00001-of-00002", "index", "meta")),
    ]
    assert tf.train.list_variables(prefix) == [("parts", [6, 2]), ("w0", [5]), ("w1", [5])]
    np.testing.assert_array_equal(tf.train.load_variable(prefix, "parts"), np.concatenate(values[0][2:]))
