"""TFRecord files: records of bytes, each with its length and checksums; whole files may be compressed.

    length (8 bytes) | masked CRC-32C of those | the record | masked CRC-32C of it

Event files are framed the same way, uncompressed.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Any, BinaryIO

from graphrt.core.errors import DataLossError, InvalidArgumentError
from graphrt.formats.atomic_files import os_error
from graphrt.formats.crc32c import masked_crc32c

_HEADER = struct.Struct("<QI")
_FOOTER = struct.Struct("<I")
_PIECE = 1 << 16
# zlib's `wbits` of a compression's name: a zlib header or a gzip one.
WINDOW_BITS = {"": None, "ZLIB": zlib.MAX_WBITS, "GZIP": zlib.MAX_WBITS | 16}


def window_bits(compression: str) -> int | None:
    """`wbits` of a compression's name, None for none. Raises InvalidArgumentError for an unknown name."""
    if compression not in WINDOW_BITS:
        raise InvalidArgumentError(
            None, None, f"unknown compression {compression!r}: '', 'ZLIB' and 'GZIP' are known"
        )
    return WINDOW_BITS[compression]


def framed(record: bytes) -> bytes:
    """The record as it stands in a file."""
    length = struct.pack("<Q", len(record))
    return b"".join(
        (length, _FOOTER.pack(masked_crc32c(length)), record, _FOOTER.pack(masked_crc32c(record)))
    )


class RecordWriter:
    """Writes records to a file.

    Args:
      compression: '', 'ZLIB' or 'GZIP'.
      level, memory_level, strategy: zlib's, where the file is compressed.
      window: the number of bits of zlib's window, 9 to 15.
    Raises:
      OpError: the file cannot be written.
    """

    def __init__(
        self,
        path: str,
        compression: str = "",
        level: int = -1,
        memory_level: int = 8,
        strategy: int = 0,
        window: int = zlib.MAX_WBITS,
        append: bool = False,
    ) -> None:
        self.path = path
        bits = window_bits(compression)
        self._compressor = (
            None
            if bits is None
            else zlib.compressobj(
                level, zlib.DEFLATED, bits - zlib.MAX_WBITS + window, memory_level, strategy
            )
        )
        try:
            self._file: Any = open(path, "ab" if append else "wb")  # noqa: SIM115 - closed by close
        except OSError as error:
            raise os_error(error, path) from None

    def write(self, record: bytes) -> None:
        if self._file.closed:
            raise ValueError(f"{self.path} is closed")
        made = framed(record)
        try:
            self._file.write(made if self._compressor is None else self._compressor.compress(made))
        except OSError as error:
            raise os_error(error, self.path) from None

    def flush(self) -> None:
        """Hand what was written to the system: readers see it, and it outlives this process."""
        try:
            if self._compressor is not None:
                self._file.write(self._compressor.flush(zlib.Z_SYNC_FLUSH))
            self._file.flush()
        except OSError as error:
            raise os_error(error, self.path) from None

    def close(self) -> None:
        if self._file.closed:
            return
        try:
            if self._compressor is not None:
                self._file.write(self._compressor.flush())
            self._file.close()
        except OSError as error:
            raise os_error(error, self.path) from None

    def __enter__(self) -> RecordWriter:
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()


class _Inflated:
    """The bytes of a compressed file, a piece at a time; several compressed streams may follow each other."""

    def __init__(self, file: BinaryIO, bits: int, path: str) -> None:
        self._file, self._bits, self._path = file, bits, path
        self._inflate, self._ready = zlib.decompressobj(bits), b""
        self._waiting = b""

    def read(self, count: int) -> bytes:
        pieces, missing = [], count
        while missing > 0:
            if not self._ready and not self._more():
                break
            pieces.append(self._ready[:missing])
            self._ready = self._ready[missing:]
            missing -= len(pieces[-1])
        return b"".join(pieces)

    def _more(self) -> bool:
        while not self._ready:
            if self._inflate.eof:
                self._waiting = self._inflate.unused_data
                if not self._waiting and not self._fill():
                    return False
                self._inflate = zlib.decompressobj(self._bits)
            elif not self._waiting and not self._fill():
                return False
            try:
                self._ready = self._inflate.decompress(self._waiting, _PIECE)
            except zlib.error as error:
                raise DataLossError(
                    None, None, f"{self._path} is no compressed file, or is damaged: {error}"
                ) from None
            self._waiting = self._inflate.unconsumed_tail
        return True

    def _fill(self) -> bool:
        self._waiting = self._file.read(_PIECE)
        return bool(self._waiting)


def read_records(path: str, compression: str = "", allow_unfinished: bool = False) -> Iterator[bytes]:
    """The records of a file, in order.

    Args:
      allow_unfinished: end quietly at a record that is not written to its end, as a live file has one.
    Raises:
      OpError: the file cannot be read.
      DataLossError: a record is damaged or cut off; the message has its offset.
    """
    bits = window_bits(compression)
    try:
        with open(path, "rb") as file:
            source: Any = file if bits is None else _Inflated(file, bits, path)
            yield from _records(source, path, allow_unfinished)
    except OSError as error:
        raise os_error(error, path) from None


def _records(source: Any, path: str, allow_unfinished: bool) -> Iterator[bytes]:
    offset = 0
    while True:
        header = source.read(_HEADER.size)
        if not header:
            return
        if len(header) < _HEADER.size:
            if allow_unfinished:
                return
            raise DataLossError(None, None, f"{path}: truncated record at {offset}: its length is cut off")
        length, checksum = _HEADER.unpack(header)
        if masked_crc32c(header[:8]) != checksum:
            raise DataLossError(
                None, None, f"{path}: corrupted record at {offset}: the checksum of its length does not fit"
            )
        body = _read_long(source, length + _FOOTER.size)
        if len(body) < length + _FOOTER.size:
            if allow_unfinished:
                return
            raise DataLossError(
                None,
                None,
                f"{path}: truncated record at {offset}: {length} bytes are announced, "
                f"{min(len(body), length)} are there",
            )
        record = body[:length]
        if masked_crc32c(record) != _FOOTER.unpack(body[length:])[0]:
            raise DataLossError(
                None,
                None,
                f"{path}: corrupted record at {offset}: the checksum of its {length} bytes does not fit",
            )
        yield record
        offset += _HEADER.size + length + _FOOTER.size


def _read_long(source: Any, count: int) -> bytes:
    """Up to `count` bytes, of which no more are taken from memory than are there: a length may be a lie."""
    if count <= _PIECE:
        return source.read(count)
    pieces, missing, step = [], count, _PIECE
    while missing:
        piece = source.read(min(step, missing))
        if not piece:
            break
        pieces.append(piece)
        missing -= len(piece)
        step *= 2
    return b"".join(pieces)
