"""Max and average pooling over two and three spatial dimensions, with their first and second gradients.

A pooling window of more than 1 in the channel dimension is one more spatial dimension to the kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphrt.core import pool_kernels, raw
from graphrt.core.dtypes import INDEX
from graphrt.core.registry import KernelContext, ShapeContext, op
from graphrt.core.samples import Later, empty, ints, normal, sample
from graphrt.core.shapes import TensorShape
from graphrt.core.tensor import Tensor
from graphrt.core.windows import Ints, Window, channels_first, window
from graphrt.ops.broadcasting import shape_of


@dataclass(frozen=True)
class Pooling:
    """The attrs of a pooling op: one entry of each for each dimension of `data_format`."""

    data_format: str
    ksize: Ints
    strides: Ints
    padding: str
    explicit: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, attrs: dict[str, Any], rank: int, ksize: Any = None, strides: Any = None) -> Pooling:
        """Read the attrs of a node; `ksize` and `strides` where they are inputs.

        Raises:
          ValueError: an attr has another number of entries or is out of range, or pools over the batch.
        """
        data_format = attrs["data_format"].decode() if "data_format" in attrs else "NHWC"
        if data_format == "NCHW_VECT_C":
            raise ValueError("data_format NCHW_VECT_C (qint8 in vectors of 4) is not supported: use NHWC or "
                             "NCHW")
        ksize = tuple(attrs["ksize"] if ksize is None else (int(n) for n in ksize))
        strides = tuple(attrs["strides"] if strides is None else (int(n) for n in strides))
        for what, values in (("ksize", ksize), ("strides", strides)):
            if len(values) != rank + 2 or min(values) < 1:
                raise ValueError(f"{what} must be {rank + 2} numbers above 0, one for each of "
                                 f"{data_format}, not {list(values)}")
            if values[0] != 1:
                raise ValueError(f"{what} must be 1 in the batch dimension, not {values[0]}")
        padding = attrs["padding"].decode()
        explicit = ((0, 0),) * (rank + 2)
        if padding == "EXPLICIT":
            given = attrs["explicit_paddings"]
            if len(given) != 2 * (rank + 2):
                raise ValueError(f"explicit_paddings must have {2 * (rank + 2)} entries, two for each of "
                                 f"{data_format}, "
                                 f"not {len(given)}")
            explicit = tuple(zip(given[::2], given[1::2]))
            for pads, size in zip(explicit, ksize):
                if not 0 <= min(pads) <= max(pads) < size:
                    raise ValueError(f"paddings {pads} must be below the window's size {size}: a window "
                                     "would see padding alone")
        elif attrs.get("explicit_paddings"):
            raise ValueError(f"explicit_paddings go with padding 'EXPLICIT', not '{padding}'")
        return cls(data_format, ksize, strides, padding, explicit)

    @property
    def channels_first(self) -> bool:
        return channels_first(self.data_format)

    @property
    def over_channels(self) -> bool:
        at = 1 if self.channels_first else -1
        return self.ksize[at] != 1 or self.strides[at] != 1

    def output(self, sizes: Sequence[int | None]) -> tuple[int | None, ...]:
        """The pooled sizes of an input of these sizes, all dimensions, as far as they are known."""
        made: list[int | None] = [sizes[0]]
        for size, k, stride, pads in zip(sizes[1:], self.ksize[1:], self.strides[1:], self.explicit[1:]):
            made.append(None if size is None else
                        window((size,), (k,), (stride,), self.padding, None, (pads,)).output[0])
        return tuple(made)

    def window(self, shape: Sequence[int]) -> Window:
        """The window over an input of `shape`: over its spatial dimensions, or all but the batch."""
        if len(shape) != len(self.ksize):
            raise ValueError(f"the input must have {len(self.ksize)} dimensions ({self.data_format}), not "
                             f"shape {list(shape)}")
        first = 1 if self.over_channels or not self.channels_first else 2
        last = None if self.over_channels or self.channels_first else -1
        part = slice(first, last)
        return window(tuple(shape[part]), self.ksize[part], self.strides[part], self.padding, None,
                      self.explicit[part])


def _pooled(kernel: Callable[..., Any], pooling: Pooling, xp: Any, in_shape: Sequence[int],
            arrays: Sequence[Any],
            out: Any, *more: Any) -> Any:
    """Run a pool kernel on `arrays`, whose input has shape `in_shape`."""
    win = pooling.window(in_shape)
    if not pooling.over_channels:
        return kernel(*arrays, win, *more, channels_first=pooling.channels_first, out=out, xp=xp)
    # Every dimension but the batch is spatial, and there is one channel.
    made = kernel(*(a[..., None] for a in arrays), win, *((*shape, 1) for shape in more), xp=xp)[..., 0]
    if out is None:
        return made
    out[...] = made
    return out


class _Pool:
    """Base of forward poolings."""

    rank = 2
    writes_out = True
    kernel: Callable[..., Any]
    inputs_give_sizes = False

    def shape(self, s: ShapeContext, x: TensorShape, *sizes: TensorShape) -> TensorShape:
        x = x.with_rank(self.rank + 2)
        given: list[Any] = []
        if sizes:
            given = [s.value(1), s.value(2)]
            if given[0] is None or given[1] is None:
                return TensorShape.of((x.sizes[0], *[None] * (self.rank + 1)))
        return TensorShape.of(Pooling.of(s.attrs, self.rank, *given).output(x.sizes))

    def bind(self, k: KernelContext) -> Callable[..., Any]:
        kernel, rank, xp, attrs = type(self).kernel, self.rank, k.xp, k.attrs
        if len(k.input_dtypes) == 3:
            def pool_by_inputs(x: Any, ksize: Any, strides: Any, out: Any) -> Any:
                return _pooled(kernel, Pooling.of(attrs, rank, ksize, strides), xp, x.shape, (x,), out)
            return pool_by_inputs
        pooling = Pooling.of(attrs, rank)

        def pool(x: Any, out: Any) -> Any:
            return _pooled(kernel, pooling, xp, x.shape, (x,), out)
        return pool


class _MaxGradient:
    """Base of gradients of max pooling: what passes from the output to the winning inputs, or back."""

    rank = 2
    writes_out = True
    kernel: Callable[..., Any]
    gives_input_shape = True

    def shape(self, s: ShapeContext, x: TensorShape, y: TensorShape, dy: TensorShape,
              *sizes: TensorShape) -> TensorShape:
        x = x.with_rank(self.rank + 2)
        y = y.with_rank(self.rank + 2)
        return x if self.gives_input_shape else y

    def bind(self, k: KernelContext) -> Callable[..., Any]:
        kernel, rank, xp, attrs = type(self).kernel, self.rank, k.xp, k.attrs
        if len(k.input_dtypes) == 5:
            def gradient_by_inputs(x: Any, y: Any, dy: Any, ksize: Any, strides: Any, out: Any) -> Any:
                return _pooled(kernel, Pooling.of(attrs, rank, ksize, strides), xp, x.shape, (x, dy), out)
            return gradient_by_inputs
        pooling = Pooling.of(attrs, rank)

        def pool_gradient(x: Any, y: Any, dy: Any, out: Any) -> Any:
            return _pooled(kernel, pooling, xp, x.shape, (x, dy), out)
        return pool_gradient


_POOL_ATTRS = ("ksize", "strides", "padding", "explicit_paddings", "data_format")


def _attrs(op: Any, *but: str) -> dict[str, Any]:
    """The pooling attrs of a node, but for those named."""
    return {a: op.attrs[a] for a in _POOL_ATTRS if a in op.attrs and a not in but}


def _no_explicit(op: Any) -> dict[str, Any]:
    """For ops that take no explicit paddings."""
    if op.attrs["padding"] == b"EXPLICIT":
        raise ValueError(f"the second gradient of {op.type} with EXPLICIT padding has no op: pad first, "
                         "then pool")
    return _attrs(op, "explicit_paddings")


def _zeros_for_recomputed(op: Any) -> list[Tensor]:
    """Gradients by the pooled input and output: only which inputs won hangs on them."""
    return [raw.ZerosLike(op.inputs[0]), raw.ZerosLike(op.inputs[1])]


_SIZES = {"ksize": "list(int) >= 4", "strides": "list(int) >= 4"}
_SIZES_3D = {"ksize": "list(int) >= 5", "strides": "list(int) >= 5"}
_PADDING = {"padding": "string in {SAME,VALID}"}
_PADDING_EXPLICIT = {"padding": "string in {SAME,VALID,EXPLICIT}", "explicit_paddings": "list(int) = []"}
_LAYOUT = {"data_format": "string in {NHWC,NCHW} = 'NHWC'"}
_LAYOUT_VECT = {"data_format": "string in {NHWC,NCHW,NCHW_VECT_C} = 'NHWC'"}
_LAYOUT_3D = {"data_format": "string in {NDHWC,NCDHW} = 'NDHWC'"}
_MAX_TYPES = "type in {half,bfloat16,float,double,int32,int64,uint8,int16,int8,uint16,qint8} = float"
_REAL_TYPES = "type in {float,double,int32,uint8,int16,int8,int64,bfloat16,uint16,half,uint32,uint64}"
_FLOATS_3D = "type in {half,bfloat16,float}"

_BY_2 = {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "SAME"}
_BY_3 = {"ksize": [1, 3, 2, 1], "strides": [1, 2, 1, 1], "padding": "VALID"}
_EXPLICIT = {"ksize": [1, 3, 2, 1], "strides": [1, 2, 2, 1], "padding": "EXPLICIT",
             "explicit_paddings": [0, 0, 1, 2, 0, 1, 0, 0]}
_FIRST = {"ksize": [1, 1, 2, 3], "strides": [1, 1, 2, 2], "padding": "SAME", "data_format": "NCHW",
          "tensorflow": False,
          "why": "TensorFlow's CPU kernels take NHWC only"}
_3D = {"ksize": [1, 2, 1, 3, 1], "strides": [1, 2, 1, 2, 1], "padding": "SAME"}
_3D_VALID = {"ksize": [1, 2, 2, 2, 1], "strides": [1, 1, 2, 1, 1], "padding": "VALID"}


def _int32(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def _pooled_draw(*shape: int, ties: bool = False, **attrs: Any) -> tuple[Later, Later]:
    """An input and its maximum pooling: TensorFlow's gradients compare the two."""
    def drawn() -> np.ndarray:
        rng = np.random.default_rng(shape)
        return (rng.integers(0, 3, shape) if ties else rng.standard_normal(shape)).astype(np.float32)

    def pooled() -> np.ndarray:
        encoded = {name: value.encode() if isinstance(value, str) else value for name, value in attrs.items()}
        encoded["data_format"] = b"NHWC" if len(shape) == 4 else b"NDHWC"
        return pool_kernels.max_pool(drawn(), Pooling.of(encoded, len(shape) - 2).window(shape))

    return Later(drawn), Later(pooled)


@op("MaxPool(input: T) -> output: T", T=_MAX_TYPES, **_SIZES, **_PADDING_EXPLICIT, **_LAYOUT_VECT)
class MaxPool(_Pool):
    """The maximum of each window."""

    kernel = pool_kernels.max_pool

    def gradient(self, op: Any, dy: Tensor) -> Tensor:
        return raw.MaxPoolGrad(op.inputs[0], op.outputs[0], dy, **_attrs(op))

    samples = [sample(normal(2, 5, 6, 3), **_BY_2), sample(normal(2, 5, 6, 3), **_BY_3),
               sample(normal(1, 5, 5, 2), **_EXPLICIT),
               sample(normal(2, 3, 5, 6), **_FIRST), sample(empty(0, 4, 4, 2), **_BY_2),
               sample(ints(1, 4, 4, 2), **_BY_2),
               sample(normal(2, 4, 4, 2, dtype="half"), gradient=False, **_BY_2),
               sample(normal(2, 4, 4, 2, dtype="bfloat16"), gradient=False, **_BY_2),
               sample(ints(1, 4, 4, 2, dtype="uint8"), **_BY_2),
               sample(normal(2, 5, 5, 2, dtype="float64"), **_BY_3),
               sample(normal(1, 2, 2, 6), why="over channels; TensorFlow has no gradient of that",
                      gradient=False,
                      ksize=[1, 1, 1, 3], strides=[1, 1, 1, 3], padding="VALID")]


@op("MaxPoolV2(input: T, ksize: int32, strides: int32) -> output: T", T=_MAX_TYPES, **_PADDING,
    **_LAYOUT_VECT)
class MaxPoolV2(_Pool):
    """The maximum of each window, whose sizes and strides are inputs."""

    kernel = pool_kernels.max_pool
    host_inputs = (1, 2)

    def gradient(self, op: Any, dy: Tensor) -> list[Tensor | None]:
        return [raw.MaxPoolGradV2(op.inputs[0], op.outputs[0], dy, *op.inputs[1:], **_attrs(op)), None, None]

    samples = [sample(normal(2, 5, 6, 3), _int32(1, 3, 2, 1), _int32(1, 2, 1, 1), padding="VALID")]


@op("MaxPoolGrad(orig_input: T, orig_output: T, grad: T) -> output: T", T=_REAL_TYPES + " = float", **_SIZES,
    **_PADDING_EXPLICIT, **_LAYOUT)
class MaxPoolGrad(_MaxGradient):
    """The gradient of MaxPool: each element of `grad` goes to its window's maximum, the first of equals."""

    kernel = pool_kernels.max_pool_gradient

    def gradient(self, op: Any, ddx: Tensor) -> list[Tensor]:
        return [*_zeros_for_recomputed(op), raw.MaxPoolGradGrad(op.inputs[0], op.inputs[1], ddx,
                                                                **_no_explicit(op))]

    samples = [sample(*_pooled_draw(2, 5, 6, 3, **_BY_2), normal(2, 3, 3, 3), gradient=False, **_BY_2),
               sample(*_pooled_draw(2, 5, 6, 3, ties=True, **_BY_3), normal(2, 2, 5, 3), gradient=False,
                      why="ties", **_BY_3),
               sample(*_pooled_draw(1, 5, 5, 2, **_EXPLICIT), normal(1, 3, 3, 2), gradient=False,
                      **_EXPLICIT)]


@op("MaxPoolGradV2(orig_input: T, orig_output: T, grad: T, ksize: int32, strides: int32) -> output: T",
    T=_REAL_TYPES + " = float", **_PADDING, **_LAYOUT)
class MaxPoolGradV2(_MaxGradient):
    """The gradient of MaxPoolV2."""

    kernel = pool_kernels.max_pool_gradient
    host_inputs = (3, 4)

    def gradient(self, op: Any, ddx: Tensor) -> list[Tensor | None]:
        second = raw.MaxPoolGradGradV2(op.inputs[0], op.inputs[1], ddx, *op.inputs[3:], **_attrs(op))
        return [*_zeros_for_recomputed(op), second, None, None]

    samples = [sample(*_pooled_draw(2, 5, 6, 3, **_BY_3), normal(2, 2, 5, 3), _int32(1, 3, 2, 1),
                      _int32(1, 2, 1, 1),
                      padding="VALID", gradient=False)]


@op("MaxPoolGradGrad(orig_input: T, orig_output: T, grad: T) -> output: T", T=_REAL_TYPES, **_SIZES,
    **_PADDING, **_LAYOUT)
class MaxPoolGradGrad(_MaxGradient):
    """The gradient of MaxPoolGrad: of each window, the element of `grad` at the input that won it."""

    kernel = pool_kernels.max_pool_gradient_gradient
    gives_input_shape = False

    def gradient(self, op: Any, ddy: Tensor) -> list[Tensor]:
        return [*_zeros_for_recomputed(op), raw.MaxPoolGrad(op.inputs[0], op.inputs[1], ddy, **_attrs(op))]

    samples = [sample(*_pooled_draw(2, 5, 6, 3, **_BY_2), normal(2, 5, 6, 3), gradient=False, **_BY_2),
               sample(*_pooled_draw(2, 5, 6, 3, **_BY_3), normal(2, 5, 6, 3), gradient=False, **_BY_3)]


@op("MaxPoolGradGradV2(orig_input: T, orig_output: T, grad: T, ksize: int32, strides: int32) -> output: T",
    T=_REAL_TYPES,
    **_PADDING, **_LAYOUT)
class MaxPoolGradGradV2(_MaxGradient):
    """The gradient of MaxPoolGradV2."""

    kernel = pool_kernels.max_pool_gradient_gradient
    gives_input_shape = False
    host_inputs = (3, 4)
    samples = [sample(*_pooled_draw(2, 5, 6, 3, **_BY_3), normal(2, 5, 6, 3), _int32(1, 3, 2, 1),
                      _int32(1, 2, 1, 1),
                      padding="VALID")]


@op("MaxPoolWithArgmax(input: T) -> output: T, argmax: Targmax", T=_REAL_TYPES, **_SIZES,
    Targmax="type in {int32,int64} = int64", **_PADDING, include_batch_in_index="bool = False")
class MaxPoolWithArgmax:
    """The maximum of each window, and its index ((batch *) row * width + column) * channels + channel."""

    def shape(self, s: ShapeContext, x: TensorShape) -> list[TensorShape]:
        made = TensorShape.of(Pooling.of(s.attrs, 2).output(x.with_rank(4).sizes))
        return [made, made]

    def compute(self, k: KernelContext, x: Any) -> tuple[Any, Any]:
        pooling = _spatial_only(k.attrs)
        return pool_kernels.max_pool_with_argmax(
            x, pooling.window(x.shape), include_batch_in_index=k.attrs["include_batch_in_index"],
            index_dtype=k.output_dtypes[1].np.type, xp=k.xp)

    def gradient(self, op: Any, dy: Tensor, _: None) -> Tensor:
        return raw.MaxPoolGradWithArgmax(op.inputs[0], dy, op.outputs[1], **_attrs(op),
                                         include_batch_in_index=op.attrs["include_batch_in_index"])

    samples = [sample(normal(2, 5, 6, 3), **_BY_2), sample(normal(2, 5, 6, 3), include_batch_in_index=True,
                                                           **_BY_3),
               sample(ints(1, 4, 4, 2), Targmax="int32", **_BY_2),
               sample(empty(0, 4, 4, 2), tensorflow=False, why="TensorFlow takes no empty batch", **_BY_2)]


def _spatial_only(attrs: dict[str, Any]) -> Pooling:
    pooling = Pooling.of(attrs, 2)
    if pooling.over_channels:
        raise ValueError("ksize and strides must be 1 in the channel dimension where argmax is wanted")
    return pooling


class _ByArgmax:
    """Base of gradients that are told which inputs won."""

    def check(self, k: KernelContext, x: Any, argmax: Any) -> None:
        expected = _spatial_only(k.attrs).output(x.shape)
        if argmax.shape != expected:
            raise ValueError(f"argmax has shape {list(argmax.shape)}, but pooling an input of shape "
                             f"{list(x.shape)} "
                             f"gives {list(expected)}")


@op("MaxPoolGradWithArgmax(input: T, grad: T, argmax: Targmax) -> output: T", T=_REAL_TYPES, Targmax=INDEX,
    **_SIZES,
    **_PADDING, include_batch_in_index="bool = False")
class MaxPoolGradWithArgmax(_ByArgmax):
    """The gradient of MaxPoolWithArgmax: each element of `grad` added at its index."""

    def shape(self, s: ShapeContext, x: TensorShape, dy: TensorShape, argmax: TensorShape) -> TensorShape:
        return x.with_rank(4)

    def compute(self, k: KernelContext, x: Any, dy: Any, argmax: Any) -> Any:
        self.check(k, x, argmax)
        if dy.shape != argmax.shape:
            raise ValueError(f"grad has shape {list(dy.shape)} and argmax {list(argmax.shape)}: they must "
                             "be the same")
        return pool_kernels.scatter_by_argmax(dy, argmax, x.shape, xp=k.xp,
                                              include_batch_in_index=k.attrs["include_batch_in_index"])

    samples = [sample(normal(2, 4, 4, 1), normal(2, 2, 2, 1), ints(2, 2, 2, 1, high=16, dtype="int64"),
                      **_BY_2),
               sample(normal(2, 4, 4, 1), normal(2, 2, 2, 1), ints(2, 2, 2, 1, high=32, dtype="int64"),
                      include_batch_in_index=True, **_BY_2)]


@op("MaxPoolGradGradWithArgmax(input: T, grad: T, argmax: Targmax) -> output: T", T=_REAL_TYPES,
    Targmax=INDEX, **_SIZES,
    **_PADDING, include_batch_in_index="bool = False")
class MaxPoolGradGradWithArgmax(_ByArgmax):
    """The gradient of MaxPoolGradWithArgmax: the element of `grad` at each index."""

    def shape(self, s: ShapeContext, x: TensorShape, ddx: TensorShape, argmax: TensorShape) -> TensorShape:
        return TensorShape.of(Pooling.of(s.attrs, 2).output(x.with_rank(4).sizes))

    def compute(self, k: KernelContext, x: Any, ddx: Any, argmax: Any) -> Any:
        self.check(k, x, argmax)
        if ddx.shape != x.shape:
            raise ValueError(f"grad has shape {list(ddx.shape)} and the input {list(x.shape)}: they must be "
                             "the same")
        return pool_kernels.gather_by_argmax(ddx, argmax,
                                             include_batch_in_index=k.attrs["include_batch_in_index"],
                                             xp=k.xp)

    samples = [sample(normal(2, 4, 4, 1), normal(2, 4, 4, 1), ints(2, 2, 2, 1, high=16, dtype="int64"),
                      **_BY_2,
                      tensorflow=False, why="TensorFlow has this op on GPUs only")]


class _AvgGradient:
    """Base of gradients of average pooling."""

    rank = 2
    host_inputs = (0,)
    writes_out = True

    def shape(self, s: ShapeContext, orig_input_shape: TensorShape, dy: TensorShape) -> TensorShape:
        dy.with_rank(self.rank + 2)
        return s.partial(0).with_rank(self.rank + 2)

    def bind(self, k: KernelContext) -> Callable[..., Any]:
        pooling, rank, xp = Pooling.of(k.attrs, self.rank), self.rank, k.xp

        def average_gradient(orig_input_shape: Any, dy: Any, out: Any) -> Any:
            shape = tuple(orig_input_shape.tolist())
            if len(shape) != rank + 2 or min(shape) < 0:
                raise ValueError(f"orig_input_shape must be {rank + 2} sizes of {pooling.data_format}, not "
                                 f"{list(shape)}")
            return _pooled(pool_kernels.avg_pool_gradient, pooling, xp, shape, (dy,), out, shape)
        return average_gradient


@op("AvgPool(value: T) -> output: T", **_SIZES, **_PADDING, **_LAYOUT,
    T="type in {half,bfloat16,float,double}")
class AvgPool(_Pool):
    """The average of each window, over what lies inside the input."""

    kernel = pool_kernels.avg_pool

    def gradient(self, op: Any, dy: Tensor) -> Tensor:
        return raw.AvgPoolGrad(shape_of(op.inputs[0]), dy, **_attrs(op))

    samples = [sample(normal(2, 5, 6, 3), **_BY_2), sample(normal(2, 5, 6, 3), **_BY_3),
               sample(normal(2, 3, 5, 6), **_FIRST),
               sample(empty(0, 4, 4, 2), **_BY_2), sample(normal(2, 5, 5, 2, dtype="float64"), **_BY_2),
               sample(normal(2, 4, 4, 2, dtype="half"), gradient=False, **_BY_2),
               sample(normal(2, 4, 4, 2, dtype="bfloat16"), gradient=False, rtol=2e-2, **_BY_2)]


@op("AvgPoolGrad(orig_input_shape: int32, grad: T) -> output: T", **_SIZES, **_PADDING, **_LAYOUT,
    T="type in {half,bfloat16,float,double}")
class AvgPoolGrad(_AvgGradient):
    """The gradient of AvgPool: each element of `grad` in equal parts to the inputs of its window."""

    def gradient(self, op: Any, ddx: Tensor) -> list[Tensor | None]:
        return [None, raw.AvgPool(ddx, **_attrs(op))]

    samples = [sample(_int32(2, 5, 6, 3), normal(2, 3, 3, 3), **_BY_2),
               sample(_int32(2, 5, 6, 3), normal(2, 2, 5, 3), **_BY_3)]


@op("MaxPool3D(input: T) -> output: T", T=_FLOATS_3D, **_SIZES_3D, **_PADDING, **_LAYOUT_3D)
class MaxPool3D(_Pool):
    """The maximum of each window over three spatial dimensions."""

    rank = 3
    kernel = pool_kernels.max_pool

    def gradient(self, op: Any, dy: Tensor) -> Tensor:
        return raw.MaxPool3DGrad(op.inputs[0], op.outputs[0], dy, **_attrs(op))

    samples = [sample(normal(2, 4, 3, 5, 2), **_3D), sample(normal(1, 3, 4, 4, 2), **_3D_VALID)]


@op("MaxPool3DGrad(orig_input: TInput, orig_output: TInput, grad: T) -> output: T", T=_FLOATS_3D + " = float",
    TInput=_FLOATS_3D + " = float", **_SIZES_3D, **_PADDING, **_LAYOUT_3D)
class MaxPool3DGrad(_MaxGradient):
    """The gradient of MaxPool3D."""

    rank = 3
    kernel = pool_kernels.max_pool_gradient

    def gradient(self, op: Any, ddx: Tensor) -> list[Tensor]:
        return [*_zeros_for_recomputed(op), raw.MaxPool3DGradGrad(op.inputs[0], op.inputs[1], ddx,
                                                                  **_attrs(op))]

    samples = [sample(*_pooled_draw(2, 4, 3, 5, 2, **_3D), normal(2, 2, 3, 3, 2), gradient=False, **_3D)]


@op("MaxPool3DGradGrad(orig_input: T, orig_output: T, grad: T) -> output: T", T=_REAL_TYPES, **_SIZES_3D,
    **_PADDING,
    **_LAYOUT_3D)
class MaxPool3DGradGrad(_MaxGradient):
    """The gradient of MaxPool3DGrad."""

    rank = 3
    kernel = pool_kernels.max_pool_gradient_gradient
    gives_input_shape = False

    def gradient(self, op: Any, ddy: Tensor) -> list[Tensor]:
        return [*_zeros_for_recomputed(op), raw.MaxPool3DGrad(op.inputs[0], op.inputs[1], ddy, **_attrs(op))]

    samples = [sample(*_pooled_draw(2, 4, 3, 5, 2, **_3D), normal(2, 4, 3, 5, 2), gradient=False, **_3D)]


@op("AvgPool3D(input: T) -> output: T", **_SIZES_3D, **_PADDING, **_LAYOUT_3D,
    T="type in {half,bfloat16,float,double}")
class AvgPool3D(_Pool):
    """The average of each window over three spatial dimensions, over what lies inside the input."""

    rank = 3
    kernel = pool_kernels.avg_pool

    def gradient(self, op: Any, dy: Tensor) -> Tensor:
        return raw.AvgPool3DGrad(shape_of(op.inputs[0]), dy, **_attrs(op))

    samples = [sample(normal(2, 4, 3, 5, 2), **_3D), sample(normal(1, 3, 4, 4, 2), **_3D_VALID)]


@op("AvgPool3DGrad(orig_input_shape: int32, grad: T) -> output: T", **_SIZES_3D, **_PADDING, **_LAYOUT_3D,
    T="type in {half,bfloat16,float,double}")
class AvgPool3DGrad(_AvgGradient):
    """The gradient of AvgPool3D."""

    rank = 3

    def gradient(self, op: Any, ddx: Tensor) -> list[Tensor | None]:
        return [None, raw.AvgPool3D(ddx, **_attrs(op))]

    samples = [sample(_int32(2, 4, 3, 5, 2), normal(2, 2, 3, 3, 2), **_3D)]
