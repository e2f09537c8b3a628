"""The mathematics of the public namespace, from its parts: elementwise, reductions, products, sequences."""

from graphrt import math_elementwise, math_products, math_reduce, ranges
from graphrt.math_elementwise import *  # noqa: F403
from graphrt.math_products import *  # noqa: F403
from graphrt.math_reduce import *  # noqa: F403
from graphrt.ranges import *  # noqa: F403

# `matvec` is tf.linalg's.
__all__ = [*math_elementwise.__all__, *(n for n in math_products.__all__ if n != "matvec"), *math_reduce.__all__, *ranges.__all__]
