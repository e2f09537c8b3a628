"""Sums of several tensors, and running sums and products along an axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from graphrt.core import raw
from graphrt.core.dtypes import NUMBERS, bfloat16, half
from graphrt.core.registry import KernelContext, ShapeContext, op
from graphrt.core.samples import empty, ints, normal, sample
from graphrt.core.shapes import TensorShape
from graphrt.core.tensor import Tensor
from graphrt.ops.positions import one_axis
from graphrt.ops.summation import store


@op(
    "AddN(inputs: N*T) -> sum: T",
    N="int >= 1",
    T="type in {float,double,int32,uint8,int16,int8,complex64,int64,qint8,quint8,"
    "qint32,bfloat16,qint16,quint16,uint16,complex128,half,uint32,uint64,variant}",
)
class AddN:
    """The sum of tensors of one shape."""

    overwrites = (0, 1)
    writes_out = True

    def shape(self, s: ShapeContext, inputs: list[TensorShape]) -> TensorShape:
        made = inputs[0]
        for i, other in enumerate(inputs[1:], 1):
            try:
                made = made.merge_with(other)
            except ValueError:
                raise ValueError(
                    f"its inputs must have one shape: 0 is {inputs[0]}, {i} is {other}"
                ) from None
        return made

    def compute(self, k: KernelContext, *values: Any) -> Any:
        *inputs, out = values
        first = inputs[0]
        for i, x in enumerate(inputs):
            if x.shape != first.shape:
                raise ValueError(
                    f"Inputs to operation {k.name} of type AddN must have the same size and shape. Input 0: "
                    f"{list(first.shape)} != input {i}: {list(x.shape)}"
                )
        add = k.xp.add
        if len(inputs) == 1:
            return first.copy() if out is None else store(first, out)
        made = add(first, inputs[1], out)
        for x in inputs[2:]:
            made = add(made, x, made if made.ndim else None)
        return made if out is None else made if made is out else store(made, out)

    def gradient(self, op: Any, dy: Tensor) -> list[Tensor]:
        return [dy] * len(op.inputs)

    samples = [
        sample([normal(3, 4), normal(3, 4), normal(3, 4)]),
        sample([normal(2)]),
        sample([normal(), normal()]),
        sample([ints(3), ints(3)]),
        sample([empty(0, 2), empty(0, 2)]),
    ]


@op("AccumulateNV2(inputs: N*T) -> sum: T", N="int >= 1", T=NUMBERS, shape="shape")
class AccumulateNV2(type(AddN.impl)):  # type: ignore[misc]
    """The sum of tensors of one shape, which the attr `shape` gives."""

    def shape(self, s: ShapeContext, inputs: list[TensorShape]) -> TensorShape:
        made = s.attrs["shape"]
        for other in inputs:
            made = made.merge_with(other)
        return made

    samples = [
        sample(
            [normal(3, 4), normal(3, 4), normal(3, 4)],
            shape=[3, 4],
            tensorflow=False,
            why="TensorFlow rewrites it before it runs",
        ),
        sample([normal(2)], shape=[2], tensorflow=False, why="TensorFlow rewrites it before it runs"),
    ]


class _Scan:
    """Base of running sums and products: `exclusive` leaves the element itself out, `reverse` runs from the
    end."""

    ufunc = ""
    host_inputs = (1,)
    samples = [
        sample(normal(3, 4), 0),
        sample(normal(3, 4), 1, exclusive=True),
        sample(normal(3, 4), -1, reverse=True),
        sample(normal(4), 0, exclusive=True, reverse=True),
        sample(empty(0, 2), 0),
        sample(ints(3, 4), np.array(1, np.int64)),
        sample(normal(6, dtype="half"), 0, gradient=False),
        sample(normal(3, dtype="complex64"), 0),
        sample(normal(1, 3), 0, exclusive=True),
    ]

    def shape(self, s: ShapeContext, x: TensorShape, axis: TensorShape) -> TensorShape:
        axis.with_rank(0)
        named = s.value(1)
        if named is not None and x.sizes is not None:
            one_axis(named, len(x.sizes), s.op_def.name)
        return x

    def first(self, dtype: Any) -> Any:
        """What an exclusive scan begins with."""
        raise NotImplementedError

    def bind(self, k: KernelContext) -> Callable[..., Any]:
        xp, dtype, name = k.xp, k.dtype, k.type
        accumulate, exclusive, reverse = (
            getattr(xp, self.ufunc).accumulate,
            k.attrs["exclusive"],
            k.attrs["reverse"],
        )
        narrow = k.output_dtypes[0] in (half, bfloat16)
        start = self.first(k.output_dtypes[0])

        def scan(x: Any, axis: Any, out: Any = None) -> Any:
            if not x.ndim:
                raise ValueError(f"{name} runs along an axis, and a scalar has none")
            at = one_axis(axis, x.ndim, name)
            if narrow:
                x = x.astype(np.float32)
            backward = (slice(None),) * at + (slice(None, None, -1),)
            source = x[backward] if reverse else x
            made = xp.empty(x.shape, x.dtype) if narrow or out is None else out
            target = made[backward] if reverse else made
            if exclusive and x.shape[at]:
                before, after = ((slice(None),) * at + (part,) for part in (slice(None, -1), slice(1, None)))
                if x.shape[at] > 1:
                    accumulate(source[before], at, out=target[after])
                target[(slice(None),) * at + (0,)] = start
            elif x.size:
                accumulate(source, at, out=target)
            if narrow:
                made = made.astype(dtype)
                return made if out is None else store(made, out)
            return made

        return scan


@op(
    "Cumsum(x: T, axis: Tidx) -> out: T",
    exclusive="bool = False",
    reverse="bool = False",
    T=NUMBERS,
    Tidx="type in {int32,int64} = int32",
)
class Cumsum(_Scan):
    """The running sum along an axis."""

    ufunc = "add"

    def first(self, dtype: Any) -> Any:
        return 0

    def gradient(self, op: Any, dy: Tensor) -> list[Tensor | None]:
        made = raw.Cumsum(dy, op.inputs[1], exclusive=op.attrs["exclusive"], reverse=not op.attrs["reverse"])
        return [made, None]


@op(
    "Cumprod(x: T, axis: Tidx) -> out: T",
    exclusive="bool = False",
    reverse="bool = False",
    T=NUMBERS,
    Tidx="type in {int32,int64} = int32",
)
class Cumprod(_Scan):
    """The running product along an axis."""

    ufunc = "multiply"

    def first(self, dtype: Any) -> Any:
        return 1

    def gradient(self, op: Any, dy: Tensor) -> list[Tensor | None]:
        # As TensorFlow's: 0 where x is 0.
        x, axis = op.inputs
        total = raw.Cumsum(
            op.outputs[0] * dy, axis, exclusive=op.attrs["exclusive"], reverse=not op.attrs["reverse"]
        )
        return [raw.DivNoNan(total, x), None]


@op(
    "CumulativeLogsumexp(x: T, axis: Tidx) -> out: T",
    exclusive="bool = False",
    reverse="bool = False",
    T="type in {bfloat16,half,float,double}",
    Tidx="type in {int32,int64} = int32",
)
class CumulativeLogsumexp(_Scan):
    """The running log(sum(exp(x))) along an axis, without overflow."""

    ufunc = "logaddexp"

    def first(self, dtype: Any) -> Any:
        return -np.inf

    def gradient(self, op: Any, dy: Tensor) -> list[Tensor | None]:
        x, axis = op.inputs
        scan = dict(exclusive=op.attrs["exclusive"], reverse=not op.attrs["reverse"])
        lowest = np.array(dy.dtype.min, dy.dtype.np)
        positive = raw.SelectV2(raw.Greater(dy, 0), raw.Log(dy), lowest)
        negative = raw.SelectV2(raw.Less(dy, 0), raw.Log(-dy), lowest)
        up = raw.Exp(raw.CumulativeLogsumexp(positive - op.outputs[0], axis, **scan) + x)
        down = raw.Exp(raw.CumulativeLogsumexp(negative - op.outputs[0], axis, **scan) + x)
        return [up - down, None]

    samples = [
        sample(normal(3, 4), 0),
        sample(normal(3, 4), 1, exclusive=True, gradient=False),
        sample(normal(3, 4), -1, reverse=True),
        sample(normal(4) * 100, 0, why="large values do not overflow", gradient=False),
        sample(empty(0, 2), 0),
    ]
