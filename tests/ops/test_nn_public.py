"""tf.nn's functions build TensorFlow's nodes, and give its values."""

import numpy as np
import pytest

import graphrt
from graphrt.core.errors import InvalidArgumentError
from tests.same_graph import assert_same_nodes, assert_same_values

RNG = np.random.default_rng(3)
X, Y = RNG.standard_normal((4, 6)).astype(np.float32), RNG.standard_normal((4, 6)).astype(np.float32)
W, B = RNG.standard_normal((6, 3)).astype(np.float32), RNG.standard_normal(3).astype(np.float32)
P = RNG.uniform(0.05, 0.95, (4, 6)).astype(np.float32)
IMAGE = RNG.standard_normal((2, 3, 4, 5)).astype(np.float32)


def x(tf, name="x", shape=(4, 6), dtype="float32"):
    return tf.placeholder(dtype, shape, name=name)


BUILDS = {
    "relu": lambda tf: tf.nn.relu(x(tf)),
    "relu named": lambda tf: tf.nn.relu(x(tf), name="r"),
    "relu of a list": lambda tf: tf.nn.relu([[1.0, -1.0]]),
    "relu6": lambda tf: tf.nn.relu6(x(tf)),
    "elu": lambda tf: tf.nn.elu(x(tf)),
    "selu": lambda tf: tf.nn.selu(x(tf)),
    "leaky_relu": lambda tf: tf.nn.leaky_relu(x(tf)),
    "leaky_relu of ints": lambda tf: tf.nn.leaky_relu([1, -2], alpha=0.3),
    "leaky_relu of an array alpha": lambda tf: tf.nn.leaky_relu(x(tf), alpha=np.array(0.25)),
    "crelu": lambda tf: tf.nn.crelu(x(tf)),
    "crelu axis": lambda tf: tf.nn.crelu(x(tf), axis=0),
    "softplus": lambda tf: tf.nn.softplus(x(tf)),
    "softsign": lambda tf: tf.nn.softsign(x(tf)),
    "sigmoid": lambda tf: tf.nn.sigmoid(x(tf)),
    "tanh": lambda tf: tf.nn.tanh(x(tf)),
    "l2_loss": lambda tf: tf.nn.l2_loss(x(tf)),
    "softmax": lambda tf: tf.nn.softmax(x(tf)),
    "softmax axis": lambda tf: tf.nn.softmax(x(tf), axis=0),
    "softmax dim": lambda tf: tf.nn.softmax(x(tf), dim=1),
    "softmax of 3 axes": lambda tf: tf.nn.softmax(tf.reshape(x(tf), [2, 2, 6]), axis=-2, name="s"),
    "softmax of unknown rank": lambda tf: tf.nn.softmax(x(tf, shape=None)),
    "log_softmax": lambda tf: tf.nn.log_softmax(x(tf)),
    "log_softmax axis": lambda tf: tf.nn.log_softmax(x(tf), axis=0, name="ls"),
    "bias_add": lambda tf: tf.nn.bias_add(x(tf), tf.constant(np.arange(6.0), tf.float32)),
    "bias_add of lists": lambda tf: tf.nn.bias_add([[1.0, 2.0]], [3.0, 4.0], data_format="NHWC", name="b"),
    "xw_plus_b": lambda tf: tf.nn.xw_plus_b(x(tf), tf.constant(W), tf.constant(B)),
    "relu_layer": lambda tf: tf.nn.relu_layer(x(tf), W, B),
    "l2_normalize": lambda tf: tf.nn.l2_normalize(x(tf), axis=1),
    "l2_normalize dim": lambda tf: tf.nn.l2_normalize(x(tf), dim=[0, 1], epsilon=1e-6, name="n"),
    "moments": lambda tf: tf.nn.moments(x(tf), [0]),
    "moments keep": lambda tf: tf.nn.moments(x(tf), axes=[1], keep_dims=True, name="m"),
    "moments of half": lambda tf: tf.nn.moments(tf.cast(x(tf), tf.float16), [0]),
    "weighted_moments": lambda tf: tf.nn.weighted_moments(
        x(tf), [0], tf.constant([[1.0], [2.0], [0.5], [3.0]])
    ),
    "weighted_moments keep": lambda tf: tf.nn.weighted_moments(x(tf), [1], 2, keepdims=True),
    "sufficient_statistics": lambda tf: tf.nn.sufficient_statistics(x(tf), [0, 1])[:3],
    "sufficient_statistics shifted": lambda tf: tf.nn.sufficient_statistics(
        x(tf), [0], shift=0.5, keepdims=True
    ),
    "sufficient_statistics of unknown sizes": lambda tf: tf.nn.sufficient_statistics(
        x(tf, shape=[None, 6]), [0]
    )[:3],
    "normalize_moments": lambda tf: tf.nn.normalize_moments(*tf.nn.sufficient_statistics(x(tf), [0])),
    "normalize_moments shifted": lambda tf: tf.nn.normalize_moments(
        *tf.nn.sufficient_statistics(x(tf), [0], shift=0.5)
    ),
    "batch_normalization": lambda tf: tf.nn.batch_normalization(x(tf), 0.5, tf.constant(2.0), 1.0, 3.0, 1e-3),
    "batch_normalization alone": lambda tf: tf.nn.batch_normalization(
        x(tf), tf.constant(0.5), tf.constant(2.0), None, None, 1e-3, name="bn"
    ),
    "batch_norm_with_global_normalization": lambda tf: tf.nn.batch_norm_with_global_normalization(
        tf.constant(IMAGE),
        tf.constant(np.zeros(5), tf.float32),
        tf.constant(np.ones(5), tf.float32),
        1.0,
        2.0,
        1e-3,
        True,
    ),
    "sigmoid cross entropy": lambda tf: tf.nn.sigmoid_cross_entropy_with_logits(
        labels=tf.constant(P), logits=x(tf)
    ),
    "sigmoid cross entropy named": lambda tf: tf.nn.sigmoid_cross_entropy_with_logits(
        labels=P, logits=x(tf), name="sce"
    ),
    "weighted cross entropy": lambda tf: tf.nn.weighted_cross_entropy_with_logits(
        targets=tf.constant(P), logits=x(tf), pos_weight=2.5
    ),
    "log_poisson_loss": lambda tf: tf.nn.log_poisson_loss(tf.constant(P * 3), x(tf)),
    "log_poisson_loss full": lambda tf: tf.nn.log_poisson_loss(
        tf.constant(P * 3), x(tf), compute_full_loss=True
    ),
    "cross entropy v1": lambda tf: tf.nn.softmax_cross_entropy_with_logits(
        labels=tf.constant(P), logits=x(tf)
    ),
    "cross entropy v1 named": lambda tf: tf.nn.softmax_cross_entropy_with_logits(
        labels=P, logits=x(tf), dim=0, name="ce"
    ),
    "cross entropy v2": lambda tf: tf.nn.softmax_cross_entropy_with_logits_v2(
        labels=tf.constant(P), logits=x(tf)
    ),
    "cross entropy v2 of 3 axes": lambda tf: tf.nn.softmax_cross_entropy_with_logits_v2(
        labels=tf.constant(P.reshape(2, 3, 4)), logits=tf.reshape(x(tf), [2, 3, 4]), axis=1
    ),
    "cross entropy v2 of half": lambda tf: tf.nn.softmax_cross_entropy_with_logits_v2(
        labels=tf.constant(P), logits=tf.cast(x(tf), tf.float16)
    ),
    "cross entropy v2 of unknown sizes": lambda tf: tf.nn.softmax_cross_entropy_with_logits_v2(
        labels=tf.constant(P), logits=x(tf, shape=[None, 6])
    ),
    "sparse cross entropy": lambda tf: tf.nn.sparse_softmax_cross_entropy_with_logits(
        labels=[0, 1, 2, 5], logits=x(tf)
    ),
    "sparse cross entropy named": lambda tf: tf.nn.sparse_softmax_cross_entropy_with_logits(
        labels=tf.constant([0, 1, 2, 5], tf.int64), logits=x(tf), name="s"
    ),
    "sparse cross entropy of half": lambda tf: tf.nn.sparse_softmax_cross_entropy_with_logits(
        labels=[0, 1, 2, 5], logits=tf.cast(x(tf), tf.float16)
    ),
    "sparse cross entropy of 3 axes": lambda tf: tf.nn.sparse_softmax_cross_entropy_with_logits(
        labels=[[0, 1], [2, 5]], logits=tf.reshape(x(tf), [2, 2, 6])
    ),
    "sparse cross entropy of unknown sizes": lambda tf: tf.nn.sparse_softmax_cross_entropy_with_logits(
        labels=x(tf, "labels", [None, None], "int32"), logits=tf.reshape(x(tf), [2, -1, 6])
    ),
    "top_k": lambda tf: tf.nn.top_k(x(tf), k=3),
    "top_k by name": lambda tf: tf.nn.top_k(x(tf), 2, name="t").values,
    "in_top_k": lambda tf: tf.nn.in_top_k(x(tf), [0, 1, 2, 5], 2),
    "zero_fraction": lambda tf: tf.nn.zero_fraction(tf.round(x(tf))),
    "dropout": lambda tf: tf.nn.dropout(x(tf), 0.6, seed=4),
    "dropout rate": lambda tf: tf.nn.dropout(x(tf), rate=0.25, seed=9, name="d"),
    "dropout rows": lambda tf: tf.nn.dropout(x(tf), rate=0.5, noise_shape=[None, 1], seed=2),
    "dropout by a tensor": lambda tf: tf.nn.dropout(x(tf), keep_prob=tf.constant(0.7), seed=1),
    "dropout of unknown sizes": lambda tf: tf.nn.dropout(x(tf, shape=[None, 6]), rate=0.25, seed=9),
    "no dropout": lambda tf: tf.nn.dropout(x(tf), keep_prob=1.0) + 0.0,
}
FEEDS = {"x": X}


@pytest.mark.parametrize("name", BUILDS)
def test_nodes_are_tensorflows(tf, name):
    assert_same_nodes(tf, BUILDS[name])


@pytest.mark.parametrize("name", BUILDS)
def test_values_are_tensorflows(tf, name):
    feeds = {"labels": np.array([[0, 1], [2, 5]])} if "unknown sizes" in name and "sparse" in name else {}
    has_half = "half" in name
    assert_same_values(
        tf,
        BUILDS[name],
        {**FEEDS, **feeds} if "list" not in name and "of ints" not in name and "global" not in name else None,
        rtol=2e-2 if has_half else 1e-5,
        atol=1e-2 if has_half else 1e-6,
    )


@pytest.mark.parametrize(
    "name",
    [
        "softmax axis",
        "cross entropy v2",
        "sparse cross entropy of 3 axes",
        "moments",
        "l2_normalize",
        "batch_normalization",
        "sigmoid cross entropy",
        "weighted cross entropy",
        "top_k by name",
        "dropout",
        "log_poisson_loss full",
        "xw_plus_b",
    ],
)
def test_gradients_are_tensorflows(tf, name):
    def build(module):
        y = module.nest.flatten(BUILDS[name](module)) if hasattr(module, "nest") else [BUILDS[name](module)]
        y = [t for t in y if t.dtype.is_floating]
        graph = y[0].graph
        return module.gradients(y, graph.get_tensor_by_name("x:0"))

    assert_same_values(tf, build, FEEDS, rtol=1e-4, atol=1e-5)


def test_dropout_masks_follow_the_graphs_seed(tf):
    """The second dropout's seed is what it would be without the first, of rate 0."""

    def build(module):
        module.set_random_seed(7)
        a = x(module)
        return [
            module.nn.dropout(a, rate=0),
            module.nn.dropout(a, rate=0.5),
            module.nn.dropout(a, keep_prob=0.5),
            module.random_uniform([3]),
        ]

    assert_same_nodes(tf, build)
    last = assert_same_values(tf, build, FEEDS, steps=3)
    assert 0 < (last[1] == 0).sum() < last[1].size


def test_no_gradient_reaches_the_labels_of_the_first_cross_entropy():
    with graphrt.Graph().as_default():
        labels, logits = graphrt.constant(P), graphrt.constant(X)
        old = graphrt.nn.softmax_cross_entropy_with_logits(labels=labels, logits=logits)
        new = graphrt.nn.softmax_cross_entropy_with_logits_v2(labels=labels, logits=logits)
        assert graphrt.gradients(old, labels) == [None]
        assert graphrt.gradients(new, labels)[0].shape == (4, 6)


def test_silu_and_gelu_have_their_formulas_values(tf):
    def build(module):
        a = x(module)
        return [module.nn.silu(a), module.nn.swish(a, beta=1.5), module.gradients(module.nn.silu(a), a)]

    assert_same_values(tf, build, FEEDS, rtol=1e-4)
    with graphrt.Graph().as_default(), graphrt.Session() as session:
        for approximate in (True, False):
            mine = session.run(graphrt.nn.gelu(graphrt.constant(X), approximate=approximate))
            np.testing.assert_allclose(
                mine, tf.nn.gelu(X, approximate=approximate).numpy(), rtol=1e-4, atol=1e-6
            )


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda tf: tf.nn.dropout(tf.constant(X), rate=1.0), ValueError, r"in the range \[0, 1\)"),
        (lambda tf: tf.nn.dropout(tf.constant(X)), ValueError, "`rate` must be provided"),
        (
            lambda tf: tf.nn.dropout(tf.constant(X), keep_prob=0.5, rate=0.5),
            ValueError,
            "Cannot specify both 'keep_prob' and 'rate'",
        ),
        (
            lambda tf: tf.nn.dropout(tf.constant(X), keep_prob="half"),
            ValueError,
            "`keep_prob` must be a floating point number",
        ),
        (
            lambda tf: tf.nn.dropout(tf.constant([1, 2]), rate=0.5),
            ValueError,
            "must be a floating point tensor",
        ),
        (lambda tf: tf.nn.dropout(tf.constant(X), rate=tf.constant(0.5, tf.float64)), ValueError, "tf.cast"),
        (lambda tf: tf.nn.bias_add(X, B), ValueError, "6 channels and bias 3"),
        (lambda tf: tf.nn.bias_add(X, B, data_format="CN"), ValueError, "`N...C` or `NC...`"),
        (
            lambda tf: tf.nn.softmax(tf.constant(X), axis=2),
            InvalidArgumentError,
            r"must be in the range \[-2, 2\)",
        ),
        (
            lambda tf: tf.nn.softmax(tf.constant(X), axis=0, dim=0),
            ValueError,
            "Cannot specify both 'dim' and 'axis'",
        ),
        (
            lambda tf: tf.nn.sigmoid_cross_entropy_with_logits(P, X[:, :2]),
            ValueError,
            "must have the same shape",
        ),
        (
            lambda tf: tf.nn.sigmoid_cross_entropy_with_logits(logits=X),
            ValueError,
            "Both `labels` and `logits` must be provided",
        ),
        (
            lambda tf: tf.nn.sparse_softmax_cross_entropy_with_logits(labels=[[1]], logits=X),
            ValueError,
            "must equal `logits.shape.rank - 1`",
        ),
        (
            lambda tf: tf.nn.sparse_softmax_cross_entropy_with_logits(labels=[1, 2], logits=X),
            ValueError,
            "except for the last dimension",
        ),
        (
            lambda tf: tf.nn.sparse_softmax_cross_entropy_with_logits(labels=[1], logits=1.0),
            ValueError,
            "cannot be a scalar",
        ),
        (lambda tf: tf.nn.top_k(tf.constant(X), 7), ValueError, "at least k = 7 columns"),
        (lambda tf: tf.nn.gelu(tf.constant([1])), ValueError, "floating point"),
    ],
)
def test_bad_arguments_are_named(build, error, message):
    with graphrt.Graph().as_default(), pytest.raises(error, match=message):
        build(graphrt)


# -- connectionist temporal classification
# ----------------------------------------------------------------------------


def test_ctc_functions_give_tensorflows_values(tf):
    logits = RNG.standard_normal((5, 2, 4)).astype(np.float32)

    def build(module, with_gradient=True):
        inputs = module.constant(logits)
        labels = module.SparseTensor(
            module.constant([[0, 0], [0, 1], [1, 0]], module.int64),
            [0, 1, 1],
            module.constant([2, 2], module.int64),
        )
        lengths = module.constant([5, 3])
        loss = module.nn.ctc_loss(labels, inputs, lengths)
        batch_major = module.nn.ctc_loss(
            labels, module.transpose(inputs, [1, 0, 2]), lengths, time_major=False
        )
        greedy, score = module.nn.ctc_greedy_decoder(inputs, lengths)
        beams, log_p = module.nn.ctc_beam_search_decoder(inputs, lengths, beam_width=7, top_paths=2)
        parts = [p for s in (*greedy, *beams) for p in (s.indices, s.values, s.dense_shape)]
        return [
            loss,
            batch_major,
            score,
            log_p,
            *parts,
            *(module.gradients(loss, inputs) if with_gradient else ()),
        ]

    assert_same_nodes(tf, lambda module: build(module, with_gradient=False))
    assert_same_values(tf, build, rtol=1e-4, atol=1e-5)


def test_ctc_loss_takes_sparse_labels_only():
    with graphrt.Graph().as_default(), pytest.raises(TypeError, match="to be a SparseTensor"):
        graphrt.nn.ctc_loss(graphrt.constant([[1]]), graphrt.constant(np.zeros((2, 1, 3), np.float32)), [2])


@pytest.mark.parametrize("blank", [0, 2, -1])
def test_ctc_loss_of_dense_labels_and_another_blank_is_tensorflows(tf, blank):
    logits = RNG.standard_normal((6, 2, 4)).astype(np.float32)
    rows = np.array([[1, 3, 1], [3, 0, 0]]) if blank != -1 else np.array([[1, 2, 1], [2, 0, 0]])

    def build(module):
        return module.nn.ctc_loss_v2(
            module.constant(rows),
            module.constant(logits),
            module.constant([3, 1]),
            module.constant([6, 4]),
            blank_index=blank,
        )

    assert_same_values(tf, build, rtol=1e-4)
    with graphrt.Graph().as_default(), pytest.raises(ValueError, match="`blank_index` must be provided"):
        graphrt.nn.ctc_loss_v2(graphrt.SparseTensor([[0, 0]], [1], [1, 1]), logits, [1], [6])
