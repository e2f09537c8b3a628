"""Reductions over axes: Sum, Mean, Prod, Max, Min, All, Any, EuclideanNorm; ArgMax and ArgMin; L2Loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from graphrt.core import raw
from graphrt.core.constant_value import constant_value
from graphrt.core.default_graph import get_default_graph
from graphrt.core.dtypes import NUMBERS, QUANTIZED, REAL, bfloat16, half, int32
from graphrt.core.registry import KernelContext, ShapeContext, op
from graphrt.core.samples import bools, empty, ints, normal, positive, sample
from graphrt.core.shapes import UNKNOWN, TensorShape, unknown
from graphrt.core.tensor import Tensor
from graphrt.ops.array_nodes import int_constant, ones_of, rank_of, size_of
from graphrt.ops.broadcasting import cast_to, conj, shape_of
from graphrt.ops.operators import floordiv
from graphrt.ops.summation import element_count, store, summing


def reduced(s: ShapeContext, input: TensorShape, axes: TensorShape) -> TensorShape:
    """The shape rule of reductions: `input` without the axes that flat input 1 names, or with 1 there
    (keep_dims)."""
    axes.with_rank_at_most(1)
    keep = s.attrs["keep_dims"]
    if input.sizes is None:
        return UNKNOWN
    rank = len(input.sizes)
    named = s.value(1)
    if named is None:
        if keep:
            return unknown(rank)
        n = axes.num_elements()
        # The axes are distinct, so their number tells the rank of what is left.
        return UNKNOWN if n is None else unknown(rank - n) if n <= rank else UNKNOWN
    gone = set(normal_axes(named, rank, s.op_def.name))
    return TensorShape.of(
        tuple([1 if i in gone else d for i, d in enumerate(input.sizes) if keep or i not in gone])
    )


def normal_axes(axes: Any, rank: int, op_name: str) -> tuple[int, ...]:
    """Reduction indices as a tuple of distinct axes in [0, rank).

    Raises:
      ValueError: an axis outside [-rank, rank), or one named twice.
    """
    made = []
    for axis in axes.ravel().tolist():
        if not -rank <= axis < rank:
            raise ValueError(
                f"Invalid reduction dimension ({axis} for input with {rank} dimension(s)): {op_name} takes "
                "axes from "
                f"{-rank} to {rank - 1}"
                if rank
                else f"Invalid reduction dimension ({axis} for input with 0 dimension(s)): {op_name} of a "
                "scalar takes no "
                "axis"
            )
        made.append(axis + rank if axis < 0 else axis)
    if len(set(made)) != len(made):
        raise ValueError(
            f"Invalid reduction arguments: Axes contains duplicate dimension: {axes.ravel().tolist()}"
        )
    return tuple(made)


def axes_reader(op_name: str) -> Callable[[Any, int], tuple[int, ...]]:
    """`normal_axes` for the steps of one node, which name the same axes again and again."""
    seen: dict[tuple[bytes, int], tuple[int, ...]] = {}

    def read(axes: Any, rank: int) -> tuple[int, ...]:
        key = axes.tobytes(), rank
        made = seen.get(key)
        if made is None:
            made = normal_axes(axes, rank, op_name)
            if len(seen) < 64:
                seen[key] = made
        return made

    return read


def kept_shape(x: Tensor, axes: Tensor, shape: Tensor | None = None) -> Any:
    """The shape that reducing `x` over `axes` gives with keep_dims: an array where it is known, else a
    tensor.

    Args:
      shape: the shape of x as a tensor, where the caller has one.
    """
    sizes, known = x.shape.sizes, constant_value(axes)
    if sizes is not None and None not in sizes and known is not None:
        made = np.array(sizes, np.int32)
        made[known.astype(np.int64)] = 1
        return made
    if shape is None:
        shape = shape_of(x)
    rank = size_of(shape)
    axes = (cast_to(axes, int32) + rank) % rank
    axes_shape = shape_of(axes)
    every = raw.Range(0, rank, 1, name="range")
    return raw.DynamicStitch([every, axes], [shape, ones_of(axes_shape, int32)])


def all_axes(x: Tensor) -> Tensor:
    """The axes of `x`: a constant where its rank is known and above 0."""
    rank = x.shape.rank
    return int_constant(np.arange(rank)) if rank else raw.Range(0, rank_of(x), 1, name="range")


def _product(x: Tensor) -> Tensor:
    """The product of all elements."""
    return raw.Prod(x, all_axes(x))


class Reduction:
    """Base of reductions over the axes that the second input names."""

    def shape(self, s: ShapeContext, input: TensorShape, reduction_indices: TensorShape) -> TensorShape:
        return reduced(s, input, reduction_indices)

    host_inputs = (1,)
    writes_out = True


@op(
    "Sum(input: T, reduction_indices: Tidx) -> output: T",
    keep_dims="bool = False",
    T=NUMBERS,
    Tidx="type in {int32,int64} = int32",
)
class Sum(Reduction):
    """The sum over axes; float16 and bfloat16 accumulate in float32."""

    def bind(self, k: KernelContext) -> Callable[..., Any]:
        add, dtype, keep, read = k.xp.add.reduce, k.dtype, k.attrs["keep_dims"], axes_reader("Sum")
        if k.output_dtypes[0] in (half, bfloat16):

            def widened(x: Any, axes: Any, out: Any = None) -> Any:
                made = add(x.astype(np.float32), read(axes, x.ndim), keepdims=keep).astype(dtype)
                return made if out is None else store(made, out)

            return widened
        add_up = summing(k)

        def total(x: Any, axes: Any, out: Any = None) -> Any:
            return add_up(x, read(axes, x.ndim), out)

        return total

    def gradient(self, op: Any, dy: Tensor) -> list[Tensor | None]:
        return [spread(op, dy), None]

    samples = [
        sample(normal(3, 4), 0),
        sample(normal(3, 4), [0, 1]),
        sample(normal(3, 4, 2), [-1, 0], keep_dims=True),
        sample(normal(3, 4), np.zeros(0, np.int32), why="no axis: a copy"),
        sample(normal(), np.zeros(0, np.int32)),
        sample(empty(0, 3), 0),
        sample(ints(3, 4), 1),
        sample(normal(50, dtype="half"), 0, gradient=False),
        sample(
            normal(3, 4),
            np.array([1], np.int64),
            gradient=False,
            why="TensorFlow's gradient takes int32 axes",
        ),
        sample(ints(1200, 3, dtype="float32"), 0, why="many rows: added up in blocks"),
        sample(ints(30, 20, 2, dtype="float32"), [0, 1], keep_dims=True),
        sample(ints(300, 40, dtype="float32"), 1),
        sample(ints(10, 20, 3, 2, dtype="float32"), [2, 3], keep_dims=True),
        sample(ints(200, dtype="int8"), 0, why="wraps as int8"),
    ]


def spread(op: Any, dy: Tensor) -> Tensor:
    """The gradient of a sum: `dy` repeated along the axes that `op` summed."""
    x, axes = op.inputs
    sizes, named = x.shape.sizes, constant_value(axes)
    if sizes is not None and named is not None:
        if named.ndim == 1 and named.tolist() == list(range(len(sizes))):
            dy = raw.Reshape(dy, [1] * len(sizes))
            return raw.Tile(dy, int_constant(sizes) if None not in sizes else shape_of(x))
        if None not in sizes:
            kept = kept_shape(x, axes)
            _count_as_tensorflow(op.graph, sizes, kept)
            times = [d // max(n, 1) for d, n in zip(sizes, kept.tolist())]
            return raw.Tile(raw.Reshape(dy, kept), times)
    shape = shape_of(x)
    if not op.attrs["keep_dims"]:
        dy = raw.Reshape(dy, kept_shape(x, axes, shape))
    return raw.BroadcastTo(dy, shape)


_divided: WeakKeyDictionary[Any, set[Any]] = WeakKeyDictionary()


def _count_as_tensorflow(graph: Any, sizes: tuple[int, ...], kept: Any) -> None:
    """Build the nodes by which TensorFlow divides two constant shapes, once for each in a graph: nothing
    uses them, but random ops derive their seeds from the number of nodes before them."""
    seen = _divided.setdefault(graph, set())
    if (sizes, tuple(kept.tolist())) not in seen:
        seen.add((sizes, tuple(kept.tolist())))
        floordiv(np.array(sizes, np.int32), raw.Maximum(kept, 1))


@op(
    "Mean(input: T, reduction_indices: Tidx) -> output: T",
    keep_dims="bool = False",
    T=NUMBERS,
    Tidx="type in {int32,int64} = int32",
)
class Mean(Reduction):
    """The mean over axes; integers are truncated, float16 and bfloat16 accumulate in float32."""

    def bind(self, k: KernelContext) -> Callable[..., Any]:
        add, dtype, keep, xp, read = k.xp.add.reduce, k.dtype, k.attrs["keep_dims"], k.xp, axes_reader("Mean")
        if k.output_dtypes[0] in (half, bfloat16):

            def widened(x: Any, axes: Any, out: Any = None) -> Any:
                axes = read(axes, x.ndim)
                made = add(x.astype(np.float32), axes, keepdims=keep)
                made = xp.divide(made, np.float32(element_count(x, axes))).astype(dtype)
                return made if out is None else store(made, out)

            return widened
        if k.output_dtypes[0].is_integer or k.output_dtypes[0].is_quantized:

            def truncated(x: Any, axes: Any, out: Any = None) -> Any:
                axes = read(axes, x.ndim)
                total, n = add(x, axes, dtype, None, keep), element_count(x, axes)
                made = (
                    xp.where(total < 0, -(-total // n), total // n).astype(dtype)
                    if n
                    else xp.zeros_like(total)
                )
                return made if out is None else store(made, out)

            return truncated
        number, add_up = dtype.type, summing(k)

        def mean(x: Any, axes: Any, out: Any = None) -> Any:
            axes = read(axes, x.ndim)
            return xp.divide(add_up(x, axes, out), number(element_count(x, axes)), out)

        return mean

    def gradient(self, op: Any, dy: Tensor) -> list[Tensor | None]:
        made = spread(op, dy)
        x, axes = op.inputs
        n, m = x.shape.num_elements(), op.outputs[0].shape.num_elements()
        if n is not None and m is not None:
            factor = raw.Const(value=np.array(n // max(m, 1), made.dtype.np), dtype=made.dtype)
        else:
            shape = shape_of(x)
            rank = size_of(shape)
            axes = (cast_to(axes, int32) + rank) % rank
            factor = cast_to(_product(raw.GatherV2(shape, axes, 0)), made.dtype.base_dtype)
        return [made / factor, None]

    samples = [
        sample(normal(3, 4), 0),
        sample(normal(3, 4), [0, 1]),
        sample(normal(3, 4, 2), [-1, 0], keep_dims=True),
        sample(normal(), np.zeros(0, np.int32)),
        sample(ints(3, 4, low=-9), 1, why="integers truncate"),
        sample(normal(50, dtype="half"), 0, gradient=False),
        sample(normal(3, dtype="complex64"), 0),
    ]


@op(
    "Prod(input: T, reduction_indices: Tidx) -> output: T",
    keep_dims="bool = False",
    T=NUMBERS,
    Tidx="type in {int32,int64} = int32",
)
class Prod(Reduction):
    """The product over axes; float16 and bfloat16 are multiplied in float32."""

    def bind(self, k: KernelContext) -> Callable[..., Any]:
        multiply, dtype, keep, read = k.xp.multiply.reduce, k.dtype, k.attrs["keep_dims"], axes_reader("Prod")
        if k.output_dtypes[0] in (half, bfloat16):

            def widened(x: Any, axes: Any, out: Any = None) -> Any:
                made = multiply(x.astype(np.float32), read(axes, x.ndim), keepdims=keep).astype(dtype)
                return made if out is None else store(made, out)

            return widened

        def product(x: Any, axes: Any, out: Any = None) -> Any:
            return multiply(x, read(axes, x.ndim), dtype, out, keep)

        return product

    def gradient(self, op: Any, dy: Tensor) -> list[Tensor | None]:
        # The product of all others, as two running products: dividing by x would fail at 0.
        x, axes = op.inputs
        shape = shape_of(x)
        flat_axes = raw.Reshape(axes, [-1])
        if not op.attrs["keep_dims"]:
            dy = raw.Reshape(dy, kept_shape(x, axes, shape))
        dy = raw.BroadcastTo(dy, shape)
        with get_default_graph().device("/cpu:0"):
            rank = rank_of(x)
            gone = (cast_to(flat_axes, int32) + rank) % rank
            others = raw.ListDiff(raw.Range(0, rank, 1, name="range"), gone)[0]
            order = raw.ConcatV2([gone, others], 0, name="concat")
            n, m = (_product(raw.GatherV2(shape, a, 0)) for a in (gone, others))
        turned = raw.Transpose(x, order, name="transpose")
        turned_shape = shape_of(turned)
        columns = raw.Reshape(turned, raw.Pack([n, m], name="Reshape_2/shape"))
        before = raw.Cumprod(columns, 0, exclusive=True)
        after = raw.Cumprod(columns, 0, exclusive=True, reverse=True)
        product = raw.Reshape(conj(before) * conj(after), turned_shape)
        made = dy * raw.Transpose(product, raw.InvertPermutation(order), name="transpose")
        return [raw.Reshape(made, shape), None]

    samples = [
        sample(normal(3, 4), 0),
        sample(normal(3, 4), [0, 1]),
        sample(normal(3, 4, 2), [-1, 0], keep_dims=True),
        sample(np.float32([[0, 2], [0, 3]]), 0, why="two zeros"),
        sample(normal(), np.zeros(0, np.int32), gradient=False),
        sample(empty(0, 3), 0),
        sample(ints(3, 4, low=1, high=4), 1),
        sample(normal(3, dtype="complex64"), 0),
        sample(positive(6, dtype="half"), 0, gradient=False),
    ]


class _Extremum(Reduction):
    """Base of Max and Min: of nothing, the dtype's other end. Equal extremes share the gradient."""

    ufunc = ""
    samples = [
        sample(normal(3, 4), 0),
        sample(normal(3, 4), [0, 1]),
        sample(normal(3, 4, 2), [-1, 0], keep_dims=True),
        sample(np.float32([[1, 3, 3], [2, 2, 0]]), 1, why="equal extremes share the gradient"),
        sample(empty(0, 3), 0, gradient=False, why="of nothing"),
        sample(ints(0, 2), 0),
        sample(normal(), np.zeros(0, np.int32)),
        sample(ints(3, 4), 1),
        sample(normal(5, dtype="half"), 0, gradient=False),
        sample(normal(5, dtype="bfloat16"), 0, gradient=False),
    ]

    def of_nothing(self, dtype: Any) -> Any:
        raise NotImplementedError

    def bind(self, k: KernelContext) -> Callable[..., Any]:
        pick, keep, read, dtype = (
            getattr(k.xp, self.ufunc).reduce,
            k.attrs["keep_dims"],
            axes_reader(k.type),
            k.dtype,
        )
        initial = np.array(self.of_nothing(k.output_dtypes[0]), dtype)[()]

        def extremum(x: Any, axes: Any, out: Any = None) -> Any:
            axes = read(axes, x.ndim)
            if x.size:
                return pick(x, axes, None, out, keep)
            return pick(x, axes, None, out, keep, initial)

        return extremum

    def gradient(self, op: Any, dy: Tensor) -> list[Tensor | None]:
        x, axes = op.inputs
        y = op.outputs[0]
        shape = shape_of(x)
        if op.attrs["keep_dims"]:
            kept: Any = shape_of(y)
        else:
            kept = kept_shape(x, axes, shape)
            y, dy = raw.Reshape(y, kept), raw.Reshape(dy, kept)
        chosen = cast_to(raw.Equal(y, x), dy.dtype.base_dtype)
        count = raw.Reshape(raw.Sum(chosen, axes), kept)
        return [chosen / count * dy, None]


@op(
    "Max(input: T, reduction_indices: Tidx) -> output: T",
    keep_dims="bool = False",
    T=(*REAL, *QUANTIZED),
    Tidx="type in {int32,int64} = int32",
)
class Max(_Extremum):
    """The largest element over axes."""

    ufunc = "maximum"

    def of_nothing(self, dtype: Any) -> Any:
        return -np.inf if dtype.is_floating else dtype.min


@op(
    "Min(input: T, reduction_indices: Tidx) -> output: T",
    keep_dims="bool = False",
    T=(*REAL, *QUANTIZED),
    Tidx="type in {int32,int64} = int32",
)
class Min(_Extremum):
    """The smallest element over axes."""

    ufunc = "minimum"

    def of_nothing(self, dtype: Any) -> Any:
        return np.inf if dtype.is_floating else dtype.max


class _Logical(Reduction):
    """Base of All and Any."""

    ufunc = ""
    samples = [
        sample(bools(3, 4), 0),
        sample(bools(2, 3), [0, 1]),
        sample(bools(2, 3, 2), [-1], keep_dims=True),
        sample(bools(0, 2), 0),
        sample(bools(), np.zeros(0, np.int32)),
    ]

    def bind(self, k: KernelContext) -> Callable[..., Any]:
        combine, keep, read = getattr(k.xp, self.ufunc).reduce, k.attrs["keep_dims"], axes_reader(k.type)

        def combined(x: Any, axes: Any, out: Any = None) -> Any:
            return combine(x, read(axes, x.ndim), None, out, keep)

        return combined


@op(
    "All(input: bool, reduction_indices: Tidx) -> output: bool",
    keep_dims="bool = False",
    Tidx="type in {int32,int64} = int32",
)
class All(_Logical):
    """True where all elements over axes are."""

    ufunc = "logical_and"


@op(
    "Any(input: bool, reduction_indices: Tidx) -> output: bool",
    keep_dims="bool = False",
    Tidx="type in {int32,int64} = int32",
)
class Any_(_Logical):
    """True where some element over axes is."""

    ufunc = "logical_or"


@op(
    "EuclideanNorm(input: T, reduction_indices: Tidx) -> output: T",
    keep_dims="bool = False",
    T=NUMBERS,
    Tidx="type in {int32,int64} = int32",
)
class EuclideanNorm(Reduction):
    """The square root of the sum over axes of the squared sizes."""

    def bind(self, k: KernelContext) -> Callable[..., Any]:
        xp, dtype, keep, read = k.xp, k.dtype, k.attrs["keep_dims"], axes_reader("EuclideanNorm")
        narrow = k.output_dtypes[0] in (half, bfloat16)

        def norm(x: Any, axes: Any, out: Any = None) -> Any:
            axes = read(axes, x.ndim)
            if narrow:
                x = x.astype(np.float32)
            squares = xp.square(x) if x.dtype.kind != "c" else x * x.conj()
            made = xp.sqrt(xp.add.reduce(squares, axes, squares.dtype, None, keep)).astype(dtype)
            return made if out is None else store(made, out)

        return norm

    def gradient(self, op: Any, dy: Tensor) -> list[Tensor | None]:
        x, axes = op.inputs
        y = op.outputs[0]
        if not op.attrs["keep_dims"]:
            kept = kept_shape(x, axes)
            y, dy = raw.Reshape(y, kept), raw.Reshape(dy, kept)
        return [x / (y / dy), None]

    samples = [
        sample(normal(3, 4), 0),
        sample(normal(3, 4), [0, 1]),
        sample(normal(3, 4, 2), [-1, 0], keep_dims=True),
        sample(empty(0, 3), 0),
        sample(normal(3, dtype="complex64"), 0, gradient=False),
        sample(normal(5, dtype="half"), 0, gradient=False),
    ]


@op("L2Loss(t: T) -> output: T", T="type in {half,bfloat16,float,double}")
class L2Loss:
    """Half the sum of squares."""

    def shape(self, s: ShapeContext, t: TensorShape) -> TensorShape:
        return TensorShape.of(())

    def bind(self, k: KernelContext) -> Callable[..., Any]:
        dtype, dot = k.dtype, k.xp.dot
        wide = np.float32 if k.output_dtypes[0] in (half, bfloat16) else dtype
        two = np.array(2, wide)

        def loss(t: Any) -> Any:
            flat = t.ravel().astype(wide, copy=False)
            return (dot(flat, flat) / two).astype(dtype)

        return loss

    def gradient(self, op: Any, dy: Tensor) -> Tensor:
        return op.inputs[0] * dy

    samples = [
        sample(normal(3, 4)),
        sample(normal()),
        sample(empty(0)),
        sample(normal(5, dtype="float64")),
        sample(normal(5, dtype="half"), gradient=False),
    ]
