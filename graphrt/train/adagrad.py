"""AdagradOptimizer, ProximalAdagradOptimizer, AdagradDAOptimizer and AdadeltaOptimizer."""

from __future__ import annotations

from typing import Any

from graphrt import initializers
from graphrt.api.math_elementwise import cast
from graphrt.core import raw
from graphrt.core.convert import constant_tensor
from graphrt.core.default_graph import get_default_graph
from graphrt.core.operation import Operation
from graphrt.core.tensor import Tensor
from graphrt.train.optimizer import FusedOptimizer


def _positive(name: str, value: float) -> None:
    if value <= 0.0:
        raise ValueError(f"{name} must be positive: {value}")


def _filled(var: Any, value: float) -> Tensor:
    """A constant in the shape of the variable, on its device."""
    with get_default_graph().colocate_with(var):
        return constant_tensor(value, var.dtype.base_dtype, shape=var.get_shape())


class AdagradOptimizer(FusedOptimizer):
    """Adagrad (Duchi et al.): accumulator += gradient²; variable -= learning_rate * gradient / √accumulator.

    Args:
      initial_accumulator_value: what accumulators begin with, above 0.
    """

    op_name = "Adagrad"
    slot_names = ("accumulator",)
    hyper = (("lr", "_learning_rate", "_learning_rate_tensor", "learning_rate"),)
    inputs = ("lr", "grad")

    def __init__(
        self,
        learning_rate: Any,
        initial_accumulator_value: float = 0.1,
        use_locking: bool = False,
        name: str = "Adagrad",
    ) -> None:
        _positive("initial_accumulator_value", initial_accumulator_value)
        super().__init__(use_locking, name)
        self._learning_rate, self._initial_accumulator_value = learning_rate, initial_accumulator_value

    def _create_slots(self, var_list: list[Any]) -> None:
        for var in var_list:
            dtype = var.dtype.base_dtype
            init: Any = initializers.constant(self._initial_accumulator_value, dtype=dtype)
            if not var.get_shape().is_fully_defined():
                init = self._filler(var, dtype)
            self._get_or_make_slot_with_initializer(
                var, init, var.get_shape(), dtype, "accumulator", self._name
            )

    def _filler(self, var: Any, dtype: Any) -> Any:
        return lambda: cast(raw.Fill(raw.Shape(var), self._initial_accumulator_value), dtype)


class ProximalAdagradOptimizer(FusedOptimizer):
    """Adagrad, after which variables shrink by L1 and L2 penalties at the same rates."""

    op_name = "ProximalAdagrad"
    slot_names = ("accumulator",)
    hyper = (
        ("lr", "_learning_rate", "_learning_rate_tensor", "learning_rate"),
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
    inputs = ("lr", "l1", "l2", "grad")

    def __init__(
        self,
        learning_rate: Any,
        initial_accumulator_value: float = 0.1,
        l1_regularization_strength: Any = 0.0,
        l2_regularization_strength: Any = 0.0,
        use_locking: bool = False,
        name: str = "ProximalAdagrad",
    ) -> None:
        _positive("initial_accumulator_value", initial_accumulator_value)
        super().__init__(use_locking, name)
        self._learning_rate, self._initial_accumulator_value = learning_rate, initial_accumulator_value
        self._l1_regularization_strength = l1_regularization_strength
        self._l2_regularization_strength = l2_regularization_strength

    def _create_slots(self, var_list: list[Any]) -> None:
        for var in var_list:
            self._get_or_make_slot(
                var, _filled(var, self._initial_accumulator_value), "accumulator", self._name
            )


class AdagradDAOptimizer(FusedOptimizer):
    """Adagrad's dual averaging: a variable is computed anew from the sums of gradients and of their squares.

    Args:
      global_step: the step's number, which scales the penalties.
    """

    op_name = "AdagradDA"
    slot_names = ("gradient_accumulator", "gradient_squared_accumulator")
    hyper = (("lr", "_learning_rate", "_learning_rate_tensor", "learning_rate"),)
    inputs = ("grad", "lr", "l1", "l2", "global_step")

    def __init__(
        self,
        learning_rate: Any,
        global_step: Any,
        initial_gradient_squared_accumulator_value: float = 0.1,
        l1_regularization_strength: float = 0.0,
        l2_regularization_strength: float = 0.0,
        use_locking: bool = False,
        name: str = "AdagradDA",
    ) -> None:
        _positive("initial_gradient_squared_accumulator_value", initial_gradient_squared_accumulator_value)
        super().__init__(use_locking, name)
        self._learning_rate, self._global_step = learning_rate, global_step
        self._initial_gradient_squared_accumulator_value = initial_gradient_squared_accumulator_value
        self._l1_regularization_strength = l1_regularization_strength
        self._l2_regularization_strength = l2_regularization_strength

    def _create_slots(self, var_list: list[Any]) -> None:
        for var in var_list:
            zero, initial = _filled(var, 0.0), _filled(var, self._initial_gradient_squared_accumulator_value)
            self._get_or_make_slot(var, zero, "gradient_accumulator", self._name)
            self._get_or_make_slot(var, initial, "gradient_squared_accumulator", self._name)

    def _prepare(self) -> None:
        super()._prepare()
        rate: Tensor = self._learning_rate_tensor  # type: ignore[attr-defined]
        with get_default_graph().colocate_with(rate):
            self._global_step_on_worker = raw.Identity(self._global_step) + 1

    def _input(self, name: str) -> Any:
        if name in ("l1", "l2"):
            return getattr(self, f"_{name}_regularization_strength")
        return self._step_here if name == "global_step" else super()._input(name)

    def _apply(self, form: str, var: Any, grad: Tensor, indices: Tensor | None = None) -> Operation:
        with get_default_graph().device(var.device):
            self._step_here = raw.Identity(self._global_step_on_worker)
        return super()._apply(form, var, grad, indices)


class AdadeltaOptimizer(FusedOptimizer):
    """Adadelta (Zeiler): steps in the ratio of the root mean squares of past updates and gradients.

    Args:
      rho: decay of the means.
      epsilon: added to them under the roots.
    """

    op_name = "Adadelta"
    slot_names = ("accum", "accum_update")
    hyper = (
        ("lr", "_lr", "_lr_t", "lr"),
        ("rho", "_rho", "_rho_t", "rho"),
        ("epsilon", "_epsilon", "_epsilon_t", "epsilon"),
    )
    inputs = ("lr", "rho", "epsilon", "grad")

    def __init__(
        self,
        learning_rate: Any = 0.001,
        rho: Any = 0.95,
        epsilon: Any = 1e-08,
        use_locking: bool = False,
        name: str = "Adadelta",
    ) -> None:
        super().__init__(use_locking, name)
        self._lr, self._rho, self._epsilon = learning_rate, rho, epsilon

    def _create_slots(self, var_list: list[Any]) -> None:
        for var in var_list:
            self._zeros_slot(var, "accum", self._name)
            self._zeros_slot(var, "accum_update", self._name)
