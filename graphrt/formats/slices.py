"""TensorSlice: which part of a tensor is meant; and the texts and messages that say so."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

# The length of a dimension that is taken whole.
WHOLE = -1


@dataclass(frozen=True)
class TensorSlice:
    """A box in a tensor: it starts at `starts` and is `lengths` long; WHOLE where a dimension is taken
    whole."""

    starts: tuple[int, ...]
    lengths: tuple[int, ...]

    @classmethod
    def whole(cls, rank: int) -> TensorSlice:
        return cls((0,) * rank, (WHOLE,) * rank)

    @classmethod
    def from_proto(cls, proto: Any) -> TensorSlice:
        """Of a TensorSliceProto: a dimension without a length is whole.

        Raises:
          ValueError: a negative start or length.
        """
        starts, lengths = [], []
        for extent in proto.extent:
            has_length = extent.HasField("length")
            starts.append(extent.start)
            lengths.append(extent.length if has_length else WHOLE)
            if extent.start < 0 or has_length and extent.length < 0:
                raise ValueError(f"a slice starts at {extent.start} and is {extent.length} long")
        return cls(tuple(starts), tuple(lengths))

    def fill_proto(self, proto: Any) -> None:
        """Write it into a TensorSliceProto."""
        for start, length in zip(self.starts, self.lengths):
            extent = proto.extent.add()
            if length != WHOLE:
                extent.start, extent.length = start, length

    def shape(self, full_shape: tuple[int, ...]) -> tuple[int, ...]:
        """The slice's shape in a tensor of `full_shape`.

        Raises:
          ValueError: it does not lie inside.
        """
        if len(full_shape) != len(self.starts):
            raise ValueError(f"{self} has {len(self.starts)} dimensions, the tensor {list(full_shape)}")
        sizes = []
        for start, length, size in zip(self.starts, self.lengths, full_shape):
            if length == WHOLE:
                sizes.append(size)
                continue
            if start + length > size:
                raise ValueError(f"{self} does not lie inside a tensor of shape {list(full_shape)}")
            sizes.append(length)
        return tuple(sizes)

    def is_whole(self, full_shape: tuple[int, ...]) -> bool:
        return self.shape(full_shape) == full_shape

    def box(self, full_shape: tuple[int, ...]) -> tuple[slice, ...]:
        """What it picks of a NumPy array of `full_shape`."""
        return tuple(slice(s, s + n) for s, n in zip(self.starts, self.shape(full_shape)))

    def __str__(self) -> str:
        return (
            ":".join("-" if n == WHOLE else f"{s},{n}" for s, n in zip(self.starts, self.lengths)) or "scalar"
        )


def parse_slice_spec(spec: str) -> tuple[tuple[int, ...], TensorSlice]:
    """(full shape, slice) of a text such as '10 20 0,5:-': rows 0 to 5 of a tensor of shape [10, 20].

    Raises:
      ValueError: the text is not of that form, or the slice is not in the tensor.
    """
    *sizes, part = spec.split(" ")
    try:
        full_shape = tuple(int(size) for size in sizes)
        pairs = (
            [
                (0, WHOLE) if extent == "-" else tuple(int(number) for number in extent.split(","))
                for extent in part.split(":")
            ]
            if part
            else []
        )
        if any(size < 0 for size in full_shape) or any(len(pair) != 2 for pair in pairs):
            raise ValueError
        if any(start < 0 or length <= 0 and pair != (0, WHOLE) for pair in pairs for start, length in [pair]):
            raise ValueError
    except ValueError:
        raise ValueError(
            f"{spec!r} does not name a slice: 'size size … start,length:start,length…' does, with - for a "
            "whole "
            "dimension"
        ) from None
    made = TensorSlice(tuple(p[0] for p in pairs), tuple(p[1] for p in pairs))
    made.shape(full_shape)
    return full_shape, made


def assembled(
    part: TensorSlice,
    full_shape: tuple[int, ...],
    dtype: np.dtype,
    stored: list[TensorSlice],
    read: Callable[[int], np.ndarray],
) -> np.ndarray | None:
    """The part of a tensor of `full_shape`, put together of the parts that are stored; `read(i)` gives the
    i-th.

    Returns:
      The value, or None where the stored parts do not cover it.
    Raises:
      ValueError: a part is not in the tensor, or there is no memory for what it claims to be.
    """
    wanted, covered, pieces = part.box(full_shape), 0, []
    for i, other in enumerate(stored):
        box = other.box(full_shape)
        common = [slice(max(a.start, b.start), min(a.stop, b.stop)) for a, b in zip(box, wanted)]
        sizes = [c.stop - c.start for c in common]
        if all(size > 0 for size in sizes):
            into = tuple(slice(c.start - w.start, c.stop - w.start) for c, w in zip(common, wanted))
            source = tuple(slice(c.start - b.start, c.stop - b.start) for c, b in zip(common, box))
            covered += math.prod(sizes)
            pieces.append((i, into, source))
    shape = part.shape(full_shape)
    if covered < math.prod(shape):
        return None
    try:
        made = np.empty(shape, dtype)
    except MemoryError:
        raise ValueError(f"there is no memory for a tensor of shape {list(shape)}") from None
    for i, into, source in pieces:
        made[into] = read(i)[source]
    return made
