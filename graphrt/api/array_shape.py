"""Shapes asked for and changed: tf.shape, tf.reshape, tf.transpose, tf.pad, tf.tile, tf.meshgrid, …"""

from __future__ import annotations

from typing import Any

import numpy as np

import graphrt.ops  # noqa: F401  (registers the ops)
from graphrt.api.array_creation import ones, sequence_mask, zeros
from graphrt.api.math_reduce import renamed
from graphrt.core import raw
from graphrt.core.constant_value import constant_value
from graphrt.core.convert import convert_to_tensor
from graphrt.core.default_graph import name_scope
from graphrt.core.dtypes import as_dtype, int32
from graphrt.core.shapes import Dimension, TensorShape, broadcast_static_shape
from graphrt.core.tensor import SparseTensor, Tensor
from graphrt.ops.array_indexing import boolean_mask
from graphrt.ops.array_nodes import int_constant, rank_of, shape_of, size_of
from graphrt.ops.broadcasting import cast_to

__all__ = [
    "batch_to_space", "batch_to_space_nd", "broadcast_dynamic_shape", "broadcast_static_shape",
    "broadcast_to", "depth_to_space", "dimension_at_index", "dimension_value", "expand_dims",
    "extract_image_patches", "invert_permutation", "matrix_transpose", "meshgrid", "pad", "rank", "repeat",
    "required_space_to_batch_paddings", "reshape", "reverse", "reverse_sequence", "reverse_v2", "roll",
    "shape", "shape_n", "size", "space_to_batch", "space_to_batch_nd", "space_to_depth", "squeeze", "tile",
    "transpose",
]


def shape(input: Any, name: str | None = None, out_type: Any = None) -> Tensor:
    """The shape of `input` as a vector of `out_type` (int32): a constant where it is known."""
    kind = int32 if out_type is None else as_dtype(out_type)
    with name_scope(name, "Shape", [input]) as name:
        if isinstance(input, SparseTensor):
            return raw.Cast(input.dense_shape, DstT=kind)
        input = convert_to_tensor(input)
        if input.shape.is_fully_defined():
            sizes = np.array(input.shape.as_list(), kind.np)
            return raw.Const(value=sizes, dtype=kind, name=name)
        return raw.Shape(input, out_type=kind, name=name)


def shape_n(input: Any, out_type: Any = int32, name: str | None = None) -> list[Tensor]:
    """The shape of each of the tensors `input`."""
    return raw.ShapeN(list(input), out_type=out_type, name=name)


def size(input: Any, name: str | None = None, out_type: Any = None) -> Tensor:
    """The number of elements of `input`, a scalar of `out_type` (int32): a constant where it is known."""
    kind = int32 if out_type is None else as_dtype(out_type)
    with name_scope(name, "Size", [input]) as name:
        if isinstance(input, SparseTensor):
            return raw.Prod(cast_to(input.dense_shape, kind), 0, name=name)
        return size_of(convert_to_tensor(input), kind, name=name)


def rank(input: Any, name: str | None = None) -> Tensor:
    """The number of dimensions of `input`, an int32 scalar: a constant where it is known."""
    with name_scope(name, "Rank", [input]) as name:
        if isinstance(input, SparseTensor):
            return raw.Size(input.dense_shape, name=name)
        return rank_of(convert_to_tensor(input), name=name)


def reshape(tensor: Any, shape: Any, name: str | None = None) -> Tensor:
    """The elements of `tensor` in another shape.

    Args:
      shape: sizes, a list or int tensor; one may be -1, which stands for what is left.
    Raises:
      ValueError: the static shapes cannot fit. In a step, where the numbers of elements differ.
    """
    return raw.Reshape(tensor, shape, name=name)


def expand_dims(input: Any, axis: Any = None, name: str | None = None, dim: Any = None) -> Tensor:
    """`input` with a dimension of size 1 put in at `axis`, in [-rank - 1, rank]. `dim` is its older name."""
    axis = renamed("dim", dim, "axis", axis)
    if axis is None:
        raise ValueError("Must specify an axis argument to tf.expand_dims()")
    return raw.ExpandDims(input, axis, name=name)


def squeeze(input: Any, axis: Any = None, name: str | None = None, squeeze_dims: Any = None) -> Tensor:
    """`input` without the dimensions `axis` (all of size 1, where None). `squeeze_dims` is its older name."""
    axis = renamed("squeeze_dims", squeeze_dims, "axis", axis)
    axes = [] if axis is None else [axis] if np.isscalar(axis) else list(axis)
    return raw.Squeeze(input, squeeze_dims=axes, name=name)


def broadcast_to(input: Any, shape: Any, name: str | None = None) -> Tensor:
    """`input` repeated to `shape` as NumPy broadcasts."""
    return raw.BroadcastTo(input, shape, name=name)


def broadcast_dynamic_shape(shape_x: Any, shape_y: Any) -> Tensor:
    """The shape that tensors of the shapes `shape_x` and `shape_y`, int vectors, broadcast to."""
    return raw.BroadcastArgs(shape_x, shape_y)


def transpose(a: Any, perm: Any = None, name: str = "transpose", conjugate: bool = False) -> Tensor:
    """`a` with its dimensions in the order `perm`, reversed where None; conjugated too with `conjugate`."""
    with name_scope(name, "transpose", [a]) as name:
        a = convert_to_tensor(a, name="a")
        op = raw.ConjugateTranspose if conjugate and a.dtype.is_complex else raw.Transpose
        if perm is None:
            n = a.shape.rank
            perm = (
                raw.Range(raw.Rank(a) - 1, -1, -1) if n is None else np.arange(n - 1, -1, -1, dtype=np.int32)
            )
        return op(a, perm, name=name)


def matrix_transpose(a: Any, name: str = "matrix_transpose", conjugate: bool = False) -> Tensor:
    """`a` with its last two dimensions swapped.

    Raises:
      ValueError: it has fewer than two.
    """
    with name_scope(name, values=[a]):
        a = convert_to_tensor(a, name="a")
        n = a.shape.rank
        perm: Any
        if n is None:
            count = raw.Rank(a)
            perm = raw.ConcatV2([raw.Range(0, count - 2, 1), [count - 1, count - 2]], 0, name="concat")
        elif n < 2:
            raise ValueError(f"`a` should be a (batch) matrix with rank >= 2, not of shape {a.shape}")
        else:
            perm = [*range(n - 2), n - 1, n - 2]
        return transpose(a, perm=perm, conjugate=conjugate)


def invert_permutation(x: Any, name: str | None = None) -> Tensor:
    """The permutation that undoes the permutation `x`, an int vector."""
    return raw.InvertPermutation(x, name=name)


def reverse(tensor: Any, axis: Any, name: str | None = None) -> Tensor:
    """`tensor` with the order along each of the axes `axis` reversed."""
    return raw.ReverseV2(tensor, axis, name=name)


reverse_v2 = reverse


def reverse_sequence(
    input: Any,
    seq_lengths: Any,
    seq_axis: int | None = None,
    batch_axis: int | None = None,
    name: str | None = None,
    seq_dim: int | None = None,
    batch_dim: int | None = None,
) -> Tensor:
    """`input` with, for each batch element, its first `seq_lengths[b]` elements along `seq_axis` reversed."""
    seq_axis = renamed("seq_dim", seq_dim, "seq_axis", seq_axis)
    batch_axis = renamed("batch_dim", batch_dim, "batch_axis", batch_axis)
    return raw.ReverseSequence(input, seq_lengths, seq_dim=seq_axis, batch_dim=batch_axis, name=name)


def roll(input: Any, shift: Any, axis: Any, name: str | None = None) -> Tensor:
    """`input` shifted by `shift` along `axis` (numbers, or lists of them); what leaves comes in at the other
    end."""
    return raw.Roll(input, shift, axis, name=name)


def pad(
    tensor: Any, paddings: Any, mode: str = "CONSTANT", name: str | None = None, constant_values: Any = 0
) -> Tensor:
    """`tensor` with borders: `paddings[i]` is how much goes before and after it along dimension i.

    Args:
      mode: CONSTANT (filled with `constant_values`), REFLECT or SYMMETRIC (mirrored without or with the
        edge).
    Raises:
      ValueError: an unknown mode.
    """
    mode = mode.upper()
    if mode == "CONSTANT":
        is_zero = (
            not isinstance(constant_values, Tensor)
            and np.ndim(constant_values) == 0
            and (constant_values == np.zeros_like(constant_values))
        )
        if is_zero:
            made = raw.Pad(tensor, paddings, name=name)
        else:
            made = raw.PadV2(tensor, paddings, constant_values, name=name)
    elif mode in ("REFLECT", "SYMMETRIC"):
        made = raw.MirrorPad(tensor, paddings, mode=mode, name=name)
    else:
        raise ValueError(f"mode must be CONSTANT, REFLECT or SYMMETRIC, not {mode}")
    _set_padded_shape(made, paddings)
    return made


def _set_padded_shape(made: Tensor, paddings: Any) -> None:
    """Refine the static shape where some of the paddings are known, and others tensors."""
    sizes = made.op.inputs[0].shape.sizes
    if sizes is None or made.shape.is_fully_defined() or isinstance(paddings, Tensor):
        return
    known: list[int | None] = []
    for pair, d in zip(paddings, sizes):
        ends = [constant_value(p) if isinstance(p, Tensor) else p for p in pair] if len(pair) == 2 else [None]
        known.append(None if d is None or None in ends else d + int(ends[0]) + int(ends[1]))
    made.set_shape(known)


def tile(input: Any, multiples: Any, name: str | None = None) -> Tensor:
    """`input` repeated `multiples[i]` times along each dimension i."""
    return raw.Tile(input, multiples, name=name)


def repeat(input: Any, repeats: Any, axis: int | None = None, name: str | None = None) -> Tensor:
    """Each element (or slice along `axis`) of `input` `repeats` times.

    Args:
      repeats: a number, or one for each slice.
      axis: None flattens `input` first.
    Raises:
      ValueError: axis is outside the rank, or the repeats do not fit.
    """
    if axis is None:
        input, axis = reshape(input, [-1]), 0
    if not isinstance(axis, int):
        raise TypeError(f"axis must be an int, not {axis!r}")
    with name_scope(name, "Repeat", [input, repeats]):
        x = convert_to_tensor(input, name="data")
        repeats = raw.Cast(convert_to_tensor(repeats, name="repeats", preferred_dtype=int32), DstT=int32)
        repeats.shape.with_rank_at_most(1)
        if x.shape.rank is None:
            raise ValueError(f"repeat needs the rank of its input '{x.name}'; axis=None flattens it")
        if x.shape.rank == 0:
            x = raw.Pack([x], name="stack")
        n = x.shape.rank
        if not -n <= axis < n:
            raise ValueError(f"axis={axis} out of bounds: expected {-n}<=axis<{n}")
        axis += n if axis < 0 else 0
        sizes = shape_of(x)
        if repeats.shape.num_elements() == 1:
            times = raw.Reshape(repeats, [])
            spread = _spread(x, axis, times)
            whole = [sizes[:axis], [times * sizes[axis]], sizes[axis + 1 :]]
            return raw.Reshape(spread, raw.ConcatV2(whole, 0, name="concat"))
        if repeats.shape.rank == 1:
            x.shape[axis : axis + 1].assert_is_compatible_with(repeats.shape)
        repeats = raw.BroadcastTo(repeats, [sizes[axis]])
        rows = _as_many_rows(repeats, sizes, axis)
        most = raw.Max(rows, int_constant(np.arange(axis + 1)))
        most = raw.Maximum(int_constant(0, name="zero"), most)
        chosen = sequence_mask(rows, most)
        masked = boolean_mask(_spread(x, axis, most), chosen)
        if axis:
            total = raw.Sum(repeats, raw.Range(0, rank_of(repeats), 1))
            whole = [sizes[:axis], [total], sizes[axis + 1 :]]
            masked = raw.Reshape(masked, raw.ConcatV2(whole, 0, name="concat"))
        masked.set_shape(x.shape[:axis].concatenate([None]).concatenate(x.shape[axis + 1 :]))
        return masked


def _as_many_rows(repeats: Tensor, sizes: Tensor, axis: int) -> Tensor:
    """`repeats`, [n], for each of the rows of the dimensions before `axis`."""
    if not axis:
        return repeats
    own = shape_of(repeats)
    before = sizes[: axis + 1 - rank_of(repeats)]
    rows = raw.BroadcastTo(repeats, raw.ConcatV2([before, own], 0, name="concat"))
    rows.set_shape([None] * (axis + 1))
    return rows


def _spread(x: Tensor, axis: int, times: Tensor) -> Tensor:
    """`x` with a dimension of size `times` behind `axis`, along which it repeats."""
    expanded = raw.ExpandDims(x, axis + 1)
    multiples: list[Any] = [1] * (x.shape.rank + 1)  # type: ignore[operator]
    multiples[axis + 1] = times
    return raw.Tile(expanded, multiples)


def meshgrid(*args: Any, **kwargs: Any) -> list[Tensor]:
    """Coordinate tensors of the grid that the vectors `args` span.

    Args:
      indexing: 'xy', where the first two dimensions are swapped, or 'ij'.
      name: of the scope.
    """
    indexing, name = kwargs.pop("indexing", "xy"), kwargs.pop("name", "meshgrid")
    if kwargs:
        raise TypeError(f"'{next(iter(kwargs))}' is an invalid keyword argument for this function")
    if indexing not in ("xy", "ij"):
        raise ValueError(f"indexing must be either 'xy' or 'ij', got {indexing!r}")
    with name_scope(name, "meshgrid", args):
        n = len(args)
        if not n:
            return []
        made = [
            reshape(convert_to_tensor(x, name="stack"), (1,) * i + (-1,) + (1,) * (n - i - 1))
            for i, x in enumerate(args)
        ]
        sizes = [size(x) for x in args]
        if indexing == "xy" and n > 1:
            made[0] = reshape(made[0], (1, -1) + (1,) * (n - 2))
            made[1] = reshape(made[1], (-1, 1) + (1,) * (n - 2))
            sizes[0], sizes[1] = sizes[1], sizes[0]
        grid = ones(sizes, convert_to_tensor(args[0]).dtype.base_dtype)
        return [x * grid for x in made]


def space_to_depth(input: Any, block_size: int, name: str | None = None, data_format: str = "NHWC") -> Tensor:
    """Images with each block of block_size x block_size pixels as the channels of one pixel."""
    return raw.SpaceToDepth(input, block_size=block_size, data_format=data_format, name=name)


def depth_to_space(input: Any, block_size: int, name: str | None = None, data_format: str = "NHWC") -> Tensor:
    """Images with the channels of each pixel as a block of block_size x block_size pixels."""
    return raw.DepthToSpace(input, block_size=block_size, data_format=data_format, name=name)


def space_to_batch_nd(input: Any, block_shape: Any, paddings: Any, name: str | None = None) -> Tensor:
    """`input`, padded, with the pixels of each block of `block_shape` spread over the batch."""
    return raw.SpaceToBatchND(input, block_shape, paddings, name=name)


def batch_to_space_nd(input: Any, block_shape: Any, crops: Any, name: str | None = None) -> Tensor:
    """The inverse of space_to_batch_nd, with `crops` instead of paddings."""
    return raw.BatchToSpaceND(input, block_shape, crops, name=name)


def space_to_batch(
    input: Any, paddings: Any, block_size: int | None = None, name: str | None = None, block_shape: Any = None
) -> Tensor:
    """space_to_batch_nd of images, with one block size."""
    block_size = renamed("block_size", block_size, "block_shape", block_shape)
    made = raw.SpaceToBatchND(input, np.array([block_size, block_size], np.int64), paddings, name=name)
    made.set_shape(made.shape.with_rank(4))
    return made


def batch_to_space(
    input: Any, crops: Any, block_size: int | None = None, name: str | None = None, block_shape: Any = None
) -> Tensor:
    """batch_to_space_nd of images, with one block size."""
    block_size = renamed("block_size", block_size, "block_shape", block_shape)
    made = raw.BatchToSpaceND(input, np.array([block_size, block_size], np.int64), crops, name=name)
    made.set_shape(made.shape.with_rank(4))
    return made


def required_space_to_batch_paddings(
    input_shape: Any, block_shape: Any, base_paddings: Any = None, name: str | None = None
) -> tuple[Tensor, Tensor]:
    """The paddings that make `input_shape` multiples of `block_shape`, and the crops that undo what they
    added.

    Args:
      base_paddings: [n, 2], paddings that must be there at least; zeros where None.
    """
    with name_scope(name, "required_space_to_batch_paddings", [input_shape, block_shape]):
        sizes: Any = convert_to_tensor(input_shape, dtype=int32, name="input_shape")
        block: Any = convert_to_tensor(block_shape, dtype=int32, name="block_shape")
        block.shape.with_rank(1).assert_is_fully_defined()
        n = block.shape.as_list()[0]
        if n == 0:
            empty = np.zeros((0, 2), np.int32)
            return raw.Const(value=empty, dtype=int32), raw.Const(value=empty, dtype=int32)
        sizes.shape.assert_is_compatible_with([n])
        base: Any
        if base_paddings is None:
            base = zeros([n, 2], int32)
        else:
            base = convert_to_tensor(base_paddings, dtype=int32, name="base_paddings")
        base.shape.assert_is_compatible_with([n, 2])
        known = [constant_value(t) for t in (sizes, block, base)]
        if all(k is not None for k in known):
            sizes, block, base = known
        start, end = base[:, 0], base[:, 1]
        more = (block - (sizes + start + end) % block) % block
        end = end + more
        paddings = [[start[i], end[i]] for i in range(n)]
        crops = [[0, more[i]] for i in range(n)]
        return convert_to_tensor(paddings, name="paddings"), convert_to_tensor(crops, name="crops")


def extract_image_patches(
    images: Any,
    ksizes: Any = None,
    strides: Any = None,
    rates: Any = None,
    padding: str | None = None,
    name: str | None = None,
    sizes: Any = None,
) -> Tensor:
    """[batch, rows, columns, ksize_rows * ksize_columns * depth]: each window of `images`, row by row.

    Args:
      ksizes, strides, rates: [1, rows, columns, 1]; `sizes` is another name of ksizes.
      padding: SAME or VALID.
    """
    ksizes = renamed("ksizes", ksizes, "sizes", sizes)
    return raw.ExtractImagePatches(
        images, ksizes=list(ksizes), strides=list(strides), rates=list(rates), padding=padding, name=name
    )


def dimension_value(dimension: Any) -> Any:
    """The int (or None) of a Dimension; another value as it is."""
    return dimension.value if isinstance(dimension, Dimension) else dimension


def dimension_at_index(shape: TensorShape, index: int) -> Dimension:
    """The Dimension of a shape at an index; an unknown one where the rank is unknown."""
    return Dimension(None) if shape.rank is None else Dimension(shape.sizes[index])
