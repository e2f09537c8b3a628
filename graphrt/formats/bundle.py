"""Tensor bundles: TensorFlow's checkpoints of format V2, written.

A bundle `prefix` is `prefix.index`, a table of BundleEntryProto by tensor name (dtype, shape, where its
bytes are, their checksum), and data files `prefix.data-SSSSS-of-NNNNN`. A tensor's bytes are its elements
in row-major order. A string tensor's are the lengths as varints, a checksum of those, then the strings. A
part of a larger tensor has an entry of its own under an ordered-code key; the whole's entry lists the
parts.

The index is what makes a bundle: data is written and synced first, under names that no bundle uses yet, and
the index takes its name last. So a writer that dies leaves the last bundle as it was, also where it wrote
over one: then the number of data files in the new names differs from that in the old ones, which are
removed last.

Read `bundle_reader.py` for the way back.
"""

from __future__ import annotations

import os
import struct
from typing import Any

import numpy as np

from graphrt.core.dtypes import DType, string
from graphrt.core.errors import AlreadyExistsError, InvalidArgumentError, NotFoundError, UnimplementedError
from graphrt.formats import varints
from graphrt.formats.atomic_files import AtomicFile, os_error
from graphrt.formats.bundle_index import (
    data_files,
    data_name,
    index_name,
    read_index,
    remove_files,
    unused_shard_count,
    write_index,
)
from graphrt.formats.crc32c import crc32c, masked
from graphrt.formats.ordered_code import slice_key
from graphrt.formats.slices import TensorSlice

# Bytes that are copied, summed and written at a time.
_PIECE = 1 << 20


class BundleWriter:
    """Writes a bundle of one shard. Use it in a `with`: an error discards what was written.

    A tensor's memory is read once, a piece at a time; a piece is copied before it is summed, so that a
    variable that is updated meanwhile gives a mixture of its values, as it does in TensorFlow, and never a
    wrong checksum.
    """

    def __init__(self, prefix: str) -> None:
        from graphrt.protos import tensor_bundle_pb2

        self._messages = tensor_bundle_pb2
        self._prefix = prefix
        self._entries: dict[bytes, Any] = {}
        self._offset = 0
        self._buffer = np.empty(_PIECE, np.uint8)
        self._data = AtomicFile(data_name(prefix, 0, 1))

    def add(self, name: str, tensor: np.ndarray, dtype: DType) -> None:
        """Add a tensor.

        Raises:
          AlreadyExistsError: one of that name was added.
          UnimplementedError: its dtype has no bytes.
        """
        self._add(name.encode(), name, tensor, dtype)

    def add_slice(
        self, name: str, full_shape: tuple[int, ...], part: TensorSlice, tensor: np.ndarray, dtype: DType
    ) -> None:
        """Add a part of the tensor `name` of `full_shape`.

        Raises:
          InvalidArgumentError: the part's shape is not the tensor's, or parts of one tensor disagree about
            it.
        """
        if part.shape(full_shape) != tensor.shape:
            raise InvalidArgumentError(
                None,
                None,
                f"'{name}': the slice {part} of a tensor of shape {list(full_shape)} has the "
                f"shape {list(part.shape(full_shape))}, the value {list(tensor.shape)}",
            )
        if part.is_whole(full_shape):
            self.add(name, tensor, dtype)
            return
        entry = self._entries.get(name.encode())
        if entry is None:
            entry = self._entries[name.encode()] = self._described(full_shape, dtype)
        elif (
            not entry.slices
            or tuple(d.size for d in entry.shape.dim) != full_shape
            or entry.dtype != dtype.number
        ):
            raise InvalidArgumentError(
                None,
                None,
                f"'{name}': its slices are not of one tensor: {dtype.name} "
                f"{list(full_shape)} comes after another dtype or shape",
            )
        part.fill_proto(entry.slices.add())
        self._add(slice_key(name, part), f"{name} {part}", tensor, dtype)

    def _described(self, shape: tuple[int, ...], dtype: DType) -> Any:
        entry = self._messages.BundleEntryProto(dtype=dtype.number)
        for size in shape:
            entry.shape.dim.add(size=size)
        entry.shape.SetInParent()
        return entry

    def _add(self, key: bytes, name: str, tensor: np.ndarray, dtype: DType) -> None:
        if not key:
            raise InvalidArgumentError(None, None, "a tensor's name in a checkpoint may not be empty")
        if key in self._entries:
            raise AlreadyExistsError(None, None, f"Adding duplicate key: {name}")
        entry = self._described(tensor.shape, dtype)
        start = self._offset
        if dtype is string:
            crc = self._write_strings(tensor)
        elif dtype.is_object:
            raise UnimplementedError(
                None, None, f"'{name}' is {dtype.name}: a checkpoint cannot hold such tensors"
            )
        else:
            crc = self._write_elements(tensor)
        entry.offset, entry.size, entry.crc32c = start, self._offset - start, masked(crc)
        self._entries[key] = entry

    def _write(self, piece: Any) -> None:
        self._data.write(piece)
        self._offset += len(piece)

    def _write_elements(self, tensor: np.ndarray) -> int:
        flat = np.ascontiguousarray(tensor).reshape(-1).view(np.uint8)
        crc = 0
        for at in range(0, flat.size, _PIECE):
            count = min(_PIECE, flat.size - at)
            piece = self._buffer[:count]
            piece[:] = flat[at : at + count]
            crc = crc32c(piece, crc)
            self._write(piece)
        return crc

    def _write_strings(self, tensor: np.ndarray) -> int:
        items = tensor.reshape(-1).tolist()
        lengths = [len(item) for item in items]
        # Lengths are summed as numbers of four bytes, those that need it of eight.
        crc = crc32c(b"".join(struct.pack("<I" if n < 1 << 32 else "<Q", n) for n in lengths))
        checksum = struct.pack("<I", masked(crc))
        self._write(b"".join(varints.encode(n) for n in lengths) + checksum)
        crc = crc32c(checksum, crc)
        batch: list[bytes] = []
        size = 0
        for item in items:
            batch.append(item)
            size += len(item)
            if size >= _PIECE:
                crc = self._write_batch(batch, crc)
                batch, size = [], 0
        return self._write_batch(batch, crc)

    def _write_batch(self, batch: list[bytes], crc: int) -> int:
        joined = b"".join(batch)
        self._write(joined)
        return crc32c(joined, crc)

    def finish(self) -> None:
        """All is written: give the files their names, the index last."""
        self._data.finish()
        old = data_files(self._prefix)
        shards = unused_shard_count(self._prefix, 1)
        new = [data_name(self._prefix, shard, shards) for shard in range(shards)]
        self._data.commit(new[0])
        for path in new[1:]:
            with AtomicFile(path):
                pass  # an empty shard: it only completes the count
        write_index(self._prefix, self._entries, shards)
        remove_files(f for f in old if f not in new)

    def __enter__(self) -> BundleWriter:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is None:
            self.finish()
        else:
            self._data.discard()


def merge_bundles(prefixes: list[str], merged: str, allow_missing_files: bool = False) -> None:
    """Make one bundle `merged` of several: their data files are renamed, their indexes become one.

    Raises:
      NotFoundError: one of them does not exist, unless `allow_missing_files`.
      AlreadyExistsError: a tensor is in two of them.
      InvalidArgumentError: parts of one tensor disagree about its dtype or shape.
    """
    entries: dict[bytes, Any] = {}
    moves: list[str] = []
    found = [p for p in prefixes if not allow_missing_files or os.path.exists(index_name(p))]
    if not found:
        raise NotFoundError(None, None, f"no checkpoint to merge into {merged}: none of {prefixes} exists")
    for prefix in found:
        read, header = read_index(prefix)
        numbers: dict[int, int] = {}
        for key, entry in read:
            if entry.slices:
                _merge_whole(entries, key, entry, prefix)
                continue
            if key in entries:
                raise AlreadyExistsError(
                    None,
                    None,
                    f"'{key.decode(errors='backslashreplace')}' is in several of the "
                    f"checkpoints that are merged into {merged}",
                )
            if entry.shard_id not in numbers:
                numbers[entry.shard_id] = len(moves)
                moves.append(data_name(prefix, entry.shard_id, header.num_shards))
            entry.shard_id = numbers[entry.shard_id]
            entries[key] = entry
    old = data_files(merged)
    shards = unused_shard_count(merged, max(1, len(moves)))
    new = [data_name(merged, shard, shards) for shard in range(shards)]
    for source, target in zip(moves, new):
        try:
            os.replace(source, target)
        except OSError as error:
            raise os_error(error, source) from None
    for path in new[len(moves) :]:
        with AtomicFile(path):
            pass
    write_index(merged, entries, shards)
    remove_files([f for f in old if f not in new])
    for prefix in found:
        remove_files([index_name(prefix), *data_files(prefix)])


def _merge_whole(entries: dict[bytes, Any], key: bytes, entry: Any, prefix: str) -> None:
    """Add the parts that `entry` lists to those that are known of its tensor."""
    known = entries.setdefault(key, entry)
    if known is entry:
        return
    if not known.slices or known.dtype != entry.dtype or known.shape != entry.shape:
        raise InvalidArgumentError(
            None,
            None,
            f"'{key.decode(errors='backslashreplace')}' in {prefix} is of another dtype or "
            "shape than in the checkpoints that it is merged with",
        )
    known.slices.extend(entry.slices)
