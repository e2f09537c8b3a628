"""Slice and StridedSlice, and their gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from graphrt.core import raw
from graphrt.core.constant_value import constant_value
from graphrt.core.convert import convert_to_tensor
from graphrt.core.dtypes import int16, int32
from graphrt.core.registry import KernelContext, ShapeContext, op
from graphrt.core.samples import empty, ints, normal, sample
from graphrt.core.shapes import UNKNOWN, TensorShape
from graphrt.core.tensor import Tensor
from graphrt.ops.array_nodes import dense, rank_of, shape_of

MASKS = {
    "begin_mask": "int = 0",
    "end_mask": "int = 0",
    "ellipsis_mask": "int = 0",
    "new_axis_mask": "int = 0",
    "shrink_axis_mask": "int = 0",
}
_INDEX = "type in {int32,int64}"


@op("Slice(input: T, begin: Index, size: Index) -> output: T", Index=_INDEX)
class Slice:
    """`size[i]` elements from `begin[i]` on, of each dimension i; a size of -1 is all that follow."""

    aliases = (0,)
    host_inputs = (1, 2)

    def shape(
        self, s: ShapeContext, input: TensorShape, begin: TensorShape, size: TensorShape
    ) -> TensorShape:
        sizes, begins = s.value(2), s.value(1)
        rank = next(
            (r for r in (input.rank, *(t.sizes[0] for t in (begin, size) if t.sizes)) if r is not None), None
        )
        if rank is None:
            return UNKNOWN
        input = input.with_rank(rank)
        if sizes is None:
            # Some of the sizes may still be known; -1 and unknown are not told apart, so they stay unknown.
            return TensorShape.of(s.partial(2).with_rank(rank).sizes)
        if len(sizes) != rank:
            raise ValueError(
                f"size {sizes.tolist()} must have a number for each of the {rank} dimensions of {input}"
            )
        made: list[int | None] = []
        for i, n in enumerate(sizes.tolist()):
            start = None if begins is None else int(begins[i])
            whole = input.sizes[i]  # type: ignore[index]
            if (
                whole is not None
                and start is not None
                and not (0 <= start <= whole and (n == -1 or (n >= 0 and start + n <= whole)))
            ):
                raise ValueError(
                    f"begin {begins.tolist()} and size {sizes.tolist()} leave dimension {i} of {input}"
                )
            made.append(n if n >= 0 else None if whole is None or start is None else whole - start)
        return TensorShape.of(tuple(made))

    def compute(self, k: KernelContext, input: Any, begin: Any, size: Any) -> Any:
        shape, starts, sizes = input.shape, begin.tolist(), size.tolist()
        if not len(shape) == len(starts) == len(sizes):
            raise ValueError(
                f"begin {starts} and size {sizes} must have a number for each of the {len(shape)} "
                "dimensions of "
                f"{list(shape)}"
            )
        index = []
        for i, (start, n, whole) in enumerate(zip(starts, sizes, shape)):
            stop = whole if n == -1 else start + n
            if not 0 <= start <= whole or n < -1 or stop > whole:
                raise ValueError(
                    f"begin {starts} and size {sizes} leave dimension {i} of {list(shape)}: begin must be in "
                    f"[0, {whole}] and begin + size too, or size -1"
                )
            index.append(slice(start, stop))
        return input[(*index, ...)]

    def gradient(self, op: Any, dy: Tensor) -> list[Any]:
        # dy with zeros around: as many before as begin says, after it what is left of the shape.
        input, begin = op.inputs[0], op.inputs[1]
        kind = begin.dtype.base_dtype
        column = convert_to_tensor([rank_of(input), 1], name="stack")
        taken = shape_of(op.outputs[0], kind)
        before = raw.Reshape(begin, column)
        after = raw.Reshape(shape_of(input, kind) - taken - begin, column)
        return [raw.Pad(dense(dy), raw.ConcatV2([before, after], 1, name="concat")), None, None]

    samples = [
        sample(normal(3, 4), [1, 0], [2, -1]),
        sample(normal(3, 4), np.array([0, 1]), np.array([0, 2])),
        sample(normal(5), [5], [-1]),
        sample(normal(), np.array([], np.int32), np.array([], np.int32)),
        sample(empty(0, 3), [0, 0], [0, 3]),
    ]


class StridedIndex:
    """What begin, end, strides and the masks of a strided slice say, as an index of NumPy's.

    It is made anew only where the three vectors change.
    """

    __slots__ = (
        "begin_mask",
        "end_mask",
        "ellipsis_mask",
        "new_axis_mask",
        "shrink_axis_mask",
        "_key",
        "_index",
    )

    def __init__(self, attrs: dict[str, Any]) -> None:
        for mask in MASKS:
            setattr(self, mask, attrs[mask])
        self._key: tuple[bytes, ...] | None = None
        self._index: tuple[Any, ...] = ()

    def __call__(self, begin: Any, end: Any, strides: Any) -> tuple[Any, ...]:
        key = (begin.tobytes(), end.tobytes(), strides.tobytes())
        if key != self._key:
            if not begin.shape == end.shape == strides.shape or begin.ndim != 1:
                raise ValueError(
                    f"begin {begin.tolist()}, end {end.tolist()} and strides {strides.tolist()} must "
                    "be vectors of "
                    "one length"
                )
            self._index = self.of(begin.tolist(), end.tolist(), strides.tolist())
            self._key = key
        return self._index

    def of(self, begin: list[Any], end: list[Any], strides: list[Any]) -> tuple[Any, ...]:
        """The index tuple; a number that is None is not known (shape rules), and makes its item 'unknown'."""
        index: list[Any] = []
        has_ellipsis = False
        for i, (start, stop, step) in enumerate(zip(begin, end, strides)):
            bit = 1 << i
            if self.ellipsis_mask & bit:
                if has_ellipsis:
                    raise ValueError("Multiple ellipses in slice spec not allowed")
                has_ellipsis = True
                index.append(Ellipsis)
            elif self.new_axis_mask & bit:
                index.append(None)
            elif self.shrink_axis_mask & bit:
                if step is not None and step <= 0:
                    raise ValueError(f"strides[{i}] is {step}: only stride 1 allowed on non-range indexing.")
                index.append(int(start) if start is not None else "unknown item")
            elif step == 0:
                raise ValueError(f"strides[{i}] must be non-zero")
            else:
                start = "open" if self.begin_mask & bit else start
                stop = "open" if self.end_mask & bit else stop
                if None in (start, stop, step):
                    index.append("all" if start == stop == "open" and step is None else "unknown")
                else:
                    index.append(
                        slice(None if start == "open" else start, None if stop == "open" else stop, step)
                    )
        if not has_ellipsis:
            # With it the result is a view, also where every dimension is indexed.
            index.append(Ellipsis)
        return tuple(index)


def strided_shape(input: TensorShape, index: tuple[Any, ...]) -> TensorShape:
    """The static shape of `x[index]` for x of shape `input`.

    Raises:
      ValueError: too many indices, or a number outside its dimension.
    """
    if input.sizes is None:
        return UNKNOWN
    taken = sum(i is not None and i is not Ellipsis for i in index)
    rank = len(input.sizes)
    if taken > rank:
        raise ValueError(
            f"Index out of range using input dim {rank}; input has only {rank} dims: {taken} indices "
            f"for {input}"
        )
    made: list[int | None] = []
    at = 0
    for item in index:
        if item is None:
            made.append(1)
        elif item is Ellipsis:
            n = rank - taken
            made += input.sizes[at : at + n]
            at += n
        else:
            size = input.sizes[at]
            if isinstance(item, int):
                if size is not None and not -size <= item < size:
                    raise ValueError(
                        f"slice index {item} of dimension {at} out of bounds: the size of {input} "
                        f"there is {size}"
                    )
            elif isinstance(item, slice):
                made.append(_sliced_size(item, size))
            elif item != "unknown item":
                made.append(None)
            at += 1
    return TensorShape.of(tuple(made))


def _sliced_size(item: slice, size: int | None) -> int | None:
    if size is not None:
        return len(range(*item.indices(size)))
    return None


def _strided_rule(s: ShapeContext, input: TensorShape, first: int = 1) -> TensorShape:
    known = [s.elements(first + i) for i in range(3)]
    n = next((len(k) for k in known if k is not None), None)
    if n is None:
        return UNKNOWN
    begin, end, strides = ([None] * n if k is None else k for k in known)
    return strided_shape(input, StridedIndex(s.attrs).of(begin, end, strides))


@op(
    "StridedSlice(input: T, begin: Index, end: Index, strides: Index) -> output: T",
    Index="type in {int16,int32,int64}",
    **MASKS,
)
class StridedSlice:
    """`input[begin:end:strides]` in each dimension, with Python's meaning.

    Bit i of a mask is about item i: begin and end are open, it stands for `...`, puts in a dimension of size
      1,
    or takes the one element at begin and drops the dimension.
    """

    aliases = (0,)
    host_inputs = (1, 2, 3)

    def shape(
        self, s: ShapeContext, input: TensorShape, begin: TensorShape, end: TensorShape, strides: TensorShape
    ) -> TensorShape:
        return _strided_rule(s, input)

    def bind(self, k: KernelContext) -> Callable[..., Any]:
        index_of = StridedIndex(k.attrs)

        def strided_slice(input: Any, begin: Any, end: Any, strides: Any) -> Any:
            try:
                return input[index_of(begin, end, strides)]
            except IndexError as error:
                raise ValueError(f"slice {begin.tolist()} of {list(input.shape)}: {error}") from None

        return strided_slice

    def gradient(self, op: Any, dy: Tensor) -> list[Any]:
        input, *vectors = op.inputs
        kind = vectors[0].dtype.base_dtype
        if kind is int16:
            # StridedSliceGrad has no int16 index.
            kind = int32
            vectors = [raw.Cast(v, DstT=int32) for v in vectors]
        known = [constant_value(v) for v in vectors]
        begin, end, strides = (v if c is None else c for v, c in zip(vectors, known))
        shape = shape_of(input, kind)
        known_shape = constant_value(shape)
        sizes = shape if known_shape is None else known_shape
        return [
            raw.StridedSliceGrad(sizes, begin, end, strides, dense(dy), **{m: op.attrs[m] for m in MASKS}),
            None,
            None,
            None,
        ]

    samples = [
        sample(normal(4, 5), [1, 0], [3, 5], [1, 2]),
        sample(normal(4, 5), [-1], [0], [1], shrink_axis_mask=1),
        sample(normal(4, 5), [0, 3], [0, 0], [1, -1], begin_mask=1, end_mask=3),
        sample(normal(2, 3, 4), [0, 1], [0, 2], [1, 1], ellipsis_mask=1),
        sample(
            normal(2, 3), [0, 0, 1], [0, 0, 2], [1, 1, 1], new_axis_mask=2, end_mask=1, shrink_axis_mask=4
        ),
        sample(normal(5), [9], [-9], [-2]),
        sample(normal(5), [3], [1], [1]),
        sample(ints(5), np.array([1]), np.array([4]), np.array([1])),
        sample(normal(4), [1], [2], [1], shrink_axis_mask=1),
        sample(empty(0, 3), [0], [2], [1]),
    ]


@op(
    "StridedSliceGrad(shape: Index, begin: Index, end: Index, strides: Index, dy: T) -> output: T",
    Index=_INDEX,
    **MASKS,
)
class StridedSliceGrad:
    """Zeros of `shape` with `dy` at the strided slice."""

    host_inputs = (0, 1, 2, 3)

    def shape(
        self,
        s: ShapeContext,
        shape: TensorShape,
        begin: TensorShape,
        end: TensorShape,
        strides: TensorShape,
        dy: TensorShape,
    ) -> TensorShape:
        return s.partial(0)

    def bind(self, k: KernelContext) -> Callable[..., Any]:
        index_of, xp, dtype = StridedIndex(k.attrs), k.xp, k.dtype

        def grad(shape: Any, begin: Any, end: Any, strides: Any, dy: Any, out: Any) -> Any:
            if out is None:
                out = xp.zeros(tuple(shape.tolist()), dtype)
            else:
                out[...] = 0
            _assign(out, index_of(begin, end, strides), dy)
            return out

        return grad

    writes_out = True

    def gradient(self, op: Any, ddy: Tensor) -> list[Any]:
        _, begin, end, strides, _ = op.inputs
        return [
            None,
            None,
            None,
            None,
            raw.StridedSlice(ddy, begin, end, strides, **{m: op.attrs[m] for m in MASKS}),
        ]

    samples = [
        sample([4, 5], [1, 0], [3, 5], [1, 2], normal(2, 3)),
        sample([4], [1], [2], [1], normal(), shrink_axis_mask=1),
        sample([5], [9], [-9], [-2], normal(3)),
    ]


def _assign(target: Any, index: tuple[Any, ...], value: Any) -> None:
    try:
        part = target[index]
    except IndexError as error:
        raise ValueError(f"slice of {list(target.shape)}: {error}") from None
    if part.shape != value.shape:
        raise ValueError(f"the slice has shape {list(part.shape)}, the value for it {list(value.shape)}")
    part[...] = value
