"""Python's operators on tensors: `x + y`, `-x`, `x < y`, `a @ b`, with TensorFlow's names for their nodes.

`==` and `!=` compare identity, as in TF1; tf.equal compares values. Slicing is laid by the array family.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphrt.core import raw
from graphrt.core.convert import convert_to_tensor
from graphrt.core.default_graph import name_scope
from graphrt.core.dtypes import (
    DType,
    bfloat16,
    bool_,
    complex64,
    complex128,
    float32,
    float64,
    half,
    int8,
    int16,
    int32,
    int64,
    string,
    uint8,
    uint16,
    uint32,
    uint64,
)
from graphrt.core.tensor import SparseTensor, Tensor

# What `/` computes in, by the dtype of its operands.
TRUE_DIVISION: dict[DType, DType] = {
    uint8: float32,
    int8: float32,
    uint16: float32,
    int16: float32,
    uint32: float64,
    int32: float64,
    uint64: float64,
    int64: float64,
    half: half,
    bfloat16: bfloat16,
    float32: float32,
    float64: float64,
    complex64: complex64,
    complex128: complex128,
}


def add(x: Tensor, y: Any, name: str | None = None) -> Tensor:
    y = _like(y, x)
    return (raw.Add if x.dtype.base_dtype is string else raw.AddV2)(x, y, name=name)


def subtract(x: Any, y: Any, name: str | None = None) -> Tensor:
    return raw.Sub(x, y, name=name)


def multiply(x: Any, y: Any, name: str | None = None) -> Any:
    if isinstance(y, SparseTensor):
        values = raw.SparseDenseCwiseMul(y.indices, y.values, y.dense_shape, x, name=name)
        return SparseTensor(y.indices, values, y.dense_shape)
    if bool_ in (getattr(x, "dtype", None), getattr(y, "dtype", None)):
        return raw.Cast(raw.Mul(raw.Cast(x, DstT=int32), raw.Cast(y, DstT=int32), name=name), DstT=bool_)
    return raw.Mul(x, y, name=name)


def truediv(x: Any, y: Any, name: str | None = None) -> Tensor:
    """x / y as Python 3 divides: integers are cast to floating point first.

    Raises:
      TypeError: x and y differ in dtype, or cannot be divided.
    """
    with name_scope(name, "truediv", [x, y]) as scope:
        x = convert_to_tensor(x, name="x")
        y = _like(y, x)
        kind = x.dtype.base_dtype
        if y.dtype.base_dtype is not kind:
            raise TypeError(
                f"`x` and `y` must have the same dtype, got {kind!r} != {y.dtype.base_dtype!r}: "
                f"tf.cast(y, {kind!r}) converts"
            )
        divides_in = TRUE_DIVISION.get(kind)
        if divides_in is None:
            raise TypeError(
                f"Invalid dtype {kind!r} in __truediv__. Expected one of "
                f"{', '.join(map(repr, TRUE_DIVISION))}"
            )
        if divides_in is not kind:
            x, y = raw.Cast(x, DstT=divides_in), raw.Cast(y, DstT=divides_in)
        return raw.RealDiv(x, y, name=scope)


def div(x: Any, y: Any, name: str | None = None) -> Tensor:
    """x / y as Python 2 divides: integers by FloorDiv."""
    with name_scope(name, "div", [x, y]) as scope:
        x = convert_to_tensor(x, name="x")
        y = convert_to_tensor(y, dtype=x.dtype.base_dtype, name="y")
        kind = x.dtype.base_dtype
        return (raw.RealDiv if kind.is_floating or kind.is_complex else raw.FloorDiv)(x, y, name=scope)


def floordiv(x: Any, y: Any, name: str | None = None) -> Tensor:
    with name_scope(name, "floordiv", [x, y]) as scope:
        return raw.FloorDiv(x, y, name=scope)


def mod(x: Any, y: Any, name: str | None = None) -> Tensor:
    with name_scope(name, "mod", [x, y]) as scope:
        return raw.FloorMod(x, y, name=scope)


def power(x: Any, y: Any, name: str | None = None) -> Tensor:
    with name_scope(name, "Pow", [x]) as scope:
        return raw.Pow(x, y, name=scope)


def matmul(a: Any, b: Any, name: str | None = None) -> Tensor:
    """a @ b: MatMul of matrices, BatchMatMulV2 of more dimensions."""
    with name_scope(name, "MatMul", [a, b]) as scope:
        a = convert_to_tensor(a, name="a")
        b = convert_to_tensor(b, dtype=a.dtype.base_dtype, name="b")
        if any(t.shape.rank is None or t.shape.rank > 2 for t in (a, b)):
            return raw.BatchMatMulV2(a, b, name=scope)
        return raw.MatMul(a, b, name=scope)


def logical_or_bitwise(logical: str, bitwise: str) -> Callable[..., Tensor]:
    """The logical op for bools, the bitwise op for integers."""

    def apply(x: Tensor, y: Any, name: str | None = None) -> Tensor:
        if x.dtype.base_dtype is bool_:
            return getattr(raw, logical)(x, y, name=name)
        return getattr(raw, bitwise)(x, y)

    return apply


def invert(x: Tensor, name: str | None = None) -> Tensor:
    return (raw.LogicalNot if x.dtype.base_dtype is bool_ else raw.Invert)(x, name=name)


def absolute(x: Tensor, name: str | None = None) -> Tensor:
    with name_scope(name, "Abs", [x]) as scope:
        kind = x.dtype.base_dtype
        return (
            raw.ComplexAbs(x, Tout=kind.real_dtype, name=scope) if kind.is_complex else raw.Abs(x, name=scope)
        )


def _like(y: Any, x: Tensor) -> Tensor:
    if isinstance(y, Tensor):
        return y
    return convert_to_tensor(y, name="y", preferred_dtype=x.dtype.base_dtype)


def logical_xor(x: Any, y: Any, name: str = "LogicalXor") -> Tensor:
    """x != y of bools: (x | y) & ~(x & y)."""
    return raw.LogicalAnd(raw.LogicalOr(x, y), raw.LogicalNot(raw.LogicalAnd(x, y)), name=name)


def _xor(x: Tensor, y: Any, name: str | None = None) -> Tensor:
    return logical_xor(x, y, name or "LogicalXor") if x.dtype.base_dtype is bool_ else raw.BitwiseXor(x, y)


_BINARY: dict[str, Callable[..., Any]] = {
    "add": add,
    "sub": subtract,
    "mul": multiply,
    "truediv": truediv,
    "div": div,
    "floordiv": floordiv,
    "mod": mod,
    "pow": power,
    "matmul": matmul,
    "and": logical_or_bitwise("LogicalAnd", "BitwiseAnd"),
    "or": logical_or_bitwise("LogicalOr", "BitwiseOr"),
    "xor": _xor,
}


def _forward(function: Callable[..., Any], op_name: str) -> Callable[[Any, Any], Any]:
    reverse = f"__r{op_name}__"

    def operator(x: Any, y: Any) -> Any:
        try:
            with name_scope(None, op_name, [x, y]) as scope:
                return function(x, y, name=scope)
        except (TypeError, ValueError):
            # An object that knows tensors may still know what to do.
            if isinstance(y, Tensor) or not hasattr(type(y), reverse):
                raise
            try:
                made = getattr(y, reverse)(x)
            except (TypeError, ValueError):
                made = NotImplemented
            if made is NotImplemented:
                raise
            return made

    return operator


def _reversed(function: Callable[..., Any], op_name: str) -> Callable[[Any, Any], Any]:
    def operator(y: Any, x: Any) -> Any:
        with name_scope(None, op_name, [x, y]) as scope:
            x = convert_to_tensor(x, dtype=y.dtype.base_dtype, name="x")
            return function(x, y, name=scope)

    return operator


def _comparison(op_name: str) -> Callable[[Any, Any], Any]:
    def operator(x: Any, y: Any) -> Any:
        return getattr(raw, op_name)(x, y)

    return operator


def lay_on(kind: type) -> None:
    """Give `kind` (Tensor, and what behaves as one) the operators."""
    for op_name, function in _BINARY.items():
        setattr(kind, f"__{op_name}__", _forward(function, op_name))
        setattr(kind, f"__r{op_name}__", _reversed(function, op_name))
    for op_name, node in (("lt", "Less"), ("le", "LessEqual"), ("gt", "Greater"), ("ge", "GreaterEqual")):
        setattr(kind, f"__{op_name}__", _comparison(node))
    kind.__neg__ = lambda x: raw.Neg(x)
    kind.__abs__ = lambda x: absolute(x)
    kind.__invert__ = lambda x: invert(x)


lay_on(Tensor)
