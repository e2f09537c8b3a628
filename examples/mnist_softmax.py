"""Softmax regression on MNIST, in one process.

    python examples/mnist_softmax.py                  trains 2,000 steps and tests
    python examples/mnist_softmax.py --devices 2      the same, cut over two CPU devices

It ends with the accuracy on the 10,000 test images, the time of a step and where it went, and the path of a
picture of the partitioned graph.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path

from progress import Progress

import graphrt as tf
from graphrt.examples import load_mnist

TRACED_STEPS = 20


def build(devices: int) -> dict[str, tf.Tensor | tf.Operation]:
    """The graph; of several devices, the first has the variables and the last computes."""
    with tf.device(f"/cpu:{devices - 1}"):
        x = tf.placeholder(tf.float32, [None, 784], name="images")
        labels = tf.placeholder(tf.float32, [None, 10], name="labels")
        with tf.device("/cpu:0"):
            weights = tf.Variable(tf.zeros([784, 10]), name="weights")
            biases = tf.Variable(tf.zeros([10]), name="biases")
        logits = tf.matmul(x, weights) + biases
        entropies = tf.nn.softmax_cross_entropy_with_logits(labels=labels, logits=logits)
        loss = tf.reduce_mean(entropies, name="loss")
        right = tf.equal(tf.argmax(logits, 1), tf.argmax(labels, 1))
        accuracy = tf.reduce_mean(tf.cast(right, tf.float32), name="accuracy")
        train = tf.train.GradientDescentOptimizer(0.3).minimize(loss)
    return {"x": x, "labels": labels, "loss": loss, "accuracy": accuracy, "train": train}


def where_time_went(session: tf.Session, target: tf.Operation, feeds: dict) -> list[str]:
    """Lines with the ops that took most, each the median over some traced steps."""
    steps: list[dict[str, float]] = []
    for _ in range(TRACED_STEPS):
        metadata = tf.RunMetadata()
        session.run(target, feeds, tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE), metadata)
        micros: dict[str, float] = {}
        for device in metadata.step_stats.dev_stats:
            for node in device.node_stats:
                name = node.timeline_label.partition(" = ")[2].partition("(")[0]
                micros[name] = micros.get(name, 0.0) + node.all_end_rel_nanos / 1e3
        steps.append(micros)
    medians = {name: statistics.median(s[name] for s in steps) for name in steps[0]}
    largest = sorted(medians.items(), key=lambda item: -item[1])[:5]
    total = sum(medians.values())
    return [f"  {name:<34} {micros:7.1f} us  {100 * micros / total:4.1f} %" for name, micros in largest]


def arguments() -> argparse.Namespace:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--steps", type=int, default=2000, help="training steps (default %(default)s)")
    parser.add_argument("--batch", type=int, default=100, help="images a step (default %(default)s)")
    parser.add_argument("--devices", type=int, default=1,
                        help="CPU devices to cut the graph over (default %(default)s)")
    parser.add_argument("--data", metavar="FOLDER",
                        help="the four files of MNIST (default: found, else downloaded)")
    parser.add_argument("--picture", type=Path, default=Path("out/mnist_softmax.html"), metavar="FILE",
                        help="where the picture of the partitioned graph goes (default %(default)s)")
    asked = parser.parse_args()
    if asked.steps < 1 or asked.batch < 1 or asked.devices < 1:
        parser.error("--steps, --batch and --devices must be at least 1")
    return asked


def main() -> None:
    asked = arguments()
    began = time.perf_counter()
    try:
        mnist = load_mnist(asked.data)
        asked.picture.parent.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        sys.exit(f"mnist_softmax: {error}")
    loaded = time.perf_counter()
    tf.set_random_seed(1)
    graph = build(asked.devices)
    with tf.Session(config=tf.ConfigProto(device_count={"CPU": asked.devices})) as session:
        session.run(tf.global_variables_initializer())
        built = time.perf_counter()
        progress, in_session = Progress(asked.steps), 0.0
        for step in range(1, asked.steps + 1):
            images, labels = mnist.train.next_batch(asked.batch, one_hot=True)
            feeds = {graph["x"]: images, graph["labels"]: labels}
            at = time.perf_counter()
            if progress.is_due(step):
                loss, _ = session.run([graph["loss"], graph["train"]], feeds)
                progress.show(step, f"loss {loss:.4f}")
            else:
                session.run(graph["train"], feeds)
            in_session += time.perf_counter() - at
        trained = time.perf_counter()
        tests = {graph["x"]: mnist.test.images, graph["labels"]: mnist.test.one_hot_labels}
        accuracy = session.run(graph["accuracy"], tests)
        tested = time.perf_counter()
        asked.picture.write_text(session.explain([graph["train"]], [graph["x"], graph["labels"]]).html())
        print(f"test accuracy {100 * accuracy:.2f} %")
        print(f"{1e3 * in_session / asked.steps:.3f} ms a step in the session")
        print(f"reading data {loaded - began:.2f} s, building and initialising {built - loaded:.2f} s, "
              f"training {trained - built:.2f} s with its batches, testing {tested - trained:.2f} s")
        print("of a step, by op (traced, so slower):")
        print("\n".join(where_time_went(session, graph["train"], feeds)))
    print(f"the partitioned graph: {asked.picture.resolve()}")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("\nmnist_softmax: interrupted")
