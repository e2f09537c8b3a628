"""GradientDescentOptimizer, ProximalGradientDescentOptimizer and MomentumOptimizer."""

from __future__ import annotations

from typing import Any

from graphrt.core import raw
from graphrt.core.tensor import IndexedSlices, Tensor
from graphrt.train.optimizer import FusedOptimizer, as_dtype_of


class GradientDescentOptimizer(FusedOptimizer):
    """variable -= learning_rate * gradient.

    Args:
      learning_rate: a number, tensor, or function without arguments that returns one. So for the other
        optimizers.
    """

    op_name = "GradientDescent"
    hyper = (("alpha", "_learning_rate", "_learning_rate_tensor", "learning_rate"),)
    inputs = ("alpha", "grad")

    def __init__(self, learning_rate: Any, use_locking: bool = False, name: str = "GradientDescent") -> None:
        super().__init__(use_locking, name)
        self._learning_rate = learning_rate

    def _apply_sparse_duplicate_indices(self, grad: IndexedSlices, var: Any) -> Tensor:
        step = grad.values * as_dtype_of(self._learning_rate_tensor, var.dtype.base_dtype)  # type: ignore[attr-defined]
        return var.scatter_sub(
            IndexedSlices(step, grad.indices, grad.dense_shape), use_locking=self._use_locking
        )

    def _resource_apply_sparse_duplicate_indices(self, grad: Tensor, handle: Any, indices: Tensor) -> Any:
        step = -grad * as_dtype_of(self._learning_rate_tensor, grad.dtype.base_dtype)  # type: ignore[attr-defined]
        return raw.ResourceScatterAdd(handle.handle, indices, step)


class ProximalGradientDescentOptimizer(FusedOptimizer):
    """Gradient descent, after which variables shrink by L1 and L2 penalties (Duchi and Singer's FOBOS)."""

    op_name = "ProximalGradientDescent"
    hyper = (
        ("alpha", "_learning_rate", "_learning_rate_tensor", "learning_rate"),
        (
            "l1",
            "_l1_regularization_strength",
            "_l1_regularization_strength_tensor",
            "l1_regularization_strength",
        ),
        (
            "l2",
            "_l2_regularization_strength",
            "_l2_regularization_strength_tensor",
            "l2_regularization_strength",
        ),
    )
    inputs = ("alpha", "l1", "l2", "grad")

    def __init__(
        self,
        learning_rate: Any,
        l1_regularization_strength: Any = 0.0,
        l2_regularization_strength: Any = 0.0,
        use_locking: bool = False,
        name: str = "ProximalGradientDescent",
    ) -> None:
        super().__init__(use_locking, name)
        self._learning_rate = learning_rate
        self._l1_regularization_strength = l1_regularization_strength
        self._l2_regularization_strength = l2_regularization_strength


class MomentumOptimizer(FusedOptimizer):
    """accumulation = momentum * accumulation + gradient; variable -= learning_rate * accumulation.

    Args:
      use_nesterov: look one step ahead along the accumulation.
    """

    op_name = "Momentum"
    slot_names = ("momentum",)
    hyper = (
        ("lr", "_learning_rate", "_learning_rate_tensor", "learning_rate"),
        ("momentum", "_momentum", "_momentum_tensor", "momentum"),
    )
    inputs = ("lr", "grad", "momentum")

    def __init__(
        self,
        learning_rate: Any,
        momentum: Any,
        use_locking: bool = False,
        name: str = "Momentum",
        use_nesterov: bool = False,
    ) -> None:
        super().__init__(use_locking, name)
        self._learning_rate, self._momentum, self._use_nesterov = learning_rate, momentum, use_nesterov
        self.options = {"use_nesterov": use_nesterov}

    def _create_slots(self, var_list: list[Any]) -> None:
        for var in var_list:
            self._zeros_slot(var, "momentum", self._name)
