"""Products of float32 matrices on a CPU: small ones by NumPy's BLAS on the calling thread, large ones by
oneDNN's pool.

Two pools of spinning threads fight each other: beside busy threads OpenBLAS took 9 ms for a product of 1 ms.
So where oneDNN is there it has the only pool, and OpenBLAS is set to one thread in this process, once, when
the first product is bound. GRAPHRT_BLAS_THREADS=n sets another number; 0 leaves OpenBLAS as it is.
"""

from __future__ import annotations

import ctypes
import glob
import os
from functools import cache
from typing import Any

import numpy as np

from graphrt.core import onednn_primitives

# Multiplications from which a second thread pays.
LARGE = 4_000_000


def product(x: np.ndarray, y: np.ndarray, out: Any) -> np.ndarray:
    """x @ y of float32 matrices whose inner sizes agree, into `out` where it is given."""
    m, k = x.shape
    n = y.shape[1]
    if m * n * k < LARGE:
        return np.matmul(x, y, out)
    made = np.empty((m, n), np.float32) if out is None else out
    if onednn_primitives.matrix_product(x, y, made):
        return made
    return np.matmul(x, y, out)


@cache
def settle_threads() -> None:
    """Set OpenBLAS's threads, once a process."""
    asked = os.environ.get("GRAPHRT_BLAS_THREADS", "")
    if asked == "0" or not asked and onednn_primitives.library() is None:
        return
    folder = os.path.join(os.path.dirname(os.path.dirname(np.__file__)), "numpy.libs")
    for path in glob.glob(os.path.join(folder, "*openblas*")):
        loaded = ctypes.CDLL(path)
        for name in (
            "scipy_openblas_set_num_threads64_",
            "openblas_set_num_threads64_",
            "openblas_set_num_threads",
        ):
            if hasattr(loaded, name):
                getattr(loaded, name)(int(asked or 1))
                break
