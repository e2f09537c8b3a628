"""The lists of a graph's variables, and the operations that initialise them or say which are not."""

from __future__ import annotations

from typing import Any

from graphrt.core import raw
from graphrt.core.default_graph import get_collection, get_default_graph, name_scope
from graphrt.core.graph_keys import GraphKeys
from graphrt.core.operation import Operation
from graphrt.core.shapes import UNKNOWN
from graphrt.core.tensor import Tensor
from graphrt.variables.lifting import group

_VARIABLE_TYPES = ("Variable", "VariableV2", "AutoReloadVariable")


def global_variables(scope: str | None = None) -> list[Any]:
    """The variables shared by a cluster's processes; with `scope`, those whose name `re.match`es it. So for
    the others."""
    return get_collection(GraphKeys.GLOBAL_VARIABLES, scope)


def all_variables() -> list[Any]:
    """global_variables() by its old name."""
    return global_variables()


def local_variables(scope: str | None = None) -> list[Any]:
    """The variables of this process alone, which checkpoints leave out."""
    return get_collection(GraphKeys.LOCAL_VARIABLES, scope)


def model_variables(scope: str | None = None) -> list[Any]:
    return get_collection(GraphKeys.MODEL_VARIABLES, scope)


def trainable_variables(scope: str | None = None) -> list[Any]:
    """The variables that optimizers train where they are not told which."""
    return get_collection(GraphKeys.TRAINABLE_VARIABLES, scope)


def moving_average_variables(scope: str | None = None) -> list[Any]:
    """The variables of which an ExponentialMovingAverage is kept."""
    return get_collection(GraphKeys.MOVING_AVERAGE_VARIABLES, scope)


def variables_initializer(var_list: Any, name: str = "init") -> Operation:
    """An operation that initialises the variables; it does nothing where there are none."""
    return group(*[v.initializer for v in var_list], name=name) if var_list else raw.NoOp(name=name)


def initialize_variables(var_list: Any, name: str = "init") -> Operation:
    """variables_initializer() by its old name."""
    return variables_initializer(var_list, name)


def global_variables_initializer() -> Operation:
    """An operation that initialises all global variables there are now."""
    return variables_initializer(global_variables())


def initialize_all_variables() -> Operation:
    """global_variables_initializer() by its old name."""
    return global_variables_initializer()


def local_variables_initializer() -> Operation:
    """An operation that initialises all local variables there are now."""
    return variables_initializer(local_variables())


def initialize_local_variables() -> Operation:
    """local_variables_initializer() by its old name."""
    return local_variables_initializer()


def is_variable_initialized(variable: Any) -> Tensor:
    """A bool scalar: whether the variable has a value."""
    if isinstance(variable, Tensor):
        return raw.IsVariableInitialized(variable)
    return variable.is_initialized()


def _listed(var_list: Any) -> list[Any]:
    found = list(var_list) if var_list is not None else global_variables() + local_variables()
    if found or var_list:
        return found
    # None is listed: what variables' nodes there are.
    return [op.outputs[0] for op in get_default_graph().get_operations() if op.type in _VARIABLE_TYPES]


def assert_variables_initialized(var_list: Any = None) -> Tensor | None:
    """A tensor whose step fails with FailedPreconditionError where a variable has no value; None where there
    are none. report_uninitialized_variables says which."""
    ranks = []
    for variable in _listed(var_list):
        with get_default_graph().colocate_with(variable.op):
            # Of a known shape the rank is a constant: nothing would read the variable.
            unknown = (
                raw.PlaceholderWithDefault(variable, shape=UNKNOWN) if variable.dtype.is_ref else variable
            )
            ranks.append(raw.Rank(unknown))
    if not ranks:
        return None
    return ranks[0] if len(ranks) == 1 else raw.Pack(ranks, axis=0, name="stack")


def report_uninitialized_variables(
    var_list: Any = None, name: str = "report_uninitialized_variables"
) -> Tensor:
    """The names of the variables that have no value, as a string vector.

    Args:
      var_list: which to look at; all global and local variables by default.
    """
    found = list(var_list) if var_list is not None else _listed(None)
    graph = get_default_graph()
    with name_scope(name):
        asked = [is_variable_initialized(v) for v in found]
        with graph.device("/cpu:0"):
            if not found:
                return raw.Const(value=_texts([]), dtype="string")
            missing = raw.LogicalNot(raw.Pack(asked, axis=0, name="stack"))
            names = raw.Const(value=_texts([v.op.name for v in found]), dtype="string")
            with name_scope("boolean_mask"):
                rows = raw.Squeeze(raw.Where(missing), squeeze_dims=[1])
                return raw.GatherV2(names, rows, 0)


def _texts(names: list[str]) -> Any:
    from graphrt.core.convert import make_array
    from graphrt.core.dtypes import string

    return make_array(names, string)
