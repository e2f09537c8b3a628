"""The two seeds of a random op, from its graph's seed and its own.

TensorFlow's rule: with neither given the op is not seeded (None, None: its kernel takes a seed of its own);
with one given the other has a default; a pair (0, 0), which kernels read as "not seeded", becomes (0, 2**31 -
1).
"""

from __future__ import annotations

import threading
import weakref

from graphrt.core.default_graph import get_default_graph
from graphrt.core.graph import Graph

DEFAULT_GRAPH_SEED = 87654321
MAX_SEED = 2**31 - 1


def truncated_seed(seed: int) -> int:
    """`seed` modulo 2**31 - 1, from 0: how a seed of any size and sign fits an op's attr."""
    return int(seed) % MAX_SEED


def op_seeds(graph_seed: int | None, op_seed: int | None, last_id: int) -> tuple[int | None, int | None]:
    """(seed, seed2) of an op.

    Args:
      graph_seed: what `set_random_seed` gave the graph, or None.
      op_seed: the op's own seed argument, or None.
      last_id: the op's seed where only the graph has one. TensorFlow 1 takes the number of the graph's last
      node;
        TensorFlow 2, in v1 graphs too, how many ops of the graph took this default before.
    Returns:
      Two ints, or (None, None) where neither seed is given.
    """
    if graph_seed is None and op_seed is None:
        return None, None
    if graph_seed is None:
        seeds = DEFAULT_GRAPH_SEED, truncated_seed(op_seed)
    else:
        seeds = truncated_seed(graph_seed), truncated_seed(last_id if op_seed is None else op_seed)
    return (0, MAX_SEED) if seeds == (0, 0) else seeds


_defaults_taken: weakref.WeakKeyDictionary[Graph, int] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


def get_seed(op_seed: int | None) -> tuple[int | None, int | None]:
    """(seed, seed2) for an op of the default graph whose own seed argument is `op_seed`: the rule of
    `op_seeds`.

    A graph with a seed counts the ops that come without one: the first gets 0, the next 1, as in TensorFlow
    2. (TensorFlow 1 gave them the number of the graph's last node.)
    """
    graph, taken = get_default_graph(), 0
    if graph.seed is not None and op_seed is None:
        with _lock:
            taken = _defaults_taken.get(graph, 0)
            _defaults_taken[graph] = taken + 1
    return op_seeds(graph.seed, op_seed, taken)


def set_random_seed(seed: int | None) -> None:
    """Set the default graph's seed: random ops made after it derive theirs from it."""
    get_default_graph().seed = seed
