"""Files that appear whole or not at all: written under a temporary name, synced, then renamed."""

from __future__ import annotations

import errno
import itertools
import os
from typing import Any

from graphrt.core import errors

_numbers = itertools.count()


def os_error(error: OSError, path: str) -> errors.OpError:
    """The error of `tf.errors` that an OSError on `path` is."""
    text = f"{path}; {error.strerror or error}"
    kind: type[errors.OpError] = errors.UnknownError
    if isinstance(error, FileNotFoundError):
        kind = errors.NotFoundError
    elif isinstance(error, FileExistsError):
        kind = errors.AlreadyExistsError
    elif isinstance(error, PermissionError):
        kind = errors.PermissionDeniedError
    elif isinstance(error, (NotADirectoryError, IsADirectoryError)) or error.errno == errno.ENOTEMPTY:
        kind = errors.FailedPreconditionError
    elif error.errno in (errno.ENOSPC, errno.EDQUOT):
        kind = errors.ResourceExhaustedError
    return kind(None, None, text)


def temporary_name(path: str) -> str:
    """A name beside `path` that no other writer uses."""
    return f"{path}.tempstate{os.getpid()}_{next(_numbers)}"


class AtomicFile:
    """A file for writing that takes the name `path` when it is committed; `with` discards it on an error.

    Until `commit` whatever `path` names stays as it is, also when the process dies.
    """

    def __init__(self, path: str) -> None:
        self.path, self._temporary = path, temporary_name(path)
        try:
            self._file: Any = open(self._temporary, "wb", buffering=0)  # noqa: SIM115 - closed by finish or discard
        except OSError as error:
            raise os_error(error, path) from None

    def write(self, piece: Any) -> None:
        view = memoryview(piece).cast("B") if not isinstance(piece, bytes) else piece
        try:
            written = self._file.write(view)
            while written < len(view):
                view = view[written:]
                written = self._file.write(view)
        except OSError as error:
            raise os_error(error, self.path) from None

    def finish(self) -> None:
        """All is written: it is on the disk, still under its temporary name."""
        try:
            os.fsync(self._file.fileno())
            self._file.close()
        except OSError as error:
            raise os_error(error, self.path) from None

    def commit(self, path: str | None = None) -> None:
        """Finish, and give the file its name."""
        if not self._file.closed:
            self.finish()
        target = path or self.path
        try:
            os.replace(self._temporary, target)
        except OSError as error:
            raise os_error(error, target) from None

    def discard(self) -> None:
        self._file.close()
        try:
            os.unlink(self._temporary)
        except FileNotFoundError:
            pass

    def __enter__(self) -> AtomicFile:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is None:
            self.commit()
        else:
            self.discard()


def write_file(path: str, content: bytes) -> None:
    """Give the file `path` a new content, whole or not at all."""
    with AtomicFile(path) as file:
        file.write(content)
    sync_directory(path)


def sync_directory(path: str) -> None:
    """Bring the renames in the directory of `path` to the disk, where the system can."""
    try:
        directory = os.open(os.path.dirname(path) or ".", os.O_RDONLY)
    except OSError:
        return  # Windows opens no directories; there a rename is as durable as it gets
    try:
        os.fsync(directory)
    except OSError:
        pass  # a file system without it
    finally:
        os.close(directory)
