"""Of tf.nn: moments, normalization and counts."""

from __future__ import annotations

from typing import Any

from graphrt.api import array_api, math_api
from graphrt.control_flow import cond
from graphrt.core.arguments import renamed
from graphrt.core.convert import convert_to_tensor
from graphrt.core.default_graph import name_scope
from graphrt.core.dtypes import float16, float32, int32, int64
from graphrt.core.tensor import Tensor

__all__ = [
    "batch_norm_with_global_normalization",
    "batch_normalization",
    "l2_normalize",
    "moments",
    "normalize_moments",
    "sufficient_statistics",
    "weighted_moments",
    "zero_fraction",
]


def moments(
    x: Any,
    axes: Any,
    shift: Any = None,
    name: str | None = None,
    keep_dims: bool | None = None,
    keepdims: bool | None = None,
) -> tuple[Tensor, Tensor]:
    """The mean and variance of `x` over `axes`.

    Args:
      shift: not used.
      keepdims: leave the axes, with size 1. `keep_dims` is its older name.
    Returns:
      (mean, variance), of x's dtype; those of half are computed in float32.
    """
    keepdims = renamed("keepdims", keepdims, "keep_dims", keep_dims)
    with name_scope(name, "moments", [x, axes]):
        is_half = x.dtype.base_dtype is float16
        y = math_api.cast(x, float32) if is_half else x
        mean = math_api.reduce_mean(y, axes, keepdims=True, name="mean")
        distances = math_api.squared_difference(y, array_api.stop_gradient(mean))
        variance = math_api.reduce_mean(distances, axes, keepdims=True, name="variance")
        if not keepdims:
            mean, variance = array_api.squeeze(mean, axes), array_api.squeeze(variance, axes)
        if is_half:
            return math_api.cast(mean, float16), math_api.cast(variance, float16)
        return mean, variance


def weighted_moments(
    x: Any,
    axes: Any,
    frequency_weights: Any,
    name: str | None = None,
    keep_dims: bool | None = None,
    keepdims: bool | None = None,
) -> tuple[Tensor, Tensor]:
    """The mean and variance of `x` over `axes`, each element counted `frequency_weights` times (they
    broadcast to x).

    Returns:
      (mean, variance). See moments.
    """
    keepdims = renamed("keepdims", keepdims, "keep_dims", keep_dims)
    with name_scope(name, "weighted_moments", [x, frequency_weights, axes]):
        x = convert_to_tensor(x, name="x")
        weights = convert_to_tensor(frequency_weights, name="frequency_weights")
        is_half = x.dtype.base_dtype is float16
        if is_half:
            x = math_api.cast(x, float32)
        if weights.dtype.base_dtype is not x.dtype.base_dtype:
            weights = math_api.cast(weights, x.dtype)
        total = math_api.reduce_sum(weights * x, axes, name="weighted_input_sum", keepdims=True)
        # In x's shape, so that a weight that broadcasts counts as often as it is used.
        of_elements = weights + array_api.zeros_like(x)
        count = math_api.reduce_sum(of_elements, axes, name="sum_of_weights", keepdims=True)
        mean = math_api.div_no_nan(total, count)
        distances = math_api.reduce_sum(
            weights * math_api.squared_difference(x, mean), axes, name="weighted_distsq", keepdims=True
        )
        variance = math_api.div_no_nan(distances, count)
        if not keepdims:
            mean, variance = array_api.squeeze(mean, axis=axes), array_api.squeeze(variance, axis=axes)
        if is_half:
            return math_api.cast(mean, float16), math_api.cast(variance, float16)
        return mean, variance


def sufficient_statistics(
    x: Any,
    axes: Any,
    shift: Any = None,
    keep_dims: bool | None = None,
    name: str | None = None,
    keepdims: bool | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """What moments of parts are put together from: count, sum of x - shift, sum of (x - shift) ** 2, and
    shift.

    Args:
      axes: list of ints.
      shift: near the mean it keeps precision; None is 0.
    """
    axes = list(set(axes))
    keepdims = bool(renamed("keepdims", keepdims, "keep_dims", keep_dims))
    with name_scope(name, "sufficient_statistics", [x, shift]):
        x = convert_to_tensor(x, name="x")
        sizes = x.shape.sizes
        if sizes is not None and all(sizes[d] is not None for d in axes):
            n = 1
            for d in axes:
                n *= sizes[d]  # type: ignore[operator]
            counts = array_api.constant(n, dtype=x.dtype)
        else:
            rank = array_api.rank(x)
            positive = [axis + rank if axis < 0 else axis for axis in axes]
            counts = math_api.reduce_prod(
                array_api.gather(math_api.cast(array_api.shape(x), x.dtype), positive), name="count"
            )
        if shift is None:
            first, second = x, math_api.square(x)
        else:
            shift = convert_to_tensor(shift, name="shift")
            first, second = math_api.subtract(x, shift), math_api.squared_difference(x, shift)
        first = math_api.reduce_sum(first, axes, keepdims=keepdims, name="mean_ss")
        second = math_api.reduce_sum(second, axes, keepdims=keepdims, name="var_ss")
    return counts, first, second, shift


def normalize_moments(
    counts: Any, mean_ss: Any, variance_ss: Any, shift: Any, name: str | None = None
) -> tuple[Tensor, Tensor]:
    """The mean and variance of sufficient_statistics' four values."""
    with name_scope(name, "normalize", [counts, mean_ss, variance_ss, shift]):
        divisor = math_api.reciprocal(counts, name="divisor")
        if shift is not None:
            shifted = math_api.multiply(mean_ss, divisor, name="shifted_mean")
            mean = math_api.add(shifted, shift, name="mean")
        else:
            mean = shifted = math_api.multiply(mean_ss, divisor, name="mean")
        variance = math_api.subtract(
            math_api.multiply(variance_ss, divisor), math_api.square(shifted), name="variance"
        )
    return mean, variance


def batch_normalization(
    x: Any, mean: Any, variance: Any, offset: Any, scale: Any, variance_epsilon: Any, name: str | None = None
) -> Tensor:
    """scale * (x - mean) / sqrt(variance + variance_epsilon) + offset; None leaves scale or offset out."""
    with name_scope(name, "batchnorm", [x, mean, variance, scale, offset]):
        inverse = math_api.rsqrt(variance + variance_epsilon)
        if scale is not None:
            inverse *= scale
        scaled = x * math_api.cast(inverse, x.dtype)
        return scaled + math_api.cast(
            offset - mean * inverse if offset is not None else -mean * inverse, x.dtype
        )


def batch_norm_with_global_normalization(
    t: Any = None,
    m: Any = None,
    v: Any = None,
    beta: Any = None,
    gamma: Any = None,
    variance_epsilon: Any = None,
    scale_after_normalization: Any = None,
    name: str | None = None,
    input: Any = None,
    mean: Any = None,
    variance: Any = None,
) -> Tensor:
    """batch_normalization of t (`input`) by m (`mean`) and v (`variance`), scaled by gamma where
    `scale_after_normalization`."""
    t, m, v = (
        renamed("input", input, "t", t),
        renamed("mean", mean, "m", m),
        renamed("variance", variance, "v", v),
    )
    return batch_normalization(
        t, m, v, beta, gamma if scale_after_normalization else None, variance_epsilon, name
    )


def l2_normalize(
    x: Any, axis: Any = None, epsilon: float = 1e-12, name: str | None = None, dim: Any = None
) -> Tensor:
    """x / sqrt(max(sum(x ** 2), epsilon)), the sum over `axis` (all axes where None). `dim` is its older
    name."""
    axis = renamed("axis", axis, "dim", dim)
    with name_scope(name, "l2_normalize", [x]) as name:
        x = convert_to_tensor(x, name="x")
        if x.dtype.is_complex:
            squares = math_api.square(math_api.real(x)) + math_api.square(math_api.imag(x))
            total = math_api.real(math_api.reduce_sum(squares, axis, keepdims=True))
            inverse = math_api.rsqrt(math_api.maximum(total, epsilon))
            return math_api.complex(
                math_api.multiply(math_api.real(x), inverse),
                math_api.multiply(math_api.imag(x), inverse),
                name=name,
            )
        total = math_api.reduce_sum(math_api.square(x), axis, keepdims=True)
        return math_api.multiply(x, math_api.rsqrt(math_api.maximum(total, epsilon)), name=name)


def zero_fraction(value: Any, name: str | None = None) -> Tensor:
    """The share of zeros among the elements of `value`, float32; NaN where it is empty."""
    with name_scope(name, "zero_fraction", [value]):
        value = convert_to_tensor(value, name="value")
        size = array_api.size(value, out_type=int64)
        # int32 is counted faster, where it can count them all.
        nonzero = cond(
            size <= int32.max,
            lambda: math_api.cast(_count_nonzero(value, int32), int64),
            lambda: _count_nonzero(value, int64),
        )
        with name_scope("counts_to_fraction"):
            zeros = math_api.cast(size - nonzero, float32)
            share = zeros / math_api.cast(size, float32)
        return array_api.identity(share, "fraction")


def _count_nonzero(value: Tensor, dtype: Any) -> Tensor:
    with name_scope("count_nonzero", values=[value]):
        is_nonzero = math_api.not_equal(value, array_api.zeros([], dtype=value.dtype))
        return math_api.reduce_sum(math_api.cast(is_nonzero, dtype), name="nonzero_count")
