"""Which form tf.cond builds: Switch and Merge (v1), or If with functions (v2), which is also what function
bodies hold."""

from __future__ import annotations

from graphrt.core.graph import Graph

_v2_enabled = False


def enable_control_flow_v2() -> None:
    """From now on tf.cond and tf.case build functional If nodes."""
    global _v2_enabled
    _v2_enabled = True


def disable_control_flow_v2() -> None:
    """From now on tf.cond and tf.case build Switch and Merge nodes: how it is at the start."""
    global _v2_enabled
    _v2_enabled = False


def control_flow_v2_enabled() -> bool:
    return _v2_enabled


def uses_v2(graph: Graph) -> bool:
    """True where a conditional in `graph` is functional: where v2 is on, and in every function's body."""
    return _v2_enabled or graph.building_function
