"""Regularizers: functions of a weight that give a loss. tf.keras.regularizers' classes, and
tf.contrib.layers' functions.

`l1`, `l2`, `l1_l2` (keras): the loss is scale * sum |w| or scale * sum w^2. `l1_regularizer`,
`l2_regularizer` (contrib.layers): the second is scale * sum w^2 / 2.
"""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral, Real
from typing import Any

from graphrt.api import array_api, math_api
from graphrt.core import raw
from graphrt.core.convert import convert_to_tensor
from graphrt.core.default_graph import get_collection, name_scope
from graphrt.core.graph_keys import GraphKeys
from graphrt.core.tensor import Tensor

__all__ = [
    "L1L2",
    "Regularizer",
    "apply_regularization",
    "get",
    "l1",
    "l1_l2",
    "l1_l2_regularizer",
    "l1_regularizer",
    "l2",
    "l2_regularizer",
    "sum_regularizer",
]

WeightLoss = Callable[[Any], "Tensor | None"]


class Regularizer:
    """Base of keras' regularizers: called with a weight, gives a scalar loss."""

    def __call__(self, x: Any) -> Tensor:
        return array_api.constant(0.0)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Regularizer:
        """The regularizer that `config`, of `get_config`, describes."""
        return cls(**config)


class L1L2(Regularizer):
    """l1 * sum |x| + l2 * sum x^2."""

    def __init__(self, l1: float = 0.0, l2: float = 0.0) -> None:
        self.l1, self.l2 = float(l1), float(l2)

    def __call__(self, x: Any) -> Tensor:
        if not self.l1 and not self.l2:
            return array_api.constant(0.0)
        loss: Any = 0.0
        if self.l1:
            loss += math_api.reduce_sum(self.l1 * math_api.abs(x))
        if self.l2:
            loss += math_api.reduce_sum(self.l2 * math_api.square(x))
        return loss

    def get_config(self) -> dict[str, Any]:
        return {"l1": self.l1, "l2": self.l2}


def l1(l: float = 0.01) -> L1L2:  # noqa: E741
    return L1L2(l1=l)


def l2(l: float = 0.01) -> L1L2:  # noqa: E741
    return L1L2(l2=l)


def l1_l2(l1: float = 0.01, l2: float = 0.01) -> L1L2:
    return L1L2(l1=l1, l2=l2)


def get(identifier: Any) -> Any:
    """The regularizer that a name ('l1', 'l2', 'l1_l2', 'L1L2'), a config dict or a callable stands for; None
    for None."""
    named = {"l1": l1, "l2": l2, "l1_l2": l1_l2, "L1L2": L1L2}
    if identifier is None or callable(identifier):
        return identifier
    if isinstance(identifier, dict) and identifier.get("class_name") in named:
        return named[identifier["class_name"]](**identifier.get("config", {}))
    if isinstance(identifier, str) and identifier in named:
        return named[identifier]()
    raise ValueError(
        f"Could not interpret regularizer identifier: {identifier!r}. It is a callable or one of "
        f"{sorted(named)}"
    )


def l1_regularizer(scale: float, scope: str | None = None) -> WeightLoss:
    """A function of weights that gives scale * sum |w|; None for scale 0."""
    _check_scale(scale)
    if scale == 0.0:
        return lambda _: None

    def l1(weights: Any) -> Tensor:
        with name_scope(scope, "l1_regularizer", [weights]) as name:
            factor = convert_to_tensor(scale, dtype=weights.dtype.base_dtype, name="scale")
            return math_api.multiply(factor, math_api.reduce_sum(math_api.abs(weights)), name=name)

    return l1


def l2_regularizer(scale: float, scope: str | None = None) -> WeightLoss:
    """A function of weights that gives scale * sum w^2 / 2; None for scale 0."""
    _check_scale(scale)
    if scale == 0.0:
        return lambda _: None

    def l2(weights: Any) -> Tensor:
        with name_scope(scope, "l2_regularizer", [weights]) as name:
            factor = convert_to_tensor(scale, dtype=weights.dtype.base_dtype, name="scale")
            return math_api.multiply(factor, raw.L2Loss(weights), name=name)

    return l2


def l1_l2_regularizer(scale_l1: float = 1.0, scale_l2: float = 1.0, scope: str | None = None) -> WeightLoss:
    """A function of weights that gives both losses' sum."""
    for scale in (scale_l1, scale_l2):
        _check_scale(scale)
    return sum_regularizer(
        [l1_regularizer(scale_l1), l2_regularizer(scale_l2)], scope=scope or "l1_l2_regularizer"
    )


def sum_regularizer(regularizer_list: list[WeightLoss | None], scope: str | None = None) -> WeightLoss | None:
    """A function of weights that gives the sum of the losses of several; None where there are none."""
    regularizers = [r for r in regularizer_list if r is not None]
    if not regularizers:
        return None

    def sum_reg(weights: Any) -> Tensor | None:
        with name_scope(scope, "sum_regularizer", [weights]) as name:
            losses = [loss for r in regularizers if (loss := r(weights)) is not None]
            return math_api.add_n(losses, name=name) if losses else None

    return sum_reg


def apply_regularization(regularizer: WeightLoss, weights_list: list[Any] | None = None) -> Tensor:
    """The sum of `regularizer` over weights (the WEIGHTS collection by default), added to the regularization
    losses.

    Raises:
      ValueError: there are no weights.
    """
    weights_list = weights_list or get_collection(GraphKeys.WEIGHTS)
    if not weights_list:
        raise ValueError("No weights to regularize.")
    with name_scope("get_regularization_penalty", values=weights_list) as scope:
        penalties = [
            p if (p := regularizer(w)) is not None else array_api.constant(0.0) for w in weights_list
        ]
        for w, penalty in zip(weights_list, penalties):
            if penalty.shape.rank != 0:
                raise ValueError(f"regularizer must return a scalar, and for {w} it returned {penalty}")
        total = math_api.add_n(penalties, name=scope)
        total.graph.add_to_collection(GraphKeys.REGULARIZATION_LOSSES, total)
        return total


def _check_scale(scale: Any) -> None:
    if isinstance(scale, Integral):
        raise ValueError(f"scale cannot be an integer: {scale}. Write {scale}.0")
    if isinstance(scale, Real) and scale < 0.0:
        raise ValueError(f"Setting a scale less than 0 on a regularizer: {scale}.")
