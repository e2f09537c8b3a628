"""Special functions over arrays, in float64: what NumPy lacks. Relative errors are a few 1e-16 unless a
function says otherwise.

The coefficients are Chebyshev series of the functions named beside them, computed to 60 digits and cut where
they fall below 1e-17. Every function takes the array module first and a float64 array (rank 1 or more) after
it.
"""

from __future__ import annotations

import math
from typing import Any

# erf(x) / x over z = x^2 in [0, 1].
_ERF = (
    0.975476939382654096,
    -0.142261205103713642,
    0.0100355821875997956,
    -0.000576876469976748477,
    0.000027419931252196061,
    -1.10431755073445076e-6,
    3.84887554203450369e-8,
    -1.1808582533875467e-9,
    3.23342158260509096e-11,
    -7.99101594700454876e-13,
    1.79907251139614556e-14,
    -3.71863548781869264e-16,
)
# (x + 1) exp(x^2) erfc(x) over t = (x - 3) / (x + 3) in [-1/2, 1], which is x in [1, inf].
_ERFCX = (
    0.687340591644670311,
    -0.144045309868046223,
    0.0227603662479294636,
    -0.00162143274225140447,
    -0.000387495345077196496,
    0.00017424855728376009,
    -0.0000351027217763768144,
    3.77570233803526595e-6,
    1.07451300977761284e-9,
    -6.67181866749296949e-8,
    7.23428202646399156e-9,
    6.89440073411668832e-10,
    -2.09923856909340439e-10,
    -2.3631548898980036e-12,
    5.19778988948159412e-12,
    -1.4986187739614737e-13,
    -1.33695177130994783e-13,
    6.7931695322301254e-15,
    3.78761273772599886e-15,
    -2.08350035799425977e-16,
    -1.18957158655083724e-16,
)
# lgamma(x) / ((x - 1) (x - 2)) over x in [1, 3].
_LGAMMA = (
    0.441489025455014208,
    -0.111195803217525223,
    0.0195104482606888405,
    -0.00392246146302526399,
    0.00084789898959538574,
    -0.000191538553413655923,
    0.0000445447018497560638,
    -0.0000105728743735942996,
    2.54743368734084149e-6,
    -6.20853588077631604e-7,
    1.52686773990715466e-7,
    -3.78263766029132615e-8,
    9.4281008236242844e-9,
    -2.36199970218464494e-9,
    5.94354190581754607e-10,
    -1.50131297707286694e-10,
    3.80501964581105369e-11,
    -9.67248529965632461e-12,
    2.46534819835566093e-12,
    -6.29886814079171148e-13,
    1.61284600302837865e-13,
    -4.13794920681404209e-14,
    1.06357012277578984e-14,
    -2.73824207866528248e-15,
    7.06067050721489248e-16,
    -1.82321771416621187e-16,
    4.71416900675627159e-17,
    -1.22041073196398554e-17,
)
# Bernoulli numbers B2, B4, …, B20.
_BERNOULLI = (
    1 / 6,
    -1 / 30,
    1 / 42,
    -1 / 30,
    5 / 66,
    -691 / 2730,
    7 / 6,
    -3617 / 510,
    43867 / 798,
    -174611 / 330,
)
_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


def _chebyshev(coefficients: tuple[float, ...], t: Any) -> Any:
    """The series at t in [-1, 1], by Clenshaw's recurrence."""
    twice = t + t
    b = later = 0.0
    for c in coefficients[:0:-1]:
        b, later = c + twice * b - later, b
    return coefficients[0] + t * b - later


def _exp_minus_square(xp: Any, x: Any) -> Any:
    """exp(-x^2), with the rounding error of x^2 made good: it would be large beside 1 for large x."""
    high = xp.trunc(x * 256) / 256
    return xp.exp(-high * high) * xp.exp(-(x - high) * (x + high))


def _erfcx_from_1(xp: Any, x: Any) -> Any:
    """exp(x^2) erfc(x) for x >= 1."""
    t = (x - 3) / (x + 3)
    # [-1/2, 1] onto [-1, 1].
    return _chebyshev(_ERFCX, (4 * t - 1) / 3) / (x + 1)


def erf(xp: Any, x: Any) -> Any:
    """The error function, 2 / sqrt(pi) times the integral of exp(-t^2) from 0 to x."""
    size = xp.abs(x)
    is_small = size <= 1
    made = xp.where(is_small, x * _chebyshev(_ERF, 2 * xp.where(is_small, x * x, 0.0) - 1), x)
    rest = size > 1
    if rest.any():
        # Beyond 6 it is 1 to the last bit.
        y = xp.minimum(size[rest], 6.0)
        made[rest] = xp.copysign(1 - _exp_minus_square(xp, y) * _erfcx_from_1(xp, y), x[rest])
    return made


def erfc(xp: Any, x: Any) -> Any:
    """1 - erf(x), exact where erf(x) is near 1."""
    made = 1 - erf(xp, xp.minimum(x, 1.0))
    rest = x > 1
    if rest.any():
        y = xp.minimum(x[rest], 28.0)
        made[rest] = _exp_minus_square(xp, y) * _erfcx_from_1(xp, y)
    return made


def erfinv(xp: Any, x: Any) -> Any:
    """The number whose erf is x; infinite at -1 and 1, nan beyond."""
    size = xp.abs(x)
    return xp.copysign(_erfcinv(xp, 1 - size, size), x)


def ndtri(xp: Any, p: Any) -> Any:
    """The number below which a standard normal falls with probability p."""
    upper = p > 0.5
    tail = xp.where(upper, 1 - p, p)
    size = math.sqrt(2) * _erfcinv(xp, 2 * tail, 1 - 2 * tail)
    return xp.where(upper, size, -size)


def _erfcinv(xp: Any, q: Any, x: Any) -> Any:
    """The number at or above 0 whose erfc is q and whose erf is x = 1 - q: nan outside [0, 1], infinite at q
    = 0."""
    inside = (q > 0) & (q <= 1)
    safe = xp.where(inside, q, 0.5)
    erf_ = xp.where(inside, x, 0.5)
    # Winitzki's closed form, within 2e-3 of the answer.
    log = xp.log(safe) + xp.log1p(erf_)
    a = 0.147
    half = 2 / (math.pi * a) + log / 2
    y = xp.sqrt(xp.maximum(xp.sqrt(half * half - log / a) - half, 0.0))
    is_tail = safe < 0.3
    for _ in range(3):
        near = xp.where(is_tail, 0.0, y)
        far = xp.maximum(xp.where(is_tail, y, 1.0), 0.7)
        # Halley's step on erf(y) = x, and Newton's on log erfc(y) = log q, which is nearly a parabola.
        off = (erf(xp, near) - erf_) * (math.sqrt(math.pi) / 2) * xp.exp(near * near)
        scaled = erfc(xp, far) / _exp_minus_square(xp, far)
        step = (far * far - xp.log(scaled) + xp.log(safe)) * scaled * (math.sqrt(math.pi) / 2)
        y = xp.where(is_tail, far - step, near - off / (1 + near * off))
    return xp.where(inside, y, xp.where(q == 0, math.inf, math.nan))


def lgamma(xp: Any, x: Any) -> Any:
    """log |gamma(x)|; infinite at 0, -1, -2, …"""
    reflected = x < 0.5
    y = xp.where(reflected, 1 - x, x)
    made = _lgamma_positive(xp, y)
    if reflected.any():
        # gamma(x) gamma(1 - x) = pi / sin(pi x). The sine of the distance from the nearest integer keeps its
        # digits.
        away = xp.abs(x - xp.rint(x))
        made = xp.where(reflected, math.log(math.pi) - xp.log(xp.sin(math.pi * away)) - made, made)
        made = xp.where((x <= 0) & (x == xp.floor(x)), math.inf, made)
    return made


def _lgamma_positive(xp: Any, x: Any) -> Any:
    is_large = x >= 10
    large = xp.where(is_large, x, 10.0)
    inverse = 1 / large
    series = _stirling(inverse)
    made = xp.where(x == math.inf, x, (large - 0.5) * xp.log(large) - large + _HALF_LOG_2PI + series)
    small = ~is_large
    if small.any():
        y = x[small]
        # x = 0.5 … 1 goes up, 3 … 10 goes down, to [1, 3], where the series is.
        factor = xp.where(y < 1, 1 / y, 1.0)
        y = xp.where(y < 1, y + 1, y)
        for _ in range(7):
            is_above = y > 3
            factor = xp.where(is_above, factor * (y - 1), factor)
            y = xp.where(is_above, y - 1, y)
        made[small] = _chebyshev(_LGAMMA, y - 2) * (y - 1) * (y - 2) + xp.log(factor)
    return made


def _stirling(inverse: Any) -> Any:
    """Stirling's correction: the sum of B2k / (2k (2k - 1) x^(2k - 1))."""
    square = inverse * inverse
    made = 0.0
    for k in range(8, 0, -1):
        made = made * square + _BERNOULLI[k - 1] / (2 * k * (2 * k - 1))
    return made * inverse


def digamma(xp: Any, x: Any) -> Any:
    """The derivative of lgamma; nan at 0, -1, -2, …"""
    reflected = x < 0
    y = xp.where(reflected, 1 - x, x)
    made = xp.zeros_like(y)
    for _ in range(10):
        is_small = y < 10
        made = xp.where(is_small, made - 1 / xp.where(is_small, y, 1.0), made)
        y = xp.where(is_small, y + 1, y)
    square = 1 / (y * y)
    series = 0.0
    for k in range(8, 0, -1):
        series = (series + _BERNOULLI[k - 1] / (2 * k)) * square
    made = made + xp.log(y) - 0.5 / y - series
    if reflected.any():
        away = x - xp.rint(x)
        made = xp.where(reflected, made - math.pi / xp.tan(math.pi * away), made)
    return xp.where((x <= 0) & (x == xp.floor(x)), math.nan, made)


def zeta(xp: Any, s: Any, q: Any) -> Any:
    """Hurwitz's zeta, the sum over k >= 0 of (q + k)^-s: infinite at s = 1, nan for s < 1.

    Below 0, q takes only integers s (others give nan); at 0, -1, -2, … it is infinite.
    """
    s, q = xp.broadcast_arrays(s, q)
    made = xp.zeros(s.shape, q.dtype)
    # Sum until q + k is well above s, then Euler and Maclaurin's formula for the rest.
    enough = 12 + xp.where((s > 1) & (s < 1e5), s, 0.0)
    below = xp.minimum(xp.ceil(enough - q), 100000.0)
    terms = int(max(float(xp.max(xp.where(xp.isfinite(below), below, 0.0))), 0.0)) if q.size else 0
    at = q
    for _ in range(terms):
        is_below = at < enough
        made = xp.where(is_below, made + xp.where(is_below, at, 1.0) ** -s, made)
        at = xp.where(is_below, at + 1, at)
    power = at**-s
    made = made + power * at / (s - 1) + power / 2
    term = s / at * power
    factorial = 2.0
    for k in range(1, 11):
        made = made + _BERNOULLI[k - 1] / factorial * term
        term = term * (s + 2 * k - 1) * (s + 2 * k) / (at * at)
        factorial *= (2 * k + 1) * (2 * k + 2)
    is_pole = (q <= 0) & (q == xp.floor(q))
    made = xp.where((q < 0) & ~is_pole & (s != xp.floor(s)), math.nan, made)
    made = xp.where(is_pole, math.inf, made)
    return xp.where(s == 1, math.inf, xp.where(s < 1, math.nan, made))


def polygamma(xp: Any, n: Any, x: Any) -> Any:
    """The n-th derivative of digamma; nan where n is not 0, 1, 2, …"""
    n, x = xp.broadcast_arrays(n, x)
    is_order = (n >= 0) & (n == xp.floor(n))
    order = xp.where(is_order, n, 1.0)
    higher = xp.where(order == 0, 1.0, order)
    sign = xp.where(higher % 2 == 1, 1.0, -1.0)
    made = sign * xp.exp(lgamma(xp, higher + 1)) * zeta(xp, higher + 1, x)
    made = xp.where(order == 0, digamma(xp, x), made)
    return xp.where(is_order, made, math.nan)


def bessel_i0e(xp: Any, x: Any) -> Any:
    """exp(-|x|) I0(x), the modified Bessel function of order 0, for |x| up to a few hundred: by its integral,
    the mean of exp(x cos t) over a circle, which the trapezoid rule gives to the last bit."""
    size = xp.abs(x)[..., None]
    points = int(64 + 8 * math.sqrt(float(size.max()) if size.size else 0.0))
    angle = xp.cos(xp.arange(points) * (2 * math.pi / points))
    return xp.exp(size * (angle - 1)).mean(-1)


# -- incomplete gamma and beta functions: by series and continued fractions, relative error below 1e-12
# -------------

_TINY = 1e-290
_MOST_TERMS = 20000


def igamma(xp: Any, a: Any, x: Any) -> tuple[Any, Any]:
    """The lower regularized incomplete gamma function P(a, x) and its derivative by a; nan where a <= 0 or x
    < 0."""
    a, x = xp.broadcast_arrays(a, x)
    made, slope = xp.full(a.shape, math.nan), xp.full(a.shape, math.nan)
    inside = (a > 0) & (x > 0) & xp.isfinite(a) & xp.isfinite(x)
    by_series = inside & ((x <= 1) | (x <= a))
    for part, function in ((by_series, _igamma_series), (inside & ~by_series, _igamma_fraction)):
        if part.any():
            made[part], slope[part] = function(xp, a[part], x[part])
    at_zero, at_infinity = (a > 0) & (x == 0), (a > 0) & xp.isposinf(x)
    made = xp.where(at_zero, 0.0, xp.where(at_infinity, 1.0, made))
    return made, xp.where(at_zero | at_infinity, 0.0, slope)


def igammac(xp: Any, a: Any, x: Any) -> Any:
    """The upper regularized incomplete gamma function Q(a, x) = 1 - P(a, x), exact where it is small."""
    a, x = xp.broadcast_arrays(a, x)
    made = 1 - igamma(xp, a, x)[0]
    part = (a > 0) & (x > 1) & (x > a) & xp.isfinite(x)
    if part.any():
        made[part] = _upper_fraction(xp, a[part], x[part])[0]
    return made


def _igamma_series(xp: Any, a: Any, x: Any) -> tuple[Any, Any]:
    # P = x^a e^-x / gamma(a + 1) * sum of x^n / ((a + 1) … (a + n)).
    term, slope = xp.ones_like(a), xp.zeros_like(a)
    total, total_slope = term, slope
    for n in range(1, _MOST_TERMS):
        ratio = x / (a + n)
        slope = ratio * (slope - term / (a + n))
        term = term * ratio
        total, total_slope = total + term, total_slope + slope
        if (term <= total * 1e-17).all():
            break
    log_scale = a * xp.log(x) - x - lgamma(xp, a + 1)
    scale = xp.exp(log_scale)
    scale_slope = scale * (xp.log(x) - digamma(xp, a + 1))
    return scale * total, scale_slope * total + scale * total_slope


def _igamma_fraction(xp: Any, a: Any, x: Any) -> tuple[Any, Any]:
    upper, slope = _upper_fraction(xp, a, x)
    return 1 - upper, -slope


def _upper_fraction(xp: Any, a: Any, x: Any) -> tuple[Any, Any]:
    """Q(a, x) = x^a e^-x / gamma(a) * 1 / (x + 1 - a - 1 (1 - a) / (x + 3 - a - …)), and its derivative by
    a."""
    # Lentz's method, carrying the derivative of every quantity beside it.
    b, db = x + 1 - a, xp.full(a.shape, -1.0)
    c, dc = xp.full(a.shape, 1 / _TINY), xp.zeros_like(a)
    d = 1 / b
    dd = -db * d * d
    h, dh = d, dd
    for n in range(1, _MOST_TERMS):
        p, dp = -n * (n - a), float(n)
        b = b + 2
        e = p * d + b
        de = dp * d + p * dd + db
        d = 1 / xp.where(xp.abs(e) < _TINY, _TINY, e)
        dd = -de * d * d
        dc = db + dp / c - p * dc / (c * c)
        c = b + p / c
        c = xp.where(xp.abs(c) < _TINY, _TINY, c)
        step = c * d
        dh = dh * step + h * (dc * d + c * dd)
        h = h * step
        if (xp.abs(step - 1) < 1e-16).all():
            break
    scale = xp.exp(a * xp.log(x) - x - lgamma(xp, a))
    scale_slope = scale * (xp.log(x) - digamma(xp, a))
    return scale * h, scale_slope * h + scale * dh


def betainc(xp: Any, a: Any, b: Any, x: Any) -> Any:
    """The regularized incomplete beta function; nan where a or b is not above 0, or x is outside [0, 1]."""
    a, b, x = xp.broadcast_arrays(a, b, x)
    inside = (a > 0) & (b > 0) & (x > 0) & (x < 1)
    a_, b_, x_ = (xp.where(inside, v, 0.5) for v in (a, b, x))
    # The fraction converges fast below the mean; above it the mirrored function does.
    mirrored = x_ > (a_ + 1) / (a_ + b_ + 2)
    p, q, y = xp.where(mirrored, b_, a_), xp.where(mirrored, a_, b_), xp.where(mirrored, 1 - x_, x_)
    log_scale = lgamma(xp, p + q) - lgamma(xp, p) - lgamma(xp, q) + p * xp.log(y) + q * xp.log1p(-y)
    made = xp.exp(log_scale) * _beta_fraction(xp, p, q, y) / p
    made = xp.where(mirrored, 1 - made, made)
    valid = (a > 0) & (b > 0)
    return xp.where(inside, made, xp.where(valid & (x == 0), 0.0, xp.where(valid & (x == 1), 1.0, math.nan)))


def _beta_fraction(xp: Any, a: Any, b: Any, x: Any) -> Any:
    """The continued fraction of betainc, by Lentz's method."""
    c = xp.ones_like(x)
    d = 1 - (a + b) * x / (a + 1)
    d = 1 / xp.where(xp.abs(d) < _TINY, _TINY, d)
    h = d
    for m in range(1, _MOST_TERMS):
        for numerator in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 + numerator * d
            d = 1 / xp.where(xp.abs(d) < _TINY, _TINY, d)
            c = 1 + numerator / c
            c = xp.where(xp.abs(c) < _TINY, _TINY, c)
            h = h * c * d
        if (xp.abs(c * d - 1) < 1e-16).all():
            break
    return h
