"""Switch, Merge and the nodes that order others: the base of conditionals and loops.

A Switch hands its input to one of two outputs; the other is dead, and so is every node that takes it. A Merge
gives the input that is alive. The plan turns both into guards around the nodes between them
(runtime/guards.py), so they have no kernel.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from graphrt.core import nest, raw
from graphrt.core.convert import convert_to_tensor
from graphrt.core.default_graph import colocate_with, name_scope
from graphrt.core.dtypes import int32, int64
from graphrt.core.errors import UnimplementedError
from graphrt.core.registry import KernelContext, ShapeContext, op
from graphrt.core.samples import program
from graphrt.core.shapes import SCALAR, UNKNOWN, TensorShape
from graphrt.core.tensor import IndexedSlices, SparseTensor, Tensor


def _switch_gradient(op: Any, grads: tuple[Any, ...]) -> list[Any]:
    """What came back through the branch that was taken."""
    context = op._control_flow_context
    if context is None:
        # An imported Switch: its predicate says which gradient is alive.
        false_grad = switch(grads[0], op.inputs[1])[0]
        true_grad = switch(grads[1], op.inputs[1])[1]
        return [merge([false_grad, true_grad])[0], None]
    if context.is_while:
        raise UnimplementedError(None, op, f"the gradient of a while loop ('{op.name}') is not supported yet")
    if grads[1 - context.branch] is None:
        if op.inputs[0].dtype.base_dtype.name == "resource":
            return [merge([grads[context.branch]] * 2, name="cond_resource_grad")[0], None]
        return [None, None]
    return [merge(list(grads), name="cond_grad")[0], None]


def _merge_gradient(op: Any, grad: Any) -> list[Any]:
    """`grad` for the input that was alive; dead for the others."""
    context = op.inputs[0].op._control_flow_context
    if context is None:
        return [switch_colocated(grad, raw.Equal(op.outputs[1], i))[1] for i in range(len(op.inputs))]
    if context.is_while:
        raise UnimplementedError(None, op, f"the gradient of a while loop ('{op.name}') is not supported yet")
    return list(switch_colocated(grad, context.pred, name="cond_grad"))


def _switch_shape(s: ShapeContext, data: TensorShape, pred: TensorShape) -> list[TensorShape]:
    pred.with_rank(0)
    handle = s.handle(0)
    if handle is not None:
        s.set_handle(0, *handle)
        s.set_handle(1, *handle)
    return [data, data]


def _merge_shape(s: ShapeContext, inputs: list[TensorShape]) -> list[TensorShape]:
    made = inputs[0]
    for other in inputs[1:]:
        made = common_shape(made, other)
    handles = [s.handle(i) for i in range(len(inputs))]
    known = [h for h in handles if h is not None]
    if len(known) == len(handles) and len({h[0] for h in known}) == 1:
        shape = known[0][1]
        for _, other in known[1:]:
            shape = common_shape(shape, other)
        s.set_handle(0, known[0][0], shape)
    return [made, SCALAR]


def common_shape(a: TensorShape, b: TensorShape) -> TensorShape:
    """What two shapes have in common: the most specific shape that both are compatible with."""
    if a.sizes is None or b.sizes is None or len(a.sizes) != len(b.sizes):
        return UNKNOWN
    if a.sizes == b.sizes:
        return a
    return TensorShape.of(tuple([x if x == y else None for x, y in zip(a.sizes, b.sizes)]))


def _both_branches(tf: Any) -> list[Any]:
    pred, x = tf.placeholder_with_default(True, []), tf.placeholder_with_default([1.0, 2.0], [2])
    false, true = tf.raw_ops.Switch(data=x, pred=pred)
    merged = tf.raw_ops.Merge(inputs=[false * 3.0, true * 2.0])
    other = tf.raw_ops.Merge(inputs=tf.raw_ops.Switch(data=x, pred=tf.logical_not(pred)))
    return [merged[0], merged[1], [other[0], other[1]], tf.gradients(merged[0], x)]


def _on_reference(tf: Any) -> list[Any]:
    variable = tf.Variable([1.0, 2.0], use_resource=False)
    made: list[Any] = [variable.initializer]
    for chosen in (False, True):
        false, true = tf.raw_ops.RefSwitch(data=variable._ref(), pred=tf.placeholder_with_default(chosen, []))
        merged = tf.raw_ops.RefMerge(inputs=[tf.assign(false, [5.0, 7.0]), tf.assign_add(true, [1.0, 1.0])])
        made += [[merged[0], merged[1]], variable]
    return made


def _through_identity(tf: Any) -> list[Any]:
    variable = tf.Variable([1.0, 2.0], use_resource=False)
    passed = tf.raw_ops.RefIdentity(input=variable._ref())
    return [variable.initializer, passed, tf.assign_add(passed, [1.0, 1.0]), variable]


@op("Switch(data: T, pred: bool) -> output_false: T, output_true: T")
class Switch:
    """`data`, at `output_true` where `pred` is true, else at `output_false`; the other output is dead."""

    host_inputs = (1,)
    unfoldable = True

    def shape(self, s: ShapeContext, data: TensorShape, pred: TensorShape) -> list[TensorShape]:
        return _switch_shape(s, data, pred)

    def gradient(self, op: Any, *grads: Any) -> list[Any]:
        return _switch_gradient(op, grads)

    samples = [program(_both_branches)]


@op("RefSwitch(data: Ref(T), pred: bool) -> output_false: Ref(T), output_true: Ref(T)")
class RefSwitch:
    """A Switch of a ref variable's memory."""

    host_inputs = (1,)
    unfoldable = True

    def shape(self, s: ShapeContext, data: TensorShape, pred: TensorShape) -> list[TensorShape]:
        return _switch_shape(s, data, pred)

    def gradient(self, op: Any, *grads: Any) -> list[Any]:
        return _switch_gradient(op, grads)

    samples = [program(_on_reference)]


@op("Merge(inputs: N*T) -> output: T, value_index: int32")
class Merge:
    """The input that is alive, and which it is. Dead where none is."""

    host_outputs = (1,)
    unfoldable = True

    def shape(self, s: ShapeContext, inputs: list[TensorShape]) -> list[TensorShape]:
        return _merge_shape(s, inputs)

    def gradient(self, op: Any, grad: Any, _: Any) -> list[Any]:
        return _merge_gradient(op, grad)

    samples = [program(_both_branches)]


@op("RefMerge(inputs: Ref(N*T)) -> output: Ref(T), value_index: int32")
class RefMerge:
    """A Merge of references to variables."""

    host_outputs = (1,)
    unfoldable = True

    def shape(self, s: ShapeContext, inputs: list[TensorShape]) -> list[TensorShape]:
        return _merge_shape(s, inputs)

    def gradient(self, op: Any, grad: Any, _: Any) -> list[Any]:
        return _merge_gradient(op, grad)

    samples = [program(_on_reference)]


@op("RefIdentity(input: Ref(T)) -> output: Ref(T)")
class RefIdentity:
    """The same reference."""

    aliases = (0,)
    unfoldable = True

    def shape(self, s: ShapeContext, input: TensorShape) -> TensorShape:
        return input

    def compute(self, k: KernelContext, input: Any) -> Any:
        return input

    def gradient(self, op: Any, dy: Tensor) -> Tensor:
        return dy

    samples = [program(_through_identity)]


@op("ControlTrigger()")
class ControlTrigger:
    """Nothing; runs after its control inputs, also where they are dead."""

    def compute(self, k: KernelContext) -> tuple[()]:
        return ()

    samples = [program(lambda tf: [tf.raw_ops.ControlTrigger()])]


def _not_taken(tf: Any) -> list[Any]:
    def stop() -> Any:
        with tf.control_dependencies([tf.raw_ops.Abort(error_msg="not reached")]):
            return tf.constant(1.0)

    return [tf.cond(tf.placeholder_with_default(False, []), stop, lambda: tf.constant(2.0))]


@op("Abort()", error_msg="string = ''", exit_without_error="bool = False")
class Abort:
    """Ends the process: by SIGABRT after `error_msg`, or quietly with `exit_without_error`."""

    # What ends a process is not folded away; TensorFlow declares no state.
    unfoldable = True

    def compute(self, k: KernelContext) -> tuple[()]:
        if k.attrs["exit_without_error"]:
            os._exit(0)
        print(
            f"Abort '{k.name}': {k.attrs['error_msg'].decode(errors='replace')}", file=sys.stderr, flush=True
        )
        os.abort()

    samples = [program(_not_taken, why="only what is not taken can be run by a test")]


# -- builders that take IndexedSlices and SparseTensors too
# ---------------------------------------------------


def switch(data: Any, pred: Any, dtype: Any = None, name: str | None = None) -> Any:
    """(false, true): `data` where `pred` is so, else dead. Of a tensor, IndexedSlices or a SparseTensor."""
    with name_scope(name, "Switch", [t for t in (data, pred) if hasattr(t, "graph")]) as scope:
        data = _tensor_or_composite(data, dtype, "data")
        pred = convert_to_tensor(pred, name="pred")
        if isinstance(data, Tensor):
            return tuple((raw.RefSwitch if data.dtype.is_ref else raw.Switch)(data, pred, name=scope))
        parts = [raw.Switch(part, pred) for part in nest.flatten(data, expand_composites=True)]
        return tuple(
            nest.pack_sequence_as(data, [p[i] for p in parts], expand_composites=True) for i in (0, 1)
        )


def switch_colocated(data: Any, pred: Tensor, name: str = "Switch") -> Any:
    """`switch`, on the device of `data` whatever is asked for around."""
    data = _tensor_or_composite(data, None, "data")
    with colocate_with(data, ignore_existing=True):
        return switch(data, pred, name=name)


def merge(inputs: list[Any], name: str | None = None) -> tuple[Any, Tensor]:
    """(value, index) of the input that is alive. Tensors beside IndexedSlices are taken as slices of all
    their rows.

    Raises:
      ValueError: an input is None, or only some of several IndexedSlices know their dense shape.
    """
    if any(value is None for value in inputs):
        raise ValueError(f"At least one of the merge inputs is None: {inputs}")
    with name_scope(name, "Merge", inputs) as scope:
        values = [_tensor_or_composite(v, None, None) for v in inputs]
        if all(isinstance(v, Tensor) for v in values):
            made = (raw.RefMerge if all(v.dtype.is_ref for v in values) else raw.Merge)(values, name=scope)
            return made[0], made[1]
        if all(isinstance(v, (Tensor, IndexedSlices)) for v in values):
            values = as_indexed_slices(values)
        for other in values[1:]:
            nest.assert_same_structure(values[0], other, expand_composites=True)
        merged = [
            raw.Merge(list(parts))
            for parts in zip(*[nest.flatten(v, expand_composites=True) for v in values])
        ]
        return nest.pack_sequence_as(values[0], [m[0] for m in merged], expand_composites=True), merged[0][1]


def _tensor_or_composite(value: Any, dtype: Any, name: str | None) -> Any:
    if isinstance(value, (IndexedSlices, SparseTensor)):
        return value
    return convert_to_tensor(value, dtype=dtype, name=name, as_ref=True)


def as_indexed_slices(values: list[Any]) -> list[IndexedSlices]:
    """Each value as IndexedSlices, with indices of one dtype."""
    made = [v if isinstance(v, IndexedSlices) else slices_of(v) for v in values]
    if len({s.indices.dtype for s in made}) > 1:
        made = [
            IndexedSlices(
                s.values,
                raw.Cast(s.indices, DstT=int64) if s.indices.dtype is int32 else s.indices,
                s.dense_shape,
            )
            for s in made
        ]
    return made


def slices_of(tensor: Tensor) -> IndexedSlices:
    """A tensor as IndexedSlices of all its rows."""
    shape = raw.Shape(tensor)
    return IndexedSlices(tensor, raw.Range(0, shape[0], 1, name="range"), shape)
