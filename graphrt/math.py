"""tf.math: the mathematics of the top namespace, and what has a name only here."""

from typing import Any

from graphrt.api import special_math as special
from graphrt.api.math_elementwise import *  # noqa: F403
from graphrt.api.math_elementwise import (
    ceil,
    divide_no_nan,
    erfcinv,
    erfinv,
    multiply_no_nan,
    ndtri,
    nextafter,
    polyval,
    reciprocal_no_nan,
    xdivy,
    xlog1py,
    xlogy,
)
from graphrt.api.math_reduce import *  # noqa: F403
from graphrt.api.math_reduce import cumulative_logsumexp, reduce_euclidean_norm, reduce_std, reduce_variance
from graphrt.api.special_math import bessel_i0, bessel_i0e, bessel_i1, bessel_i1e

# Name -> module: what is defined elsewhere, loaded when it is first used.
_ELSEWHERE = {
    "confusion_matrix": "confusion",
    "in_top_k": "nn",
    "top_k": "nn",
    "softmax": "nn",
    "log_softmax": "nn",
    "softplus": "nn",
    "softsign": "nn",
    "l2_normalize": "nn",
    "zero_fraction": "nn",
    "invert_permutation": "array_api",
    "is_non_decreasing": "checks",
    "is_strictly_increasing": "checks",
}


def __getattr__(name: str) -> Any:
    place = _ELSEWHERE.get(name)
    if place is None:
        raise AttributeError(f"graphrt.math has no attribute '{name}'")
    import importlib

    made = globals()[name] = getattr(importlib.import_module(f"graphrt.{place}"), name)
    return made


def __dir__() -> list[str]:
    return sorted({*globals(), *_ELSEWHERE})


__all__ = [
    "bessel_i0",
    "bessel_i0e",
    "bessel_i1",
    "bessel_i1e",
    "ceil",
    "cumulative_logsumexp",
    "divide_no_nan",
    "erfcinv",
    "erfinv",
    "multiply_no_nan",
    "ndtri",
    "nextafter",
    "polyval",
    "reciprocal_no_nan",
    "reduce_euclidean_norm",
    "reduce_std",
    "reduce_variance",
    "special",
    "xdivy",
    "xlog1py",
    "xlogy",
]
