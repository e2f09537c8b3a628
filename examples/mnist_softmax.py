"""Softmax regression on MNIST, in one process.

    python examples/mnist_softmax.py                  trains 2,000 steps and tests
    python examples/mnist_softmax.py --devices 2      the same, cut over two CPU devices

It ends with the accuracy on the 10,000 test images, the time of a step and where it went, and the path of a picture of the
partitioned graph.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

import graphrt as tf
from graphrt.examples import load_mnist


def build(devices: int) -> dict[str, tf.Tensor | tf.Operation]:
    """The graph; with several devices the gradient is computed on the last, the variables are on the first."""
    with tf.device(f"/cpu:{devices - 1}"):
        x = tf.placeholder(tf.float32, [None, 784], name="images")
        labels = tf.placeholder(tf.float32, [None, 10], name="labels")
        with tf.device("/cpu:0"):
            weights = tf.Variable(tf.zeros([784, 10]), name="weights")
            biases = tf.Variable(tf.zeros([10]), name="biases")
        logits = tf.matmul(x, weights) + biases
        loss = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(labels=labels, logits=logits), name="loss")
        right = tf.equal(tf.argmax(logits, 1), tf.argmax(labels, 1))
        accuracy = tf.reduce_mean(tf.cast(right, tf.float32), name="accuracy")
        train = tf.train.GradientDescentOptimizer(0.5).minimize(loss)
    return {"x": x, "labels": labels, "loss": loss, "accuracy": accuracy, "train": train}


def progress(step: int, steps: int, loss: float, began: float) -> None:
    """One line that is drawn over on a terminal; a line at every tenth elsewhere."""
    done = step / steps
    text = f"step {step:5d}/{steps}  loss {loss:.4f}  {step / max(time.perf_counter() - began, 1e-9):7,.0f} steps/s"
    if sys.stdout.isatty():
        bar = "#" * int(30 * done)
        print(f"\r[{bar:<30}] {text}", end="\n" if step == steps else "", flush=True)
    elif step % max(1, steps // 10) == 0:
        print(text, flush=True)


def where_time_went(session: tf.Session, graph: dict, feeds: dict, steps: int = 20) -> list[str]:
    """Lines with the ops that took most, from traced steps."""
    micros: dict[str, float] = {}
    for _ in range(steps):
        metadata = tf.RunMetadata()
        session.run(graph["train"], feeds, tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE), metadata)
        for device in metadata.step_stats.dev_stats:
            for node in device.node_stats:
                name = node.timeline_label.partition(" = ")[2].partition("(")[0]
                micros[name] = micros.get(name, 0.0) + node.all_end_rel_nanos / 1e3 / steps
    total = sum(micros.values())
    largest = sorted(micros.items(), key=lambda item: -item[1])[:5]
    return [f"  {name:<34} {us:7.1f} us  {100 * us / total:4.1f} %" for name, us in largest]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=2000, help="training steps (default %(default)s)")
    parser.add_argument("--batch", type=int, default=100, help="images a step (default %(default)s)")
    parser.add_argument("--devices", type=int, default=1, help="CPU devices to cut the graph over (default %(default)s)")
    parser.add_argument("--data", help="folder with the four MNIST files (default: found or downloaded)")
    parser.add_argument("--picture", help="where the picture of the partitioned graph goes (default: a temporary file)")
    parser.add_argument("--demo", action="store_true", help="what `make demo` runs: two devices")
    asked = parser.parse_args()
    devices = 2 if asked.demo and asked.devices == 1 else asked.devices
    if asked.steps < 1 or asked.batch < 1 or devices < 1:
        parser.error("--steps, --batch and --devices must be at least 1")

    began = time.perf_counter()
    mnist = load_mnist(asked.data)
    loaded = time.perf_counter()
    tf.set_random_seed(1)
    graph = build(devices)
    config = tf.ConfigProto(device_count={"CPU": devices})
    with tf.Session(config=config) as session:
        session.run(tf.global_variables_initializer())
        built = time.perf_counter()
        training = 0.0
        for step in range(1, asked.steps + 1):
            images, labels = mnist.train.next_batch(asked.batch, one_hot=True)
            feeds = {graph["x"]: images, graph["labels"]: labels}
            at = time.perf_counter()
            if step % 50 == 0 or step == asked.steps:
                loss, _ = session.run([graph["loss"], graph["train"]], feeds)
                progress(step, asked.steps, loss, built)
            else:
                session.run(graph["train"], feeds)
            training += time.perf_counter() - at
        trained = time.perf_counter()
        tests = {graph["x"]: mnist.test.images, graph["labels"]: mnist.test.one_hot_labels}
        accuracy = session.run(graph["accuracy"], tests)
        print(f"test accuracy {100 * accuracy:.2f} %")
        print(f"{1e3 * training / asked.steps:.3f} ms a step in the session "
              f"(reading data {loaded - began:.2f} s, building and initialising {built - loaded:.2f} s, "
              f"training {trained - built:.2f} s with its batches)")
        print("of a step, by op:")
        print("\n".join(where_time_went(session, graph, feeds)))
        picture = Path(asked.picture or Path(tempfile.gettempdir()) / f"graphrt-mnist-softmax-{os.getuid()}.html")
        picture.write_text(session.explain([graph["train"]], [graph["x"], graph["labels"]]).html())
        print(f"the partitioned graph: {picture}")


if __name__ == "__main__":
    main()
