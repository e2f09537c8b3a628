"""TF1's distributed tutorial: one graph, cut over three servers.

    python examples/mnist_softmax_distributed.py 1 &        a server that waits for work
    python examples/mnist_softmax_distributed.py 2 &        another
    python examples/mnist_softmax_distributed.py 0          builds the graph, trains over all three, and tests

    python examples/mnist_softmax_distributed.py            all three

Every process runs this script and is a server of the same cluster. The program is TensorFlow 1's but for its
import.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time

import graphrt as tf
from graphrt.examples import load_mnist

HOSTS = "localhost:2222,localhost:2223,localhost:2224"
STOPS_WITHIN_S = 5.0


def train(server: tf.train.Server, steps: int, batch: int, data: str | None) -> None:
    """The client: placeholders at the first worker, variables at the second, arithmetic at the third."""
    mnist = load_mnist(data)
    with tf.device("/job:worker/task:0"):
        x = tf.placeholder(tf.float32, [None, 784])
        labels = tf.placeholder(tf.float32, [None, 10])
    with tf.device("/job:worker/task:1"):
        weights = tf.Variable(tf.zeros([784, 10]))
        biases = tf.Variable(tf.zeros([10]))
    with tf.device("/job:worker/task:2"):
        logits = tf.matmul(x, weights) + biases
        loss = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(labels=labels, logits=logits))
        step = tf.train.GradientDescentOptimizer(0.5).minimize(loss)
        right = tf.equal(tf.argmax(logits, 1), tf.argmax(labels, 1))
        accuracy = tf.reduce_mean(tf.cast(right, tf.float32))

    with tf.Session(server.target) as session:
        session.run(tf.global_variables_initializer())
        began = time.perf_counter()
        for i in range(1, steps + 1):
            images, ones = mnist.train.next_batch(batch, one_hot=True)
            value, _ = session.run([loss, step], {x: images, labels: ones})
            if i % max(1, steps // 10) == 0:
                print(f"step {i}/{steps}  loss {value:.4f}", flush=True)
        each = (time.perf_counter() - began) / steps
        tests = {x: mnist.test.images, labels: mnist.test.one_hot_labels}
        print(f"test accuracy {100 * session.run(accuracy, tests):.2f} %, {1e3 * each:.2f} ms a step")


def run_task(task: int, hosts: list[str], asked: argparse.Namespace) -> None:
    """One server of the cluster; the first one trains, the others wait until they are stopped."""
    cluster = tf.train.ClusterSpec({"worker": hosts})
    server = tf.train.Server(cluster, job_name="worker", task_index=task)
    if task > 0:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        server.join()
    train(server, asked.steps, asked.batch, asked.data)


def run_all(hosts: list[str], asked: argparse.Namespace) -> None:
    """The first task here, the others as processes that end with it."""
    command = [sys.executable, os.path.abspath(__file__), "--hosts", asked.hosts]
    others = [subprocess.Popen([*command, str(task)]) for task in range(1, len(hosts))]
    try:
        run_task(0, hosts, asked)
    finally:
        for process in others:
            process.terminate()
        for process in others:
            try:
                process.wait(STOPS_WITHIN_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("task", nargs="?", type=int, choices=range(3),
                        help="which server this is; all three without")
    parser.add_argument("--hosts", default=HOSTS, metavar="HOST:PORT,...",
                        help="where the three servers are (default %(default)s)")
    parser.add_argument("--steps", type=int, default=1000, help="training steps (default %(default)s)")
    parser.add_argument("--batch", type=int, default=100, help="images a step (default %(default)s)")
    parser.add_argument("--data", metavar="FOLDER",
                        help="the four files of MNIST (default: found, else downloaded)")
    asked = parser.parse_args()
    hosts = asked.hosts.split(",")
    if len(hosts) != 3:
        parser.error("--hosts has the addresses of three servers")
    if asked.steps < 1 or asked.batch < 1:
        parser.error("--steps and --batch must be at least 1")
    try:
        if asked.task is None:
            run_all(hosts, asked)
        else:
            run_task(asked.task, hosts, asked)
    except (OSError, ValueError, tf.OpError) as error:
        sys.exit(f"mnist_softmax_distributed: {error}")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("\nmnist_softmax_distributed: interrupted")
