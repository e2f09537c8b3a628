"""Neural network kernels where samples do not reach: errors, ties, long sums, seeded draws. TensorFlow is the
oracle."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from graphrt.core.constant_value import run_kernel
from graphrt.core.dtypes import of_array
from graphrt.core.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError
from graphrt.core.registry import OPS, KernelContext
from graphrt.core.signature import REQUIRED, check_attr
from graphrt.ops import checks, nn_ctc, nn_topk

RNG = np.random.default_rng(11)


class WorkerSession:
    """What a kernel with state needs of a session."""

    def __init__(self):
        self.held = {}

    def node_state(self, name, make):
        if name not in self.held:
            self.held[name] = make()
        return self.held[name]


def run(name, *inputs, session=None, **attrs):
    """The outputs of one kernel, as a list of arrays."""
    op_def = OPS[name]
    flat = [np.asarray(i) for i in inputs]
    given_attrs = {k: check_attr(op_def.attrs[k], v, name) for k, v in attrs.items()}
    whole = {k: a.default for k, a in op_def.attrs.items() if a.default is not REQUIRED} | given_attrs
    for arg, value in zip(op_def.inputs, flat):
        if arg.type_attr:
            whole.setdefault(arg.type_attr, of_array(value))
            whole[arg.type_attr] = of_array(value)
        if arg.list_attr:
            whole[arg.list_attr] = [of_array(v) for v in flat[len(op_def.inputs) - 1 :]]
    context = KernelContext(
        name, name, whole, [of_array(v) for v in flat], op_def.types(op_def.outputs, whole), session=session
    )
    with np.errstate(all="ignore"):
        return [np.asarray(m) for m in run_kernel(op_def, context, flat)]


def of_tensorflow(tf, name, **inputs):
    """The outputs of TensorFlow's kernel, as a list of arrays."""
    return [np.asarray(t) for t in tf.nest.flatten(getattr(tf.raw_ops, name)(**inputs))]


def draw(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


# -- softmax and cross entropy
# ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (4, 1), (50, 3), (129, 32), (200, 33), (7, 600)])
@pytest.mark.parametrize("scale", [1.0, 50.0])
def test_rows_and_transposed_kernels_agree_with_float64(shape, scale):
    x = draw(*shape) * np.float32(scale)
    exact = x.astype(np.float64) - x.max(1, keepdims=True)
    log_y = exact - np.log(np.exp(exact).sum(1, keepdims=True))
    np.testing.assert_allclose(run("Softmax", x)[0], np.exp(log_y), rtol=3e-5, atol=1e-30)
    np.testing.assert_allclose(run("LogSoftmax", x)[0], log_y, rtol=1e-5, atol=1e-5)
    labels = RNG.integers(0, shape[1], shape[0])
    one_hot = np.eye(shape[1], dtype=np.float32)[labels]
    for loss, backprop in (
        run("SparseSoftmaxCrossEntropyWithLogits", x, labels),
        run("SoftmaxCrossEntropyWithLogits", x, one_hot),
    ):
        np.testing.assert_allclose(loss, -log_y[np.arange(shape[0]), labels], rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(backprop, np.exp(log_y) - one_hot, rtol=3e-5, atol=1e-6)


@pytest.mark.parametrize("rows", [2, 40])
def test_infinite_logits_give_what_tensorflow_gives(tf, rows):
    x = np.tile(
        np.array([[-np.inf, 0, 1], [1, 2, 3], [np.inf, 1, 2], [-np.inf, -np.inf, -np.inf]], np.float32),
        (rows, 1),
    )
    labels = np.tile(np.array([[0, 0.5, 0.5], [0, 0, 1], [1, 0, 0], [0, 0, 1]], np.float32), (rows, 1))
    for name, inputs in (
        ("Softmax", {"logits": x}),
        ("LogSoftmax", {"logits": x}),
        ("SoftmaxCrossEntropyWithLogits", {"features": x, "labels": labels}),
        ("SparseSoftmaxCrossEntropyWithLogits", {"features": x, "labels": labels.argmax(1)}),
    ):
        for mine, theirs in zip(run(name, *inputs.values()), of_tensorflow(tf, name, **inputs)):
            np.testing.assert_allclose(mine, theirs, rtol=1e-5, err_msg=name)


def test_softmax_does_not_write_its_input_and_takes_strided_ones():
    for shape in ((40, 3), (3, 40)):
        x = draw(*shape)
        kept = x.copy()
        whole = run("Softmax", x)[0]
        np.testing.assert_array_equal(x, kept)
        strided = np.repeat(x, 2, axis=1)[:, ::2]
        np.testing.assert_array_equal(run("Softmax", strided)[0], whole)


@pytest.mark.parametrize("bad", [-1, 3, 2**31 - 1])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_a_label_that_is_no_class_is_named(tf, bad, dtype):
    labels = np.array([1, bad, 0, 2], dtype)
    message = (
        rf"Received a label value of {bad} which is outside the valid range of \[0, 3\).  Label "
        rf"values: 1 {bad} 0 2"
    )
    with pytest.raises(InvalidArgumentError, match=message):
        run("SparseSoftmaxCrossEntropyWithLogits", draw(4, 3), labels)
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        of_tensorflow(tf, "SparseSoftmaxCrossEntropyWithLogits", features=draw(4, 3), labels=labels)


@pytest.mark.parametrize(
    ("features", "labels", "message"),
    [
        (draw(3), [1, 2], "logits must be 2-D, but got shape"),
        (draw(4, 3), [[1, 2]], "labels must be 1-D, but got shape"),
        (draw(4, 3), [1, 2], "logits and labels must have the same first dimension"),
        (draw(2, 0), [0, 0], "Must have at least one class"),
    ],
)
def test_sparse_cross_entropy_says_which_shape_is_wrong(features, labels, message):
    with pytest.raises(InvalidArgumentError, match=message):
        run("SparseSoftmaxCrossEntropyWithLogits", features, np.array(labels, np.int32))


def test_cross_entropy_refuses_shapes_that_are_no_matrices_or_do_not_broadcast():
    with pytest.raises(
        InvalidArgumentError, match=r"must be broadcastable: logits_size=\[2, 3\] labels_size=\[3, 3\]"
    ):
        run("SoftmaxCrossEntropyWithLogits", draw(2, 3), draw(3, 3))
    with pytest.raises(InvalidArgumentError, match="either 2-dimensional, or broadcasted"):
        run("SoftmaxCrossEntropyWithLogits", draw(3), draw(3))


# -- biases
# ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data_format", ["NHWC", "NCHW"])
def test_a_bias_of_another_length_is_refused_and_not_broadcast(data_format):
    with pytest.raises(InvalidArgumentError, match="Must provide as many biases as the"):
        run("BiasAdd", draw(2, 3, 3), draw(1), data_format=data_format)
    with pytest.raises(InvalidArgumentError, match="Biases must be 1D"):
        run("BiasAdd", draw(2, 3, 3), draw(1, 3), data_format=data_format)


def test_sums_over_many_rows_keep_float32_precision():
    rows = RNG.uniform(0, 1, (200_000, 3)).astype(np.float32)
    np.testing.assert_allclose(run("BiasAddGrad", rows)[0], rows.sum(0, dtype=np.float64), rtol=2e-6)


@pytest.mark.parametrize("scaled", [True, False])
def test_old_batch_normalization_has_the_gradient_of_its_formula(scaled):
    t, m, v, gamma = draw(2, 3, 3, 4), draw(4), RNG.uniform(0.5, 2, 4).astype(np.float32), draw(4)
    dy = draw(2, 3, 3, 4)
    attrs = {"variance_epsilon": 1e-3, "scale_after_normalization": scaled}
    inputs = [a.astype(np.float64) for a in (t, m, v, np.zeros(4), gamma)]

    def loss():
        return float((run("BatchNormWithGlobalNormalization", *inputs, **attrs)[0] * dy).sum())

    dx, dm, dv, db, dg = run("BatchNormWithGlobalNormalizationGrad", t, m, v, gamma, dy, **attrs)
    for analytic, x in zip((dx, dm, dv, db, dg), inputs):
        place, eps = (0,) * x.ndim, 1e-6
        x[place] += eps
        above = loss()
        x[place] -= 2 * eps
        numeric = (above - loss()) / (2 * eps)
        x[place] += eps
        assert analytic[place] == pytest.approx(numeric, rel=1e-3, abs=1e-3)


# -- order statistics
# ------------------------------------------------------------------------------------------------


@given(
    hnp.arrays(np.int32, st.tuples(st.integers(1, 4), st.integers(1, 90)), elements=st.integers(-3, 3)),
    st.data(),
)
def test_top_k_takes_the_lower_index_of_equals(x, data):
    k = data.draw(st.integers(0, x.shape[1]))
    values, places = nn_topk.top_k(np, x, k, np.int32)
    for row, mine, at in zip(x, values, places):
        wanted = sorted(range(row.size), key=lambda i: (-int(row[i]), i))[:k]
        assert at.tolist() == wanted
        assert mine.tolist() == row[wanted].tolist()


def test_top_k_of_long_rows_with_nan_puts_nan_first():
    x = draw(2, 300)
    x[1, 77] = np.nan
    values, places = nn_topk.top_k(np, x, 5, np.int64)
    assert places[1, 0] == 77 and places.dtype == np.int64
    assert places[0].tolist() == np.argsort(-x[0])[:5].tolist()
    assert np.isnan(values[1, 0]) and not np.isnan(values[1, 1:]).any()


@pytest.mark.parametrize(
    ("x", "k", "message"),
    [
        (draw(3), -1, "Need k >= 0, got -1"),
        (draw(2, 3), 4, "at least k columns. Had 3, needed 4"),
        (np.float32(1), 1, "input must be >= 1-D"),
    ],
)
def test_top_k_says_what_is_wrong(x, k, message):
    with pytest.raises(InvalidArgumentError, match=message):
        run("TopKV2", x, np.int32(k))


@pytest.mark.parametrize(
    ("x", "n", "message"),
    [
        (draw(2, 3), 3, "last dimension > n = 3"),
        (draw(2, 3), -1, "non-negative but is -1"),
        (np.float32(1), 0, "at least rank 1"),
    ],
)
def test_nth_element_says_what_is_wrong(x, n, message):
    with pytest.raises(InvalidArgumentError, match=message):
        run("NthElement", x, np.int32(n))


def test_in_top_k_refuses_targets_of_another_length():
    with pytest.raises(
        InvalidArgumentError, match="First dimension of predictions 2 must match length of targets 1"
    ):
        run("InTopKV2", draw(2, 3), np.array([1], np.int32), np.int32(1))


# -- candidate samplers
# ----------------------------------------------------------------------------------------------

_UNIGRAMS = [float(w) for w in RNG.uniform(0, 10, 300).astype(np.float32)]
SAMPLERS = [
    *[("LogUniformCandidateSampler", {"range_max": n}) for n in (5, 100, 2**31)],
    *[("UniformCandidateSampler", {"range_max": n}) for n in (5, 8, 2**40 + 1)],
    *[("LearnedUnigramCandidateSampler", {"range_max": n}) for n in (5, 8, 1000)],
    ("ThreadUnsafeUnigramCandidateSampler", {"range_max": 8}),
    ("AllCandidateSampler", {}),
    ("FixedUnigramCandidateSampler", {"range_max": 300, "unigrams": _UNIGRAMS, "distortion": 0.75}),
    (
        "FixedUnigramCandidateSampler",
        {"range_max": 6, "unigrams": _UNIGRAMS[:7], "num_shards": 2, "shard": 0, "num_reserved_ids": 3},
    ),
    (
        "FixedUnigramCandidateSampler",
        {"range_max": 5, "unigrams": _UNIGRAMS[:7], "num_shards": 2, "shard": 1, "num_reserved_ids": 3},
    ),
]


@pytest.mark.parametrize(("name", "attrs"), SAMPLERS, ids=[f"{n}-{i}" for i, (n, _) in enumerate(SAMPLERS)])
@pytest.mark.parametrize("unique", [True, False])
def test_seeded_candidates_are_tensorflows_in_every_step(tf, name, attrs, unique):
    count = 4
    attrs = {"num_true": 2, "num_sampled": count, "unique": unique, "seed": 11, "seed2": 5, **attrs}
    true_classes = RNG.integers(0, min(attrs.get("range_max", count), 2**31), (3, 2))
    session = WorkerSession()
    with tf.Graph().as_default(), tf.compat.v1.Session() as theirs:
        fetches = list(getattr(tf.raw_ops, name)(true_classes=tf.constant(true_classes), **attrs))
        for _ in range(3):
            for mine, wanted in zip(run(name, true_classes, session=session, **attrs), theirs.run(fetches)):
                assert mine.dtype == wanted.dtype
                np.testing.assert_allclose(mine, wanted, rtol=1e-5)


def test_a_vocabulary_file_weighs_classes(tmp_path, tf):
    path = tmp_path / "vocabulary"
    path.write_text("a,1\nb,x,3\nc,0.5\n\n")
    attrs = {
        "num_true": 1,
        "num_sampled": 2,
        "unique": False,
        "range_max": 3,
        "vocab_file": str(path),
        "seed": 1,
        "seed2": 2,
    }
    classes = np.array([[1], [2]])
    mine = run("FixedUnigramCandidateSampler", classes, session=WorkerSession(), **attrs)
    path.write_text("a,1\nb,x,3\nc,0.5\n")  # TensorFlow counts an empty line as a class
    for a, b in zip(mine, of_tensorflow(tf, "FixedUnigramCandidateSampler", true_classes=classes, **attrs)):
        np.testing.assert_allclose(a, b, rtol=1e-6)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            {"num_sampled": 15, "unique": True},
            InvalidArgumentError,
            "Sampler's range is too small: 15 different candidates of 10",
        ),
        (
            {"num_true": 1},
            InvalidArgumentError,
            "true_classes must have num_true columns, expected: 2 was: 1",
        ),
        ({"range_max": 4}, InvalidArgumentError, r"out of range \[0, 4\), received 4"),
    ],
)
def test_samplers_say_what_is_wrong(change, error, message):
    attrs = {"num_true": 2, "num_sampled": 3, "unique": False, "range_max": 10, "seed": 1} | change
    with pytest.raises(error, match=message):
        run("UniformCandidateSampler", np.array([[1, 2], [3, 4]]), session=WorkerSession(), **attrs)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({}, InvalidArgumentError, "Must provide either vocab_file or unigrams"),
        ({"unigrams": [1.0]}, InvalidArgumentError, "range is 2 must be equal to weights size  1"),
        ({"unigrams": [1.0], "vocab_file": "x"}, InvalidArgumentError, "Must only provide one of"),
        ({"vocab_file": "/there/is/none"}, NotFoundError, "does not exist"),
    ],
)
def test_fixed_sampler_says_what_is_wrong(change, error, message):
    attrs = {"num_true": 1, "num_sampled": 3, "unique": False, "range_max": 2, "seed": 1} | change
    with pytest.raises(error, match=message):
        run("FixedUnigramCandidateSampler", np.array([[1]]), session=WorkerSession(), **attrs)


# -- Assert
# ----------------------------------------------------------------------------------------------------------

_ASSERTED = [
    np.float32(1.5),
    np.arange(10, dtype=np.float32) / 3,
    np.array([True, False]),
    np.arange(27, dtype=np.int32).reshape(3, 3, 3),
    np.float64(1 / 3),
    np.zeros((0, 3)),
    np.zeros((2, 0)),
    np.array([1e-10, 1e20, 123456789.0, np.nan, -np.inf], np.float32),
    np.array([1e-10, 1e20, 123456789.0, 0.1]),
    np.array([1, -2], np.int8),
    np.array([0.1, 1 / 3], np.float16),
    np.complex64(1 + 2j),
    np.arange(6, dtype=np.int64).reshape(2, 1, 3),
    np.array([[b"a", b"bc"], [b"", b"d"]], object),
    np.array(b"a message", object),
]


@pytest.mark.parametrize("summarize", [3, 0, -1, 5, 1])
def test_a_failed_assertion_shows_what_tensorflow_shows(tf, summarize):
    # Of bools TensorFlow shows no "..." where it shows none of them.
    shown = [v for v in _ASSERTED if summarize or v.dtype != bool]
    with pytest.raises(tf.errors.InvalidArgumentError) as theirs:
        tf.raw_ops.Assert(condition=False, data=[tf.constant(v) for v in shown], summarize=summarize)
    mine = "assertion failed: " + " ".join(f"[{checks.summary(v, summarize)}]" for v in shown)
    assert mine in theirs.value.message


def test_assert_fails_with_the_data_and_passes_where_the_condition_holds():
    assert run("Assert", np.True_, np.array([1, 2], np.int32)) == []
    with pytest.raises(InvalidArgumentError, match=r"assertion failed: \[1 2\]"):
        run("Assert", np.False_, np.array([1, 2], np.int32))
    with pytest.raises(InvalidArgumentError, match=r"In\[0\] should be a scalar"):
        run("Assert", np.array([True]), np.array([1, 2], np.int32))


# -- connectionist temporal classification
# ---------------------------------------------------------------------------


def sparse_labels(rows):
    indices = np.array([(b, t) for b, row in enumerate(rows) for t in range(len(row))], np.int64).reshape(
        -1, 2
    )
    return indices, np.array([label for row in rows for label in row], np.int32)


@settings(max_examples=15)
@given(st.integers(0, 10**6))
def test_ctc_loss_and_gradient_are_tensorflows(tf, seed):
    rng = np.random.default_rng(seed)
    steps, batch, classes = rng.integers(1, 9), rng.integers(1, 5), rng.integers(2, 6)
    x = rng.standard_normal((steps, batch, classes)) * 2
    lengths = rng.integers(1, steps + 1, batch).astype(np.int32)
    indices, values = sparse_labels([rng.integers(0, classes, rng.integers(1, n + 1)) for n in lengths])
    values = np.minimum(values, classes - 2)
    attrs = {name: bool(rng.integers(2)) for name in ("preprocess_collapse_repeated", "ctc_merge_repeated")}
    mine = run("CTCLoss", x, indices, values, lengths, **attrs)
    theirs = of_tensorflow(
        tf,
        "CTCLoss",
        inputs=x,
        labels_indices=indices,
        labels_values=values,
        sequence_length=lengths,
        **attrs,
    )
    for a, b in zip(mine, theirs):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@settings(max_examples=15)
@given(st.integers(0, 10**6))
@example(857)
@example(104)
def test_beam_search_finds_what_tensorflow_finds(tf, seed):
    rng = np.random.default_rng(seed)
    steps, batch, classes = rng.integers(1, 8), rng.integers(1, 4), rng.integers(2, 5)
    x = (rng.standard_normal((steps, batch, classes)) * 2).astype(np.float32)
    lengths = rng.integers(1, steps + 1, batch).astype(np.int32)
    attrs = {"beam_width": int(rng.integers(2, 12)), "top_paths": 2, "merge_repeated": bool(rng.integers(2))}
    mine = run("CTCBeamSearchDecoder", x, lengths, **attrs)
    theirs = of_tensorflow(tf, "CTCBeamSearchDecoder", inputs=x, sequence_length=lengths, **attrs)
    for a, b in zip(mine, theirs):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("rows", "lengths", "message"),
    [
        (
            [[0, 1], [1]],
            [1, 3],
            r"Not enough time for target transition sequence \(required: 2, available: 1\)",
        ),
        (
            [[2, 0], [1]],
            [4, 3],
            "Saw a non-null label .* following a null label, batch: 0 num_classes: 3 labels: 2,0",
        ),
        ([[0, -1], [1]], [4, 3], "All labels must be nonnegative integers, batch: 0 labels: 0,-1"),
        ([[0, 1], []], [4, 3], "Labels length is zero in batch 1"),
        ([[0], [1]], [4, 5], r"sequence_length\(1\) <= 4"),
        ([[0], [1]], [4, -1], r"seq_len\(1\) < 0"),
        ([[0], [1]], [4], "len.sequence_length. != batch_size"),
        ([[0], [1], [1]], [4, 3], r"indices\[2\] = \[2,0\] is out of bounds"),
    ],
)
def test_ctc_loss_says_what_is_wrong(rows, lengths, message):
    indices, values = sparse_labels(rows)
    with pytest.raises(InvalidArgumentError, match=message):
        run("CTCLoss", draw(4, 2, 3), indices, values, np.array(lengths, np.int32))


def test_decoders_say_what_is_wrong():
    lengths = np.array([4, 4], np.int32)
    with pytest.raises(InvalidArgumentError, match="blank_index expected to be between -3 and 2 but was 3"):
        run("CTCGreedyDecoder", draw(4, 2, 3), lengths, blank_index=3)
    with pytest.raises(FailedPreconditionError, match=r"sequence_length\(1\) <= 4"):
        run("CTCGreedyDecoder", draw(4, 2, 3), np.array([4, 5], np.int32))
    with pytest.raises(InvalidArgumentError, match="top_paths 3 is larger than beam_width 2"):
        run("CTCBeamSearchDecoder", draw(4, 2, 3), lengths, beam_width=2, top_paths=3)


def test_a_path_in_a_sequence_of_one_step():
    loss, gradient = nn_ctc.ctc_loss(np.zeros((1, 1, 3)), [[0]], np.array([1]), True)
    assert loss[0] == pytest.approx(np.log(3))
    np.testing.assert_allclose(gradient[0, 0], [1 / 3 - 1, 1 / 3, 1 / 3])
