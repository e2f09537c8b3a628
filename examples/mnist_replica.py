"""Asynchronous training on MNIST with parameter servers: between-graph replication.

    graphrt launch --ps 1 --workers 2 examples/mnist_replica.py
    graphrt launch --ps 2 --workers 3 examples/mnist_replica.py --model cnn --steps 1200

Every worker builds the graph with the variables on the parameter servers, and trains at its own pace until
the global step has come to its end. Worker 0 initialises and tests. Without `graphrt launch`, start a process
a task with TF_CONFIG, or with --ps-hosts, --worker-hosts, --job and --task.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from mnist_cnn import convolution, dense
from progress import Progress

import graphrt as tf
from graphrt.client.timeline import Timeline
from graphrt.cluster.cluster_spec import read_tf_config
from graphrt.examples import Mnist, load_mnist
from graphrt.tools.trace import report as time_report

MODELS = ("softmax", "mlp", "cnn")
WARM_STEPS = 3  # traced before the one that counts: the first meets cold code


@dataclass(frozen=True)
class Replica:
    """One worker's graph."""

    x: tf.Tensor
    labels: tf.Tensor
    loss: tf.Tensor
    accuracy: tf.Tensor
    global_step: tf.Variable
    train: tf.Operation


def logits_of(model: str, x: tf.Tensor) -> tf.Tensor:
    if model == "softmax":
        weights = tf.Variable(tf.zeros([784, 10]), name="weights")
        return tf.matmul(x, weights) + tf.Variable(tf.zeros([10]), name="biases")
    if model == "mlp":
        h = tf.nn.relu(dense(x, 512, "fc1"))
        return dense(tf.nn.relu(dense(h, 512, "fc2")), 10, "fc3")
    h = convolution(tf.reshape(x, [-1, 28, 28, 1]), 5, 32, "conv1")
    h = convolution(h, 5, 64, "conv2")
    return dense(tf.nn.relu(dense(tf.reshape(h, [-1, 7 * 7 * 64]), 1024, "fc1")), 10, "fc2")


def build(model: str, cluster: tf.train.ClusterSpec, index: int) -> Replica:
    """Variables on the parameter servers, in turn; everything else on this worker."""
    device = tf.train.replica_device_setter(worker_device=f"/job:worker/task:{index}", cluster=cluster)
    with tf.device(device):
        x = tf.placeholder(tf.float32, [None, 784], name="images")
        labels = tf.placeholder(tf.int64, [None], name="labels")
        logits = logits_of(model, x)
        entropies = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
        loss = tf.reduce_mean(entropies, name="loss")
        right = tf.equal(tf.argmax(logits, 1), labels)
        accuracy = tf.reduce_mean(tf.cast(right, tf.float32), name="accuracy")
        step = tf.train.get_or_create_global_step()
        if model == "softmax":
            optimizer = tf.train.GradientDescentOptimizer(0.3)
        else:
            optimizer = tf.train.AdamOptimizer(1e-3)
        train = optimizer.minimize(loss, global_step=step)
    return Replica(x, labels, loss, accuracy, step, train)


def tokens(name: str, ps: int, workers: int) -> tf.FIFOQueue:
    """A queue on a parameter server by which tasks tell each other how far they are."""
    with tf.device(f"/job:ps/task:{ps}"):
        return tf.FIFOQueue(workers, tf.int32, shapes=[[]], name=name, shared_name=f"{name}_{ps}")


def connect(server: tf.train.Server, *devices: str) -> tf.Session:
    """A session that knows only these tasks: others may start later, and end before."""
    return tf.Session(server.target, config=tf.ConfigProto(device_filters=devices))


def serve(server: tf.train.Server, index: int, workers: int) -> None:
    """A parameter server: it holds variables until every worker says that it is done."""
    finished = tokens("finished", index, workers).dequeue()
    with connect(server, f"/job:ps/task:{index}") as session:
        for _ in range(workers):
            session.run(finished)


def work(server: tf.train.Server, asked: argparse.Namespace) -> None:
    """A worker: trains until the global step says that it is enough; the first one tests."""
    cluster, index = asked.cluster, asked.task
    workers, servers = cluster.num_tasks("worker"), cluster.num_tasks("ps")
    mnist = load_mnist(asked.data, seed=index)
    tf.set_random_seed(1)
    replica = build(asked.model, cluster, index)
    initialise = tf.global_variables_initializer()
    ready = tokens("ready", 0, workers)
    start_others, wait_for_start = ready.enqueue_many([[0] * (workers - 1)]), ready.dequeue()
    finished = [tokens("finished", ps, workers).enqueue(index) for ps in range(servers)]
    with connect(server, "/job:ps", f"/job:worker/task:{index}") as session:
        if index == 0:
            session.run(initialise)
            session.run(start_others)
        else:
            session.run(wait_for_start)
        train(session, replica, mnist, asked)
        if index == 0:
            report(session, replica, mnist, asked.picture)
        for tell in finished:  # one at a time: a parameter server that ends does not take the next word along
            try:
                session.run(tell)
            except tf.errors.UnavailableError:
                pass  # it took our word and ended before it answered


def train(session: tf.Session, replica: Replica, mnist: Mnist, asked: argparse.Namespace) -> None:
    step, own, began = session.run(replica.global_step), 0, time.perf_counter()
    progress = Progress(asked.steps, step)
    while step < asked.steps:
        images, labels = mnist.train.next_batch(asked.batch)
        step, loss, _ = session.run([replica.global_step, replica.loss, replica.train],
                                    {replica.x: images, replica.labels: labels})
        own += 1
        if progress.is_due(step):
            progress.show(step, f"loss {loss:.4f}")
    took = time.perf_counter() - began
    print(f"{own} of the steps in {took:.1f} s, {1e3 * took / max(own, 1):.2f} ms for each", flush=True)


def report(session: tf.Session, replica: Replica, mnist: Mnist, picture: Path, batch: int = 1000) -> None:
    """Test, and draw the step."""
    test, right = mnist.test, 0.0
    for at in range(0, len(test), batch):
        images, labels = test.images[at:at + batch], test.labels[at:at + batch]
        right += len(labels) * session.run(replica.accuracy, {replica.x: images, replica.labels: labels})
    print(f"test accuracy {100 * right / len(test):.2f} %")
    print("where a step spends its time (traced, so slower):")
    print("\n".join(traced(session, replica, mnist)))
    picture.write_text(session.explain([replica.train], [replica.x, replica.labels]).html())
    print(f"the partitioned graph: {picture.resolve()}", flush=True)


def traced(session: tf.Session, replica: Replica, mnist: Mnist) -> list[str]:
    """The ops of a traced step that took most, on each device."""
    options = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE)
    for _ in range(WARM_STEPS + 1):
        images, labels = mnist.train.next_batch(100)
        metadata = tf.RunMetadata()
        session.run(replica.train, {replica.x: images, replica.labels: labels}, options, metadata)
    return time_report(Timeline(metadata.step_stats).events, top=3)


def arguments() -> argparse.Namespace:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--model", choices=MODELS, default="softmax",
                        help="what to train (default %(default)s)")
    parser.add_argument("--steps", type=int, default=2000,
                        help="global steps, all workers together (default %(default)s)")
    parser.add_argument("--batch", type=int, default=100, help="images a step (default %(default)s)")
    parser.add_argument("--data", metavar="FOLDER",
                        help="the four files of MNIST (default: found, else downloaded)")
    parser.add_argument("--picture", type=Path, default=Path("out/mnist_replica.html"), metavar="FILE",
                        help="where the picture of the partitioned graph goes (default %(default)s)")
    parser.add_argument("--ps-hosts", metavar="HOST:PORT,...", help="parameter servers, without TF_CONFIG")
    parser.add_argument("--worker-hosts", metavar="HOST:PORT,...", help="workers, without TF_CONFIG")
    parser.add_argument("--job", choices=("ps", "worker"), help="this task's job, without TF_CONFIG")
    parser.add_argument("--task", type=int, help="this task's number, without TF_CONFIG")
    asked = parser.parse_args()
    if asked.steps < 1 or asked.batch < 1:
        parser.error("--steps and --batch must be at least 1")
    by_hand = (asked.ps_hosts, asked.worker_hosts, asked.job, asked.task)
    found = read_tf_config()
    if all(value is not None for value in by_hand):
        hosts = {"ps": asked.ps_hosts.split(","), "worker": asked.worker_hosts.split(",")}
        asked.cluster = tf.train.ClusterSpec(hosts)
    elif found is not None and found.job in ("ps", "worker") and not any(by_hand):
        asked.cluster, asked.job, asked.task = found
    else:
        parser.error("start me with `graphrt launch --ps 1 --workers 2 examples/mnist_replica.py`, or give "
                     "--ps-hosts, --worker-hosts, --job and --task")
    if not {"ps", "worker"} <= set(asked.cluster.jobs):
        parser.error("the cluster needs parameter servers and workers (graphrt launch --ps 1 --workers 2)")
    return asked


def main() -> None:
    asked = arguments()
    try:
        asked.picture.parent.mkdir(parents=True, exist_ok=True)
        with tf.train.Server(asked.cluster, asked.job, asked.task) as server:
            if asked.job == "ps":
                serve(server, asked.task, asked.cluster.num_tasks("worker"))
            else:
                work(server, asked)
    except (OSError, ValueError, tf.OpError) as error:
        sys.exit(f"mnist_replica: {error}")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("\nmnist_replica: interrupted")
