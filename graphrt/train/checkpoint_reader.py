"""What is in a checkpoint, without a graph: CheckpointReader, list_variables, load_variable."""

from __future__ import annotations

import os
import threading
from typing import Any

import numpy as np

from graphrt.core.dtypes import DType
from graphrt.formats.checkpoint import open_checkpoint
from graphrt.train.checkpoint_state import checkpoint_filename


class CheckpointReader:
    """The tensors of a checkpoint, of format V2 or V1, by name. Several threads may read at once.

    Args:
      filename: its prefix; of format V1 also a pattern of its files.
    Raises:
      NotFoundError: there is no such checkpoint.
      DataLossError: it is damaged.
    """

    def __init__(self, filename: Any) -> None:
        self._lock = threading.Lock()
        self._reader = open_checkpoint(os.fspath(filename))

    def get_variable_to_shape_map(self) -> dict[str, list[int]]:
        return {name: list(self._reader.shape(name)) for name in self._reader.names()}

    def get_variable_to_dtype_map(self) -> dict[str, DType]:
        return {name: self._reader.dtype(name) for name in self._reader.names()}

    def has_tensor(self, tensor_str: str) -> bool:
        return tensor_str in self._reader

    def get_tensor(self, tensor_str: Any) -> Any:
        """The value as an array (bytes for a string scalar), put together where it is stored in parts.

        Raises:
          NotFoundError: there is no tensor of that name.
          DataLossError: its bytes are damaged.
        """
        name = tensor_str.decode() if isinstance(tensor_str, bytes) else tensor_str
        with self._lock:
            value: np.ndarray = self._reader.read(name)
        return value[()] if value.ndim == 0 else value

    def debug_string(self) -> bytes:
        """A line for each tensor: its name, dtype and shape."""
        lines = [
            f"{n} ({self._reader.dtype(n).name.upper()}) {list(self._reader.shape(n))}"
            for n in self._reader.names()
        ]
        return "".join(line + "\n" for line in lines).encode()

    def __del__(self) -> None:
        reader = getattr(self, "_reader", None)
        if reader is not None:
            reader.close()


def NewCheckpointReader(filepattern: Any) -> CheckpointReader:  # noqa: N802 - TF1's name
    """A CheckpointReader of a checkpoint's prefix."""
    return CheckpointReader(filepattern)


def load_checkpoint(ckpt_dir_or_file: Any) -> CheckpointReader:
    """A CheckpointReader of a checkpoint's prefix, or of a folder's latest checkpoint.

    Raises:
      ValueError: a folder without checkpoints.
    """
    return CheckpointReader(checkpoint_filename(ckpt_dir_or_file))


def load_variable(ckpt_dir_or_file: Any, name: str) -> Any:
    """The value of a variable ('w' or 'w:0') in a checkpoint, or in a folder's latest one."""
    return load_checkpoint(ckpt_dir_or_file).get_tensor(name.removesuffix(":0"))


def list_variables(ckpt_dir_or_file: Any) -> list[tuple[str, list[int]]]:
    """(name, shape) of every tensor in a checkpoint, or in a folder's latest one, by name."""
    return sorted(load_checkpoint(ckpt_dir_or_file).get_variable_to_shape_map().items())
