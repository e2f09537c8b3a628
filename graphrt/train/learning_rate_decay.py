"""Learning rates that change with the global step. Each function gives a scalar tensor: the rate of that
step."""

from __future__ import annotations

import math
from typing import Any

from graphrt.api.math_elementwise import cast
from graphrt.core import raw
from graphrt.core.convert import constant_tensor, convert_to_tensor
from graphrt.core.default_graph import name_scope
from graphrt.core.dtypes import DType, int32, int64
from graphrt.core.tensor import Tensor

__all__ = [
    "cosine_decay",
    "cosine_decay_restarts",
    "exponential_decay",
    "inverse_time_decay",
    "linear_cosine_decay",
    "natural_exp_decay",
    "noisy_linear_cosine_decay",
    "piecewise_constant",
    "piecewise_constant_decay",
    "polynomial_decay",
]


def _rate(learning_rate: Any) -> tuple[Tensor, DType]:
    made = convert_to_tensor(learning_rate, name="initial_learning_rate")
    return made, made.dtype.base_dtype


def exponential_decay(
    learning_rate: Any,
    global_step: Any,
    decay_steps: Any,
    decay_rate: Any,
    staircase: bool = False,
    name: str | None = None,
) -> Tensor:
    """learning_rate * decay_rate ** (global_step / decay_steps); with `staircase` the exponent is rounded
    down."""
    with name_scope(name or "ExponentialDecay") as scope:
        rate, dtype = _rate(learning_rate)
        decay_steps, decay_rate = cast(decay_steps, dtype), cast(decay_rate, dtype)
        p = cast(global_step, dtype) / decay_steps
        if staircase:
            p = raw.Floor(p)
        return raw.Mul(rate, raw.Pow(decay_rate, p), name=scope)


def natural_exp_decay(
    learning_rate: Any,
    global_step: Any,
    decay_steps: Any,
    decay_rate: Any,
    staircase: bool = False,
    name: str | None = None,
) -> Tensor:
    """learning_rate * exp(-decay_rate * global_step / decay_steps)."""
    return exponential_decay(
        learning_rate, global_step, decay_steps, raw.Exp(raw.Neg(decay_rate)), staircase, name
    )


def inverse_time_decay(
    learning_rate: Any,
    global_step: Any,
    decay_steps: Any,
    decay_rate: Any,
    staircase: bool = False,
    name: str | None = None,
) -> Tensor:
    """learning_rate / (1 + decay_rate * global_step / decay_steps); with `staircase` the quotient is rounded
    down."""
    with name_scope(name or "InverseTimeDecay") as scope:
        rate, dtype = _rate(learning_rate)
        decay_steps, decay_rate = cast(decay_steps, dtype), cast(decay_rate, dtype)
        p = cast(global_step, dtype) / decay_steps
        if staircase:
            p = raw.Floor(p)
        one = cast(constant_tensor(1), dtype)
        return raw.RealDiv(rate, raw.AddV2(one, raw.Mul(decay_rate, p), name="Add"), name=scope)


def polynomial_decay(
    learning_rate: Any,
    global_step: Any,
    decay_steps: Any,
    end_learning_rate: Any = 0.0001,
    power: Any = 1.0,
    cycle: bool = False,
    name: str | None = None,
) -> Tensor:
    """From learning_rate to end_learning_rate in `decay_steps`, along (1 - step / decay_steps) ** power.

    Args:
      cycle: after that, begin again over the first multiple of decay_steps that is not passed; else the rate
        stays.
    """
    with name_scope(name or "PolynomialDecay") as scope:
        rate, dtype = _rate(learning_rate)
        end_learning_rate, power = cast(end_learning_rate, dtype), cast(power, dtype)
        step, steps = cast(global_step, dtype), cast(decay_steps, dtype)
        if cycle:
            times = raw.SelectV2(raw.Equal(step, 0), 1.0, raw.Ceil(step / decay_steps))
            steps = raw.Mul(steps, times)
        else:
            step = raw.Minimum(step, steps)
        p = step / steps
        return raw.AddV2(
            raw.Mul(rate - end_learning_rate, raw.Pow(1 - p, power)), end_learning_rate, name=scope
        )


def _cosine(fraction: Tensor) -> Tensor:
    """1 + cos(π * fraction)."""
    return 1.0 + raw.Cos(constant_tensor(math.pi) * fraction)


def cosine_decay(
    learning_rate: Any, global_step: Any, decay_steps: Any, alpha: Any = 0.0, name: str | None = None
) -> Tensor:
    """From learning_rate to alpha * learning_rate in `decay_steps`, along half a cosine wave; then it
    stays."""
    with name_scope(name or "CosineDecay"):
        rate, dtype = _rate(learning_rate)
        steps = cast(decay_steps, dtype)
        fraction = raw.Minimum(cast(global_step, dtype), steps) / steps
        return raw.Mul(rate, (1 - alpha) * (0.5 * _cosine(fraction)) + alpha)


def cosine_decay_restarts(
    learning_rate: Any,
    global_step: Any,
    first_decay_steps: Any,
    t_mul: Any = 2.0,
    m_mul: Any = 1.0,
    alpha: Any = 0.0,
    name: str | None = None,
) -> Tensor:
    """Cosine decays one after the other (Loshchilov and Hutter's SGDR): each `t_mul` times as long as the one
    before, and beginning at `m_mul` times its rate."""
    from graphrt.control_flow.cond import cond

    with name_scope(name or "SGDRDecay") as scope:
        rate, dtype = _rate(learning_rate)
        first, alpha = cast(first_decay_steps, dtype), cast(alpha, dtype)
        t_mul, m_mul = cast(t_mul, dtype), cast(m_mul, dtype)
        done = cast(global_step, dtype) / first

        def geometric() -> tuple[Tensor, Tensor]:
            restarts = raw.Floor(raw.Log(1.0 - done * (1.0 - t_mul)) / raw.Log(t_mul))
            before = (1.0 - t_mul**restarts) / (1.0 - t_mul)
            return restarts, (done - before) / t_mul**restarts

        def equal() -> tuple[Tensor, Tensor]:
            restarts = raw.Floor(done)
            return restarts, done - restarts

        restarts, fraction = cond(raw.Equal(t_mul, 1.0), equal, geometric)
        decayed = (1 - alpha) * (0.5 * m_mul**restarts * _cosine(fraction)) + alpha
        return raw.Mul(rate, decayed, name=scope)


def linear_cosine_decay(
    learning_rate: Any,
    global_step: Any,
    decay_steps: Any,
    num_periods: Any = 0.5,
    alpha: Any = 0.0,
    beta: Any = 0.001,
    name: str | None = None,
) -> Tensor:
    """learning_rate * ((alpha + linear) * cosine + beta), where linear falls from 1 to 0 in `decay_steps` and
    the cosine has num_periods waves in that time."""
    with name_scope(name or "LinearCosineDecay") as scope:
        rate, dtype = _rate(learning_rate)
        steps, num_periods, alpha, beta = (cast(v, dtype) for v in (decay_steps, num_periods, alpha, beta))
        step = raw.Minimum(cast(global_step, dtype), steps)
        linear = (steps - step) / steps
        cosine = 0.5 * _cosine(2.0 * num_periods * (step / steps))
        return raw.Mul(rate, (alpha + linear) * cosine + beta, name=scope)


def noisy_linear_cosine_decay(
    learning_rate: Any,
    global_step: Any,
    decay_steps: Any,
    initial_variance: Any = 1.0,
    variance_decay: Any = 0.55,
    num_periods: Any = 0.5,
    alpha: Any = 0.0,
    beta: Any = 0.001,
    name: str | None = None,
) -> Tensor:
    """linear_cosine_decay whose linear part has Gaussian noise of variance initial_variance / (1 + step) **
    variance_decay."""
    from graphrt.api.random_api import random_normal

    with name_scope(name or "NoisyLinearCosineDecay") as scope:
        rate, dtype = _rate(learning_rate)
        steps, initial_variance, variance_decay, num_periods, alpha, beta = (
            cast(v, dtype) for v in (decay_steps, initial_variance, variance_decay, num_periods, alpha, beta)
        )
        step = raw.Minimum(cast(global_step, dtype), steps)
        linear = (steps - step) / steps
        deviation = raw.Sqrt(initial_variance / raw.Pow(1.0 + step, variance_decay))
        linear = linear + random_normal(linear.shape, stddev=deviation)
        cosine = 0.5 * _cosine(2.0 * num_periods * (step / steps))
        return raw.Mul(rate, (alpha + linear) * cosine + beta, name=scope)


def piecewise_constant(x: Any, boundaries: Any, values: Any, name: str | None = None) -> Tensor:
    """values[0] up to boundaries[0] inclusive, values[1] up to boundaries[1], … and values[-1] beyond.

    Args:
      x: the global step, a scalar.
      boundaries: increasing numbers of the dtype of `x`.
      values: one more than boundaries, of one dtype.
    Raises:
      ValueError: the dtypes or lengths do not fit.
    """
    from graphrt.control_flow.case import case

    limits = [convert_to_tensor(b) for b in boundaries]
    made = [convert_to_tensor(v) for v in values]
    step = convert_to_tensor(x)
    kind = step.dtype.base_dtype
    for i, limit in enumerate(limits):
        found = limit.dtype.base_dtype
        if found is int32 and kind is int64:
            limits[i] = cast(limit, kind)
        elif found is not kind:
            raise ValueError(f"Boundaries ({found!r}) must have the same dtype as x ({kind!r}).")
    for value in made[1:]:
        if value.dtype.base_dtype is not made[0].dtype.base_dtype:
            raise ValueError(
                "Values must have elements all with the same dtype "
                f"({made[0].dtype.base_dtype!r} vs {value.dtype.base_dtype!r})."
            )
    if len(limits) != len(made) - 1:
        raise ValueError("The length of boundaries should be 1 less than the length of values")
    with name_scope(name or "PiecewiseConstant"):
        step = convert_to_tensor(x)
        branches = [(step <= limits[0], lambda: made[0]), (step > limits[-1], lambda: made[-1])]
        for low, high, value in zip(limits, limits[1:], made[1:-1]):
            branches.append(((step > low) & (step <= high), lambda value=value: value))
        return case(branches, lambda: made[0], exclusive=True)


piecewise_constant_decay = piecewise_constant
