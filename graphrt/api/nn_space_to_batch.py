"""What tf.nn's convolutions and pools share: window arguments, batch dimensions, dilation by space to batch.

TensorFlow's CPU kernels of gradients, pools and depthwise convolutions know no dilation, and its graphs are
built accordingly: `with_space_to_batch` gives the pixels that a dilated window sees a batch entry of their
own, and the plain op runs on those.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from graphrt.core import raw
from graphrt.core.constant_value import constant_value
from graphrt.core.convert import convert_to_tensor
from graphrt.core.dtypes import int32
from graphrt.core.tensor import Tensor

__all__ = ["with_space_to_batch"]


def is_channels_first(data_format: str | None) -> bool:
    return data_format is not None and data_format.startswith("NC")


def one_each(value: Any, spatial_rank: int, channels_first: bool, what: str) -> list[int]:
    """`value`, a number or a list for the spatial or all dimensions, as a list for all dimensions.

    Raises:
      ValueError: a list of another length.
    """
    if value is None:
        return [1] * (spatial_rank + 2)
    made = list(value) if hasattr(value, "__len__") else [value]
    if len(made) == spatial_rank + 2:
        return made
    if len(made) not in (1, spatial_rank):
        raise ValueError(f"{what} should be of length 1, {spatial_rank} or {spatial_rank + 2}, not "
                         f"{len(made)}: {value}")
    made *= spatial_rank // len(made)
    return [1, 1, *made] if channels_first else [1, *made, 1]


def split_padding(padding: Any, dimensions: int = 4) -> tuple[Any, list[int]]:
    """('SAME' or 'VALID', []), or ('EXPLICIT', flat paddings) where `padding` lists pairs (before, after).

    Raises:
      ValueError: a list of another form; or the word EXPLICIT, which says nothing without a list.
    """
    if padding == "EXPLICIT":
        raise ValueError("padding 'EXPLICIT' says not how much: give a list of (before, after), one for "
                         "each dimension")
    if not isinstance(padding, (list, tuple)):
        return padding, []
    if len(padding) != dimensions or any(not isinstance(p, (list, tuple)) or len(p) != 2 for p in padding):
        raise ValueError(f"padding must be 'SAME', 'VALID' or {dimensions} pairs (before, after), one for "
                         "each "
                         f"dimension, not {padding}")
    return "EXPLICIT", [int(n) for pair in padding for n in pair]


def over_batch_dimensions(x: Any, op: Callable[[Tensor], Tensor], inner_rank: int) -> Tensor:
    """op(x), where all but the last `inner_rank` dimensions are one to op, and are back in its result."""
    x = convert_to_tensor(x, name="input")
    rank = x.shape.rank
    if rank is None or rank <= inner_rank + 1:
        return op(x)
    outer = rank - inner_rank
    sizes = x.shape.sizes
    shape = raw.Shape(x)

    def part(vector: Tensor, start: int, stop: int) -> Tensor:
        return raw.Slice(vector, [start], [stop - start])

    flat = raw.Reshape(x, raw.ConcatV2([np.array([-1], np.int32), part(shape, outer, rank)], 0))
    made = op(flat)
    whole = raw.Reshape(made, raw.ConcatV2([part(shape, 0, outer), part(raw.Shape(made), 1, inner_rank + 1)],
                                           0))
    if made.shape.rank is not None:
        whole.set_shape([*sizes[:outer], *made.shape.sizes[1:]])
    return whole


def with_space_to_batch(input: Any, dilation_rate: Any, padding: Any,
                        op: Callable[[Tensor, int, Any], Tensor],
                        filter_shape: Any = None, spatial_dims: Sequence[int] | None = None,
                        data_format: str | None = None) -> Tensor:
    """What `op` gives on `input` when its window sees every dilation_rate-th element only.

    Args:
      dilation_rate: a number for each spatial dimension, known beforehand; all 1: op runs as it is.
      padding: 'SAME', 'VALID', or explicit paddings.
      op: called with (input, number of spatial dimensions, padding); the padding is 'VALID' where it was
        applied already.
      filter_shape: the window's sizes, an array or tensor; needed for 'SAME'.
      spatial_dims: the dimensions of `input` that are spatial; by default those of `data_format`.
    Raises:
      ValueError: a rate below 1; dimensions that do not ascend; 'SAME' without filter_shape.
    """
    x = convert_to_tensor(input, name="input")
    rate = constant_value(convert_to_tensor(dilation_rate, dtype=int32, name="dilation_rate"))
    if rate is None or rate.ndim != 1:
        raise ValueError("dilation_rate must be a list of numbers known while the graph is built, not "
                         f"{dilation_rate}")
    if (rate < 1).any():
        raise ValueError(f"dilation_rate must be positive, not {rate.tolist()}")
    n = rate.size
    if spatial_dims is None:
        first = 2 if is_channels_first(data_format) else 1
        spatial_dims = range(first, first + n)
    dims = [int(d) for d in spatial_dims]
    if dims != sorted(set(dims)) or dims[0] < 1:
        raise ValueError(f"spatial_dims must be ascending positive dimensions, not {dims}")
    if (rate == 1).all():
        return op(x, n, padding)
    before, after = _base_paddings(padding, rate, filter_shape, data_format)
    sizes = x.shape.sizes
    if sizes is not None and None not in [sizes[d] for d in dims]:
        size: Any = np.array([sizes[d] for d in dims], np.int32)
    else:
        size = raw.GatherV2(raw.Shape(x), np.array(dims, np.int32), 0)
    # More padding at the end, so that the rates divide the sizes; it is cropped from the result.
    extra = (rate - (size + before + after) % rate) % rate
    block, paddings, crops = (_at_dimensions(dims, v, fill) for v, fill in (
        (rate, 1), (_columns(before, after + extra), 0), (_columns(before * 0, extra), 0)))
    made = op(raw.SpaceToBatchND(x, block, paddings), n, "VALID")
    return raw.BatchToSpaceND(made, block, crops)


def _base_paddings(padding: Any, rate: np.ndarray, filter_shape: Any, data_format: str | None) -> tuple[Any,
                                                                                                        Any]:
    """(before, after) for each spatial dimension, as arrays or tensors."""
    padding, explicit = split_padding(padding, rate.size + 2)
    none = np.zeros(rate.size, np.int32)
    if padding == "VALID":
        return none, none
    if padding == "EXPLICIT":
        pairs = np.array(explicit, np.int32).reshape(-1, 2)
        pairs = pairs[2:] if is_channels_first(data_format) else pairs[1:-1]
        return pairs[:, 0], pairs[:, 1]
    if padding != "SAME":
        raise ValueError(f"padding must be 'SAME', 'VALID' or explicit paddings, not {padding!r}")
    if filter_shape is None:
        raise ValueError("padding 'SAME' with a dilation_rate needs filter_shape")
    shape = convert_to_tensor(filter_shape, dtype=int32, name="filter_shape")
    known = constant_value(shape)
    kernel = known[:rate.size] if known is not None else raw.Slice(shape, [0], [rate.size])
    reach = (kernel - 1) * rate
    return reach // 2, reach - reach // 2


def _columns(first: Any, second: Any) -> Any:
    if isinstance(first, np.ndarray) and isinstance(second, np.ndarray):
        return np.stack([first, second], axis=1)
    return raw.Pack([first, second], axis=1)


def _at_dimensions(dims: list[int], rows: Any, fill: int) -> Any:
    """`rows`, one for each of `dims`, as one for each dimension from 1 to the last; others are `fill`."""
    if dims == list(range(1, len(dims) + 1)):
        return rows
    if isinstance(rows, np.ndarray):
        made = np.full((dims[-1], *rows.shape[1:]), fill, np.int32)
        made[[d - 1 for d in dims]] = rows
        return made
    filled = np.full((1, *rows.shape.sizes[1:]), fill, np.int32)
    each = raw.Split(0, rows, num_split=len(dims)) if len(dims) > 1 else [rows]
    placed = dict(zip(dims, each))
    return raw.ConcatV2([placed.get(d, filled) for d in range(1, dims[-1] + 1)], 0)
