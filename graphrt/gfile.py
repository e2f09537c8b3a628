"""tf.gfile: files and folders by TF1's names. Errors are those of tf.errors."""

from __future__ import annotations

import glob as _glob
import os
import shutil
from collections.abc import Callable, Iterator
from typing import Any

from graphrt.core import errors
from graphrt.formats.atomic_files import os_error

__all__ = [
    "Copy",
    "DeleteRecursively",
    "Exists",
    "FastGFile",
    "GFile",
    "Glob",
    "IsDirectory",
    "ListDirectory",
    "MakeDirs",
    "MkDir",
    "Open",
    "Remove",
    "Rename",
    "Stat",
    "Walk",
]

_MODES = ("r", "w", "a", "r+", "w+", "a+")


def _path(name: Any) -> str:
    return os.fsdecode(name)


def _checked(path: str, function: Callable[..., Any], *args: Any) -> Any:
    try:
        return function(*args)
    except OSError as error:
        raise os_error(error, path) from None


class GFile:
    """A file: text, or bytes with a 'b' in the mode. It is opened when it is first used.

    Args:
      name: its path.
      mode: 'r', 'w' or 'a', with '+' to do the other too, and 'b' for bytes.
    Raises:
      InvalidArgumentError: another mode.
      NotFoundError, PermissionDeniedError and other OpErrors: when it is used.
    """

    def __init__(self, name: Any, mode: str = "r", encoding: str = "utf-8") -> None:
        if mode.replace("b", "") not in _MODES:
            raise errors.InvalidArgumentError(
                None, None, f"mode is not 'r' or 'w' or 'a' or 'r+' or 'w+' or 'a+' (and 'b'): {mode!r}"
            )
        self._name, self._mode, self._encoding = name, mode, encoding
        self._is_binary = "b" in mode
        self._opened: Any = None

    @property
    def name(self) -> Any:
        return self._name

    @property
    def mode(self) -> str:
        return self._mode

    def _file(self) -> Any:
        if self._opened is None or self._opened.closed:
            mode = self._mode.replace("b", "") + "b"
            self._opened = _checked(_path(self._name), open, _path(self._name), mode)
        return self._opened

    def _readable(self) -> Any:
        if not ("r" in self._mode or "+" in self._mode):
            raise errors.PermissionDeniedError(None, None, "File isn't open for reading")
        return self._file()

    def _given(self, content: bytes) -> Any:
        return content if self._is_binary else content.decode(self._encoding)

    def size(self) -> int:
        """The file's size in bytes."""
        return _checked(_path(self._name), os.path.getsize, _path(self._name))

    def write(self, file_content: Any) -> None:
        """Append text or bytes at the position."""
        if not ("w" in self._mode or "a" in self._mode or "+" in self._mode):
            raise errors.PermissionDeniedError(None, None, "File isn't open for writing")
        content = file_content.encode(self._encoding) if isinstance(file_content, str) else file_content
        _checked(_path(self._name), self._file().write, content)

    def read(self, n: int = -1) -> Any:
        """The next `n` bytes (characters of text may be more); all that is left by default."""
        return self._given(_checked(_path(self._name), self._readable().read, n))

    def readline(self) -> Any:
        """The next line with its end; empty after the last."""
        return self._given(_checked(_path(self._name), self._readable().readline))

    def readlines(self) -> list[Any]:
        return list(self)

    def seek(self, offset: int | None = None, whence: int = 0, position: int | None = None) -> None:
        """Go to a position: from the start (whence 0), from here (1) or from the end (2). `position` is an
        old name of
        `offset`."""
        if offset is None and position is None:
            raise TypeError("seek(): offset argument required")
        if offset is not None and position is not None:
            raise TypeError("seek(): offset and position may not be set simultaneously.")
        if whence not in (0, 1, 2):
            raise errors.InvalidArgumentError(
                None, None, f"Invalid whence argument: {whence}. Valid values are 0, 1, or 2."
            )
        self._file().seek(position if offset is None else offset, whence)

    def tell(self) -> int:
        return self._file().tell()

    def seekable(self) -> bool:
        return True

    def flush(self) -> None:
        if self._opened is not None and not self._opened.closed:
            _checked(_path(self._name), self._opened.flush)

    def close(self) -> None:
        """Close the file; 'w' leaves one that was never written to empty."""
        if self._opened is None and self._mode.startswith("w"):
            self._file()
        if self._opened is not None:
            _checked(_path(self._name), self._opened.close)

    def __enter__(self) -> GFile:
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        line = self.readline()
        if not line:
            raise StopIteration
        return line


class FastGFile(GFile):
    """GFile by an older name."""


Open = GFile


def Exists(filename: Any) -> bool:  # noqa: N802 - TF1's names, here and below
    """True where there is a file or folder of that name."""
    return os.path.exists(_path(filename))


def IsDirectory(dirname: Any) -> bool:  # noqa: N802
    return os.path.isdir(_path(dirname))


def Glob(filename: Any) -> list[str]:  # noqa: N802
    """The files and folders that a pattern, or one of a list of patterns, matches."""
    patterns = [filename] if isinstance(filename, (str, bytes, os.PathLike)) else filename
    return [found for p in patterns for found in sorted(_glob.glob(_path(p), include_hidden=True))]


def ListDirectory(dirname: Any) -> list[str]:  # noqa: N802
    """The names in a folder. Raises NotFoundError where it is none."""
    if not IsDirectory(dirname):
        raise errors.NotFoundError(None, None, f"Could not find directory {_path(dirname)}")
    return sorted(os.listdir(_path(dirname)))


def MkDir(dirname: Any) -> None:  # noqa: N802
    """Make a folder, whose parent exists."""
    _checked(_path(dirname), os.mkdir, _path(dirname))


def MakeDirs(dirname: Any) -> None:  # noqa: N802
    """Make a folder and those above it, where they are missing."""
    path = _path(dirname)
    if path:
        _checked(path, lambda: os.makedirs(path, exist_ok=True))


def Remove(filename: Any) -> None:  # noqa: N802
    """Delete a file."""
    _checked(_path(filename), os.remove, _path(filename))


def DeleteRecursively(dirname: Any) -> None:  # noqa: N802
    """Delete a folder and all that is in it."""
    path = _path(dirname)
    _checked(path, shutil.rmtree if os.path.isdir(path) and not os.path.islink(path) else os.remove, path)


def Copy(oldpath: Any, newpath: Any, overwrite: bool = False) -> None:  # noqa: N802
    """Copy a file. Raises AlreadyExistsError where `newpath` exists, unless `overwrite`."""
    _refuse(newpath, overwrite)
    _checked(_path(oldpath), shutil.copyfile, _path(oldpath), _path(newpath))


def Rename(oldname: Any, newname: Any, overwrite: bool = False) -> None:  # noqa: N802
    """Rename a file or folder. Raises AlreadyExistsError where `newname` exists, unless `overwrite`."""
    _refuse(newname, overwrite)
    _checked(_path(oldname), os.replace, _path(oldname), _path(newname))


def _refuse(path: Any, overwrite: bool) -> None:
    if not overwrite and os.path.exists(_path(path)):
        raise errors.AlreadyExistsError(None, None, f"{_path(path)} exists: overwrite=True replaces it")


class FileStatistics:
    """What Stat says of a file.

    Attributes:
      length: its size in bytes.
      mtime_nsec: when it was changed, in nanoseconds since 1970.
      is_directory: True of a folder.
    """

    def __init__(self, length: int, mtime_nsec: int, is_directory: bool) -> None:
        self.length, self.mtime_nsec, self.is_directory = length, mtime_nsec, is_directory


def Stat(filename: Any) -> FileStatistics:  # noqa: N802
    """FileStatistics of a file or folder. Raises NotFoundError where there is none."""
    found = _checked(_path(filename), os.stat, _path(filename))
    return FileStatistics(found.st_size, found.st_mtime_ns, os.path.isdir(_path(filename)))


def Walk(top: Any, in_order: bool = True) -> Iterator[tuple[str, list[str], list[str]]]:  # noqa: N802
    """(folder, folders in it, files in it) of `top` and all folders below it.

    Args:
      in_order: a folder before what is in it, else after.
    """
    for folder, folders, files in os.walk(_path(top), topdown=in_order):
        folders.sort()
        yield folder, folders, sorted(files)
