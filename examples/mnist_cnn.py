"""LeNet with dropout on MNIST, in one process.

    python examples/mnist_cnn.py                   a pass and a quarter over the data: 98.5 % or more
    python examples/mnist_cnn.py --devices 3       its layers spread over three CPU devices

It ends with the accuracy on the 10,000 test images, the time of a step, and the path of a picture of the
partitioned graph.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from progress import Progress

import graphrt as tf
from graphrt.examples import Split, load_mnist


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
        biases = tf.get_variable("biases", [outer], initializer=tf.constant_initializer(0.1))
        return tf.matmul(x, weights) + biases


def build(devices: int, rate: float, steps: int) -> dict[str, tf.Tensor | tf.Operation]:
    """The graph; layer i is on device i modulo `devices`. The learning rate falls to 0 in `steps`."""
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
        entropies = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
        loss = tf.reduce_mean(entropies, name="loss")
        right = tf.equal(tf.argmax(logits, 1), labels)
        accuracy = tf.reduce_mean(tf.cast(right, tf.float32), name="accuracy")
    step = tf.train.get_or_create_global_step()
    falling = tf.train.polynomial_decay(rate, step, steps, end_learning_rate=0.0)
    train = tf.train.AdamOptimizer(falling).minimize(loss, step, colocate_gradients_with_ops=devices > 1)
    return {"x": x, "labels": labels, "keep_prob": keep_prob, "loss": loss, "accuracy": accuracy,
            "train": train}


def test_accuracy(session: tf.Session, graph: dict, split: Split, batch: int = 1000) -> float:
    """The share of right answers, computed in batches: convolutions of 10,000 images take much memory."""
    right = 0.0
    for at in range(0, len(split), batch):
        images, labels = split.images[at:at + batch], split.labels[at:at + batch]
        right += len(labels) * session.run(graph["accuracy"], {graph["x"]: images, graph["labels"]: labels})
    return right / len(split)


def arguments() -> argparse.Namespace:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--epochs", type=float, default=1.25,
                        help="passes over the 60,000 images (default %(default)s)")
    parser.add_argument("--steps", type=int, help="training steps, in place of --epochs")
    parser.add_argument("--batch", type=int, default=50, help="images a step (default %(default)s)")
    parser.add_argument("--rate", type=float, default=1e-3,
                        help="learning rate of Adam at the start; it falls to 0 (default %(default)s)")
    parser.add_argument("--devices", type=int, default=1,
                        help="CPU devices to spread the layers over (default %(default)s)")
    parser.add_argument("--data", metavar="FOLDER",
                        help="the four files of MNIST (default: found, else downloaded)")
    parser.add_argument("--picture", type=Path, default=Path("out/mnist_cnn.html"), metavar="FILE",
                        help="where the picture of the partitioned graph goes (default %(default)s)")
    asked = parser.parse_args()
    if asked.batch < 1 or asked.devices < 1 or asked.steps is not None and asked.steps < 1:
        parser.error("--batch, --devices and --steps must be at least 1")
    if asked.epochs <= 0 or asked.rate <= 0:
        parser.error("--epochs and --rate must be above 0")
    return asked


def main() -> None:
    asked = arguments()
    try:
        mnist = load_mnist(asked.data)
        asked.picture.parent.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        sys.exit(f"mnist_cnn: {error}")
    steps = asked.steps or max(1, round(asked.epochs * len(mnist.train) / asked.batch))
    tf.set_random_seed(1)
    graph = build(asked.devices, asked.rate, steps)
    fed = [graph["x"], graph["labels"], graph["keep_prob"]]
    with tf.Session(config=tf.ConfigProto(device_count={"CPU": asked.devices})) as session:
        session.run(tf.global_variables_initializer())
        progress, began = Progress(steps), time.perf_counter()
        for step in range(1, steps + 1):
            images, labels = mnist.train.next_batch(asked.batch)
            loss, _ = session.run([graph["loss"], graph["train"]], dict(zip(fed, (images, labels, 0.5))))
            if progress.is_due(step):
                progress.show(step, f"loss {loss:.4f}")
        took = time.perf_counter() - began
        accuracy = test_accuracy(session, graph, mnist.test)
        asked.picture.write_text(session.explain([graph["train"]], fed).html())
    print(f"test accuracy {100 * accuracy:.2f} %")
    print(f"{steps} steps in {took:.1f} s, {1e3 * took / steps:.1f} ms a step")
    print(f"the partitioned graph: {asked.picture.resolve()}")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("\nmnist_cnn: interrupted")
