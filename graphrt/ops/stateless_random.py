"""Stateless random ops: their values depend on their inputs alone, a seed of two ints or a key and a counter.

The seed is scrambled to a key and a counter (Stream.of_stateless_seed). The V2 ops take key and counter as
StatelessRandomGetKeyCounter makes them, and the number of the algorithm: 1, Philox, is the one there is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from graphrt.core import distributions, raw, rejection
from graphrt.core.dtypes import INDEX, double, float32, half, int32, int64, uint32, uint64
from graphrt.core.errors import InvalidArgumentError, UnimplementedError
from graphrt.core.philox import Stream
from graphrt.core.registry import ALL, KernelContext, ShapeContext, op
from graphrt.core.samples import sample
from graphrt.core.shapes import TensorShape
from graphrt.core.tensor import Tensor
from graphrt.ops.random import LOGITS, alpha_gradient, drawn_classes, length, placed, scalar, sizes

PHILOX, AUTOMATIC = 1, 3
_SEED = "type in {int32,int64} = int64"
_SHAPE = "type in {int32,int64} = int32"
_FLOAT = "type in {half,bfloat16,float,double} = float"
_KEYED = "shape: Tshape, key: uint64, counter: uint64, alg: int32"


def of_seed(seed: Any) -> Stream:
    """The stream of a seed input.

    Raises:
      InvalidArgumentError: it is no vector of two ints.
    """
    if np.shape(seed) != (2,):
        raise InvalidArgumentError(None, None, f"seed must have shape [2], not {list(np.shape(seed))}")
    return Stream.of_stateless_seed(seed)


def of_key(key: Any, counter: Any, alg: Any) -> Stream:
    """The stream of a V2 op's key, counter and algorithm.

    Raises:
      InvalidArgumentError: key or counter have another shape.
      UnimplementedError: the algorithm is not Philox.
    """
    if scalar(alg, "alg") not in (PHILOX, AUTOMATIC):
        raise UnimplementedError(None, None, f"Unsupported algorithm id: {alg}; {PHILOX}, Philox, would work")
    if key.shape != (1,) or counter.ndim != 1 or counter.size < 2:
        raise InvalidArgumentError(
            None,
            None,
            "key must have shape [1] and counter at least [2], they have "
            f"{list(key.shape)} and {list(counter.shape)}",
        )
    return Stream.of_key_counter(key, counter)


class _Drawn:
    """Base of the ops that fill a shape from a stream: `draw(stream, shape, dtype)`."""

    host_inputs = ALL
    not_differentiable = True
    draw: Callable[..., np.ndarray]


class _Seeded(_Drawn):
    def shape(
        self, s: ShapeContext, shape: TensorShape, seed: TensorShape, *rest: TensorShape
    ) -> TensorShape:
        seed.merge_with([2])
        return s.partial(0)

    def compute(self, k: KernelContext, shape: Any, seed: Any, *rest: Any) -> Any:
        return placed(k, type(self).draw(of_seed(seed), sizes(shape), *rest, k.dtype))


class _Keyed(_Drawn):
    def shape(
        self,
        s: ShapeContext,
        shape: TensorShape,
        key: TensorShape,
        counter: TensorShape,
        alg: TensorShape,
        *rest: TensorShape,
    ) -> TensorShape:
        key.merge_with([1])
        counter.with_rank(1)
        alg.with_rank(0)
        return s.partial(0)

    def compute(self, k: KernelContext, shape: Any, key: Any, counter: Any, alg: Any, *rest: Any) -> Any:
        return placed(k, type(self).draw(of_key(key, counter, alg), sizes(shape), *rest, k.dtype))


def _ints_between(stream: Stream, shape: tuple[int, ...], low: Any, high: Any, dtype: Any) -> np.ndarray:
    return distributions.uniform_int(stream, shape, scalar(low, "minval"), scalar(high, "maxval"), dtype)


_SEEDS = (np.array([1, 2], np.int64), np.array([-7, 2**31 - 1], np.int32))
_KEY, _COUNTER = np.array([2**63 + 5], np.uint64), np.array([3, 2**40], np.uint64)


# numeric=False: a value drawn by rejection jumps where a try is accepted or not, which no gradient has.
def _seeded_samples(*rest: Any, dtypes: tuple[str, ...] = (), numeric: bool = True) -> list[Any]:
    each = [{"dtype": d} for d in dtypes] or [{}]
    return [
        sample([5, 3], seed, *rest, atol=1e-6, numeric=numeric, **attrs) for attrs in each for seed in _SEEDS
    ]


def _keyed_samples(*rest: Any, dtypes: tuple[str, ...] = (), numeric: bool = True) -> list[Any]:
    each = [{"dtype": d} for d in dtypes] or [{}]
    return [
        sample([5, 3], _KEY, _COUNTER, alg, *rest, atol=1e-6, numeric=numeric, **attrs)
        for attrs in each
        for alg in (PHILOX, AUTOMATIC)
    ]


_FLOAT_NAMES = ("float16", "bfloat16", "float32", "float64")


@op("StatelessRandomUniform(shape: T, seed: Tseed) -> output: dtype", dtype=_FLOAT, T=_SHAPE, Tseed=_SEED)
class StatelessRandomUniform(_Seeded):
    """Uniform values in [0, 1)."""

    draw = distributions.uniform
    samples = _seeded_samples(dtypes=_FLOAT_NAMES)


@op("StatelessRandomNormal(shape: T, seed: Tseed) -> output: dtype", dtype=_FLOAT, T=_SHAPE, Tseed=_SEED)
class StatelessRandomNormal(_Seeded):
    """Normal values of mean 0 and standard deviation 1."""

    draw = distributions.normal
    samples = _seeded_samples(dtypes=_FLOAT_NAMES)


@op("StatelessTruncatedNormal(shape: T, seed: Tseed) -> output: dtype", dtype=_FLOAT, T=_SHAPE, Tseed=_SEED)
class StatelessTruncatedNormal(_Seeded):
    """Normal values of mean 0 and standard deviation 1; those beyond 2 are drawn again."""

    draw = distributions.truncated_normal
    samples = _seeded_samples(dtypes=_FLOAT_NAMES)


@op(
    "StatelessRandomUniformInt(shape: T, seed: Tseed, minval: dtype, maxval: dtype) -> output: dtype",
    dtype=INDEX,
    T=INDEX,
    Tseed=_SEED,
)
class StatelessRandomUniformInt(_Seeded):
    """Uniform ints in [minval, maxval)."""

    draw = _ints_between
    samples = _seeded_samples(np.int32(-5), np.int32(7)) + _seeded_samples(np.int64(-5), np.int64(2**40))


@op(
    "StatelessRandomUniformFullInt(shape: T, seed: Tseed) -> output: dtype",
    T=_SHAPE,
    dtype="type in {int32,int64,uint32,uint64} = uint64",
    Tseed="type in {int32,int64,uint32,uint64} = int64",
)
class StatelessRandomUniformFullInt(_Seeded):
    """Ints over the whole range of their type."""

    draw = distributions.full_int
    samples = _seeded_samples(dtypes=("int32", "int64", "uint32", "uint64"))


@op(f"StatelessRandomUniformV2({_KEYED}) -> output: dtype", dtype=_FLOAT, Tshape=_SHAPE)
class StatelessRandomUniformV2(_Keyed):
    """Uniform values in [0, 1)."""

    draw = distributions.uniform
    samples = _keyed_samples(dtypes=_FLOAT_NAMES)


@op(f"StatelessRandomNormalV2({_KEYED}) -> output: dtype", dtype=_FLOAT, Tshape=_SHAPE)
class StatelessRandomNormalV2(_Keyed):
    """Normal values of mean 0 and standard deviation 1."""

    draw = distributions.normal
    samples = _keyed_samples(dtypes=_FLOAT_NAMES)


@op(f"StatelessTruncatedNormalV2({_KEYED}) -> output: dtype", dtype=_FLOAT, Tshape=_SHAPE)
class StatelessTruncatedNormalV2(_Keyed):
    """Normal values of mean 0 and standard deviation 1; those beyond 2 are drawn again."""

    draw = distributions.truncated_normal
    samples = _keyed_samples(dtypes=_FLOAT_NAMES)


@op(
    f"StatelessRandomUniformIntV2({_KEYED}, minval: dtype, maxval: dtype) -> output: dtype",
    dtype=(int32, int64, uint32, uint64),
    Tshape=_SHAPE,
)
class StatelessRandomUniformIntV2(_Keyed):
    """Uniform ints in [minval, maxval)."""

    draw = _ints_between
    samples = _keyed_samples(np.int32(-5), np.int32(7)) + _keyed_samples(np.int64(-5), np.int64(2**40))


@op(
    f"StatelessRandomUniformFullIntV2({_KEYED}) -> output: dtype",
    Tshape=_SHAPE,
    dtype="type in {int32,int64,uint32,uint64} = uint64",
)
class StatelessRandomUniformFullIntV2(_Keyed):
    """Ints over the whole range of their type."""

    draw = distributions.full_int
    samples = _keyed_samples(dtypes=("int32", "int64", "uint32", "uint64"))


@op(
    "StatelessMultinomial(logits: T, num_samples: int32, seed: Tseed) -> output: output_dtype",
    T=LOGITS,
    Tseed=_SEED,
    output_dtype="type in {int32,int64} = int64",
)
class StatelessMultinomial:
    """Classes drawn with replacement by the unnormalised log-probabilities of each row."""

    host_inputs = ALL
    not_differentiable = True

    def shape(
        self, s: ShapeContext, logits: TensorShape, num_samples: TensorShape, seed: TensorShape
    ) -> TensorShape:
        seed.merge_with([2])
        return drawn_classes(s, logits, num_samples)

    def compute(self, k: KernelContext, logits: Any, num_samples: Any, seed: Any) -> Any:
        count = scalar(num_samples, "num_samples")
        return placed(k, distributions.multinomial(of_seed(seed), logits, count, k.dtype))

    samples = [
        sample(np.array([[0.1, 2.0, -1.0], [5.0, 0.0, 0.0]], np.float32), 5, seed, output_dtype=dtype)
        for seed in _SEEDS
        for dtype in ("int32", "int64")
    ]


def _for_each(shape: Any, parameter: Any, what: str) -> tuple[tuple[int, ...], int, np.ndarray]:
    """(the output's sizes, samples for each parameter, the parameter): the shape ends in the parameter's."""
    wanted, parameter = sizes(shape), np.asarray(parameter)
    if wanted[len(wanted) - parameter.ndim :] != parameter.shape:
        raise InvalidArgumentError(
            None, None, f"shape {list(wanted)} must end in the shape of {what}, {list(parameter.shape)}"
        )
    return wanted, int(np.prod(wanted[: len(wanted) - parameter.ndim], dtype=np.int64)), parameter


@op(
    "StatelessRandomPoisson(shape: T, seed: Tseed, lam: Rtype) -> output: dtype",
    T=INDEX,
    Tseed=_SEED,
    Rtype=(half, float32, double, int32, int64),
    dtype=(half, float32, double, int32, int64),
)
class StatelessRandomPoisson(_Seeded):
    """Poisson values of mean `lam`, whose shape ends `shape`."""

    def compute(self, k: KernelContext, shape: Any, seed: Any, lam: Any) -> Any:
        wanted, count, lam = _for_each(shape, lam, "lam")
        return placed(k, rejection.poisson(of_seed(seed), count, lam, k.dtype).reshape(wanted))

    samples = _seeded_samples(np.array([0.5, 10.0, 100.0], np.float32), dtypes=("float32", "int32", "int64"))


def _ending_alpha_gradient(shape: Tensor, alpha: Tensor, sample: Tensor, dy: Tensor) -> Tensor:
    return alpha_gradient(alpha, sample, dy, raw.Sub(length(shape), raw.Rank(alpha)))


@op(
    "StatelessRandomGammaV2(shape: T, seed: Tseed, alpha: dtype) -> output: dtype",
    T=INDEX,
    Tseed=_SEED,
    dtype=(half, float32, double),
)
class StatelessRandomGammaV2(_Seeded):
    """Gamma values of shape parameter `alpha` and rate 1; `shape` ends in the shape of `alpha`."""

    not_differentiable = False

    def compute(self, k: KernelContext, shape: Any, seed: Any, alpha: Any) -> Any:
        wanted, count, alpha = _for_each(shape, alpha, "alpha")
        return placed(k, rejection.gamma(of_seed(seed), count, alpha).reshape(wanted))

    def gradient(self, op: Any, dy: Tensor) -> list[Tensor | None]:
        return [None, None, _ending_alpha_gradient(op.inputs[0], op.inputs[2], op.outputs[0], dy)]

    samples = _seeded_samples(np.array([0.5, 1.0, 4.0], np.float32), numeric=False)


@op(
    f"StatelessRandomGammaV3({_KEYED.replace('Tshape', 'shape_dtype')}, alpha: dtype) -> output: dtype",
    dtype=(half, float32, double),
    shape_dtype=_SHAPE,
)
class StatelessRandomGammaV3(_Keyed):
    """Gamma values of shape parameter `alpha` and rate 1; `shape` ends in the shape of `alpha`."""

    not_differentiable = False

    def compute(self, k: KernelContext, shape: Any, key: Any, counter: Any, alg: Any, alpha: Any) -> Any:
        wanted, count, alpha = _for_each(shape, alpha, "alpha")
        return placed(k, rejection.gamma(of_key(key, counter, alg), count, alpha).reshape(wanted))

    def gradient(self, op: Any, dy: Tensor) -> list[Tensor | None]:
        return [None] * 4 + [_ending_alpha_gradient(op.inputs[0], op.inputs[4], op.outputs[0], dy)]

    samples = _keyed_samples(np.array([0.5, 1.0, 4.0]), numeric=False)


def _key_counter(seed: Any) -> tuple[np.ndarray, np.ndarray]:
    stream = of_seed(seed)
    return (
        np.array([stream.key], np.uint64),
        np.array([stream.counter & 2**64 - 1, stream.counter >> 64], np.uint64),
    )


@op("StatelessRandomGetKeyCounter(seed: Tseed) -> key: uint64, counter: uint64", Tseed=_SEED)
class StatelessRandomGetKeyCounter:
    """The key and counter that a stateless op would draw from with `seed`."""

    host_inputs = host_outputs = ALL
    not_differentiable = True

    def shape(self, s: ShapeContext, seed: TensorShape) -> list[TensorShape]:
        seed.merge_with([2])
        return [TensorShape.of((1,)), TensorShape.of((2,))]

    def compute(self, k: KernelContext, seed: Any) -> tuple[Any, ...]:
        return _key_counter(seed)

    samples = [sample(seed) for seed in _SEEDS]


@op("StatelessRandomGetKeyCounterAlg(seed: Tseed) -> key: uint64, counter: uint64, alg: int32", Tseed=_SEED)
class StatelessRandomGetKeyCounterAlg:
    """The key, counter and algorithm that a stateless op would draw by with `seed`."""

    host_inputs = host_outputs = ALL
    not_differentiable = True

    def shape(self, s: ShapeContext, seed: TensorShape) -> list[TensorShape]:
        seed.merge_with([2])
        return [TensorShape.of((1,)), TensorShape.of((2,)), TensorShape.of(())]

    def compute(self, k: KernelContext, seed: Any) -> tuple[Any, ...]:
        return *_key_counter(seed), np.array(PHILOX, np.int32)

    samples = [sample(seed) for seed in _SEEDS]


@op("StatelessRandomGetAlg() -> alg: int32")
class StatelessRandomGetAlg:
    """The number of the algorithm that this device draws by: Philox."""

    stateful = True
    host_outputs = ALL
    not_differentiable = True

    def shape(self, s: ShapeContext) -> TensorShape:
        return TensorShape.of(())

    def compute(self, k: KernelContext) -> Any:
        return np.array(PHILOX, np.int32)

    samples = [sample()]
