"""tf.random_uniform, tf.random_normal, tf.multinomial, …: random values, with TF1's signatures. They build
nodes.

Two seeds decide an op's values: the graph's (`set_random_seed`) and the op's own (`seed=`). With one of them
the same program draws the same in every session; with neither each session draws anew.
"""

from __future__ import annotations

import enum
from typing import Any

import numpy as np

from graphrt.api import array_api, math_api
from graphrt.core import raw
from graphrt.core.convert import convert_to_tensor
from graphrt.core.default_graph import name_scope
from graphrt.core.dtypes import FLOATS, as_dtype, float32, int32, int64, uint32, uint64
from graphrt.core.seeds import get_seed, set_random_seed
from graphrt.core.tensor import Tensor

__all__ = [
    "categorical",
    "get_seed",
    "multinomial",
    "random_crop",
    "random_gamma",
    "random_normal",
    "random_poisson",
    "random_shuffle",
    "random_uniform",
    "set_random_seed",
    "truncated_normal",
]


def _shape_tensor(shape: Any) -> Tensor:
    """`shape`, a tensor, TensorShape or list of ints and tensors, as an int vector."""
    empty = isinstance(shape, (list, tuple)) and not shape
    return convert_to_tensor(shape, dtype=int32 if empty else None, name="shape")


def _scaled(drawn: Tensor, mean: Tensor, stddev: Tensor, name: str) -> Tensor:
    return raw.AddV2(raw.Mul(drawn, stddev, name="mul"), mean, name=name)


def random_uniform(
    shape: Any,
    minval: Any = 0,
    maxval: Any = None,
    dtype: Any = float32,
    seed: int | None = None,
    name: str | None = None,
) -> Tensor:
    """Uniform values in [minval, maxval).

    Args:
      shape: int vector, or list.
      minval, maxval: scalars; for a floating `dtype` also tensors that broadcast to `shape`. The default of
        maxval is 1.
      dtype: half, bfloat16, float32, float64, int32 or int64.
    Raises:
      ValueError: another dtype; an int dtype without maxval.
    """
    dtype = as_dtype(dtype).base_dtype
    accepted = (*FLOATS, int32, int64)
    if dtype not in accepted:
        raise ValueError(f"random_uniform draws {', '.join(d.name for d in accepted)}, not {dtype.name}")
    if maxval is None:
        if dtype.is_integer:
            raise ValueError(f"Must specify maxval for integer dtype {dtype!r}")
        maxval = 1
    with name_scope(name, "random_uniform", [shape, minval, maxval]) as name:
        shape = _shape_tensor(shape)
        from_zero = isinstance(minval, int) and minval == 0
        to_one = isinstance(maxval, int) and maxval == 1
        if not (from_zero and to_one) or dtype.is_integer:
            minval = convert_to_tensor(minval, dtype=dtype, name="min")
            maxval = convert_to_tensor(maxval, dtype=dtype, name="max")
        seed, seed2 = get_seed(seed)
        if dtype.is_integer:
            return raw.RandomUniformInt(shape, minval, maxval, seed=seed, seed2=seed2, name=name)
        drawn = raw.RandomUniform(shape, dtype=dtype, seed=seed, seed2=seed2)
        if from_zero:
            return drawn if to_one else raw.Mul(drawn, maxval)
        return _scaled(drawn, minval, raw.Sub(maxval, minval, name="sub"), name)


def random_normal(
    shape: Any,
    mean: Any = 0.0,
    stddev: Any = 1.0,
    dtype: Any = float32,
    seed: int | None = None,
    name: str | None = None,
) -> Tensor:
    """Normal values of `mean` and standard deviation `stddev` (they broadcast to `shape`)."""
    return _normal(raw.RandomStandardNormal, "random_normal", shape, mean, stddev, dtype, seed, name)


def truncated_normal(
    shape: Any,
    mean: Any = 0.0,
    stddev: Any = 1.0,
    dtype: Any = float32,
    seed: int | None = None,
    name: str | None = None,
) -> Tensor:
    """Normal values of `mean` and `stddev`; those more than two deviations from the mean are drawn again."""
    return _normal(raw.TruncatedNormal, "truncated_normal", shape, mean, stddev, dtype, seed, name)


def _normal(
    draw: Any, scope: str, shape: Any, mean: Any, stddev: Any, dtype: Any, seed: int | None, name: str | None
) -> Tensor:
    dtype = as_dtype(dtype).base_dtype
    with name_scope(name, scope, [shape, mean, stddev]) as name:
        shape = _shape_tensor(shape)
        mean = convert_to_tensor(mean, dtype=dtype, name="mean")
        stddev = convert_to_tensor(stddev, dtype=dtype, name="stddev")
        seed, seed2 = get_seed(seed)
        return _scaled(draw(shape, dtype=dtype, seed=seed, seed2=seed2), mean, stddev, name)


def random_shuffle(value: Any, seed: int | None = None, name: str | None = None) -> Tensor:
    """The rows of `value` (its first axis) in random order."""
    seed, seed2 = get_seed(seed)
    return raw.RandomShuffle(value, seed=seed, seed2=seed2, name=name)


def random_crop(value: Any, size: Any, seed: int | None = None, name: str | None = None) -> Tensor:
    """A part of `value`, of shape `size`, at a random place.

    Raises:
      InvalidArgumentError: at run time, `size` is larger than `value`.
    """
    from graphrt import checks  # control flow, which few programs that draw need

    with name_scope(name, "random_crop", [value, size]) as name:
        value = convert_to_tensor(value, name="value")
        size = convert_to_tensor(size, dtype=int32, name="size")
        shape = array_api.shape(value)
        fits = math_api.reduce_all(raw.GreaterEqual(shape, size))
        check = checks.Assert(fits, ["Need value.shape >= size, got ", shape, size], summarize=1000)
        shape = checks.with_dependencies([check], shape)
        limit = shape - size + 1
        place = random_uniform(array_api.shape(shape), dtype=int32, maxval=int32.max, seed=seed) % limit
        return raw.Slice(value, place, size, name=name)


def multinomial(
    logits: Any, num_samples: Any, seed: int | None = None, name: str | None = None, output_dtype: Any = None
) -> Tensor:
    """Classes [batch, num_samples] drawn by unnormalised log-probabilities `logits` [batch, classes].

    The older name of `categorical`.
    """
    with name_scope(name, "multinomial", [logits]):
        return _categorical(logits, num_samples, output_dtype, seed)


def categorical(
    logits: Any, num_samples: Any, dtype: Any = None, seed: int | None = None, name: str | None = None
) -> Tensor:
    """Classes [batch, num_samples] drawn by unnormalised log-probabilities `logits` [batch, classes].

    Args:
      dtype: of the result: int64 (the default) or int32.
    """
    with name_scope(name, "categorical", [logits]):
        return _categorical(logits, num_samples, dtype, seed)


def _class_dtype(dtype: Any) -> Any:
    dtype = int64 if dtype is None else as_dtype(dtype).base_dtype
    if dtype not in (int32, int64):
        raise ValueError(f"classes are int32 or int64, not {dtype.name}")
    return dtype


def _categorical(logits: Any, num_samples: Any, dtype: Any, seed: int | None) -> Tensor:
    logits = convert_to_tensor(logits, name="logits")
    dtype = _class_dtype(dtype)
    seed, seed2 = get_seed(seed)
    return raw.Multinomial(logits, num_samples, seed=seed, seed2=seed2, output_dtype=dtype)


def _broadcast_parameters(alpha: Any, beta: Any, dtype: Any) -> tuple[Tensor, Tensor]:
    """`alpha` broadcast with `beta`, and `beta`."""
    alpha = convert_to_tensor(alpha, dtype=dtype, name="alpha")
    beta = convert_to_tensor(1 if beta is None else beta, dtype=dtype, name="beta")
    shape = raw.BroadcastArgs(array_api.shape(alpha), array_api.shape(beta))
    return raw.BroadcastTo(alpha, shape), beta


def _over_rate(drawn: Tensor, beta: Tensor, name: str | None = None) -> Tensor:
    """Gamma values of rate `beta` from those of rate 1; at least the smallest normal number: it has a log."""
    dtype = drawn.dtype.base_dtype
    return raw.Maximum(float(np.finfo(dtype.np).tiny), raw.RealDiv(drawn, beta, name="truediv"), name=name)


def random_gamma(
    shape: Any,
    alpha: Any,
    beta: Any = None,
    dtype: Any = float32,
    seed: int | None = None,
    name: str | None = None,
) -> Tensor:
    """Gamma values of shape parameter `alpha` and rate `beta`: `shape` of them for each pair.

    Args:
      alpha, beta: of `dtype` (half, float32 or float64), broadcast with each other. beta is 1 by default.
    Returns:
      Tensor of shape shape + broadcast(alpha, beta).shape.
    """
    with name_scope(name, "random_gamma", [shape, alpha, beta]):
        shape = convert_to_tensor(shape, dtype=int32, name="shape")
        alpha, beta = _broadcast_parameters(alpha, beta, as_dtype(dtype).base_dtype)
        seed, seed2 = get_seed(seed)
        return _over_rate(raw.RandomGamma(shape, alpha, seed=seed, seed2=seed2), beta)


def random_poisson(
    lam: Any, shape: Any, dtype: Any = float32, seed: int | None = None, name: str | None = None
) -> Tensor:
    """Poisson values of mean `lam`: `shape` of them for each lam, as `dtype`."""
    with name_scope(name, "random_poisson", [lam, shape]):
        shape = convert_to_tensor(shape, dtype=int32, name="shape")
        seed, seed2 = get_seed(seed)
        return raw.RandomPoissonV2(shape, lam, dtype=as_dtype(dtype).base_dtype, seed=seed, seed2=seed2)


class Algorithm(enum.Enum):
    """How stateless ops make numbers. AUTO_SELECT is Philox, on every device."""

    PHILOX = 1
    THREEFRY = 2
    AUTO_SELECT = 3


def _key_counter_alg(seed: Any, alg: Any) -> tuple[Tensor, Tensor, int]:
    """The key, counter and algorithm inputs of a stateless op with `seed`.

    Raises:
      ValueError: an algorithm other than Philox.
    """
    if isinstance(alg, str):
        number = {"philox": 1, "autoselect": 3}.get(alg.strip().lower().replace("-", "").replace("_", ""))
    else:
        number = alg.value if isinstance(alg, Algorithm) else 3 if alg is None else alg
    if number not in (Algorithm.PHILOX.value, Algorithm.AUTO_SELECT.value):
        raise ValueError(f"alg {alg!r} is not supported: 'philox', or 'auto_select', would work")
    key, counter = raw.StatelessRandomGetKeyCounter(seed)
    return key, counter, number


def stateless_uniform(
    shape: Any,
    seed: Any,
    minval: Any = 0,
    maxval: Any = None,
    dtype: Any = float32,
    name: str | None = None,
    alg: Any = "auto_select",
) -> Tensor:
    """Uniform values in [minval, maxval) that depend on `seed`, two ints, alone.

    Args:
      dtype: a floating type, int32 or int64; with minval and maxval None, any int32, int64, uint32 or uint64,
      over
        its whole range.
    Raises:
      ValueError: another dtype; only one of minval and maxval for an int dtype.
    """
    dtype = as_dtype(dtype).base_dtype
    accepted = (*FLOATS, int32, int64, uint32, uint64)
    if dtype not in accepted:
        raise ValueError(f"stateless_uniform draws {', '.join(d.name for d in accepted)}, not {dtype.name}")
    if dtype.is_integer:
        if (minval is None) != (maxval is None):
            raise ValueError(
                f"{dtype.name} takes both minval and maxval, or None for both: {minval}, {maxval}"
            )
        if minval is not None and dtype in (uint32, uint64):
            raise ValueError(f"{dtype.name} is drawn over its whole range: pass minval=None, maxval=None")
    elif maxval is None:
        maxval = 1
    with name_scope(name, "stateless_random_uniform", [shape, seed, minval, maxval]) as name:
        shape = _shape_tensor(shape)
        if minval is None:
            key, counter, alg = _key_counter_alg(seed, alg)
            return raw.StatelessRandomUniformFullIntV2(shape, key, counter, alg, dtype=dtype, name=name)
        minval = convert_to_tensor(minval, dtype=dtype, name="min")
        maxval = convert_to_tensor(maxval, dtype=dtype, name="max")
        key, counter, alg = _key_counter_alg(seed, alg)
        if dtype.is_integer:
            return raw.StatelessRandomUniformIntV2(shape, key, counter, alg, minval, maxval, name=name)
        drawn = raw.StatelessRandomUniformV2(shape, key, counter, alg, dtype=dtype)
        return _scaled(drawn, minval, raw.Sub(maxval, minval, name="sub"), name)


def stateless_normal(
    shape: Any,
    seed: Any,
    mean: Any = 0.0,
    stddev: Any = 1.0,
    dtype: Any = float32,
    name: str | None = None,
    alg: Any = "auto_select",
) -> Tensor:
    """Normal values of `mean` and `stddev` that depend on `seed`, two ints, alone."""
    scope = "stateless_random_normal"
    return _stateless_normal(raw.StatelessRandomNormalV2, scope, shape, seed, mean, stddev, dtype, name, alg)


def stateless_truncated_normal(
    shape: Any,
    seed: Any,
    mean: Any = 0.0,
    stddev: Any = 1.0,
    dtype: Any = float32,
    name: str | None = None,
    alg: Any = "auto_select",
) -> Tensor:
    """Normal values within two deviations of `mean` that depend on `seed`, two ints, alone."""
    scope = "stateless_truncated_normal"
    return _stateless_normal(
        raw.StatelessTruncatedNormalV2, scope, shape, seed, mean, stddev, dtype, name, alg
    )


def _stateless_normal(
    draw: Any,
    scope: str,
    shape: Any,
    seed: Any,
    mean: Any,
    stddev: Any,
    dtype: Any,
    name: str | None,
    alg: Any,
) -> Tensor:
    dtype = as_dtype(dtype).base_dtype
    with name_scope(name, scope, [shape, seed, mean, stddev]) as name:
        shape = _shape_tensor(shape)
        mean = convert_to_tensor(mean, dtype=dtype, name="mean")
        stddev = convert_to_tensor(stddev, dtype=dtype, name="stddev")
        key, counter, alg = _key_counter_alg(seed, alg)
        return _scaled(draw(shape, key, counter, alg, dtype=dtype), mean, stddev, name)


def stateless_categorical(
    logits: Any, num_samples: Any, seed: Any, dtype: Any = int64, name: str | None = None
) -> Tensor:
    """Classes [batch, num_samples] by `logits` [batch, classes] that depend on `seed`, two ints, alone."""
    with name_scope(name, "stateless_categorical", [logits, seed]):
        logits = convert_to_tensor(logits, name="logits")
        return raw.StatelessMultinomial(logits, num_samples, seed, output_dtype=_class_dtype(dtype))


def stateless_multinomial(
    logits: Any, num_samples: Any, seed: Any, output_dtype: Any = int64, name: str | None = None
) -> Tensor:
    """The older name of `stateless_categorical`."""
    with name_scope(name, "stateless_multinomial", [logits, seed]):
        logits = convert_to_tensor(logits, name="logits")
        return raw.StatelessMultinomial(logits, num_samples, seed, output_dtype=_class_dtype(output_dtype))


def stateless_gamma(
    shape: Any, seed: Any, alpha: Any, beta: Any = None, dtype: Any = float32, name: str | None = None
) -> Tensor:
    """Gamma values that depend on `seed` alone; `shape` ends in the broadcast shape of `alpha` and `beta`."""
    with name_scope(name, "stateless_random_gamma", [shape, seed, alpha, beta]):
        shape = _shape_tensor(shape)
        alpha, beta = _broadcast_parameters(alpha, beta, as_dtype(dtype).base_dtype)
        key, counter, alg = _key_counter_alg(seed, "auto_select")
        return _over_rate(raw.StatelessRandomGammaV3(shape, key, counter, alg, alpha), beta)


def stateless_poisson(shape: Any, seed: Any, lam: Any, dtype: Any = int32, name: str | None = None) -> Tensor:
    """Poisson values of mean `lam` that depend on `seed` alone; `shape` ends in the shape of `lam`."""
    with name_scope(name, "stateless_random_poisson", [shape, seed, lam]):
        return raw.StatelessRandomPoisson(_shape_tensor(shape), seed, lam, dtype=as_dtype(dtype).base_dtype)


def split(seed: Any, num: int = 2, alg: Any = "auto_select") -> Tensor:
    """`num` new seeds [num, 2] for stateless ops, from one."""
    seed = convert_to_tensor(seed)
    return stateless_uniform([num, 2], seed, minval=None, maxval=None, dtype=seed.dtype, alg=alg)


def fold_in(seed: Any, data: Any, alg: Any = "auto_select") -> Tensor:
    """A new seed [2] for stateless ops from a seed and an int, such as the number of a step."""
    data = convert_to_tensor(data)
    first = stateless_uniform([], seed, minval=None, maxval=None, dtype=data.dtype, alg=alg)
    return raw.Pack([first, data], name="stack")
