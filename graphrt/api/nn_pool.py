"""Of tf.nn: max and average pooling; fused batch normalization and local response normalization."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from graphrt.api.nn_conv import check_strides_and_rates
from graphrt.api.nn_space_to_batch import is_channels_first, one_each, split_padding, with_space_to_batch
from graphrt.core import raw
from graphrt.core.arguments import renamed
from graphrt.core.convert import convert_to_tensor
from graphrt.core.default_graph import name_scope
from graphrt.core.dtypes import int64
from graphrt.core.tensor import Tensor

__all__ = ["avg_pool", "avg_pool1d", "avg_pool2d", "avg_pool3d", "avg_pool_v2", "fused_batch_norm",
           "local_response_normalization", "lrn", "max_pool", "max_pool1d", "max_pool2d", "max_pool3d",
           "max_pool_v2",
           "max_pool_with_argmax", "pool"]


def max_pool(value: Any, ksize: Any, strides: Any, padding: Any, data_format: str = "NHWC",
             name: str | None = None,
             input: Any = None) -> Tensor:
    """The maximum of each window.

    Args:
      value: [batch, height, width, channels], or [batch, channels, height, width] for "NCHW"; `input` is its
        newer name.
      ksize, strides: a number, or a list of 1, 2 or 4.
      padding: "SAME", "VALID", or a list of 4 pairs (before, after).
    """
    value = renamed("input", input, "value", value)
    with name_scope(name, "MaxPool", [value]) as scope:
        return _max_pool_2d(value, ksize, strides, padding, data_format, scope)


def max_pool2d(input: Any, ksize: Any, strides: Any, padding: Any, data_format: str = "NHWC",
               name: str | None = None) -> Tensor:
    """The maximum of each window. See max_pool."""
    with name_scope(name, "MaxPool2d", [input]) as scope:
        return _max_pool_2d(input, ksize, strides, padding, data_format, scope)


def _max_pool_2d(value: Any, ksize: Any, strides: Any, padding: Any, data_format: str | None,
                 name: str) -> Tensor:
    first = is_channels_first(data_format)
    padding, explicit = split_padding(padding)
    return raw.MaxPool(value, ksize=one_each(ksize, 2, first, "ksize"),
                       strides=one_each(strides, 2, first, "strides"),
                       padding=padding, explicit_paddings=explicit, data_format=data_format or "NHWC",
                       name=name)


def avg_pool(value: Any, ksize: Any, strides: Any, padding: str, data_format: str = "NHWC",
             name: str | None = None,
             input: Any = None) -> Tensor:
    """The average of each window, over what lies inside the input. See max_pool."""
    value = renamed("input", input, "value", value)
    with name_scope(name, "AvgPool", [value]) as scope:
        first = is_channels_first(data_format)
        return raw.AvgPool(value, ksize=one_each(ksize, 2, first, "ksize"),
                           strides=one_each(strides, 2, first, "strides"), padding=padding,
                           data_format=data_format or "NHWC", name=scope)


avg_pool2d = avg_pool


def max_pool1d(input: Any, ksize: Any, strides: Any, padding: Any, data_format: str = "NWC",
               name: str | None = None) -> Tensor:
    """max_pool for one spatial dimension: [batch, width, channels], or [batch, channels, width] for "NCW"."""
    with name_scope(name, "MaxPool1d", [input]) as scope:
        padding, explicit = split_padding(padding, 3)
        explicit = [0, 0, *explicit] if explicit else []
        return _pool_1d(raw.MaxPool, input, ksize, strides, padding, data_format, scope,
                        explicit_paddings=explicit)


def avg_pool1d(input: Any, ksize: Any, strides: Any, padding: str, data_format: str = "NWC",
               name: str | None = None) -> Tensor:
    """avg_pool for one spatial dimension: [batch, width, channels], or [batch, channels, width] for "NCW"."""
    with name_scope(name, "AvgPool1D", [input]) as scope:
        return _pool_1d(raw.AvgPool, input, ksize, strides, padding, data_format, scope)


def _pool_1d(op: Callable[..., Tensor], x: Any, ksize: Any, strides: Any, padding: str,
             data_format: str | None,
             name: str, **attrs: Any) -> Tensor:
    """A two-dimensional pool over a height of 1."""
    first = is_channels_first(data_format)
    axis = 2 if first else 1
    made = op(raw.ExpandDims(x, axis), ksize=[1, *one_each(ksize, 1, first, "ksize")],
              strides=[1, *one_each(strides, 1, first, "strides")], padding=padding,
              data_format="NCHW" if first else "NHWC", name=name, **attrs)
    return raw.Squeeze(made, squeeze_dims=[axis])


def max_pool3d(input: Any, ksize: Any, strides: Any, padding: str, data_format: str = "NDHWC",
               name: str | None = None) -> Tensor:
    """max_pool for three spatial dimensions: [batch, depth, height, width, channels], or "NCDHW"."""
    with name_scope(name, "MaxPool3D", [input]) as scope:
        return _pool_3d(raw.MaxPool3D, input, ksize, strides, padding, data_format, scope)


def avg_pool3d(input: Any, ksize: Any, strides: Any, padding: str, data_format: str = "NDHWC",
               name: str | None = None) -> Tensor:
    """avg_pool for three spatial dimensions: [batch, depth, height, width, channels], or "NCDHW"."""
    with name_scope(name, "AvgPool3D", [input]) as scope:
        return _pool_3d(raw.AvgPool3D, input, ksize, strides, padding, data_format, scope)


def _pool_3d(op: Callable[..., Tensor], x: Any, ksize: Any, strides: Any, padding: str,
             data_format: str | None,
             name: str) -> Tensor:
    first = is_channels_first(data_format)
    return op(x, ksize=one_each(ksize, 3, first, "ksize"), strides=one_each(strides, 3, first, "strides"),
              padding=padding, data_format=data_format or "NDHWC", name=name)


def max_pool_v2(input: Any, ksize: Any, strides: Any, padding: Any, data_format: str | None = None,
                name: str | None = None) -> Tensor:
    """max_pool over one, two or three spatial dimensions: as many as the input has, but for two."""
    return _by_rank((max_pool1d, max_pool, max_pool3d), input, ksize, strides, padding, data_format, name)


def avg_pool_v2(input: Any, ksize: Any, strides: Any, padding: Any, data_format: str | None = None,
                name: str | None = None) -> Tensor:
    """avg_pool over one, two or three spatial dimensions: as many as the input has, but for two."""
    return _by_rank((avg_pool1d, avg_pool, avg_pool3d), input, ksize, strides, padding, data_format, name)


def _by_rank(functions: tuple[Callable[..., Tensor], ...], input: Any, ksize: Any, strides: Any, padding: Any,
             data_format: str | None, name: str | None) -> Tensor:
    x = convert_to_tensor(input, name="input")
    rank = x.shape.rank if x.shape.rank is not None else len(data_format or "")
    if rank not in (3, 4, 5):
        raise ValueError("pooling takes inputs of 3, 4 or 5 dimensions, known while the graph is built, "
                         f"not {x.shape}")
    return functions[rank - 3](x, ksize, strides, padding, data_format or ("NWC", "NHWC", "NDHWC")[rank - 3],
                               name)


def max_pool_with_argmax(input: Any, ksize: Any, strides: Any, padding: str, data_format: str = "NHWC",
                         Targmax: Any = None, name: str | None = None, output_dtype: Any = None,
                         include_batch_in_index: bool = False) -> tuple[Tensor, Tensor]:
    """max_pool, and where each maximum was found.

    Args:
      ksize, strides: four numbers.
      output_dtype: of the indices, int32 or int64; `Targmax` is its older name.
    Returns:
      (maxima, flat indices ((batch *) row * width + column) * channels + channel).
    """
    if data_format != "NHWC":
        raise ValueError(f"max_pool_with_argmax takes data_format 'NHWC' only, not {data_format!r}")
    dtype = renamed("output_dtype", output_dtype, "Targmax", Targmax)
    output, argmax = raw.MaxPoolWithArgmax(input, ksize=ksize, strides=strides, padding=padding,
                                           Targmax=int64 if dtype is None else dtype, name=name,
                                           include_batch_in_index=include_batch_in_index)
    return output, argmax


def pool(input: Any, window_shape: Any, pooling_type: str, padding: Any, dilation_rate: Any = None,
         strides: Any = None,
         name: str | None = None, data_format: str | None = None, dilations: Any = None) -> Tensor:
    """Pooling over one to three spatial dimensions: one for each number of window_shape.

    Args:
      pooling_type: "MAX" or "AVG".
      dilation_rate: each window sees every so many-th element; needs strides of 1 and padding "VALID".
        `dilations` is its newer name.
    Raises:
      ValueError: arguments that do not go together.
    """
    rates = renamed("dilations", dilations, "dilation_rate", dilation_rate)
    n = len(window_shape)
    functions = {("MAX", 1): max_pool1d, ("MAX", 2): max_pool, ("MAX", 3): max_pool3d,
                 ("AVG", 1): avg_pool1d, ("AVG", 2): avg_pool, ("AVG", 3): avg_pool3d}
    function = functions.get((pooling_type, n))
    if function is None:
        raise ValueError(f"pool takes 'MAX' or 'AVG' over 1, 2 or 3 dimensions, not {pooling_type!r} over "
                         f"{n}")
    first = is_channels_first(data_format)
    strides, rates = ([1] * n if v is None else np.broadcast_to(v, (n,)).tolist() for v in (strides, rates))
    check_strides_and_rates(strides, rates)
    if padding == "SAME" and any(r > 1 for r in rates):
        raise ValueError(f"padding 'SAME' does not go with dilation rates {rates} above 1 in pooling")
    if any(s > k for s, k in zip(strides, window_shape)):
        raise ValueError(f"strides {strides} above the window's sizes {list(window_shape)} would leave out "
                         "elements")
    with name_scope(name, f"{pooling_type.lower()}_pool", [input]) as scope:
        x = convert_to_tensor(input, name="input")
        x.shape.with_rank(n + 2)

        def op(converted: Tensor, _: int, padding: Any) -> Tensor:
            return function(converted, list(window_shape), strides, padding,
                            data_format or ("NWC", "NHWC", "NDHWC")[n - 1], scope)

        return with_space_to_batch(x, rates, padding, op, np.array(window_shape, np.int32),
                                   range(2, n + 2) if first else range(1, n + 1))


def lrn(input: Any, depth_radius: int = 5, bias: float = 1, alpha: float = 1, beta: float = 0.5,
        name: str | None = None) -> Tensor:
    """input / (bias + alpha * the sum of squares over the channels at most depth_radius away) ** beta.

    Args:
      input: half, bfloat16 or float32 tensor [batch, height, width, channels].
    """
    return raw.LRN(input, depth_radius=depth_radius, bias=bias, alpha=alpha, beta=beta, name=name)


local_response_normalization = lrn


def fused_batch_norm(x: Any, scale: Any, offset: Any, mean: Any = None, variance: Any = None,
                     epsilon: float = 0.001,
                     data_format: str = "NHWC", is_training: bool = True, name: str | None = None,
                     exponential_avg_factor: float = 1.0) -> tuple[Tensor, Tensor, Tensor]:
    """(x - mean) / sqrt(variance + epsilon) * scale + offset, by channel.

    Args:
      x: half, bfloat16 or float32 tensor of 4 dimensions, or of 5 for "NDHWC" and "NCDHW".
      scale, offset: float32 vectors, one number a channel.
      mean, variance: float32 vectors; needed for inference, and where exponential_avg_factor is not 1.
      is_training: take mean and variance from the batch.
      exponential_avg_factor: how much of the batch's mean and variance (with Bessel's correction)
        enters the averages.
    Returns:
      (y, the averages of the mean, of the variance).
    """
    if (not is_training or exponential_avg_factor != 1.0) and (mean is None or variance is None):
        raise ValueError("fused_batch_norm needs mean and variance where is_training is False or "
                         "exponential_avg_factor "
                         f"is not 1: mean is {mean!r}, variance {variance!r}")
    x, scale, offset = (convert_to_tensor(v, name=n) for v,
                        n in ((x, "input"), (scale, "scale"), (offset, "offset")))
    nothing = np.zeros(0, np.float32)
    made = raw.FusedBatchNormV3(x, scale, offset, nothing if mean is None else mean,
                                nothing if variance is None else variance,
                                epsilon=epsilon, exponential_avg_factor=exponential_avg_factor,
                                data_format=data_format,
                                is_training=is_training, name=name)
    return made[0], made[1], made[2]
