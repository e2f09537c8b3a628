"""Public elementwise mathematics: tf.exp, tf.add, tf.greater, tf.cast and their like."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import graphrt.ops  # noqa: F401  (registers the ops)
from graphrt.core import raw
from graphrt.core.convert import convert_to_tensor, is_tensor
from graphrt.core.default_graph import name_scope
from graphrt.core.dtypes import (
    as_dtype,
    bfloat16,
    complex64,
    complex128,
    float32,
    float64,
    int32,
    int64,
    string,
)
from graphrt.core.registry import OPS
from graphrt.core.tensor import IndexedSlices, SparseTensor, Tensor
from graphrt.ops import operators
from graphrt.ops.operators import TRUE_DIVISION, div, floordiv, logical_xor, truediv


def unary(name: str, op_name: str, what: str) -> Callable[..., Any]:
    op_def = OPS[op_name]

    def function(x: Any, name: str | None = None) -> Any:
        if isinstance(x, SparseTensor):
            return SparseTensor(x.indices, op_def(x.values, name=name), x.dense_shape)
        return op_def(x, name=name)

    function.__name__ = function.__qualname__ = name
    dtypes = ", ".join(d.name for d in op_def.attrs["T"].allowed) if "T" in op_def.attrs else "bool"
    function.__doc__ = (
        f"{what}\n\n    Args:\n      x: tensor ({dtypes}), or a SparseTensor, of which the values are "
        "taken.\n"
        "    Returns:\n      Tensor (SparseTensor) of x's shape.\n    "
    )
    return function


def binary(name: str, op_name: str, what: str) -> Callable[..., Any]:
    op_def = OPS[op_name]
    first, second = (a.name for a in op_def.inputs)
    dtypes = ", ".join(d.name for d in (op_def.attrs["T"].allowed or ())) if "T" in op_def.attrs else "bool"
    # The arguments have the op's names, which programs may use: atan2(y, x), nextafter(x1, x2).
    scope: dict[str, Any] = {"op_def": op_def}
    exec(f"def {name}({first}, {second}, name=None):\n    return op_def({first}, {second}, name=name)", scope)
    function = scope[name]
    function.__module__ = __name__
    function.__doc__ = (
        f"{what}\n\n    Args:\n      {first}, {second}: tensors of one dtype ({dtypes or 'any'}); their "
        "shapes broadcast.\n"
        "    Returns:\n      Tensor of the shape that they broadcast to.\n    "
    )
    return function


sqrt = unary("sqrt", "Sqrt", "The square root.")
rsqrt = unary("rsqrt", "Rsqrt", "1 / sqrt(x).")
square = unary("square", "Square", "x * x.")
reciprocal = unary("reciprocal", "Reciprocal", "1 / x.")
negative = unary("negative", "Neg", "-x.")
exp = unary("exp", "Exp", "e to the x.")
expm1 = unary("expm1", "Expm1", "exp(x) - 1, exact for small x.")
log = unary("log", "Log", "The natural logarithm.")
log1p = unary("log1p", "Log1p", "log(1 + x), exact for small x.")
tanh = unary("tanh", "Tanh", "The hyperbolic tangent.")
floor = unary("floor", "Floor", "The integer at or below x.")
ceil = unary("ceil", "Ceil", "The integer at or above x.")
rint = unary("rint", "Rint", "The nearest integer, the even one of two.")
sin = unary("sin", "Sin", "The sine.")
cos = unary("cos", "Cos", "The cosine.")
tan = unary("tan", "Tan", "The tangent.")
asin = unary("asin", "Asin", "The angle whose sine is x.")
acos = unary("acos", "Acos", "The angle whose cosine is x.")
atan = unary("atan", "Atan", "The angle whose tangent is x.")
sinh = unary("sinh", "Sinh", "The hyperbolic sine.")
cosh = unary("cosh", "Cosh", "The hyperbolic cosine.")
asinh = unary("asinh", "Asinh", "The number whose hyperbolic sine is x.")
acosh = unary("acosh", "Acosh", "The number whose hyperbolic cosine is x.")
atanh = unary("atanh", "Atanh", "The number whose hyperbolic tangent is x.")
is_nan = unary("is_nan", "IsNan", "True where x is not a number.")
is_inf = unary("is_inf", "IsInf", "True where x is infinite.")
is_finite = unary("is_finite", "IsFinite", "True where x is neither infinite nor nan.")
erf = unary("erf", "Erf", "The error function.")
erfc = unary("erfc", "Erfc", "1 - erf(x), exact where erf(x) is near 1.")
lgamma = unary("lgamma", "Lgamma", "log |gamma(x)|.")
digamma = unary("digamma", "Digamma", "The derivative of lgamma.")
logical_not = unary("logical_not", "LogicalNot", "not x.")
invert = unary("invert", "Invert", "Every bit flipped.")

subtract = binary("subtract", "Sub", "x - y.")
multiply = binary("multiply", "Mul", "x * y.")
realdiv = binary("realdiv", "RealDiv", "x / y of floating and complex numbers.")
truncatediv = binary("truncatediv", "TruncateDiv", "x / y without its fraction: toward zero.")
floor_div = binary("floor_div", "FloorDiv", "floor(x / y): toward minus infinity.")
truncatemod = binary("truncatemod", "TruncateMod", "The remainder of x / y with the sign of x.")
floormod = binary("floormod", "FloorMod", "The remainder of x / y with the sign of y.")
maximum = binary("maximum", "Maximum", "The larger of x and y.")
minimum = binary("minimum", "Minimum", "The smaller of x and y.")
squared_difference = binary("squared_difference", "SquaredDifference", "(x - y)^2.")
atan2 = binary("atan2", "Atan2", "The angle of the point (x, y).")
nextafter = binary(
    "nextafter", "NextAfter", "The neighbour of x1 among floating numbers, in the direction of x2."
)
xdivy = binary("xdivy", "Xdivy", "x / y, and 0 where x is 0.")
xlogy = binary("xlogy", "Xlogy", "x log(y), and 0 where x is 0.")
xlog1py = binary("xlog1py", "Xlog1py", "x log(1 + y), and 0 where x is 0.")
igamma = binary("igamma", "Igamma", "The lower regularized incomplete gamma function P(a, x).")
igammac = binary("igammac", "Igammac", "The upper regularized incomplete gamma function Q(a, x).")
polygamma = binary("polygamma", "Polygamma", "The a-th derivative of digamma at x.")
zeta = binary("zeta", "Zeta", "Hurwitz's zeta: the sum over k >= 0 of (q + k)^-x.")
equal = binary("equal", "Equal", "x == y.")
not_equal = binary("not_equal", "NotEqual", "x != y.")
less = binary("less", "Less", "x < y.")
less_equal = binary("less_equal", "LessEqual", "x <= y.")
greater = binary("greater", "Greater", "x > y.")
greater_equal = binary("greater_equal", "GreaterEqual", "x >= y.")
logical_and = binary("logical_and", "LogicalAnd", "x and y.")
logical_or = binary("logical_or", "LogicalOr", "x or y.")
bitwise_and = binary("bitwise_and", "BitwiseAnd", "The bits that are set in both.")
bitwise_or = binary("bitwise_or", "BitwiseOr", "The bits that are set in either.")
bitwise_xor = binary("bitwise_xor", "BitwiseXor", "The bits that are set in one of the two.")
left_shift = binary("left_shift", "LeftShift", "x << y.")
right_shift = binary("right_shift", "RightShift", "x >> y, keeping the sign.")


def add(x: Any, y: Any, name: str | None = None) -> Tensor:
    """x + y; strings are joined.

    Args:
      x, y: tensors of one dtype; their shapes broadcast.
    """
    with name_scope(name, "Add", [x]) as scope:
        x = convert_to_tensor(x, name="x")
        y = convert_to_tensor(y, name="y", dtype_hint=x.dtype.base_dtype)
        return (raw.Add if x.dtype.base_dtype is string else raw.AddV2)(x, y, name=scope)


def divide(x: Any, y: Any, name: str | None = None) -> Any:
    """x / y as Python 3 divides: integers are cast to floating point first."""
    if name is not None:
        return truediv(x, y, name)
    if not is_tensor(x):
        x = convert_to_tensor(x, dtype=y.dtype.base_dtype if is_tensor(y) else None)
    return x / y


def pow(x: Any, y: Any, name: str | None = None) -> Tensor:
    """x to the y. Integers take exponents of at least 0."""
    return operators.power(x, y, name)


def div_no_nan(x: Any, y: Any, name: str | None = None) -> Tensor:
    """x / y as Python 3 divides, and 0 where y is 0.

    Raises:
      TypeError: x and y differ in dtype, or cannot be divided.
    """
    with name_scope(name, "div_no_nan", [x, y]) as scope:
        if not is_tensor(x) and is_tensor(y):
            y = convert_to_tensor(y, name="y")
            x = convert_to_tensor(x, dtype=y.dtype.base_dtype, name="x")
        else:
            x = convert_to_tensor(x, name="x")
            y = convert_to_tensor(y, name="y", dtype_hint=x.dtype.base_dtype)
        kind = x.dtype.base_dtype
        if y.dtype.base_dtype is not kind:
            raise TypeError(f"`x` and `y` must have the same dtype, got {kind!r} != {y.dtype.base_dtype!r}.")
        if kind not in TRUE_DIVISION:
            raise TypeError(
                f"div_no_nan does not divide {kind.name}: it takes {', '.join(d.name for d in TRUE_DIVISION)}"
            )
        divides_in = TRUE_DIVISION[kind]
        return raw.DivNoNan(cast(x, divides_in), cast(y, divides_in), name=scope)


divide_no_nan = div_no_nan


def multiply_no_nan(x: Any, y: Any, name: str | None = None) -> Tensor:
    """x * y, and 0 where y is 0, whatever x is."""
    with name_scope(name, "multiply_no_nan", [x, y]) as scope:
        x = convert_to_tensor(x, name="x")
        y = convert_to_tensor(y, name="y", dtype=x.dtype.base_dtype)
        return raw.MulNoNan(x, y, name=scope)


def reciprocal_no_nan(x: Any, name: str | None = None) -> Tensor:
    """1 / x, and 0 where x is 0."""
    with name_scope(name, "reciprocal_no_nan", [x]) as scope:
        x = convert_to_tensor(x, name="x")
        one = raw.Const(value=np.array(1, x.dtype.np), dtype=x.dtype.base_dtype, name="one")
        return raw.DivNoNan(one, x, name=scope)


def scalar_mul(scalar: Any, x: Any, name: str | None = None) -> Any:
    """`x`, a tensor or IndexedSlices, times a scalar of any kind.

    Raises:
      ValueError: `scalar` is not a scalar.
    """
    scalar = convert_to_tensor(scalar, dtype=x.dtype.base_dtype, name="scalar")
    if scalar.shape.rank != 0:
        raise ValueError(f"The input scalar must be a 0-D value. Received shape {scalar.shape}.")
    if isinstance(x, IndexedSlices):
        return IndexedSlices(raw.Mul(scalar, x.values, name=name), x.indices, x.dense_shape)
    return raw.Mul(scalar, x, name=name)


def abs(x: Any, name: str | None = None) -> Any:
    """|x|; of complex numbers their size, a real tensor."""
    if isinstance(x, SparseTensor):
        return SparseTensor(x.indices, abs(x.values, name), x.dense_shape)
    with name_scope(name, "Abs", [x]) as scope:
        return operators.absolute(convert_to_tensor(x, name="x"), scope)


def sign(x: Any, name: str | None = None) -> Any:
    """-1, 0 or 1 as x is below, at or above zero; x / |x| (0 at 0) of complex numbers."""
    if isinstance(x, SparseTensor):
        return SparseTensor(x.indices, sign(x.values, name), x.dense_shape)
    x = convert_to_tensor(x)
    kind = x.dtype.base_dtype
    if kind.is_complex:
        return raw.DivNoNan(x, cast(raw.ComplexAbs(x, Tout=kind.real_dtype), kind), name=name)
    return raw.Sign(x, name=name)


def round(x: Any, name: str | None = None) -> Tensor:
    """The nearest integer, the even one of two; integers as they are."""
    x = convert_to_tensor(x, name="x")
    return x if x.dtype.is_integer else raw.Round(x, name=name)


def sigmoid(x: Any, name: str | None = None) -> Tensor:
    """1 / (1 + exp(-x))."""
    with name_scope(name, "Sigmoid", [x]) as scope:
        return raw.Sigmoid(convert_to_tensor(x, name="x"), name=scope)


def log_sigmoid(x: Any, name: str | None = None) -> Tensor:
    """log(sigmoid(x)), as -softplus(-x)."""
    with name_scope(name, "LogSigmoid", [x]) as scope:
        return raw.Neg(raw.Softplus(-convert_to_tensor(x, name="x")), name=scope)


def erfinv(x: Any, name: str | None = None) -> Tensor:
    """The number whose erf is x."""
    with name_scope(name, "erfinv", [x]):
        return raw.Erfinv(x)


def ndtri(x: Any, name: str | None = None) -> Tensor:
    """The number below which a standard normal falls with probability x."""
    with name_scope(name, "ndtri", [x]):
        return raw.Ndtri(x)


def erfcinv(x: Any, name: str | None = None) -> Tensor:
    """The number whose erfc is x."""
    with name_scope(name, "erfcinv", [x]):
        return -raw.Ndtri(0.5 * convert_to_tensor(x, name="start")) * float(np.sqrt(0.5))


def betainc(a: Any, b: Any, x: Any, name: str | None = None) -> Tensor:
    """The regularized incomplete beta function."""
    return raw.Betainc(a, b, x, name=name)


def polyval(coeffs: list[Any], x: Any, name: str | None = None) -> Tensor:
    """The polynomial with `coeffs`, the highest power's first, at x."""
    if not isinstance(coeffs, list):
        raise ValueError(f"Argument coeffs must be list type. Received type {type(coeffs)}.")
    with name_scope(name, "polyval", [*coeffs, x]) as scope:
        x = convert_to_tensor(x, name="x")
        if not coeffs:
            return raw.ZerosLike(x, name=scope)
        made, *rest = [convert_to_tensor(c, name=f"coeff_{i}") for i, c in enumerate(coeffs)]
        for c in rest:
            made = c + made * x
        return made


def complex(real: Any, imag: Any, name: str | None = None) -> Tensor:
    """real + i imag: complex64 of float32, complex128 of float64.

    Raises:
      TypeError: the parts are of other dtypes, or of two.
    """
    real, imag = convert_to_tensor(real, name="real"), convert_to_tensor(imag, name="imag")
    with name_scope(name, "Complex", [real, imag]) as scope:
        kinds = real.dtype.base_dtype, imag.dtype.base_dtype
        made = {(float32, float32): complex64, (float64, float64): complex128}.get(kinds)
        if made is None:
            raise TypeError(
                f"The `real` and `imag` components have incorrect types: {kinds[0].name} {kinds[1].name}. "
                "They must be "
                "consistent, and float32 or float64"
            )
        return raw.Complex(real, imag, Tout=made, name=scope)


def real(input: Any, name: str | None = None) -> Tensor:
    """The real part; real numbers as they are."""
    with name_scope(name, "Real", [input]) as scope:
        input = convert_to_tensor(input, name="input")
        kind = input.dtype.base_dtype
        if kind.is_complex:
            return raw.Real(input, Tout=kind.real_dtype, name=scope)
        if kind.is_object or kind.is_bool:
            raise TypeError(f"input must be a numeric tensor, but got tensor with dtype {kind!r}")
        return input


def imag(input: Any, name: str | None = None) -> Tensor:
    """The imaginary part; zeros of real numbers."""
    with name_scope(name, "Imag", [input]) as scope:
        input = convert_to_tensor(input, name="input")
        if input.dtype.is_complex:
            return raw.Imag(input, Tout=input.dtype.real_dtype, name=scope)
        return raw.ZerosLike(input)


def angle(input: Any, name: str | None = None) -> Tensor:
    """The angle from the positive real axis, in (-pi, pi]; pi for negative real numbers."""
    with name_scope(name, "Angle", [input]) as scope:
        input = convert_to_tensor(input, name="input")
        if input.dtype.is_complex:
            return raw.Angle(input, Tout=input.dtype.real_dtype, name=scope)
        return raw.Select(input < 0, np.pi * raw.OnesLike(input), raw.ZerosLike(input))


def conj(x: Any, name: str | None = None) -> Tensor:
    """The complex conjugate; real numbers as they are."""
    if isinstance(x, Tensor) and (x.dtype.is_floating or x.dtype.is_integer):
        return x
    with name_scope(name, "Conj", [x]) as scope:
        x = convert_to_tensor(x, name="x")
        if x.dtype.is_complex:
            return raw.Conj(x, name=scope)
        if x.dtype.is_floating or x.dtype.is_integer:
            return x
        raise TypeError(f"Expected numeric or variant tensor, got dtype {x.dtype!r}.")


def cast(x: Any, dtype: Any, name: str | None = None) -> Any:
    """`x` in another element type; itself where it has it.

    Args:
      x: tensor, SparseTensor or IndexedSlices of numbers or bools.
      dtype: floats are cut to integers, complex numbers lose the imaginary part, True is 1, what is not 0 is
      True.
    """
    kind = as_dtype(dtype).base_dtype
    if isinstance(x, Tensor) and x.dtype is kind:
        return x
    with name_scope(name, "Cast", [x]) as scope:
        if isinstance(x, SparseTensor):
            return SparseTensor(x.indices, cast(x.values, kind, scope), x.dense_shape)
        if isinstance(x, IndexedSlices):
            return IndexedSlices(cast(x.values, kind, scope), x.indices, x.dense_shape)
        x = convert_to_tensor(x, name="x")
        return x if x.dtype.base_dtype is kind else raw.Cast(x, DstT=kind, name=scope)


def saturate_cast(value: Any, dtype: Any, name: str | None = None) -> Tensor:
    """`value` in another element type; what lies beyond its range becomes its end."""
    with name_scope(name, "saturate_cast", [value]) as scope:
        value = convert_to_tensor(value, name="value")
        source, target = value.dtype.base_dtype, as_dtype(dtype).base_dtype
        if source.is_complex and not target.is_complex:
            value, source = real(value), source.real_dtype
        if source.is_complex:
            return cast(value, target, scope)
        low, high = _common_range(source, target.real_dtype)
        ends = [raw.Const(value=np.array(end, source.np), dtype=source) for end in (low, high)]
        value = raw.ClipByValue(value, *ends, name="clamp")
        return cast(value, target, scope)


def _common_range(source: Any, target: Any) -> tuple[Any, Any]:
    """The lowest and highest number of `source` that `target` holds."""
    ends = []
    for end, pick in (("min", max), ("max", min)):
        a, b = getattr(source, end), getattr(target, end)
        if source.is_integer and target.is_integer:
            ends.append(pick(a, b))
            continue
        limit = source.np.type(pick(float(a), float(b)))
        # Rounding to `source` may have left the target's range: its neighbour toward 0 is inside.
        if target.is_integer and ((int(limit) < b) if end == "min" else (int(limit) > b)):
            limit = np.nextafter(limit, source.np.type(0), dtype=source.np)
        ends.append(limit)
    return ends[0], ends[1]


def _to(name: str, dtype: Any, default_name: str) -> Callable[..., Any]:
    def function(x: Any, name: str = default_name) -> Any:
        return cast(x, dtype, name=name)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"`x` as {dtype.name}: tf.cast(x, tf.{dtype.name})."
    return function


to_float = _to("to_float", float32, "ToFloat")
to_double = _to("to_double", float64, "ToDouble")
to_int32 = _to("to_int32", int32, "ToInt32")
to_int64 = _to("to_int64", int64, "ToInt64")
to_bfloat16 = _to("to_bfloat16", bfloat16, "ToBFloat16")
to_complex64 = _to("to_complex64", complex64, "ToComplex64")
to_complex128 = _to("to_complex128", complex128, "ToComplex128")


def bitcast(input: Any, type: Any, name: str | None = None) -> Tensor:
    """The bits of `input` read as another element type; a last dimension comes or goes where the sizes
    differ."""
    return raw.Bitcast(input, type=as_dtype(type), name=name)


mod = floormod
# Names before TF 1.0.
mul, sub, neg = multiply, subtract, negative

__all__ = [
    "abs",
    "acos",
    "acosh",
    "add",
    "angle",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "betainc",
    "bitcast",
    "cast",
    "ceil",
    "complex",
    "conj",
    "cos",
    "cosh",
    "digamma",
    "div",
    "div_no_nan",
    "divide",
    "equal",
    "erf",
    "erfc",
    "exp",
    "expm1",
    "floor",
    "floor_div",
    "floordiv",
    "floormod",
    "greater",
    "greater_equal",
    "igamma",
    "igammac",
    "imag",
    "is_finite",
    "is_inf",
    "is_nan",
    "less",
    "less_equal",
    "lgamma",
    "log",
    "log1p",
    "log_sigmoid",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "maximum",
    "minimum",
    "mod",
    "mul",
    "multiply",
    "neg",
    "negative",
    "not_equal",
    "polygamma",
    "pow",
    "real",
    "realdiv",
    "reciprocal",
    "rint",
    "round",
    "rsqrt",
    "saturate_cast",
    "scalar_mul",
    "sigmoid",
    "sign",
    "sin",
    "sinh",
    "sqrt",
    "square",
    "squared_difference",
    "sub",
    "subtract",
    "tan",
    "tanh",
    "to_bfloat16",
    "to_complex128",
    "to_complex64",
    "to_double",
    "to_float",
    "to_int32",
    "to_int64",
    "truediv",
    "truncatediv",
    "truncatemod",
    "zeta",
]
