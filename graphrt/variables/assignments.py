"""tf.assign, tf.scatter_add and their kin: functions of a variable, or of a ref variable's reference."""

from __future__ import annotations

from typing import Any

from graphrt.core import raw
from graphrt.core.convert import convert_to_tensor
from graphrt.core.default_graph import name_scope
from graphrt.core.tensor import Tensor


def _is_reference(ref: Any) -> bool:
    """True for a ref variable and its reference, False for a resource variable.

    Raises:
      TypeError: neither.
    """
    dtype = getattr(ref, "dtype", None)
    if dtype is not None and getattr(dtype, "is_ref", False):
        return True
    if not hasattr(ref, "handle") or isinstance(ref, Tensor):
        raise TypeError(f"{ref!r} is not a variable: it cannot be assigned to")
    return False


def assign(
    ref: Any,
    value: Any,
    validate_shape: bool | None = None,
    use_locking: bool | None = None,
    name: str | None = None,
) -> Any:
    """Set a variable to `value`, and return it as it is then.

    Args:
      ref: a variable, or a ref variable's reference.
      validate_shape: False lets a ref variable take another shape.
      use_locking: an attr of the node; updates hold the variable's lock in any case.
    """
    if _is_reference(ref):
        return raw.Assign(ref, value, validate_shape=validate_shape, use_locking=use_locking, name=name)
    return ref.assign(value, name=name)


def assign_add(ref: Any, value: Any, use_locking: bool | None = None, name: str | None = None) -> Any:
    """Add `value` to a variable, and return it as it is then."""
    if _is_reference(ref):
        return raw.AssignAdd(ref, value, use_locking=use_locking, name=name)
    return ref.assign_add(value)


def assign_sub(ref: Any, value: Any, use_locking: bool | None = None, name: str | None = None) -> Any:
    """Subtract `value` from a variable, and return it as it is then."""
    if _is_reference(ref):
        return raw.AssignSub(ref, value, use_locking=use_locking, name=name)
    return ref.assign_sub(value)


def count_up_to(ref: Any, limit: int, name: str | None = None) -> Tensor:
    """A scalar variable's value before it grows by one; OutOfRangeError once it is `limit`."""
    if _is_reference(ref):
        return raw.CountUpTo(ref, limit=limit, name=name)
    return raw.ResourceCountUpTo(ref.handle, limit=limit, T=ref.dtype, name=name)


def _scatter(how: str, ref: Any, indices: Any, updates: Any, use_locking: bool, name: str | None) -> Any:
    if _is_reference(ref):
        return getattr(raw, "Scatter" + how)(ref, indices, updates, use_locking=use_locking, name=name)
    return ref._scatter_rows(how, indices, updates, name)


def scatter_update(
    ref: Any, indices: Any, updates: Any, use_locking: bool = True, name: str | None = None
) -> Any:
    """Set rows of a variable: row indices[i] to updates[i]. So for the others with what their names say.

    Args:
      ref: a variable, or a ref variable's reference.
      indices: int32 or int64, any shape.
      updates: shape indices.shape + ref.shape[1:], or a scalar.
    Raises:
      InvalidArgumentError: at run time, an index outside the variable.
    """
    return _scatter("Update", ref, indices, updates, use_locking, name)


def scatter_add(
    ref: Any, indices: Any, updates: Any, use_locking: bool = False, name: str | None = None
) -> Any:
    return _scatter("Add", ref, indices, updates, use_locking, name)


def scatter_sub(
    ref: Any, indices: Any, updates: Any, use_locking: bool = False, name: str | None = None
) -> Any:
    return _scatter("Sub", ref, indices, updates, use_locking, name)


def scatter_mul(
    ref: Any, indices: Any, updates: Any, use_locking: bool = False, name: str | None = None
) -> Any:
    return _scatter("Mul", ref, indices, updates, use_locking, name)


def scatter_div(
    ref: Any, indices: Any, updates: Any, use_locking: bool = False, name: str | None = None
) -> Any:
    return _scatter("Div", ref, indices, updates, use_locking, name)


def scatter_max(
    ref: Any, indices: Any, updates: Any, use_locking: bool = False, name: str | None = None
) -> Any:
    return _scatter("Max", ref, indices, updates, use_locking, name)


def scatter_min(
    ref: Any, indices: Any, updates: Any, use_locking: bool = False, name: str | None = None
) -> Any:
    return _scatter("Min", ref, indices, updates, use_locking, name)


def scatter_nd_update(
    ref: Any, indices: Any, updates: Any, use_locking: bool = True, name: str | None = None
) -> Any:
    """Set slices of a variable: ref[indices[i]] to updates[i], where indices[i] is a vector. So for _add and
    _sub."""
    return _scatter("NdUpdate", ref, indices, updates, use_locking, name)


def scatter_nd_add(
    ref: Any, indices: Any, updates: Any, use_locking: bool = False, name: str | None = None
) -> Any:
    return _scatter("NdAdd", ref, indices, updates, use_locking, name)


def scatter_nd_sub(
    ref: Any, indices: Any, updates: Any, use_locking: bool = False, name: str | None = None
) -> Any:
    return _scatter("NdSub", ref, indices, updates, use_locking, name)


def batch_scatter_update(
    ref: Any, indices: Any, updates: Any, use_locking: bool = True, name: str | None = None
) -> Any:
    """Set rows of each matrix of a batch: ref[b..., indices[b..., i]] to updates[b..., i].

    Raises:
      ValueError: the rank of `indices` is not known.
    """
    with name_scope(name):
        indices = convert_to_tensor(indices, name="indices")
        rank = indices.shape.rank
        if rank is None:
            raise ValueError("batch_gather does not allow indices with unknown shape.")
        sizes = raw.Shape(indices)
        last = raw.ExpandDims(indices, -1)
        parts = []
        for axis in range(rank - 1):
            size = raw.StridedSlice(sizes, [axis], [axis + 1], [1], shrink_axis_mask=1)
            across: list[Any] = [1] * (rank + 1)
            across[axis] = size
            steps = raw.Cast(raw.Reshape(raw.Range(0, size, 1), across), DstT=indices.dtype.base_dtype)
            parts.append(raw.Mul(steps, raw.OnesLike(last)))
        vectors = raw.ConcatV2([*parts, last], -1) if parts else last
        return scatter_nd_update(ref, vectors, updates, use_locking)
