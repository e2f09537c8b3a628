"""RandomGammaGrad: how a gamma sample moves with its shape parameter, where the rest of its randomness stays.

A sample x of Gamma(a) is where its distribution function P(a, x) reaches a random number that does not depend
on a, so dx/da = -(dP/da) / (dP/dx). P has a series for small x and a continued fraction for large x; each is
summed together with its derivative by a. In float64 for every dtype.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphrt.core.dtypes import double, float32
from graphrt.core.registry import ALL, KernelContext, ShapeContext, op
from graphrt.core.samples import positive, sample
from graphrt.core.shapes import TensorShape, broadcast_static_shape
from graphrt.ops.random import placed

_TERMS = 2000  # bounds both sums; they end earlier, unless alpha is above 10**5
_PRECISION = 1e-15


def digamma(x: np.ndarray) -> np.ndarray:
    """The derivative of log Gamma, for x above 0."""
    shifted, steps = x.astype(np.float64), np.zeros_like(x, np.float64)
    while (low := shifted < 10).any():
        steps[low] -= 1 / shifted[low]
        shifted[low] += 1
    y = 1 / (shifted * shifted)
    tail = np.zeros_like(y)
    for coefficient in (1 / 12, -691 / 32760, 1 / 132, -1 / 240, 1 / 252, -1 / 120, 1 / 12):
        tail = y * (coefficient + tail)
    return steps + np.log(shifted) - 0.5 / shifted - tail


def _by_series(a: np.ndarray, x: np.ndarray) -> np.ndarray:
    """From P(a, x) = x**a exp(-x) / Gamma(a + 1) * (1 + x / (a + 1) + x**2 / ((a + 1) (a + 2)) + ...)."""
    term, total = np.ones_like(a), np.ones_like(a)
    by_a, total_by_a = np.zeros_like(a), np.zeros_like(a)
    for n in range(1, _TERMS):
        factor = x / (a + n)
        by_a = factor * (by_a - term / (a + n))
        term = term * factor
        total += term
        total_by_a += by_a
        if (np.abs(by_a) <= _PRECISION * np.abs(total_by_a)).all():
            break
    return -x / a * ((np.log(x) - digamma(a + 1)) * total + total_by_a)


def _by_fraction(a: np.ndarray, x: np.ndarray) -> np.ndarray:
    """From 1 - P(a, x) = x**a exp(-x) / Gamma(a) * fraction, whose convergents are p / q."""
    y, z = 1 - a, x + 2 - a
    p, q = np.stack([np.ones_like(a), x + 1]), np.stack([x, z * x])  # the last two of each
    p_by_a, q_by_a = np.zeros_like(p), np.stack([np.zeros_like(a), -x])
    value = p[1] / q[1]
    value_by_a = (p_by_a[1] - value * q_by_a[1]) / q[1]
    for n in range(1, _TERMS):
        y, z = y + 1, z + 2
        c = n * y
        p, p_by_a = _advanced(p, p_by_a, z, c, n)
        q, q_by_a = _advanced(q, q_by_a, z, c, n)
        before, value = value_by_a, p[1] / q[1]
        value_by_a = (p_by_a[1] - value * q_by_a[1]) / q[1]
        if (np.abs(value_by_a - before) <= _PRECISION * np.abs(value_by_a)).all():
            break
        scale = np.where(np.abs(q[1]) > 1e100, 1e-100, 1.0)  # only the quotients count
        p, q, p_by_a, q_by_a = p * scale, q * scale, p_by_a * scale, q_by_a * scale
    return x * ((np.log(x) - digamma(a)) * value + value_by_a)


def _advanced(v: Any, v_by_a: Any, z: Any, c: Any, n: int) -> tuple[np.ndarray, np.ndarray]:
    """The last two numerators or denominators, and derivatives, one convergent on; dz/da = -1, dc/da = -n."""
    after = v[1] * z - v[0] * c
    after_by_a = v_by_a[1] * z - v[1] - v_by_a[0] * c + v[0] * n
    return np.stack([v[1], after]), np.stack([v_by_a[1], after_by_a])


def gamma_sample_derivative(alpha: np.ndarray, sample: np.ndarray) -> np.ndarray:
    """dx/da of samples x of Gamma(a), float64: 0 where x is 0, NaN where x < 0 or a <= 0."""
    a, x = (np.array(v, np.float64) for v in np.broadcast_arrays(alpha, sample))
    made = np.where(x == 0, 0.0, np.nan)
    inside = (x > 0) & (a > 0) & (a < np.inf) & (x < np.inf)
    large = inside & (x > 1) & (x > a)
    with np.errstate(all="ignore"):
        for rows, method in ((large, _by_fraction), (inside & ~large, _by_series)):
            if rows.any():
                made[rows] = method(a[rows], x[rows])
    return made


@op("RandomGammaGrad(alpha: T, sample: T) -> output: T", T=(float32, double))
class RandomGammaGrad:
    """The derivative of samples of Gamma(alpha, 1) by alpha (Figurnov et al., 2018)."""

    host_inputs = ALL

    def shape(self, s: ShapeContext, alpha: TensorShape, sample: TensorShape) -> TensorShape:
        return broadcast_static_shape(alpha, sample)

    def compute(self, k: KernelContext, alpha: Any, sample: Any) -> Any:
        return placed(k, gamma_sample_derivative(alpha, sample).astype(k.dtype))

    samples = [
        sample(positive(5, dtype="float64"), positive(5, dtype="float64")),
        sample(np.array([0.1, 1.0, 1.0, 12.0, 300.0]), np.array([0.01, 1.5, 0.2, 11.0, 310.0]), rtol=1e-7),
        sample(positive(3), positive(2, 3), rtol=1e-4, why="TensorFlow computes it in float32"),
        sample(np.array([1.0, -1.0, 2.0]), np.array([0.0, 1.0, -1.0]), why="outside of the domain"),
    ]
