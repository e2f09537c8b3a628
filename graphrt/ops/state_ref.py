"""Ref variables: an edge that is the variable's memory itself, and the ops that write to it.

Where an input or output is declared `Ref(T)` the edge carries the VariableState; any other consumer gets its
array, as it is when that consumer runs. An op with a Ref output returns the state that it wrote to.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphrt.core.dtypes import INDEX, NUMBERS, DType
from graphrt.core.errors import FailedPreconditionError, InvalidArgumentError, OutOfRangeError
from graphrt.core.registry import KernelContext, ShapeContext, op
from graphrt.core.resources import VariableState, check_same_variable
from graphrt.core.samples import program
from graphrt.core.shapes import SCALAR, UNKNOWN, TensorShape
from graphrt.ops.state_samples import on_ref


def variable_memory(k: KernelContext, is_ref: bool) -> VariableState:
    """The memory that a variable's node names: made in its container at first sight.

    Raises:
      InvalidArgumentError: another graph made it with another dtype, shape or kind.
    """
    attrs = k.attrs
    name = attrs["shared_name"].decode() or k.name
    dtype: DType = attrs["dtype"]
    shape: TensorShape = attrs["shape"]
    asker = f"{k.type} '{k.name}'"
    state = k.resources.lookup_or_create(
        attrs["container"].decode(),
        name,
        VariableState,
        lambda: VariableState(name, dtype, shape, is_ref, asker),
    )
    check_same_variable(state, dtype, shape, asker)
    if state.is_ref != is_ref:
        kinds = ("resource", "ref")
        raise InvalidArgumentError(
            None,
            None,
            f"variable '{name}' exists as a {kinds[state.is_ref]} variable, made by {state.maker}; {asker} "
            "asks "
            f"for a {kinds[is_ref]} variable: give one of the two another name or container, or use_resource="
            f"{not is_ref} here",
        )
    return state


class RefVariableNode:
    """Base of the nodes that are a ref variable."""

    stateful = True
    unfoldable = True

    def shape(self, s: ShapeContext) -> TensorShape:
        return s.attrs["shape"]

    def hoist(self, k: KernelContext) -> VariableState:
        return variable_memory(k, is_ref=True)

    def compute(self, k: KernelContext) -> VariableState:
        return self.hoist(k)


@op(
    "VariableV2() -> ref: Ref(dtype)",
    shape="shape",
    dtype="type",
    container="string = ''",
    shared_name="string = ''",
)
class VariableV2(RefVariableNode):
    """A variable, as a reference to its memory."""

    samples = [
        program(lambda tf: _made(tf, lambda: tf.Variable([[1.0, 2.0]], use_resource=False))),
        program(lambda tf: _made(tf, lambda: tf.Variable(["a", "bc"], use_resource=False)), why="text"),
    ]


def _made(tf: Any, make: Any) -> list[Any]:
    variable = make()
    return [variable.initializer, variable, variable.read_value()]


@op(
    "Variable() -> ref: Ref(dtype)",
    shape="shape",
    dtype="type",
    container="string = ''",
    shared_name="string = ''",
)
class Variable(RefVariableNode):
    """VariableV2's forerunner, in old GraphDefs: shape [] stands for an unknown shape."""

    def shape(self, s: ShapeContext) -> TensorShape:
        return s.attrs["shape"] if s.attrs["shape"].rank else UNKNOWN

    def hoist(self, k: KernelContext) -> VariableState:
        state = variable_memory(k, is_ref=True)
        if not state.shape.rank:
            state.shape = UNKNOWN
        return state

    samples = [program(lambda tf: _legacy(tf))]


def _legacy(tf: Any) -> list[Any]:
    ref = tf.raw_ops.Variable(shape=[2], dtype=tf.float32, container="", shared_name="")
    return [
        tf.raw_ops.Assign(ref=ref, value=[1.0, 2.0]),
        tf.raw_ops.AssignAdd(ref=ref, value=[1.0, 1.0]),
        ref,
    ]


def same_shape(op_type: str, name: str, held: tuple[int, ...], given: tuple[int, ...]) -> None:
    """Raise InvalidArgumentError unless a variable of shape `held` can take a value of shape `given`."""
    if held != given:
        raise InvalidArgumentError(
            None,
            None,
            f"{op_type} requires shapes of both tensors to match. lhs shape= {list(held)} rhs shape= "
            f"{list(given)} (variable '{name}')",
        )


def merged(ref: TensorShape, value: TensorShape, what: str = "a value") -> TensorShape:
    """The shape that variable and value share. Raises ValueError where they differ."""
    if not ref.is_compatible_with(value):
        raise ValueError(f"a variable of shape {ref} cannot take {what} of shape {value}")
    return ref.merge_with(value)


@op(
    "Assign(ref: Ref(T), value: T) -> output_ref: Ref(T)",
    T="type",
    validate_shape="bool = True",
    use_locking="bool = True",
)
class Assign:
    """Sets a ref variable to `value`; with validate_shape only to one of its shape."""

    stateful = True
    not_differentiable = True

    def shape(self, s: ShapeContext, ref: TensorShape, value: TensorShape) -> TensorShape:
        return merged(ref, value) if s.attrs["validate_shape"] else value

    def compute(self, k: KernelContext, ref: VariableState, value: Any) -> VariableState:
        if k.attrs["validate_shape"]:
            held = ref.array
            if held is not None:
                same_shape("Assign", ref.name, held.shape, value.shape)
            elif not ref.shape.is_compatible_with(TensorShape.of(value.shape)):
                same_shape("Assign", ref.name, ref.shape.sizes, value.shape)
        ref.assign(value, k.xp)
        return ref

    samples = [
        on_ref([1.0, 2.0], lambda tf, v: tf.raw_ops.Assign(ref=v, value=[3.0, 4.0])),
        on_ref(5, lambda tf, v: tf.raw_ops.Assign(ref=v, value=7), why="scalar"),
        on_ref(
            [[1.0]],
            lambda tf, v: tf.raw_ops.Assign(ref=v, value=[3.0, 4.0], validate_shape=False),
            why="another shape",
        ),
        on_ref(
            [],
            lambda tf, v: tf.raw_ops.Assign(ref=v, value=tf.constant([], tf.float32)),
            dtype="float32",
            why="empty",
        ),
        on_ref(["a", "b"], lambda tf, v: tf.raw_ops.Assign(ref=v, value=["cd", ""]), why="text"),
    ]


class AssignUpdate:
    """Base of AssignAdd and AssignSub: `ufunc` of the memory and the value, in place."""

    stateful = True
    not_differentiable = True
    ufunc = ""

    def shape(self, s: ShapeContext, ref: TensorShape, value: TensorShape) -> TensorShape:
        return merged(ref, value)

    def bind(self, k: KernelContext) -> Any:
        ufunc, op_type = getattr(k.xp, self.ufunc), k.type

        def update(ref: VariableState, value: Any) -> VariableState:
            with ref.lock:
                array = ref.writable()
                if array.shape != value.shape:
                    same_shape(op_type, ref.name, array.shape, value.shape)
                ufunc(array, value, array)
            return ref

        return update


@op("AssignAdd(ref: Ref(T), value: T) -> output_ref: Ref(T)", T=NUMBERS, use_locking="bool = False")
class AssignAdd(AssignUpdate):
    """Adds `value` to a ref variable."""

    ufunc = "add"
    samples = [
        on_ref([1.0, 2.0], lambda tf, v: tf.raw_ops.AssignAdd(ref=v, value=[3.0, 4.0])),
        on_ref(5, lambda tf, v: tf.raw_ops.AssignAdd(ref=v, value=7), dtype="int64"),
        on_ref([1.5, 2.0], lambda tf, v: tf.raw_ops.AssignAdd(ref=v, value=v), why="its own value"),
    ]


@op("AssignSub(ref: Ref(T), value: T) -> output_ref: Ref(T)", T=NUMBERS, use_locking="bool = False")
class AssignSub(AssignUpdate):
    """Subtracts `value` from a ref variable."""

    ufunc = "subtract"
    samples = [
        on_ref([1.0, 2.0], lambda tf, v: tf.raw_ops.AssignSub(ref=v, value=[3.0, 4.0])),
        on_ref(5, lambda tf, v: tf.raw_ops.AssignSub(ref=v, value=7)),
    ]


@op("IsVariableInitialized(ref: Ref(dtype)) -> is_initialized: bool", dtype="type")
class IsVariableInitialized:
    """True once a ref variable has a value."""

    stateful = True
    not_differentiable = True

    def shape(self, s: ShapeContext, ref: TensorShape) -> TensorShape:
        return SCALAR

    def compute(self, k: KernelContext, ref: VariableState) -> Any:
        return np.bool_(ref.array is not None)

    host_outputs = (0,)
    samples = [program(lambda tf: _initialized(tf))]


def _initialized(tf: Any) -> list[Any]:
    variable = tf.Variable([1.0], use_resource=False)
    asked = tf.raw_ops.IsVariableInitialized(ref=variable._ref())
    return [asked, variable.initializer, asked]


def count_up(state: VariableState, limit: int) -> Any:
    """The variable's value before it is counted up by one.

    Raises:
      OutOfRangeError: it has reached `limit`.
    """
    with state.lock:
        array = state.writable()
        before = array[()]
        if before >= limit:
            raise OutOfRangeError(None, None, f"Reached limit of {limit} (variable '{state.name}')")
        array += 1
    return before


@op("CountUpTo(ref: Ref(T)) -> output: T", limit="int", T=INDEX)
class CountUpTo:
    """A scalar ref variable's value, which is then one more; OutOfRangeError at `limit`."""

    stateful = True
    not_differentiable = True
    cpu_only = True

    def shape(self, s: ShapeContext, ref: TensorShape) -> TensorShape:
        ref.with_rank(0)
        return SCALAR

    def compute(self, k: KernelContext, ref: VariableState) -> Any:
        return count_up(ref, k.attrs["limit"])

    samples = [
        on_ref(3, *[lambda tf, v: tf.raw_ops.CountUpTo(ref=v, limit=9)] * 2),
        on_ref(0, lambda tf, v: tf.raw_ops.CountUpTo(ref=v, limit=1), dtype="int64"),
    ]


@op("TemporaryVariable() -> ref: Ref(dtype)", shape="shape", dtype="type", var_name="string = ''")
class TemporaryVariable:
    """A ref variable that lives for one step: fresh memory, to be assigned to first."""

    stateful = True
    unfoldable = True

    def shape(self, s: ShapeContext) -> TensorShape:
        return s.attrs["shape"]

    def compute(self, k: KernelContext) -> VariableState:
        state = VariableState(k.name, k.attrs["dtype"], k.attrs["shape"], is_ref=True)
        state.array = k.xp.zeros(k.attrs["shape"].as_list(), k.attrs["dtype"].np)
        return state

    samples = [program(lambda tf: [_temporary(tf)])]


def _temporary(tf: Any) -> Any:
    ref = tf.raw_ops.TemporaryVariable(shape=[2], dtype=tf.float32, var_name="t")
    assigned = tf.raw_ops.Assign(ref=ref, value=[4.0, 5.0])
    added = tf.raw_ops.AssignAdd(ref=assigned, value=[6.0, 7.0])
    return tf.raw_ops.DestroyTemporaryVariable(ref=added, var_name="t")


@op("DestroyTemporaryVariable(ref: Ref(T)) -> value: T", T="type", var_name="string")
class DestroyTemporaryVariable:
    """A temporary variable's last value; its memory ends with the step."""

    stateful = True

    def shape(self, s: ShapeContext, ref: TensorShape) -> TensorShape:
        return ref

    def compute(self, k: KernelContext, ref: VariableState) -> Any:
        with ref.lock:
            array, ref.array = ref.array, None
        if array is None:
            raise FailedPreconditionError(
                None, None, f"temporary variable '{k.attrs['var_name'].decode()}' was destroyed before"
            )
        return array

    samples = [program(lambda tf: [_temporary(tf)])]
