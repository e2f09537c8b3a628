"""Identities, shapes and the ops that change a shape and no element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from graphrt.core import raw
from graphrt.core.dtypes import COMPLEX, FLOATS, INTEGERS, bool_
from graphrt.core.errors import InvalidArgumentError
from graphrt.core.registry import ALL, KernelContext, ShapeContext, op
from graphrt.core.samples import bools, empty, ints, normal, program, sample, text
from graphrt.core.shapes import SCALAR, UNKNOWN, TensorShape, unknown
from graphrt.core.tensor import Tensor
from graphrt.ops.array_nodes import dense, int_constant, reshape_like

INDEX_OR_INT32 = "type in {int32,int64} = int32"


@op("NoOp()")
class NoOp:
    """Nothing; control edges meet in it."""

    def compute(self, k: KernelContext) -> tuple[()]:
        return ()

    samples = [program(lambda tf: [tf.no_op(), tf.group(tf.no_op(), tf.constant(1.0).op)])]


@op("Identity(input: T) -> output: T")
class Identity:
    """`input`. Of a ref variable: its memory, read when a consumer runs."""

    aliases = (0,)

    def shape(self, s: ShapeContext, input: TensorShape) -> TensorShape:
        return input

    def compute(self, k: KernelContext, input: Any) -> Any:
        return input

    def gradient(self, op: Any, dy: Tensor) -> Tensor:
        return dy

    samples = [
        sample(normal(2, 3)),
        sample(text("a", "")),
        sample(empty(0, 3)),
        sample(ints()),
        sample(bools(3)),
    ]


@op("IdentityN(input: list(T)) -> output: list(T)", T="list(type) >= 1")
class IdentityN:
    """Each of `input`."""

    # Outputs from here on are copies: `aliases` names each input that may be passed on.
    _PASSED_ON = 256
    aliases = tuple(range(_PASSED_ON))

    def shape(self, s: ShapeContext, input: list[TensorShape]) -> list[TensorShape]:
        return input

    def compute(self, k: KernelContext, *inputs: Any) -> tuple[Any, ...]:
        n = self._PASSED_ON
        return inputs if len(inputs) <= n else (*inputs[:n], *[i.copy() for i in inputs[n:]])

    def gradient(self, op: Any, *grads: Tensor) -> list[Tensor]:
        return list(grads)

    samples = [sample([normal(2, 3), ints(2)]), sample([normal()])]


@op("Snapshot(input: T) -> output: T")
class Snapshot:
    """A copy of `input`."""

    def shape(self, s: ShapeContext, input: TensorShape) -> TensorShape:
        return input

    def compute(self, k: KernelContext, input: Any) -> Any:
        return k.xp.array(input, copy=True)

    samples = [sample(normal(2, 3)), sample(empty(0))]


@op("GuaranteeConst(input: T) -> output: T")
class GuaranteeConst:
    """`input`, which the program says never changes between steps."""

    stateful = True
    aliases = (0,)

    def shape(self, s: ShapeContext, input: TensorShape) -> TensorShape:
        return input

    def compute(self, k: KernelContext, input: Any) -> Any:
        return input

    samples = [sample(normal(2, 3), gradient=False, why="it has no gradient"), sample(ints(2))]


@op("StopGradient(input: T) -> output: T")
class StopGradient:
    """`input`; gradients end here."""

    not_differentiable = True
    aliases = (0,)

    def shape(self, s: ShapeContext, input: TensorShape) -> TensorShape:
        return input

    def compute(self, k: KernelContext, input: Any) -> Any:
        return input

    samples = [sample(normal(2, 3), gradient=False, why="its gradient is none on purpose"), sample(ints(2))]


@op("PreventGradient(input: T) -> output: T", message="string = ''")
class PreventGradient:
    """`input`; asking for a gradient through it is an error with `message`."""

    aliases = (0,)

    def shape(self, s: ShapeContext, input: TensorShape) -> TensorShape:
        return input

    def compute(self, k: KernelContext, input: Any) -> Any:
        return input

    def gradient(self, op: Any, dy: Tensor) -> None:
        raise LookupError(
            f"Gradient explicitly disabled at '{op.name}'. Reason: {op.attrs['message'].decode()}"
        )

    samples = [sample(normal(2), gradient=False, why="its gradient is an error on purpose", message="no")]


@op("EnsureShape(input: T) -> output: T", shape="shape")
class EnsureShape:
    """`input`; an error in a step where its shape is not `shape`."""

    aliases = (0,)

    def shape(self, s: ShapeContext, input: TensorShape) -> TensorShape:
        return input.merge_with(s.attrs["shape"])

    def bind(self, k: KernelContext) -> Callable[..., Any]:
        wanted = k.attrs["shape"]
        sizes = wanted.sizes

        def ensure(input: Any) -> Any:
            shape = input.shape
            if sizes is not None and (
                len(shape) != len(sizes) or any(w is not None and w != d for w, d in zip(sizes, shape))
            ):
                raise InvalidArgumentError(
                    None,
                    None,
                    f"Shape of tensor {k.name} {list(shape)} is not compatible with expected shape {wanted}.",
                )
            return input

        return ensure

    def gradient(self, op: Any, dy: Tensor) -> Tensor:
        return dy

    samples = [sample(normal(2, 3), shape=[None, 3]), sample(normal(2, 3), shape=[2, 3])]


@op("CheckNumerics(tensor: T) -> output: T", T=FLOATS, message="string")
class CheckNumerics:
    """`tensor`; an error with `message` where it has NaN or infinite elements."""

    aliases = (0,)
    stateful = True

    def shape(self, s: ShapeContext, tensor: TensorShape) -> TensorShape:
        return tensor

    def compute(self, k: KernelContext, tensor: Any) -> Any:
        xp = k.xp
        if not bool(xp.isfinite(tensor).all()):
            found = " and ".join(
                what
                for what, any_ in (
                    ("Inf", bool(xp.isinf(tensor).any())),
                    ("NaN", bool(xp.isnan(tensor).any())),
                )
                if any_
            )
            raise InvalidArgumentError(
                None, None, f"{k.attrs['message'].decode()} : Tensor had {found} values"
            )
        return tensor

    def gradient(self, op: Any, dy: Tensor) -> Tensor:
        return raw.CheckNumerics(
            dy,
            message="Not a number (NaN) or infinity (Inf) values detected in gradient. "
            + op.attrs["message"].decode(),
        )

    samples = [sample(normal(2, 3), message="all well"), sample(empty(0), message="")]


@op("Shape(input: T) -> output: out_type", out_type=INDEX_OR_INT32)
class Shape:
    """The shape of `input`, a vector."""

    not_differentiable = True
    host_outputs = (0,)

    def shape(self, s: ShapeContext, input: TensorShape) -> TensorShape:
        return TensorShape.of((input.rank,))

    def bind(self, k: KernelContext) -> Callable[..., Any]:
        dtype, array = k.dtype, np.array
        return lambda input: array(input.shape, dtype)

    samples = [
        sample(normal(2, 3)),
        sample(normal(), out_type="int64"),
        sample(empty(0, 2)),
        sample(text("a")),
    ]


@op("ShapeN(input: N*T) -> output: N*out_type", out_type=INDEX_OR_INT32)
class ShapeN:
    """The shape of each of `input`."""

    not_differentiable = True
    host_outputs = ALL

    def shape(self, s: ShapeContext, input: list[TensorShape]) -> list[TensorShape]:
        return [TensorShape.of((i.rank,)) for i in input]

    def compute(self, k: KernelContext, *inputs: Any) -> tuple[Any, ...]:
        return tuple([np.array(i.shape, k.dtype) for i in inputs])

    samples = [sample([normal(2, 3), normal()]), sample([normal(4)], out_type="int64")]


@op("Size(input: T) -> output: out_type", out_type=INDEX_OR_INT32)
class Size:
    """The number of elements of `input`."""

    not_differentiable = True
    host_outputs = (0,)

    def shape(self, s: ShapeContext, input: TensorShape) -> TensorShape:
        return SCALAR

    def compute(self, k: KernelContext, input: Any) -> Any:
        return np.array(input.size, k.dtype)

    samples = [sample(normal(2, 3)), sample(normal(), out_type="int64"), sample(empty(0, 2))]


@op("Rank(input: T) -> output: int32")
class Rank:
    """The number of dimensions of `input`."""

    not_differentiable = True
    host_outputs = (0,)

    def shape(self, s: ShapeContext, input: TensorShape) -> TensorShape:
        return SCALAR

    def compute(self, k: KernelContext, input: Any) -> Any:
        return np.array(input.ndim, np.int32)

    samples = [sample(normal(2, 3)), sample(normal())]


@op("Reshape(tensor: T, shape: Tshape) -> output: T", Tshape=INDEX_OR_INT32)
class Reshape:
    """The elements of `tensor` in another shape; one size may be -1: what is left."""

    aliases = (0,)
    host_inputs = (1,)

    def shape(self, s: ShapeContext, tensor: TensorShape, shape: TensorShape) -> TensorShape:
        wanted = s.partial(1)
        if wanted.sizes is None:
            return UNKNOWN
        have, known, open_ = tensor.num_elements(), 1, wanted.sizes.count(None)
        for d in wanted.sizes:
            known *= 1 if d is None else d
        if have is None or open_ > 1:
            return wanted
        if open_ == 0:
            if have != known:
                raise ValueError(f"cannot reshape {tensor}, {have} elements, to {wanted}, {known} elements")
            return wanted
        if known == 0:
            return wanted
        if have % known:
            raise ValueError(
                f"cannot reshape {tensor}, {have} elements, to {wanted}: {have} is not a multiple of {known}"
            )
        return TensorShape.of(tuple([have // known if d is None else d for d in wanted.sizes]))

    def compute(self, k: KernelContext, tensor: Any, shape: Any) -> Any:
        try:
            return tensor.reshape(shape.tolist())
        except ValueError:
            raise ValueError(_why_not(tensor, shape)) from None

    def gradient(self, op: Any, dy: Tensor) -> list[Any]:
        x = op.inputs[0]
        sizes = x.shape.sizes
        if sizes is not None and sizes.count(None) == 1 and 0 not in sizes:
            return [raw.Reshape(dense(dy), [-1 if d is None else d for d in sizes]), None]
        return [reshape_like(dy, x), None]

    samples = [
        sample(normal(2, 6), [3, 4]),
        sample(normal(2, 6), [-1]),
        sample(normal(2, 6), np.array([4, -1])),
        sample(empty(0, 3), [3, 0]),
        sample(normal(), [1, 1]),
        sample(normal(1), np.array([], np.int32)),
        sample(text("a", "b"), [2, 1]),
    ]


def _why_not(tensor: Any, shape: Any) -> str:
    sizes = shape.tolist()
    what = f"cannot reshape {list(tensor.shape)}, {tensor.size} elements, to {sizes}"
    if shape.ndim != 1:
        return f"sizes must be a vector, not of shape {list(shape.shape)}"
    if sizes.count(-1) > 1 or any(d < -1 for d in sizes):
        return f"{what}: sizes are 0 or more, and one of them may be -1"
    if -1 in sizes and 0 in sizes:
        return f"{what}: the -1 cannot be inferred beside a 0"
    return f"{what}: the number of elements must stay the same"


@op("ExpandDims(input: T, dim: Tdim) -> output: T", Tdim=INDEX_OR_INT32)
class ExpandDims:
    """`input` with a dimension of size 1 put in at `dim`."""

    aliases = (0,)
    host_inputs = (1,)

    def shape(self, s: ShapeContext, input: TensorShape, dim: TensorShape) -> TensorShape:
        if input.sizes is None:
            return UNKNOWN
        value = s.value(1)
        if value is None:
            return unknown(len(input.sizes) + 1)
        at = _inserted_axis(int(value.reshape(())), len(input.sizes))
        return TensorShape.of((*input.sizes[:at], 1, *input.sizes[at:]))

    def compute(self, k: KernelContext, input: Any, dim: Any) -> Any:
        shape = input.shape
        at = _inserted_axis(dim.item(), len(shape))
        return input.reshape(shape[:at] + (1,) + shape[at:])

    def gradient(self, op: Any, dy: Tensor) -> list[Any]:
        return [reshape_like(dy, op.inputs[0]), None]

    samples = [
        sample(normal(2, 3), 0),
        sample(normal(2, 3), -1),
        sample(normal(2, 3), 1),
        sample(normal(), 0),
        sample(empty(0, 3), np.array([1], np.int64)),
    ]


def _inserted_axis(axis: int, rank: int) -> int:
    if not -rank - 1 <= axis <= rank:
        raise ValueError(
            f"dim {axis} is outside [{-rank - 1}, {rank}], where a tensor of rank {rank} can be expanded"
        )
    return axis + rank + 1 if axis < 0 else axis


@op("Squeeze(input: T) -> output: T", squeeze_dims="list(int) >= 0 = []")
class Squeeze:
    """`input` without the dimensions of size 1; with `squeeze_dims`, without those."""

    aliases = (0,)

    def shape(self, s: ShapeContext, input: TensorShape) -> TensorShape:
        axes = s.attrs["squeeze_dims"]
        if input.sizes is None:
            return UNKNOWN
        rank = len(input.sizes)
        if not axes:
            # A size that is not known may be 1.
            return (
                UNKNOWN if None in input.sizes else TensorShape.of(tuple([d for d in input.sizes if d != 1]))
            )
        dropped = _checked_axes(axes, rank)
        for a in dropped:
            if input.sizes[a] not in (1, None):
                raise ValueError(
                    f"cannot squeeze dimension {a} of {input}: its size is {input.sizes[a]}, not 1"
                )
        return TensorShape.of(tuple([d for i, d in enumerate(input.sizes) if i not in dropped]))

    def bind(self, k: KernelContext) -> Callable[..., Any]:
        axes = k.attrs["squeeze_dims"]
        dropped_of_rank: dict[int, set[int]] = {}

        def squeeze_all(input: Any) -> Any:
            return input.reshape([d for d in input.shape if d != 1])

        def squeeze(input: Any) -> Any:
            shape = input.shape
            dropped = dropped_of_rank.get(len(shape))
            if dropped is None:
                dropped = dropped_of_rank[len(shape)] = _checked_axes(axes, len(shape))
            for a in dropped:
                if shape[a] != 1:
                    raise ValueError(
                        f"cannot squeeze dimension {a} of {list(shape)}: its size is {shape[a]}, not 1"
                    )
            return input.reshape([d for i, d in enumerate(shape) if i not in dropped])

        return squeeze if axes else squeeze_all

    def gradient(self, op: Any, dy: Tensor) -> Tensor:
        return reshape_like(dy, op.inputs[0])

    samples = [
        sample(normal(1, 3, 1)),
        sample(normal(1, 3, 1), squeeze_dims=[0]),
        sample(normal(1, 3, 1), squeeze_dims=[-1]),
        sample(normal(1, 1)),
        sample(empty(1, 0)),
    ]


def _checked_axes(axes: list[int], rank: int) -> set[int]:
    for a in axes:
        if not -rank <= a < rank:
            raise ValueError(f"axis {a} is outside [{-rank}, {rank}) of a tensor of rank {rank}")
    return {a % rank for a in axes}


@op("Fill(dims: index_type, value: T) -> output: T", index_type=INDEX_OR_INT32)
class Fill:
    """A tensor of shape `dims`, every element `value`."""

    host_inputs = (0,)

    def shape(self, s: ShapeContext, dims: TensorShape, value: TensorShape) -> TensorShape:
        value.with_rank(0)
        return s.partial(0)

    def compute(self, k: KernelContext, dims: Any, value: Any, out: Any) -> Any:
        if dims.ndim != 1:
            raise ValueError(f"dims must be a vector, not of shape {list(dims.shape)}")
        if out is None:
            sizes = dims.tolist()
            if any(d < 0 for d in sizes):
                raise ValueError(f"cannot fill a tensor of the negative shape {sizes}")
            out = k.xp.empty(tuple(sizes), k.dtype)
        out[...] = value
        return out

    def gradient(self, op: Any, dy: Tensor) -> list[Any]:
        dy = dense(dy)
        rank = dy.shape.rank
        axes = raw.Range(0, raw.Rank(dy), 1) if rank is None else int_constant(np.arange(rank))
        return [None, raw.Sum(dy, axes)]

    samples = [
        sample([2, 3], normal()),
        sample(np.array([], np.int64), normal()),
        sample([0, 2], ints()),
        sample([2], text("a").reshape(())),
    ]


@op("ZerosLike(x: T) -> y: T")
class ZerosLike:
    """Zeros of the shape and dtype of `x` (False, empty strings)."""

    not_differentiable = True
    overwrites = (0,)

    def shape(self, s: ShapeContext, x: TensorShape) -> TensorShape:
        return x

    def compute(self, k: KernelContext, x: Any, out: Any) -> Any:
        if out is None:
            out = k.xp.empty(x.shape, k.dtype)
        out[...] = b"" if k.output_dtypes[0].is_object else 0
        return out

    samples = [
        sample(normal(2, 3)),
        sample(ints()),
        sample(bools(2)),
        sample(empty(0, 2)),
        sample(text("a", "b")),
    ]


@op("OnesLike(x: T) -> y: T", T=(*FLOATS, *INTEGERS, *COMPLEX, bool_))
class OnesLike:
    """Ones of the shape and dtype of `x` (True)."""

    not_differentiable = True
    overwrites = (0,)

    def shape(self, s: ShapeContext, x: TensorShape) -> TensorShape:
        return x

    def compute(self, k: KernelContext, x: Any, out: Any) -> Any:
        if out is None:
            out = k.xp.empty(x.shape, k.dtype)
        out[...] = 1
        return out

    samples = [sample(normal(2, 3)), sample(ints()), sample(bools(2)), sample(empty(0, 2))]
