"""The commonest optimizers' steps, compiled by numba: one pass over memory, and the same bits as with NumPy.

Importing this module imports numba and compiles (or loads numba's on-disk cache), so training_update.py does
it in the background once a process has trained enough to win that back. A step takes the variable and its
slots, the gradient, and what the Update's `prepare` made, all of one dtype; it holds no interpreter lock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit, void
from numba import types as nb

STEPS: dict[tuple[str, Any], Callable[..., None]] = {}


def _step(name: str, n_arrays: int, n_scalars: int) -> Callable[[Any], Any]:
    """Compile a step for each dtype: STEPS[name, dtype]."""

    def compile_for(function: Any) -> Any:
        for kind, dtype in ((nb.float32, np.float32), (nb.float64, np.float64)):
            gradient = nb.Array(kind, 1, "C", readonly=True)
            signature = void(*[kind[::1]] * n_arrays, gradient, *[kind] * n_scalars)
            made = njit(signature, nogil=True, cache=True, error_model="numpy")(function)
            STEPS[name, np.dtype(dtype)] = made
        return function

    return compile_for


@_step("GradientDescent", 1, 1)
def gradient_descent(var, grad, alpha):
    for i in range(var.shape[0]):
        var[i] -= grad[i] * alpha


@_step("Momentum", 2, 2)
def momentum(var, accum, grad, lr, decay):
    for i in range(var.shape[0]):
        accum[i] = accum[i] * decay + grad[i]
        var[i] -= accum[i] * lr


@_step("Adam", 3, 5)
def adam(var, m, v, grad, alpha, beta1, one_less_beta1, one_less_beta2, epsilon):
    for i in range(var.shape[0]):
        g = grad[i]
        mean = m[i] + (g - m[i]) * one_less_beta1
        square = v[i] + (g * g - v[i]) * one_less_beta2
        m[i] = mean
        v[i] = square
        var[i] -= mean * alpha / (np.sqrt(square) + epsilon)


@_step("RMSProp", 3, 4)
def rms_prop(var, ms, mom, grad, lr, one_less_rho, decay, epsilon):
    for i in range(var.shape[0]):
        g = grad[i]
        square = ms[i] + (g * g - ms[i]) * one_less_rho
        step = mom[i] * decay + g * lr / np.sqrt(square + epsilon)
        ms[i] = square
        mom[i] = step
        var[i] -= step
