"""TensorProto to NumPy and back, as TensorFlow writes them: raw bytes in `tensor_content`, or repeated
values of which the last fills the rest. A scalar and a string go into the repeated fields."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphrt.core.convert import make_array
from graphrt.core.dtypes import BY_NUMBER, DType, as_dtype, of_array
from graphrt.core.errors import InvalidArgumentError
from graphrt.core.shapes import TensorShape

# dtype name -> the repeated field that holds its values.
_FIELDS = {
    "float32": "float_val",
    "float64": "double_val",
    "int32": "int_val",
    "int16": "int_val",
    "int8": "int_val",
    "uint8": "int_val",
    "uint16": "int_val",
    "qint8": "int_val",
    "quint8": "int_val",
    "qint32": "int_val",
    "qint16": "int_val",
    "quint16": "int_val",
    "int4": "int_val",
    "uint4": "int_val",
    "int64": "int64_val",
    "bool": "bool_val",
    "complex64": "scomplex_val",
    "complex128": "dcomplex_val",
    "float16": "half_val",
    "bfloat16": "half_val",
    "uint32": "uint32_val",
    "uint64": "uint64_val",
    "string": "string_val",
}
MAX_BYTES = 1 << 40


def to_proto(array: np.ndarray, dtype: DType | None = None) -> Any:
    """The TensorProto of an array."""
    from graphrt.protos import tensor_pb2

    array = np.asarray(array)
    dtype = (dtype or of_array(array)).base_dtype
    made = tensor_pb2.TensorProto(dtype=dtype.number)
    for size in array.shape:
        made.tensor_shape.dim.add(size=size)
    if dtype.name == "string":
        made.string_val.extend(array.ravel().tolist())
    elif dtype.is_object:
        raise TypeError(f"a {dtype.name} tensor has no TensorProto")
    elif array.size == 1 and dtype.name in _FIELDS:
        _fill_one(made, array.reshape(()), dtype)
    else:
        made.tensor_content = np.ascontiguousarray(array, dtype.np).tobytes()
    return made


def _fill_one(made: Any, array: np.ndarray, dtype: DType) -> None:
    values = getattr(made, _FIELDS[dtype.name])
    if dtype.is_complex:
        values.extend([float(array.real), float(array.imag)])
    elif dtype.name in ("float16", "bfloat16"):
        values.append(int(array.view(np.uint16)))
    elif dtype.is_floating:
        values.append(float(array))
    elif dtype.is_bool:
        values.append(bool(array))
    else:
        values.append(int(array))


def to_array(proto: Any) -> np.ndarray:
    """The array of a TensorProto (ours or TensorFlow's).

    Raises:
      InvalidArgumentError: an unknown dtype, an unknown or negative shape, or content that does not fit the
      shape.
    """
    dtype = BY_NUMBER.get(proto.dtype)
    if dtype is None or dtype.is_ref:
        raise InvalidArgumentError(None, None, f"a TensorProto has the unknown dtype {proto.dtype}")
    if proto.tensor_shape.unknown_rank:
        raise InvalidArgumentError(None, None, "a TensorProto has a shape of unknown rank")
    shape = tuple(d.size for d in proto.tensor_shape.dim)
    count = 1
    for size in shape:
        if size < 0:
            raise InvalidArgumentError(None, None, f"a TensorProto has the negative size {size}")
        count *= size
    if count * dtype.size > MAX_BYTES:
        raise InvalidArgumentError(
            None, None, f"a TensorProto claims {count} elements of {dtype.name}: more than memory"
        )
    try:
        return _content(proto, dtype, shape, count)
    except (ValueError, OverflowError) as error:
        raise InvalidArgumentError(
            None, None, f"a TensorProto of {dtype.name} {shape} is malformed: {error}"
        ) from None


def _content(proto: Any, dtype: DType, shape: tuple[int, ...], count: int) -> np.ndarray:
    if dtype.name == "string":
        items = list(proto.string_val) or _packed_strings(proto.tensor_content, count)
        return _filled(items, object, shape, count, b"")
    if dtype.is_object:
        raise ValueError(f"{dtype.name} tensors do not travel as values")
    if proto.tensor_content:
        if len(proto.tensor_content) != count * dtype.np.itemsize:
            raise ValueError(
                f"{len(proto.tensor_content)} bytes of content where {count * dtype.np.itemsize} fit"
            )
        return np.frombuffer(proto.tensor_content, dtype.np).reshape(shape).copy()
    values = (
        getattr(proto, _FIELDS[dtype.name])
        if dtype.name in _FIELDS
        else np.frombuffer(proto.float8_val, dtype.np)
    )
    if dtype.is_complex:
        items: Any = np.array(values, np.float64).view(np.complex128).astype(dtype.np)
    elif dtype.name in ("float16", "bfloat16"):
        items = np.array(values, np.uint16).view(dtype.np)
    else:
        items = np.array(values).astype(dtype.np) if len(values) else np.empty(0, dtype.np)
    return _filled(items, dtype.np, shape, count, 0)


def _filled(items: Any, kind: Any, shape: tuple[int, ...], count: int, missing: Any) -> np.ndarray:
    n = len(items)
    if n > count:
        raise ValueError(f"{n} values where {count} fit")
    made = np.empty(count, kind)
    made[:n] = items
    made[n:] = items[n - 1] if n else missing
    return made.reshape(shape)


def _packed_strings(content: bytes, count: int) -> list[bytes]:
    """Strings as RecvTensor sends them in `tensor_content`: their lengths as varints, then their bytes."""
    if not content:
        return []
    lengths, at = [], 0
    if count > len(content):
        raise ValueError("fewer bytes than strings")
    for _ in range(count):
        n, shift = 0, 0
        while True:
            if at >= len(content) or shift > 63:
                raise ValueError("a string's length is cut off")
            byte = content[at]
            at += 1
            n |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        lengths.append(n)
    items = []
    for n in lengths:
        if at + n > len(content):
            raise ValueError("a string is cut off")
        items.append(content[at : at + n])
        at += n
    return items


def make_tensor_proto(
    values: Any,
    dtype: Any = None,
    shape: Any = None,
    verify_shape: bool = False,
    allow_broadcast: bool = False,
) -> Any:
    """The TensorProto of a Python or NumPy value: `tf.make_tensor_proto`."""
    kind = None if dtype is None else as_dtype(dtype)
    return to_proto(make_array(values, kind, shape, verify_shape), kind)


def make_ndarray(tensor: Any) -> np.ndarray:
    """The NumPy array of a TensorProto: `tf.make_ndarray`."""
    return to_array(tensor)


def shape_proto(shape: TensorShape) -> Any:
    from graphrt.protos import tensor_shape_pb2

    if shape.sizes is None:
        return tensor_shape_pb2.TensorShapeProto(unknown_rank=True)
    made = tensor_shape_pb2.TensorShapeProto()
    for size in shape.sizes:
        made.dim.add(size=-1 if size is None else size)
    return made
