"""Which checkpoints a folder has: the `checkpoint` state file, and the files of each.

The state file names the latest checkpoint and the ones that are kept. It is replaced whole, after the
checkpoint that it names is on the disk.
"""

from __future__ import annotations

import glob
import logging
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

from google.protobuf import text_format

from graphrt.core.errors import NotFoundError
from graphrt.formats.atomic_files import write_file
from graphrt.formats.bundle_index import data_files, index_name, remove_files

_log = logging.getLogger("graphrt")
_STATE_FILE = "checkpoint"
_V2 = 2


def _state_path(save_dir: str, latest_filename: str | None) -> str:
    return os.path.join(save_dir, latest_filename or _STATE_FILE)


def generate_checkpoint_state_proto(
    save_dir: str,
    model_checkpoint_path: str,
    all_model_checkpoint_paths: list[str] | None = None,
    all_model_checkpoint_timestamps: list[float] | None = None,
    last_preserved_timestamp: float | None = None,
) -> Any:
    """The CheckpointState message.

    Args:
      save_dir: the folder; where it is relative, so are paths in the message: to it.
      model_checkpoint_path: the latest checkpoint.
      all_model_checkpoint_paths: those that are kept, oldest first; the latest is added where it is not the
        last.
      all_model_checkpoint_timestamps: when each was made, in seconds since 1970.
      last_preserved_timestamp: when the last was made that is kept for ever.
    Raises:
      ValueError: there are other times than paths.
    """
    from graphrt.protos import checkpoint_state_pb2

    paths = list(all_model_checkpoint_paths or ())
    if not paths or paths[-1] != model_checkpoint_path:
        paths.append(model_checkpoint_path)
    if all_model_checkpoint_timestamps and len(all_model_checkpoint_timestamps) != len(paths):
        raise ValueError(
            "Checkpoint timestamps, if provided, must match checkpoint paths (got paths "
            f"{paths} and timestamps {all_model_checkpoint_timestamps})"
        )
    if not os.path.isabs(save_dir):
        paths = [p if os.path.isabs(p) else os.path.relpath(p, save_dir or ".") for p in paths]
        if not os.path.isabs(model_checkpoint_path):
            model_checkpoint_path = os.path.relpath(model_checkpoint_path, save_dir or ".")
    return checkpoint_state_pb2.CheckpointState(
        model_checkpoint_path=model_checkpoint_path,
        all_model_checkpoint_paths=paths,
        all_model_checkpoint_timestamps=all_model_checkpoint_timestamps,
        last_preserved_timestamp=last_preserved_timestamp,
    )


def update_checkpoint_state(
    save_dir: str,
    model_checkpoint_path: str,
    all_model_checkpoint_paths: list[str] | None = None,
    latest_filename: str | None = None,
    all_model_checkpoint_timestamps: list[float] | None = None,
    last_preserved_timestamp: float | None = None,
) -> None:
    """Write the state file of `save_dir`; arguments as those of generate_checkpoint_state_proto.

    Args:
      latest_filename: the state file's name, 'checkpoint' by default.
    Raises:
      RuntimeError: the checkpoint has the state file's name.
    """
    write_checkpoint_state(
        save_dir,
        model_checkpoint_path,
        all_model_checkpoint_paths,
        latest_filename,
        False,
        all_model_checkpoint_timestamps,
        last_preserved_timestamp,
    )


def write_checkpoint_state(
    save_dir: str,
    model_checkpoint_path: str,
    all_model_checkpoint_paths: list[str] | None = None,
    latest_filename: str | None = None,
    save_relative_paths: bool = False,
    all_model_checkpoint_timestamps: list[float] | None = None,
    last_preserved_timestamp: float | None = None,
) -> None:
    """update_checkpoint_state; with `save_relative_paths` the folder can be moved."""
    path = _state_path(save_dir, latest_filename)
    latest, kept = model_checkpoint_path, list(all_model_checkpoint_paths or ())
    if save_relative_paths:
        latest = os.path.relpath(latest, save_dir) if os.path.isabs(latest) else latest
        kept = [os.path.relpath(p, save_dir) if os.path.isabs(p) else p for p in kept]
    made = generate_checkpoint_state_proto(
        save_dir, latest, kept, all_model_checkpoint_timestamps, last_preserved_timestamp
    )
    if path == made.model_checkpoint_path:
        raise RuntimeError(
            f"Save path '{model_checkpoint_path}' conflicts with path used for checkpoint state.  Please "
            "use a "
            "different save path."
        )
    write_file(path, text_format.MessageToString(made).encode())


def get_checkpoint_state(checkpoint_dir: Any, latest_filename: str | None = None) -> Any:
    """The CheckpointState message of a folder's state file, its paths joined with the folder's; None
    without one.

    Raises:
      ValueError: the file names no checkpoint.
    """
    from graphrt.protos import checkpoint_state_pb2

    folder = os.fspath(checkpoint_dir)
    path = _state_path(folder, latest_filename)
    try:
        with open(path, "rb") as file:
            content = file.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        _log.warning("%s: Checkpoint ignored: %s", path, error)
        return None
    made = checkpoint_state_pb2.CheckpointState()
    try:
        text_format.Merge(content, made)
    except (text_format.ParseError, UnicodeDecodeError) as error:
        _log.warning("%s: Checkpoint ignored: %s", path, error)
        return None
    if not made.model_checkpoint_path:
        raise ValueError("Invalid checkpoint state loaded from " + folder)
    made.model_checkpoint_path = os.path.join(folder, made.model_checkpoint_path)
    made.all_model_checkpoint_paths[:] = [os.path.join(folder, p) for p in made.all_model_checkpoint_paths]
    return made


def latest_checkpoint(checkpoint_dir: Any, latest_filename: str | None = None) -> str | None:
    """The prefix of the latest checkpoint in a folder, as its state file says; None where there is none."""
    state = get_checkpoint_state(checkpoint_dir, latest_filename)
    if state is None:
        return None
    if checkpoint_exists(state.model_checkpoint_path):
        return state.model_checkpoint_path
    _log.error("Couldn't match files for checkpoint %s", state.model_checkpoint_path)
    return None


def checkpoint_exists(checkpoint_prefix: Any) -> bool:
    """True where there is a checkpoint of that prefix, of format V2 or V1 (whose prefix may be a pattern)."""
    return _checkpoint_path(os.fspath(checkpoint_prefix)) is not None


def _checkpoint_path(prefix: str) -> str | None:
    """The file that stands for a checkpoint: its index, or the first file of format V1."""
    for pattern in (index_name(prefix), prefix):
        found = [pattern] if os.path.exists(pattern) else sorted(glob.glob(pattern))
        if found:
            return found[0]
    return None


def get_checkpoint_mtimes(checkpoint_prefixes: list[str]) -> list[float]:
    """When checkpoints were written, in seconds since 1970; those that do not exist are left out."""
    found = [_checkpoint_path(prefix) for prefix in checkpoint_prefixes]
    return [os.stat(path).st_mtime for path in found if path is not None]


def meta_graph_filename(checkpoint_filename: str, meta_graph_suffix: str = "meta") -> str:
    """The file of a checkpoint's MetaGraphDef. A sharded one of format V1 ends in -?????-of-00005, which
    goes."""
    basename = checkpoint_filename
    if "-?????-of-" in checkpoint_filename:
        basename = checkpoint_filename[: checkpoint_filename.rindex("-?????-of-")]
    return f"{basename}.{meta_graph_suffix}"


def remove_checkpoint(
    checkpoint_prefix: str, checkpoint_format_version: int = _V2, meta_graph_suffix: str = "meta"
) -> None:
    """Delete the files of a checkpoint: what makes it one first, so that it never looks whole when it is
    not."""
    if checkpoint_format_version == _V2:
        remove_files([index_name(checkpoint_prefix)])
        remove_files(data_files(checkpoint_prefix))
    else:
        exact = [checkpoint_prefix] if os.path.exists(checkpoint_prefix) else glob.glob(checkpoint_prefix)
        remove_files(exact)
    remove_files([meta_graph_filename(checkpoint_prefix, meta_graph_suffix)])


def checkpoints_iterator(
    checkpoint_dir: Any,
    min_interval_secs: float = 0,
    timeout: float | None = None,
    timeout_fn: Callable[[], Any] | None = None,
) -> Iterator[str]:
    """The prefixes of new checkpoints in a folder as they appear.

    Args:
      min_interval_secs: the least time from one to the next.
      timeout: how long to wait for one, in seconds; None waits for ever.
      timeout_fn: asked after a timeout, and after each checkpoint: a true answer ends the iterator, a false
        one goes on. Without one a timeout ends it.
    """
    last: str | None = None
    while True:
        found = _wait_for_checkpoint(checkpoint_dir, last, timeout)
        if found is None:
            if timeout_fn is None:
                _log.info("Timed-out waiting for a checkpoint.")
                return
        else:
            started, last = time.monotonic(), found
            yield found
            time.sleep(max(0.0, started + min_interval_secs - time.monotonic()))
        if timeout_fn is not None and timeout_fn():
            return


def _wait_for_checkpoint(checkpoint_dir: Any, last: str | None, timeout: float | None) -> str | None:
    deadline = None if timeout is None else time.monotonic() + timeout
    while True:
        found = latest_checkpoint(checkpoint_dir)
        if found is not None and found != last:
            return found
        if deadline is not None and time.monotonic() + 1 > deadline:
            return None
        time.sleep(1)


def checkpoint_filename(ckpt_dir_or_file: Any) -> str:
    """The prefix that a folder (its latest checkpoint) or a prefix stands for.

    Raises:
      ValueError: a folder without checkpoints.
      NotFoundError: there is no such checkpoint.
    """
    given = os.fspath(ckpt_dir_or_file)
    prefix = latest_checkpoint(given) if os.path.isdir(given) else given
    if prefix is None:
        raise ValueError(f"Couldn't find 'checkpoint' file or checkpoints in given directory {given}")
    if not checkpoint_exists(prefix):
        raise NotFoundError(
            None,
            None,
            f"Unsuccessful TensorSliceReader constructor: Failed to find any matching files for {prefix}",
        )
    return prefix
