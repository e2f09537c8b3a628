"""Random ops: values of TensorFlow's Philox streams, from the seeds in the attrs (core/distributions.py says
how).

The state of a node is a GuardedPhilox in its worker session, under the node's name: a session starts the
stream from the seeds, and every run of the node, in whatever signature, goes on where the last one ended. On
an accelerator the values are drawn on the host and copied, so they are the same there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from graphrt.core import distributions, raw, rejection
from graphrt.core.default_graph import control_dependencies
from graphrt.core.dtypes import FLOATS, INDEX, double, float32, half, int32, int64
from graphrt.core.errors import InvalidArgumentError
from graphrt.core.philox import GuardedPhilox
from graphrt.core.registry import ALL, KernelContext, ShapeContext, op
from graphrt.core.samples import program
from graphrt.core.shapes import TensorShape
from graphrt.core.tensor import Tensor
from graphrt.ops.array_nodes import dense

SEEDS = {"seed": "int = 0", "seed2": "int = 0"}
LOGITS = "type in {float,double,int32,uint8,int16,int8,int64,bfloat16,uint16,half,uint32,uint64}"
COUNTED = (half, float32, double, int32, int64)


def sizes(shape: Any) -> tuple[int, ...]:
    """The sizes in a shape vector.

    Raises:
      InvalidArgumentError: it is no vector, or a size is negative.
    """
    if shape.ndim != 1:
        raise InvalidArgumentError(None, None, f"shape must be a vector, its shape is {list(shape.shape)}")
    made = tuple(shape.tolist())
    if made and min(made) < 0:
        raise InvalidArgumentError(None, None, f"every size of shape must be at least 0, got {list(made)}")
    return made


def placed(k: KernelContext, drawn: np.ndarray, out: Any = None) -> Any:
    """`drawn`, a host array, in the memory of the node's device: in `out` where that is given."""
    if k.xp is not np:
        drawn = k.device.from_host(drawn)
    if out is None:
        return drawn
    if out is not drawn:
        out[...] = drawn
    return out


def scalar(value: Any, what: str) -> int:
    """The int in a 0-d array."""
    if np.ndim(value):
        raise InvalidArgumentError(None, None, f"{what} must be 0-D, got shape {list(np.shape(value))}")
    return int(value)


def seeded(k: KernelContext) -> GuardedPhilox:
    """The stream of a node, kept by its session."""
    return k.state(lambda: GuardedPhilox(k.attrs["seed"], k.attrs["seed2"]))


class _Floats:
    """Base of the ops that fill a shape with floats: `draw` is the distribution."""

    stateful = True
    not_differentiable = True
    keeps_inputs = False
    writes_out = True
    host_inputs = (0,)
    draw: Callable[..., np.ndarray]

    def shape(self, s: ShapeContext, shape: TensorShape) -> TensorShape:
        return s.partial(0)

    def bind(self, k: KernelContext) -> Callable[..., Any]:
        stream, dtype, draw = seeded(k), k.dtype, type(self).draw
        if k.xp is np:
            return lambda shape, out=None: draw(stream, sizes(shape), dtype, out)
        return lambda shape, out=None: placed(k, draw(stream, sizes(shape), dtype), out)


def _three_runs(build: Callable[[Any], Any], why: str = "", tensorflow: bool = True) -> Any:
    """A program that runs what `build(tf)` makes three times: the stream goes on."""
    return program(lambda tf: [build(tf)] * 3, rtol=1e-5, why=why, tensorflow=tensorflow)


def _float_samples(name: str) -> list[Any]:
    def runs(shape: list[int], dtype: str, **seeds: int) -> Any:
        return _three_runs(
            lambda tf: getattr(tf.raw_ops, name)(shape=tf.constant(shape, tf.int32), dtype=dtype, **seeds)
        )

    return [
        runs([2, 3], "float32", seed=1, seed2=2),
        runs([5], "float64", seed=-1),
        runs([7], "float16", seed2=9),
        runs([7], "bfloat16", seed=4),
        runs([], "float32", seed=5),
        runs([0, 3], "float32", seed=6),
    ]


@op("RandomUniform(shape: T) -> output: dtype", **SEEDS, dtype=FLOATS, T=INDEX)
class RandomUniform(_Floats):
    """Uniform values in [0, 1)."""

    draw = distributions.uniform
    samples = _float_samples("RandomUniform")


@op("RandomStandardNormal(shape: T) -> output: dtype", **SEEDS, dtype=FLOATS, T=INDEX)
class RandomStandardNormal(_Floats):
    """Normal values of mean 0 and standard deviation 1."""

    draw = distributions.normal
    samples = _float_samples("RandomStandardNormal")


@op("TruncatedNormal(shape: T) -> output: dtype", **SEEDS, dtype=FLOATS, T=INDEX)
class TruncatedNormal(_Floats):
    """Normal values of mean 0 and standard deviation 1; those beyond 2 are drawn again."""

    draw = distributions.truncated_normal
    samples = _float_samples("TruncatedNormal")


@op("RandomUniformInt(shape: T, minval: Tout, maxval: Tout) -> output: Tout", **SEEDS, Tout=INDEX, T=INDEX)
class RandomUniformInt:
    """Uniform ints in [minval, maxval)."""

    stateful = True
    not_differentiable = True
    keeps_inputs = False
    host_inputs = ALL

    def shape(
        self, s: ShapeContext, shape: TensorShape, minval: TensorShape, maxval: TensorShape
    ) -> TensorShape:
        minval.with_rank(0)
        maxval.with_rank(0)
        return s.partial(0)

    def compute(self, k: KernelContext, shape: Any, minval: Any, maxval: Any, out: Any) -> Any:
        low, high = scalar(minval, "minval"), scalar(maxval, "maxval")
        drawn = distributions.uniform_int(
            seeded(k), sizes(shape), low, high, k.dtype, out if k.xp is np else None
        )
        return placed(k, drawn, out)

    samples = [
        _three_runs(lambda tf: tf.raw_ops.RandomUniformInt(shape=[2, 3], minval=-5, maxval=7, seed=1)),
        _three_runs(
            lambda tf: tf.raw_ops.RandomUniformInt(
                shape=[5], minval=tf.constant(0, tf.int64), maxval=tf.constant(2**40, tf.int64), seed2=3
            )
        ),
    ]


@op(
    "Multinomial(logits: T, num_samples: int32) -> output: output_dtype",
    T=LOGITS,
    output_dtype="type in {int32,int64} = int64",
    **SEEDS,
)
class Multinomial:
    """Classes drawn with replacement by the unnormalised log-probabilities of each row."""

    stateful = True
    not_differentiable = True
    keeps_inputs = False
    host_inputs = ALL

    def shape(self, s: ShapeContext, logits: TensorShape, num_samples: TensorShape) -> TensorShape:
        return drawn_classes(s, logits, num_samples)

    def compute(self, k: KernelContext, logits: Any, num_samples: Any, out: Any) -> Any:
        drawn = distributions.multinomial(
            seeded(k), logits, scalar(num_samples, "num_samples"), k.dtype, out if k.xp is np else None
        )
        return placed(k, drawn, out)

    samples = [
        _three_runs(
            lambda tf: tf.raw_ops.Multinomial(logits=[[0.1, 2.0], [5.0, 0.0]], num_samples=5, seed=1)
        ),
        _three_runs(
            lambda tf: tf.raw_ops.Multinomial(
                logits=tf.constant([[0.0, 1.0]], tf.float64), num_samples=3, seed=1, output_dtype=tf.int32
            )
        ),
    ]


def drawn_classes(s: ShapeContext, logits: TensorShape, num_samples: TensorShape) -> TensorShape:
    """The shape [batch, num_samples] of classes drawn by logits [batch, classes]."""
    logits = logits.with_rank(2)
    num_samples.with_rank(0)
    count = s.value(1)
    batch = logits.sizes[0] if logits.sizes is not None else None
    return TensorShape.of((batch, None if count is None else int(count)))


@op("RandomShuffle(value: T) -> output: T", **SEEDS)
class RandomShuffle:
    """The rows of `value` (its first axis) in random order."""

    stateful = True
    not_differentiable = True
    keeps_inputs = False
    cpu_only = True

    def shape(self, s: ShapeContext, value: TensorShape) -> TensorShape:
        return value

    def compute(self, k: KernelContext, value: Any, out: Any) -> Any:
        return distributions.shuffle(seeded(k), value, out)

    samples = [
        _three_runs(lambda tf: tf.raw_ops.RandomShuffle(value=list(range(10)), seed=1)),
        _three_runs(lambda tf: tf.raw_ops.RandomShuffle(value=[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], seed2=1)),
        _three_runs(lambda tf: tf.raw_ops.RandomShuffle(value=["a", "b", "c", "d"], seed=3, seed2=1)),
        _three_runs(lambda tf: tf.raw_ops.RandomShuffle(value=[7], seed=1), why="one row is not shuffled"),
    ]


@op("RandomGamma(shape: S, alpha: T) -> output: T", **SEEDS, S=INDEX, T=(half, float32, double))
class RandomGamma:
    """Gamma values of shape parameter `alpha` and rate 1: `shape` of them for each alpha."""

    stateful = True
    keeps_inputs = False
    host_inputs = ALL

    def shape(self, s: ShapeContext, shape: TensorShape, alpha: TensorShape) -> TensorShape:
        return s.partial(0).concatenate(alpha)

    def compute(self, k: KernelContext, shape: Any, alpha: Any) -> Any:
        counts, alpha = sizes(shape), np.asarray(alpha)
        drawn = rejection.gamma(seeded(k), int(np.prod(counts, dtype=np.int64)), alpha)
        return placed(k, drawn.reshape(counts + alpha.shape))

    samples = [
        _three_runs(lambda tf: tf.raw_ops.RandomGamma(shape=[2, 3], alpha=[0.5, 1.0, 4.0], seed=1)),
        _three_runs(
            lambda tf: tf.raw_ops.RandomGamma(
                shape=np.zeros(0, np.int64), alpha=tf.constant([[2.0]], tf.float64), seed=1
            )
        ),
        _three_runs(lambda tf: tf.raw_ops.RandomGamma(shape=[0], alpha=2.0, seed=1)),
    ]

    def gradient(self, op: Any, dy: Tensor) -> list[Tensor | None]:
        shape, alpha = op.inputs
        return [None, alpha_gradient(alpha, op.outputs[0], dy, length(shape))]


def length(vector: Tensor) -> Tensor:
    """How many elements `vector` has."""
    return raw.Squeeze(raw.Shape(vector), squeeze_dims=[0])


def alpha_gradient(alpha: Tensor, sample: Tensor, dy: Tensor, leading: Tensor) -> Tensor:
    """The gradient by `alpha` of gamma values `sample`, which have `leading` (int32) axes before alpha's."""
    dy = dense(dy)
    with control_dependencies([dy]):
        ones = raw.Fill(raw.Reshape(leading, [1]), 1)
        aligned = raw.Reshape(alpha, raw.ConcatV2([ones, raw.Shape(alpha)], 0))
        by_alpha = raw.RandomGammaGrad(aligned, sample)
        return raw.Sum(raw.Mul(dy, by_alpha), raw.Range(0, leading, 1))


class _Poisson:
    stateful = True
    not_differentiable = True
    keeps_inputs = False
    host_inputs = ALL

    def shape(self, s: ShapeContext, shape: TensorShape, rate: TensorShape) -> TensorShape:
        return s.partial(0).concatenate(rate)

    def compute(self, k: KernelContext, shape: Any, rate: Any) -> Any:
        counts, rate = sizes(shape), np.asarray(rate)
        drawn = rejection.poisson(seeded(k), int(np.prod(counts, dtype=np.int64)), rate, k.dtype)
        return placed(k, drawn.reshape(counts + rate.shape))


@op("RandomPoisson(shape: S, rate: dtype) -> output: dtype", **SEEDS, S=INDEX, dtype=(half, float32, double))
class RandomPoisson(_Poisson):
    """Poisson values of mean `rate`: `shape` of them for each rate. Older GraphDefs have it."""

    samples = [
        _three_runs(
            lambda tf: tf.raw_ops.RandomPoisson(shape=[3], rate=[0.5, 20.0], seed=1),
            tensorflow=False,
            why="TensorFlow reads it, and does not let new graphs have it",
        )
    ]


@op(
    "RandomPoissonV2(shape: S, rate: R) -> output: dtype",
    **SEEDS,
    S=INDEX,
    R="type in {half,float,double,int32,int64} = double",
    dtype="type in {half,float,double,int32,int64} = int64",
)
class RandomPoissonV2(_Poisson):
    """Poisson values of mean `rate`: `shape` of them for each rate."""

    samples = [
        _three_runs(lambda tf: tf.raw_ops.RandomPoissonV2(shape=[2, 3], rate=[0.5, 10.0, 100.0], seed=1)),
        _three_runs(lambda tf: tf.raw_ops.RandomPoissonV2(shape=[4], rate=3.0, dtype="float32", seed=1)),
        _three_runs(lambda tf: tf.raw_ops.RandomPoissonV2(shape=[4], rate=[30], dtype="int32", seed=1)),
    ]
