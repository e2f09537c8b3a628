"""Tensor bundles: bytes equal to TensorFlow's, damage that is named, writers that die."""

import os
import random
import signal
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphrt.core.dtypes import as_dtype, of_array
from graphrt.core.errors import (
    AlreadyExistsError,
    DataLossError,
    InvalidArgumentError,
    NotFoundError,
    OpError,
)
from graphrt.formats import atomic_files, bundle_index
from graphrt.formats.bundle import BundleWriter, merge_bundles
from graphrt.formats.bundle_reader import BundleReader
from graphrt.formats.slices import TensorSlice, parse_slice_spec

DTYPES = (
    "float32 float64 int32 uint8 int16 int8 complex64 int64 bool bfloat16 uint16 complex128 float16 uint32 "
    "uint64"
).split()


def text(*items):
    made = np.empty(len(items), object)
    made[:] = items
    return made


def tensors():
    """(name, slice spec, value) of every dtype, text, shapes of all kinds and two partitioned tensors."""
    rng = np.random.default_rng(0)
    rows = [(f"all/{n}", "", (rng.standard_normal((3, 5)) * 10).astype(as_dtype(n).np)) for n in DTYPES]
    rows += [
        ("text", "", text(b"abc", b"", b"\x00\xff" * 200)),
        ("scalar", "", np.array(3.5, np.float32)),
        ("text scalar", "", text(b"x").reshape(())),
        ("empty", "", np.zeros((0, 4), np.float32)),
        ("parts", "10 4 0,6:0,4", rng.standard_normal((6, 4)).astype(np.float32)),
        ("parts", "10 4 6,4:0,4", rng.standard_normal((4, 4)).astype(np.float32)),
        ("columns\xff", "200 300 -:100,200", rng.standard_normal((200, 200))),
        ("columns\xff", "200 300 0,200:0,100", rng.standard_normal((200, 100))),
        ("whole", "2 2 0,2:0,2", np.eye(2)),
    ]
    rows += [(f"many/{i:04d}", "", np.full(i % 3, i, np.int32)) for i in range(3000)]
    return rows


def write(prefix, rows):
    with BundleWriter(str(prefix)) as writer:
        for name, spec, value in rows:
            if spec:
                writer.add_slice(name, *parse_slice_spec(spec), value, of_array(value))
            else:
                writer.add(name, value, of_array(value))


def read(prefix):
    with BundleReader(str(prefix)) as reader:
        return {name: reader.read(name) for name in reader.names()}


def test_a_bundle_is_tensorflows_bit_for_bit(tf, tmp_path):
    rows = tensors()
    write(tmp_path / "ours", rows)
    names, specs, values = zip(*rows)
    tf.raw_ops.SaveV2(
        prefix=str(tmp_path / "theirs"),
        tensor_names=list(names),
        shape_and_slices=list(specs),
        tensors=[tf.constant(v) for v in values],
    )
    for suffix in (".index", ".data-00000-of-00001"):
        assert (tmp_path / f"ours{suffix}").read_bytes() == (tmp_path / f"theirs{suffix}").read_bytes()


def test_what_is_written_is_read(tmp_path):
    write(tmp_path / "b", tensors())
    with BundleReader(str(tmp_path / "b")) as reader:
        for name, spec, value in tensors():
            if not spec:
                got = reader.read(name)
                assert got.dtype == value.dtype and got.shape == value.shape
                np.testing.assert_array_equal(got, value)
        parts = [v for n, _, v in tensors() if n == "parts"]
        np.testing.assert_array_equal(reader.read("parts"), np.concatenate(parts))
        across = reader.read_slice("parts", TensorSlice((5, 1), (3, 2)))
        np.testing.assert_array_equal(across, np.concatenate(parts)[5:8, 1:3])
        assert reader.shape("columns\xff") == (200, 300) and reader.slices("whole") == []


def test_merged_bundles_are_tensorflows(tf, tmp_path):
    shards = [tensors()[::2], tensors()[1::2]]
    for who in ("ours", "theirs"):
        (tmp_path / f"{who}_temp").mkdir()
        for i, rows in enumerate(shards):
            write(tmp_path / f"{who}_temp/part{i}", rows)
    prefixes = {w: [str(tmp_path / f"{w}_temp/part{i}") for i in range(2)] for w in ("ours", "theirs")}
    merge_bundles(prefixes["ours"], str(tmp_path / "ours"))
    tf.raw_ops.MergeV2Checkpoints(
        checkpoint_prefixes=prefixes["theirs"], destination_prefix=str(tmp_path / "theirs")
    )
    for suffix in (".index", ".data-00000-of-00002", ".data-00001-of-00002"):
        assert (tmp_path / f"ours{suffix}").read_bytes() == (tmp_path / f"theirs{suffix}").read_bytes()
    assert sorted(os.listdir(tmp_path / "ours_temp")) == []


def test_a_name_twice_is_refused_and_leaves_no_file(tmp_path):
    with pytest.raises(AlreadyExistsError, match="Adding duplicate key: x"):
        write(tmp_path / "b", [("x", "", np.ones(2)), ("x", "", np.ones(2))])
    assert os.listdir(tmp_path) == []


def test_slices_must_fit_their_tensor(tmp_path):
    with pytest.raises(InvalidArgumentError, match="'x': the slice 0,2 of a tensor of shape"):
        write(tmp_path / "b", [("x", "4 0,2", np.ones(3))])
    with pytest.raises(InvalidArgumentError, match="'x': its slices are not of one tensor"):
        write(tmp_path / "b", [("x", "4 0,2", np.ones(2)), ("x", "5 2,2", np.ones(2))])
    with pytest.raises(ValueError, match="does not name a slice"):
        parse_slice_spec("4 0,2:")
    write(tmp_path / "b", [("x", "4 0,2", np.ones(2))])
    with BundleReader(str(tmp_path / "b")) as reader, pytest.raises(NotFoundError, match="do not cover"):
        reader.read("x")


def test_damage_names_the_tensor_and_its_offset(tmp_path):
    write(
        tmp_path / "b",
        [("first", "", np.arange(10)), ("second", "", np.arange(5.0)), ("text", "", text(b"ab", b"c"))],
    )
    data = tmp_path / "b.data-00000-of-00001"
    whole = data.read_bytes()
    data.write_bytes(whole[:85] + b"\x55" + whole[86:])
    with BundleReader(str(tmp_path / "b")) as reader:
        np.testing.assert_array_equal(reader.read("first"), np.arange(10))
        with pytest.raises(
            DataLossError, match=r"'second' \(float64 \[5\]\) at byte 80 of .*the checksum of its 40 bytes"
        ):
            reader.read("second")
    data.write_bytes(whole[:-1])
    with (
        BundleReader(str(tmp_path / "b")) as reader,
        pytest.raises(DataLossError, match="'text' .* do not fit into a file"),
    ):
        reader.read("text")
    data.unlink()
    with BundleReader(str(tmp_path / "b")) as reader, pytest.raises(NotFoundError):
        reader.read("first")


SMALL = [
    ("a", "", np.arange(6, dtype=np.int64)),
    ("p", "4 0,2", np.ones(2)),
    ("p", "4 2,2", np.ones(2)),
    ("s", "", text(b"one", b"two")),
]


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    folder = tmp_path_factory.mktemp("small")
    write(folder / "b", SMALL)
    return folder / "b"


@settings(max_examples=300)
@given(st.data())
def test_changed_bytes_give_the_same_values_or_an_error(small, tmp_path_factory, data):
    """A flipped, lost or added byte anywhere: never another value, never another exception than an
    OpError."""
    folder = tmp_path_factory.mktemp("changed")
    suffix = data.draw(st.sampled_from([".index", ".data-00000-of-00001"]))
    for s in (".index", ".data-00000-of-00001"):
        (folder / f"b{s}").write_bytes(small.with_name(f"b{s}").read_bytes())
    content = bytearray((folder / f"b{suffix}").read_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    how = data.draw(st.sampled_from(["flip", "cut", "insert"]))
    if how == "flip":
        content[at] ^= data.draw(st.integers(1, 255))
    elif how == "cut":
        del content[at:]
    else:
        content[at:at] = data.draw(st.binary(min_size=1, max_size=8))
    (folder / f"b{suffix}").write_bytes(content)
    wanted = read(small)
    try:
        with BundleReader(str(folder / "b")) as reader:
            for name in reader.names():
                np.testing.assert_array_equal(reader.read(name), wanted[name])
    except OpError:
        pass


@settings(max_examples=200)
@given(st.binary(max_size=300))
def test_any_bytes_as_an_index_are_an_error(tmp_path_factory, content):
    folder = tmp_path_factory.mktemp("any")
    (folder / "b.index").write_bytes(content)
    with pytest.raises(DataLossError):
        BundleReader(str(folder / "b"))


class Killed(BaseException):
    """Stands for SIGKILL: nothing after it runs."""


class DyingDisk:
    """Counts writes, renames and removals; the one numbered `fatal` is the last, and a write of it is half
    done."""

    def __init__(self, patch, fatal):
        self.left = fatal
        write = atomic_files.AtomicFile.write

        def dying_write(file, piece):
            if self.left == 0:
                write(file, bytes(piece)[: len(piece) // 2])
            self.step()
            write(file, piece)

        patch.setattr(atomic_files.AtomicFile, "write", dying_write)
        patch.setattr(atomic_files.AtomicFile, "discard", lambda file: file._file.close())
        for name in ("replace", "unlink"):
            patch.setattr(os, name, self.dying(getattr(os, name)))

    def step(self):
        if self.left == 0:
            raise Killed
        self.left -= 1

    def dying(self, function):
        def call(*args):
            self.step()
            return function(*args)

        return call


OLD = [("x", "", np.arange(1000)), ("y", "", text(b"old"))]
NEW = [("x", "", np.arange(1000) * 7), ("y", "", text(b"newer"))]


def _overwrite(folder, is_merge):
    if is_merge:
        merge_bundles([str(folder / "part0"), str(folder / "part1")], str(folder / "b"))
    else:
        write(folder / "b", NEW)


@pytest.mark.parametrize("is_merge", [False, True], ids=["save", "merge"])
def test_a_writer_that_dies_at_any_operation_leaves_a_whole_checkpoint(tmp_path, monkeypatch, is_merge):
    """The old values are there, or the new; and the next writer takes the place of what the dead one left."""
    seen = set()
    is_finished = False
    fatal = 0
    while not is_finished:
        folder = tmp_path / str(fatal)
        folder.mkdir()
        write(folder / "b", OLD)
        if is_merge:
            write(folder / "part0", NEW[:1])
            write(folder / "part1", NEW[1:])
        with monkeypatch.context() as patch:
            DyingDisk(patch, fatal)
            try:
                _overwrite(folder, is_merge)
                is_finished = True
            except Killed:
                fatal += 1
        found = read(folder / "b")
        is_new = bool(found["x"][1] == 7)
        seen.add(is_new)
        for name, _, value in NEW if is_new else OLD:
            np.testing.assert_array_equal(found[name], value)
        if not is_finished:
            write(folder / "b", OLD)
            np.testing.assert_array_equal(read(folder / "b")["x"], np.arange(1000))
    assert is_new and seen == {False, True} and fatal > 5
    # The old data files are gone: those there are belong to one bundle.
    assert len({path[-5:] for path in bundle_index.data_files(str(folder / "b"))}) == 1


_LOOP = """
import sys
import numpy as np
from graphrt.core.dtypes import int64
from graphrt.formats.bundle import BundleWriter
for step in range(10**6):
    with BundleWriter(sys.argv[1]) as writer:
        writer.add("step", np.full(200_000, step), int64)
        writer.add("again", np.full(1000, step), int64)
    print(step, flush=True)
"""


def test_checkpoints_survive_sigkill(tmp_path):
    """The process that saves to one prefix again and again is killed at seeded moments."""
    moments = random.Random(5)
    for _ in range(5):
        process = subprocess.Popen(
            [sys.executable, "-c", _LOOP, str(tmp_path / "b")],
            stdout=subprocess.PIPE,
            text=True,
            cwd=os.path.dirname(os.path.dirname(os.path.dirname(__file__))),
        )
        try:
            done = [int(process.stdout.readline()) for _ in range(moments.randint(1, 6))]
            for _ in range(moments.randint(0, 20_000)):
                pass  # a moment somewhere inside the next save
            process.send_signal(signal.SIGKILL)
            done += [int(line) for line in process.stdout.read().split("\n") if line.strip()]
        finally:
            process.kill()
            process.wait(30)
            process.stdout.close()
        found = read(tmp_path / "b")
        assert found["step"][0] >= done[-1] and (found["step"] == found["step"][0]).all()
        assert (found["again"] == found["step"][0]).all()


def test_a_tensor_that_changes_while_it_is_saved_has_the_right_checksum(tmp_path, monkeypatch):
    value = np.zeros(3 << 20, np.uint8)
    plain = atomic_files.AtomicFile.write

    def write_and_change(self, piece):
        value[:] += 1
        plain(self, piece)

    with monkeypatch.context() as patch:
        patch.setattr(atomic_files.AtomicFile, "write", write_and_change)
        write(tmp_path / "b", [("x", "", value)])
    assert sorted(set(read(tmp_path / "b")["x"].tolist())) == [0, 1, 2]


def test_saving_and_reading_take_no_second_copy(tmp_path):
    """Beside the tensor, a few pieces of a megabyte."""
    import tracemalloc

    value = np.zeros(64 << 20, np.uint8)
    tracemalloc.start()
    try:
        write(tmp_path / "b", [("x", "", value)])
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
        tracemalloc.reset_peak()
        read(tmp_path / "b")
        assert tracemalloc.get_traced_memory()[1] < (64 + 8) << 20
    finally:
        tracemalloc.stop()
