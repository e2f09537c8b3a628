"""Resource variables: a handle, reads that are snapshots, and the ops that write through the handle.

The handle is the VariableState. A read is the array itself: an update that meets a reader's array copies it
first.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphrt.core import raw
from graphrt.core.convert import constant_tensor
from graphrt.core.dtypes import INDEX, int32
from graphrt.core.errors import InvalidArgumentError, NotFoundError
from graphrt.core.registry import KernelContext, ShapeContext, op
from graphrt.core.resources import VariableState
from graphrt.core.samples import program
from graphrt.core.shapes import SCALAR, UNKNOWN, TensorShape
from graphrt.core.tensor import IndexedSlices, Tensor
from graphrt.ops.state_ref import count_up, merged, same_shape, variable_memory
from graphrt.ops.state_samples import on_resource


def held(s: ShapeContext, i: int) -> TensorShape:
    """The static shape of the variable behind flat input i."""
    handle = s.handle(i)
    return UNKNOWN if handle is None else handle[1]


@op(
    "VarHandleOp() -> resource: resource",
    container="string = ''",
    shared_name="string = ''",
    debug_name="string = ''",
    dtype="type",
    shape="shape",
    allowed_devices="list(string) = []",
)
class VarHandleOp:
    """The handle of a resource variable."""

    stateful = True
    unfoldable = True
    host_outputs = (0,)

    def shape(self, s: ShapeContext) -> TensorShape:
        s.set_handle(0, s.attrs["dtype"], s.attrs["shape"])
        return SCALAR

    def hoist(self, k: KernelContext) -> VariableState:
        return variable_memory(k, is_ref=False)

    def compute(self, k: KernelContext) -> VariableState:
        return self.hoist(k)

    samples = [
        program(lambda tf: _read(tf, [1.0, 2.0])),
        program(lambda tf: _read(tf, ["a", "bc"]), why="text"),
    ]


def _read(tf: Any, value: Any) -> list[Any]:
    variable = tf.Variable(value, use_resource=True)
    return [variable.initializer, variable, variable.read_value()]


@op("ReadVariableOp(resource: resource) -> value: dtype", dtype="type")
class ReadVariableOp:
    """A snapshot of a resource variable: later updates do not show in it."""

    stateful = True
    host_inputs = (0,)

    def shape(self, s: ShapeContext, resource: TensorShape) -> TensorShape:
        handle = s.handle(0)
        if handle is None:
            return UNKNOWN
        if handle[0] is not s.attrs["dtype"]:
            raise ValueError(f"the variable is {handle[0].name}, not {s.attrs['dtype'].name}")
        return handle[1]

    def compute(self, k: KernelContext, resource: VariableState) -> Any:
        return resource.read()

    def gradient(self, op: Any, dy: Tensor) -> Tensor:
        return dy

    samples = [program(lambda tf: _read(tf, [[1.0, 2.0]]))]


@op("AssignVariableOp(resource: resource, value: dtype)", dtype="type", validate_shape="bool = False")
class AssignVariableOp:
    """Sets a resource variable to `value`; with validate_shape only to one of its shape."""

    stateful = True
    host_inputs = (0,)

    def shape(self, s: ShapeContext, resource: TensorShape, value: TensorShape) -> None:
        merged(held(s, 0), value)

    def compute(self, k: KernelContext, resource: VariableState, value: Any) -> tuple[()]:
        if k.attrs["validate_shape"] and not resource.shape.is_compatible_with(TensorShape.of(value.shape)):
            raise InvalidArgumentError(
                None,
                None,
                f"Assign to a variable with shape {list(resource.shape.sizes)} from a value of shape "
                f"{list(value.shape)} is not possible: '{resource.name}' keeps its shape (validate_shape)",
            )
        resource.assign(value, k.xp)
        return ()

    samples = [
        on_resource([1.0, 2.0], lambda tf, v: tf.raw_ops.AssignVariableOp(resource=v, value=[3.0, 4.0])),
        on_resource(
            [],
            lambda tf, v: tf.raw_ops.AssignVariableOp(resource=v, value=tf.constant([], tf.float32)),
            dtype="float32",
            why="empty",
        ),
        on_resource(2, lambda tf, v: tf.raw_ops.AssignVariableOp(resource=v, value=5, validate_shape=True)),
        on_resource(["a"], lambda tf, v: tf.raw_ops.AssignVariableOp(resource=v, value=["bcd"]), why="text"),
    ]


class AssignUpdateVariable:
    """Base of AssignAddVariableOp and AssignSubVariableOp: `ufunc` of the memory and the value, in place."""

    stateful = True
    host_inputs = (0,)
    ufunc = ""

    def shape(self, s: ShapeContext, resource: TensorShape, value: TensorShape) -> None:
        merged(held(s, 0), value)

    def bind(self, k: KernelContext) -> Any:
        ufunc, op_type = getattr(k.xp, self.ufunc), k.type

        def update(resource: VariableState, value: Any) -> tuple[()]:
            with resource.lock:
                array = resource.writable()
                if array.shape != value.shape:
                    same_shape(op_type, resource.name, array.shape, value.shape)
                ufunc(array, value, array)
            return ()

        return update


@op("AssignAddVariableOp(resource: resource, value: dtype)", dtype="type")
class AssignAddVariableOp(AssignUpdateVariable):
    """Adds `value` to a resource variable."""

    ufunc = "add"
    samples = [
        on_resource([1.0, 2.0], lambda tf, v: tf.raw_ops.AssignAddVariableOp(resource=v, value=[3.0, 4.0])),
        on_resource(5, *[lambda tf, v: tf.raw_ops.AssignAddVariableOp(resource=v, value=2)] * 2),
    ]


@op("AssignSubVariableOp(resource: resource, value: dtype)", dtype="type")
class AssignSubVariableOp(AssignUpdateVariable):
    """Subtracts `value` from a resource variable."""

    ufunc = "subtract"
    samples = [
        on_resource([1.0, 2.0], lambda tf, v: tf.raw_ops.AssignSubVariableOp(resource=v, value=[3.0, 4.0]))
    ]


@op("VarIsInitializedOp(resource: resource) -> is_initialized: bool")
class VarIsInitializedOp:
    """True once a resource variable has a value."""

    stateful = True
    not_differentiable = True
    host_inputs = (0,)
    host_outputs = (0,)

    def shape(self, s: ShapeContext, resource: TensorShape) -> TensorShape:
        return SCALAR

    def compute(self, k: KernelContext, resource: VariableState) -> Any:
        return np.bool_(resource.array is not None)

    samples = [program(lambda tf: _initialized(tf))]


def _initialized(tf: Any) -> list[Any]:
    variable = tf.Variable([1.0], use_resource=True)
    asked = tf.raw_ops.VarIsInitializedOp(resource=variable.handle)
    return [asked, variable.initializer, asked]


@op("DisableCopyOnRead(resource: resource)")
class DisableCopyOnRead:
    """Says that a variable's reads need not copy it. They never do: an update copies what a reader holds."""

    stateful = True
    not_differentiable = True
    host_inputs = (0,)

    def compute(self, k: KernelContext, resource: VariableState) -> Any:
        return ()

    samples = [program(lambda tf: _not_copied(tf))]


def _not_copied(tf: Any) -> list[Any]:
    variable = tf.Variable([1.0, 2.0], use_resource=True)
    return [variable.initializer, tf.raw_ops.DisableCopyOnRead(resource=variable.handle), variable]


@op("DestroyResourceOp(resource: resource)", ignore_lookup_error="bool = True")
class DestroyResourceOp:
    """Releases what a resource holds; a variable is uninitialised after it.

    Raises:
      NotFoundError: it holds nothing and ignore_lookup_error is False.
    """

    stateful = True
    host_inputs = (0,)

    def shape(self, s: ShapeContext, resource: TensorShape) -> None:
        return None

    def compute(self, k: KernelContext, resource: Any) -> tuple[()]:
        is_gone = isinstance(resource, VariableState) and resource.array is None
        if is_gone and not k.attrs["ignore_lookup_error"]:
            raise NotFoundError(
                None,
                None,
                f"resource '{resource.name}' does not exist: it was destroyed, or never initialised",
            )
        resource.close()
        return ()

    samples = [program(lambda tf: _destroyed(tf))]


def _destroyed(tf: Any) -> list[Any]:
    variable = tf.Variable([1.0], use_resource=True)
    asked = tf.raw_ops.VarIsInitializedOp(resource=variable.handle)
    return [variable.initializer, asked, tf.raw_ops.DestroyResourceOp(resource=variable.handle), asked]


@op("VariableShape(input: resource) -> output: out_type", out_type="type in {int32,int64} = int32")
class VariableShape:
    """The shape of a resource variable, as a vector."""

    stateful = True
    not_differentiable = True
    host_inputs = (0,)
    host_outputs = (0,)

    def shape(self, s: ShapeContext, input: TensorShape) -> TensorShape:
        return TensorShape.of((held(s, 0).rank,))

    def compute(self, k: KernelContext, input: VariableState) -> Any:
        return np.array(input.read().shape, k.dtype)

    samples = [
        on_resource([[1.0, 2.0]], lambda tf, v: tf.raw_ops.VariableShape(input=v)),
        on_resource(1.0, lambda tf, v: tf.raw_ops.VariableShape(input=v, out_type=tf.int64), why="scalar"),
    ]


@op("ResourceCountUpTo(resource: resource) -> output: T", limit="int", T=INDEX)
class ResourceCountUpTo:
    """A scalar resource variable's value, which is then one more; OutOfRangeError at `limit`."""

    stateful = True
    cpu_only = True

    def shape(self, s: ShapeContext, resource: TensorShape) -> TensorShape:
        held(s, 0).with_rank(0)
        return SCALAR

    def compute(self, k: KernelContext, resource: VariableState) -> Any:
        return count_up(resource, k.attrs["limit"])

    samples = [
        on_resource(3, *[lambda tf, v: tf.raw_ops.ResourceCountUpTo(resource=v, limit=9, T=tf.int32)] * 2)
    ]


def variable_shape(handle: Tensor) -> Tensor:
    """The shape of the variable behind `handle`, int32: a constant where it is known."""
    known = None if handle.handle is None else handle.handle[1]
    if known is not None and known.is_fully_defined():
        return constant_tensor(list(known.sizes), int32)
    return raw.VariableShape(handle)


@op(
    "ResourceGather(resource: resource, indices: Tindices) -> output: dtype",
    batch_dims="int = 0",
    validate_indices="bool = True",
    dtype="type",
    Tindices=INDEX,
)
class ResourceGather:
    """Rows of a resource variable, picked by `indices` along axis `batch_dims`, without reading the rest."""

    stateful = True
    host_inputs = (0,)

    def shape(self, s: ShapeContext, resource: TensorShape, indices: TensorShape) -> TensorShape:
        params, batch = held(s, 0), s.attrs["batch_dims"]
        if params.sizes is None or indices.sizes is None:
            return UNKNOWN
        if params.rank <= batch or indices.rank < batch:
            raise ValueError(
                f"batch_dims={batch} does not fit a variable of shape {params} and indices of shape {indices}"
            )
        return (
            params[:batch]
            .merge_with(indices[:batch])
            .concatenate(indices[batch:])
            .concatenate(params[batch + 1 :])
        )

    def bind(self, k: KernelContext) -> Any:
        xp, batch = k.xp, k.attrs["batch_dims"]

        def gather(resource: VariableState, indices: Any) -> Any:
            with resource.lock:
                params = resource.read()
                _check_indices(k, indices, params.shape[batch], resource.name)
                if batch == 0:
                    return xp.take(params, indices, axis=0)
                grid = [
                    xp.arange(n).reshape((-1,) + (1,) * (indices.ndim - 1 - i))
                    for i, n in enumerate(params.shape[:batch])
                ]
                return params[(*grid, indices)]

        return gather

    def gradient(self, op: Any, dy: Tensor) -> list[Any]:
        handle, indices = op.inputs
        if op.attrs["batch_dims"]:
            raise NotImplementedError(
                "ResourceGather has a gradient for batch_dims=0 only: tf.gather(variable.read_value(), "
                "indices, batch_dims=...) has one for all"
            )
        shape = variable_shape(handle)
        n = raw.ExpandDims(raw.Size(indices), 0)
        values = raw.Reshape(dy, raw.ConcatV2([n, raw.StridedSlice(shape, [1], [0], [1], end_mask=1)], 0))
        return [IndexedSlices(values, raw.Reshape(indices, n), shape), None]

    samples = [
        on_resource(
            [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]],
            lambda tf, v: tf.raw_ops.ResourceGather(resource=v, indices=[[2, 0], [1, 2]], dtype=tf.float32),
        ),
        on_resource(
            [1, 2, 3],
            lambda tf, v: tf.raw_ops.ResourceGather(
                resource=v, indices=tf.constant(2, tf.int64), dtype=tf.int32
            ),
            why="a scalar index",
        ),
        on_resource(
            [[1.0, 2.0], [3.0, 4.0]],
            lambda tf, v: tf.raw_ops.ResourceGather(
                resource=v, indices=[[1], [0]], dtype=tf.float32, batch_dims=1
            ),
        ),
        on_resource(
            [[1.0, 2.0], [3.0, 4.0]],
            lambda tf, v: tf.raw_ops.ResourceGather(
                resource=v, indices=tf.constant([], tf.int32), dtype=tf.float32
            ),
            why="empty",
        ),
    ]


def _check_indices(k: KernelContext, indices: Any, n: int, name: str) -> None:
    """Raise InvalidArgumentError where an index is outside [0, n). A GPU does not stop for it, as in
    TensorFlow."""
    if k.xp is np and indices.size and (indices.min() < 0 or indices.max() >= n):
        flat = indices.reshape(-1)
        at = int(np.argmax((flat < 0) | (flat >= n)))
        where = ",".join(str(i) for i in np.unravel_index(at, indices.shape)) if indices.ndim else ""
        raise InvalidArgumentError(
            None, None, f"indices[{where}] = {flat[at]} is not in [0, {n}) (variable '{name}')"
        )


@op("ResourceGatherNd(resource: resource, indices: Tindices) -> output: dtype", dtype="type", Tindices=INDEX)
class ResourceGatherNd:
    """Slices of a resource variable, each picked by a vector of `indices`' last axis."""

    stateful = True
    host_inputs = (0,)

    def shape(self, s: ShapeContext, resource: TensorShape, indices: TensorShape) -> TensorShape:
        params = held(s, 0)
        if params.sizes is None or indices.sizes is None or indices.sizes[-1] is None:
            return UNKNOWN
        if indices.sizes[-1] > params.rank:
            raise ValueError(
                f"indices of shape {indices} pick along {indices.sizes[-1]} axes of a variable of shape "
                f"{params}"
            )
        return indices[:-1].concatenate(params[indices.sizes[-1] :])

    def compute(self, k: KernelContext, resource: VariableState, indices: Any) -> Any:
        with resource.lock:
            params = resource.read()
            for axis in range(indices.shape[-1]):
                _check_indices(k, indices[..., axis], params.shape[axis], resource.name)
            # Indexing with arrays copies; with no axis to index, the whole is repeated.
            picked = params[tuple(indices[..., axis] for axis in range(indices.shape[-1]))]
            if indices.shape[-1] == 0:
                picked = k.xp.broadcast_to(params, indices.shape[:-1] + params.shape).copy()
            return picked

    def gradient(self, op: Any, dy: Tensor) -> list[Any]:
        handle, indices = op.inputs
        shape = raw.VariableShape(handle, out_type=indices.dtype.base_dtype)
        if indices.shape.rank == 2 and indices.shape.sizes[-1] == 1:
            return [IndexedSlices(dy, raw.Squeeze(indices, squeeze_dims=[-1]), shape), None]
        return [raw.ScatterNd(indices, dy, shape), None]

    samples = [
        on_resource(
            [[1.0, 2.0], [3.0, 4.0]],
            lambda tf, v: tf.raw_ops.ResourceGatherNd(
                resource=v, indices=[[1, 0], [0, 1], [1, 0]], dtype=tf.float32
            ),
        ),
        on_resource(
            [[1.0, 2.0], [3.0, 4.0]],
            lambda tf, v: tf.raw_ops.ResourceGatherNd(resource=v, indices=[[[1]], [[0]]], dtype=tf.float32),
        ),
    ]
