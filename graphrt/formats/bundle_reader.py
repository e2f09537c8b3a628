"""Tensor bundles read: `BundleReader(prefix)` gives tensors and parts of them; see `bundle.py` for what
they are.

The index is read at once, data when it is asked for, a piece at a time into its place. Checksums are always
checked.
"""

from __future__ import annotations

import struct
from typing import Any, BinaryIO

import numpy as np

from graphrt.core.dtypes import BY_NUMBER, DType, string
from graphrt.core.errors import DataLossError, InvalidArgumentError, NotFoundError, UnimplementedError
from graphrt.formats import varints
from graphrt.formats.atomic_files import os_error
from graphrt.formats.bundle_index import data_name, index_name, read_index
from graphrt.formats.crc32c import crc32c, masked
from graphrt.formats.ordered_code import slice_key
from graphrt.formats.slices import TensorSlice, assembled

_PIECE = 1 << 20


class BundleReader:
    """A bundle. Close it, or use it in a `with`.

    Raises:
      NotFoundError: there is no such bundle.
      DataLossError: its index is damaged.
    """

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        entries, header = read_index(prefix)
        self._entries = dict(entries)
        self._shards = header.num_shards
        self._files: dict[int, BinaryIO] = {}

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        self._files.clear()

    def __enter__(self) -> BundleReader:
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    # -- what there is
    # -----------------------------------------------------------------------------------------

    def names(self) -> list[str]:
        """The tensors' names, in order."""
        return [k.decode(errors="surrogateescape") for k in self._entries if not k.startswith(b"\0")]

    def __contains__(self, name: str) -> bool:
        return bool(name) and name.encode(errors="surrogateescape") in self._entries

    def _entry(self, name: str) -> Any:
        entry = self._entries.get(name.encode(errors="surrogateescape"))
        if entry is None:
            raise NotFoundError(None, None, f"Key {name} not found in checkpoint {self.prefix}")
        return entry

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(d.size for d in self._entry(name).shape.dim)

    def dtype(self, name: str) -> DType:
        return BY_NUMBER[self._entry(name).dtype]

    def slices(self, name: str) -> list[TensorSlice]:
        """The parts in which a tensor is stored; none where it is stored whole."""
        try:
            return [TensorSlice.from_proto(p) for p in self._entry(name).slices]
        except ValueError as error:
            raise DataLossError(
                None, None, f"{index_name(self.prefix)} is damaged: '{name}': {error}"
            ) from None

    # -- values
    # ------------------------------------------------------------------------------------------------

    def read(self, name: str) -> np.ndarray:
        """The tensor `name`, put together where it is stored in parts.

        Raises:
          NotFoundError: there is none.
          DataLossError: its bytes are damaged or missing; the message has the file and the offset.
        """
        if self._entry(name).slices:
            return self.read_slice(name, TensorSlice.whole(len(self.shape(name))))
        return self._value(name, self._entry(name))

    def read_slice(self, name: str, part: TensorSlice) -> np.ndarray:
        """A part of the tensor `name`, put together of the parts that it is stored in.

        Raises:
          InvalidArgumentError: the part is not in the tensor.
          NotFoundError: the stored parts do not cover it.
        """
        full_shape = self.shape(name)
        try:
            box = part.box(full_shape)
        except ValueError as error:
            raise InvalidArgumentError(None, None, f"'{name}' in {self.prefix}: {error}") from None
        stored = self.slices(name)
        if not stored:
            whole = self._value(name, self._entry(name))
            return whole if part.is_whole(full_shape) else whole[box].copy()
        if part in stored:
            return self._part(name, part, full_shape)
        try:
            made = assembled(
                part,
                full_shape,
                self.dtype(name).np,
                stored,
                lambda i: self._part(name, stored[i], full_shape),
            )
        except ValueError as error:
            raise DataLossError(
                None, None, f"{index_name(self.prefix)} is damaged: '{name}': {error}"
            ) from None
        if made is None:
            raise NotFoundError(
                None, None, f"the slices of '{name}' in checkpoint {self.prefix} do not cover {part}"
            )
        return made

    def _part(self, name: str, part: TensorSlice, full_shape: tuple[int, ...]) -> np.ndarray:
        entry = self._entries.get(slice_key(name, part))
        if entry is None or entry.dtype != self._entry(name).dtype:
            raise DataLossError(
                None,
                None,
                f"{index_name(self.prefix)} is damaged: the slice {part} of '{name}' has no entry of "
                "its dtype",
            )
        value = self._value(f"{name} {part}", entry)
        if value.shape != part.shape(full_shape):
            raise DataLossError(
                None,
                None,
                f"{index_name(self.prefix)} is damaged: the slice {part} of '{name}' has the shape "
                f"{list(value.shape)}",
            )
        return value

    def _file(self, shard: int) -> BinaryIO:
        file = self._files.get(shard)
        if file is None:
            path = data_name(self.prefix, shard, self._shards)
            try:
                file = self._files[shard] = open(path, "rb", buffering=0)  # noqa: SIM115 - closed by close
            except OSError as error:
                raise os_error(error, path) from None
        return file

    def _value(self, name: str, entry: Any) -> np.ndarray:
        dtype, shape = BY_NUMBER[entry.dtype], tuple(d.size for d in entry.shape.dim)
        count = 1
        for size in shape:
            count *= size
        file, path = self._file(entry.shard_id), data_name(self.prefix, entry.shard_id, self._shards)
        length = file.seek(0, 2)
        where = f"'{name}' ({dtype.name} {list(shape)}) at byte {entry.offset} of {path}"
        if entry.offset + entry.size > length:
            raise DataLossError(
                None, None, f"{where}: its {entry.size} bytes do not fit into a file of {length}"
            )
        if dtype is string:
            flat = self._read_strings(file, entry, count, where)
        elif dtype.is_object:
            raise UnimplementedError(None, None, f"{where}: {dtype.name} tensors cannot be read")
        else:
            if entry.size != count * dtype.np.itemsize:
                raise DataLossError(
                    None, None, f"{where}: it has {entry.size} bytes, not {count * dtype.np.itemsize}"
                )
            flat = np.empty(count, dtype.np)
            file.seek(entry.offset)
            if masked(self._read_into(file, flat.view(np.uint8), where)) != entry.crc32c:
                raise DataLossError(
                    None, None, f"{where}: the checksum of its {entry.size} bytes does not fit"
                )
        try:
            return flat.reshape(shape)
        except ValueError as error:  # an empty tensor of an impossible shape
            raise DataLossError(None, None, f"{where}: {error}") from None

    def _read_into(self, file: BinaryIO, into: np.ndarray, where: str) -> int:
        """Fill `into` from the file's position on. Returns the checksum of what was read."""
        crc = at = 0
        while at < into.size:
            piece = into[at : at + _PIECE]
            got = file.readinto(memoryview(piece))  # type: ignore[attr-defined]
            if not got:
                raise DataLossError(None, None, f"{where}: the file ends after {at} bytes")
            crc = crc32c(piece[:got], crc)
            at += got
        return crc

    def _read_strings(self, file: BinaryIO, entry: Any, count: int, where: str) -> np.ndarray:
        if count > entry.size:
            raise DataLossError(None, None, f"{where}: {entry.size} bytes cannot hold {count} strings")
        content = np.empty(entry.size, np.uint8)
        file.seek(entry.offset)
        self._read_into(file, content, where)
        view = memoryview(content)
        lengths, at = [], 0
        try:
            for _ in range(count):
                length, at = varints.decode(view, at)
                lengths.append(length)
        except ValueError:
            raise DataLossError(None, None, f"{where}: the lengths of its strings are not numbers") from None
        crc = crc32c(b"".join(struct.pack("<I" if n < 1 << 32 else "<Q", n) for n in lengths))
        if at + 4 + sum(lengths) != entry.size:
            raise DataLossError(None, None, f"{where}: its strings do not fill its {entry.size} bytes")
        if struct.unpack("<I", view[at : at + 4])[0] != masked(crc):
            raise DataLossError(
                None, None, f"{where}: the checksum of the lengths of its strings does not fit"
            )
        if masked(crc32c(content[at:], crc)) != entry.crc32c:
            raise DataLossError(None, None, f"{where}: the checksum of its {entry.size} bytes does not fit")
        flat = np.empty(count, object)
        at += 4
        for i, length in enumerate(lengths):
            flat[i] = bytes(view[at : at + length])
            at += length
        return flat
