"""TFRecord and event files, beside TensorFlow's."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphrt import python_io
from graphrt.core.errors import DataLossError, InvalidArgumentError, NotFoundError
from graphrt.formats.event_file import EventFileWriter, read_events
from graphrt.formats.records import RecordWriter, read_records
from graphrt.protos import event_pb2

RECORDS = [b"", b"one", b"\x00" * 1000, bytes(range(256)) * 2000]
COMPRESSIONS = pytest.mark.parametrize("compression", ["", "ZLIB", "GZIP"])


@COMPRESSIONS
def test_records_come_back(tmp_path, compression):
    path = str(tmp_path / "r")
    with RecordWriter(path, compression) as writer:
        for record in RECORDS:
            writer.write(record)
    assert list(read_records(path, compression)) == RECORDS


@COMPRESSIONS
def test_tensorflow_reads_ours_and_we_read_its(tf, tmp_path, compression):
    ours, theirs = str(tmp_path / "ours"), str(tmp_path / "theirs")
    with python_io.TFRecordWriter(ours, compression) as writer:
        for record in RECORDS:
            writer.write(record)
    with tf.io.TFRecordWriter(theirs, compression) as writer:
        for record in RECORDS:
            writer.write(record)
    assert list(tf.compat.v1.io.tf_record_iterator(ours, tf.io.TFRecordOptions(compression))) == RECORDS
    options = python_io.TFRecordOptions({"ZLIB": 1, "GZIP": 2, "": 0}[compression])
    assert list(python_io.tf_record_iterator(theirs, options)) == RECORDS
    if not compression:
        assert open(ours, "rb").read() == open(theirs, "rb").read()


def test_options_reach_zlib(tmp_path):
    sizes = {}
    for level in (0, 9):
        path = str(tmp_path / f"r{level}")
        with python_io.TFRecordWriter(
            path, python_io.TFRecordOptions("GZIP", compression_level=level)
        ) as writer:
            writer.write(RECORDS[-1])
        sizes[level] = (tmp_path / f"r{level}").stat().st_size
        assert list(python_io.tf_record_iterator(path, "GZIP")) == [RECORDS[-1]]
    assert sizes[9] < sizes[0] / 10


def test_unknown_compressions_are_refused(tmp_path):
    with pytest.raises(ValueError, match='Not a valid compression_type: "LZ4"'):
        python_io.TFRecordOptions("LZ4")
    with pytest.raises(InvalidArgumentError, match="unknown compression 'LZ4'"):
        list(read_records(str(tmp_path), "LZ4"))
    with pytest.raises(NotFoundError):
        list(read_records(str(tmp_path / "none")))


def test_damage_is_named_by_its_offset(tmp_path):
    path = tmp_path / "r"
    with RecordWriter(str(path)) as writer:
        writer.write(b"first")
        writer.write(b"second")
    content = path.read_bytes()
    path.write_bytes(content[:-5] + b"\x00" + content[-4:])
    read = read_records(str(path))
    assert next(read) == b"first"
    with pytest.raises(DataLossError, match=f"corrupted record at {5 + 16}: the checksum of its 6 bytes"):
        next(read)
    path.write_bytes(content[:-6])
    with pytest.raises(DataLossError, match=f"truncated record at {5 + 16}: 6 bytes are announced"):
        list(read_records(str(path)))
    assert list(read_records(str(path), allow_unfinished=True)) == [b"first"]


@COMPRESSIONS
@settings(max_examples=100)
@given(content=st.binary(max_size=200))
def test_any_bytes_are_records_or_data_loss(tmp_path_factory, compression, content):
    path = tmp_path_factory.mktemp("any") / "r"
    path.write_bytes(content)
    try:
        assert list(read_records(str(path), compression)) == [] or content
    except DataLossError:
        pass


def test_a_length_that_lies_takes_no_memory(tmp_path):
    from graphrt.formats.crc32c import masked_crc32c

    path = tmp_path / "r"
    length = struct.pack("<Q", 1 << 60)
    path.write_bytes(length + struct.pack("<I", masked_crc32c(length)) + b"few")
    with pytest.raises(DataLossError, match="truncated record at 0"):
        list(read_records(str(path)))


def test_events_are_read_by_tensorflow(tf, tmp_path):
    writer = EventFileWriter(str(tmp_path / "events"), ".suffix")
    for step in range(3):
        writer.write(event_pb2.Event(wall_time=1.5, step=step, file_version="x"))
    writer.close()
    ours = list(read_events(writer.path))
    theirs = list(tf.compat.v1.train.summary_iterator(writer.path))
    assert [e.SerializeToString() for e in ours] == [e.SerializeToString() for e in theirs]
    assert ours[0].file_version == "brain.Event:2" and [e.step for e in ours] == [0, 0, 1, 2]
    assert writer.path.endswith(".suffix") and "events.out.tfevents." in writer.path


def test_a_record_that_is_no_event_is_data_loss(tmp_path):
    path = str(tmp_path / "e")
    with RecordWriter(path) as writer:
        writer.write(b"\xff\xff\xff")
    with pytest.raises(DataLossError, match="record 0 is no Event message"):
        list(read_events(path))
