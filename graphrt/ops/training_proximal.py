"""Steps with L1 and L2 penalties: proximal descent, Adagrad's dual averaging, Ftrl. TensorFlow's arithmetic
in its order."""

from __future__ import annotations

from typing import Any

from graphrt.ops.training_update import Update, plain, training_op


def _shrink(xp: Any, var: Any, threshold: Any, divisor: Any, a: Any, b: Any) -> None:
    """var = sign(var) * max(|var| - threshold, 0) / divisor, or var / divisor where `threshold` is None."""
    if threshold is not None:
        xp.abs(var, a)
        xp.subtract(a, threshold, a)
        xp.maximum(a, 0, out=a)
        xp.sign(var, b)
        xp.multiply(a, b, var)
    xp.divide(var, divisor, var)


@training_op("ProximalGradientDescent", inputs="alpha l1 l2 delta", sparse_inputs="alpha l1 l2 grad")
class ProximalGradientDescent(Update):
    """var -= delta * alpha, then shrunk towards 0 by alpha * l1 and divided by 1 + l2 * alpha."""

    scratch = 2

    def step(
        self, xp: Any, attrs: dict[str, Any], scratch: list[Any], arrays: list[Any], grad: Any, scalars: Any
    ) -> None:
        (var,), (a, b), (alpha, l1, l2) = arrays, scratch, scalars
        xp.multiply(grad, alpha, a)
        xp.subtract(var, a, var)
        _shrink(xp, var, alpha * l1 if l1 > 0 else None, 1 + l2 * alpha, a, b)


@training_op("ProximalAdagrad", slots="accum", inputs="lr l1 l2 grad")
class ProximalAdagrad(Update):
    """accum += grad²; with the rate lr / √accum, var -= grad * rate, then shrunk towards 0 by rate * l1 and
    divided by 1 + l2 * rate."""

    scratch = 4

    def step(
        self, xp: Any, attrs: dict[str, Any], scratch: list[Any], arrays: list[Any], grad: Any, scalars: Any
    ) -> None:
        (var, accum), (a, b, rate, threshold), (lr, l1, l2) = arrays, scratch, scalars
        xp.multiply(grad, grad, a)
        xp.add(accum, a, accum)
        xp.sqrt(accum, rate)
        xp.divide(lr, rate, rate)
        xp.multiply(grad, rate, a)
        xp.subtract(var, a, var)
        xp.multiply(rate, l1, threshold)
        xp.multiply(rate, l2, rate)
        xp.add(rate, 1, rate)
        _shrink(xp, var, threshold if l1 > 0 else None, rate, a, b)


@training_op(
    "AdagradDA", slots="gradient_accumulator gradient_squared_accumulator", inputs="grad lr l1 l2 global_step"
)
class AdagradDA(Update):
    """Sums g of gradients and gg of their squares; var = -lr * sign(g) * max(|g| - l1 * global_step, 0) /
    (l2 * global_step * lr + √gg)."""

    scratch = 2

    def prepare(self, xp: Any, attrs: dict[str, Any], scalars: list[Any]) -> Any:
        lr, l1, l2, global_step = plain(scalars)
        steps = global_step.astype(lr.dtype)
        return lr, (steps * l1 if l1 > 0 else None), l2 * (steps * lr)

    def step(
        self, xp: Any, attrs: dict[str, Any], scratch: list[Any], arrays: list[Any], grad: Any, scalars: Any
    ) -> None:
        (var, g, gg), (a, b), (lr, threshold, ridge) = arrays, scratch, scalars
        xp.add(g, grad, g)
        xp.multiply(grad, grad, a)
        xp.add(gg, a, gg)
        if threshold is None:
            xp.multiply(g, -lr, b)
        else:
            xp.abs(g, a)
            xp.subtract(a, threshold, a)
            xp.maximum(a, 0, out=a)
            xp.sign(g, b)
            xp.multiply(b, -lr, b)
            xp.multiply(b, a, b)
        xp.sqrt(gg, a)
        xp.add(a, ridge, a)
        xp.divide(b, a, var)


class FtrlUpdate(Update):
    """Follow the regularised leader. With n = accum + grad² and p(x) = x ** -lr_power: linear += grad + 2 *
    l2_shrinkage * var - (p(n) - p(accum)) / lr * var; var = (l1 * sign(linear) - linear) / (p(n) / lr + 2 *
    l2) where |linear| > l1, else 0. With multiply_linear_by_lr, linear is kept multiplied by lr."""

    scratch = 4

    def step(
        self, xp: Any, attrs: dict[str, Any], scratch: list[Any], arrays: list[Any], grad: Any, scalars: Any
    ) -> None:
        (var, accum, linear), (a, b, c, new), (lr, l1, l2, shrinkage, lr_power) = arrays, scratch, scalars
        is_scaled = attrs["multiply_linear_by_lr"]
        xp.multiply(grad, grad, new)
        xp.add(accum, new, new)
        _power(xp, new, lr_power, a)
        _power(xp, accum, lr_power, b)
        xp.subtract(a, b, b)
        if not is_scaled:
            xp.divide(b, lr, b)
        xp.multiply(b, var, b)
        if shrinkage is None:
            xp.copyto(c, grad)
        else:
            xp.multiply(var, 2 * shrinkage, c)
            xp.add(grad, c, c)
        if is_scaled:
            xp.multiply(c, lr, c)
            l1, l2 = l1 * lr, l2 * lr
        else:
            xp.divide(a, lr, a)
        xp.subtract(c, b, c)
        xp.add(linear, c, linear)
        xp.add(a, 2 * l2, a)
        xp.sign(linear, b)
        xp.multiply(b, l1, b)
        xp.subtract(b, linear, b)
        xp.divide(b, a, b)
        xp.abs(linear, c)
        xp.copyto(var, xp.where(c > l1, b, b.dtype.type(0)))
        xp.copyto(accum, new)


def _power(xp: Any, x: Any, lr_power: Any, out: Any) -> None:
    if lr_power == -0.5:
        xp.sqrt(x, out)
    else:
        xp.power(x, -lr_power, out)


@training_op(
    "Ftrl", slots="accum linear", inputs="grad lr l1 l2 lr_power", multiply_linear_by_lr="bool = False"
)
class Ftrl(FtrlUpdate):
    __doc__ = FtrlUpdate.__doc__

    def prepare(self, xp: Any, attrs: dict[str, Any], scalars: list[Any]) -> Any:
        lr, l1, l2, lr_power = plain(scalars)
        return lr, l1, l2, None, lr_power


@training_op(
    "FtrlV2",
    slots="accum linear",
    inputs="grad lr l1 l2 l2_shrinkage lr_power",
    multiply_linear_by_lr="bool = False",
)
class FtrlV2(FtrlUpdate):
    __doc__ = FtrlUpdate.__doc__
