"""Ops that TensorFlow's optimizer fuses are what they were fused of."""

import itertools

import numpy as np
import pytest

from graphrt.core.constant_value import run_kernel
from graphrt.core.dtypes import of_array
from graphrt.core.registry import OPS, KernelContext

_RNG = np.random.default_rng(0)


def draw(*shape):
    return _RNG.normal(size=shape).astype(np.float32)


def kernel(op_type, *inputs, outputs=1, **attrs):
    op_def = OPS[op_type]
    filled = {name: a.default for name, a in op_def.attrs.items()}
    filled.update(T=of_array(inputs[0]), **attrs)
    dtype = of_array(inputs[0])
    made = run_kernel(
        op_def,
        KernelContext("n", op_type, filled, [of_array(i) for i in inputs], [dtype] * outputs),
        list(inputs),
    )
    return made if outputs > 1 else made[0]


def gelu(tf, x):
    return tf.nn.gelu(x, approximate=False)


_AFTER = {
    "Relu": lambda tf, x: tf.nn.relu(x),
    "Relu6": lambda tf, x: tf.nn.relu6(x),
    "Elu": lambda tf, x: tf.nn.elu(x),
    "Tanh": lambda tf, x: tf.tanh(x),
    "Sigmoid": lambda tf, x: tf.sigmoid(x),
    "LeakyRelu": lambda tf, x: tf.nn.leaky_relu(x, 0.3),
    "GeluExact": gelu,
    "GeluApproximate": lambda tf, x: tf.nn.gelu(x, approximate=True),
    "_MklSwish": lambda tf, x: tf.nn.silu(x),
}


@pytest.mark.parametrize("turned, name", list(itertools.product([False, True], [None, *_AFTER])))
def test_a_product_with_bias_and_activation(tf, turned, name):
    a, b, bias = draw(5, 4), draw(3, 4) if turned else draw(4, 3), draw(3)
    made = kernel(
        "_FusedMatMul",
        a,
        b,
        bias,
        transpose_b=turned,
        num_args=1,
        leakyrelu_alpha=0.3,
        fused_ops=[b"BiasAdd", *([name.encode()] if name else [])],
    )
    expected = tf.matmul(a, b, transpose_b=turned) + bias
    np.testing.assert_allclose(made, _AFTER[name](tf, expected) if name else expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("data_format", ["NHWC", "NCHW"])
@pytest.mark.parametrize(
    "fused", [["BiasAdd"], ["BiasAdd", "Relu"], ["FusedBatchNorm", "Relu"], ["BiasAdd", "Add", "Elu"]]
)
def test_a_convolution_and_what_follows(tf, data_format, fused):
    x, w, bias = draw(2, 6, 6, 3), draw(3, 3, 3, 4), draw(4)
    scale, offset, mean, variance, other = (
        np.abs(draw(4)) + 0.5,
        draw(4),
        draw(4),
        np.abs(draw(4)) + 0.5,
        draw(2, 6, 6, 4),
    )
    y = tf.nn.conv2d(x, w, 1, "SAME")
    args = []
    for name in fused:
        if name == "BiasAdd":
            y, args = y + bias, [*args, bias]
        elif name == "Add":
            y, args = y + other, [*args, other]
        elif name == "FusedBatchNorm":
            y = (y - mean) * (scale / np.sqrt(variance + np.float32(1e-3))) + offset
            args += [scale, offset, mean, variance]
        else:
            y = _AFTER[name](tf, y)
    turn = (lambda v: np.moveaxis(v, -1, 1) if v.ndim == 4 else v) if data_format == "NCHW" else (lambda v: v)
    made = kernel(
        "_FusedConv2D",
        turn(x),
        w,
        *map(turn, args),
        strides=[1, 1, 1, 1],
        padding=b"SAME",
        epsilon=1e-3,
        data_format=data_format.encode(),
        fused_ops=[f.encode() for f in fused],
    )
    np.testing.assert_allclose(made, turn(y.numpy()), rtol=1e-4, atol=1e-5)


def test_composed_elementwise_ops(tf):
    x = np.abs(draw(3, 8)) + 0.1
    np.testing.assert_allclose(
        kernel("_UnaryOpsComposition", x, op_names=[b"Sqrt", b"Neg", b"Exp"]), np.exp(-np.sqrt(x)), rtol=1e-6
    )
    np.testing.assert_allclose(kernel("_MklFusedMish", x), x * np.tanh(np.log1p(np.exp(x))), rtol=1e-5)
    normalised = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 0.001)
    np.testing.assert_allclose(
        kernel("_MklLayerNorm", x, np.full(8, 2, np.float32), np.ones(8, np.float32)),
        normalised * 2 + 1,
        rtol=1e-4,
        atol=1e-5,
    )


def test_an_unknown_fusion_is_refused_by_name():
    with pytest.raises(ValueError, match="'Softcap'"):
        kernel("_FusedMatMul", draw(2, 2), draw(2, 2), num_args=0, fused_ops=[b"Softcap"])
