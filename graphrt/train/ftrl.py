"""FtrlOptimizer."""

from __future__ import annotations

from typing import Any

from graphrt.api import array_api
from graphrt.core import raw
from graphrt.core.convert import convert_to_tensor
from graphrt.core.dtypes import float32
from graphrt.train.optimizer import FusedOptimizer


class FtrlOptimizer(FusedOptimizer):
    """Follow the regularised leader (McMahan et al.), with L1 and L2 penalties and, where it is above 0, L2
    shrinkage.

    Args:
      learning_rate_power: how the rate falls with the sum of squares; at most 0.
      initial_accumulator_value: what accumulators begin with.
      accum_name, linear_name: names of the slots in place of `name`.
      l2_shrinkage_regularization_strength: a penalty on magnitude, beside the others, which stabilise.
      beta: as in the paper.
    Raises:
      ValueError: a strength below 0, or a power above.
    """

    slot_names = ("accum", "linear")

    def __init__(
        self,
        learning_rate: Any,
        learning_rate_power: Any = -0.5,
        initial_accumulator_value: float = 0.1,
        l1_regularization_strength: float = 0.0,
        l2_regularization_strength: float = 0.0,
        use_locking: bool = False,
        name: str = "Ftrl",
        accum_name: str | None = None,
        linear_name: str | None = None,
        l2_shrinkage_regularization_strength: float = 0.0,
        beta: float | None = None,
    ) -> None:
        super().__init__(use_locking, name)
        for what, value in (
            ("initial_accumulator_value", initial_accumulator_value),
            ("l1_regularization_strength", l1_regularization_strength),
            ("l2_regularization_strength", l2_regularization_strength),
            ("l2_shrinkage_regularization_strength", l2_shrinkage_regularization_strength),
        ):
            if value < 0.0:
                raise ValueError(f"{what} {value} needs to be positive or zero")
        if learning_rate_power > 0.0:
            raise ValueError(f"learning_rate_power {learning_rate_power} needs to be negative or zero")
        self._learning_rate, self._learning_rate_power = learning_rate, learning_rate_power
        self._initial_accumulator_value = initial_accumulator_value
        self._l1_regularization_strength = l1_regularization_strength
        self._l2_regularization_strength = l2_regularization_strength
        self._l2_shrinkage_regularization_strength = l2_shrinkage_regularization_strength
        self._beta = 0.0 if beta is None else beta
        self._accum_name, self._linear_name = accum_name, linear_name
        shrinks = l2_shrinkage_regularization_strength > 0.0
        self.op_name = "FtrlV2" if shrinks else "Ftrl"
        self.inputs = ("grad", "lr", "l1", "l2", *(("l2_shrinkage",) if shrinks else ()), "lr_power")

    def _create_slots(self, var_list: list[Any]) -> None:
        def initial(shape: Any, dtype: Any = float32, partition_info: Any = None) -> Any:
            return array_api.ones(shape, dtype) * self._initial_accumulator_value

        for var in var_list:
            self._get_or_make_slot_with_initializer(
                var, initial, var.shape, var.dtype, "accum", self._accum_name or self._name
            )
            self._zeros_slot(var, "linear", self._linear_name or self._name)

    def _prepare(self) -> None:
        tensor = convert_to_tensor
        self._tensors = {
            "lr": tensor(self._learning_rate, name="learning_rate"),
            "l1": tensor(self._l1_regularization_strength, name="l1_regularization_strength"),
            # Beta's part of the penalty depends on the rate.
            "l2": tensor(
                self._l2_regularization_strength
                + self._beta / (2.0 * raw.Maximum(self._learning_rate, 1e-36)),
                name="adjusted_l2_regularization_strength",
            ),
            "beta": tensor(self._beta, name="beta"),
            "l2_shrinkage": tensor(
                self._l2_shrinkage_regularization_strength, name="l2_shrinkage_regularization_strength"
            ),
            "lr_power": tensor(self._learning_rate_power, name="learning_rate_power"),
        }

    def _input(self, name: str) -> Any:
        return self._tensors[name]
