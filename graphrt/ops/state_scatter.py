"""Scatter ops: updates of some rows or slices of a variable, in place. One table gives the ref and the
resource forms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from graphrt.core.dtypes import INDEX, NUMBERS, bfloat16, float32, float64, half, int32, int64
from graphrt.core.errors import InvalidArgumentError
from graphrt.core.registry import KernelContext, ShapeContext, op
from graphrt.core.resources import VariableState
from graphrt.core.samples import Program
from graphrt.core.shapes import TensorShape
from graphrt.ops.scatter_kernels import checked_rows, rounds_for, scatter_rows
from graphrt.ops.state_resource import held
from graphrt.ops.state_samples import on_ref, on_resource

_VERBS = {
    "Update": "becomes",
    "Add": "grows by",
    "Sub": "shrinks by",
    "Mul": "is multiplied by",
    "Div": "is divided by",
    "Min": "becomes the minimum of itself and",
    "Max": "becomes the maximum of itself and",
}


class Scatter:
    """Base: variable[indices[i]] is updated by updates[i], or by the scalar `updates`; equal indices one
    after the other."""

    stateful = True
    not_differentiable = True
    how = ""
    is_resource = False

    def shape(
        self, s: ShapeContext, variable: TensorShape, indices: TensorShape, updates: TensorShape
    ) -> Any:
        whole = held(s, 0) if self.is_resource else variable
        if updates.rank != 0 and whole.sizes is not None:
            whole.with_rank_at_least(1)
            wanted = indices.concatenate(whole[1:])
            if not updates.is_compatible_with(wanted):
                raise ValueError(
                    f"updates must have the shape of indices plus that of a row, {wanted}, or be a scalar, "
                    f"not {updates}"
                )
        return None if self.is_resource else variable

    def bind(self, k: KernelContext) -> Callable[..., Any]:
        xp, how, op_type, is_resource, rounds = k.xp, self.how, k.type, self.is_resource, rounds_for(k)

        def scatter(variable: VariableState, indices: Any, updates: Any) -> Any:
            with variable.lock:
                array = variable.writable()
                if not array.ndim:
                    raise InvalidArgumentError(
                        None, None, f"{op_type}: variable '{variable.name}' is a scalar: it has no rows"
                    )
                rows = checked_rows(xp, indices, array.shape[0], variable.name)
                if updates.ndim:
                    wanted = indices.shape + array.shape[1:]
                    if updates.shape != wanted:
                        raise InvalidArgumentError(
                            None,
                            None,
                            f"{op_type}: updates of shape {list(updates.shape)} do not fit: indices of shape "
                            f"{list(indices.shape)} into a variable of shape {list(array.shape)} take "
                            f"{list(wanted)}",
                        )
                    updates = updates.reshape((rows.size,) + array.shape[1:])
                scatter_rows(xp, how, array, rows, updates, rounds)
            return () if is_resource else variable

        return scatter


class ScatterNd:
    """Base: variable[indices[i]] is updated by updates[i], where indices[i] is a vector that picks along the
    first axes."""

    stateful = True
    not_differentiable = True
    how = ""
    is_resource = False

    def shape(self, s: ShapeContext, ref: TensorShape, indices: TensorShape, updates: TensorShape) -> Any:
        whole = held(s, 0) if self.is_resource else ref
        indices.with_rank_at_least(1)
        if whole.sizes is not None and indices.sizes is not None and indices.sizes[-1] is not None:
            depth = indices.sizes[-1]
            if depth > len(whole.sizes):
                raise ValueError(
                    f"indices of shape {indices} pick along {depth} axes of a variable of shape {whole}"
                )
            wanted = indices[:-1].concatenate(whole[depth:])
            if not updates.is_compatible_with(wanted):
                raise ValueError(
                    "updates must have the shape of indices without its last axis plus that of a slice, "
                    f"{wanted}, not {updates}"
                )
        return None if self.is_resource else ref

    def bind(self, k: KernelContext) -> Callable[..., Any]:
        xp, how, op_type, is_resource, rounds = k.xp, self.how, k.type, self.is_resource, rounds_for(k)
        drops_bad = _policy(k) == "IGNORE"

        def scatter(ref: VariableState, indices: Any, updates: Any) -> Any:
            with ref.lock:
                array = ref.writable()
                depth = indices.shape[-1]
                wanted = indices.shape[:-1] + array.shape[depth:]
                if depth > array.ndim or updates.shape != wanted:
                    raise InvalidArgumentError(
                        None,
                        None,
                        f"{op_type}: updates of shape {list(updates.shape)} and indices of shape "
                        f"{list(indices.shape)} do not fit a variable of shape {list(array.shape)}",
                    )
                vectors = indices.reshape(-1, depth)
                updates = updates.reshape((vectors.shape[0],) + array.shape[depth:])
                bad = _outside(vectors, array.shape[:depth]) if xp is np or drops_bad else None
                if bad is not None and bad.any():
                    if not drops_bad:
                        at = int(np.argmax(bad))
                        raise InvalidArgumentError(
                            None,
                            None,
                            f"indices[{at}] = {vectors[at].tolist()} does not index into shape "
                            f"{list(array.shape)} (variable '{ref.name}')",
                        )
                    vectors, updates = vectors[~bad], updates[~bad]
                n_slices = int(np.prod(array.shape[:depth], dtype=np.int64))
                rows = xp.zeros(vectors.shape[0], np.int64)
                for axis in range(depth):
                    rows = rows * array.shape[axis] + vectors[:, axis]
                scatter_rows(xp, how, array.reshape((n_slices,) + array.shape[depth:]), rows, updates, rounds)
            return () if is_resource else ref

        return scatter


def _policy(k: KernelContext) -> str:
    policy = k.attrs["bad_indices_policy"].decode()
    if policy not in ("", "DEFAULT", "ERROR", "IGNORE"):
        raise InvalidArgumentError(
            None, None, f"{k.type}: bad_indices_policy is '', 'DEFAULT', 'ERROR' or 'IGNORE', not {policy!r}"
        )
    return policy


def _outside(vectors: Any, sizes: tuple[int, ...]) -> Any:
    bad = (vectors < 0).any(axis=1)
    for axis, size in enumerate(sizes):
        bad |= vectors[:, axis] >= size
    return bad


_INDICES = [2, 0, 2]
_START = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
_ROWS = [[4.0, 1.0], [2.0, 8.0], [0.5, 2.0]]


def _samples(raw_name: str, argument: str, how: str, is_nd: bool, is_resource: bool) -> list[Program]:
    on = on_resource if is_resource else on_ref

    def update(indices: Any, updates: Any) -> Callable[[Any, Any], Any]:
        return lambda tf, v: getattr(tf.raw_ops, raw_name)(
            **{argument: v, "indices": indices, "updates": updates}
        )

    if is_nd:
        made = [
            on(_START, update([[2], [0], [2]], _ROWS), why="equal indices"),
            on(_START, update([[2, 1], [0, 0]], [7.0, 0.5]), why="single elements"),
            on([1, 2, 3], update(np.zeros((0, 1), np.int64), np.zeros(0, np.int32)), why="empty"),
        ]
    else:
        made = [
            on(_START, update(_INDICES, _ROWS), why="equal indices"),
            on(_START, update([[1], [0]], [[_ROWS[0]], [_ROWS[1]]]), why="indices of rank 2"),
            on(_START, update(np.array([1, 2], np.int64), 3.0), why="one scalar for all rows"),
            on([7, -7, 9], update([0, 1, 1, 1], [2, 2, 3, 2]), why="integers"),
            on(_START, update(np.zeros(0, np.int32), np.zeros((0, 2), np.float32)), why="empty"),
        ]
    return made


def _register(kind: str, how: str, is_nd: bool) -> None:
    """The ref and the resource form of one update."""
    base: type = ScatterNd if is_nd else Scatter
    target = "the slice of ref picked by indices[i]" if is_nd else "row indices[i] of the variable"
    doc = f"In place, {target} {_VERBS[how]} updates[i]; equal indices count one after the other."
    policy = {"bad_indices_policy": "string = ''"} if is_nd else {}
    types: Any = NUMBERS
    if how == "Update":
        types = "type"
    elif how in ("Min", "Max") and not is_nd:
        types = (half, bfloat16, float32, float64, int32, int64)
    for is_resource in (False, True):
        name = f"{'Resource' if is_resource else ''}{kind}{how}"
        argument = "ref" if is_nd or not is_resource else "resource"
        value_type = "T" if is_nd or not is_resource else "dtype"
        if is_resource:
            locking = "bool = True"
            kind_types = "type" if is_nd else NUMBERS if how != "Update" else "type"
            signature = f"{name}({argument}: resource, indices: Tindices, updates: {value_type})"
        else:
            locking = "bool = True" if how == "Update" else "bool = False"
            kind_types = types
            signature = f"{name}(ref: Ref(T), indices: Tindices, updates: T) -> output_ref: Ref(T)"
        attrs = {value_type: kind_types, "Tindices": INDEX, **policy}
        if is_nd or not is_resource:
            attrs["use_locking"] = locking
        facts = {
            "__doc__": doc,
            "how": how,
            "is_resource": is_resource,
            "samples": _samples(name, argument, how, is_nd, is_resource),
        }
        if is_resource:
            facts["host_inputs"] = (0,)
        op(signature, **attrs)(type(name, (base,), facts))


for _how in _VERBS:
    _register("Scatter", _how, is_nd=False)
for _how in ("Update", "Add", "Sub", "Min", "Max"):
    _register("ScatterNd", _how, is_nd=True)
