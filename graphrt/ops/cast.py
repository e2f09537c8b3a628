"""Cast and Bitcast: other element types, by value and by bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from graphrt.core import raw
from graphrt.core.dtypes import COMPLEX, FLOATS, INTEGERS, QUANTIZED
from graphrt.core.registry import KernelContext, ShapeContext, op
from graphrt.core.samples import bools, empty, ints, normal, sample
from graphrt.core.shapes import TensorShape
from graphrt.core.tensor import Tensor


@op("Cast(x: SrcT) -> y: DstT", SrcT="type", DstT="type", Truncate="bool = False")
class Cast:
    """x in another element type: floats are truncated to integers, complex numbers lose the imaginary part,
    True is 1."""

    aliases = (0,)
    elementwise = True
    writes_out = True

    def shape(self, s: ShapeContext, x: TensorShape) -> TensorShape:
        return x

    def bind(self, k: KernelContext) -> Callable[..., Any]:
        source, target = k.input_dtypes[0], k.output_dtypes[0]
        if source.is_object or target.is_object:
            raise ValueError(
                f"Cast does not convert {source.name} to {target.name}: text becomes numbers by "
                "tf.string_to_number, numbers become text by tf.as_string"
            )
        if source.base_dtype is target.base_dtype:
            return _same
        dtype, copy = target.np, k.xp.copyto

        if source.is_complex and not target.is_complex and not target.is_bool:

            def convert(x: Any, out: Any = None) -> Any:
                return cast(x.real, out)
        else:
            convert = None  # type: ignore[assignment]

        def cast(x: Any, out: Any = None) -> Any:
            if out is None:
                return x.astype(dtype)
            copy(out, x, casting="unsafe")
            return out

        if source.is_floating and target.is_integer:

            def truncated(x: Any, out: Any = None) -> Any:
                # Values outside the target's range are the machine's business, as in TensorFlow.
                with np.errstate(invalid="ignore"):
                    return cast(x, out)

            return truncated
        return convert or cast

    def gradient(self, op: Any, dy: Tensor) -> Any:
        source, target = op.inputs[0].dtype.base_dtype, dy.dtype.base_dtype
        differentiable = (*FLOATS, *COMPLEX)
        if source not in differentiable or target not in differentiable:
            return None
        return raw.Cast(dy, DstT=source)

    samples = [
        sample(normal(3, 4), DstT="float64"),
        sample(normal(3) * 5, DstT="int32"),
        sample(bools(4), DstT="float32"),
        sample(normal(5), DstT="bool"),
        sample(ints(2, 3, low=-300, high=300), DstT="uint8"),
        sample(normal(3, dtype="complex64"), DstT="float32"),
        sample(normal(3), DstT="complex64"),
        sample(normal(3), DstT="bfloat16", numeric=False),
        sample(normal(3), DstT="half", numeric=False, why="steps of a narrow dtype"),
        sample(ints(3), DstT="int32"),
        sample(empty(0, 2), DstT="int64"),
        sample(normal(), DstT="float64"),
        sample(normal(3, dtype="bfloat16") * 5, DstT="int32"),
        sample(np.array([np.nan, 0.0, -0.0]), DstT="bool", why="nan is True"),
    ]


def _same(x: Any, out: Any = None) -> Any:
    if out is None:
        return x
    out[...] = x
    return out


_BITS = (*FLOATS, *INTEGERS, *COMPLEX, *QUANTIZED)


@op("Bitcast(input: T) -> output: type", T=_BITS, type=_BITS)
class Bitcast:
    """The bits of input read as another type: a smaller one adds a last dimension, a larger one takes it."""

    aliases = (0,)

    def shape(self, s: ShapeContext, input: TensorShape) -> TensorShape:
        source, target = s.attrs["T"].size, s.attrs["type"].size
        if input.sizes is None or source == target:
            return input
        if source > target:
            return input.concatenate((source // target,))
        ratio = target // source
        if not input.sizes or input.sizes[-1] not in (ratio, None):
            raise ValueError(
                f"the last dimension of {input} must be {ratio}, to make one {s.attrs['type'].name} of "
                "that many "
                f"{s.attrs['T'].name}"
            )
        return TensorShape.of(input.sizes[:-1])

    def bind(self, k: KernelContext) -> Callable[..., Any]:
        source, target, dtype = k.input_dtypes[0].size, k.output_dtypes[0].size, k.dtype

        def bitcast(input: Any) -> Any:
            if source == target:
                return input.view(dtype)
            if source > target:
                return k.xp.ascontiguousarray(input).reshape(*input.shape, 1).view(dtype)
            if input.shape[-1:] != (target // source,):
                raise ValueError(
                    f"Cannot bitcast from {k.input_dtypes[0].name} to {k.output_dtypes[0].name}: the last "
                    "dimension of "
                    f"{list(input.shape)} must be {target // source}"
                )
            return k.xp.ascontiguousarray(input).view(dtype).reshape(input.shape[:-1])

        return bitcast

    samples = [
        sample(normal(3, 4), type="int32"),
        sample(ints(2, 4, dtype="uint8"), type="int32"),
        sample(normal(3), type="uint8"),
        sample(normal(), type="int32"),
        sample(normal(2, 2), type="complex64"),
        sample(normal(3, dtype="float64"), type="float32"),
        sample(normal(4, dtype="bfloat16"), type="int16"),
    ]
