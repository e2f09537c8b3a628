"""Checkpoints and whole files: tensors saved, restored and merged, files read, written and looked for.

The kernels are thin: `formats/bundle.py` is the format V2, `formats/checkpoint_v1.py` the format V1. They
wait for the disk, so they run on threads of their own. Formats are imported where they are used: most
programs load none.
"""

from __future__ import annotations

import glob
import os
from typing import Any

import numpy as np

from graphrt.core.dtypes import DType
from graphrt.core.errors import InvalidArgumentError
from graphrt.core.file_access import confined
from graphrt.core.registry import ALL, KernelContext, ShapeContext, op
from graphrt.core.samples import program, sample, text
from graphrt.core.shapes import SCALAR, UNKNOWN, TensorShape, unknown
from graphrt.formats.atomic_files import os_error
from graphrt.ops.strings import scalar_text, text_array


class _File:
    """What the ops of this file share: they touch files, in host memory."""

    stateful = True
    blocking = True
    cpu_only = True
    not_differentiable = True
    host_inputs = ALL
    host_outputs = ALL


def _path(value: Any, what: str) -> str:
    if value.shape != ():
        raise InvalidArgumentError(None, None, f"{what} must be a scalar, not of shape {list(value.shape)}")
    return confined(os.fsdecode(value.item()))


def _names(value: Any, count: int, what: str) -> list[str]:
    if value.shape != (count,):
        raise InvalidArgumentError(
            None,
            None,
            f"{what} must be a vector of {count}, one for each tensor, not of shape {list(value.shape)}",
        )
    return [item.decode(errors="surrogateescape") for item in value.tolist()]


def _slice(spec: str, name: str) -> tuple[tuple[int, ...], Any]:
    from graphrt.formats.slices import parse_slice_spec

    try:
        return parse_slice_spec(spec)
    except ValueError as error:
        raise InvalidArgumentError(None, None, f"'{name}': {error}") from None


def _open(prefix: str) -> Any:
    from graphrt.formats.checkpoint import open_checkpoint

    return open_checkpoint(prefix)


def _check_dtype(name: str, stored: DType, wanted: DType) -> None:
    if stored is not wanted:
        raise InvalidArgumentError(
            None,
            None,
            f"tensor_name = {name}; expected dtype {wanted.name} does not equal original dtype {stored.name}",
        )


def _restore(reader: Any, name: str, spec: str, dtype: DType) -> Any:
    """The tensor `name`, or the slice of it that `spec` names."""
    if not spec:
        if name in reader:
            _check_dtype(name, reader.dtype(name), dtype)
        return reader.read(name)
    full_shape, part = _slice(spec, name)
    if name in reader:
        _check_dtype(name, reader.dtype(name), dtype)
        if reader.shape(name) != full_shape:
            raise InvalidArgumentError(
                None,
                None,
                f"tensor_name = {name}; shape in shape_and_slice spec {list(full_shape)} does not match the "
                "shape "
                f"stored in checkpoint: {list(reader.shape(name))}",
            )
    return reader.read_slice(name, part)


_folders: dict[str, str] = {}


def _sample_path(name: str) -> str:
    """A file in a folder that this process's samples share."""
    if "samples" not in _folders:
        import atexit
        import shutil
        import tempfile

        _folders["samples"] = tempfile.mkdtemp(prefix="graphrt-samples-")
        atexit.register(shutil.rmtree, _folders["samples"], True)
    return os.path.join(_folders["samples"], name)


def _saved_v2(tf: Any) -> list[Any]:
    prefix = _sample_path("v2")
    names, slices = ["x", "text", "table", "table"], ["", "", "4 2 0,3:0,2", "4 2 3,1:0,2"]
    table = tf.constant([[1, 2], [3, 4], [5, 6], [7, 8]], tf.int64)
    values = [tf.constant([1.5, -2.0]), tf.constant(["a", "", "bc"]), table[:3], table[3:]]
    save = tf.raw_ops.SaveV2(prefix=prefix, tensor_names=names, shape_and_slices=slices, tensors=values)
    restored = tf.raw_ops.RestoreV2(
        prefix=prefix,
        tensor_names=["text", "x", "table", "table"],
        shape_and_slices=["", "", "", "4 2 2,2:0,1"],
        dtypes=[tf.string, tf.float32, tf.int64, tf.int64],
    )
    return [save, list(restored)]


def _merged(tf: Any) -> list[Any]:
    shards = [_sample_path(f"parts_temp/shard{i}") for i in range(2)]
    saves = [
        tf.raw_ops.SaveV2(
            prefix=shard, tensor_names=[f"v{i}"], shape_and_slices=[""], tensors=[tf.constant([i, 7])]
        )
        for i, shard in enumerate(shards)
    ]
    with tf.control_dependencies(saves):
        merge = tf.raw_ops.MergeV2Checkpoints(
            checkpoint_prefixes=shards, destination_prefix=_sample_path("whole"), delete_old_dirs=True
        )
    restored = tf.raw_ops.RestoreV2(
        prefix=_sample_path("whole"),
        tensor_names=["v1", "v0"],
        shape_and_slices=["", ""],
        dtypes=[tf.int32, tf.int32],
    )
    return [merge, list(restored)]


@op(
    "SaveV2(prefix: string, tensor_names: string, shape_and_slices: string, tensors: list(dtypes))",
    dtypes="list(type) >= 1",
)
class SaveV2(_File):
    """Write `tensors` to the checkpoint `prefix`, a bundle of one data file: whole, or not at all.

    An element of `shape_and_slices` that is not empty ('10 4 0,5:0,4') says of which tensor its value is a
    part.
    """

    samples = [program(_saved_v2)]

    def compute(
        self, k: KernelContext, prefix: Any, tensor_names: Any, shape_and_slices: Any, *tensors: Any
    ) -> Any:
        from graphrt.formats.bundle import BundleWriter

        path = _path(prefix, "prefix")
        names = _names(tensor_names, len(tensors), "tensor_names")
        specs = _names(shape_and_slices, len(tensors), "shape_and_slices")
        _make_folder(path)
        with BundleWriter(path) as writer:
            for name, spec, tensor, dtype in zip(names, specs, tensors, k.input_dtypes[3:]):
                value = np.asarray(tensor)
                if spec:
                    writer.add_slice(name, *_slice(spec, name), value, dtype.base_dtype)
                else:
                    writer.add(name, value, dtype.base_dtype)
        return ()


@op(
    "RestoreV2(prefix: string, tensor_names: string, shape_and_slices: string) -> tensors: list(dtypes)",
    dtypes="list(type) >= 1",
)
class RestoreV2(_File):
    """Read tensors, or parts of them, from the checkpoint `prefix`, of format V2 or V1."""

    samples = [program(_saved_v2)]

    def shape(
        self, s: ShapeContext, prefix: Any, tensor_names: Any, shape_and_slices: Any
    ) -> list[TensorShape]:
        prefix.with_rank(0)
        tensor_names.with_rank(1)
        specs = s.value(2)
        if specs is None or specs.shape != (len(s.attrs["dtypes"]),):
            return [UNKNOWN] * len(s.attrs["dtypes"])
        return [_static_shape(spec.decode()) for spec in specs.tolist()]

    def compute(self, k: KernelContext, prefix: Any, tensor_names: Any, shape_and_slices: Any) -> Any:
        count = len(k.output_dtypes)
        names = _names(tensor_names, count, "tensor_names")
        specs = _names(shape_and_slices, count, "shape_and_slices")
        with _open(_path(prefix, "prefix")) as reader:
            return tuple([_restore(reader, n, s, d) for n, s, d in zip(names, specs, k.output_dtypes)])


def _static_shape(spec: str) -> TensorShape:
    if not spec:
        return UNKNOWN
    from graphrt.formats.slices import parse_slice_spec

    full_shape, part = parse_slice_spec(spec)
    return TensorShape.of(part.shape(full_shape))


def _make_folder(path: str) -> None:
    folder = os.path.dirname(path)
    if folder:
        try:
            os.makedirs(folder, exist_ok=True)
        except OSError as error:
            raise os_error(error, folder) from None


@op(
    "MergeV2Checkpoints(checkpoint_prefixes: string, destination_prefix: string)",
    delete_old_dirs="bool = True",
    allow_missing_files="bool = False",
)
class MergeV2Checkpoints(_File):
    """Make the checkpoint `destination_prefix` of those that tasks wrote: their data files are renamed."""

    samples = [program(_merged)]

    def compute(self, k: KernelContext, checkpoint_prefixes: Any, destination_prefix: Any) -> Any:
        from graphrt.formats.bundle import merge_bundles

        prefixes = [confined(os.fsdecode(p)) for p in checkpoint_prefixes.reshape(-1).tolist()]
        merged = _path(destination_prefix, "destination_prefix")
        _make_folder(merged)
        merge_bundles(prefixes, merged, k.attrs["allow_missing_files"])
        if k.attrs["delete_old_dirs"]:
            for folder in {os.path.dirname(p) for p in prefixes} - {os.path.dirname(merged)}:
                try:
                    os.rmdir(folder)
                except OSError:
                    pass  # something else is in it
        return ()


@op("ShardedFilename(basename: string, shard: int32, num_shards: int32) -> filename: string")
class ShardedFilename:
    """'basename-00003-of-00010' of a basename, shard 3 and 10 shards."""

    cpu_only = True
    not_differentiable = True
    samples = [sample(text("model/part").reshape(()), np.int32(3).reshape(()), np.int32(10).reshape(()))]

    def shape(self, s: ShapeContext, basename: Any, shard: Any, num_shards: Any) -> TensorShape:
        for shape in (basename, shard, num_shards):
            shape.with_rank(0)
        return SCALAR

    def compute(self, k: KernelContext, basename: Any, shard: Any, num_shards: Any) -> Any:
        return scalar_text(b"%s-%05d-of-%05d" % (basename.item(), int(shard), int(num_shards)))


@op("ShardedFilespec(basename: string, num_shards: int32) -> filename: string")
class ShardedFilespec:
    """'basename-?????-of-00010', which matches all files of 10 shards."""

    cpu_only = True
    not_differentiable = True
    samples = [sample(text("model").reshape(()), np.int32(10).reshape(()))]

    def shape(self, s: ShapeContext, basename: Any, num_shards: Any) -> TensorShape:
        basename.with_rank(0)
        num_shards.with_rank(0)
        return SCALAR

    def compute(self, k: KernelContext, basename: Any, num_shards: Any) -> Any:
        return scalar_text(b"%s-?????-of-%05d" % (basename.item(), int(num_shards)))


# -- format V1
# -------------------------------------------------------------------------------------------------


def _saved_v1(tf: Any) -> list[Any]:
    path = _sample_path("v1")
    save = tf.raw_ops.Save(
        filename=path, tensor_names=["x", "n"], data=[tf.constant([1.5, -2.0]), tf.constant([[1], [2]])]
    )
    return [save, tf.raw_ops.Restore(file_pattern=path, tensor_name="n", dt=tf.int32)]


def _saved_slices(tf: Any) -> list[Any]:
    path = _sample_path("v1slices")
    save = tf.raw_ops.SaveSlices(
        filename=path,
        tensor_names=["w", "w", "b"],
        shapes_and_slices=["4 0,2", "4 2,2", ""],
        data=[tf.constant([1.0, 2.0]), tf.constant([3.0, 4.0]), tf.constant([True])],
    )
    part = tf.raw_ops.RestoreSlice(file_pattern=path, tensor_name="w", shape_and_slice="4 1,2", dt=tf.float32)
    whole = tf.raw_ops.Restore(file_pattern=path, tensor_name="w", dt=tf.float32)
    return [save, [part, whole]]


def _save_v1(
    k: KernelContext, filename: Any, tensor_names: Any, specs: list[str], data: tuple[Any, ...]
) -> Any:
    from graphrt.formats.checkpoint_v1 import write_checkpoint
    from graphrt.formats.slices import TensorSlice

    names = _names(tensor_names, len(data), "tensor_names")
    rows = []
    for name, spec, tensor, dtype in zip(
        names, specs, data, k.input_dtypes[len(k.input_dtypes) - len(data) :]
    ):
        value = np.asarray(tensor)
        full_shape, part = _slice(spec, name) if spec else (value.shape, TensorSlice.whole(value.ndim))
        rows.append((name, full_shape, part, value, dtype.base_dtype))
    path = _path(filename, "filename")
    _make_folder(path)
    write_checkpoint(path, rows)
    return ()


@op("Save(filename: string, tensor_names: string, data: list(T))", T="list(type) >= 1")
class Save(_File):
    """Write tensors to a checkpoint of format V1, one file."""

    samples = [program(_saved_v1)]

    def compute(self, k: KernelContext, filename: Any, tensor_names: Any, *data: Any) -> Any:
        return _save_v1(k, filename, tensor_names, [""] * len(data), data)


@op(
    "SaveSlices(filename: string, tensor_names: string, shapes_and_slices: string, data: list(T))",
    T="list(type) >= 1",
)
class SaveSlices(_File):
    """Write tensors, or parts of them, to a checkpoint of format V1, one file."""

    samples = [program(_saved_slices)]

    def compute(
        self, k: KernelContext, filename: Any, tensor_names: Any, shapes_and_slices: Any, *data: Any
    ) -> Any:
        specs = _names(shapes_and_slices, len(data), "shapes_and_slices")
        return _save_v1(k, filename, tensor_names, specs, data)


@op("Restore(file_pattern: string, tensor_name: string) -> tensor: dt", dt="type", preferred_shard="int = -1")
class Restore(_File):
    """Read a tensor from the checkpoint files that `file_pattern` matches."""

    samples = [program(_saved_v1)]

    def shape(self, s: ShapeContext, file_pattern: Any, tensor_name: Any) -> TensorShape:
        file_pattern.with_rank(0)
        tensor_name.with_rank(0)
        return UNKNOWN

    def compute(self, k: KernelContext, file_pattern: Any, tensor_name: Any) -> Any:
        with _open(_path(file_pattern, "file_pattern")) as reader:
            return _restore(reader, tensor_name.item().decode(), "", k.output_dtypes[0])


@op(
    "RestoreSlice(file_pattern: string, tensor_name: string, shape_and_slice: string) -> tensor: dt",
    dt="type",
    preferred_shard="int = -1",
)
class RestoreSlice(_File):
    """Read a tensor, or the part that `shape_and_slice` names, from the checkpoint files that
    `file_pattern` matches."""

    samples = [program(_saved_slices)]

    def shape(
        self, s: ShapeContext, file_pattern: Any, tensor_name: Any, shape_and_slice: Any
    ) -> TensorShape:
        file_pattern.with_rank(0)
        tensor_name.with_rank(0)
        spec = s.value(2)
        return UNKNOWN if spec is None else _static_shape(spec.item().decode())

    def compute(self, k: KernelContext, file_pattern: Any, tensor_name: Any, shape_and_slice: Any) -> Any:
        with _open(_path(file_pattern, "file_pattern")) as reader:
            return _restore(
                reader, tensor_name.item().decode(), shape_and_slice.item().decode(), k.output_dtypes[0]
            )


# -- whole files
# -----------------------------------------------------------------------------------------------


def _written(tf: Any) -> list[Any]:
    path = _sample_path("folder/file.txt")
    return [
        tf.raw_ops.WriteFile(filename=path, contents=b"some\x00bytes"),
        tf.raw_ops.ReadFile(filename=path),
    ]


def _matched(tf: Any) -> list[Any]:
    paths = [_sample_path(f"found/{name}") for name in ("b.txt", "a.txt", ".c.txt", "d.csv")]
    return [
        [tf.raw_ops.WriteFile(filename=path, contents=b"") for path in paths],
        tf.strings.substr(
            tf.raw_ops.MatchingFiles(pattern=[_sample_path("found/*.txt"), _sample_path("found/?.csv")]),
            -5,
            5,
        ),
        tf.raw_ops.MatchingFiles(pattern=_sample_path("found/nothing*")),
    ]


@op("ReadFile(filename: string) -> contents: string")
class ReadFile(_File):
    """The content of a file."""

    stateful = False
    unfoldable = True
    samples = [program(_written)]

    def shape(self, s: ShapeContext, filename: Any) -> TensorShape:
        filename.with_rank(0)
        return SCALAR

    def compute(self, k: KernelContext, filename: Any) -> Any:
        path = _path(filename, "filename")
        try:
            with open(path, "rb") as file:
                return scalar_text(file.read())
        except OSError as error:
            raise os_error(error, path) from None


@op("WriteFile(filename: string, contents: string)")
class WriteFile(_File):
    """Write a file with this content; folders that are missing are made."""

    samples = [program(_written)]

    def compute(self, k: KernelContext, filename: Any, contents: Any) -> Any:
        path = _path(filename, "filename")
        if contents.shape != ():
            raise InvalidArgumentError(
                None, None, f"contents must be a scalar, not of shape {list(contents.shape)}"
            )
        _make_folder(path)
        try:
            with open(path, "wb") as file:
                file.write(contents.item())
        except OSError as error:
            raise os_error(error, path) from None
        return ()


@op("MatchingFiles(pattern: string) -> filenames: string")
class MatchingFiles(_File):
    """The files that a pattern, or one of several, matches, in order. Only the last part may have wildcards
    in
    TensorFlow; here any may."""

    stateful = False
    unfoldable = True
    samples = [program(_matched)]

    def shape(self, s: ShapeContext, pattern: Any) -> TensorShape:
        pattern.with_rank_at_most(1)
        return unknown(1)

    def compute(self, k: KernelContext, pattern: Any) -> Any:
        found: list[bytes] = []
        for one in pattern.reshape(-1).tolist():
            confined(os.fsdecode(one))
            found += [path for path in glob.glob(one, include_hidden=True) if confined(os.fsdecode(path))]
        return text_array(sorted(found), (len(found),))
