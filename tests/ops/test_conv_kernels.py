"""Convolution and pooling kernels: NumPy, oneDNN and TensorFlow agree, over a grid of shapes."""

import contextlib
import subprocess
import sys
import threading

import ml_dtypes
import numpy as np
import pytest

from graphrt.core import conv_kernels, onednn, onednn_primitives, pool_kernels
from graphrt.core.windows import window

RNG = np.random.default_rng(7)

# (input height and width), (kernel), strides, padding, dilations
MOVES = [
    ((7, 8), (3, 3), (1, 1), "SAME", (1, 1)),
    ((7, 8), (3, 2), (2, 2), "SAME", (1, 1)),
    ((8, 7), (2, 4), (2, 3), "VALID", (1, 1)),
    ((5, 5), (1, 1), (1, 1), "VALID", (1, 1)),
    ((5, 6), (1, 1), (2, 2), "SAME", (1, 1)),
    ((9, 9), (2, 2), (3, 4), "VALID", (1, 1)),  # stride > kernel
    ((9, 8), (2, 1), (3, 4), "SAME", (1, 1)),
    ((3, 2), (5, 4), (1, 2), "SAME", (1, 1)),  # kernel > input
    ((11, 10), (3, 3), (1, 1), "SAME", (2, 3)),
    ((11, 10), (3, 2), (1, 1), "VALID", (2, 3)),
    ((6, 6), (3, 3), (2, 1), ((1, 2), (0, 3)), (1, 1)),  # explicit padding
    ((4, 4), (4, 4), (1, 1), "VALID", (1, 1)),
    ((2, 4), (3, 3), (1, 1), "VALID", (1, 1)),  # no window fits: an empty output
]
BATCH_CHANNELS_OUTPUTS = [(3, 4, 6), (0, 2, 3), (2, 1, 8), (1, 16, 16)]


def the_window(move):
    sizes, kernel, strides, padding, dilations = move
    if isinstance(padding, tuple):
        return window(sizes, kernel, strides, "EXPLICIT", dilations, padding)
    return window(sizes, kernel, strides, padding, dilations)


def tf_arguments(move):
    _, _, strides, padding, dilations = move
    named = {"strides": [1, *strides, 1], "dilations": [1, *dilations, 1]}
    if isinstance(padding, tuple):
        flat = [n for pair in padding for n in pair]
        return {**named, "padding": "EXPLICIT", "explicit_paddings": [0, 0, *flat, 0, 0]}
    return {**named, "padding": padding}


def draw(*shape, dtype=np.float32):
    if np.dtype(dtype).kind == "i":
        return RNG.integers(-5, 6, shape).astype(dtype)
    return RNG.standard_normal(shape).astype(dtype)


def draw_with_ties(*shape, dtype=np.float32):
    return RNG.integers(-3, 4, shape).astype(dtype)


def first(array):
    """Channels-last to channels-first."""
    return np.ascontiguousarray(np.moveaxis(array, -1, 1))


def last(array):
    return np.moveaxis(array, 1, -1)


@contextlib.contextmanager
def numpy_only():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(onednn_primitives, "library", lambda: None)
        yield


@pytest.fixture(params=["numpy", "onednn"])
def backend(request):
    if request.param == "numpy":
        with numpy_only():
            yield "numpy"
    elif not onednn.available():
        pytest.skip(str(onednn.available()))
    else:
        yield "onednn"


def close(got, wanted, scale=1.0):
    wanted = np.asarray(wanted)
    assert got.dtype == wanted.dtype
    assert got.shape == wanted.shape
    tolerance = {2: 2e-2, 4: 2e-5, 8: 1e-12}[got.dtype.itemsize] * scale
    np.testing.assert_allclose(
        got.astype(np.float64), wanted.astype(np.float64), rtol=tolerance, atol=tolerance
    )


def conv_by_definition(x, w, win, groups):
    """The sum that defines a convolution, in float64, by loops over window positions and kernel elements."""
    x, w = x.astype(np.float64), w.astype(np.float64)
    size, outputs = w.shape[-2], w.shape[-1] // max(groups, 1)
    y = np.zeros((x.shape[0], *win.output, w.shape[-1]))
    for position in np.ndindex(*win.output):
        for k in np.ndindex(*win.kernel):
            at = tuple(
                o * s + i * d - b
                for o, s, i, d, b in zip(position, win.strides, k, win.dilations, win.pad_before, strict=True)
            )
            if all(0 <= a < n for a, n in zip(at, win.input, strict=True)):
                for g in range(groups):
                    outs = slice(g * outputs, (g + 1) * outputs)
                    y[(slice(None), *position, outs)] += (
                        x[(slice(None), *at, slice(g * size, (g + 1) * size))] @ w[(*k, slice(None), outs)]
                    )
    return y


@pytest.mark.parametrize("move", MOVES)
@pytest.mark.parametrize("sizes", BATCH_CHANNELS_OUTPUTS)
def test_conv_equals_tensorflow(tf, backend, move, sizes):
    batch, channels, outputs = sizes
    win = the_window(move)
    x, w = draw(batch, *win.input, channels), draw(*win.kernel, channels, outputs)
    wanted = tf.raw_ops.Conv2D(input=x, filter=w, **tf_arguments(move))
    close(conv_kernels.conv(x, w, win), wanted, scale=10)
    close(last(conv_kernels.conv(first(x), w, win, channels_first=True)), wanted, scale=10)


@pytest.mark.parametrize("move", [m for m in MOVES if m[4] == (1, 1) and min(the_window(m).output)])
@pytest.mark.parametrize("sizes", BATCH_CHANNELS_OUTPUTS)
def test_conv_gradients_equal_tensorflow(tf, backend, move, sizes):
    batch, channels, outputs = sizes
    win = the_window(move)
    x, w = draw(batch, *win.input, channels), draw(*win.kernel, channels, outputs)
    dy = draw(batch, *win.output, outputs)
    named = tf_arguments(move)
    dx = tf.raw_ops.Conv2DBackpropInput(input_sizes=x.shape, filter=w, out_backprop=dy, **named)
    dw = tf.raw_ops.Conv2DBackpropFilter(input=x, filter_sizes=w.shape, out_backprop=dy, **named)
    close(conv_kernels.conv_input_gradient(dy, w, win, x.shape), dx, scale=10)
    close(conv_kernels.conv_filter_gradient(x, dy, win, w.shape), dw, scale=10)
    flipped = conv_kernels.conv_input_gradient(first(dy), w, win, first(x).shape, channels_first=True)
    close(last(flipped), dx, scale=10)
    close(
        conv_kernels.conv_filter_gradient(first(x), first(dy), win, w.shape, channels_first=True),
        dw,
        scale=10,
    )


def test_gradients_of_a_conv_without_a_window_position_are_zero(backend):
    """TensorFlow 2.21 returns uninitialised memory here."""
    win = window((2, 4), (3, 3), (1, 1), "VALID")
    x, w, dy = draw(2, 2, 4, 3), draw(3, 3, 3, 5), draw(2, 0, 2, 5)
    assert not conv_kernels.conv_input_gradient(dy, w, win, x.shape).any()
    assert not conv_kernels.conv_filter_gradient(x, dy, win, w.shape).any()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("move", MOVES)
def test_conv_and_its_gradients_are_adjoint_and_as_defined(backend, move, groups, dtype):
    """<conv(x, w), dy> = <x, input gradient> = <w, filter gradient>: holds for dilations and groups too."""
    win = the_window(move)
    x, w = draw(3, *win.input, 8, dtype=dtype), draw(*win.kernel, 8 // groups, 12, dtype=dtype)
    y = conv_kernels.conv(x, w, win)
    close(y, conv_by_definition(x, w, win, groups).astype(dtype), scale=10)
    dy = draw(*y.shape, dtype=dtype)
    dx = conv_kernels.conv_input_gradient(dy, w, win, x.shape)
    dw = conv_kernels.conv_filter_gradient(x, dy, win, w.shape)
    wanted = np.vdot(y.astype(np.float64), dy)
    size = float(np.linalg.norm(y) * np.linalg.norm(dy)) + 1
    assert np.vdot(x.astype(np.float64), dx) == pytest.approx(wanted, abs=1e-5 * size)
    assert np.vdot(w.astype(np.float64), dw) == pytest.approx(wanted, abs=1e-5 * size)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64])
@pytest.mark.parametrize("move", MOVES[:3])
def test_conv_in_other_float_dtypes_equals_tensorflow(tf, move, dtype):
    win = the_window(move)
    x, w = draw(2, *win.input, 3, dtype=dtype), draw(*win.kernel, 3, 5, dtype=dtype)
    dy = draw(2, *win.output, 5, dtype=dtype)
    named = tf_arguments(move)
    close(conv_kernels.conv(x, w, win), tf.raw_ops.Conv2D(input=x, filter=w, **named), scale=2)
    dx = tf.raw_ops.Conv2DBackpropInput(input_sizes=x.shape, filter=w, out_backprop=dy, **named)
    dw = tf.raw_ops.Conv2DBackpropFilter(input=x, filter_sizes=w.shape, out_backprop=dy, **named)
    close(conv_kernels.conv_input_gradient(dy, w, win, x.shape), dx, scale=4)
    close(conv_kernels.conv_filter_gradient(x, dy, win, w.shape), dw, scale=8)


def test_conv_of_integers_is_exact(tf):
    win = window((6, 7), (3, 2), (2, 1), "SAME")
    x, w = draw(2, 6, 7, 3, dtype=np.int32), draw(3, 2, 3, 4, dtype=np.int32)
    wanted = tf.raw_ops.Conv2D(input=x, filter=w, strides=[1, 2, 1, 1], padding="SAME")
    np.testing.assert_array_equal(conv_kernels.conv(x, w, win), wanted)


@pytest.mark.parametrize("sizes", [(5,), (4, 5, 6)])
@pytest.mark.parametrize("padding", ["SAME", "VALID"])
def test_conv_takes_one_and_three_spatial_dimensions(tf, backend, sizes, padding):
    rank = len(sizes)
    win = window(sizes, (3, 2, 2)[:rank], (2, 1, 2)[:rank], padding)
    x, w = draw(2, *sizes, 3), draw(*win.kernel, 3, 4)
    y = conv_kernels.conv(x, w, win)
    close(y, conv_by_definition(x, w, win, 1).astype(np.float32), scale=10)
    dy = draw(*y.shape)
    dx = conv_kernels.conv_input_gradient(dy, w, win, x.shape)
    dw = conv_kernels.conv_filter_gradient(x, dy, win, w.shape)
    if rank == 3:
        named = {"strides": [1, *win.strides, 1], "padding": padding}
        close(y, tf.raw_ops.Conv3D(input=x, filter=w, **named), scale=10)
        close(
            dx,
            tf.raw_ops.Conv3DBackpropInputV2(input_sizes=x.shape, filter=w, out_backprop=dy, **named),
            scale=10,
        )
        close(
            dw,
            tf.raw_ops.Conv3DBackpropFilterV2(input=x, filter_sizes=w.shape, out_backprop=dy, **named),
            scale=10,
        )
    else:
        assert np.vdot(x, dx) == pytest.approx(np.vdot(y, dy), rel=1e-4, abs=1e-3)
        assert np.vdot(w, dw) == pytest.approx(np.vdot(y, dy), rel=1e-4, abs=1e-3)


@pytest.mark.parametrize("batch, channels, multiplier", [(2, 3, 1), (2, 8, 2), (0, 2, 1), (1, 16, 1)])
@pytest.mark.parametrize(
    "move", [m for m in MOVES if m[4] == (1, 1) and m[2][0] == m[2][1] and min(m[0]) >= 3]
)
def test_depthwise_conv_and_its_gradients_equal_tensorflow(tf, backend, move, batch, channels, multiplier):
    win = the_window(move)
    x, w = draw(batch, *win.input, channels), draw(*win.kernel, channels, multiplier)
    dy = draw(batch, *win.output, channels * multiplier)
    named = tf_arguments(move)
    y = tf.raw_ops.DepthwiseConv2dNative(input=x, filter=w, **named)
    dx = tf.raw_ops.DepthwiseConv2dNativeBackpropInput(
        input_sizes=x.shape, filter=w, out_backprop=dy, **named
    )
    dw = tf.raw_ops.DepthwiseConv2dNativeBackpropFilter(
        input=x, filter_sizes=w.shape, out_backprop=dy, **named
    )
    k = conv_kernels
    close(k.depthwise_conv(x, w, win), y, scale=10)
    close(k.depthwise_conv_input_gradient(dy, w, win, x.shape), dx, scale=10)
    if batch == 0:  # TensorFlow 2.21 returns uninitialised memory
        dw = np.zeros_like(w)
    close(k.depthwise_conv_filter_gradient(x, dy, win, w.shape), dw, scale=10)
    cf = {"channels_first": True}
    close(last(k.depthwise_conv(first(x), w, win, **cf)), y, scale=10)
    close(last(k.depthwise_conv_input_gradient(first(dy), w, win, first(x).shape, **cf)), dx, scale=10)
    close(k.depthwise_conv_filter_gradient(first(x), first(dy), win, w.shape, **cf), dw, scale=10)


def test_a_depthwise_conv_is_a_conv_in_as_many_groups_as_channels(backend):
    win = window((9, 8), (3, 3), (1, 2), "SAME", (2, 1))
    x, w = draw(2, 9, 8, 6), draw(3, 3, 6, 2)
    dy = draw(2, *win.output, 12)
    grouped = w.reshape(3, 3, 1, 12)
    k = conv_kernels
    close(k.depthwise_conv(x, w, win), k.conv(x, grouped, win), scale=10)
    close(
        k.depthwise_conv_input_gradient(dy, w, win, x.shape),
        k.conv_input_gradient(dy, grouped, win, x.shape),
        10,
    )
    close(
        k.depthwise_conv_filter_gradient(x, dy, win, w.shape).reshape(grouped.shape),
        k.conv_filter_gradient(x, dy, win, grouped.shape),
        scale=10,
    )


def test_blocks_over_images_and_rows_do_not_change_a_result(monkeypatch):
    win = window((13, 11), (3, 4), (2, 1), "SAME", (1, 2))
    x, w = draw(5, 13, 11, 3, dtype=np.float64), draw(3, 4, 3, 4, dtype=np.float64)
    dy = draw(5, *win.output, 4, dtype=np.float64)

    def results():
        return (
            conv_kernels.conv(x, w, win),
            conv_kernels.conv_input_gradient(dy, w, win, x.shape),
            conv_kernels.conv_filter_gradient(x, dy, win, w.shape),
        )

    whole = results()
    row = 11 * 12 * 3 * 8
    for limit in (1, 2 * row, 7 * row, 20 * row):
        monkeypatch.setattr(conv_kernels, "BLOCK_BYTES", limit)
        for got, wanted in zip(results(), whole, strict=True):
            close(got, wanted)


POOL_MOVES = [m for m in MOVES if m[4] == (1, 1) and not isinstance(m[3], tuple) and min(m[0]) >= 3]


@pytest.mark.parametrize("move", POOL_MOVES)
@pytest.mark.parametrize("batch, channels", [(2, 5), (0, 3), (3, 16)])
def test_max_pool_and_its_gradient_equal_tensorflow_also_on_ties(tf, backend, move, batch, channels):
    win = the_window(move)
    x = draw_with_ties(batch, *win.input, channels)
    dy = draw(batch, *win.output, channels)
    named = {"ksize": [1, *win.kernel, 1], "strides": [1, *win.strides, 1], "padding": move[3]}
    y = tf.raw_ops.MaxPool(input=x, **named)
    dx = tf.raw_ops.MaxPoolGrad(orig_input=x, orig_output=y, grad=dy, **named)
    close(pool_kernels.max_pool(x, win), y)
    close(pool_kernels.max_pool_gradient(x, dy, win), dx)
    close(last(pool_kernels.max_pool(first(x), win, channels_first=True)), y)
    close(last(pool_kernels.max_pool_gradient(first(x), first(dy), win, channels_first=True)), dx)


@pytest.mark.parametrize("move", POOL_MOVES)
def test_max_pool_second_gradient_and_argmax_equal_tensorflow(tf, move):
    win = the_window(move)
    x, ddx = draw(2, *win.input, 3), draw(2, *win.input, 3)
    named = {"ksize": [1, *win.kernel, 1], "strides": [1, *win.strides, 1], "padding": move[3]}
    y = tf.raw_ops.MaxPool(input=x, **named)
    close(
        pool_kernels.max_pool_gradient_gradient(x, ddx, win),
        tf.raw_ops.MaxPoolGradGrad(orig_input=x, orig_output=y, grad=ddx, **named),
    )
    for with_batch in (False, True):
        wanted = tf.raw_ops.MaxPoolWithArgmax(input=x, include_batch_in_index=with_batch, **named)
        values, index = pool_kernels.max_pool_with_argmax(x, win, include_batch_in_index=with_batch)
        close(values, wanted.output)
        np.testing.assert_array_equal(index, wanted.argmax)
        dy = draw(*values.shape)
        close(
            pool_kernels.scatter_by_argmax(dy, index, x.shape, include_batch_in_index=with_batch),
            pool_kernels.max_pool_gradient(x, dy, win),
        )
        close(
            pool_kernels.gather_by_argmax(ddx, index, include_batch_in_index=with_batch),
            pool_kernels.max_pool_gradient_gradient(x, ddx, win),
        )


@pytest.mark.parametrize("move", POOL_MOVES)
@pytest.mark.parametrize("batch, channels", [(2, 5), (0, 3), (3, 16)])
def test_avg_pool_and_its_gradient_equal_tensorflow(tf, backend, move, batch, channels):
    win = the_window(move)
    x, dy = draw(batch, *win.input, channels), draw(batch, *win.output, channels)
    named = {"ksize": [1, *win.kernel, 1], "strides": [1, *win.strides, 1], "padding": move[3]}
    y = tf.raw_ops.AvgPool(value=x, **named)
    dx = tf.raw_ops.AvgPoolGrad(orig_input_shape=x.shape, grad=dy, **named)
    close(pool_kernels.avg_pool(x, win), y)
    close(pool_kernels.avg_pool_gradient(dy, win, x.shape), dx)
    close(last(pool_kernels.avg_pool(first(x), win, channels_first=True)), y)
    flipped = pool_kernels.avg_pool_gradient(first(dy), win, first(x).shape, channels_first=True)
    close(last(flipped), dx)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64, np.int32, np.uint8])
def test_pools_in_other_dtypes_equal_tensorflow(tf, dtype):
    win = window((7, 6), (3, 2), (2, 2), "SAME")
    x = RNG.integers(0, 9, (2, 7, 6, 3)).astype(dtype)
    named = {"ksize": [1, 3, 2, 1], "strides": [1, 2, 2, 1], "padding": "SAME"}
    y = tf.raw_ops.MaxPool(input=tf.constant(x), **named)
    np.testing.assert_array_equal(pool_kernels.max_pool(x, win), y)
    if dtype in (np.int32, np.uint8):
        return
    dy = draw(2, *win.output, 3, dtype=dtype)
    wanted = tf.raw_ops.MaxPoolGrad(orig_input=tf.constant(x), orig_output=y, grad=tf.constant(dy), **named)
    close(pool_kernels.max_pool_gradient(x, dy, win), wanted)
    close(pool_kernels.avg_pool(x, win), tf.raw_ops.AvgPool(value=x, **named))
    close(
        pool_kernels.avg_pool_gradient(dy, win, x.shape),
        tf.raw_ops.AvgPoolGrad(orig_input_shape=x.shape, grad=dy, **named),
    )


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
def test_pools_over_three_dimensions_equal_tensorflow(tf, backend, padding):
    win = window((5, 6, 4), (2, 3, 2), (2, 2, 1), padding)
    x, dy = draw(2, 5, 6, 4, 3), draw(2, *win.output, 3)
    named = {"ksize": [1, 2, 3, 2, 1], "strides": [1, 2, 2, 1, 1], "padding": padding}
    y = tf.raw_ops.MaxPool3D(input=x, **named)
    close(pool_kernels.max_pool(x, win), y)
    close(
        pool_kernels.max_pool_gradient(x, dy, win),
        tf.raw_ops.MaxPool3DGrad(orig_input=x, orig_output=y, grad=dy, **named),
    )
    close(pool_kernels.avg_pool(x, win), tf.raw_ops.AvgPool3D(input=x, **named))
    close(
        pool_kernels.avg_pool_gradient(dy, win, x.shape),
        tf.raw_ops.AvgPool3DGrad(orig_input_shape=x.shape, grad=dy, **named),
    )


def test_out_is_filled_and_returned_and_checked(backend):
    win = window((6, 6), (3, 3), (1, 1), "SAME")
    x, w = draw(2, 6, 6, 4), draw(3, 3, 4, 5)
    out = np.full((2, 6, 6, 5), np.nan, np.float32)
    assert conv_kernels.conv(x, w, win, out=out) is out
    np.testing.assert_array_equal(out, conv_kernels.conv(x, w, win))
    with pytest.raises(ValueError, match="contiguous float32 array of shape"):
        conv_kernels.conv(x, w, win, out=out[..., :4])


def test_views_give_the_bits_of_contiguous_arrays(backend):
    win = window((6, 7), (3, 3), (1, 1), "SAME")
    wide, w = draw(4, 6, 7, 10), draw(3, 3, 5, 8)
    view, plain = wide[::2, ..., ::2], np.ascontiguousarray(wide[::2, ..., ::2])
    np.testing.assert_array_equal(conv_kernels.conv(view, w, win), conv_kernels.conv(plain, w, win))
    np.testing.assert_array_equal(pool_kernels.max_pool(view, win), pool_kernels.max_pool(plain, win))


@pytest.mark.parametrize(
    "call, text",
    [
        (lambda w: conv_kernels.conv(draw(1, 6, 6, 5), draw(3, 3, 2, 4), w), "5 channels"),
        (lambda w: conv_kernels.conv(draw(1, 6, 6, 4), draw(3, 3, 2, 3), w), "outputs a multiple"),
        (lambda w: conv_kernels.depthwise_conv(draw(1, 6, 6, 4), draw(3, 3, 2, 3), w), "for 2 channels"),
        (
            lambda w: conv_kernels.conv_input_gradient(draw(1, 5, 6, 4), draw(3, 3, 2, 4), w, (1, 6, 6, 2)),
            r"\[1, 6, 6, 4\]",
        ),
        (
            lambda w: pool_kernels.max_pool_gradient(draw(1, 6, 6, 4), draw(1, 6, 6, 3), w),
            r"gives \[1, 6, 6, 4\]",
        ),
        (lambda w: window((2,), (5,), (1,), "VALID"), "kernel of 5"),
        (lambda w: window((2,), (5,), (0,), "SAME"), "stride must be at least 1"),
        (lambda w: window((2,), (0,), (1,), "SAME"), "kernel size must be at least 1"),
        (lambda w: window((2, 2), (5,), (1,), "SAME"), "2 spatial dimensions"),
        (
            lambda w: pool_kernels.scatter_by_argmax(
                draw(1, 1, 1, 1), np.full((1, 1, 1, 1), 9), (1, 2, 2, 1)
            ),
            r"\[0, 4\)",
        ),
    ],
)
def test_shapes_that_do_not_fit_are_refused_with_their_sizes(call, text):
    with pytest.raises(ValueError, match=text):
        call(window((6, 6), (3, 3), (1, 1), "SAME"))


needs_onednn = pytest.mark.skipif(not onednn.available(), reason=str(onednn.available()))


@needs_onednn
def test_lenet_runs_in_onednn_and_not_in_its_reference_code():
    onednn_primitives.forget_programs()
    first_conv, second_conv = (window((n, n), (5, 5), (1, 1), "SAME") for n in (28, 14))
    halves = window((28, 28), (2, 2), (2, 2), "SAME")
    x, w1, w2 = draw(50, 28, 28, 1), draw(5, 5, 1, 32), draw(5, 5, 32, 64)
    y1 = conv_kernels.conv(x, w1, first_conv)
    p1 = pool_kernels.max_pool(y1, halves)
    y2 = conv_kernels.conv(p1, w2, second_conv)
    conv_kernels.conv_filter_gradient(p1, y2, second_conv, w2.shape)
    dp1 = conv_kernels.conv_input_gradient(y2, w2, second_conv, p1.shape)
    dy1 = pool_kernels.max_pool_gradient(y1, dp1, halves)
    conv_kernels.conv_filter_gradient(x, dy1, first_conv, w1.shape)
    names = onednn_primitives.implementations()
    assert len(names) == 7
    assert not [name for used in names.values() for name in used if "ref" in name]


@needs_onednn
def test_bias_and_relu_can_be_part_of_the_convolution():
    win = window((9, 9), (3, 3), (2, 2), "SAME")
    x, w, bias = draw(2, 9, 9, 3), draw(3, 3, 3, 8), draw(8)
    plain = conv_kernels.conv(x, w, win)
    out = np.empty_like(plain)
    assert onednn_primitives.convolution(x, w, win, out, bias=bias)
    close(out, plain + bias, scale=10)
    assert onednn_primitives.convolution(x, w, win, out, bias=bias, relu=True)
    close(out, np.maximum(plain + bias, 0), scale=10)


@needs_onednn
@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("m, k, n", [(1, 1, 1), (3, 70, 5), (130, 90, 110), (1, 300, 200), (200, 300, 1)])
def test_matrix_products_take_transposes(turned, m, k, n):
    a, b, out = draw(m, k), draw(k, n), np.full((m, n), np.nan, np.float32)
    given = [x.T.copy().T if turn else x for x, turn in zip((a, b), turned)]
    assert onednn_primitives.matrix_product(*given, out)
    close(out, (a.astype(np.float64) @ b).astype(np.float32), scale=10)


@needs_onednn
def test_matrix_products_decline_what_they_cannot_take():
    a, b, out = draw(4, 6), draw(6, 8), np.zeros((4, 8), np.float32)
    assert not onednn_primitives.matrix_product(a[:, ::2], b[::2], out)
    assert not onednn_primitives.matrix_product(a.astype(np.float64), b, out)
    assert not onednn_primitives.matrix_product(a, b, np.zeros((4, 16), np.float32)[:, ::2])
    assert not onednn_primitives.matrix_product(a[:0], b, out[:0])
    assert not out.any()
    with pytest.raises(ValueError, match="cannot put"):
        onednn_primitives.matrix_product(a, b, out[:3])


@needs_onednn
def test_programs_kept_are_bounded_and_a_forgotten_one_is_built_again(monkeypatch):
    monkeypatch.setattr(onednn_primitives, "KEPT_PROGRAMS", 3)
    onednn_primitives.forget_programs()
    w = draw(3, 3, 2, 4)
    for _ in range(2):
        for size in range(4, 12):
            x = draw(1, size, size, 2)
            win = window((size, size), (3, 3), (1, 1), "SAME")
            close(conv_kernels.conv(x, w, win), conv_by_definition(x, w, win, 1).astype(np.float32), scale=10)
    assert len(onednn_primitives.implementations()) == 3


@needs_onednn
def test_threads_that_compute_at_once_get_their_own_results():
    cases = []
    for size in (6, 9, 12, 15):
        win = window((size, size), (3, 3), (1, 1), "SAME")
        x, w = draw(4, size, size, 8), draw(3, 3, 8, 16)
        cases.append((x, w, win, conv_kernels.conv(x, w, win)))
    wrong = []

    def work(start):
        for i in range(40):
            x, w, win, wanted = cases[(start + i) % len(cases)]
            if not np.array_equal(conv_kernels.conv(x, w, win), wanted):
                wrong.append((start, i))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert not wrong


@needs_onednn
def test_a_forked_child_computes_without_its_parents_threads():
    """A child that waited for the OpenMP team of its parent would never end."""
    script = """
import os, sys, threading
import numpy as np
from graphrt.core import conv_kernels, onednn_primitives
from graphrt.core.windows import window

x, w = np.ones((8, 20, 20, 16), "f"), np.ones((3, 3, 16, 32), "f")
win = window((20, 20), (3, 3), (1, 1), "SAME")
wanted = conv_kernels.conv(x, w, win)
same = []

def check():
    same.append(np.array_equal(conv_kernels.conv(x, w, win), wanted))

child = os.fork()
if child == 0:
    check()
    thread = threading.Thread(target=check)
    thread.start()
    thread.join()
    os._exit(0 if same == [True, True] and onednn_primitives.implementations() else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert subprocess.run([sys.executable, "-W", "ignore", "-c", script], timeout=60).returncode == 0


@needs_onednn
def test_a_large_scratch_area_is_not_kept():
    scratch = onednn.Scratch(keep_bytes=1 << 20)
    address, owner = scratch.reserve(1000)
    assert address % 64 == 0
    assert scratch.reserve(1 << 19)[0] % 64 == 0
    assert scratch.kept_bytes() >= 1 << 19
    scratch.reserve(1 << 22)
    assert scratch.kept_bytes() < 1 << 20


def test_a_library_that_is_not_there_is_explained(monkeypatch):
    monkeypatch.delenv(onednn.ENVIRONMENT, raising=False)
    monkeypatch.setattr(onednn, "_candidates", lambda: ["/nowhere/libdnnl.so.3"])
    found, availability = onednn._load()
    assert found is None
    assert not availability
    assert "/nowhere/libdnnl.so.3" in str(availability)


def test_onednn_can_be_turned_off_by_the_environment(monkeypatch):
    monkeypatch.setenv(onednn.ENVIRONMENT, "off")
    found, availability = onednn._load()
    assert found is None
    assert "GRAPHRT_ONEDNN=off" in availability.reason
