"""tf.gfile."""

import os

import pytest

import graphrt as tf
from graphrt.core.errors import (
    AlreadyExistsError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
)


def test_files_are_written_and_read(tmp_path):
    path = str(tmp_path / "f")
    with tf.gfile.GFile(path, "w") as file:
        file.write("one\ntwö\n")
        file.flush()
        assert file.name == path and file.mode == "w" and file.size() == 9
    with tf.gfile.Open(path, "a") as file:
        file.write("three")
    with tf.gfile.FastGFile(path) as file:
        assert file.readline() == "one\n" and list(file) == ["twö\n", "three"]
        file.seek(4)
        assert file.tell() == 4 and file.read() == "twö\nthree"
        file.seek(position=-5, whence=2)
        assert file.read(3) == "thr" and file.seekable()
        with pytest.raises(PermissionDeniedError, match="isn't open for writing"):
            file.write("x")
    with tf.gfile.GFile(path, "rb") as file:
        assert file.readlines() == [b"one\n", "twö\n".encode(), b"three"]
    with (
        tf.gfile.GFile(path, "w") as file,
        pytest.raises(PermissionDeniedError, match="isn't open for reading"),
    ):
        file.read()
    assert os.path.getsize(path) == 0
    with pytest.raises(InvalidArgumentError, match="mode is not"):
        tf.gfile.GFile(path, "x")
    with pytest.raises(NotFoundError):
        tf.gfile.GFile(str(tmp_path / "none")).read()


def test_folders(tmp_path):
    root = str(tmp_path)
    tf.gfile.MakeDirs(os.path.join(root, "a", "b"))
    tf.gfile.MakeDirs(os.path.join(root, "a", "b"))
    for name in ("a/1.txt", "a/2.txt", "a/b/3.csv"):
        tf.gfile.GFile(os.path.join(root, name), "w").close()
    assert tf.gfile.ListDirectory(os.path.join(root, "a")) == ["1.txt", "2.txt", "b"]
    assert tf.gfile.Glob(root + "/a/*.txt") == [root + "/a/1.txt", root + "/a/2.txt"]
    assert tf.gfile.Glob([root + "/a/1*", root + "/a/b/*"]) == [root + "/a/1.txt", root + "/a/b/3.csv"]
    walked = [(root + "/a", ["b"], ["1.txt", "2.txt"]), (root + "/a/b", [], ["3.csv"])]
    assert (
        list(tf.gfile.Walk(root + "/a")) == walked and list(tf.gfile.Walk(root + "/a", False)) == walked[::-1]
    )
    with pytest.raises(AlreadyExistsError):
        tf.gfile.MkDir(root + "/a")
    with pytest.raises(NotFoundError, match="Could not find directory"):
        tf.gfile.ListDirectory(root + "/none")
    with pytest.raises((FailedPreconditionError, PermissionDeniedError)):
        tf.gfile.Remove(root + "/a")
    tf.gfile.DeleteRecursively(root + "/a")
    assert not tf.gfile.Exists(root + "/a")
    with pytest.raises(NotFoundError):
        tf.gfile.DeleteRecursively(root + "/a")


def test_copies_and_renames_refuse_to_overwrite(tmp_path):
    a, b = str(tmp_path / "a"), str(tmp_path / "b")
    with tf.gfile.GFile(a, "w") as file:
        file.write("content")
    tf.gfile.Copy(a, b)
    for function in (tf.gfile.Copy, tf.gfile.Rename):
        with pytest.raises(AlreadyExistsError, match="overwrite=True replaces it"):
            function(a, b)
    tf.gfile.Rename(a, b, overwrite=True)
    assert not tf.gfile.Exists(a) and not tf.gfile.IsDirectory(b) and tf.gfile.IsDirectory(str(tmp_path))
    stat = tf.gfile.Stat(b)
    assert stat.length == 7 and stat.mtime_nsec == os.stat(b).st_mtime_ns and not stat.is_directory
    with pytest.raises(NotFoundError):
        tf.gfile.Stat(a)
    with pytest.raises(NotFoundError):
        tf.gfile.Copy(a, str(tmp_path / "c"))
