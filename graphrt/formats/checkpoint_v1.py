"""Checkpoints of format V1: a table whose first entry lists the tensors and their slices, one entry a slice
after it.

Values are TensorProto messages inside SavedTensorSlices. TensorFlow compresses these tables by snappy; the
writer here does not.
"""

from __future__ import annotations

import glob
import math
import os
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

from graphrt.core.dtypes import BY_NUMBER, DType
from graphrt.core.errors import (
    AlreadyExistsError,
    DataLossError,
    InvalidArgumentError,
    NotFoundError,
    UnimplementedError,
)
from graphrt.formats.atomic_files import AtomicFile, os_error, sync_directory
from graphrt.formats.ordered_code import slice_key
from graphrt.formats.slices import TensorSlice, assembled
from graphrt.formats.table import TableReader, TableWriter

_LIST_KEY = b""
_VERSION = 1
# dtype -> the repeated field of a TensorProto that holds its values.
_FIELDS = {
    "float32": "float_val",
    "float64": "double_val",
    "int64": "int64_val",
    "bool": "bool_val",
    "string": "string_val",
    "complex64": "scomplex_val",
    "complex128": "dcomplex_val",
    "float16": "half_val",
    "bfloat16": "half_val",
    "uint32": "uint32_val",
    "uint64": "uint64_val",
    **dict.fromkeys(
        ("int32", "int16", "int8", "uint16", "uint8", "qint32", "qint8", "quint8", "qint16", "quint16"),
        "int_val",
    ),
}


def _field(name: str, dtype: DType) -> str:
    field = _FIELDS.get(dtype.name)
    if field is None:
        raise UnimplementedError(
            None, None, f"'{name}' is {dtype.name}: a checkpoint of format V1 cannot hold such tensors"
        )
    return field


def write_checkpoint(
    path: str, tensors: list[tuple[str, tuple[int, ...], TensorSlice, np.ndarray, DType]]
) -> None:
    """Write (name, full shape, slice, value, dtype) of each tensor or part of one to a file of format V1.

    Raises:
      AlreadyExistsError: a slice comes twice.
      InvalidArgumentError: a value has not the shape of its slice, or slices of one tensor disagree about it.
    """
    from graphrt.protos import saved_tensor_slice_pb2

    first = saved_tensor_slice_pb2.SavedTensorSlices()
    first.meta.versions.producer = _VERSION
    listed: dict[str, Any] = {}
    rows: dict[bytes, tuple[str, TensorSlice, np.ndarray, DType]] = {}
    for name, full_shape, part, value, dtype in tensors:
        if part.shape(full_shape) != value.shape:
            raise InvalidArgumentError(
                None,
                None,
                f"'{name}': the slice {part} of a tensor of shape {list(full_shape)} is not of "
                f"shape {list(value.shape)}",
            )
        meta = listed.get(name)
        if meta is None:
            meta = listed[name] = first.meta.tensor.add(name=name, type=dtype.number)
            for size in full_shape:
                meta.shape.dim.add(size=size)
            meta.shape.SetInParent()
        elif meta.type != dtype.number or tuple(d.size for d in meta.shape.dim) != full_shape:
            raise InvalidArgumentError(None, None, f"'{name}': its slices are not of one tensor")
        part.fill_proto(meta.slice.add())
        key = slice_key(name, part)
        if key in rows:
            raise AlreadyExistsError(None, None, f"the slice {part} of '{name}' comes twice")
        rows[key] = name, part, value, dtype
    with AtomicFile(path) as file:
        table = TableWriter(file)
        table.add(_LIST_KEY, first.SerializeToString())
        for key in sorted(rows):
            name, part, value, dtype = rows[key]
            row = saved_tensor_slice_pb2.SavedTensorSlices()
            row.data.name = name
            row.data.slice.SetInParent()
            part.fill_proto(row.data.slice)
            _fill(row.data.data, _field(name, dtype), value, dtype)
            table.add(key, row.SerializeToString())
        table.finish()
    sync_directory(path)


def _fill(proto: Any, field: str, value: np.ndarray, dtype: DType) -> None:
    flat = np.ascontiguousarray(value).reshape(-1)
    if dtype.is_complex:
        flat = flat.view(np.float32 if dtype.name == "complex64" else np.float64)
    elif field == "half_val":
        flat = flat.view(np.uint16)
    getattr(proto, field).extend(flat.tolist())


class CheckpointV1Reader:
    """The tensors of the V1 files that `pattern` (a name, with wildcards) matches.

    Raises:
      NotFoundError: it matches no file.
      DataLossError: a file is no checkpoint, or is damaged.
    """

    def __init__(self, pattern: str) -> None:
        self.prefix = pattern
        paths = [pattern] if os.path.isfile(pattern) else sorted(glob.glob(pattern))
        if not paths:
            raise NotFoundError(
                None,
                None,
                f"Unsuccessful TensorSliceReader constructor: Failed to find any matching files for "
                f"{pattern}",
            )
        self._files: list[Any] = []
        # name -> (dtype, shape, [(slice, number of its file)])
        self._tensors: dict[str, tuple[DType, tuple[int, ...], list[tuple[TensorSlice, int]]]] = {}
        self._tables: list[tuple[str, TableReader]] = []
        try:
            for path in paths:
                self._open(path)
        except BaseException:
            self.close()
            raise

    def _open(self, path: str) -> None:
        try:
            file = open(path, "rb")  # noqa: SIM115 - closed by close
        except OSError as error:
            raise os_error(error, path) from None
        self._files.append(file)
        table = TableReader(file, path)
        listed = _parsed(path, table.get(_LIST_KEY), "its list of tensors")
        for meta in listed.meta.tensor:
            if (
                meta.type not in BY_NUMBER
                or meta.shape.unknown_rank
                or any(d.size < 0 for d in meta.shape.dim)
            ):
                raise DataLossError(
                    None, None, f"{path} is damaged: '{meta.name}' has an impossible dtype or shape"
                )
            found = self._tensors.setdefault(
                meta.name, (BY_NUMBER[meta.type], tuple(d.size for d in meta.shape.dim), [])
            )
            try:
                found[2].extend((TensorSlice.from_proto(p), len(self._tables)) for p in meta.slice)
            except ValueError as error:
                raise DataLossError(None, None, f"{path} is damaged: '{meta.name}': {error}") from None
        self._tables.append((path, table))

    def close(self) -> None:
        for file in self._files:
            file.close()

    def __enter__(self) -> CheckpointV1Reader:
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    def names(self) -> list[str]:
        return sorted(self._tensors)

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def _found(self, name: str) -> tuple[DType, tuple[int, ...], list[tuple[TensorSlice, int]]]:
        found = self._tensors.get(name)
        if found is None:
            raise NotFoundError(
                None, None, f'Tensor name "{name}" not found in checkpoint files {self.prefix}'
            )
        return found

    def shape(self, name: str) -> tuple[int, ...]:
        return self._found(name)[1]

    def dtype(self, name: str) -> DType:
        return self._found(name)[0]

    def slices(self, name: str) -> list[TensorSlice]:
        """The parts in which a tensor is stored; none where it is stored whole."""
        shape = self.shape(name)
        made = [part for part, _ in self._found(name)[2]]
        return [] if len(made) == 1 and made[0] == TensorSlice.whole(len(shape)) else made

    def read(self, name: str) -> np.ndarray:
        """The tensor `name`. Raises NotFoundError and DataLossError."""
        return self.read_slice(name, TensorSlice.whole(len(self.shape(name))))

    def read_slice(self, name: str, part: TensorSlice) -> np.ndarray:
        """A part of the tensor `name`, put together of the parts that it is stored in."""
        dtype, full_shape, stored = self._found(name)
        try:
            part.box(full_shape)
        except ValueError as error:
            raise InvalidArgumentError(None, None, f"'{name}' in {self.prefix}: {error}") from None
        parts = [p for p, _ in stored]
        try:
            made = assembled(
                part,
                full_shape,
                dtype.np,
                parts,
                lambda i: self._value(*self._tables[stored[i][1]], name, parts[i], dtype, full_shape),
            )
        except ValueError as error:
            raise DataLossError(None, None, f"{self.prefix} is damaged: '{name}': {error}") from None
        if made is None:
            raise NotFoundError(
                None, None, f"the slices of '{name}' in checkpoint {self.prefix} do not cover {part}"
            )
        return made

    def _value(
        self,
        path: str,
        table: TableReader,
        name: str,
        part: TensorSlice,
        dtype: DType,
        full_shape: tuple[int, ...],
    ) -> np.ndarray:
        row = _parsed(path, table.get(slice_key(name, part)), f"the slice {part} of '{name}'")
        proto, shape = row.data.data, part.shape(full_shape)
        field = _field(name, dtype)
        items = getattr(proto, field)
        count = math.prod(shape) * (2 if dtype.is_complex else 1)
        if len(items) != count:
            raise DataLossError(
                None,
                None,
                f"{path} is damaged: the slice {part} of '{name}' has {len(items)} values, not "
                f"{count} of {dtype.name}",
            )
        try:
            if dtype.is_object:
                flat = np.empty(count, object)
                flat[:] = list(items)
            elif dtype.is_complex:
                flat = np.array(items, np.float32 if dtype.name == "complex64" else np.float64).view(dtype.np)
            elif field == "half_val":
                flat = np.array(items, np.uint16).view(dtype.np)
            else:
                flat = np.array(items, dtype.np)
        except (OverflowError, ValueError) as error:
            raise DataLossError(
                None, None, f"{path} is damaged: the slice {part} of '{name}': {error}"
            ) from None
        return flat.reshape(shape)


def _parsed(path: str, value: bytes | None, what: str) -> Any:
    from graphrt.protos import saved_tensor_slice_pb2

    made = saved_tensor_slice_pb2.SavedTensorSlices()
    try:
        if value is None:
            raise DecodeError
        made.ParseFromString(value)
    except DecodeError:
        raise DataLossError(
            None, None, f"{path} is no checkpoint of format V1, or is damaged: {what} is missing"
        ) from None
    return made
