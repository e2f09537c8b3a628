"""Event files: what TensorBoard shows. Records of Event messages, of which the first says the file's
version."""

from __future__ import annotations

import itertools
import os
import socket
import time
from collections.abc import Iterator
from typing import Any

from google.protobuf.message import DecodeError

from graphrt.core.errors import DataLossError
from graphrt.formats.records import RecordWriter, read_records

FILE_VERSION = "brain.Event:2"
_numbers = itertools.count()


class EventFileWriter:
    """A new event file `<prefix>.out.tfevents.<time>.<host>.<pid>.<number><suffix>`.

    Attributes:
      path: the file's.
    """

    def __init__(self, prefix: str, suffix: str = "") -> None:
        from graphrt.protos import event_pb2

        now = time.time()
        self.path = (
            f"{prefix}.out.tfevents.{int(now):010d}.{socket.gethostname()}.{os.getpid()}."
            f"{next(_numbers)}{suffix}"
        )
        self._records = RecordWriter(self.path)
        version = event_pb2.Event(wall_time=now, file_version=FILE_VERSION)
        version.source_metadata.writer = "graphrt.formats.event_file"
        self.write(version)
        self.flush()

    def write(self, event: Any) -> None:
        """Append an Event message."""
        self._records.write(event.SerializeToString())

    def flush(self) -> None:
        self._records.flush()

    def close(self) -> None:
        self._records.close()


def read_events(path: str) -> Iterator[Any]:
    """The Event messages of a file, in order.

    Raises:
      OpError: the file cannot be read.
      DataLossError: a record is damaged or cut off, or is no Event.
    """
    from graphrt.protos import event_pb2

    for number, record in enumerate(read_records(path)):
        event = event_pb2.Event()
        try:
            event.ParseFromString(record)
        except DecodeError:
            raise DataLossError(None, None, f"{path}: record {number} is no Event message") from None
        yield event
