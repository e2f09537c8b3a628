"""tf.clip_by_value, tf.clip_by_norm, …: gradients (IndexedSlices too) kept within bounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from graphrt.api import array_api, math_api
from graphrt.core import raw
from graphrt.core.convert import convert_to_tensor
from graphrt.core.default_graph import colocate_with, name_scope
from graphrt.core.dtypes import float32
from graphrt.core.tensor import IndexedSlices, Tensor

__all__ = ["clip_by_average_norm", "clip_by_global_norm", "clip_by_norm", "clip_by_value", "global_norm"]


def _values(t: Any, name: str) -> Tensor:
    return convert_to_tensor(t.values if isinstance(t, IndexedSlices) else t, name=name)


def _like(t: Any, values: Any) -> Any:
    """`values`, as the IndexedSlices that `t` is, or as they are."""
    return IndexedSlices(values, t.indices, t.dense_shape) if isinstance(t, IndexedSlices) else values


def clip_by_value(t: Any, clip_value_min: Any, clip_value_max: Any, name: str | None = None) -> Any:
    """`t` with each element raised to `clip_value_min` and cut to `clip_value_max` (scalars, or tensors that
    broadcast to `t`).

    Raises:
      ValueError: a bound would broadcast `t` to another shape.
    """
    with name_scope(name, "clip_by_value", [t, clip_value_min, clip_value_max]) as name:
        values = _values(t, "t")
        cut = math_api.minimum(values, clip_value_max)
        values.shape.assert_is_compatible_with(cut.shape)
        raised = math_api.maximum(cut, clip_value_min, name=name)
        values.shape.assert_is_compatible_with(raised.shape)
        return _like(t, raised)


def clip_by_norm(t: Any, clip_norm: Any, axes: Any = None, name: str | None = None) -> Any:
    """`t`, scaled down to an L2 norm of `clip_norm` where its norm (over `axes`; over all where None) is
    larger."""
    with name_scope(name, "clip_by_norm", [t, clip_norm]) as name:
        values = _values(t, "t")
        if np.isscalar(clip_norm):
            clip_norm = max(clip_norm, 0)
        else:
            clip_norm = math_api.cast(math_api.maximum(clip_norm, 0), dtype=values.dtype)
        squares = math_api.reduce_sum(values * values, axes, keepdims=True)
        # The root's gradient is not finite at 0: there the sum passes around it.
        is_positive = squares > 0
        safe = array_api.where(is_positive, squares, array_api.ones_like(squares))
        norm = array_api.where(is_positive, math_api.sqrt(safe), squares)
        scaled = values * clip_norm
        values.shape.assert_is_compatible_with(scaled.shape)
        return _like(t, array_api.identity(scaled / math_api.maximum(norm, clip_norm), name=name))


def _listed(t_list: Any) -> list[Any]:
    if not isinstance(t_list, Sequence) or isinstance(t_list, str):
        raise TypeError(f"`t_list` should be a sequence of tensors. Received {type(t_list)}.")
    return list(t_list)


def global_norm(t_list: Any, name: str | None = None) -> Tensor:
    """The L2 norm of all elements of a list of tensors; None among them is left out.

    Raises:
      TypeError: `t_list` is not a sequence.
    """
    t_list = _listed(t_list)
    with name_scope(name, "global_norm", t_list):
        halves = []
        for v in [None if t is None else _values(t, f"t_{i}") for i, t in enumerate(t_list)]:
            if v is not None:
                with colocate_with(v):
                    halves.append(raw.L2Loss(v))
        half = math_api.reduce_sum(array_api.stack(halves))
        return math_api.sqrt(half * array_api.constant(2.0, dtype=half.dtype), name="global_norm")


def clip_by_global_norm(
    t_list: Any, clip_norm: Any, use_norm: Any = None, name: str | None = None
) -> tuple[list[Any], Any]:
    """A list of tensors, all scaled down alike where their global norm is larger than `clip_norm`, and that
    norm.

    Args:
      t_list: tensors or IndexedSlices; None stays None.
      use_norm: the global norm where it is known already.
    Returns:
      (list, norm). A norm that is not finite makes every element NaN.
    Raises:
      TypeError: `t_list` is not a sequence.
    """
    t_list = _listed(t_list)
    if use_norm is None:
        use_norm = global_norm(t_list, name)
    with name_scope(name, "clip_by_global_norm", [*t_list, clip_norm]) as name:
        finite = clip_norm * math_api.minimum(
            1.0 / use_norm, array_api.constant(1.0, dtype=use_norm.dtype) / clip_norm
        )
        scale = finite + (use_norm - use_norm)
        values = [None if t is None else _values(t, f"t_{i}") for i, t in enumerate(t_list)]
        clipped: list[Any] = []
        for i, v in enumerate(values):
            if v is None:
                clipped.append(None)
                continue
            with colocate_with(v):
                clipped.append(array_api.identity(v * math_api.cast(scale, v.dtype), name=f"{name}_{i}"))
        return [_like(t, c) for t, c in zip(t_list, clipped)], use_norm


def clip_by_average_norm(t: Any, clip_norm: Any, name: str | None = None) -> Tensor:
    """`t`, scaled down to an average L2 norm (the norm over the number of elements) of `clip_norm` where it
    is larger."""
    with name_scope(name, "clip_by_average_norm", [t, clip_norm]) as name:
        t = convert_to_tensor(t, name="t")
        n = math_api.cast(array_api.size(t), float32)
        inverse = math_api.rsqrt(math_api.reduce_sum(t * t, math_api.range(array_api.rank(t))))
        scaled = t * clip_norm
        return array_api.identity(
            scaled * math_api.minimum(inverse * n, array_api.constant(1.0) / clip_norm), name=name
        )
