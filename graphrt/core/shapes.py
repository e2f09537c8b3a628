"""TensorShape and Dimension: static shapes that may be partly or wholly unknown.

Inside graphrt a shape rule reads `shape.sizes`: a tuple of int or None a dimension, or None where the rank is
unknown. `Dimension` exists for programs: TF1's `x.shape[0].value`.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator
from typing import Any

Sizes = tuple[int | None, ...]


class Dimension:
    """One size of a TensorShape: `value` is an int, or None where it is unknown. Arithmetic keeps unknown."""

    __slots__ = ("_value",)

    def __init__(self, value: Any) -> None:
        if value is None:
            self._value = None
            return
        value = value.value if isinstance(value, Dimension) else operator.index(value)
        if value is not None and value < 0:
            raise ValueError(f"Dimension {value} must be >= 0")
        self._value = value

    @property
    def value(self) -> int | None:
        return self._value

    def is_compatible_with(self, other: Any) -> bool:
        other = as_dimension(other)
        return self._value is None or other._value is None or self._value == other._value

    def assert_is_compatible_with(self, other: Any) -> None:
        if not self.is_compatible_with(other):
            raise ValueError(f"Dimensions {self} and {other} are not compatible")

    def merge_with(self, other: Any) -> Dimension:
        other = as_dimension(other)
        self.assert_is_compatible_with(other)
        return other if self._value is None else self

    def _with(self, other: Any, how: Any, swap: bool = False) -> Dimension:
        try:
            other = as_dimension(other)
        except (TypeError, ValueError):
            return NotImplemented
        if self._value is None or other._value is None:
            return Dimension(None)
        return Dimension(how(other._value, self._value) if swap else how(self._value, other._value))

    def _compare(self, other: Any, how: Any) -> bool | None:
        try:
            other = as_dimension(other)
        except (TypeError, ValueError):
            return NotImplemented
        return None if self._value is None or other._value is None else how(self._value, other._value)

    def __add__(self, other):
        return self._with(other, operator.add)

    def __radd__(self, other):
        return self._with(other, operator.add)

    def __sub__(self, other):
        return self._with(other, operator.sub)

    def __rsub__(self, other):
        return self._with(other, operator.sub, swap=True)

    def __mul__(self, other):
        return self._with(other, operator.mul)

    def __rmul__(self, other):
        return self._with(other, operator.mul)

    def __floordiv__(self, other):
        return self._with(other, operator.floordiv)

    def __rfloordiv__(self, other):
        return self._with(other, operator.floordiv, swap=True)

    def __div__(self, other):
        return self._with(other, operator.floordiv)

    def __mod__(self, other):
        return self._with(other, operator.mod)

    def __rmod__(self, other):
        return self._with(other, operator.mod, swap=True)

    def __eq__(self, other):
        return self._compare(other, operator.eq)

    def __ne__(self, other):
        return self._compare(other, operator.ne)

    def __lt__(self, other):
        return self._compare(other, operator.lt)

    def __le__(self, other):
        return self._compare(other, operator.le)

    def __gt__(self, other):
        return self._compare(other, operator.gt)

    def __ge__(self, other):
        return self._compare(other, operator.ge)

    def __truediv__(self, other):
        raise TypeError(f"Dimension / {type(other).__name__} is not a size: use // ")

    def __int__(self) -> int:
        return self._value  # type: ignore[return-value]

    def __index__(self) -> int:
        return self._value  # type: ignore[return-value]

    def __hash__(self) -> int:
        return hash(self._value)

    def __repr__(self) -> str:
        return f"Dimension({self._value})"

    def __str__(self) -> str:
        return "?" if self._value is None else str(self._value)

    def __reduce__(self):
        return Dimension, (self._value,)


def as_dimension(value: Any) -> Dimension:
    return value if isinstance(value, Dimension) else Dimension(value)


def _size(value: Any) -> int | None:
    if value is None or value.__class__ is int:
        if value is not None and value < 0:
            if value == -1:
                return None
            raise ValueError(f"Dimension {value} must be >= 0")
        return value
    if isinstance(value, Dimension):
        return value.value
    if hasattr(value, "size") and not hasattr(value, "__index__"):  # a TensorShapeProto.Dim
        return None if value.size < 0 else int(value.size)
    number = operator.index(value)
    return None if number == -1 else _size(number)


class TensorShape:
    """A static shape: `TensorShape([None, 784])`; `TensorShape(None)` knows nothing.

    Attributes:
      sizes: tuple of int or None a dimension; None where the rank is unknown.
      rank: the number of dimensions, or None.
    """

    __slots__ = ("sizes",)
    sizes: Sizes | None

    def __init__(self, dims: Any = None) -> None:
        if dims is None:
            self.sizes = None
        elif isinstance(dims, TensorShape):
            self.sizes = dims.sizes
        elif isinstance(dims, (list, tuple)):
            self.sizes = tuple([_size(d) for d in dims])
        elif hasattr(dims, "unknown_rank"):  # a TensorShapeProto, ours or TensorFlow's
            self.sizes = None if dims.unknown_rank else tuple([_size(d) for d in dims.dim])
        elif isinstance(dims, Iterable):
            self.sizes = tuple([_size(d) for d in dims])
        else:
            self.sizes = (_size(dims),)

    @classmethod
    def of(cls, sizes: Sizes | None) -> TensorShape:
        """The shape of `sizes` as they are: the fast way in for code that made them itself."""
        made = cls.__new__(cls)
        made.sizes = sizes
        return made

    @property
    def rank(self) -> int | None:
        return None if self.sizes is None else len(self.sizes)

    @property
    def ndims(self) -> int | None:
        return self.rank

    @property
    def dims(self) -> list[Dimension] | None:
        return None if self.sizes is None else [Dimension(d) for d in self.sizes]

    def __len__(self) -> int:
        if self.sizes is None:
            raise ValueError("Cannot take the length of shape with unknown rank.")
        return len(self.sizes)

    def __bool__(self) -> bool:
        return self.sizes is not None

    def __iter__(self) -> Iterator[Dimension]:
        if self.sizes is None:
            raise ValueError("Cannot iterate over a shape with unknown rank.")
        return iter([Dimension(d) for d in self.sizes])

    def __getitem__(self, key: Any) -> Any:
        if self.sizes is None:
            if isinstance(key, slice) and key.stop is not None and (key.step or 1) == 1:
                start, stop = key.start or 0, key.stop
                if start >= 0 and stop >= 0:
                    return unknown(max(0, stop - start))
            return TensorShape(None) if isinstance(key, slice) else Dimension(None)
        return TensorShape.of(self.sizes[key]) if isinstance(key, slice) else Dimension(self.sizes[key])

    def is_fully_defined(self) -> bool:
        return self.sizes is not None and None not in self.sizes

    def assert_is_fully_defined(self) -> None:
        if not self.is_fully_defined():
            raise ValueError(f"Shape {self} is not fully defined")

    def num_elements(self) -> int | None:
        """The product of the sizes; None where one is unknown."""
        if not self.is_fully_defined():
            return None
        n = 1
        for d in self.sizes:  # type: ignore[union-attr]
            n *= d  # type: ignore[operator]
        return n

    def as_list(self) -> list[int | None]:
        if self.sizes is None:
            raise ValueError("as_list() is not defined on an unknown TensorShape.")
        return list(self.sizes)

    def is_compatible_with(self, other: Any) -> bool:
        other = as_shape(other)
        if self.sizes is None or other.sizes is None:
            return True
        return len(self.sizes) == len(other.sizes) and all(
            a is None or b is None or a == b for a, b in zip(self.sizes, other.sizes)
        )

    def assert_is_compatible_with(self, other: Any) -> None:
        if not self.is_compatible_with(other):
            raise ValueError(f"Shapes {self} and {as_shape(other)} are incompatible")

    def merge_with(self, other: Any) -> TensorShape:
        """What both know. Raises ValueError where they differ."""
        other = as_shape(other)
        if self.sizes is None:
            return other
        if other.sizes is None or self.sizes == other.sizes:
            return self
        if not self.is_compatible_with(other):
            raise ValueError(f"Shapes {self} and {other} are not compatible")
        return TensorShape.of(tuple([b if a is None else a for a, b in zip(self.sizes, other.sizes)]))

    def most_specific_compatible_shape(self, other: Any) -> TensorShape:
        """What holds of both: sizes that differ become unknown."""
        other = as_shape(other)
        if self.sizes is None or other.sizes is None or len(self.sizes) != len(other.sizes):
            return TensorShape.of(None)
        return TensorShape.of(tuple([a if a == b else None for a, b in zip(self.sizes, other.sizes)]))

    def concatenate(self, other: Any) -> TensorShape:
        other = as_shape(other)
        if self.sizes is None or other.sizes is None:
            return TensorShape.of(None)
        return TensorShape.of(self.sizes + other.sizes)

    def with_rank(self, rank: int) -> TensorShape:
        """This shape, of `rank` dimensions (all unknown where the rank was). Raises ValueError on another."""
        if self.sizes is None:
            return unknown(rank)
        if len(self.sizes) != rank:
            raise ValueError(f"Shape {self} must have rank {rank}")
        return self

    def assert_has_rank(self, rank: int) -> None:
        self.with_rank(rank)

    def assert_same_rank(self, other: Any) -> None:
        other = as_shape(other)
        if self.rank is not None and other.rank is not None and self.rank != other.rank:
            raise ValueError(f"Shapes {self} and {other} must have the same rank")

    def with_rank_at_least(self, rank: int) -> TensorShape:
        if self.sizes is not None and len(self.sizes) < rank:
            raise ValueError(f"Shape {self} must have rank at least {rank}")
        return self

    def with_rank_at_most(self, rank: int) -> TensorShape:
        if self.sizes is not None and len(self.sizes) > rank:
            raise ValueError(f"Shape {self} must have rank at most {rank}")
        return self

    def as_proto(self) -> Any:
        from graphrt.core.graph_def import shape_proto

        return shape_proto(self)

    def __add__(self, other: Any) -> TensorShape:
        return self.concatenate(other)

    def __radd__(self, other: Any) -> TensorShape:
        return as_shape(other).concatenate(self)

    def __eq__(self, other: object) -> bool:
        try:
            return self.sizes == as_shape(other).sizes
        except (TypeError, ValueError):
            return NotImplemented

    def __hash__(self) -> int:
        return hash(self.sizes)

    def __str__(self) -> str:
        if self.sizes is None:
            return "<unknown>"
        if len(self.sizes) == 1:
            return f"({'?' if self.sizes[0] is None else self.sizes[0]},)"
        return "(" + ", ".join("?" if d is None else str(d) for d in self.sizes) + ")"

    def __repr__(self) -> str:
        return f"TensorShape({'None' if self.sizes is None else [Dimension(d) for d in self.sizes]})"

    def __reduce__(self):
        return TensorShape, (None if self.sizes is None else list(self.sizes),)


def as_shape(value: Any) -> TensorShape:
    return value if value.__class__ is TensorShape else TensorShape(value)


def unknown(rank: int | None = None) -> TensorShape:
    """A shape of `rank` unknown sizes; of unknown rank without one."""
    return TensorShape.of(None if rank is None else (None,) * rank)


SCALAR = TensorShape.of(())
UNKNOWN = TensorShape.of(None)


def broadcast(a: TensorShape, b: TensorShape) -> TensorShape:
    """NumPy's broadcast of two static shapes. Raises ValueError where no runtime shapes could broadcast."""
    if a.sizes is None or b.sizes is None:
        return UNKNOWN
    if a.sizes == b.sizes and None not in a.sizes:
        return a
    if not b.sizes:
        return a
    if not a.sizes:
        return b
    short, long = sorted((a.sizes, b.sizes), key=len)
    short = (1,) * (len(long) - len(short)) + short
    sizes: list[int | None] = []
    for x, y in zip(short, long):
        if x is None or y is None:
            # An unknown size may be 1: only a known size above 1 decides.
            known = x if y is None else y
            sizes.append(known if known is not None and known != 1 else None)
        elif x == y or y == 1:
            sizes.append(x)
        elif x == 1:
            sizes.append(y)
        else:
            raise ValueError(
                f"shapes {a} and {b} cannot be broadcast: sizes {x} and {y} differ and neither is 1"
            )
    return TensorShape.of(tuple(sizes))


broadcast_static_shape = broadcast
