"""The index of a bundle: what its files are called, and its entries written and read. See `bundle.py`."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable
from typing import Any

from google.protobuf.message import DecodeError

from graphrt.core.dtypes import BY_NUMBER
from graphrt.core.errors import DataLossError, UnimplementedError
from graphrt.formats.atomic_files import AtomicFile, os_error, sync_directory
from graphrt.formats.table import TableReader, TableWriter

_HEADER_KEY = b""
_VERSION = 1
_DATA_NAME = re.compile(r"\.data-(\d{5,})-of-(\d{5,})$")


def index_name(prefix: str) -> str:
    return prefix + ".index"


def data_name(prefix: str, shard: int, shards: int) -> str:
    return f"{prefix}.data-{shard:05d}-of-{shards:05d}"


def data_files(prefix: str) -> list[str]:
    """The data files there are of a bundle's prefix, of whatever number of shards."""
    return sorted(
        f for f in glob.glob(glob.escape(prefix) + ".data-*-of-*") if _DATA_NAME.search(f[len(prefix) :])
    )


def unused_shard_count(prefix: str, wanted: int) -> int:
    """The least number of shards, at least `wanted`, in which no data file of `prefix` is named."""
    used = {int(_DATA_NAME.search(f)[2]) for f in data_files(prefix)}  # type: ignore[index]
    while wanted in used:
        wanted += 1
    return wanted


def write_index(prefix: str, entries: dict[bytes, Any], shards: int) -> None:
    """Write `prefix.index` whole: from then on the bundle is these entries. Data files are in place
    before."""
    from graphrt.protos import tensor_bundle_pb2

    sync_directory(prefix)
    header = tensor_bundle_pb2.BundleHeaderProto(num_shards=shards)
    header.version.producer = _VERSION
    with AtomicFile(index_name(prefix)) as file:
        table = TableWriter(file)
        table.add(_HEADER_KEY, header.SerializeToString())
        for key in sorted(entries):
            table.add(key, entries[key].SerializeToString(deterministic=True))
        table.finish()
    sync_directory(prefix)


def remove_files(paths: Iterable[str]) -> None:
    for path in paths:
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise os_error(error, path) from None


def read_index(prefix: str) -> tuple[list[tuple[bytes, Any]], Any]:
    """(the entries by key, the header) of a bundle's index.

    Raises:
      NotFoundError: there is no such bundle.
      DataLossError: the index is damaged.
      UnimplementedError: it was written on a big-endian machine or by a later version.
    """
    path = index_name(prefix)
    try:
        with open(path, "rb") as file:
            rows = iter(TableReader(file, path))
            key, value = next(rows, (None, b""))
            header = _parse_header(path, key, value)
            return [(k, _parse_entry(path, k, v)) for k, v in rows], header
    except OSError as error:
        raise os_error(error, path) from None


def _parse_header(path: str, key: bytes | None, value: bytes) -> Any:
    """The BundleHeaderProto of an index's first entry."""
    from graphrt.protos import tensor_bundle_pb2

    header = tensor_bundle_pb2.BundleHeaderProto()
    try:
        if key != _HEADER_KEY:
            raise DecodeError
        header.ParseFromString(value)
    except DecodeError:
        raise DataLossError(
            None, None, f"{path} is no checkpoint's index: its first entry is no header"
        ) from None
    if header.endianness != tensor_bundle_pb2.BundleHeaderProto.LITTLE:
        raise UnimplementedError(
            None, None, f"{path} was written on a big-endian machine: its tensors cannot be read here"
        )
    if header.version.min_consumer > _VERSION:
        raise UnimplementedError(
            None,
            None,
            f"{path} asks for readers of version {header.version.min_consumer}; this one is "
            f"of version {_VERSION}",
        )
    if header.num_shards < 0:
        raise DataLossError(None, None, f"{path} claims {header.num_shards} data files")
    return header


def _parse_entry(path: str, key: bytes, value: bytes) -> Any:
    """The BundleEntryProto of an index's entry, checked."""
    from graphrt.protos import tensor_bundle_pb2

    entry = tensor_bundle_pb2.BundleEntryProto()
    name = key.decode(errors="backslashreplace")
    try:
        entry.ParseFromString(value)
    except DecodeError:
        raise DataLossError(
            None, None, f"{path} is damaged: the entry of '{name}' is no BundleEntryProto"
        ) from None
    is_shape = not entry.shape.unknown_rank and all(d.size >= 0 for d in entry.shape.dim)
    if (
        not is_shape
        or entry.offset < 0
        or entry.size < 0
        or entry.shard_id < 0
        or entry.dtype not in BY_NUMBER
    ):
        raise DataLossError(
            None, None, f"{path} is damaged: the entry of '{name}' has an impossible dtype, shape or place"
        )
    return entry
