"""Variables in the public namespace: tf.Variable, tf.get_variable, tf.variable_scope, tf.assign and their
kin."""

from __future__ import annotations

from typing import Any

from graphrt.core.dtypes import DType
from graphrt.variables.assignments import (
    assign,
    assign_add,
    assign_sub,
    batch_scatter_update,
    count_up_to,
    scatter_add,
    scatter_div,
    scatter_max,
    scatter_min,
    scatter_mul,
    scatter_nd_add,
    scatter_nd_sub,
    scatter_nd_update,
    scatter_sub,
    scatter_update,
)
from graphrt.variables.collections import (
    all_variables,
    assert_variables_initialized,
    global_variables,
    global_variables_initializer,
    initialize_all_variables,
    initialize_local_variables,
    initialize_variables,
    is_variable_initialized,
    local_variables,
    local_variables_initializer,
    model_variables,
    moving_average_variables,
    report_uninitialized_variables,
    trainable_variables,
    variables_initializer,
)
from graphrt.variables.lifting import init_scope
from graphrt.variables.partitioned_variable import (
    create_partitioned_variables,
    fixed_size_partitioner,
    min_max_variable_partitioner,
    variable_axis_size_partitioner,
)
from graphrt.variables.template import make_template
from graphrt.variables.variable import (
    Variable,
    VariableAggregation,
    VariableSynchronization,
    disable_resource_variables,
    enable_resource_variables,
    resource_variables_enabled,
    variable_creator_scope,
)
from graphrt.variables.variable_scope import (
    VariableScope,
    get_local_variable,
    get_variable,
    get_variable_scope,
    no_regularizer,
    variable_op_scope,
    variable_scope,
)
from graphrt.variables.variable_store import AUTO_REUSE, set_default_initializer

__all__ = [
    "AUTO_REUSE",
    "Variable",
    "VariableAggregation",
    "VariableScope",
    "VariableSynchronization",
    "all_variables",
    "assert_variables_initialized",
    "assign",
    "assign_add",
    "assign_sub",
    "batch_scatter_update",
    "count_up_to",
    "create_partitioned_variables",
    "disable_resource_variables",
    "enable_resource_variables",
    "fixed_size_partitioner",
    "get_local_variable",
    "get_variable",
    "get_variable_scope",
    "global_variables",
    "global_variables_initializer",
    "init_scope",
    "initialize_all_variables",
    "initialize_local_variables",
    "initialize_variables",
    "is_variable_initialized",
    "local_variables",
    "local_variables_initializer",
    "make_template",
    "min_max_variable_partitioner",
    "model_variables",
    "moving_average_variables",
    "no_regularizer",
    "report_uninitialized_variables",
    "resource_variables_enabled",
    "scatter_add",
    "scatter_div",
    "scatter_max",
    "scatter_min",
    "scatter_mul",
    "scatter_nd_add",
    "scatter_nd_sub",
    "scatter_nd_update",
    "scatter_sub",
    "scatter_update",
    "trainable_variables",
    "variable_axis_size_partitioner",
    "variable_creator_scope",
    "variable_op_scope",
    "variable_scope",
    "variables_initializer",
]


def _default_initializer(dtype: DType) -> Any:
    from graphrt import initializers

    return initializers.glorot_uniform() if dtype.is_floating else initializers.zeros()


set_default_initializer(_default_initializer)
