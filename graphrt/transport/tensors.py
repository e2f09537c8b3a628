"""Tensors as bytes, with as few copies as can be.

`pack` and `unpack` are graphrt's own form: a header of 64-byte blocks, then the array's memory. The others
are protobuf's, written and read by hand around a memoryview: building the messages would copy an array two or
three times."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import numpy as np

from graphrt.core.dtypes import BY_NUMBER, of_array
from graphrt.core.errors import InvalidArgumentError
from graphrt.core.tensor_proto import to_array, to_proto

_HEADER = struct.Struct("<BBBxI")
_IN_PROTO, _DEAD = 1, 2
_BLOCK = 64


def buffer_of(array: Any) -> memoryview:
    """The array's memory, C-contiguous, as bytes; copied only where it is not contiguous."""
    if not array.flags.c_contiguous:
        array = np.ascontiguousarray(array)
    return memoryview(array.reshape(-1).view(np.uint8)) if array.size else memoryview(b"")


def pack(value: Any, is_dead: bool = False) -> list[Any]:
    """The buffers of a tensor (or a dead one), in graphrt's form."""
    if is_dead:
        return [_HEADER.pack(_DEAD, 0, 0, 0).ljust(_BLOCK, b"\0")]
    array = value if value.__class__ is np.ndarray else np.asarray(value)
    dtype = of_array(array)
    if dtype.is_object:
        content = to_proto(array).SerializeToString()
        return [_HEADER.pack(_IN_PROTO, 0, 0, 0).ljust(_BLOCK, b"\0"), content]
    header = _HEADER.pack(0, dtype.number, array.ndim, 0) + struct.pack(f"<{array.ndim}q", *array.shape)
    return [header + b"\0" * (-len(header) % _BLOCK), buffer_of(array)]


def unpack(buffer: Any, is_copied: bool = True) -> tuple[Any, bool]:
    """(array, is_dead) of what `pack` made. The array is the buffer itself; a copy, where that cannot be
    written and `is_copied`, or where it is not aligned."""
    flags, number, rank, _ = _HEADER.unpack_from(buffer)
    if flags & _DEAD:
        return None, True
    if flags & _IN_PROTO:
        from graphrt.protos import tensor_pb2

        return to_array(tensor_pb2.TensorProto.FromString(bytes(buffer[_BLOCK:]))), False
    dtype = BY_NUMBER[number].np
    shape = struct.unpack_from(f"<{rank}q", buffer, _HEADER.size)
    size = _HEADER.size + 8 * rank
    array = np.frombuffer(buffer, np.uint8, offset=size + (-size % _BLOCK)).view(dtype).reshape(shape)
    flags = array.flags
    return (array if flags.aligned and (flags.writeable or not is_copied) else array.copy()), False


# -- protobuf by hand --------------------------------------------------------------------------------------


def varint(number: int) -> bytes:
    """A base-128 number; a negative one as its 64-bit form."""
    number &= 0xFFFFFFFFFFFFFFFF
    if number < 128:
        return bytes((number,))
    made = bytearray()
    while number > 127:
        made.append(number & 127 | 128)
        number >>= 7
    made.append(number)
    return bytes(made)


def read_varint(buffer: Any, at: int) -> tuple[int, int]:
    """(number, position after it). Raises InvalidArgumentError where it is cut off."""
    number = shift = 0
    try:
        while True:
            byte = buffer[at]
            at += 1
            number |= (byte & 127) << shift
            if byte < 128:
                return number, at
            shift += 7
            if shift > 63:
                break
    except IndexError:
        pass
    raise InvalidArgumentError(None, None, "a message is malformed: a number is cut off")


def length_field(number: int, size: int) -> bytes:
    """The key and length before a field of `size` bytes."""
    return varint(number << 3 | 2) + varint(size)


def int_field(number: int, value: int) -> bytes:
    return varint(number << 3) + varint(value)


def size_of(buffers: Any) -> int:
    """The bytes of a buffer or a list of them."""
    if buffers.__class__ is list:
        return sum(len(b) for b in buffers)
    return len(buffers)


def fields(buffer: Any) -> Iterator[tuple[int, Any, int, int]]:
    """(number, value, start, end) of each field of a message: an int, or a memoryview of what has a length.

    Raises:
      InvalidArgumentError: it is malformed.
    """
    view = memoryview(buffer)
    at, size = 0, len(view)
    while at < size:
        start = at
        key, at = read_varint(view, at)
        kind = key & 7
        value: Any
        if kind == 2:
            length, at = read_varint(view, at)
            value, at = view[at : at + length], at + length
        elif kind == 0:
            value, at = read_varint(view, at)
        elif kind in (1, 5):
            length = 8 if kind == 1 else 4
            value, at = view[at : at + length], at + length
        else:
            raise InvalidArgumentError(None, None, f"a message is malformed: wire type {kind}")
        if at > size:
            raise InvalidArgumentError(None, None, "a message is malformed: a field is cut off")
        yield key >> 3, value, start, at


def split(buffer: Any, number: int) -> tuple[list[Any], bytes]:
    """The contents of the message fields `number`, and the message without them: tensors are taken out before
    a parser copies them."""
    view = memoryview(buffer)
    taken, kept, at = [], [], 0
    for found, value, start, end in fields(view):
        if found == number:
            taken.append(_bytes(value))
            kept.append(view[at:start])
            at = end
    kept.append(view[at:])
    return taken, b"".join(kept)


def _bytes(value: Any) -> Any:
    """A field's value that must be bytes. Raises InvalidArgumentError for a number."""
    if value.__class__ is not memoryview:
        raise InvalidArgumentError(None, None, "a message is malformed: a number where bytes are due")
    return value


def _int(value: Any) -> int:
    if value.__class__ is not int:
        raise InvalidArgumentError(None, None, "a message is malformed: bytes where a number is due")
    return value


def tensor_proto(value: Any) -> list[Any]:
    """The buffers of a TensorProto."""
    array = value if value.__class__ is np.ndarray else np.asarray(value)
    dtype = of_array(array)
    if dtype.is_object or not array.size:
        return [to_proto(array).SerializeToString()]
    shape = b"".join([_dimension(n) for n in array.shape])
    content = buffer_of(array)
    head = b"\x08" + varint(dtype.number)
    if array.ndim:
        head += length_field(2, len(shape)) + shape
    return [head + length_field(4, len(content)), content]


def _dimension(size: int) -> bytes:
    inner = int_field(1, size) if size else b""
    return length_field(2, len(inner)) + inner


def read_tensor_proto(buffer: Any) -> Any:
    """The array of a TensorProto's bytes; it owns its memory.

    Raises:
      InvalidArgumentError: it is malformed.
    """
    number, sizes, content = 0, [], None
    for field, value, _, _ in fields(buffer):
        if field == 1:
            number = _int(value)
        elif field == 2:
            sizes = _sizes(_bytes(value))
        elif field == 4:
            content = _bytes(value)
        elif field != 3:
            content = None
            break
    dtype = BY_NUMBER.get(number)
    if (
        content is None
        or dtype is None
        or dtype.is_object
        or sizes is None
        or len(content) != _count(sizes) * dtype.np.itemsize
    ):
        from graphrt.protos import tensor_pb2

        return to_array(parse(tensor_pb2.TensorProto, buffer))
    return np.frombuffer(content, np.uint8).copy().view(dtype.np).reshape(sizes)


def _count(sizes: list[int]) -> int:
    count = 1
    for size in sizes:
        count *= size
    return count


def _sizes(shape: Any) -> list[int] | None:
    """The sizes of a TensorShapeProto; None where it is not of known rank."""
    sizes = []
    for field, value, _, _ in fields(shape):
        if field != 2:
            return None
        size = 0
        for inner, number, _, _ in fields(_bytes(value)):
            if inner == 1:
                size = _int(number)
        sizes.append(size)
    return sizes


def named_tensors(number: int, names: list[bytes], values: list[Any]) -> list[Any]:
    """The buffers of a repeated NamedTensorProto field."""
    made: list[Any] = []
    for name, value in zip(names, values):
        tensor = tensor_proto(value)
        size = size_of(tensor)
        head = length_field(1, len(name)) + name + length_field(2, size)
        made += [length_field(number, len(head) + size) + head, *tensor]
    return made


def read_named_tensor(buffer: Any) -> tuple[str, Any]:
    """(name, array) of a NamedTensorProto's bytes."""
    name, array = "", None
    for field, value, _, _ in fields(buffer):
        if field == 1:
            name = str(_bytes(value), "utf-8", "replace")
        elif field == 2:
            array = read_tensor_proto(_bytes(value))
    if array is None:
        raise InvalidArgumentError(None, None, f"the tensor '{name}' of a message has no value")
    return name, array


def recv_response(value: Any, is_dead: bool) -> list[Any]:
    """The buffers of a RecvTensorResponse."""
    if is_dead:
        # A dead tensor still says its dtype and shape: an empty float.
        return [b"\x0a\x06\x08\x01\x12\x02\x12\x00\x10\x01"]
    tensor = tensor_proto(value)
    return [length_field(1, size_of(tensor)), *tensor]


def read_recv_response(buffer: Any) -> tuple[Any, bool]:
    """(array, is_dead) of a RecvTensorResponse's bytes."""
    content, is_dead = memoryview(b""), False
    for field, value, _, _ in fields(buffer):
        if field == 1:
            content = _bytes(value)
        elif field == 2:
            is_dead = bool(_int(value))
    return (None, True) if is_dead else (read_tensor_proto(content), False)


def parse(kind: Any, buffer: Any) -> Any:
    """A message of `kind`. Raises InvalidArgumentError where the bytes are none."""
    from google.protobuf.message import DecodeError

    try:
        return kind.FromString(buffer if buffer.__class__ is bytes else bytes(buffer))
    except DecodeError as error:
        raise InvalidArgumentError(None, None, f"not a {kind.DESCRIPTOR.name}: {error}") from None
