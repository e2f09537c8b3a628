"""tf.math.special: rare special functions, computed by SciPy."""

from __future__ import annotations

import graphrt.ops  # noqa: F401  (registers the ops)
from graphrt.api.math_elementwise import unary

bessel_i0 = unary("bessel_i0", "BesselI0", "The modified Bessel function of the first kind, order 0.")
bessel_i0e = unary("bessel_i0e", "BesselI0e", "exp(-|x|) bessel_i0(x).")
bessel_i1 = unary("bessel_i1", "BesselI1", "The modified Bessel function of the first kind, order 1.")
bessel_i1e = unary("bessel_i1e", "BesselI1e", "exp(-|x|) bessel_i1(x).")
bessel_j0 = unary("bessel_j0", "BesselJ0", "The Bessel function of the first kind, order 0.")
bessel_j1 = unary("bessel_j1", "BesselJ1", "The Bessel function of the first kind, order 1.")
bessel_k0 = unary("bessel_k0", "BesselK0", "The modified Bessel function of the second kind, order 0.")
bessel_k0e = unary("bessel_k0e", "BesselK0e", "exp(x) bessel_k0(x).")
bessel_k1 = unary("bessel_k1", "BesselK1", "The modified Bessel function of the second kind, order 1.")
bessel_k1e = unary("bessel_k1e", "BesselK1e", "exp(x) bessel_k1(x).")
bessel_y0 = unary("bessel_y0", "BesselY0", "The Bessel function of the second kind, order 0.")
bessel_y1 = unary("bessel_y1", "BesselY1", "The Bessel function of the second kind, order 1.")
dawsn = unary("dawsn", "Dawsn", "Dawson's integral, exp(-x^2) times the integral of exp(t^2) from 0 to x.")
expint = unary("expint", "Expint", "The exponential integral Ei, of exp(t) / t up to x.")
fresnel_cos = unary("fresnel_cos", "FresnelCos", "The integral of cos(pi t^2 / 2) from 0 to x.")
fresnel_sin = unary("fresnel_sin", "FresnelSin", "The integral of sin(pi t^2 / 2) from 0 to x.")
spence = unary("spence", "Spence", "Spence's integral, of log(t) / (1 - t) from 1 to x.")

__all__ = [
    "bessel_i0",
    "bessel_i0e",
    "bessel_i1",
    "bessel_i1e",
    "bessel_j0",
    "bessel_j1",
    "bessel_k0",
    "bessel_k0e",
    "bessel_k1",
    "bessel_k1e",
    "bessel_y0",
    "bessel_y1",
    "dawsn",
    "expint",
    "fresnel_cos",
    "fresnel_sin",
    "spence",
]
