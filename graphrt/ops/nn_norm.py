"""Normalisation: FusedBatchNorm (three versions, with gradients) and local response normalisation (LRN)."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import isqrt
from typing import Any

import numpy as np

from graphrt.core import onednn_primitives, raw
from graphrt.core.conv_kernels import in_host_memory
from graphrt.core.gradients import gradients
from graphrt.core.registry import KernelContext, ShapeContext, op
from graphrt.core.samples import empty, normal, positive, program, sample, uniform
from graphrt.core.shapes import SCALAR, TensorShape
from graphrt.core.tensor import Tensor
from graphrt.core.windows import channels_first

_LONG = 512


class _Channels:
    """An activation's elements by channel: `fold` views it so that vectors of one number a channel, `spread`,
    broadcast against it in long inner loops. Channels-last activations of 32 channels would have loops of 32
    elements, three times slower: several positions are folded into a row."""

    def __init__(self, xp: Any, shape: tuple[int, ...], first: bool) -> None:
        self.xp, self.shape, self.first = xp, shape, first
        self.count = shape[1 if first else -1]
        self.positions = int(np.prod(shape)) // max(self.count, 1)
        self.folds = 1
        while not first and self.folds * self.count < _LONG and self.positions % (2 * self.folds) == 0:
            self.folds *= 2

    def fold(self, x: Any) -> Any:
        """A view of x, or a float32 copy of a 16-bit one."""
        if self.first:
            x = x.reshape(self.shape[0], self.count, -1)
        else:
            x = x.reshape(-1, self.folds * self.count)
        return x.astype(np.float32, copy=False)

    def spread(self, vector: Any) -> Any:
        return vector[:, None] if self.first else self.xp.tile(vector, self.folds)

    def sum(self, folded: Any) -> Any:
        """The sum over each channel, in two steps or more, so that rounding errors stay small."""
        if self.first:
            return folded.sum(axis=2).sum(axis=0)
        rows = folded.shape[0]
        group = isqrt(rows)
        whole = rows // group * group
        made = folded[:whole].reshape(rows // group, group, -1).sum(axis=0).sum(axis=0)
        if whole < rows:
            made += folded[whole:].sum(axis=0)
        return made.reshape(self.folds, self.count).sum(axis=0)


class _BatchNorm:
    """Base of the three versions.

    Training: y from the mean and variance of the batch; those are also outputs 3 and 4 (for the gradient),
    and
    outputs 1 and 2 are the averages to keep: (1 - factor) * old + factor * the batch's, whose variance has
    Bessel's correction. Inference: y from the mean and variance given, which the other outputs repeat.
    """

    extra_output = False

    def shape(self, s: ShapeContext, x: TensorShape, *vectors: TensorShape) -> list[TensorShape]:
        data_format = s.attrs["data_format"].decode()
        x = x.with_rank(len(data_format))
        at = 1 if channels_first(data_format) else len(data_format) - 1
        channels = TensorShape.of((x.sizes[at],))
        vectors = vectors if _averages_needed(s.attrs) else vectors[:2]
        for name, vector in zip(("scale", "offset", "mean", "variance"), vectors):
            try:
                channels = channels.merge_with(vector.with_rank(1))
            except ValueError:
                raise ValueError(f"{name} of shape {vector} must have one entry for each channel of x, "
                                 "which has "
                                 f"shape {x} ({data_format})") from None
        sizes = list(x.sizes)
        sizes[at] = channels.sizes[0]
        return [TensorShape.of(tuple(sizes)), *[channels] * 4, *[SCALAR] * self.extra_output]

    def bind(self, k: KernelContext) -> Callable[..., Any]:
        attrs, xp, extra = k.attrs, k.xp, self.extra_output
        data_format = attrs["data_format"].decode()
        first = channels_first(data_format)
        epsilon, training = np.float32(attrs["epsilon"]), attrs["is_training"]
        factor = attrs["exponential_avg_factor"]
        averages_needed = _averages_needed(attrs)

        def batch_norm(x: Any, scale: Any, offset: Any, mean: Any, variance: Any) -> tuple[Any, ...]:
            _check_rank("x", x, data_format)
            channels = x.shape[1 if first else -1]
            _check_vectors(channels, scale=scale, offset=offset)
            if averages_needed:
                _check_vectors(channels, mean=mean, variance=variance)
            rest = (xp.zeros((), np.float32),) if extra else ()
            if x.size == 0:
                # As in TensorFlow: the averages become unknown.
                return (xp.zeros(x.shape, x.dtype), *(xp.full(channels, value, np.float32)
                                                      for value in (np.nan, np.nan, 0.0, 0.0)), *rest)
            view = _Channels(xp, x.shape, first)
            folded = view.fold(x)
            if training:
                batch_mean = view.sum(folded) / np.float32(view.positions)
                y = folded - view.spread(batch_mean)
                batch_variance = view.sum(y * y) / np.float32(view.positions)
                unbiased = np.float32(view.positions / max(view.positions - 1, 1))
                kept = [batch_mean.copy(), batch_variance * unbiased]
                if factor != 1.0:
                    kept = [np.float32(1.0 - factor) * old + np.float32(factor) * new
                            for old, new in zip((mean, variance), kept)]
            else:
                batch_mean, batch_variance = mean.copy(), variance.copy()
                kept = [mean.copy(), variance.copy()]
                y = folded - view.spread(batch_mean)
            y *= view.spread(scale / xp.sqrt(batch_variance + epsilon))
            y += view.spread(offset)
            return (y.reshape(x.shape).astype(x.dtype, copy=False), *kept, batch_mean, batch_variance, *rest)
        return batch_norm

    grad_op = "FusedBatchNormGrad"

    def gradient(self, op: Any, dy: Tensor, *_: Any) -> list[Tensor | None]:
        x, scale, _, mean, variance = op.inputs
        saved = list(op.outputs[3:]) if op.attrs["is_training"] else [mean, variance, *op.outputs[5:]]
        attrs = {name: op.attrs[name] for name in ("epsilon", "data_format", "is_training")}
        made = getattr(raw, self.grad_op)(dy, x, scale, *saved, **attrs)
        return [*made[:3], None, None]


class _BatchNormGrad:
    """Base of the gradients by x, scale and offset."""

    def shape(self, s: ShapeContext, dy: TensorShape, x: TensorShape, scale: TensorShape,
              *reserved: TensorShape) -> list[TensorShape]:
        data_format = s.attrs["data_format"].decode()
        try:
            x = x.with_rank(len(data_format)).merge_with(dy)
        except ValueError:
            raise ValueError(f"y_backprop of shape {dy} and x of shape {x} must have one shape, of rank "
                             f"{len(data_format)} ({data_format})") from None
        at = 1 if channels_first(data_format) else -1
        channels = TensorShape.of((x.sizes[at],)).merge_with(scale.with_rank(1))
        return [x, channels, channels, _NOTHING, _NOTHING]

    def bind(self, k: KernelContext) -> Callable[..., Any]:
        attrs, xp = k.attrs, k.xp
        data_format = attrs["data_format"].decode()
        epsilon, training = np.float32(attrs["epsilon"]), attrs["is_training"]
        first = channels_first(data_format)

        def batch_norm_gradient(dy: Any, x: Any, scale: Any, mean: Any, variance: Any,
                                _: Any = None) -> tuple[Any, ...]:
            _check_rank("x", x, data_format)
            if dy.shape != x.shape:
                raise ValueError(f"y_backprop has shape {list(dy.shape)} and x {list(x.shape)}: they must "
                                 "be the same")
            channels = x.shape[1 if first else -1]
            _check_vectors(channels, scale=scale, reserve_space_1=mean, reserve_space_2=variance)
            nothing = xp.zeros(0, np.float32), xp.zeros(0, np.float32)
            if x.size == 0:
                zeros = xp.zeros(channels, np.float32), xp.zeros(channels, np.float32)
                return xp.zeros(x.shape, x.dtype), *zeros, *nothing
            view = _Channels(xp, x.shape, first)
            incoming, inverse = view.fold(dy), np.float32(1) / xp.sqrt(variance + epsilon)
            centred = view.fold(x) - view.spread(mean)
            doffset = view.sum(incoming)
            along = view.sum(incoming * centred)
            if training:
                n = np.float32(view.positions)
                centred *= view.spread(-along * inverse * inverse / n)
                centred += incoming
                centred -= view.spread(doffset / n)
                centred *= view.spread(scale * inverse)
                dx = centred
            else:
                dx = incoming * view.spread(scale * inverse)
            return dx.reshape(x.shape).astype(x.dtype, copy=False), along * inverse, doffset, *nothing
        return batch_norm_gradient

    def gradient(self, op: Any, ddx: Tensor, ddscale: Tensor, ddoffset: Tensor,
                 *_: Any) -> list[Tensor | None]:
        """By differentiating the formula, written out in plain ops."""
        dy, x, scale, mean, variance = op.inputs[:5]
        dtype = scale.dtype
        dy_, x_ = raw.Cast(dy, DstT=dtype), raw.Cast(x, DstT=dtype)
        data_format = op.attrs["data_format"].decode()
        axes = np.array([0, *range(2, len(data_format))] if channels_first(data_format)
                        else range(len(data_format) - 1), np.int32)

        def wide(vector: Tensor) -> Tensor:
            if not channels_first(data_format):
                return vector
            return raw.Reshape(vector, np.array([-1, *[1] * (len(data_format) - 2)], np.int32))

        if op.attrs["is_training"]:
            mean = raw.Mean(x_, axes)
            variance = raw.Mean(raw.SquaredDifference(x_, wide(mean)), axes)
        inverse = raw.Rsqrt(variance + op.attrs["epsilon"])
        centred = x_ - wide(mean)
        dscale, doffset = raw.Sum(dy_ * centred, axes) * inverse, raw.Sum(dy_, axes)
        dx = dy_
        if op.attrs["is_training"]:
            along = raw.Mean(dy_ * centred, axes) * inverse * inverse
            dx = dy_ - wide(raw.Mean(dy_, axes)) - centred * wide(along)
        dx = dx * wide(scale * inverse)
        made = gradients([dx, dscale, doffset], [dy_, x_, scale],
                         [raw.Cast(ddx, DstT=dtype), ddscale, ddoffset])
        ddy, dx_again, dscale_again = (None if g is None else raw.Cast(g, DstT=t.dtype)
                                       for g, t in zip(made, (dy, x, scale)))
        return [ddy, dx_again, dscale_again, *[None] * (len(op.inputs) - 3)]


_NOTHING = TensorShape.of((0,))


def _averages_needed(attrs: dict[str, Any]) -> bool:
    return not attrs["is_training"] or attrs["exponential_avg_factor"] != 1.0


def _check_rank(name: str, x: Any, data_format: str) -> None:
    if x.ndim != len(data_format):
        raise ValueError(f"{name} must have {len(data_format)} dimensions ({data_format}), not shape "
                         f"{list(x.shape)}")


def _check_vectors(channels: int, **vectors: Any) -> None:
    for name, vector in vectors.items():
        if vector.shape != (channels,):
            raise ValueError(f"{name} must have one entry for each of the {channels} channels of x, not "
                             "shape "
                             f"{list(vector.shape)}")


_ATTRS = {"epsilon": "float = 9.999999747378752e-05", "data_format": "string in {NHWC,NCHW} = 'NHWC'",
          "is_training": "bool = True"}
_ATTRS_V3 = {**_ATTRS, "data_format": "string in {NHWC,NCHW,NDHWC,NCDHW} = 'NHWC'"}
_FACTOR = {"exponential_avg_factor": "float = 1.0"}
_T = {"T": "type in {half,bfloat16,float}", "U": "type in {float}"}


def _inference(op_name: str, shape: tuple[int, ...], data_format: str, channels: int) -> Any:
    """A program that runs the op for inference: there TensorFlow does not set all outputs."""
    def build(tf: Any) -> list[Any]:
        rng = np.random.default_rng(0)
        x, scale, offset, mean = (rng.standard_normal(n).astype("f") for n in (shape, channels, channels,
                                                                               channels))
        made = getattr(tf.raw_ops, op_name)(x=x, scale=scale, offset=offset, mean=mean,
                                            variance=mean ** 2 + np.float32(0.5),
                                            is_training=False, data_format=data_format)
        return [list(made[:3])]

    return program(build, rtol=1e-4)


def _training_samples() -> list[Any]:
    vectors = (positive(3), normal(3), empty(0), empty(0))
    return [sample(normal(4, 5, 6, 3), *vectors, rtol=1e-4),
            sample(normal(2, 3, 4, 5), *vectors, data_format="NCHW", rtol=1e-4),
            sample(normal(2, 3, 3, 3), positive(3), normal(3), normal(3), positive(3),
                   exponential_avg_factor=0.25, rtol=1e-4),
            sample(normal(1, 1, 1, 3), *vectors, why="one position: its variance is 0", gradient=False)]


def _grad_samples(*extra: Any) -> list[Any]:
    vectors = (positive(3), normal(3), positive(3), *extra)
    return [sample(normal(4, 5, 6, 3), normal(4, 5, 6, 3), *vectors, rtol=1e-4),
            sample(normal(2, 3, 4, 5), normal(2, 3, 4, 5), *vectors, data_format="NCHW", rtol=1e-4),
            sample(normal(2, 4, 4, 3), normal(2, 4, 4, 3), *vectors, is_training=False, rtol=1e-4)]


@op("FusedBatchNorm(x: T, scale: T, offset: T, mean: T, variance: T) -> "
    "y: T, batch_mean: T, batch_variance: T, reserve_space_1: T, reserve_space_2: T", T="type in {float}",
    **_ATTRS, **_FACTOR)
class FusedBatchNorm(_BatchNorm):
    """(x - mean) / sqrt(variance + epsilon) * scale + offset, by channel."""

    samples = [*_training_samples(), _inference("FusedBatchNorm", (2, 4, 4, 3), "NHWC", 3)]


@op("FusedBatchNormV2(x: T, scale: U, offset: U, mean: U, variance: U) -> "
    "y: T, batch_mean: U, batch_variance: U, reserve_space_1: U, reserve_space_2: U", **_T, **_ATTRS,
    **_FACTOR)
class FusedBatchNormV2(_BatchNorm):
    """FusedBatchNorm whose x may be of 16 bits."""

    grad_op = "FusedBatchNormGradV2"
    samples = [*_training_samples(), _inference("FusedBatchNormV2", (2, 3, 4, 4), "NCHW", 3),
               sample(normal(4, 5, 6, 3, dtype="half"), positive(3), normal(3), empty(0), empty(0),
                      gradient=False, rtol=1e-2)]


@op("FusedBatchNormV3(x: T, scale: U, offset: U, mean: U, variance: U) -> "
    "y: T, batch_mean: U, batch_variance: U, reserve_space_1: U, reserve_space_2: U, reserve_space_3: U",
    T=_T["T"], U="type in {bfloat16,float}",
    **_ATTRS_V3,
    **_FACTOR)
class FusedBatchNormV3(_BatchNorm):
    """FusedBatchNormV2 over two or three spatial dimensions, with one more output (0 here)."""

    extra_output = True
    grad_op = "FusedBatchNormGradV3"
    samples = [*_training_samples(), _inference("FusedBatchNormV3", (2, 4, 4, 3), "NHWC", 3),
               sample(normal(2, 3, 2, 4, 3), positive(3), normal(3), empty(0), empty(0), data_format="NDHWC",
                      rtol=1e-4),
               sample(normal(2, 3, 2, 4, 3), positive(3), normal(3), empty(0), empty(0), data_format="NCDHW",
                      rtol=1e-4),
               sample(normal(4, 5, 6, 3, dtype="bfloat16"), positive(3), normal(3), empty(0), empty(0),
                      gradient=False, rtol=5e-2)]


@op("FusedBatchNormGrad(y_backprop: T, x: T, scale: T, reserve_space_1: T, reserve_space_2: T) -> "
    "x_backprop: T, scale_backprop: T, offset_backprop: T, reserve_space_3: T, reserve_space_4: T",
    T="type in {float}",
    **_ATTRS)
class FusedBatchNormGrad(_BatchNormGrad):
    """The gradient of FusedBatchNorm by x, scale and offset."""

    samples = _grad_samples()


@op("FusedBatchNormGradV2(y_backprop: T, x: T, scale: float, reserve_space_1: U, reserve_space_2: U) -> "
    "x_backprop: T, scale_backprop: U, offset_backprop: U, reserve_space_3: U, reserve_space_4: U", **_T,
    **_ATTRS)
class FusedBatchNormGradV2(_BatchNormGrad):
    """The gradient of FusedBatchNormV2 by x, scale and offset."""

    samples = _grad_samples()


@op("FusedBatchNormGradV3(y_backprop: T, x: T, scale: float, reserve_space_1: U, reserve_space_2: U, "
    "reserve_space_3: U) -> "
    "x_backprop: T, scale_backprop: U, offset_backprop: U, reserve_space_4: U, reserve_space_5: U", **_T,
    **_ATTRS_V3)
class FusedBatchNormGradV3(_BatchNormGrad):
    """The gradient of FusedBatchNormV3 by x, scale and offset."""

    samples = _grad_samples(empty(0))


class _Response:
    """What LRN and its gradient share: bias + alpha * the sum of squares over neighbouring channels."""

    def scale(self, k: KernelContext, x: Any, band: Any) -> Any:
        made = k.xp.matmul((x * x).reshape(-1, x.shape[-1]), band).reshape(x.shape)
        made *= np.float32(k.attrs["alpha"])
        made += np.float32(k.attrs["bias"])
        return made


@lru_cache(maxsize=64)
def _neighbours(channels: int, radius: int) -> np.ndarray:
    """The matrix that sums each channel with those at most `radius` away."""
    at = np.arange(channels)
    return (abs(at[:, None] - at) <= radius).astype(np.float32)


def _to_power(xp: Any, x: Any, power: float) -> Any:
    """x ** power for x > 0, by square roots where those do: np.power takes four times as long."""
    if power == 0.5:
        return xp.sqrt(x)
    if power == 0.75:
        root = xp.sqrt(x)
        return root * xp.sqrt(root)
    if power == 1.0:
        return x
    return xp.power(x, np.float32(power))


def _check_image(**arrays: Any) -> None:
    shapes = {name: list(array.shape) for name, array in arrays.items()}
    if any(len(shape) != 4 for shape in shapes.values()) or len({tuple(s) for s in shapes.values()}) != 1:
        raise ValueError(f"{', '.join(shapes)} must have one shape of 4 dimensions, not "
                         f"{list(shapes.values())}")


_LRN_ATTRS = {"depth_radius": "int = 5", "bias": "float = 1.0", "alpha": "float = 1.0", "beta": "float = 0.5",
              "T": "type in {half,bfloat16,float} = float"}


@op("LRN(input: T) -> output: T", **_LRN_ATTRS)
class LRN(_Response):
    """x / (bias + alpha * the sum of x^2 over the channels at most depth_radius away) ** beta."""

    def shape(self, s: ShapeContext, x: TensorShape) -> TensorShape:
        return x.with_rank(4)

    def compute(self, k: KernelContext, x: Any, out: Any) -> Any:
        _check_image(input=x)
        attrs, xp = k.attrs, k.xp
        made = k.empty(x.shape, out)
        radius = attrs["depth_radius"]
        if in_host_memory(xp) and x.dtype == np.float32 and x.size:
            window, normalise = 2 * radius + 1, onednn_primitives.response_normalisation
            plain = np.ascontiguousarray(x)
            if normalise(plain, made, window, attrs["alpha"] * window, attrs["beta"], attrs["bias"]):
                return made
        values = x.astype(np.float32, copy=False)
        scale = self.scale(k, values, xp.asarray(_neighbours(x.shape[-1], radius)))
        made[...] = values / _to_power(xp, scale, attrs["beta"])
        return made

    def gradient(self, op: Any, dy: Tensor) -> Tensor:
        attrs = {name: op.attrs[name] for name in ("depth_radius", "bias", "alpha", "beta")}
        return raw.LRNGrad(dy, op.inputs[0], op.outputs[0], **attrs)

    samples = [sample(normal(2, 3, 4, 7), depth_radius=2, alpha=0.5, beta=0.75, rtol=1e-4),
               sample(normal(1, 2, 2, 16), depth_radius=2, bias=2.0, alpha=1e-2, beta=0.75, rtol=1e-4),
               sample(normal(1, 2, 3, 4), why="defaults: further than the channels reach", rtol=1e-4),
               sample(normal(1, 2, 2, 5), depth_radius=0, beta=0.3, rtol=1e-4), sample(empty(0, 2, 2, 3)),
               sample(uniform(1, 2, 2, 5, dtype="half"), gradient=False, rtol=1e-2),
               sample(uniform(1, 2, 2, 5, dtype="bfloat16"), gradient=False, tensorflow=False,
                      why="no kernel in TensorFlow")]


@op("LRNGrad(input_grads: T, input_image: T, output_image: T) -> output: T", **_LRN_ATTRS)
class LRNGrad(_Response):
    """The gradient of LRN by its input."""

    def shape(self, s: ShapeContext, dy: TensorShape, x: TensorShape, y: TensorShape) -> TensorShape:
        return dy.with_rank(4).merge_with(x).merge_with(y)

    def compute(self, k: KernelContext, dy: Any, x: Any, y: Any, out: Any) -> Any:
        _check_image(input_grads=dy, input_image=x, output_image=y)
        attrs, xp = k.attrs, k.xp
        made = k.empty(x.shape, out)
        dy, x, y = (a.astype(np.float32, copy=False) for a in (dy, x, y))
        band = xp.asarray(_neighbours(x.shape[-1], attrs["depth_radius"]))
        scale = self.scale(k, x, band)
        shared = xp.matmul((dy * y / scale).reshape(-1, x.shape[-1]), band).reshape(x.shape)
        factor = np.float32(2 * attrs["alpha"] * attrs["beta"])
        made[...] = dy / _to_power(xp, scale, attrs["beta"]) - factor * x * shared
        return made

    samples = [sample(normal(2, 3, 4, 7), normal(2, 3, 4, 7), uniform(2, 3, 4, 7), depth_radius=2, alpha=0.5,
                      beta=0.75, rtol=1e-4),
               sample(normal(1, 2, 2, 3), normal(1, 2, 2, 3), uniform(1, 2, 2, 3), rtol=1e-4)]
