"""tf.initializers, and by their longer names tf.zeros_initializer, …: what a new variable begins with.

An initializer is called with a shape and a dtype and builds the nodes of a value. With the same seeds those
are TensorFlow's values. `partition_info` (`full_shape`, `var_offset`) says which part of a partitioned
variable is made.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from graphrt import linalg
from graphrt.api import array_api, random_api
from graphrt.core import raw
from graphrt.core.dtypes import DType, as_dtype, float32
from graphrt.core.shapes import TensorShape
from graphrt.core.tensor import Tensor
from graphrt.variables.collections import (
    global_variables_initializer,
    local_variables_initializer,
    variables_initializer,
)

__all__ = [
    "Initializer",
    "constant",
    "global_variables",
    "glorot_normal",
    "glorot_uniform",
    "he_normal",
    "he_uniform",
    "identity",
    "lecun_normal",
    "lecun_uniform",
    "local_variables",
    "ones",
    "orthogonal",
    "random_normal",
    "random_uniform",
    "truncated_normal",
    "uniform_unit_scaling",
    "variables",
    "variance_scaling",
    "zeros",
]

# The standard deviation of a standard normal distribution cut off at 2.
_TRUNCATED_STDDEV = 0.87962566103423978


class Initializer:
    """Base of initializers: `init(shape, dtype)` is a tensor; `get_config` and `from_config` carry one
    over."""

    dtype: DType

    def __call__(self, shape: Any, dtype: Any = None, partition_info: Any = None) -> Tensor:
        raise NotImplementedError

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        """The initializer that `config`, of `get_config`, describes."""
        return cls(**config)

    def _dtype(self, dtype: Any) -> DType:
        return self.dtype if dtype is None else as_dtype(dtype)


class Zeros(Initializer):
    """Zeros (False, empty text)."""

    def __init__(self, dtype: Any = float32) -> None:
        self.dtype = as_dtype(dtype)

    def __call__(self, shape: Any, dtype: Any = None, partition_info: Any = None) -> Tensor:
        return array_api.zeros(shape, self._dtype(dtype))

    def get_config(self) -> dict[str, Any]:
        return {"dtype": self.dtype.name}


class Ones(Initializer):
    """Ones (True)."""

    def __init__(self, dtype: Any = float32) -> None:
        self.dtype = as_dtype(dtype)

    def __call__(self, shape: Any, dtype: Any = None, partition_info: Any = None) -> Tensor:
        return array_api.ones(shape, self._dtype(dtype))

    def get_config(self) -> dict[str, Any]:
        return {"dtype": self.dtype.name}


class Constant(Initializer):
    """A number everywhere, or the elements of a list or array in order, the last one where they run out.

    Args:
      value: a number, list or NumPy array.
      verify_shape: `value` must have the variable's shape.
    """

    def __init__(self, value: Any = 0, dtype: Any = float32, verify_shape: bool = False) -> None:
        if not (np.isscalar(value) or isinstance(value, (list, tuple, np.ndarray))):
            raise TypeError(
                f"Invalid type for initial value={value} of type: {type(value).__name__}. Expected Python "
                "scalar, list "
                "or tuple of values, or numpy.ndarray."
            )
        self.value, self.dtype, self._verify_shape = value, as_dtype(dtype), verify_shape

    def __call__(
        self, shape: Any, dtype: Any = None, partition_info: Any = None, verify_shape: bool | None = None
    ) -> Tensor:
        verify = self._verify_shape if verify_shape is None else verify_shape
        return array_api.constant(self.value, dtype=self._dtype(dtype), shape=shape, verify_shape=verify)

    def get_config(self) -> dict[str, Any]:
        # The shape check is not part of it, as in TensorFlow.
        return {"value": self.value, "dtype": self.dtype.name}


class RandomUniform(Initializer):
    """Uniform in [minval, maxval); for int dtypes `maxval` must be given."""

    def __init__(
        self, minval: Any = 0.0, maxval: Any = None, seed: int | None = None, dtype: Any = float32
    ) -> None:
        self.minval, self.maxval, self.seed, self.dtype = minval, maxval, seed, as_dtype(dtype)

    def __call__(self, shape: Any, dtype: Any = None, partition_info: Any = None) -> Tensor:
        return random_api.random_uniform(shape, self.minval, self.maxval, self._dtype(dtype), seed=self.seed)

    def get_config(self) -> dict[str, Any]:
        return {"minval": self.minval, "maxval": self.maxval, "seed": self.seed, "dtype": self.dtype.name}


class _Normal(Initializer):
    def __init__(
        self, mean: Any = 0.0, stddev: Any = 1.0, seed: int | None = None, dtype: Any = float32
    ) -> None:
        self.mean, self.stddev, self.seed, self.dtype = mean, stddev, seed, _floating(dtype)

    def get_config(self) -> dict[str, Any]:
        return {"mean": self.mean, "stddev": self.stddev, "seed": self.seed, "dtype": self.dtype.name}


class RandomNormal(_Normal):
    """Normal numbers."""

    def __call__(self, shape: Any, dtype: Any = None, partition_info: Any = None) -> Tensor:
        return random_api.random_normal(shape, self.mean, self.stddev, self._dtype(dtype), seed=self.seed)


class TruncatedNormal(_Normal):
    """Normal numbers within two standard deviations; others are drawn again."""

    def __call__(self, shape: Any, dtype: Any = None, partition_info: Any = None) -> Tensor:
        return random_api.truncated_normal(shape, self.mean, self.stddev, self._dtype(dtype), seed=self.seed)


class UniformUnitScaling(Initializer):
    """Uniform, scaled by the input size so that a layer keeps the scale of what goes in; `factor` is the
    activation's."""

    def __init__(self, factor: float = 1.0, seed: int | None = None, dtype: Any = float32) -> None:
        self.factor, self.seed, self.dtype = factor, seed, _floating(dtype)

    def __call__(self, shape: Any, dtype: Any = None, partition_info: Any = None) -> Tensor:
        whole = shape if partition_info is None else partition_info.full_shape
        input_size = max(math.prod([float(int(d)) for d in whole[:-1]]), 1.0)
        limit = math.sqrt(3 / input_size) * self.factor
        return random_api.random_uniform(shape, -limit, limit, self._dtype(dtype), seed=self.seed)

    def get_config(self) -> dict[str, Any]:
        return {"factor": self.factor, "seed": self.seed, "dtype": self.dtype.name}


class VarianceScaling(Initializer):
    """Numbers whose variance is scale / n, n the layer's inputs, outputs or the mean of both.

    Args:
      scale: positive.
      mode: 'fan_in', 'fan_out' or 'fan_avg', what n is.
      distribution: 'truncated_normal' (or 'normal', its old name), 'untruncated_normal' or 'uniform'.
    """

    def __init__(
        self,
        scale: float = 1.0,
        mode: str = "fan_in",
        distribution: str = "truncated_normal",
        seed: int | None = None,
        dtype: Any = float32,
    ) -> None:
        if scale <= 0.0:
            raise ValueError(f"Argument `scale` must be a positive float. Received: {scale}")
        modes = ("fan_in", "fan_out", "fan_avg")
        if mode not in modes:
            raise ValueError(f"Argument `mode` should be one of {modes}. Received: {mode}")
        distributions = ("normal", "uniform", "truncated_normal", "untruncated_normal")
        distribution = distribution.lower()
        if distribution not in distributions:
            raise ValueError(
                f"Argument `distribution` should be one of {distributions}. Received: {distribution}"
            )
        self.scale, self.mode, self.distribution, self.seed, self.dtype = (
            scale,
            mode,
            distribution,
            seed,
            _floating(dtype),
        )

    def __call__(self, shape: Any, dtype: Any = None, partition_info: Any = None) -> Tensor:
        fan_in, fan_out = _fans(shape if partition_info is None else partition_info.full_shape)
        n = {"fan_in": fan_in, "fan_out": fan_out, "fan_avg": (fan_in + fan_out) / 2.0}[self.mode]
        scale, dtype = self.scale / max(1.0, n), self._dtype(dtype)
        if self.distribution == "uniform":
            limit = math.sqrt(3.0 * scale)
            return random_api.random_uniform(shape, -limit, limit, dtype, seed=self.seed)
        if self.distribution == "untruncated_normal":
            return random_api.random_normal(shape, 0.0, math.sqrt(scale), dtype, seed=self.seed)
        return random_api.truncated_normal(
            shape, 0.0, math.sqrt(scale) / _TRUNCATED_STDDEV, dtype, seed=self.seed
        )

    def get_config(self) -> dict[str, Any]:
        return {
            "scale": self.scale,
            "mode": self.mode,
            "distribution": self.distribution,
            "seed": self.seed,
            "dtype": self.dtype.name,
        }


class _Glorot(VarianceScaling):
    def get_config(self) -> dict[str, Any]:
        return {"seed": self.seed, "dtype": self.dtype.name}


class GlorotUniform(_Glorot):
    """Uniform within sqrt(6 / (inputs + outputs)); Xavier's. It ignores its own `dtype`, as TensorFlow's
    does."""

    def __init__(self, seed: int | None = None, dtype: Any = float32) -> None:
        super().__init__(scale=1.0, mode="fan_avg", distribution="uniform", seed=seed)


class GlorotNormal(_Glorot):
    """Truncated normal of variance 2 / (inputs + outputs); Xavier's. It ignores its own `dtype`, as
    TensorFlow's does."""

    def __init__(self, seed: int | None = None, dtype: Any = float32) -> None:
        super().__init__(scale=1.0, mode="fan_avg", distribution="truncated_normal", seed=seed)


class Orthogonal(Initializer):
    """A matrix of orthonormal rows or columns times `gain`; of more than two dimensions, all but the last are
    flattened."""

    def __init__(self, gain: float = 1.0, seed: int | None = None, dtype: Any = float32) -> None:
        self.gain, self.seed, self.dtype = gain, seed, _floating(dtype)

    def __call__(self, shape: Any, dtype: Any = None, partition_info: Any = None) -> Tensor:
        if len(shape) < 2:
            raise ValueError(
                "The tensor to initialize, specified by argument `shape` must be at least two-dimensional. "
                "Received "
                f"shape={shape}"
            )
        rows, columns = math.prod([int(d) for d in shape[:-1]]), int(shape[-1])
        drawn = random_api.random_normal(
            (max(rows, columns), min(rows, columns)), dtype=self._dtype(dtype), seed=self.seed
        )
        q, r = raw.Qr(drawn, full_matrices=False)
        # With the signs of r's diagonal q is uniform among the orthogonal matrices.
        q *= raw.Sign(raw.DiagPart(r))
        if rows < columns:
            q = array_api.matrix_transpose(q)
        return self.gain * array_api.reshape(q, shape)

    def get_config(self) -> dict[str, Any]:
        return {"gain": self.gain, "seed": self.seed, "dtype": self.dtype.name}


class Identity(Initializer):
    """The identity matrix times `gain`: two dimensions only."""

    def __init__(self, gain: float = 1.0, dtype: Any = float32) -> None:
        self.gain, self.dtype = gain, _floating(dtype)

    def __call__(self, shape: Any, dtype: Any = None, partition_info: Any = None) -> Tensor:
        whole = shape if partition_info is None else partition_info.full_shape
        if len(whole) != 2:
            raise ValueError(
                "The tensor to initialize, specified by argument `shape` must be two-dimensional. Received "
                f"shape={shape}"
            )
        rows, columns = TensorShape(whole).as_list()
        made = linalg.eye(rows, columns, dtype=self._dtype(dtype))
        if partition_info is not None:
            made = array_api.slice(made, partition_info.var_offset, shape)
        return self.gain * made

    def get_config(self) -> dict[str, Any]:
        return {"gain": self.gain, "dtype": self.dtype.name}


def lecun_normal(seed: int | None = None) -> VarianceScaling:
    """Truncated normal of variance 1 / inputs."""
    return VarianceScaling(scale=1.0, mode="fan_in", distribution="truncated_normal", seed=seed)


def lecun_uniform(seed: int | None = None) -> VarianceScaling:
    """Uniform within sqrt(3 / inputs)."""
    return VarianceScaling(scale=1.0, mode="fan_in", distribution="uniform", seed=seed)


def he_normal(seed: int | None = None) -> VarianceScaling:
    """Truncated normal of variance 2 / inputs: for relu layers."""
    return VarianceScaling(scale=2.0, mode="fan_in", distribution="truncated_normal", seed=seed)


def he_uniform(seed: int | None = None) -> VarianceScaling:
    """Uniform within sqrt(6 / inputs): for relu layers."""
    return VarianceScaling(scale=2.0, mode="fan_in", distribution="uniform", seed=seed)


def _fans(shape: Any) -> tuple[int, int]:
    """(inputs, outputs) of a weight of `shape`: a matrix, or a convolution's kernel [..., inputs,
    outputs]."""
    sizes = [int(d) for d in shape]
    if len(sizes) < 2:
        return (sizes[0], sizes[0]) if sizes else (1, 1)
    window = math.prod(sizes[:-2])
    return sizes[-2] * window, sizes[-1] * window


def _floating(dtype: Any) -> DType:
    dtype = as_dtype(dtype)
    if not dtype.is_floating:
        raise ValueError(f"Argument `dtype` is expected to be floating point. Received: {dtype}.")
    return dtype


# tf.initializers' names, and those of the tf namespace.
global_variables = global_variables_initializer
local_variables = local_variables_initializer
variables = variables_initializer
zeros = zeros_initializer = Zeros
ones = ones_initializer = Ones
constant = constant_initializer = Constant
random_uniform = random_uniform_initializer = RandomUniform
random_normal = random_normal_initializer = RandomNormal
truncated_normal = truncated_normal_initializer = TruncatedNormal
uniform_unit_scaling = uniform_unit_scaling_initializer = UniformUnitScaling
variance_scaling = variance_scaling_initializer = VarianceScaling
glorot_uniform = glorot_uniform_initializer = GlorotUniform
glorot_normal = glorot_normal_initializer = GlorotNormal
orthogonal = orthogonal_initializer = Orthogonal
identity = Identity
