"""Steps of Adam and its kin, Adagrad and Adadelta: TensorFlow's arithmetic in its order."""

from __future__ import annotations

from typing import Any

from graphrt.ops.training_update import Update, plain, training_op


def _moments(xp: Any, m: Any, v: Any, grad: Any, one_less_beta1: Any, one_less_beta2: Any, a: Any) -> None:
    """m += (grad - m)(1 - beta1); v += (grad² - v)(1 - beta2)."""
    xp.subtract(grad, m, a)
    xp.multiply(a, one_less_beta1, a)
    xp.add(m, a, m)
    xp.multiply(grad, grad, a)
    xp.subtract(a, v, a)
    xp.multiply(a, one_less_beta2, a)
    xp.add(v, a, v)


@training_op(
    "Adam",
    slots="m v",
    inputs="beta1_power beta2_power lr beta1 beta2 epsilon grad",
    sparse=False,
    use_nesterov="bool = False",
)
class Adam(Update):
    """m and v follow the gradient and its square; var -= alpha * m / (√v + epsilon), where alpha is
    lr * √(1 - beta2_power) / (1 - beta1_power)."""

    scratch = 2
    compiled = "Adam"

    def prepare(self, xp: Any, attrs: dict[str, Any], scalars: list[Any]) -> Any:
        beta1_power, beta2_power, lr, beta1, beta2, epsilon = plain(scalars)
        return lr * xp.sqrt(1 - beta2_power) / (1 - beta1_power), beta1, 1 - beta1, 1 - beta2, epsilon

    def step(
        self, xp: Any, attrs: dict[str, Any], scratch: list[Any], arrays: list[Any], grad: Any, scalars: Any
    ) -> None:
        (var, m, v), (a, b), (alpha, beta1, one_less_beta1, one_less_beta2, epsilon) = (
            arrays,
            scratch,
            scalars,
        )
        _moments(xp, m, v, grad, one_less_beta1, one_less_beta2, a)
        if attrs["use_nesterov"]:
            xp.multiply(grad, one_less_beta1, b)
            xp.multiply(m, beta1, a)
            xp.add(b, a, b)
            xp.multiply(b, alpha, b)
        else:
            xp.multiply(m, alpha, b)
        xp.sqrt(v, a)
        xp.add(a, epsilon, a)
        xp.divide(b, a, b)
        xp.subtract(var, b, var)


@training_op(
    "AdamWithAmsgrad",
    slots="m v vhat",
    inputs="beta1_power beta2_power lr beta1 beta2 epsilon grad",
    ref=False,
    sparse=False,
)
class AdamWithAmsgrad(Update):
    """Adam that divides by the largest v so far, vhat."""

    scratch = 2
    prepare = Adam.prepare

    def step(
        self, xp: Any, attrs: dict[str, Any], scratch: list[Any], arrays: list[Any], grad: Any, scalars: Any
    ) -> None:
        (var, m, v, vhat), (a, b), (alpha, _, one_less_beta1, one_less_beta2, epsilon) = (
            arrays,
            scratch,
            scalars,
        )
        _moments(xp, m, v, grad, one_less_beta1, one_less_beta2, a)
        xp.maximum(vhat, v, out=vhat)
        xp.multiply(m, alpha, b)
        xp.sqrt(vhat, a)
        xp.add(a, epsilon, a)
        xp.divide(b, a, b)
        xp.subtract(var, b, var)


@training_op("AdaMax", slots="m v", inputs="beta1_power lr beta1 beta2 epsilon grad", sparse=False)
class AdaMax(Update):
    """m follows the gradient, v the largest |grad| that decays by beta2; var -= lr / (1 - beta1_power) * m /
    (v + epsilon)."""

    def prepare(self, xp: Any, attrs: dict[str, Any], scalars: list[Any]) -> Any:
        beta1_power, lr, beta1, beta2, epsilon = plain(scalars)
        return lr / (1 - beta1_power), 1 - beta1, beta2, epsilon

    def step(
        self, xp: Any, attrs: dict[str, Any], scratch: list[Any], arrays: list[Any], grad: Any, scalars: Any
    ) -> None:
        (var, m, v), (a,), (rate, one_less_beta1, beta2, epsilon) = arrays, scratch, scalars
        xp.subtract(grad, m, a)
        xp.multiply(a, one_less_beta1, a)
        xp.add(m, a, m)
        xp.abs(grad, a)
        xp.multiply(v, beta2, v)
        xp.maximum(v, a, out=v)
        xp.add(v, epsilon, a)
        xp.divide(m, a, a)
        xp.multiply(a, rate, a)
        xp.subtract(var, a, var)


@training_op("Adagrad", slots="accum", inputs="lr grad", update_slots="bool = True")
class Adagrad(Update):
    """accum += grad²; var -= grad * lr / √accum."""

    scratch = 2

    def step(
        self, xp: Any, attrs: dict[str, Any], scratch: list[Any], arrays: list[Any], grad: Any, scalars: Any
    ) -> None:
        (var, accum), (a, b), (lr,) = arrays, scratch, scalars
        if attrs["update_slots"]:
            xp.multiply(grad, grad, a)
            xp.add(accum, a, accum)
        xp.sqrt(accum, a)
        xp.multiply(grad, lr, b)
        xp.divide(b, a, b)
        xp.subtract(var, b, var)


@training_op("AdagradV2", slots="accum", inputs="lr epsilon grad", update_slots="bool = True")
class AdagradV2(Update):
    """accum += grad²; var -= grad * lr / (√accum + epsilon)."""

    scratch = 2

    def step(
        self, xp: Any, attrs: dict[str, Any], scratch: list[Any], arrays: list[Any], grad: Any, scalars: Any
    ) -> None:
        (var, accum), (a, b), (lr, epsilon) = arrays, scratch, scalars
        if attrs["update_slots"]:
            xp.multiply(grad, grad, a)
            xp.add(accum, a, accum)
        xp.sqrt(accum, a)
        xp.add(a, epsilon, a)
        xp.multiply(grad, lr, b)
        xp.divide(b, a, b)
        xp.subtract(var, b, var)


@training_op("Adadelta", slots="accum accum_update", inputs="lr rho epsilon grad")
class Adadelta(Update):
    """accum follows grad²; update = √(accum_update + epsilon) / √(accum + epsilon) * grad; var -= lr *
    update; accum_update follows update²."""

    scratch = 2

    def step(
        self, xp: Any, attrs: dict[str, Any], scratch: list[Any], arrays: list[Any], grad: Any, scalars: Any
    ) -> None:
        (var, accum, accum_update), (a, b), (lr, rho, epsilon) = arrays, scratch, scalars
        one_less_rho = 1 - rho
        xp.multiply(grad, grad, a)
        xp.multiply(a, one_less_rho, a)
        xp.multiply(accum, rho, accum)
        xp.add(accum, a, accum)
        xp.add(accum_update, epsilon, a)
        xp.sqrt(a, a)
        xp.add(accum, epsilon, b)
        xp.sqrt(b, b)
        xp.divide(a, b, a)
        xp.multiply(a, grad, a)
        xp.multiply(a, lr, b)
        xp.subtract(var, b, var)
        xp.multiply(a, a, a)
        xp.multiply(a, one_less_rho, a)
        xp.multiply(accum_update, rho, accum_update)
        xp.add(accum_update, a, accum_update)
