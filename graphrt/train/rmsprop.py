"""RMSPropOptimizer."""

from __future__ import annotations

from typing import Any

from graphrt import initializers
from graphrt.core import raw
from graphrt.train.optimizer import FusedOptimizer


class RMSPropOptimizer(FusedOptimizer):
    """RMSProp (Hinton): mean_square follows gradient²; momentum = momentum * mom + learning_rate * gradient /
    √(mean_square + epsilon); variable -= mom.

    Args:
      decay: of the mean.
      centered: divide by the variance: the mean of the gradient is kept, and its square subtracted.
    """

    hyper = (
        ("lr", "_learning_rate", "_learning_rate_tensor", "learning_rate"),
        ("rho", "_decay", "_decay_tensor", "decay"),
        ("momentum", "_momentum", "_momentum_tensor", "momentum"),
        ("epsilon", "_epsilon", "_epsilon_tensor", "epsilon"),
    )
    inputs = ("lr", "rho", "momentum", "epsilon", "grad")

    def __init__(
        self,
        learning_rate: Any,
        decay: Any = 0.9,
        momentum: Any = 0.0,
        epsilon: Any = 1e-10,
        use_locking: bool = False,
        centered: bool = False,
        name: str = "RMSProp",
    ) -> None:
        super().__init__(use_locking, name)
        self._learning_rate, self._decay, self._momentum, self._epsilon = (
            learning_rate,
            decay,
            momentum,
            epsilon,
        )
        self._centered = centered
        self.op_name = "CenteredRMSProp" if centered else "RMSProp"
        self.slot_names = ("mg", "rms", "momentum") if centered else ("rms", "momentum")

    def _create_slots(self, var_list: list[Any]) -> None:
        for var in var_list:
            shape, dtype = var.get_shape(), var.dtype.base_dtype
            ones: Any = (
                initializers.ones(dtype=dtype)
                if shape.is_fully_defined()
                else raw.OnesLike(var, name="ones_like")
            )
            self._get_or_make_slot_with_initializer(var, ones, shape, dtype, "rms", self._name)
            if self._centered:
                self._zeros_slot(var, "mg", self._name)
            self._zeros_slot(var, "momentum", self._name)
