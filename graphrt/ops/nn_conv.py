"""Convolutions: Conv2D, Conv3D, DepthwiseConv2dNative, and the gradients of each by input and by filter.

The three families have one form: `_Forward`, `_ByInput` and `_ByFilter` hold it, a `Family` names its ops and
kernels. The gradient of a gradient is in the same family, because a convolution is linear in both operands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphrt.core import conv_kernels, raw
from graphrt.core.dtypes import FLOATS, float32, float64, half, int32
from graphrt.core.registry import KernelContext, ShapeContext, op
from graphrt.core.samples import empty, ints, normal, sample
from graphrt.core.shapes import TensorShape
from graphrt.core.tensor import Tensor
from graphrt.core.windows import Ints, Window, channels_first, joined, spatial, window
from graphrt.ops.broadcasting import shape_of

_SHARED_ATTRS = ("strides", "padding", "explicit_paddings", "data_format", "dilations", "use_cudnn_on_gpu")


@dataclass(frozen=True)
class Sliding:
    """The attrs of a convolution or pooling that say how its window moves, without the sizes."""

    data_format: str
    strides: Ints
    dilations: Ints
    padding: str
    explicit: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, attrs: dict[str, Any], rank: int) -> Sliding:
        """Read the attrs of a node over `rank` spatial dimensions.

        Raises:
          ValueError: an attr has another number of entries, or moves in the batch or channel dimension.
        """
        data_format = attrs.get("data_format", b"NHWC" if rank == 2 else b"NDHWC").decode()
        padding = attrs["padding"].decode()
        pairs = ((0, 0),) * (rank + 2)
        if padding == "EXPLICIT":
            given = attrs["explicit_paddings"]
            if len(given) != 2 * (rank + 2):
                raise ValueError(f"explicit_paddings must have {2 * (rank + 2)} entries, two for each "
                                 "dimension of "
                                 f"{data_format}, not {len(given)}")
            pairs = tuple(zip(given[::2], given[1::2]))
        elif attrs.get("explicit_paddings"):
            raise ValueError(f"explicit_paddings go with padding 'EXPLICIT', not '{padding}'")
        strides = _one_each("strides", attrs["strides"], data_format)
        dilations = _one_each("dilations", attrs.get("dilations", [1] * (rank + 2)), data_format)
        outside = [pair for pair in (pairs[0], pairs[1 if channels_first(data_format) else -1]) if any(pair)]
        if outside:
            raise ValueError("explicit_paddings of the batch and channel dimensions must be 0")
        return cls(data_format, spatial(strides, data_format), spatial(dilations, data_format), padding,
                   spatial(pairs, data_format))

    @property
    def channels_first(self) -> bool:
        return channels_first(self.data_format)

    def window(self, x_shape: Sequence[int], kernel: Sequence[int]) -> Window:
        """The window over an activation of shape `x_shape`. Raises ValueError where it does not fit."""
        return window(tuple(spatial(x_shape, self.data_format)), tuple(kernel), self.strides, self.padding,
                      self.dilations,
                      self.explicit)

    def output(self, sizes: Sequence[int | None], kernel: Sequence[int | None]) -> tuple[int | None, ...]:
        """The spatial output sizes for spatial input sizes, as far as they are known."""
        made: list[int | None] = []
        for size, k, stride, dilation, pads in zip(sizes, kernel, self.strides, self.dilations,
                                                   self.explicit):
            if size is None or (k is None and self.padding != "SAME"):
                made.append(None)
            else:
                made += window((size,), (k or 1,), (stride,), self.padding, (dilation,), (pads,)).output
        return tuple(made)


def _one_each(what: str, values: Sequence[int], data_format: str) -> Sequence[int]:
    if len(values) != len(data_format):
        raise ValueError(f"{what} must have {len(data_format)} entries, one for each of {data_format}, not "
                         f"{len(values)}")
    if values[0] != 1 or values[1 if channels_first(data_format) else -1] != 1:
        raise ValueError(f"{what} must be 1 in the batch and channel dimensions of {data_format}, not "
                         f"{list(values)}")
    return values


@dataclass(frozen=True)
class Family:
    """The ops of one kind of convolution, by name, and its kernels."""

    rank: int
    forward: str
    by_input: str
    by_filter: str
    kernels: tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]
    depthwise: bool = False

    def check(self, channels: int | None, w: Sequence[int | None]) -> None:
        """Raises ValueError where an input of `channels` does not go with a filter of shape `w`."""
        inner, outer = w[-2:]
        if channels is None or inner is None:
            return
        if self.depthwise or inner == 0:
            if channels != inner:
                raise ValueError(f"the input has {channels} channels, the filter {list(w)} is for {inner}")
        elif channels % inner:
            raise ValueError(f"the input's {channels} channels are not a multiple of the filter's {inner} "
                             f"(shape {list(w)})")
        elif outer is not None and outer % (channels // inner or 1):
            raise ValueError(f"{channels} channels in groups of {inner} are {channels // inner} groups, and "
                             "the filter's "
                             f"{outer} outputs cannot be shared out to them")

    def outputs(self, w: Sequence[int | None]) -> int | None:
        inner, outer = w[-2:]
        if not self.depthwise:
            return outer
        return None if inner is None or outer is None else inner * outer


_CONV = (conv_kernels.conv, conv_kernels.conv_input_gradient, conv_kernels.conv_filter_gradient)
_DEPTHWISE = (conv_kernels.depthwise_conv, conv_kernels.depthwise_conv_input_gradient,
              conv_kernels.depthwise_conv_filter_gradient)
_TWO = Family(2, "Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter", _CONV)
_THREE = Family(3, "Conv3D", "Conv3DBackpropInputV2", "Conv3DBackpropFilterV2", _CONV)
_EACH_CHANNEL = Family(2, "DepthwiseConv2dNative", "DepthwiseConv2dNativeBackpropInput",
                       "DepthwiseConv2dNativeBackpropFilter", _DEPTHWISE, depthwise=True)


class _Convolution:
    """Base of all: the family, and how its members reach each other."""

    family: Family
    writes_out = True

    def sibling(self, which: str, op: Any, *inputs: Any) -> Tensor:
        """A node of another op of the family with the attrs of `op`."""
        name = getattr(self.family, which)
        return getattr(raw, name)(*inputs, **{a: op.attrs[a] for a in _SHARED_ATTRS if a in op.attrs})

    def check_ranks(self, **arrays: Any) -> None:
        for name, array in arrays.items():
            if array.ndim != self.family.rank + 2:
                raise ValueError(f"{name} must have {self.family.rank + 2} dimensions, not shape "
                                 f"{list(array.shape)}")

    def channels(self, sliding: Sliding, shape: Sequence[Any]) -> Any:
        return shape[1 if sliding.channels_first else -1]


class _Forward(_Convolution):
    """Base of convolutions: a filter slides over the input."""

    def shape(self, s: ShapeContext, x: TensorShape, w: TensorShape) -> TensorShape:
        family = self.family
        sliding = Sliding.of(s.attrs, family.rank)
        sizes, kernel = x.with_rank(family.rank + 2).sizes, w.with_rank(family.rank + 2).sizes
        family.check(self.channels(sliding, sizes), kernel)
        output = sliding.output(spatial(sizes, sliding.data_format), kernel[:-2])
        return TensorShape.of(joined(sizes[0], output, family.outputs(kernel), sliding.data_format))

    def bind(self, k: KernelContext) -> Callable[..., Any]:
        sliding, family, xp = Sliding.of(k.attrs, self.family.rank), self.family, k.xp
        kernel, first = family.kernels[0], sliding.channels_first

        def convolve(x: Any, w: Any, out: Any) -> Any:
            self.check_ranks(input=x, filter=w)
            return kernel(x, w, sliding.window(x.shape, w.shape[:-2]), channels_first=first, out=out, xp=xp)
        return convolve

    def gradient(self, op: Any, dy: Tensor) -> list[Tensor]:
        x, w = op.inputs
        return [self.sibling("by_input", op, shape_of(x), w, dy),
                self.sibling("by_filter", op, x, shape_of(w), dy)]


class _ByInput(_Convolution):
    """Base of gradients by the input, whose sizes are given, or in an old op an array that has them."""

    host_inputs: tuple[int, ...] = (0,)
    sizes_given = True

    def shape(self, s: ShapeContext, x: TensorShape, w: TensorShape, dy: TensorShape) -> TensorShape:
        rank = self.family.rank
        sliding = Sliding.of(s.attrs, rank)
        kernel, dy_sizes = w.with_rank(rank + 2).sizes, dy.with_rank(rank + 2).sizes
        if not self.sizes_given:
            return x.with_rank(rank + 2)
        made = s.partial(0).sizes
        if made is not None and len(made) == rank and x.sizes == (rank,):
            return TensorShape.of(joined(dy_sizes[0], made, kernel[-2], sliding.data_format))
        made = TensorShape.of(made).with_rank(rank + 2).sizes
        self.family.check(self.channels(sliding, made), kernel)
        return TensorShape.of((dy_sizes[0] if made[0] is None else made[0], *made[1:]))

    def bind(self, k: KernelContext) -> Callable[..., Any]:
        family, xp, given = self.family, k.xp, self.sizes_given
        sliding = Sliding.of(k.attrs, family.rank)
        kernel, first, data_format = family.kernels[1], sliding.channels_first, sliding.data_format

        def convolve_back(x: Any, w: Any, dy: Any, out: Any) -> Any:
            self.check_ranks(filter=w, out_backprop=dy)
            shape = tuple(x.tolist()) if given else x.shape
            if given and len(shape) == family.rank:
                shape = joined(dy.shape[0], shape, w.shape[-2], data_format)
            if len(shape) != family.rank + 2 or min(shape) < 0:
                raise ValueError(f"input_sizes must be {family.rank + 2} sizes of {data_format}, not "
                                 f"{list(shape)}")
            return kernel(dy, w, sliding.window(shape, w.shape[:-2]), shape, channels_first=first, out=out,
                          xp=xp)
        return convolve_back

    def gradient(self, op: Any, dx: Tensor) -> list[Tensor | None]:
        _, w, dy = op.inputs
        return [None, self.sibling("by_filter", op, dx, shape_of(w), dy), self.sibling("forward", op, dx, w)]


class _ByFilter(_Convolution):
    """Base of gradients by the filter, whose sizes are given, or in an old op an array that has them."""

    host_inputs: tuple[int, ...] = (1,)
    sizes_given = True

    def shape(self, s: ShapeContext, x: TensorShape, w: TensorShape, dy: TensorShape) -> TensorShape:
        rank = self.family.rank
        sliding = Sliding.of(s.attrs, rank)
        sizes = x.with_rank(rank + 2).sizes
        dy.with_rank(rank + 2)
        made = (s.partial(1) if self.sizes_given else w).with_rank(rank + 2)
        self.family.check(self.channels(sliding, sizes), made.sizes)
        return made

    def bind(self, k: KernelContext) -> Callable[..., Any]:
        family, xp, given = self.family, k.xp, self.sizes_given
        sliding = Sliding.of(k.attrs, family.rank)
        kernel, first = family.kernels[2], sliding.channels_first

        def filter_gradient(x: Any, w: Any, dy: Any, out: Any) -> Any:
            self.check_ranks(input=x, out_backprop=dy)
            shape = tuple(w.tolist()) if given else w.shape
            if len(shape) != family.rank + 2 or min(shape) < 0:
                raise ValueError(f"filter_sizes must be {family.rank + 2} sizes, not {list(shape)}")
            return kernel(x, dy, sliding.window(x.shape, shape[:-2]), shape, channels_first=first, out=out,
                          xp=xp)
        return filter_gradient

    def gradient(self, op: Any, dw: Tensor) -> list[Tensor | None]:
        x, _, dy = op.inputs
        return [self.sibling("by_input", op, shape_of(x), dw, dy), None, self.sibling("forward", op, x, dw)]


_PADDING = {"padding": "string in {SAME,VALID,EXPLICIT}", "explicit_paddings": "list(int) = []"}
_LAYOUT = {"data_format": "string in {NHWC,NCHW} = 'NHWC'", "dilations": "list(int) = [1,1,1,1]"}
_ATTRS_2D = {"strides": "list(int)", "use_cudnn_on_gpu": "bool = True", **_PADDING, **_LAYOUT}
_ATTRS_DEPTHWISE = {"strides": "list(int)", **_PADDING, **_LAYOUT}
_ATTRS_3D = {"strides": "list(int) >= 5", "padding": "string in {SAME,VALID}",
             "data_format": "string in {NDHWC,NCDHW} = 'NDHWC'", "dilations": "list(int) = [1,1,1,1,1]"}
_OLD_ATTRS_3D = {name: _ATTRS_3D[name] for name in ("strides", "padding", "dilations")}

_SAME = {"strides": [1, 1, 1, 1], "padding": "SAME"}
_VALID_BY_2 = {"strides": [1, 2, 2, 1], "padding": "VALID"}
_EXPLICIT = {"strides": [1, 2, 1, 1], "padding": "EXPLICIT", "explicit_paddings": [0, 0, 1, 2, 0, 3, 0, 0]}
_FIRST = {"strides": [1, 1, 1, 2], "padding": "SAME", "data_format": "NCHW", "tensorflow": False}
_DILATED = {"strides": [1, 1, 1, 1], "padding": "SAME", "dilations": [1, 2, 1, 1]}
_NOT_IN_TENSORFLOW = "TensorFlow's CPU kernels take NHWC only, and neither groups nor dilations in gradients"
_OLD = "TensorFlow reads it in graphs older than GraphDef version 10 only"
_SAME_3D = {"strides": [1, 1, 1, 1, 1], "padding": "SAME"}
_VALID_3D = {"strides": [1, 2, 1, 2, 1], "padding": "VALID"}
_FIRST_3D = {"strides": [1, 1, 1, 1, 1], "padding": "SAME", "data_format": "NCDHW", "tensorflow": False}


def _int32(*sizes: int) -> Any:
    return np.array(sizes, np.int32)


@op("Conv2D(input: T, filter: T) -> output: T", T=(*FLOATS, int32), **_ATTRS_2D)
class Conv2D(_Forward):
    """Cross-correlation over two spatial dimensions; filter: [height, width, channels / groups, outputs]."""

    family = _TWO
    samples = [sample(normal(2, 5, 6, 3), normal(3, 2, 3, 4), **_SAME),
               sample(normal(2, 5, 6, 3), normal(2, 3, 3, 4), **_VALID_BY_2),
               sample(normal(2, 6, 6, 2), normal(3, 3, 2, 3), **_EXPLICIT),
               sample(normal(1, 5, 5, 2), normal(1, 1, 2, 3), **_SAME),
               sample(normal(1, 6, 5, 2), normal(3, 2, 2, 3), gradient=False, **_DILATED),
               sample(normal(1, 5, 5, 4), normal(2, 2, 2, 6), why="two groups", gradient=False, **_SAME),
               sample(normal(1, 2, 2, 2), normal(5, 3, 2, 3), why="kernel larger than input", **_SAME),
               sample(empty(0, 5, 5, 2), normal(3, 3, 2, 3), **_SAME),
               sample(normal(2, 3, 5, 6), normal(3, 2, 3, 4), why=_NOT_IN_TENSORFLOW, **_FIRST),
               sample(ints(1, 4, 4, 2), ints(2, 2, 2, 3), **_SAME),
               sample(normal(2, 5, 6, 3, dtype="float64"), normal(3, 2, 3, 4, dtype="float64"), **_SAME),
               sample(normal(1, 4, 4, 2, dtype="half"), normal(2, 2, 2, 3, dtype="half"), gradient=False,
                      **_SAME),
               sample(normal(1, 4, 4, 2, dtype="bfloat16"), normal(2, 2, 2, 3, dtype="bfloat16"),
                      gradient=False, rtol=2e-2, **_SAME)]


@op("Conv2DBackpropInput(input_sizes: int32, filter: T, out_backprop: T) -> output: T", T=(*FLOATS, int32),
    **_ATTRS_2D)
class Conv2DBackpropInput(_ByInput):
    """The gradient of Conv2D by its input; also a transposed convolution."""

    family = _TWO
    samples = [sample(_int32(2, 5, 6, 3), normal(3, 2, 3, 4), normal(2, 5, 6, 4), **_SAME),
               sample(_int32(2, 5, 6, 3), normal(2, 3, 3, 4), normal(2, 2, 2, 4), **_VALID_BY_2),
               sample(_int32(2, 6, 6, 2), normal(3, 3, 2, 3), normal(2, 4, 7, 3), **_EXPLICIT),
               sample(_int32(5, 6), normal(3, 2, 3, 4), normal(2, 5, 6, 4), why="spatial sizes alone",
                      gradient=False, **_SAME),
               sample(_int32(1, 4, 5, 6), normal(3, 2, 4, 3), normal(1, 3, 5, 3), why=_NOT_IN_TENSORFLOW,
                      **_FIRST)]


@op("Conv2DBackpropFilter(input: T, filter_sizes: int32, out_backprop: T) -> output: T", T=FLOATS,
    **_ATTRS_2D)
class Conv2DBackpropFilter(_ByFilter):
    """The gradient of Conv2D by its filter."""

    family = _TWO
    samples = [sample(normal(2, 5, 6, 3), _int32(3, 2, 3, 4), normal(2, 5, 6, 4), **_SAME),
               sample(normal(2, 5, 6, 3), _int32(2, 3, 3, 4), normal(2, 2, 2, 4), **_VALID_BY_2),
               sample(normal(2, 6, 6, 2), _int32(3, 3, 2, 3), normal(2, 4, 7, 3), **_EXPLICIT),
               sample(normal(2, 3, 5, 6), _int32(3, 2, 3, 4), normal(2, 4, 5, 3), why=_NOT_IN_TENSORFLOW,
                      **_FIRST)]


@op("Conv3D(input: T, filter: T) -> output: T", T=FLOATS, **_ATTRS_3D)
class Conv3D(_Forward):
    """Convolution over three spatial dimensions; filter: [depth, height, width, channels, outputs]."""

    family = _THREE
    samples = [sample(normal(2, 4, 3, 5, 2), normal(2, 2, 3, 2, 3), **_SAME_3D),
               sample(normal(1, 5, 4, 5, 2), normal(3, 2, 2, 2, 3), **_VALID_3D),
               sample(empty(0, 3, 3, 3, 2), normal(2, 2, 2, 2, 3), **_SAME_3D),
               sample(normal(2, 4, 3, 5, 2, dtype="float64"), normal(2, 2, 3, 2, 3, dtype="float64"),
                      **_SAME_3D),
               sample(normal(1, 2, 4, 3, 4), normal(2, 2, 2, 2, 3), why=_NOT_IN_TENSORFLOW, **_FIRST_3D)]


@op("Conv3DBackpropInputV2(input_sizes: Tshape, filter: T, out_backprop: T) -> output: T", T=FLOATS,
    **_ATTRS_3D,
    Tshape="type in {int32,int64} = int32")
class Conv3DBackpropInputV2(_ByInput):
    """The gradient of Conv3D by its input."""

    family = _THREE
    samples = [sample(_int32(2, 4, 3, 5, 2), normal(2, 2, 3, 2, 3), normal(2, 4, 3, 5, 3), **_SAME_3D),
               sample(_int32(1, 5, 4, 5, 2), normal(3, 2, 2, 2, 3), normal(1, 2, 3, 2, 3), **_VALID_3D)]


@op("Conv3DBackpropFilterV2(input: T, filter_sizes: int32, out_backprop: T) -> output: T", T=FLOATS,
    **_ATTRS_3D)
class Conv3DBackpropFilterV2(_ByFilter):
    """The gradient of Conv3D by its filter."""

    family = _THREE
    samples = [sample(normal(2, 4, 3, 5, 2), _int32(2, 2, 3, 2, 3), normal(2, 4, 3, 5, 3), **_SAME_3D),
               sample(normal(1, 5, 4, 5, 2), _int32(3, 2, 2, 2, 3), normal(1, 2, 3, 2, 3), **_VALID_3D)]


@op("Conv3DBackpropInput(input: T, filter: T, out_backprop: T) -> output: T", T=(half, float32, float64),
    **_OLD_ATTRS_3D)
class Conv3DBackpropInput(_ByInput):
    """The gradient of Conv3D by its input, of which only the shape counts."""

    family, host_inputs, sizes_given, gradient = _THREE, (), False, None
    samples = [sample(normal(2, 4, 3, 5, 2), normal(2, 2, 3, 2, 3), normal(2, 4, 3, 5, 3), tensorflow=False,
                      why=_OLD, **_SAME_3D)]


@op("Conv3DBackpropFilter(input: T, filter: T, out_backprop: T) -> output: T", T=(half, float32, float64),
    **_OLD_ATTRS_3D)
class Conv3DBackpropFilter(_ByFilter):
    """The gradient of Conv3D by its filter, of which only the shape counts."""

    family, host_inputs, sizes_given, gradient = _THREE, (), False, None
    samples = [sample(normal(2, 4, 3, 5, 2), normal(2, 2, 3, 2, 3), normal(2, 4, 3, 5, 3), tensorflow=False,
                      why=_OLD, **_SAME_3D)]


@op("DepthwiseConv2dNative(input: T, filter: T) -> output: T", T=FLOATS, **_ATTRS_DEPTHWISE)
class DepthwiseConv2dNative(_Forward):
    """Each channel convolved with filters of its own; filter: [height, width, channels, multiplier]."""

    family = _EACH_CHANNEL
    samples = [sample(normal(2, 5, 6, 3), normal(3, 2, 3, 2), **_SAME),
               sample(normal(2, 5, 6, 3), normal(2, 3, 3, 1), **_VALID_BY_2),
               sample(normal(2, 5, 6, 3, dtype="float64"), normal(3, 2, 3, 2, dtype="float64"), **_SAME),
               sample(empty(0, 5, 5, 2), normal(3, 3, 2, 1), gradient=False,
                      why="TensorFlow's filter gradient is not set", **_SAME),
               sample(normal(2, 3, 5, 6), normal(3, 2, 3, 2), why=_NOT_IN_TENSORFLOW, **_FIRST)]


@op("DepthwiseConv2dNativeBackpropInput(input_sizes: int32, filter: T, out_backprop: T) -> output: T",
    T=FLOATS,
    **_ATTRS_DEPTHWISE)
class DepthwiseConv2dNativeBackpropInput(_ByInput):
    """The gradient of DepthwiseConv2dNative by its input."""

    family = _EACH_CHANNEL
    samples = [sample(_int32(2, 5, 6, 3), normal(3, 2, 3, 2), normal(2, 5, 6, 6), **_SAME),
               sample(_int32(2, 5, 6, 3), normal(2, 3, 3, 1), normal(2, 2, 2, 3), **_VALID_BY_2)]


@op("DepthwiseConv2dNativeBackpropFilter(input: T, filter_sizes: int32, out_backprop: T) -> output: T",
    T=FLOATS,
    **_ATTRS_DEPTHWISE)
class DepthwiseConv2dNativeBackpropFilter(_ByFilter):
    """The gradient of DepthwiseConv2dNative by its filter."""

    family = _EACH_CHANNEL
    samples = [sample(normal(2, 5, 6, 3), _int32(3, 2, 3, 2), normal(2, 5, 6, 6), **_SAME),
               sample(normal(2, 5, 6, 3), _int32(2, 3, 3, 1), normal(2, 2, 2, 3), **_VALID_BY_2)]
