"""Moving averages of variables and tensors, with exponential decay."""

from __future__ import annotations

from typing import Any

from graphrt import initializers
from graphrt.api.math_elementwise import cast
from graphrt.core import raw
from graphrt.core.convert import convert_to_tensor
from graphrt.core.default_graph import get_default_graph, name_scope
from graphrt.core.dtypes import bfloat16, float32, float64, half
from graphrt.core.graph_keys import GraphKeys
from graphrt.core.operation import Operation
from graphrt.core.tensor import TensorReference
from graphrt.train import slots
from graphrt.variables.assignments import assign, assign_sub
from graphrt.variables.collections import global_variables, moving_average_variables, trainable_variables
from graphrt.variables.lifting import group, init_scope, initialized_value
from graphrt.variables.variable import Variable
from graphrt.variables.variable_scope import get_variable, get_variable_scope, variable_scope

_VARIABLE_TYPES = ("Variable", "VariableV2", "VarHandleOp")


def assign_moving_average(
    variable: Any, value: Any, decay: Any, zero_debias: bool = True, name: str | None = None
) -> Any:
    """variable = decay * variable + (1 - decay) * value, and return it as it is then.

    Args:
      zero_debias: divide by what the decay has left of the zeros that the variable began with: keeps two
        variables, 'biased' and 'local_step', beside it.
    """
    with name_scope(name, "AssignMovingAvg", [variable, value, decay]) as scope:
        decay = convert_to_tensor(1.0 - decay, name="decay")
        if decay.dtype is not variable.dtype.base_dtype:
            decay = cast(decay, variable.dtype.base_dtype)
        if zero_debias:
            return _debiased(variable, value, decay)
        return assign_sub(variable, (variable - value) * decay, name=scope)


def _debiased(variable: Any, value: Any, decay: Any) -> Any:
    graph = get_default_graph()
    with variable_scope(variable.name.partition(":")[0], values=[variable, value, decay]):
        with graph.colocate_with(variable):
            with init_scope():
                zeros = initializers.zeros()
            biased = get_variable(
                _free_name("biased"),
                initializer=zeros,
                shape=variable.get_shape(),
                dtype=variable.dtype,
                trainable=False,
            )
            local_step = get_variable(
                _free_name("local_step"), shape=[], dtype=variable.dtype, initializer=zeros, trainable=False
            )
    updated = assign_sub(biased, (biased - value) * decay)
    steps = local_step.assign_add(1)
    left = 1 - raw.Pow(1.0 - decay, steps)
    return assign(variable, updated / left, name=graph.get_name_scope() + "/")


def _free_name(name: str) -> str:
    """`name`, with _1, _2, … where the open variable scope has a variable of that name and does not reuse."""
    scope = get_variable_scope()
    if scope.reuse:
        return name
    taken = {v.op.name for v in scope.global_variables()}
    made, i = name, 0
    while f"{scope.name}/{made}" in taken:
        i += 1
        made = f"{name}_{i}"
    return made


def weighted_moving_average(
    value: Any,
    decay: Any,
    weight: Any,
    truediv: bool = True,
    collections: Any = None,
    name: str | None = None,
) -> Any:
    """The moving average of `value`, each time weighted by `weight`: the average of value * weight over that
    of weight."""
    collections = [GraphKeys.GLOBAL_VARIABLES] if collections is None else collections
    with variable_scope(name, "WeightedMovingAvg", [value, weight, decay]) as scope:
        made = [
            get_variable(
                what,
                shape=of.get_shape(),
                dtype=of.dtype,
                initializer=initializers.zeros(),
                trainable=False,
                collections=collections,
            )
            for what, of in (("value_x_weight", value), ("weight", weight))
        ]
        numerator = assign_moving_average(made[0], value * weight, decay, zero_debias=False)
        denominator = assign_moving_average(made[1], weight, decay, zero_debias=False)
        return (raw.RealDiv if truediv else raw.Div)(numerator, denominator, name=scope.name)


class ExponentialMovingAverage:
    """Averages of variables or tensors: average = decay * average + (1 - decay) * value, each time apply's
    operation runs.

    Args:
      decay: near 1; with `num_updates` at most (1 + num_updates) / (10 + num_updates), so that early averages
        follow fast.
      num_updates: how many updates were done, a tensor or variable.
      zero_debias: averages of tensors, which begin with zeros, are divided by what the decay has left of
        those.
      name: part of the averages' names: 'W/ExponentialMovingAverage'.
    """

    def __init__(
        self,
        decay: Any,
        num_updates: Any = None,
        zero_debias: bool = False,
        name: str = "ExponentialMovingAverage",
    ) -> None:
        self._decay, self._num_updates, self._zero_debias, self._name = decay, num_updates, zero_debias, name
        self._averages: dict[TensorReference, Any] = {}

    @property
    def name(self) -> str:
        return self._name

    def apply(self, var_list: Any = None) -> Operation:
        """An operation that updates the averages of `var_list`, which are made where there are none.

        Args:
          var_list: variables or tensors of a floating dtype; the trainable variables by default.
        Raises:
          TypeError: one is of another dtype.
        """
        var_list = trainable_variables() if var_list is None else list(var_list)
        debiased = set()
        for var in var_list:
            if var.dtype.base_dtype not in (bfloat16, half, float32, float64):
                raise TypeError(f"The variables must be half, float, or double: {var.name}")
            if var.ref() not in self._averages:
                with init_scope():
                    average = self._averages[var.ref()] = self._new_average(var)
                if self._zero_debias and not isinstance(var, Variable):
                    debiased.add(average.ref())
        with name_scope(self._name) as scope:
            decay = convert_to_tensor(self._decay, dtype=float32, name="decay")
            if self._num_updates is not None:
                done = cast(self._num_updates, float32, name="num_updates")
                decay = raw.Minimum(decay, (1.0 + done) / (10.0 + done))
            updates = [
                assign_moving_average(average, var, decay, average.ref() in debiased)
                for var in var_list
                for average in [self._averages[var.ref()]]
            ]
            return group(*updates, name=scope)

    def _new_average(self, var: Any) -> Any:
        if not isinstance(var, Variable):
            return slots.create_zeros_slot(
                var, self._name, colocate_with_primary=var.op.type in _VARIABLE_TYPES
            )
        with get_default_graph().device(var.device):
            initial = initialized_value(var)
        get_default_graph().add_to_collection(GraphKeys.MOVING_AVERAGE_VARIABLES, var)
        return slots.create_slot(var, initial, self._name)

    def average(self, var: Any) -> Any:
        """The variable that holds the average of `var`, or None."""
        return self._averages.get(var.ref())

    def average_name(self, var: Any) -> str:
        """The name that the average of `var` has, or would have: what checkpoints know it by."""
        if var.ref() in self._averages:
            return self._averages[var.ref()].op.name
        return get_default_graph().unique_name(
            f"{var.name.partition(':')[0]}/{self._name}", mark_as_used=False
        )

    def variables_to_restore(self, moving_avg_variables: Any = None) -> dict[str, Any]:
        """For a Saver that restores averages into the variables themselves: name in the checkpoint to
        variable.

        Args:
          moving_avg_variables: those with averages; by default the trainable ones and what apply was called
            on.
        """
        if moving_avg_variables is None:
            moving_avg_variables = [*trainable_variables(), *moving_average_variables()]
        averaged = list(dict.fromkeys(moving_avg_variables))
        names = {self.average_name(var): var for var in averaged}
        taken = {var.name for var in averaged}
        for var in dict.fromkeys(global_variables()):
            if var.name not in taken and var.op.name not in names:
                names[var.op.name] = var
        return names
