"""Steps of gradient descent and of optimizers with a momentum: TensorFlow's arithmetic in its order.

`a` is scratch. Every line is one pass over a block, and writes where its last argument says.
"""

from __future__ import annotations

from typing import Any

from graphrt.ops.training_update import Update, plain, training_op


@training_op("GradientDescent", inputs="alpha delta", sparse=False)
class GradientDescent(Update):
    """var -= delta * alpha."""

    compiled = "GradientDescent"

    def step(
        self, xp: Any, attrs: dict[str, Any], scratch: list[Any], arrays: list[Any], grad: Any, scalars: Any
    ) -> None:
        (var,), (a,), (alpha,) = arrays, scratch, scalars
        xp.multiply(grad, alpha, a)
        xp.subtract(var, a, var)


@training_op("Momentum", slots="accum", inputs="lr grad momentum", use_nesterov="bool = False")
class Momentum(Update):
    """accum = accum * momentum + grad; var -= accum * lr, or with Nesterov's look ahead grad * lr + accum *
    momentum * lr."""

    compiled = "Momentum"

    def step(
        self, xp: Any, attrs: dict[str, Any], scratch: list[Any], arrays: list[Any], grad: Any, scalars: Any
    ) -> None:
        (var, accum), (a,), (lr, momentum) = arrays, scratch, scalars
        xp.multiply(accum, momentum, accum)
        xp.add(accum, grad, accum)
        if attrs["use_nesterov"]:
            xp.multiply(accum, momentum, a)
            xp.add(a, grad, a)
            xp.multiply(a, lr, a)
        else:
            xp.multiply(accum, lr, a)
        xp.subtract(var, a, var)


@training_op(
    "KerasMomentum", slots="accum", inputs="lr grad momentum", ref=False, use_nesterov="bool = False"
)
class KerasMomentum(Update):
    """accum = accum * momentum - grad * lr; var += accum, or with Nesterov's look ahead accum * momentum -
    grad * lr."""

    scratch = 2

    def step(
        self, xp: Any, attrs: dict[str, Any], scratch: list[Any], arrays: list[Any], grad: Any, scalars: Any
    ) -> None:
        (var, accum), (a, b), (lr, momentum) = arrays, scratch, scalars
        xp.multiply(grad, lr, a)
        xp.multiply(accum, momentum, accum)
        xp.subtract(accum, a, accum)
        if attrs["use_nesterov"]:
            xp.multiply(accum, momentum, b)
            xp.subtract(b, a, b)
            xp.add(var, b, var)
        else:
            xp.add(var, accum, var)


@training_op("RMSProp", slots="ms mom", inputs="lr rho momentum epsilon grad")
class RMSProp(Update):
    """ms += (grad² - ms)(1 - rho); mom = mom * momentum + grad * lr / √(ms + epsilon); var -= mom."""

    compiled = "RMSProp"

    def prepare(self, xp: Any, attrs: dict[str, Any], scalars: list[Any]) -> Any:
        lr, rho, momentum, epsilon = plain(scalars)
        return lr, 1 - rho, momentum, epsilon

    scratch = 2

    def step(
        self, xp: Any, attrs: dict[str, Any], scratch: list[Any], arrays: list[Any], grad: Any, scalars: Any
    ) -> None:
        (var, ms, mom), (a, b), (lr, one_less_rho, momentum, epsilon) = arrays, scratch, scalars
        xp.multiply(grad, grad, a)
        xp.subtract(a, ms, a)
        xp.multiply(a, one_less_rho, a)
        xp.add(ms, a, ms)
        xp.add(ms, epsilon, a)
        _descend(xp, var, mom, momentum, lr, grad, a, b)


@training_op("CenteredRMSProp", slots="mg ms mom", inputs="lr rho momentum epsilon grad")
class CenteredRMSProp(Update):
    """RMSProp with the variance of the gradient: mg is its mean, and mom divides by √(ms - mg² + epsilon)."""

    scratch = 2
    prepare = RMSProp.prepare

    def step(
        self, xp: Any, attrs: dict[str, Any], scratch: list[Any], arrays: list[Any], grad: Any, scalars: Any
    ) -> None:
        (var, mg, ms, mom), (a, b), (lr, one_less_rho, momentum, epsilon) = arrays, scratch, scalars
        xp.multiply(grad, grad, a)
        xp.subtract(a, ms, a)
        xp.multiply(a, one_less_rho, a)
        xp.add(ms, a, ms)
        xp.subtract(grad, mg, a)
        xp.multiply(a, one_less_rho, a)
        xp.add(mg, a, mg)
        xp.multiply(mg, mg, a)
        xp.subtract(ms, a, a)
        xp.add(a, epsilon, a)
        _descend(xp, var, mom, momentum, lr, grad, a, b)


def _descend(xp: Any, var: Any, mom: Any, momentum: Any, lr: Any, grad: Any, squared: Any, a: Any) -> None:
    """mom = mom * momentum + grad * lr / √squared; var -= mom. Writes over `squared`."""
    xp.sqrt(squared, squared)
    xp.multiply(grad, lr, a)
    xp.divide(a, squared, a)
    xp.multiply(mom, momentum, mom)
    xp.add(mom, a, mom)
    xp.subtract(var, mom, var)


@training_op("AddSign", slots="m", inputs="lr alpha sign_decay beta grad", sparse=False)
class AddSign(Update):
    """m = m * beta + grad (1 - beta); var -= lr (alpha + sign_decay * sign(grad) sign(m)) grad."""

    scratch = 2

    def step(
        self, xp: Any, attrs: dict[str, Any], scratch: list[Any], arrays: list[Any], grad: Any, scalars: Any
    ) -> None:
        (var, m), (a, b), (lr, alpha, sign_decay, beta) = arrays, scratch, scalars
        _agreement(xp, m, beta, grad, a, b)
        xp.multiply(a, sign_decay, a)
        xp.add(a, alpha, a)
        xp.multiply(a, lr, a)
        xp.multiply(a, grad, a)
        xp.subtract(var, a, var)


@training_op("PowerSign", slots="m", inputs="lr logbase sign_decay beta grad", sparse=False)
class PowerSign(Update):
    """m = m * beta + grad (1 - beta); var -= lr * exp(logbase * sign_decay * sign(grad) sign(m)) * grad."""

    scratch = 2

    def step(
        self, xp: Any, attrs: dict[str, Any], scratch: list[Any], arrays: list[Any], grad: Any, scalars: Any
    ) -> None:
        (var, m), (a, b), (lr, logbase, sign_decay, beta) = arrays, scratch, scalars
        _agreement(xp, m, beta, grad, a, b)
        xp.multiply(a, logbase * sign_decay, a)
        xp.exp(a, a)
        xp.multiply(a, lr, a)
        xp.multiply(a, grad, a)
        xp.subtract(var, a, var)


def _agreement(xp: Any, m: Any, beta: Any, grad: Any, a: Any, b: Any) -> None:
    """m = m * beta + grad (1 - beta); a = sign(grad) sign(m)."""
    xp.multiply(grad, 1 - beta, a)
    xp.multiply(m, beta, m)
    xp.add(m, a, m)
    xp.sign(grad, a)
    xp.sign(m, b)
    xp.multiply(a, b, a)
