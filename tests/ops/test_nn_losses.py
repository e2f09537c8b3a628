"""tf.losses, tf.confusion_matrix and regularizers build TensorFlow's nodes, and give its values."""

import numpy as np
import pytest

import graphrt
from tests.same_graph import assert_same_nodes, assert_same_values

RNG = np.random.default_rng(5)
A, B = RNG.standard_normal((4, 3)).astype(np.float32), RNG.standard_normal((4, 3)).astype(np.float32)
P = RNG.uniform(0.05, 0.95, (4, 3)).astype(np.float32)
W = np.array([[1.0], [0.0], [2.0], [0.5]], np.float32)
ONE_HOT = np.eye(3, dtype=np.float32)[[0, 2, 1, 1]]


def pair(tf):
    return tf.placeholder("float32", [4, 3], name="labels"), tf.placeholder(
        "float32", [4, 3], name="predictions"
    )


def of_pair(loss, **named):
    return lambda tf: loss(tf)(*pair(tf), **named)


REDUCTIONS = (
    "none",
    "weighted_sum",
    "weighted_sum_over_batch_size",
    "weighted_mean",
    "weighted_sum_by_nonzero_weights",
)
BUILDS = {
    "absolute_difference": of_pair(lambda tf: tf.losses.absolute_difference),
    "mean_squared_error": of_pair(lambda tf: tf.losses.mean_squared_error),
    **{
        f"mean_squared_error {r}": of_pair(lambda tf: tf.losses.mean_squared_error, reduction=r)
        for r in REDUCTIONS
    },
    **{
        f"weighted mean_squared_error {r}": of_pair(
            lambda tf: tf.losses.mean_squared_error, weights=W, reduction=r
        )
        for r in REDUCTIONS
    },
    "mean_squared_error of weight 0": of_pair(lambda tf: tf.losses.mean_squared_error, weights=0.0),
    "mean_squared_error weighted by a tensor": lambda tf: tf.losses.mean_squared_error(
        *pair(tf), weights=tf.constant(2.0), scope="mse"
    ),
    "mean_squared_error weighted whole": lambda tf: tf.losses.mean_squared_error(
        *pair(tf), weights=tf.constant(P)
    ),
    "hinge_loss": of_pair(lambda tf: tf.losses.hinge_loss),
    "huber_loss": of_pair(lambda tf: tf.losses.huber_loss, delta=0.5),
    "log_loss": lambda tf: tf.losses.log_loss(tf.constant(ONE_HOT), tf.sigmoid(pair(tf)[1])),
    "cosine_distance": of_pair(lambda tf: tf.losses.cosine_distance, axis=1),
    "cosine_distance dim": of_pair(lambda tf: tf.losses.cosine_distance, dim=0),
    "mean_pairwise_squared_error": of_pair(lambda tf: tf.losses.mean_pairwise_squared_error),
    "weighted mean_pairwise_squared_error": of_pair(
        lambda tf: tf.losses.mean_pairwise_squared_error, weights=W
    ),
    "sigmoid_cross_entropy": of_pair(lambda tf: tf.losses.sigmoid_cross_entropy, label_smoothing=0.1),
    "softmax_cross_entropy": of_pair(lambda tf: tf.losses.softmax_cross_entropy),
    "softmax_cross_entropy smoothed": of_pair(
        lambda tf: tf.losses.softmax_cross_entropy, label_smoothing=0.1, weights=W[:, 0]
    ),
    "sparse_softmax_cross_entropy": lambda tf: tf.losses.sparse_softmax_cross_entropy(
        [0, 2, 1, 1], pair(tf)[1]
    ),
    "sparse_softmax_cross_entropy squeezed": lambda tf: tf.losses.sparse_softmax_cross_entropy(
        [[0], [2], [1], [1]], pair(tf)[1], weights=W
    ),
    "compute_weighted_loss": lambda tf: tf.losses.compute_weighted_loss(
        pair(tf)[0], weights=tf.constant(W), loss_collection=None
    ),
    "confusion_matrix": lambda tf: tf.confusion_matrix([0, 1, 2, 2], [0, 2, 2, 1]),
    "confusion_matrix of a size": lambda tf: tf.confusion_matrix(
        [0, 1, 2, 2],
        tf.constant([[0], [2], [2], [1]]),
        num_classes=4,
        dtype=tf.float32,
        weights=[1.0, 0.5, 2.0, 1.0],
    ),
}
FEEDS = {"labels": A, "predictions": B}


def is_fed(name):
    return not name.startswith("confusion")


@pytest.mark.parametrize("name", BUILDS)
def test_nodes_are_tensorflows(tf, name):
    assert_same_nodes(tf, BUILDS[name])


@pytest.mark.parametrize("name", BUILDS)
def test_values_are_tensorflows(tf, name):
    assert_same_values(tf, BUILDS[name], FEEDS if is_fed(name) else None)


@pytest.mark.parametrize(
    "name",
    [
        "weighted mean_squared_error weighted_mean",
        "huber_loss",
        "log_loss",
        "weighted mean_pairwise_squared_error",
        "softmax_cross_entropy smoothed",
        "sparse_softmax_cross_entropy squeezed",
        "sigmoid_cross_entropy",
    ],
)
def test_gradients_are_tensorflows(tf, name):
    def build(module):
        loss = BUILDS[name](module)
        return module.gradients(loss, loss.graph.get_tensor_by_name("predictions:0"))

    assert_same_values(tf, build, FEEDS, rtol=1e-4)


def test_sizes_known_only_in_the_step_are_checked_there(tf):
    def build(module):
        labels = module.placeholder("float32", None, name="labels")
        predictions = module.placeholder("float32", None, name="predictions")
        weights = module.placeholder("float32", None, name="weights")
        return module.losses.mean_squared_error(labels, predictions, weights)

    for weights in (np.float32(2.0), W, P):
        assert_same_values(tf, build, {**FEEDS, "weights": weights})
    with graphrt.Graph().as_default(), graphrt.Session() as session:
        loss = build(graphrt)
        with pytest.raises(
            graphrt.errors.InvalidArgumentError, match="weights can not be broadcast to values"
        ):
            session.run(loss, {"labels:0": A, "predictions:0": B, "weights:0": W[:, 0]})


def test_ranks_known_only_in_the_step_are_squeezed_there(tf):
    def build(module):
        labels = module.placeholder("int32", None, name="labels")
        logits = module.placeholder("float32", [None, 3], name="logits")
        return module.losses.sparse_softmax_cross_entropy(labels, logits)

    for labels in ([0, 2, 1, 1], [[0], [2], [1], [1]]):
        assert_same_values(tf, build, {"labels": np.array(labels), "logits": A})


def test_losses_are_collected_and_summed(tf):
    def build(module):
        labels, predictions = pair(module)
        module.losses.mean_squared_error(labels, predictions, scope="a")
        module.losses.absolute_difference(labels, predictions, scope="b", loss_collection=None)
        with module.name_scope("mine"):
            module.losses.add_loss(module.constant(3.0))
        module.add_to_collection(module.GraphKeys.REGULARIZATION_LOSSES, module.constant(0.25, name="r"))
        assert len(module.losses.get_losses()) == 2 and len(module.losses.get_losses("mine")) == 1
        assert len(module.losses.get_regularization_losses()) == 1
        return [
            module.losses.get_total_loss(),
            module.losses.get_total_loss(False),
            module.losses.get_regularization_loss(),
            module.losses.get_regularization_loss("none such"),
        ]

    assert_same_nodes(tf, build)
    assert_same_values(tf, build, FEEDS)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda tf: tf.losses.mean_squared_error(A, B, reduction="most"), "Invalid Reduction Key most"),
        (lambda tf: tf.losses.mean_squared_error(None, B), "`labels` must not be None"),
        (lambda tf: tf.losses.mean_squared_error(A, B[:2]), "incompatible"),
        (
            lambda tf: tf.losses.mean_squared_error(A, B, weights=W[:3]),
            "weights can not be broadcast to values. Mismatch at dim 0",
        ),
        (
            lambda tf: tf.losses.mean_squared_error(A, B, weights=W[:, 0]),
            "weights can not be broadcast to values. values.rank=2",
        ),
        (lambda tf: tf.losses.cosine_distance(A, B), "You must specify argument `axis`"),
        (lambda tf: tf.losses.get_total_loss(), "no losses were collected"),
    ],
)
def test_bad_arguments_are_named(build, message):
    with graphrt.Graph().as_default(), pytest.raises(ValueError, match=message):
        build(graphrt)


@pytest.mark.parametrize(
    ("labels", "predictions", "message"),
    [
        ([0, 5], [0, 1], "`labels` out of bound"),
        ([0, 1], [0, 5], "`predictions` out of bound"),
        ([-1, 1], [0, 1], "`labels` contains negative values"),
    ],
)
def test_classes_outside_the_confusion_matrix_end_the_step(labels, predictions, message):
    with graphrt.Graph().as_default(), graphrt.Session() as session:
        a, b = graphrt.placeholder("int32", [2]), graphrt.placeholder("int32", [2])
        matrix = graphrt.confusion_matrix(a, b, num_classes=3)
        np.testing.assert_array_equal(
            session.run(matrix, {a: [0, 1], b: [0, 2]}), [[1, 0, 0], [0, 0, 1], [0, 0, 0]]
        )
        with pytest.raises(graphrt.errors.InvalidArgumentError, match=message):
            session.run(matrix, {a: labels, b: predictions})


def test_regularizers_have_their_formulas_values():
    r = graphrt.regularizers
    with graphrt.Graph().as_default() as graph, graphrt.Session() as session:
        w = graphrt.constant(A)
        absolute, squares = np.abs(A).sum(), np.square(A).sum()
        wanted = {
            r.l1(0.1): 0.1 * absolute,
            r.l2(0.1): 0.1 * squares,
            r.l1_l2(0.1, 0.2): 0.1 * absolute + 0.2 * squares,
            r.L1L2(): 0.0,
            r.l1_regularizer(0.1): 0.1 * absolute,
            r.l2_regularizer(0.1): 0.05 * squares,
            r.l1_l2_regularizer(0.1, 0.2): 0.1 * absolute + 0.1 * squares,
            r.sum_regularizer([r.l1_regularizer(0.5), None, r.l2_regularizer(0.0)]): 0.5 * absolute,
            r.get("l2"): 0.01 * squares,
            r.L1L2.from_config(r.l1_l2(0.1, 0.2).get_config()): 0.1 * absolute + 0.2 * squares,
            r.get({"class_name": "L1L2", "config": {"l1": 1.0}}): absolute,
        }
        for regularizer, value in wanted.items():
            assert session.run(regularizer(w)) == pytest.approx(value, rel=1e-5)
        assert r.l2_regularizer(0.0)(w) is None and r.sum_regularizer([None]) is None and r.get(None) is None
        total = r.apply_regularization(r.l2_regularizer(0.1), [w, w])
        assert session.run(total) == pytest.approx(0.1 * squares, rel=1e-5)
        assert graph.get_collection(graphrt.GraphKeys.REGULARIZATION_LOSSES) == [total]
        with pytest.raises(ValueError, match="scale cannot be an integer"):
            r.l2_regularizer(1)
        with pytest.raises(ValueError, match="less than 0"):
            r.l1_regularizer(-0.5)
        with pytest.raises(ValueError, match="Could not interpret"):
            r.get("l3")
        with pytest.raises(ValueError, match="No weights"):
            r.apply_regularization(r.l1_regularizer(0.1))
