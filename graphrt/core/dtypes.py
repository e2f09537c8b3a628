"""DType: TensorFlow's element types, their numbers on the wire and their NumPy forms.

Each type is one object, so `is` compares them. A reference type (`float32_ref`, number + 100) is the type of
a ref variable's output. bfloat16, the 8-bit floats and 4-bit integers come from ml_dtypes. A string tensor is
a NumPy object array of bytes; resource and variant tensors are object arrays of handles and values.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np


class DType:
    """An element type.

    Attributes:
      name: TensorFlow's name, as 'float32'.
      as_datatype_enum: its number in a TensorProto.
      as_numpy_dtype: the NumPy scalar type that holds it.
      size: bytes an element.
    """

    __slots__ = (
        "name",
        "number",
        "np",
        "is_ref",
        "base_dtype",
        "_ref_form",
        "is_floating",
        "is_integer",
        "is_complex",
        "is_unsigned",
        "is_quantized",
        "is_bool",
        "is_object",
        "size",
    )

    def __init__(self, name: str, number: int, numpy_type: Any, base: DType | None = None) -> None:
        self.name, self.number = name, number
        self.np: np.dtype = np.dtype(numpy_type)
        self.is_ref = base is not None
        self.base_dtype = base or self
        self._ref_form: DType | None = self if base else None
        plain = name.removesuffix("_ref")
        self.is_quantized = plain.startswith(("qint", "quint"))
        self.is_floating = plain.startswith(("float", "bfloat"))
        self.is_integer = plain.startswith(("int", "uint"))
        self.is_unsigned = plain.startswith("uint")
        self.is_complex = plain.startswith("complex")
        self.is_bool = plain == "bool"
        self.is_object = plain in ("string", "resource", "variant")
        self.size = 1 if self.is_object else self.np.itemsize

    @property
    def _is_ref_dtype(self) -> bool:
        return self.is_ref

    @property
    def _as_ref(self) -> DType:
        return self._ref_form  # type: ignore[return-value]

    @property
    def as_datatype_enum(self) -> int:
        return self.number

    @property
    def as_numpy_dtype(self) -> Any:
        return object if self.is_object else self.np.type

    @property
    def is_numpy_compatible(self) -> bool:
        return self.base_dtype.name not in ("resource", "variant")

    @property
    def real_dtype(self) -> DType:
        return {"complex64": float32, "complex128": float64}.get(self.base_dtype.name, self.base_dtype)

    @property
    def min(self) -> Any:
        return self._limit("min")

    @property
    def max(self) -> Any:
        return self._limit("max")

    def _limit(self, which: str) -> Any:
        if self.is_bool:
            return which == "max"
        if self.is_floating:
            return getattr(ml_dtypes.finfo(self.np), which)
        if self.is_integer or self.is_quantized:
            return int(getattr(ml_dtypes.iinfo(self.np), which))
        raise TypeError(f"{self.name} has no {which}imum")

    @property
    def limits(self) -> tuple[Any, Any]:
        return (0, 1) if self.is_floating else (self.min, self.max)

    def is_compatible_with(self, other: Any) -> bool:
        """True where a tensor of `other` is one of this type: equal, or `other` is this type's reference
        form."""
        other = as_dtype(other)
        return self.number in (other.number, other.base_dtype.number)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if other is None or isinstance(other, DType):
            return False
        try:
            return as_dtype(other) is self
        except TypeError:
            return False

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return self.number

    def __int__(self) -> int:
        return self.number

    def __repr__(self) -> str:
        return f"tf.{self.name}"

    def __str__(self) -> str:
        return f"<dtype: {self.name!r}>"

    def __reduce__(self):
        return as_dtype, (self.name,)


_TABLE = [
    ("float32", 1, np.float32),
    ("float64", 2, np.float64),
    ("int32", 3, np.int32),
    ("uint8", 4, np.uint8),
    ("int16", 5, np.int16),
    ("int8", 6, np.int8),
    ("string", 7, object),
    ("complex64", 8, np.complex64),
    ("int64", 9, np.int64),
    ("bool", 10, np.bool_),
    ("qint8", 11, np.int8),
    ("quint8", 12, np.uint8),
    ("qint32", 13, np.int32),
    ("bfloat16", 14, ml_dtypes.bfloat16),
    ("qint16", 15, np.int16),
    ("quint16", 16, np.uint16),
    ("uint16", 17, np.uint16),
    ("complex128", 18, np.complex128),
    ("float16", 19, np.float16),
    ("resource", 20, object),
    ("variant", 21, object),
    ("uint32", 22, np.uint32),
    ("uint64", 23, np.uint64),
    ("float8_e5m2", 24, ml_dtypes.float8_e5m2),
    ("float8_e4m3fn", 25, ml_dtypes.float8_e4m3fn),
    ("int4", 29, ml_dtypes.int4),
    ("uint4", 30, ml_dtypes.uint4),
]
BY_NUMBER: dict[int, DType] = {}
BY_NAME: dict[str, DType] = {}
for _name, _number, _numpy in _TABLE:
    _plain = DType(_name, _number, _numpy)
    _ref = DType(_name + "_ref", _number + 100, _numpy, base=_plain)
    _plain._ref_form = _ref
    for _made in (_plain, _ref):
        BY_NUMBER[_made.number] = BY_NAME[_made.name] = _made

float32, float64, float16, bfloat16 = (BY_NAME[n] for n in ("float32", "float64", "float16", "bfloat16"))
int8, int16, int32, int64 = (BY_NAME[n] for n in ("int8", "int16", "int32", "int64"))
uint8, uint16, uint32, uint64 = (BY_NAME[n] for n in ("uint8", "uint16", "uint32", "uint64"))
complex64, complex128 = BY_NAME["complex64"], BY_NAME["complex128"]
bool_, string, resource, variant = (BY_NAME[n] for n in ("bool", "string", "resource", "variant"))
qint8, qint16, qint32 = (BY_NAME[n] for n in ("qint8", "qint16", "qint32"))
quint8, quint16 = BY_NAME["quint8"], BY_NAME["quint16"]
half, double = float16, float64
BY_NAME["half"], BY_NAME["double"], BY_NAME["float"] = float16, float64, float32
BY_NAME["half_ref"], BY_NAME["double_ref"], BY_NAME["float_ref"] = (
    d._as_ref for d in (float16, float64, float32)
)

_BY_NUMPY: dict[Any, DType] = {}
for _name, _number, _numpy in _TABLE:
    if not _name.startswith("q") and _numpy is not object:
        _BY_NUMPY[np.dtype(_numpy)] = BY_NUMBER[_number]
_BY_PYTHON: dict[Any, DType] = {
    float: float32,
    int: int32,
    bool: bool_,
    complex: complex128,
    str: string,
    bytes: string,
    object: string,
}


def as_dtype(value: Any) -> DType:
    """The DType of a DType, a TensorFlow name or number, a NumPy dtype or scalar type, or a Python type.

    Raises:
      TypeError: there is none.
    """
    if value.__class__ is DType:
        return value
    try:
        found = _BY_PYTHON.get(value)
        if found is None and isinstance(value, (int, np.integer)) and not isinstance(value, bool):
            found = BY_NUMBER.get(int(value))
        if found is None and isinstance(value, str):
            found = BY_NAME.get(value)
    except TypeError:
        found = None
    if found is not None:
        return found
    number = getattr(value, "as_datatype_enum", None)  # a DType of real TensorFlow
    if isinstance(number, int) and number in BY_NUMBER:
        return BY_NUMBER[number]
    try:
        numpy_form = np.dtype(value)
    except TypeError:
        numpy_form = None
    if numpy_form is not None:
        if numpy_form.kind in "SUO":
            return string
        if numpy_form in _BY_NUMPY:
            return _BY_NUMPY[numpy_form]
    raise TypeError(
        f"cannot convert {value!r} to a dtype: use a tf dtype (tf.float32), a name ('float32'), "
        "a NumPy dtype or a Python type"
    )


def of_array(array: np.ndarray) -> DType:
    """The DType of a NumPy array; object and text arrays are string."""
    found = _BY_NUMPY.get(array.dtype)
    return found if found is not None else as_dtype(array.dtype)


# Sets that signatures name.
FLOATS = (bfloat16, half, float32, float64)
COMPLEX = (complex64, complex128)
INTEGERS = (int8, int16, int32, int64, uint8, uint16, uint32, uint64)
INDEX = (int32, int64)
REAL = FLOATS + INTEGERS
QUANTIZED = (qint8, quint8, qint16, quint16, qint32)
NUMBERS = REAL + COMPLEX + QUANTIZED  # TensorFlow's "numbertype"
