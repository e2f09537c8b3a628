"""tf.manip: older names of array functions."""

from graphrt.api.array_selection import gather_nd, scatter_nd
from graphrt.api.array_shape import batch_to_space_nd, reshape, reverse, roll, space_to_batch_nd, tile

__all__ = [
    "batch_to_space_nd", "gather_nd", "reshape", "reverse", "roll", "scatter_nd", "space_to_batch_nd", "tile",
]
