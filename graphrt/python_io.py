"""tf.python_io: TFRecord files from Python: TFRecordWriter, tf_record_iterator, TFRecordOptions."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from typing import Any

from graphrt.formats.records import RecordWriter, read_records

__all__ = ["TFRecordCompressionType", "TFRecordOptions", "TFRecordWriter", "tf_record_iterator"]


class TFRecordCompressionType:
    """How a whole file is compressed."""

    NONE = 0
    ZLIB = 1
    GZIP = 2


class TFRecordOptions:
    """How a TFRecord file is compressed.

    Args:
      compression_type: a TFRecordCompressionType, or its name: 'GZIP', 'ZLIB', '' or None.
      flush_mode, input_buffer_size, output_buffer_size, compression_method: kept, and not used: they do not
        change what is written.
      window_bits: the bits of zlib's window, 9 to 15.
      compression_level: 0 to 9, or -1 for zlib's default.
      mem_level: how much memory zlib takes, 1 to 9.
      compression_strategy: zlib's strategy.
    Raises:
      ValueError: there is no such compression.
    """

    compression_type_map = {
        TFRecordCompressionType.ZLIB: "ZLIB",
        TFRecordCompressionType.GZIP: "GZIP",
        TFRecordCompressionType.NONE: "",
    }

    def __init__(
        self,
        compression_type: Any = None,
        flush_mode: int | None = None,
        input_buffer_size: int | None = None,
        output_buffer_size: int | None = None,
        window_bits: int | None = None,
        compression_level: int | None = None,
        compression_method: int | None = None,
        mem_level: int | None = None,
        compression_strategy: int | None = None,
    ) -> None:
        self.get_compression_type_string(compression_type)
        self.compression_type, self.flush_mode, self.input_buffer_size = (
            compression_type,
            flush_mode,
            input_buffer_size,
        )
        self.output_buffer_size, self.window_bits, self.compression_level = (
            output_buffer_size,
            window_bits,
            compression_level,
        )
        self.compression_method, self.mem_level = compression_method, mem_level
        self.compression_strategy = compression_strategy

    @classmethod
    def get_compression_type_string(cls, options: Any) -> str:
        """'GZIP', 'ZLIB' or '' of TFRecordOptions, a TFRecordCompressionType, a name or None.

        Raises:
          ValueError: it is none of these.
        """
        if not options:
            return ""
        if isinstance(options, TFRecordOptions):
            return cls.get_compression_type_string(options.compression_type)
        if isinstance(options, str) and options in cls.compression_type_map.values():
            return options
        if not isinstance(options, str) and options in cls.compression_type_map:
            return cls.compression_type_map[options]
        raise ValueError(f'Not a valid compression_type: "{options}": GZIP, ZLIB and "" are')


class TFRecordWriter:
    """Writes records to a TFRecord file.

    Args:
      path: the file's; it is made anew.
      options: TFRecordOptions, or a compression's name.
    Raises:
      OpError: the file cannot be written.
    """

    def __init__(self, path: Any, options: Any = None) -> None:
        compression = TFRecordOptions.get_compression_type_string(options)
        given = options if isinstance(options, TFRecordOptions) else TFRecordOptions()

        def chosen(value: int | None, default: int) -> int:
            return default if value is None else value

        self._writer = RecordWriter(
            os.fsdecode(path),
            compression,
            level=chosen(given.compression_level, -1),
            memory_level=chosen(given.mem_level, 8),
            strategy=chosen(given.compression_strategy, 0),
            window=chosen(given.window_bits, zlib.MAX_WBITS),
        )

    def write(self, record: Any) -> None:
        """Append a record: bytes, or text, which is encoded."""
        self._writer.write(record.encode() if isinstance(record, str) else bytes(record))

    def flush(self) -> None:
        """Hand what was written to the system: readers see it."""
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()

    def __enter__(self) -> TFRecordWriter:
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()


def tf_record_iterator(path: Any, options: Any = None) -> Iterator[bytes]:
    """The records of a TFRecord file, in order.

    Args:
      options: TFRecordOptions, or a compression's name, as the file was written with.
    Raises:
      OpError: the file cannot be read.
      DataLossError: a record is damaged or cut off.
    """
    return read_records(os.fsdecode(path), TFRecordOptions.get_compression_type_string(options))
