"""LeNet with dropout on MNIST, in one process.

    python examples/mnist_cnn.py                   two epochs, 98.5 % or more in a few minutes
    python examples/mnist_cnn.py --devices 3       its layers spread over three CPU devices
"""

from __future__ import annotations

import argparse
import sys
import time

import graphrt as tf
from graphrt.examples import load_mnist


def convolution(x: tf.Tensor, size: int, outer: int, name: str) -> tf.Tensor:
    """Convolution, bias, relu and 2 x 2 max pooling: [n, h, w, c] to [n, h / 2, w / 2, outer]."""
    with tf.variable_scope(name):
        weights = tf.get_variable("weights", [size, size, int(x.shape[-1]), outer],
                                  initializer=tf.truncated_normal_initializer(stddev=0.1))
        biases = tf.get_variable("biases", [outer], initializer=tf.constant_initializer(0.1))
        x = tf.nn.relu(tf.nn.conv2d(x, weights, [1, 1, 1, 1], "SAME") + biases)
        return tf.nn.max_pool(x, [1, 2, 2, 1], [1, 2, 2, 1], "SAME")


def dense(x: tf.Tensor, outer: int, name: str) -> tf.Tensor:
    with tf.variable_scope(name):
        weights = tf.get_variable("weights", [int(x.shape[-1]), outer],
                                  initializer=tf.truncated_normal_initializer(stddev=0.1))
        return tf.matmul(x, weights) + tf.get_variable("biases", [outer], initializer=tf.constant_initializer(0.1))


def build(devices: int, rate: float) -> dict[str, tf.Tensor | tf.Operation]:
    """The graph; layer i is on device i modulo `devices`."""
    x = tf.placeholder(tf.float32, [None, 784], name="images")
    labels = tf.placeholder(tf.int64, [None], name="labels")
    keep_prob = tf.placeholder_with_default(1.0, [], name="keep_prob")
    h = tf.reshape(x, [-1, 28, 28, 1])
    with tf.device("/cpu:0"):
        h = convolution(h, 5, 32, "conv1")
    with tf.device(f"/cpu:{1 % devices}"):
        h = convolution(h, 5, 64, "conv2")
    with tf.device(f"/cpu:{2 % devices}"):
        h = tf.nn.relu(dense(tf.reshape(h, [-1, 7 * 7 * 64]), 1024, "fc1"))
        h = tf.nn.dropout(h, keep_prob=keep_prob)
    with tf.device(f"/cpu:{3 % devices}"):
        logits = dense(h, 10, "fc2")
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
        accuracy = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, 1), labels), tf.float32))
    train = tf.train.AdamOptimizer(rate).minimize(loss, colocate_gradients_with_ops=devices > 1)
    return {"x": x, "labels": labels, "keep_prob": keep_prob, "loss": loss, "accuracy": accuracy, "train": train}


def test_accuracy(session: tf.Session, graph: dict, split: object, batch: int = 1000) -> float:
    total = 0.0
    for at in range(0, len(split), batch):
        images, labels = split.images[at:at + batch], split.labels[at:at + batch]
        total += len(labels) * session.run(graph["accuracy"], {graph["x"]: images, graph["labels"]: labels})
    return total / len(split)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=float, default=2.0, help="passes over the 60,000 images (default %(default)s)")
    parser.add_argument("--steps", type=int, help="training steps, in place of --epochs")
    parser.add_argument("--batch", type=int, default=50, help="images a step (default %(default)s)")
    parser.add_argument("--rate", type=float, default=1e-3, help="learning rate of Adam (default %(default)s)")
    parser.add_argument("--devices", type=int, default=1, help="CPU devices to spread the layers over (default %(default)s)")
    parser.add_argument("--data", help="folder with the four MNIST files (default: found or downloaded)")
    asked = parser.parse_args()
    if asked.batch < 1 or asked.devices < 1 or (asked.steps is not None and asked.steps < 1):
        parser.error("--batch, --devices and --steps must be at least 1")

    mnist = load_mnist(asked.data)
    steps = asked.steps or max(1, int(asked.epochs * len(mnist.train) / asked.batch))
    tf.set_random_seed(1)
    graph = build(asked.devices, asked.rate)
    with tf.Session(config=tf.ConfigProto(device_count={"CPU": asked.devices})) as session:
        session.run(tf.global_variables_initializer())
        began = time.perf_counter()
        for step in range(1, steps + 1):
            images, labels = mnist.train.next_batch(asked.batch)
            feeds = {graph["x"]: images, graph["labels"]: labels, graph["keep_prob"]: 0.5}
            loss, _ = session.run([graph["loss"], graph["train"]], feeds)
            if step % max(1, steps // 20) == 0:
                each = (time.perf_counter() - began) / step
                line = f"step {step:5d}/{steps}  loss {loss:.4f}  {1e3 * each:6.1f} ms a step  {each * (steps - step):4.0f} s to go"
                print("\r" + line if sys.stdout.isatty() else line, end="" if sys.stdout.isatty() else "\n", flush=True)
        took = time.perf_counter() - began
        print(f"\ntest accuracy {100 * test_accuracy(session, graph, mnist.test):.2f} %")
        print(f"{steps} steps in {took:.1f} s, {1e3 * took / steps:.1f} ms a step")


if __name__ == "__main__":
    main()
