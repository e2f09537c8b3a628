"""Sorted tables: the file under checkpoints' indexes, TensorFlow's form of LevelDB's.

    data block … | metaindex block | index block | footer (48 bytes)

A block is entries (how many bytes of the key the entry shares with the one before, how many are its own, the
value's length, those bytes), the offsets of entries that share nothing (every 16th), their count; then a
byte that says how it is compressed and a masked CRC-32C. The index block has a key at or after each block's
last, with the block's offset and size. The footer holds the places of the last two blocks and a magic
number.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterator
from typing import Any, BinaryIO

from graphrt.core.errors import DataLossError, UnimplementedError, with_hint
from graphrt.formats import varints
from graphrt.formats.crc32c import crc32c, masked

_MAGIC = 0xDB4775248B80FB57
_FOOTER_SIZE = 48
_TRAILER_SIZE = 5
_BLOCK_SIZE = 262144
_RESTART_INTERVAL = 16
_PLAIN, _SNAPPY = 0, 1
# Snappy makes at most 64 bytes of 3.
_MOST_EXPANSION = 32


class _BlockBuilder:
    def __init__(self, restart_interval: int) -> None:
        self._interval = restart_interval
        self.clear()

    def clear(self) -> None:
        self._content, self._restarts, self._since_restart = bytearray(), [0], 0
        self._last = b""
        self.is_empty = True

    @property
    def size(self) -> int:
        """The bytes of the finished block."""
        return len(self._content) + 4 * len(self._restarts) + 4

    def add(self, key: bytes, value: bytes) -> None:
        shared = 0
        if self._since_restart < self._interval:
            limit = min(len(key), len(self._last))
            while shared < limit and key[shared] == self._last[shared]:
                shared += 1
        else:
            self._restarts.append(len(self._content))
            self._since_restart = 0
        self._content += (
            varints.encode(shared) + varints.encode(len(key) - shared) + varints.encode(len(value))
        )
        self._content += key[shared:] + value
        self._last, self.is_empty = key, False
        self._since_restart += 1

    def finish(self) -> bytes:
        return bytes(self._content) + struct.pack(
            f"<{len(self._restarts) + 1}I", *self._restarts, len(self._restarts)
        )


def _between(lower: bytes, upper: bytes) -> bytes:
    """A short key k with lower <= k < upper, where there is one; `lower` otherwise."""
    limit = min(len(lower), len(upper))
    at = 0
    while at < limit and lower[at] == upper[at]:
        at += 1
    if at < limit and lower[at] < 0xFF and lower[at] + 1 < upper[at]:
        return lower[:at] + bytes([lower[at] + 1])
    return lower


def _after(key: bytes) -> bytes:
    """A short key at or after `key`."""
    for at, byte in enumerate(key):
        if byte != 0xFF:
            return key[:at] + bytes([byte + 1])
    return key


class TableWriter:
    """Writes a table to `file`, which has `write`. Keys are added in rising order; `finish` ends it."""

    def __init__(self, file: Any) -> None:
        self._file, self._offset = file, 0
        self._block, self._index = _BlockBuilder(_RESTART_INTERVAL), _BlockBuilder(1)
        self._last_key: bytes | None = None
        self._pending: bytes | None = None  # the place of a block that has no index entry yet

    def add(self, key: bytes, value: bytes) -> None:
        """Add an entry. Raises ValueError where the key is not after the one before."""
        if self._last_key is not None and key <= self._last_key:
            raise ValueError(f"the key {key!r} does not come after {self._last_key!r}")
        if self._pending is not None:
            self._index.add(_between(self._last_key or b"", key), self._pending)
            self._pending = None
        self._last_key = key
        self._block.add(key, value)
        if self._block.size >= _BLOCK_SIZE:
            self._flush()

    def finish(self) -> None:
        self._flush()
        metaindex = self._write(_BlockBuilder(_RESTART_INTERVAL).finish())
        if self._pending is not None:
            self._index.add(_after(self._last_key or b""), self._pending)
        index = self._write(self._index.finish())
        footer = (metaindex + index).ljust(_FOOTER_SIZE - 8, b"\0") + struct.pack("<Q", _MAGIC)
        self._file.write(footer)

    def _flush(self) -> None:
        if not self._block.is_empty:
            self._pending = self._write(self._block.finish())
            self._block.clear()

    def _write(self, content: bytes) -> bytes:
        place = varints.encode(self._offset) + varints.encode(len(content))
        kind = bytes([_PLAIN])
        self._file.write(content + kind + struct.pack("<I", masked(crc32c(kind, crc32c(content)))))
        self._offset += len(content) + _TRAILER_SIZE
        return place


class TableReader:
    """Reads a table from a seekable file, a block at a time.

    Args:
      name: what errors call the file.
    Raises:
      DataLossError: the file is not a table, or is damaged; here or when the damaged block is read.
    """

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._file, self._name = file, name
        self._size = file.seek(0, 2)
        if self._size < _FOOTER_SIZE:
            raise DataLossError(
                None, None, f"{name} is no table: it has {self._size} bytes, fewer than a table's footer"
            )
        file.seek(self._size - _FOOTER_SIZE)
        footer = file.read(_FOOTER_SIZE)
        if struct.unpack("<Q", footer[-8:])[0] != _MAGIC:
            raise DataLossError(
                None,
                None,
                f"{name} is no table (bad magic number at byte {self._size - 8}), or its end is lost",
            )
        try:
            at = varints.decode(footer, varints.decode(footer, 0)[1])[1]
            offset, at = varints.decode(footer, at)
            size, at = varints.decode(footer, at)
        except ValueError:
            raise self._damaged(self._size - _FOOTER_SIZE, "its footer is not one") from None
        self._index = list(self._entries(self._read(offset, size), offset))
        self._index_keys = [key for key, _ in self._index]
        self._cached: tuple[int, list[tuple[bytes, bytes]]] = (-1, [])

    def _damaged(self, offset: int, what: str) -> DataLossError:
        return DataLossError(None, None, f"{self._name} is damaged at byte {offset}: {what}")

    def _read(self, offset: int, size: int) -> bytes:
        """The content of the block of `size` bytes at `offset`."""
        if offset + size + _TRAILER_SIZE > self._size:
            raise self._damaged(offset, f"a block of {size} bytes does not fit into a file of {self._size}")
        self._file.seek(offset)
        read = self._file.read(size + _TRAILER_SIZE)
        if len(read) != size + _TRAILER_SIZE:
            raise self._damaged(offset, "the file ends in a block")
        if struct.unpack("<I", read[-4:])[0] != masked(crc32c(read[:-4])):
            raise self._damaged(offset, "the checksum of a block does not fit")
        content, kind = read[:size], read[size]
        if kind == _PLAIN:
            return content
        if kind == _SNAPPY:
            return self._uncompressed(content, offset)
        raise self._damaged(offset, f"a block is compressed in the unknown way {kind}")

    def _uncompressed(self, content: bytes, offset: int) -> bytes:
        try:
            import cramjam
        except ModuleNotFoundError:
            raise with_hint(
                UnimplementedError(
                    None,
                    None,
                    f"{self._name} is compressed by snappy, which needs cramjam: pip install graphrt[snappy]",
                ),
                "pip install graphrt[snappy]",
            ) from None
        try:
            length, _ = varints.decode(content, 0)
            if length > _MOST_EXPANSION * len(content):
                raise ValueError(f"{len(content)} bytes claim to be {length}")
            return bytes(cramjam.snappy.decompress_raw(content))
        except (ValueError, cramjam.DecompressionError) as error:
            raise self._damaged(offset, f"a block is no snappy: {error}") from None

    def _entries(self, content: bytes, offset: int) -> Iterator[tuple[bytes, bytes]]:
        """(key, value) of each entry of a block."""
        if len(content) < 4:
            raise self._damaged(offset, "a block is too short")
        (restarts,) = struct.unpack("<I", content[-4:])
        end = len(content) - 4 - 4 * restarts
        if end < 0:
            raise self._damaged(offset, "a block has more restarts than bytes")
        at, key = 0, b""
        while at < end:
            try:
                shared, at = varints.decode(content, at)
                own, at = varints.decode(content, at)
                length, at = varints.decode(content, at)
            except ValueError:
                raise self._damaged(offset, "an entry of a block is not one") from None
            if shared > len(key) or at + own + length > end:
                raise self._damaged(offset, "an entry of a block is longer than it")
            key = key[:shared] + content[at : at + own]
            at += own
            yield key, content[at : at + length]
            at += length

    def _block(self, number: int) -> list[tuple[bytes, bytes]]:
        if self._cached[0] != number:
            try:
                offset, at = varints.decode(self._index[number][1], 0)
                size, _ = varints.decode(self._index[number][1], at)
            except ValueError:
                raise self._damaged(0, "an entry of the index does not name a block") from None
            self._cached = number, list(self._entries(self._read(offset, size), offset))
        return self._cached[1]

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        """All entries, in order."""
        for number in range(len(self._index)):
            yield from self._block(number)

    def get(self, key: bytes) -> bytes | None:
        """The value of `key`, or None."""
        number = bisect_left(self._index_keys, key)
        if number == len(self._index):
            return None
        entries = self._block(number)
        at = bisect_left(entries, (key,))
        return entries[at][1] if at < len(entries) and entries[at][0] == key else None
