"""The program of TensorFlow 1's distributed tutorials, with its import changed and nothing else."""

import os
import subprocess
import sys

PROGRAM = """
import sys
import numpy as np
import graphrt as tf

ports, task = sys.argv[1].split(","), int(sys.argv[2])
cluster = tf.train.ClusterSpec({"worker": ["localhost:" + p for p in ports]})
server = tf.train.Server(cluster, job_name="worker", task_index=task)
if task > 0:
    print("serving", flush=True)
    server.join()

rng = np.random.RandomState(0)
centres = rng.rand(10, 64)
labels = rng.randint(0, 10, 2000)
images = (centres[labels] + 0.3 * rng.randn(2000, 64)).astype("float32")
onehot = np.eye(10)[labels]

with tf.device("/job:worker/task:0"):
    x = tf.placeholder(tf.float32, [None, 64])
    y_ = tf.placeholder(tf.float32, [None, 10])
with tf.device("/job:worker/task:1"):
    W = tf.Variable(tf.zeros([64, 10]))
    b = tf.Variable(tf.zeros([10]))
    y = tf.matmul(x, W) + b
with tf.device("/job:worker/task:2"):
    cross_entropy = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(labels=y_, logits=y))
    correct = tf.equal(tf.argmax(y, 1), tf.argmax(y_, 1))
    accuracy = tf.reduce_mean(tf.cast(correct, tf.float32))
train_step = tf.train.GradientDescentOptimizer(0.5).minimize(cross_entropy)

with tf.Session(server.target) as sess:
    sess.run(tf.global_variables_initializer())
    for i in range(200):
        batch = np.arange(i * 50, i * 50 + 50) % 1500
        sess.run(train_step, feed_dict={x: images[batch], y_: onehot[batch]})
    print("accuracy", sess.run(accuracy, feed_dict={x: images[1500:], y_: onehot[1500:]}), flush=True)
"""


def test_three_workers_train_a_softmax_regression(addresses, tmp_path):
    ports = ",".join(a.rpartition(":")[2] for a in addresses(worker=3)["worker"])
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    started = []
    try:
        for task in (2, 1, 0):
            started.append(
                subprocess.Popen(
                    [sys.executable, script, ports, str(task)],
                    stdout=subprocess.PIPE,
                    text=True,
                    env={**os.environ, "PYTHONPATH": os.getcwd()},
                )
            )
        output, _ = started[-1].communicate(timeout=120)
        assert started[-1].returncode == 0
        word, accuracy = output.split()
        assert word == "accuracy" and float(accuracy) > 0.9
    finally:
        for each in started:
            each.kill()
            each.communicate()
