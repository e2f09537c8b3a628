"""Checkpoints of format V1, beside TensorFlow's."""

import struct
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphrt.core.dtypes import as_dtype, of_array
from graphrt.core.errors import DataLossError, NotFoundError, UnimplementedError
from graphrt.formats import varints
from graphrt.formats.checkpoint import open_checkpoint
from graphrt.formats.checkpoint_v1 import CheckpointV1Reader, write_checkpoint
from graphrt.formats.crc32c import masked_crc32c
from graphrt.formats.slices import TensorSlice, parse_slice_spec
from graphrt.formats.table import TableWriter

DTYPES = "float32 float64 int32 uint8 int16 int8 complex64 complex128 int64 bool float16".split()


def rows():
    rng = np.random.default_rng(1)
    made = [(f"all/{n}", (rng.standard_normal((3, 5)) * 10).astype(as_dtype(n).np)) for n in DTYPES]
    texts = np.empty(2, object)
    texts[:] = [b"abc", b"\x00\xff" * 50]
    return [*made, ("text", texts), ("scalar", np.array(3.5)), ("long", np.zeros(200_000))]


def write(path, tensors):
    write_checkpoint(
        str(path),
        [
            (name, value.shape, TensorSlice.whole(value.ndim), value, of_array(value))
            for name, value in tensors
        ],
    )


def test_tensorflows_are_read(tf, tmp_path):
    tf.raw_ops.Save(
        filename=str(tmp_path / "c"),
        tensor_names=[n for n, _ in rows()],
        data=[tf.constant(v) for _, v in rows()],
    )
    with open_checkpoint(str(tmp_path / "c")) as reader:
        assert reader.names() == sorted(n for n, _ in rows())
        for name, value in rows():
            got = reader.read(name)
            assert got.dtype == value.dtype
            np.testing.assert_array_equal(got, value)


@pytest.fixture
def compressed(tmp_path, monkeypatch):
    """A checkpoint whose blocks are compressed by snappy, as older TensorFlows write them."""
    cramjam = pytest.importorskip("cramjam")

    def compressing_write(self, content):
        packed = bytes(cramjam.snappy.compress_raw(content))
        place = varints.encode(self._offset) + varints.encode(len(packed))
        self._file.write(packed + b"\x01" + struct.pack("<I", masked_crc32c(packed + b"\x01")))
        self._offset += len(packed) + 5
        return place

    with monkeypatch.context() as patch:
        patch.setattr(TableWriter, "_write", compressing_write)
        write(tmp_path / "c", rows())
    return str(tmp_path / "c")


def test_compressed_files_are_read(tf, compressed):
    with open_checkpoint(compressed) as reader:
        for name, value in rows():
            np.testing.assert_array_equal(reader.read(name), value)
    theirs = tf.raw_ops.Restore(file_pattern=compressed, tensor_name="all/int32", dt=tf.int32)
    np.testing.assert_array_equal(theirs.numpy(), dict(rows())["all/int32"])


def test_without_the_library_a_compressed_file_says_what_to_install(compressed, monkeypatch):
    monkeypatch.setitem(sys.modules, "cramjam", None)
    with pytest.raises(UnimplementedError, match=r"pip install graphrt\[snappy\]"):
        open_checkpoint(compressed)


def test_ours_are_read_by_tensorflow(tf, tmp_path):
    write(tmp_path / "c", rows())
    for name, value in rows():
        got = tf.raw_ops.Restore(
            file_pattern=str(tmp_path / "c"), tensor_name=name, dt=of_array(value).number
        )
        np.testing.assert_array_equal(got.numpy(), value)


def test_slices_in_several_files_are_put_together(tmp_path):
    whole = np.arange(40.0).reshape(10, 4)
    for i, spec in enumerate(("10 4 0,6:-", "10 4 6,4:0,4")):
        full_shape, part = parse_slice_spec(spec)
        value = whole[part.box(full_shape)]
        write_checkpoint(
            str(tmp_path / f"c-0000{i}-of-00002"), [("w", full_shape, part, value, of_array(value))]
        )
    with CheckpointV1Reader(str(tmp_path / "c-?????-of-00002")) as reader:
        np.testing.assert_array_equal(reader.read("w"), whole)
        np.testing.assert_array_equal(reader.read_slice("w", TensorSlice((4, 1), (4, 2))), whole[4:8, 1:3])
    with (
        CheckpointV1Reader(str(tmp_path / "c-00000-of-00002")) as reader,
        pytest.raises(NotFoundError, match="do not cover"),
    ):
        reader.read("w")


def test_no_file_is_not_found(tmp_path):
    with pytest.raises(NotFoundError, match="Failed to find any matching files for"):
        open_checkpoint(str(tmp_path / "none"))


@settings(max_examples=200)
@given(at=st.integers(0, 10**6), by=st.integers(1, 255))
def test_a_changed_byte_gives_the_same_values_or_data_loss(tmp_path_factory, at, by):
    path = tmp_path_factory.mktemp("v1") / "c"
    small = rows()[:4]
    write(path, small)
    content = bytearray(path.read_bytes())
    content[at % len(content)] ^= by
    path.write_bytes(content)
    try:
        with CheckpointV1Reader(str(path)) as reader:
            for name, value in small:
                np.testing.assert_array_equal(reader.read(name), value)
    except DataLossError:
        pass


@given(st.binary(max_size=200))
def test_any_bytes_are_data_loss(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("any") / "c"
    path.write_bytes(content)
    with pytest.raises(DataLossError):
        CheckpointV1Reader(str(path))
