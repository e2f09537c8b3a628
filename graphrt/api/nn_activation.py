"""Of tf.nn: activations, softmax, biases, dropout."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np

from graphrt.api import array_api, math_api, random_api
from graphrt.core import raw
from graphrt.core.arguments import renamed
from graphrt.core.constant_value import constant_value
from graphrt.core.convert import convert_to_tensor, is_tensor
from graphrt.core.default_graph import name_scope
from graphrt.core.dtypes import float32
from graphrt.core.errors import InvalidArgumentError
from graphrt.core.shapes import TensorShape
from graphrt.core.tensor import Tensor

__all__ = [
    "bias_add",
    "crelu",
    "dropout",
    "elu",
    "gelu",
    "l2_loss",
    "leaky_relu",
    "log_softmax",
    "relu",
    "relu6",
    "relu_layer",
    "selu",
    "sigmoid",
    "silu",
    "softmax",
    "softplus",
    "softsign",
    "swish",
    "tanh",
    "xw_plus_b",
]

sigmoid, tanh = math_api.sigmoid, math_api.tanh


def relu(features: Any, name: str | None = None) -> Tensor:
    """max(features, 0)."""
    return raw.Relu(features, name=name)


def relu6(features: Any, name: str | None = None) -> Tensor:
    """min(max(features, 0), 6)."""
    with name_scope(name, "Relu6", [features]) as name:
        return raw.Relu6(convert_to_tensor(features, name="features"), name=name)


def leaky_relu(features: Any, alpha: Any = 0.2, name: str | None = None) -> Tensor:
    """`features` where positive, else alpha * features; ints are taken as float32."""
    with name_scope(name, "LeakyRelu", [features, alpha]) as name:
        features = convert_to_tensor(features, name="features")
        if features.dtype.is_integer:
            features = math_api.cast(features, float32)
        return raw.LeakyRelu(
            features, alpha=alpha.item() if isinstance(alpha, np.ndarray) else alpha, name=name
        )


def elu(features: Any, name: str | None = None) -> Tensor:
    """`features` where positive, else exp(features) - 1."""
    return raw.Elu(features, name=name)


def selu(features: Any, name: str | None = None) -> Tensor:
    """Elu scaled so that mean 0 and variance 1 stay; weights begin as LeCun's normal initializer makes
    them."""
    return raw.Selu(features, name=name)


def softplus(features: Any, name: str | None = None) -> Tensor:
    """log(exp(features) + 1)."""
    return raw.Softplus(features, name=name)


def softsign(features: Any, name: str | None = None) -> Tensor:
    """features / (|features| + 1)."""
    return raw.Softsign(features, name=name)


def crelu(features: Any, name: str | None = None, axis: int = -1) -> Tensor:
    """relu of features and of -features, one after the other along `axis`."""
    with name_scope(name, "CRelu", [features]) as name:
        features = convert_to_tensor(features, name="features")
        return raw.Relu(array_api.concat([features, -features], axis, name=name))


def silu(features: Any, beta: Any = 1.0) -> Tensor:
    """features * sigmoid(beta * features)."""
    features = convert_to_tensor(features, name="features")
    beta = math_api.cast(convert_to_tensor(beta, name="beta"), features.dtype)
    return features * sigmoid(beta * features)


swish = silu


def gelu(features: Any, approximate: bool = False, name: str | None = None) -> Tensor:
    """features * P(X <= features) for a standard normal X; by tanh where `approximate`."""
    with name_scope(name, "Gelu", [features]):
        features = convert_to_tensor(features, name="features")
        if not features.dtype.is_floating:
            raise ValueError(
                f"gelu takes a floating point tensor, and features is {features.dtype.base_dtype.name}"
            )
        if approximate:
            cubic = math_api.cast(0.044715, features.dtype) * math_api.pow(features, 3)
            return 0.5 * features * (1.0 + tanh(0.7978845608028654 * (features + cubic)))
        return 0.5 * features * raw.Erfc(-features * math_api.cast(0.7071067811865476, features.dtype))


def l2_loss(t: Any, name: str | None = None) -> Tensor:
    """sum(t ** 2) / 2."""
    return raw.L2Loss(t, name=name)


def _on_last_axis(logits: Any, op: Any, axis: Any, name: str | None) -> Tensor:
    """`op`, a function of the last axis, applied to `axis`."""
    logits = convert_to_tensor(logits)
    shape = logits.shape
    if not isinstance(axis, Tensor) and (axis == -1 or shape.rank is not None and axis == shape.rank - 1):
        return op(logits, name=name)
    known = axis if not isinstance(axis, Tensor) else constant_value(axis)
    if shape.rank is None:
        raise ValueError(
            f"{op.name} over axis {axis} needs logits of known rank; over -1, the last axis, it does not"
        )
    if known is not None and not -shape.rank <= known < shape.rank:
        raise InvalidArgumentError(
            None,
            None,
            f"`dim` must be in the range [{-shape.rank}, {shape.rank}) where {shape.rank} is the number "
            f"of dimensions in the input. Received: dim={known}",
        )
    rank = array_api.rank(logits)
    if isinstance(axis, Tensor):
        axis = array_api.where(math_api.less(axis, 0), axis + rank, axis)
    elif axis < 0:
        axis += rank
    place, rank = axis % shape.rank, array_api.rank(logits)
    # Its own inverse: the axis and the last one change places.
    moved = _swapped(logits, place, math_api.subtract(rank, 1))
    made = _swapped(op(moved), place, math_api.subtract(rank, 1), name)
    made.set_shape(shape)
    return made


def _swapped(x: Tensor, i: Any, last: Tensor, name: str | None = None) -> Tensor:
    order = array_api.concat([math_api.range(i), [last], math_api.range(i + 1, last), [i]], 0)
    return array_api.transpose(x, order, name=name)


def softmax(logits: Any, axis: Any = None, name: str | None = None, dim: Any = None) -> Tensor:
    """exp(logits) / sum(exp(logits)) over `axis`, the last one by default. `dim` is its older name.

    Raises:
      InvalidArgumentError: logits have no such axis.
    """
    axis = renamed("axis", axis, "dim", dim)
    return _on_last_axis(logits, raw.Softmax, -1 if axis is None else axis, name)


def log_softmax(logits: Any, axis: Any = None, name: str | None = None, dim: Any = None) -> Tensor:
    """logits - log(sum(exp(logits))) over `axis`, the last one by default. `dim` is its older name.

    Raises:
      InvalidArgumentError: logits have no such axis.
    """
    axis = renamed("axis", axis, "dim", dim)
    return _on_last_axis(logits, raw.LogSoftmax, -1 if axis is None else axis, name)


def bias_add(value: Any, bias: Any, data_format: str | None = None, name: str | None = None) -> Tensor:
    """value + bias, one bias a channel.

    Args:
      value: tensor of rank 2 or more.
      bias: vector as long as `value` has channels.
      data_format: 'N...C' (channels last, the default) or 'NC...'.
    Raises:
      ValueError: another data_format, or another number of channels.
    """
    with name_scope(name, "BiasAdd", [value, bias]) as name:
        if data_format is not None:
            if data_format.startswith("NC"):
                data_format = "NCHW"
            elif data_format.startswith("N") and data_format.endswith("C"):
                data_format = "NHWC"
            else:
                raise ValueError(
                    "`data_format` must be of the form `N...C` or `NC...`. Received: "
                    f"data_format={data_format}"
                )
        value = convert_to_tensor(value, name="input")
        bias = convert_to_tensor(bias, dtype=value.dtype, name="bias")
        return raw.BiasAdd(value, bias, data_format=data_format, name=name)


def xw_plus_b(x: Any, weights: Any, biases: Any, name: str | None = None) -> Tensor:
    """matmul(x, weights) + biases."""
    with name_scope(name, "xw_plus_b", [x, weights, biases]) as name:
        x, weights, biases = _layer(x, weights, biases)
        return bias_add(math_api.matmul(x, weights), biases, name=name)


def relu_layer(x: Any, weights: Any, biases: Any, name: str | None = None) -> Tensor:
    """relu(matmul(x, weights) + biases)."""
    with name_scope(name, "relu_layer", [x, weights, biases]) as name:
        x, weights, biases = _layer(x, weights, biases)
        return relu(bias_add(math_api.matmul(x, weights), biases), name=name)


def _layer(x: Any, weights: Any, biases: Any) -> tuple[Tensor, Tensor, Tensor]:
    return (
        convert_to_tensor(x, name="x"),
        convert_to_tensor(weights, name="weights"),
        convert_to_tensor(biases, name="biases"),
    )


def dropout(
    x: Any,
    keep_prob: Any = None,
    noise_shape: Any = None,
    seed: int | None = None,
    name: str | None = None,
    rate: Any = None,
) -> Tensor:
    """`x` with a share `rate` of its elements set to 0, chosen at random, and the others scaled by 1 / (1 -
    rate).

    Args:
      x: floating point tensor.
      keep_prob: 1 - rate, the older way to say it.
      noise_shape: shape of what is chosen; it broadcasts to x (sizes of 1 choose whole rows). x's by default.
      rate: a number in [0, 1), or a scalar tensor.
    Raises:
      ValueError: no rate or one outside [0, 1), or x is not floating point.
    """
    try:
        from_keep_prob = 1.0 - keep_prob if keep_prob is not None else None
    except TypeError:
        raise ValueError(
            f"`keep_prob` must be a floating point number or Tensor. Received: keep_prob={keep_prob}"
        ) from None
    rate = renamed("rate", rate, "keep_prob", from_keep_prob)
    if rate is None:
        raise ValueError(f"`rate` must be provided. Received: rate={rate}")
    return _dropout(x, rate, noise_shape, seed, name)


def _dropout(x: Any, rate: Any, noise_shape: Any, seed: int | None, name: str | None) -> Tensor:
    with name_scope(name, "dropout", [x]):
        is_number = isinstance(rate, Real)
        if is_number and not 0 <= rate < 1:
            raise ValueError(
                f"`rate` must be a scalar tensor or a float in the range [0, 1). Received: rate={rate}"
            )
        x = convert_to_tensor(x, name="x")
        dtype = x.dtype.base_dtype
        if not dtype.is_floating:
            raise ValueError(
                "`x.dtype` must be a floating point tensor as `x` will be scaled. Received: "
                f"x_dtype={dtype.name}"
            )
        if is_number and rate == 0:
            # The seeds of later random ops are those they would have with a rate above 0.
            random_api.get_seed(seed)
            return x
        if is_number:
            kept = raw.Mul(x, convert_to_tensor(1 / (1 - rate), dtype=dtype))
        elif is_tensor(rate):
            rate.shape.assert_has_rank(0)
            if rate.dtype.base_dtype is not dtype:
                raise ValueError(
                    f"`x.dtype` must be compatible with `rate.dtype`. Received: x.dtype={dtype.name} and "
                    f"rate.dtype={rate.dtype.base_dtype.name}: tf.cast(rate, x.dtype) converts it"
                )
            kept = raw.RealDiv(x, raw.Sub(array_api.constant(1, dtype=dtype), rate))
        else:
            raise ValueError(f"`rate` must be a scalar or scalar tensor. Received: rate={rate}")
        drawn = random_api.random_uniform(_noise_shape(x, noise_shape), dtype=dtype, seed=seed)
        is_kept = drawn >= rate
        made = raw.SelectV2(is_kept, kept, array_api.constant(0, dtype=dtype))
        made.set_shape(x.shape)
        return made


def _noise_shape(x: Tensor, noise_shape: Any) -> Any:
    """The shape of the noise: x's where none is given, and in the sizes that are None."""
    if noise_shape is None:
        return array_api.shape(x)
    try:
        given = TensorShape(noise_shape)
    except (TypeError, ValueError):
        return noise_shape
    if x.shape.sizes is None or given.sizes is None or len(x.shape.sizes) != len(given.sizes):
        return noise_shape
    return TensorShape([n if g is None else g for n, g in zip(x.shape.sizes, given.sizes)])
