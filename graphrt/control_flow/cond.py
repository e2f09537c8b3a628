"""tf.cond, as TF1 builds it: a Switch for every tensor that a branch takes from outside, a Merge for every
result."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from graphrt.control_flow.context import CondContext
from graphrt.control_flow.dependencies import with_dependencies
from graphrt.control_flow.version import uses_v2
from graphrt.core import nest, raw
from graphrt.core.convert import convert_to_tensor, is_tensor
from graphrt.core.default_graph import get_default_graph, name_scope
from graphrt.core.dtypes import int64
from graphrt.core.graph_keys import GraphKeys
from graphrt.core.operation import Operation
from graphrt.core.tensor import IndexedSlices, SparseTensor, Tensor
from graphrt.ops.control_flow import merge, switch


def cond(
    pred: Any,
    true_fn: Callable[[], Any] | None = None,
    false_fn: Callable[[], Any] | None = None,
    strict: bool = False,
    name: str | None = None,
    fn1: Callable[[], Any] | None = None,
    fn2: Callable[[], Any] | None = None,
) -> Any:
    """What `true_fn` returns where `pred` is true, else what `false_fn` returns.

    Both functions are called once, now; in a step only the nodes that the function of the taken side built
    run. What they use from outside is computed either way.

    Args:
      pred: a bool scalar tensor.
      true_fn, false_fn: functions without arguments; they return one nested structure of values of the same
        dtypes. An operation stands for a bool that comes when it has run.
      strict: a list or tuple of one value stays one.
      fn1, fn2: older names of true_fn and false_fn.
    Returns:
      That structure, of tensors.
    Raises:
      TypeError: a function is missing or not callable, or `pred` is a Python bool.
      ValueError: the functions return nothing, or other structures or dtypes.
    """
    true_fn = _renamed("true_fn", true_fn, "fn1", fn1)
    false_fn = _renamed("false_fn", false_fn, "fn2", fn2)
    if not callable(true_fn):
        raise TypeError("'true_fn' must be callable.")
    if not callable(false_fn):
        raise TypeError("'false_fn' must be callable.")
    graph = get_default_graph()
    if uses_v2(graph):
        from graphrt.control_flow.functional import cond as functional_cond

        return functional_cond(pred, true_fn, false_fn, name)
    with name_scope(name, "cond", [pred]):
        if isinstance(pred, bool):
            raise TypeError("'pred' must not be a Python bool.")
        graph = get_default_graph()
        at_false, at_true = switch(pred, pred)
        pivot_true = raw.Identity(at_true, name="switch_t")
        pivots = (raw.Identity(at_false, name="switch_f"), pivot_true)
        pred = raw.Identity(pred, name="pred_id")
        # What is dead in half of the steps is not for fetching.
        for op in (at_true.op, pivots[0].op, pivots[1].op, pred.op):
            graph.prevent_fetching(op)
        true_context, (true_result, true_values) = _branch(true_fn, "true_fn", pred, pivots, 1)
        false_context, (false_result, false_values) = _branch(false_fn, "false_fn", pred, pivots, 0)
        if not strict:
            true_result, false_result = _without_singleton(true_result), _without_singleton(false_result)
        _check_same_structure((true_result, true_values), (false_result, false_values))
        if not true_values:
            raise ValueError("'true_fn' and 'false_fn' must return at least one result.")
        merged = []
        for at_true, at_false in zip(
            nest.flatten(true_values, expand_composites=True),
            nest.flatten(false_values, expand_composites=True),
        ):
            if at_true.dtype.base_dtype is not at_false.dtype.base_dtype:
                raise ValueError(
                    "Outputs of 'true_fn' and 'false_fn' must have the same type(s). Received "
                    f"{at_true.dtype.name} from 'true_fn' and {at_false.dtype.name} from 'false_fn'."
                )
            merged.append(merge([at_false, at_true])[0])
        if true_context.outer_context is None:
            graph.add_to_collection(GraphKeys.COND_CONTEXT, true_context)
            graph.add_to_collection(GraphKeys.COND_CONTEXT, false_context)
        result = nest.pack_sequence_as(true_result, merged, expand_composites=True)
        return result if strict else _without_singleton(result)


def _renamed(name: str, function: Any, old_name: str, old_function: Any) -> Any:
    if old_function is None:
        if function is None:
            raise TypeError(f"cond(): '{name}' argument required")
        return function
    warnings.warn(f"cond(): {old_name} is deprecated in favor of {name}", DeprecationWarning, stacklevel=3)
    if function is not None:
        raise TypeError(f"cond(): '{name}' and '{old_name}' may not be set simultaneously.")
    return old_function


def _branch(
    function: Callable[[], Any], role: str, pred: Tensor, pivots: tuple[Tensor, Tensor], branch: int
) -> tuple[CondContext, tuple[Any, Any]]:
    """(context, (what `function` returned, the tensors that stand for it))."""
    context = CondContext(pred, pivots[branch], branch)
    with context:
        result = function()
        if result is None:
            raise ValueError(f"'{role}' must have a return value.")
        result = as_tensors(result)
        values = nest.map_structure(lambda leaf: _output(context, leaf), result, expand_composites=True)
        if not isinstance(values, (list, tuple)):
            values = [values]
    if context.outer_context is not None:
        context.outer_context._values.update(nest.flatten(values, expand_composites=True))
    return context, (result, values)


def _output(context: CondContext, leaf: Any) -> Tensor:
    if isinstance(leaf, Operation):
        # The pivot, once it has run, stands for it.
        return with_dependencies([leaf], context.pivot)
    return context.output(convert_to_tensor(leaf))


def as_tensors(structure: Any) -> Any:
    """The structure with the variables in it read."""

    def read(leaf: Any) -> Any:
        return (
            convert_to_tensor(leaf)
            if is_tensor(leaf) and not isinstance(leaf, (Tensor, IndexedSlices, SparseTensor))
            else leaf
        )

    return nest.map_structure(read, structure)


def _without_singleton(structure: Any) -> Any:
    return structure[0] if isinstance(structure, (list, tuple)) and len(structure) == 1 else structure


def _check_same_structure(true: tuple[Any, Any], false: tuple[Any, Any]) -> None:
    """Check (result, values) of the two branches; IndexedSlices get indices of one dtype."""
    nest.assert_same_structure(true[0], false[0])
    try:
        nest.assert_same_structure(true[0], false[0], expand_composites=True)
    except ValueError as error:
        raise ValueError(f"Incompatible return values of 'true_fn' and 'false_fn': {error}") from None
    except TypeError as error:
        raise TypeError(f"Incompatible return types of 'true_fn' and 'false_fn': {error}") from None
    for ours, theirs in zip(true, false):
        nest.map_structure(_with_same_indices, ours, theirs)


def _with_same_indices(a: Any, b: Any) -> None:
    if (
        isinstance(a, IndexedSlices)
        and isinstance(b, IndexedSlices)
        and a.indices.dtype is not b.indices.dtype
    ):
        for slices in (a, b):
            if slices.indices.dtype is not int64:
                slices._indices = raw.Cast(slices.indices, DstT=int64)
