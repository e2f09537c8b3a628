"""`x[...]` on tensors: a StridedSlice with TensorFlow's masks and names."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphrt.core import raw
from graphrt.core.constant_value import constant_value
from graphrt.core.convert import convert_to_tensor, is_tensor
from graphrt.core.default_graph import name_scope
from graphrt.core.dtypes import DType, bool_, int16, int32, int64
from graphrt.core.shapes import Dimension
from graphrt.core.tensor import Tensor
from graphrt.ops.array_nodes import shape_of

newaxis = None


class SliceSpec:
    """begin, end and strides of the items of an index, and the masks that say what each item is."""

    def __init__(self) -> None:
        self.begin: list[Any] = []
        self.end: list[Any] = []
        self.strides: list[Any] = []
        self.masks = dict.fromkeys(
            ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask"), 0
        )

    def add(self, begin: Any, end: Any, stride: Any, *masks: str) -> None:
        bit = 1 << len(self.begin)
        self.begin.append(begin)
        self.end.append(end)
        self.strides.append(stride)
        for mask in masks:
            self.masks[mask] |= bit


def _plain(value: Any) -> Any:
    """A number or tensor of a slice; None where it is open or an unknown Dimension."""
    return value.value if isinstance(value, Dimension) else value


def _check_index(index: Any) -> None:
    if is_tensor(index):
        if index.dtype.base_dtype in (int16, int32, int64) and index.shape.rank in (None, 0):
            return
        what = f"a {index.dtype.name} tensor of shape {index.shape}"
    elif isinstance(index, (int, np.integer)) and not isinstance(index, (bool, np.bool_)):
        return
    elif isinstance(index, np.ndarray) and index.ndim == 0 and index.dtype.kind in "iu":
        return
    elif hasattr(index, "__index__") and not isinstance(index, bool):
        return
    else:
        what = repr(index)
    raise TypeError(
        "Only integers, slices (`:`), ellipsis (`...`), tf.newaxis (`None`) and scalar tf.int32/tf.int64 "
        f"tensors are valid indices, got {what}"
    )


def _constant_in(value: int, kind: DType | None) -> Any:
    """`value`, as a constant of the dtype of the tensors beside it."""
    return value if kind is None else raw.Const(value=np.array(value, kind.np), dtype=kind)


def _index_dtype(parts: list[Any]) -> DType | None:
    """The widest dtype of the tensors among the parts of a slice."""
    found = [p.dtype.base_dtype for p in parts if isinstance(p, Tensor)]
    return next((kind for kind in (int64, int32, int16) if kind in found), None)


def slice_spec(items: Any) -> SliceSpec:
    """What the index `items` says. Raises TypeError for what cannot be an index."""
    spec = SliceSpec()
    for item in items if isinstance(items, (list, tuple)) else [items]:
        if isinstance(item, slice):
            parts = [_plain(v) for v in (item.start, item.stop, item.step)]
            kind = _index_dtype(parts)
            for part in parts:
                if part is not None:
                    _check_index(part)
            masks = [m for m, part in zip(("begin_mask", "end_mask"), parts) if part is None]
            spec.add(*[_constant_in(d, kind) if p is None else p for p, d in zip(parts, (0, 0, 1))], *masks)
        elif item is Ellipsis:
            spec.add(0, 0, 1, "ellipsis_mask")
        elif item is newaxis:
            spec.add(0, 0, 1, "new_axis_mask")
        else:
            item = _plain(item)
            _check_index(item)
            kind = item.dtype.base_dtype if isinstance(item, Tensor) else None
            end = item + 1
            spec.add(item, end, _constant_in(1, kind if kind in (int16, int64) else None), "shrink_axis_mask")
    return spec


def packed_vectors(spec: SliceSpec) -> list[Tensor]:
    """begin, end and strides as tensors of one dtype, named stack, stack_1 and stack_2 in the open scope."""
    if not spec.begin:
        empty = raw.Const(value=np.zeros(0, np.int32), dtype=int32)
        return [empty, empty, empty]
    vectors = [convert_to_tensor(v, name="stack") for v in (spec.begin, spec.end, spec.strides)]
    if any(v.dtype is int64 for v in vectors):
        vectors = [v if v.dtype is int64 else raw.Cast(v, DstT=int64) for v in vectors]
    return vectors


def boolean_mask(tensor: Any, mask: Any, name: str = "boolean_mask", axis: Any = None) -> Tensor:
    """The elements (or slices) of `tensor` where `mask` is True, along one dimension.

    Args:
      tensor: of any dtype; its dimensions from `axis` on begin with the shape of `mask`.
      mask: bool tensor of known rank, 1 or more.
      axis: where in `tensor` the mask's dimensions are; 0 where None.
    Raises:
      ValueError: a scalar mask, one of unknown rank, or shapes that do not fit.
    """
    with name_scope(name, values=[tensor, mask]):
        tensor = convert_to_tensor(tensor, name="tensor")
        mask = convert_to_tensor(mask, name="mask")
        rank = mask.shape.rank
        if rank == 0:
            raise ValueError("mask cannot be scalar.")
        if rank is None:
            raise ValueError(
                "Number of mask dimensions must be specified, even if some dimensions are None. "
                "E.g. shape=[None] is ok, but shape=None is not."
            )
        axis = 0 if axis is None else axis
        known = constant_value(axis) if isinstance(axis, Tensor) else axis
        if known is not None:
            axis = int(known)
            tensor.shape[axis : axis + rank].assert_is_compatible_with(mask.shape)
        count = raw.Prod(shape_of(tensor)[axis : axis + rank], [0])
        parts = [shape_of(tensor)[:axis], [count], shape_of(tensor)[axis + rank :]]
        flat = raw.Reshape(tensor, raw.ConcatV2(parts, 0, name="concat"))
        if known is not None:
            n = tensor.shape[axis : axis + rank].num_elements()
            flat.set_shape(tensor.shape[:axis].concatenate([n]).concatenate(tensor.shape[axis + rank :]))
        places = raw.Squeeze(raw.Where(raw.Reshape(mask, [-1])), squeeze_dims=[1])
        return raw.GatherV2(flat, places, axis)


def getitem(tensor: Any, items: Any, var: Any = None) -> Tensor:
    """`tensor[items]`: numbers, scalar integer tensors, slices, `...`, None, or one bool mask (a
    boolean_mask).

    Raises:
      TypeError: an item that is none of these.
    """
    if (
        isinstance(items, (bool, np.bool_))
        or (is_tensor(items) and items.dtype.base_dtype is bool_)
        or (isinstance(items, np.ndarray) and items.dtype == bool)
    ):
        return boolean_mask(tensor, items)
    tensor = convert_to_tensor(tensor)
    spec = slice_spec(items)
    values = [tensor, *spec.begin, *spec.end, *spec.strides]
    with name_scope(None, "strided_slice", values) as name:
        begin, end, strides = packed_vectors(spec)
        return raw.StridedSlice(tensor, begin, end, strides, **spec.masks, name=name)


Tensor.__getitem__ = getitem  # type: ignore[attr-defined]
