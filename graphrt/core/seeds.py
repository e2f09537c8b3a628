"""The two seeds of a random op, from its graph's seed and its own.

TensorFlow's rule: with neither given the op is not seeded (None, None: its kernel takes a seed of its own);
with one given the other has a default; a pair (0, 0), which kernels read as "not seeded", becomes (0, 2**31 -
1).
"""

from __future__ import annotations

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
