"""tf.nn's convolutions, pools and normalisations: values, gradients and graphs as TensorFlow's."""

import numpy as np
import pytest

import graphrt
from graphrt.api import nn_conv, nn_pool

RNG = np.random.default_rng(3)


def draw(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


X1, X2, X3 = draw(2, 9, 3), draw(2, 9, 8, 3), draw(2, 5, 6, 4, 3)
W1, W2, W3 = draw(3, 3, 4), draw(3, 2, 3, 4), draw(2, 3, 2, 3, 4)
ONES = [1, 1, 1, 1]


def v(name):
    """A function of the public name in both libraries."""
    if name in nn_conv.__all__:
        return getattr(nn_conv, name), name
    return getattr(nn_pool, name), name


# name, positional arrays, other arguments
CASES = [
    ("conv2d", [X2, W2], {"strides": 2, "padding": "SAME"}),
    ("conv2d", [X2, W2], {"strides": [1, 2, 1, 1], "padding": [[0, 0], [1, 2], [0, 1], [0, 0]]}),
    ("conv2d", [draw(2, 3, 9, 8, 3), W2], {"strides": [2], "padding": "VALID"}),
    ("conv1d", [X1, W1], {"stride": 2, "padding": "SAME"}),
    ("conv1d", [X1, W1], {"stride": 1, "padding": "VALID", "data_format": "NWC"}),
    ("conv1d", [draw(2, 4, 9, 3), W1], {"stride": 2, "padding": "SAME"}),
    ("conv3d", [X3, W3], {"strides": [1, 2, 1, 1, 1], "padding": "SAME"}),
    ("conv2d_transpose", [X2, draw(3, 2, 5, 3)], {"output_shape": [2, 18, 16, 5], "strides": 2}),
    ("conv2d_transpose", [X2, draw(3, 2, 5, 3)],
     {"output_shape": [2, 11, 9, 5], "strides": [1, 1, 1, 1], "padding": "VALID"}),
    ("conv1d_transpose", [X1, draw(3, 5, 3)], {"output_shape": [2, 18, 5], "strides": 2}),
    ("conv3d_transpose", [X3, draw(2, 2, 2, 5, 3)], {"output_shape": [2, 10, 6, 8, 5],
                                                     "strides": [1, 2, 1, 2, 1]}),
    ("conv_transpose", [X2, draw(3, 2, 5, 3)], {"output_shape": [2, 18, 16, 5], "strides": 2}),
    ("convolution", [X1, W1], {"padding": "SAME"}),
    ("convolution", [X2, W2], {"padding": "VALID", "strides": [2, 1]}),
    ("convolution", [X2, W2], {"padding": "SAME", "dilation_rate": [2, 3]}),
    ("convolution", [X2, W2], {"padding": "VALID", "dilation_rate": [2, 1]}),
    ("convolution", [X2, W2], {"padding": [[0, 0], [1, 2], [0, 1], [0, 0]], "dilation_rate": [1, 2]}),
    ("convolution", [X1, W1], {"padding": "SAME", "dilations": [2]}),
    ("convolution", [X3, W3], {"padding": "SAME", "dilation_rate": [1, 2, 2]}),
    ("atrous_conv2d", [X2, W2], {"rate": 2, "padding": "SAME"}),
    ("atrous_conv2d_transpose", [X2, draw(3, 2, 5, 3)],
     {"output_shape": [2, 9, 8, 5], "rate": 2, "padding": "SAME"}),
    ("atrous_conv2d_transpose", [X2, draw(3, 2, 5, 3)],
     {"output_shape": [2, 13, 10, 5], "rate": 2, "padding": "VALID"}),
    ("depthwise_conv2d", [X2, draw(3, 2, 3, 2)], {"strides": [1, 2, 2, 1], "padding": "SAME"}),
    ("depthwise_conv2d", [X2, draw(3, 2, 3, 2)], {"strides": ONES, "padding": "SAME", "rate": [2, 2]}),
    ("depthwise_conv2d", [X2, draw(3, 2, 3, 1)],
     {"strides": ONES, "padding": [[0, 0], [1, 0], [1, 1], [0, 0]], "rate": [1, 2]}),
    ("depthwise_conv2d_native", [X2, draw(3, 2, 3, 2)], {"strides": ONES, "padding": "VALID"}),
    ("separable_conv2d", [X2, draw(3, 2, 3, 2), draw(1, 1, 6, 5)], {"strides": ONES, "padding": "SAME"}),
    ("separable_conv2d", [X2, draw(3, 2, 3, 2), draw(1, 1, 6, 5)],
     {"strides": ONES, "padding": "VALID", "rate": [2, 1]}),
    ("max_pool", [X2], {"ksize": 2, "strides": 2, "padding": "SAME"}),
    ("max_pool", [X2], {"ksize": [1, 3, 2, 1], "strides": [1, 2, 1, 1],
                        "padding": [[0, 0], [1, 1], [0, 1], [0, 0]]}),
    ("max_pool2d", [X2], {"ksize": 2, "strides": 1, "padding": "VALID"}),
    ("max_pool1d", [X1], {"ksize": 3, "strides": 2, "padding": "SAME"}),
    ("max_pool3d", [X3], {"ksize": 2, "strides": 2, "padding": "SAME"}),
    ("max_pool_v2", [X1], {"ksize": 2, "strides": 2, "padding": "SAME"}),
    ("avg_pool", [X2], {"ksize": 2, "strides": 2, "padding": "SAME"}),
    ("avg_pool1d", [X1], {"ksize": 3, "strides": 2, "padding": "SAME"}),
    ("avg_pool3d", [X3], {"ksize": 2, "strides": 2, "padding": "VALID"}),
    ("avg_pool_v2", [X3], {"ksize": 2, "strides": 1, "padding": "SAME"}),
    ("pool", [X2], {"window_shape": [2, 3], "pooling_type": "MAX", "padding": "VALID",
                    "dilation_rate": [2, 1]}),
    ("pool", [X2], {"window_shape": [2, 3], "pooling_type": "AVG", "padding": "SAME", "strides": [2, 2]}),
    ("pool", [X3], {"window_shape": [2, 1, 2], "pooling_type": "MAX", "padding": "SAME"}),
    ("lrn", [X2], {"depth_radius": 1, "alpha": 0.5, "beta": 0.75}),
    ("fused_batch_norm", [X2, draw(3), draw(3)], {}),
    ("fused_batch_norm", [X2, draw(3), draw(3), draw(3), draw(3) ** 2 + 1], {"is_training": False}),
    ("fused_batch_norm", [X2, draw(3), draw(3), draw(3), draw(3) ** 2], {"exponential_avg_factor": 0.25}),
]


def run(tf, function, arrays, named, fed):
    """(values and gradients, static shapes) of a call in graphrt or TensorFlow; `fed`: sizes unknown."""
    with tf.Graph().as_default():
        if fed:
            inputs = [tf.placeholder(tf.float32, [None] * arrays[0].ndim), *map(tf.constant, arrays[1:])]
        else:
            inputs = [tf.constant(a) for a in arrays]
        made = function(*inputs, **named)
        outputs = list(made) if isinstance(made, (tuple, list)) else [made]
        shapes = [o.shape for o in outputs]
        y = outputs[0]
        weights = np.cos(np.arange(1000, dtype=np.float32))
        with tf.Session() as session:
            feed = {inputs[0]: arrays[0]} if fed else {}
            dy = np.resize(weights, session.run(y, feed).shape)
            gradients = tf.gradients(y, inputs[:3], tf.constant(dy))
            return session.run([*outputs, *gradients], feed), shapes


@pytest.mark.parametrize("fed", [False, True], ids=["known sizes", "unknown sizes"])
@pytest.mark.parametrize("name, arrays, named", CASES, ids=[f"{i}-{c[0]}" for i, c in enumerate(CASES)])
def test_values_and_gradients_are_tensorflows(tf, name, arrays, named, fed):
    ours, our_shapes = run(graphrt, v(name)[0], arrays, named, fed)
    theirs, their_shapes = run(tf.compat.v1, getattr(tf.compat.v1.nn, name), arrays, named, fed)
    for mine, wanted in zip(ours, theirs):
        assert mine.shape == wanted.shape
        np.testing.assert_allclose(mine, wanted, rtol=2e-4, atol=2e-4)
    for mine, wanted, value in zip(our_shapes, their_shapes, ours):
        assert mine.is_compatible_with(value.shape)
        if not fed:
            assert mine.as_list() == wanted.as_list()


@pytest.mark.parametrize("name, arrays, named", CASES, ids=[f"{i}-{c[0]}" for i, c in enumerate(CASES)])
def test_graphs_run_in_tensorflow_as_they_are(tf, name, arrays, named):
    """The GraphDef of a call, its gradients included, imports into TensorFlow and gives the same there."""
    with graphrt.Graph().as_default() as graph:
        inputs = [graphrt.constant(a) for a in arrays]
        made = v(name)[0](*inputs, **named)
        y = made[0] if isinstance(made, (tuple, list)) else made
        fetched = [y, *graphrt.gradients(y, inputs[:3])]
        with graphrt.Session() as session:
            ours = session.run(fetched)
        names = [t.name for t in fetched]
        text = graph.as_graph_def().SerializeToString()
    with tf.Graph().as_default():
        graph_def = tf.compat.v1.GraphDef.FromString(text)
        imported = tf.graph_util.import_graph_def(graph_def, return_elements=names, name="")
        with tf.compat.v1.Session() as session:
            theirs = session.run(imported)
    for mine, wanted in zip(ours, theirs):
        np.testing.assert_allclose(mine, wanted, rtol=2e-4, atol=2e-4)


def test_argmax_of_a_pool_is_tensorflows(tf):
    for dtype in ("int32", "int64"):
        with graphrt.Graph().as_default():
            made = nn_pool.max_pool_with_argmax(X2, [1, 2, 2, 1], [1, 2, 2, 1], "SAME", output_dtype=dtype)
            with graphrt.Session() as session:
                maxima, places = session.run(made)
        wanted = tf.nn.max_pool_with_argmax(X2, [1, 2, 2, 1], [1, 2, 2, 1], "SAME", output_dtype=dtype)
        np.testing.assert_array_equal(maxima, wanted[0])
        np.testing.assert_array_equal(places, wanted[1])
        assert places.dtype == dtype


def test_channels_first_is_channels_last_transposed():
    def both(function, x, *more, **named):
        with graphrt.Graph().as_default(), graphrt.Session() as session:
            last = function(x, *more, **named)
            first = function(np.moveaxis(x, -1, 1), *more, data_format="NCHW", **named)
            gradient_of_last, = graphrt.gradients(last, [graphrt.constant(0.0)]) or [None]
            assert gradient_of_last is None
            a, b = session.run([last, first])
        np.testing.assert_allclose(np.moveaxis(b, 1, -1), a, rtol=1e-5, atol=1e-5)

    both(nn_conv.conv2d, X2, W2, strides=2, padding="SAME")
    both(nn_pool.max_pool, X2, ksize=2, strides=2, padding="SAME")
    both(nn_pool.avg_pool, X2, ksize=3, strides=2, padding="SAME")
    both(nn_conv.convolution, X2, W2, padding="SAME", dilation_rate=[2, 1])


@pytest.mark.parametrize("call, text", [
    (lambda: nn_conv.conv2d(X2, draw(3, 3, 2, 4), 1, "SAME"),
     "3 channels are not a multiple of the filter's 2"),
    (lambda: nn_conv.conv2d(X2, W2, [1, 1, 1], "SAME"), "strides should be of length 1, 2 or 4"),
    (lambda: nn_conv.conv2d(X2, W2, [2, 1, 1, 1], "SAME"), "1 in the batch and channel dimensions"),
    (lambda: nn_conv.conv2d(X2, draw(3, 10, 3, 4), 1, "VALID"), "output size would be"),
    (lambda: nn_conv.conv2d(X2, W2, 1, "EXPLICIT"), "says not how much"),
    (lambda: nn_conv.conv2d(X2, W2, 1, [[0, 0], [1, 1]]), "4 pairs"),
    (lambda: nn_conv.conv2d(X2, W2, 1, "SAME", filters=W2), "Cannot specify both"),
    (lambda: nn_conv.conv2d(X1, W2, 1, "SAME"), "rank 4"),
    (lambda: nn_conv.conv1d(X1, W1, 1, "SAME", data_format="NHCW"), "'NWC' or 'NCW'"),
    (lambda: nn_conv.convolution(X2, W2, "SAME", strides=[2, 2], dilation_rate=[2, 2]), "strides"),
    (lambda: nn_conv.depthwise_conv2d(X2, draw(3, 3, 2, 1), ONES, "SAME"), "the input has 3 channels"),
    (lambda: nn_conv.separable_conv2d(X2, draw(3, 3, 3, 1), draw(2, 1, 3, 4), ONES, "SAME"),
     "pointwise_filter"),
    (lambda: nn_pool.max_pool(X2, [2, 2, 2, 1], 1, "SAME"), "1 in the batch dimension"),
    (lambda: nn_pool.max_pool(X2, 0, 1, "SAME"), "above 0"),
    (lambda: nn_pool.max_pool(X2, 2, 2, [[0, 0], [2, 0], [0, 0], [0, 0]]), "padding alone"),
    (lambda: nn_pool.pool(X2, [2, 2], "MIN", "SAME"), "'MAX' or 'AVG'"),
    (lambda: nn_pool.pool(X2, [2, 2], "MAX", "SAME", strides=[3, 3]), "leave out"),
    (lambda: nn_pool.fused_batch_norm(X2, draw(3), draw(3), is_training=False), "needs mean and variance"),
    (lambda: nn_pool.fused_batch_norm(X2, draw(2), draw(3)), "one entry for each channel"),
])
def test_arguments_that_do_not_fit_are_refused_where_the_graph_is_built(call, text):
    with graphrt.Graph().as_default(), pytest.raises(ValueError, match=text):
        call()


@pytest.mark.parametrize("build, values, text", [
    (lambda a, b: nn_conv.conv2d(a, b, 1, "SAME"), (X2, draw(3, 3, 2, 4)), "multiple"),
    (lambda a, b: nn_conv.conv2d(a, b, 1, "SAME"), (X1, W2), "input must have 4 dimensions"),
    (lambda a, b: nn_conv.conv2d(a, b, 1, "VALID"), (X2, draw(3, 10, 3, 4)), "output size would be"),
    (lambda a, b: nn_conv.depthwise_conv2d_native(a, b, ONES, "SAME"), (X2, draw(3, 3, 2, 4)),
     "depthwise filter for 2"),
    (lambda a, b: nn_pool.fused_batch_norm(a, b, b), (X2, draw(2)), "each of the 3 channels"),
    (lambda a, b: graphrt.raw_ops.MaxPoolGrad(a, b, b, ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1],
                                              padding="SAME"),
     (X2, X2), "pooling an input"),
])
def test_arrays_that_do_not_fit_fail_the_step_with_their_sizes(build, values, text):
    with graphrt.Graph().as_default():
        a, b = graphrt.placeholder("float32"), graphrt.placeholder("float32")
        made = build(a, b)
        with graphrt.Session() as session, pytest.raises(graphrt.errors.InvalidArgumentError, match=text):
            session.run(made, {a: values[0], b: values[1]})
