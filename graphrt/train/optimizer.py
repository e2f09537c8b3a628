"""Optimizer: gradients of a loss, and the operation that applies them to variables.

An optimizer of one's own overrides `_create_slots`, `_prepare`, `_apply_dense` and `_apply_sparse` (ref
variables), `_resource_apply_dense` and `_resource_apply_sparse` (resource variables), and `_finish`, with
TensorFlow's arguments. Those whose step is one op are tables: `FusedOptimizer`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from graphrt.api.math_elementwise import cast
from graphrt.core import raw
from graphrt.core.convert import convert_to_tensor, convert_to_tensor_or_indexed_slices
from graphrt.core.default_graph import get_default_graph, name_scope
from graphrt.core.dtypes import DType, bfloat16, float32, float64, half, resource
from graphrt.core.gradients import gradients
from graphrt.core.graph_keys import GraphKeys
from graphrt.core.operation import Operation
from graphrt.core.tensor import IndexedSlices, Tensor
from graphrt.train import slots
from graphrt.variables.collections import trainable_variables
from graphrt.variables.lifting import gated, group, init_scope
from graphrt.variables.resource_variable import BaseResourceVariable, is_resource_variable
from graphrt.variables.variable import Variable
from graphrt.variables.variable_scope import get_variable, variable_scope

GradsAndVars = Iterable[tuple[Any, Any]]


class Optimizer:
    """Base of the optimizers.

    Args:
      use_locking: an attr of the update ops; updates hold the variables' locks in any case.
      name: the name scope of what apply_gradients builds, and part of the slots' names.
      use_own_namescope_for_non_slot_vars: variables that belong to no variable (beta1_power) stand under
        `name`.
    """

    GATE_NONE = 0
    GATE_OP = 1
    GATE_GRAPH = 2

    def __init__(
        self, use_locking: bool, name: str, use_own_namescope_for_non_slot_vars: bool = False
    ) -> None:
        if not name:
            raise ValueError("Must specify the optimizer name")
        self._use_locking, self._name = use_locking, name
        self._use_own_namescope_for_non_slot_vars = use_own_namescope_for_non_slot_vars
        if use_own_namescope_for_non_slot_vars:
            with variable_scope(None, default_name=name) as scope:
                self._non_slot_variable_scope = scope
        # Slot name to (graph, variable's name) to the slot variable; (name, graph) to a variable that is no
        # slot.
        self._slots: dict[str, dict[Any, Any]] = {}
        self._non_slot_dict: dict[Any, Any] = {}

    def get_name(self) -> str:
        return self._name

    def minimize(
        self,
        loss: Tensor,
        global_step: Any = None,
        var_list: Any = None,
        gate_gradients: int = GATE_OP,
        aggregation_method: int | None = None,
        colocate_gradients_with_ops: bool = False,
        name: str | None = None,
        grad_loss: Any = None,
    ) -> Operation:
        """One step: compute_gradients, then apply_gradients.

        Raises:
          ValueError: the loss depends on none of the variables.
        """
        grads_and_vars = self.compute_gradients(
            loss, var_list, gate_gradients, aggregation_method, colocate_gradients_with_ops, grad_loss
        )
        if all(grad is None for grad, _ in grads_and_vars):
            raise ValueError(
                "No gradients provided for any variable, check your graph for ops that do not support "
                f"gradients, between variables {[str(v) for _, v in grads_and_vars]} and loss {loss}."
            )
        return self.apply_gradients(grads_and_vars, global_step=global_step, name=name)

    def compute_gradients(
        self,
        loss: Tensor,
        var_list: Any = None,
        gate_gradients: int = GATE_OP,
        aggregation_method: int | None = None,
        colocate_gradients_with_ops: bool = False,
        grad_loss: Any = None,
    ) -> list[tuple[Any, Any]]:
        """(gradient, variable) for each variable; the gradient is a Tensor, IndexedSlices or None.

        Args:
          loss: what is minimised.
          var_list: variables (or tensors) by which it is differentiated; the trainable ones by default.
          gate_gradients: GATE_NONE, GATE_OP (an op's gradients are computed before any is used) or GATE_GRAPH
            (all are).
          aggregation_method, colocate_gradients_with_ops: see tf.gradients.
          grad_loss: the gradient of `loss` to begin with; ones by default.
        Raises:
          ValueError: there is no variable, or one of them or the loss is of a dtype that cannot be trained.
        """
        if callable(loss):
            raise TypeError("compute_gradients takes the loss as a tensor: functions are for eager execution")
        if gate_gradients not in (Optimizer.GATE_NONE, Optimizer.GATE_OP, Optimizer.GATE_GRAPH):
            raise ValueError(
                "gate_gradients must be one of: Optimizer.GATE_NONE, Optimizer.GATE_OP, "
                f"Optimizer.GATE_GRAPH.  Not {gate_gradients}"
            )
        if grad_loss is not None:
            grad_loss = convert_to_tensor_or_indexed_slices(grad_loss, loss.dtype.base_dtype)
        self._assert_valid_dtypes([loss] if grad_loss is None else [loss, grad_loss])
        variables = trainable_variables() if var_list is None else _flat(var_list)
        if not variables:
            raise ValueError("No variables to optimize.")
        targets = [_target(v) for v in variables]
        grads = gradients(
            loss,
            targets,
            grad_ys=grad_loss,
            gate_gradients=gate_gradients == Optimizer.GATE_OP,
            aggregation_method=aggregation_method,
            colocate_gradients_with_ops=colocate_gradients_with_ops,
        )
        if gate_gradients == Optimizer.GATE_GRAPH:
            grads = gated(grads)
        self._assert_valid_dtypes(
            [v for grad, v in zip(grads, variables) if grad is not None and v.dtype is not resource]
        )
        return list(zip(grads, variables))

    def apply_gradients(
        self,
        grads_and_vars: GradsAndVars,
        global_step: Any = None,
        name: str | None = None,
        skip_gradients_aggregation: bool = False,
    ) -> Operation:
        """An operation that applies the gradients, and then adds one to `global_step` where it is given.

        Args:
          grads_and_vars: what compute_gradients returned, or a change of it; pairs whose gradient is None are
            left out.
          skip_gradients_aggregation: for distribution strategies.
        Raises:
          ValueError: there is no pair, or no gradient.
          TypeError: a gradient is nothing that becomes a tensor.
        """
        pairs = [(_checked_gradient(grad), variable) for grad, variable in grads_and_vars]
        if not pairs:
            raise ValueError("No variables provided.")
        updates = [(grad, variable, _updater(variable)) for grad, variable in pairs if grad is not None]
        if not updates:
            raise ValueError(f"No gradients provided for any variable: {[str(v) for _, v in pairs]}.")
        with init_scope():
            self._create_slots([variable for _, variable, _ in updates])
        graph = get_default_graph()
        with name_scope(name, self._name) as scope:
            self._prepare()
            update_ops = []
            for grad, variable, update in updates:
                with name_scope("update_" + variable.op.name), graph.colocate_with(variable):
                    update_ops.append(update(self, grad, variable))
            if global_step is None:
                applied = self._finish(update_ops, scope)
            else:
                with (
                    graph.control_dependencies([self._finish(update_ops, "update")]),
                    graph.colocate_with(global_step),
                ):
                    if isinstance(global_step, BaseResourceVariable):
                        applied = raw.AssignAddVariableOp(
                            global_step.handle, convert_to_tensor(1, global_step.dtype), name=scope
                        )
                    else:
                        applied = raw.AssignAdd(global_step, 1, name=scope)
            if isinstance(applied, Tensor):
                applied = applied.op
            train_ops = graph.get_collection_ref(GraphKeys.TRAIN_OP)
            if applied not in train_ops:
                train_ops.append(applied)
            return applied

    # -- slots and other variables of the optimizer ----------------------------------------------------------

    def get_slot(self, var: Any, name: str) -> Any:
        """The variable that the optimizer keeps beside `var` under the slot's name, or None."""
        return self._slots.get(name, {}).get(_key(var))

    def get_slot_names(self) -> list[str]:
        return sorted(self._slots)

    def variables(self) -> list[Any]:
        """The optimizer's own variables in the default graph: slots and others, by name."""
        graph = get_default_graph()
        kept = [*self._non_slot_dict.values(), *(v for named in self._slots.values() for v in named.values())]
        return sorted((v for v in kept if v.op.graph is graph), key=lambda v: v.name)

    def _slot_dict(self, slot_name: str) -> dict[Any, Any]:
        return self._slots.setdefault(slot_name, {})

    def _get_or_make_slot(self, var: Any, val: Tensor, slot_name: str, op_name: str) -> Any:
        """The slot of `var`, made with the value `val` under 'variable/op_name' where there is none."""
        return self._slot(var, slot_name, lambda: slots.create_slot(var, val, op_name))

    def _get_or_make_slot_with_initializer(
        self, var: Any, initializer: Any, shape: Any, dtype: Any, slot_name: str, op_name: str
    ) -> Any:
        return self._slot(
            var,
            slot_name,
            lambda: slots.create_slot_with_initializer(var, initializer, shape, dtype, op_name),
        )

    def _zeros_slot(self, var: Any, slot_name: str, op_name: str) -> Any:
        return self._slot(var, slot_name, lambda: slots.create_zeros_slot(var, op_name))

    def _slot(self, var: Any, slot_name: str, make: Callable[[], Any]) -> Any:
        named = self._slot_dict(slot_name)
        key = _key(var)
        if key not in named:
            named[key] = make()
        return named[key]

    def _create_non_slot_variable(self, initial_value: Any, name: str, colocate_with: Any) -> Any:
        """A variable of the optimizer's own, one a graph, on the device of `colocate_with`."""
        key = (name, colocate_with.graph)
        if key not in self._non_slot_dict:
            use_resource = is_resource_variable(colocate_with)
            with get_default_graph().colocate_with(colocate_with):
                if self._use_own_namescope_for_non_slot_vars:
                    with name_scope(""), variable_scope(self._non_slot_variable_scope):
                        made = get_variable(
                            name, initializer=initial_value, trainable=False, use_resource=use_resource
                        )
                else:
                    made = Variable(initial_value, name=name, trainable=False, use_resource=use_resource)
            self._non_slot_dict[key] = made
        return self._non_slot_dict[key]

    def _get_non_slot_variable(self, name: str, graph: Any = None) -> Any:
        return self._non_slot_dict.get((name, graph))

    def _non_slot_variables(self) -> Iterable[Any]:
        return self._non_slot_dict.values()

    # -- what optimizers override ----------------------------------------------------------------------------

    def _valid_dtypes(self) -> set[DType]:
        """The dtypes of losses and variables that can be trained."""
        return {half, bfloat16, float32, float64}

    def _assert_valid_dtypes(self, tensors: list[Any]) -> None:
        valid = self._valid_dtypes()
        for tensor in tensors:
            if tensor.dtype.base_dtype not in valid:
                raise ValueError(
                    f"Invalid type {tensor.dtype.base_dtype!r} for {tensor.name}, expected: "
                    f"{sorted(valid, key=lambda d: d.number)}."
                )

    def _create_slots(self, var_list: list[Any]) -> None:
        """Make the slots of the variables that are about to be trained."""

    def _prepare(self) -> None:
        """Make the tensors (of the learning rate, …) that the updates share."""

    def _apply_dense(self, grad: Tensor, var: Any) -> Any:
        """The operation that applies a dense gradient to a ref variable."""
        raise NotImplementedError(f"{type(self).__name__} cannot train ref variables with dense gradients")

    def _resource_apply_dense(self, grad: Tensor, handle: Any) -> Any:
        """The operation that applies a dense gradient to a resource variable."""
        raise NotImplementedError(
            f"{type(self).__name__} cannot train resource variables with dense gradients"
        )

    def _apply_sparse(self, grad: IndexedSlices, var: Any) -> Any:
        """The operation that applies a gradient with distinct indices to a ref variable."""
        raise NotImplementedError(f"{type(self).__name__} cannot train ref variables with sparse gradients")

    def _resource_apply_sparse(self, grad: Tensor, handle: Any, indices: Tensor) -> Any:
        """The operation that applies a gradient with distinct indices to a resource variable."""
        raise NotImplementedError(
            f"{type(self).__name__} cannot train resource variables with sparse gradients"
        )

    def _apply_sparse_duplicate_indices(self, grad: IndexedSlices, var: Any) -> Any:
        """_apply_sparse with the slices at each index added up. Overridden where equal indices do no harm."""
        values, indices = _summed_by_index(grad.values, grad.indices)
        return self._apply_sparse(IndexedSlices(values, indices, grad.dense_shape), var)

    def _resource_apply_sparse_duplicate_indices(self, grad: Tensor, handle: Any, indices: Tensor) -> Any:
        values, distinct = _summed_by_index(grad, indices)
        return self._resource_apply_sparse(values, handle, distinct)

    def _finish(self, update_ops: list[Any], name_scope: str) -> Operation:
        """The operation that is done when all updates are, called `name_scope`."""
        return group(*update_ops, name=name_scope)

    def _call_if_callable(self, param: Any) -> Any:
        return param() if callable(param) else param


def _flat(values: Any) -> list[Any]:
    if isinstance(values, dict):
        return [v for key in sorted(values) for v in _flat(values[key])]
    if isinstance(values, (list, tuple)):
        return [v for value in values for v in _flat(value)]
    return [values]


def _key(var: Any) -> tuple[Any, str]:
    return var.op.graph, var.op.name


def _summed_by_index(values: Tensor, indices: Tensor) -> tuple[Tensor, Tensor]:
    """The slices with those at equal indices added up, and the distinct indices."""
    distinct, positions = raw.Unique(indices)
    return raw.UnsortedSegmentSum(values, positions, raw.Shape(distinct)[0]), distinct


def _checked_gradient(grad: Any) -> Any:
    if grad is None:
        return None
    try:
        return convert_to_tensor_or_indexed_slices(grad)
    except TypeError:
        raise TypeError(
            f"Gradient must be convertible to a Tensor or IndexedSlices, or None: {grad}"
        ) from None


def _target(variable: Any) -> Any:
    """By what the loss is differentiated for a variable."""
    if isinstance(variable, Tensor) or is_resource_variable(variable):
        return variable
    if isinstance(variable, Variable):
        return variable._ref()  # type: ignore[attr-defined]
    raise NotImplementedError(f"Trying to optimize unsupported type {variable}")


def _updater(variable: Any) -> Callable[[Optimizer, Any, Any], Any]:
    if is_resource_variable(variable):
        return _update_resource
    if isinstance(variable, Variable):
        return _update_ref
    if isinstance(variable, Tensor):
        raise NotImplementedError(f"Trying to update a Tensor {variable}: only variables can be")
    raise NotImplementedError(f"Trying to optimize unsupported type {variable}")


def _update_ref(optimizer: Optimizer, grad: Any, variable: Any) -> Any:
    if isinstance(grad, IndexedSlices):
        _refuse_constraint(variable)
        return optimizer._apply_sparse_duplicate_indices(grad, variable)
    return _constrained(variable, optimizer._apply_dense(grad, variable))


def _update_resource(optimizer: Optimizer, grad: Any, variable: Any) -> Any:
    if isinstance(grad, IndexedSlices):
        _refuse_constraint(variable)
        return optimizer._resource_apply_sparse_duplicate_indices(grad.values, variable, grad.indices)
    return _constrained(variable, optimizer._resource_apply_dense(grad, variable))


def _refuse_constraint(variable: Any) -> None:
    if variable.constraint is not None:
        raise RuntimeError("Cannot use a constraint function on a sparse variable.")


def _constrained(variable: Any, update_op: Any) -> Any:
    """The update, or the projection of the variable after it."""
    if variable.constraint is None:
        return update_op
    with get_default_graph().control_dependencies([update_op]):
        return variable.assign(variable.constraint(variable))


class FusedOptimizer(Optimizer):
    """An optimizer whose step is one op on a variable and its slots.

    Attributes:
      op_name: its ops are Apply…, ResourceApply…, SparseApply… and ResourceSparseApply… of this name.
      slot_names: the slots, in the op's order.
      hyper: (input of the op, attribute with the value given, attribute with its tensor, the tensor's name).
      inputs: the op's inputs after the slots, in order, with 'grad' among them.
    """

    op_name = ""
    slot_names: tuple[str, ...] = ()
    hyper: tuple[tuple[str, str, str, str], ...] = ()
    inputs: tuple[str, ...] = ()
    options: dict[str, Any] = {}

    def _prepare(self) -> None:
        for _, given, tensor, name in self.hyper:
            setattr(self, tensor, convert_to_tensor(self._call_if_callable(getattr(self, given)), name=name))

    def _input(self, name: str) -> Any:
        """The value of the op's input `name`."""
        return next(getattr(self, tensor) for key, _, tensor, _ in self.hyper if key == name)

    def _apply(self, form: str, var: Any, grad: Tensor, indices: Tensor | None = None) -> Operation:
        is_resource = form.startswith("Resource")
        dtype = (grad if is_resource else var).dtype.base_dtype
        values: list[Any] = []
        for name in self.inputs:
            if name != "grad":
                value = self._input(name)
                values.append(value if name == "global_step" else as_dtype_of(value, dtype))
                continue
            values.append(grad)
            if indices is not None:
                values.append(indices)
        states = [var, *(self.get_slot(var, slot) for slot in self.slot_names)]
        made = getattr(raw, form + self.op_name)(
            *([v.handle for v in states] if is_resource else states),
            *values,
            use_locking=self._use_locking,
            **self.options,
        )
        return made.op if isinstance(made, Tensor) else made

    def _apply_dense(self, grad: Tensor, var: Any) -> Operation:
        return self._apply("Apply", var, grad)

    def _resource_apply_dense(self, grad: Tensor, handle: Any) -> Operation:
        return self._apply("ResourceApply", handle, grad)

    def _apply_sparse(self, grad: IndexedSlices, var: Any) -> Operation:
        return self._apply("SparseApply", var, grad.values, grad.indices)

    def _resource_apply_sparse(self, grad: Tensor, handle: Any, indices: Tensor) -> Operation:
        return self._apply("ResourceSparseApply", handle, grad, indices)


def as_dtype_of(value: Any, dtype: DType) -> Any:
    """`value` in `dtype`; a resource variable of it stays one, and is read where it is used."""
    return value if is_resource_variable(value) and value.dtype is dtype else cast(value, dtype)
