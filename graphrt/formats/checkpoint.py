"""A checkpoint of either format, by its prefix."""

from __future__ import annotations

import os
from typing import Any

from graphrt.formats.bundle import index_name
from graphrt.formats.bundle_reader import BundleReader
from graphrt.formats.checkpoint_v1 import CheckpointV1Reader


def open_checkpoint(prefix: str) -> Any:
    """The reader of a checkpoint: a BundleReader where `prefix.index` exists, else a CheckpointV1Reader.

    Both have names, shape, dtype, slices, read, read_slice, `in` and close.
    Raises:
      NotFoundError: there is no such checkpoint.
      DataLossError: it is damaged.
    """
    return BundleReader(prefix) if os.path.exists(index_name(prefix)) else CheckpointV1Reader(prefix)
