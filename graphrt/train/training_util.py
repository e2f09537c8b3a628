"""The global step: one int64 variable a graph that counts training steps."""

from __future__ import annotations

import logging
from typing import Any

from graphrt.core.default_graph import get_default_graph
from graphrt.core.dtypes import int64
from graphrt.core.graph import Graph
from graphrt.core.graph_keys import GraphKeys
from graphrt.core.tensor import Tensor
from graphrt.variables.lifting import initialized_value
from graphrt.variables.variable import Variable, VariableAggregation
from graphrt.variables.variable_scope import get_variable

_READ_KEY = "global_step_read_op_cache"


def global_step(sess: Any, global_step_tensor: Any) -> int:
    """The global step's value in a session."""
    return int(sess.run(global_step_tensor))


def get_global_step(graph: Graph | None = None) -> Any:
    """The global step of the graph (the default one): what its collection holds, or the tensor
    'global_step:0'; None where there is none, or several.

    Raises:
      TypeError: it is no integer scalar.
    """
    graph = graph or get_default_graph()
    found = graph.get_collection(GraphKeys.GLOBAL_STEP)
    if len(found) > 1:
        logging.getLogger("graphrt").error("Multiple tensors in global_step collection.")
        return None
    if found:
        made = found[0]
    else:
        try:
            made = graph.get_tensor_by_name("global_step:0")
        except KeyError:
            return None
    assert_global_step(made)
    return made


def create_global_step(graph: Graph | None = None) -> Any:
    """A new global step, 0 at first. Raises ValueError where the graph has one."""
    graph = graph or get_default_graph()
    if get_global_step(graph) is not None:
        raise ValueError('"global_step" already exists.')
    from graphrt import initializers

    with graph.as_default(), graph.name_scope(None):
        return get_variable(
            GraphKeys.GLOBAL_STEP,
            shape=[],
            dtype=int64,
            initializer=initializers.zeros(),
            trainable=False,
            aggregation=VariableAggregation.ONLY_FIRST_REPLICA,
            collections=[GraphKeys.GLOBAL_VARIABLES, GraphKeys.GLOBAL_STEP],
        )


def get_or_create_global_step(graph: Graph | None = None) -> Any:
    graph = graph or get_default_graph()
    found = get_global_step(graph)
    return create_global_step(graph) if found is None else found


def assert_global_step(global_step_tensor: Any) -> None:
    """Raise TypeError unless it is an integer scalar, a variable or tensor."""
    if not isinstance(global_step_tensor, (Variable, Tensor)):
        raise TypeError(f'Existing "global_step" must be a Variable or Tensor: {global_step_tensor}.')
    if not global_step_tensor.dtype.base_dtype.is_integer:
        raise TypeError(f'Existing "global_step" does not have integer type: {global_step_tensor.dtype}')
    shape = global_step_tensor.get_shape()
    if shape.rank != 0 and shape.is_fully_defined():
        raise TypeError(f'Existing "global_step" is not scalar: {shape}')


def _get_or_create_global_step_read(graph: Graph | None = None) -> Tensor | None:
    """The value that the global step has before this training step counts it up: one node a graph. None
    without a step."""
    graph = graph or get_default_graph()
    found = graph.get_collection(_READ_KEY)
    if found:
        return found[0]
    step = get_global_step(graph)
    if step is None:
        return None
    with graph.as_default(), graph.name_scope(None), graph.name_scope(step.op.name + "/"):
        read = (initialized_value(step) if isinstance(step, Variable) else step) + 0
        graph.add_to_collection(_READ_KEY, read)
    return read


def _increment_global_step(increment: Any, graph: Graph | None = None) -> Any:
    """The global step after `increment` is added, which waits for the read of
    _get_or_create_global_step_read.

    Raises:
      ValueError: the graph has none.
    """
    graph = graph or get_default_graph()
    step = get_global_step(graph)
    if step is None:
        raise ValueError(
            "Global step tensor should be created by tf.train.get_or_create_global_step before calling "
            "increment."
        )
    read = _get_or_create_global_step_read(graph)
    with (
        graph.as_default(),
        graph.name_scope(None),
        graph.name_scope(step.op.name + "/"),
        graph.control_dependencies([read]),
    ):
        return step.assign_add(increment)
