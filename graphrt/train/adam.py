"""AdamOptimizer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphrt.core import raw
from graphrt.core.default_graph import get_default_graph
from graphrt.core.operation import Operation
from graphrt.core.tensor import IndexedSlices, Tensor
from graphrt.train.optimizer import FusedOptimizer, as_dtype_of
from graphrt.variables.assignments import assign, assign_sub, scatter_add
from graphrt.variables.lifting import group, init_scope


class AdamOptimizer(FusedOptimizer):
    """Adam (Kingma and Ba): m and v follow the gradient and its square with decays beta1 and beta2;
    variable -= lr_t * m / (√v + epsilon), where lr_t = learning_rate * √(1 - beta2^t) / (1 - beta1^t).

    A sparse gradient moves all of m, v and the variable, as in TensorFlow: m and v decay also where it has no
      slice.
    """

    op_name = "Adam"
    slot_names = ("m", "v")
    hyper = (
        ("lr", "_lr", "_lr_t", "learning_rate"),
        ("beta1", "_beta1", "_beta1_t", "beta1"),
        ("beta2", "_beta2", "_beta2_t", "beta2"),
        ("epsilon", "_epsilon", "_epsilon_t", "epsilon"),
    )
    inputs = ("beta1_power", "beta2_power", "lr", "beta1", "beta2", "epsilon", "grad")

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta1: Any = 0.9,
        beta2: Any = 0.999,
        epsilon: Any = 1e-08,
        use_locking: bool = False,
        name: str = "Adam",
        use_own_namescope_for_non_slot_vars: bool = False,
    ) -> None:
        super().__init__(use_locking, name, use_own_namescope_for_non_slot_vars)
        self._lr, self._beta1, self._beta2, self._epsilon = learning_rate, beta1, beta2, epsilon

    def _get_beta_accumulators(self) -> tuple[Any, Any]:
        """The variables beta1_power and beta2_power of the default graph."""
        with init_scope():
            graph = get_default_graph()
            return self._get_non_slot_variable("beta1_power", graph), self._get_non_slot_variable(
                "beta2_power", graph
            )

    def _create_slots(self, var_list: list[Any]) -> None:
        # One place for the powers, the same in every process: with the first variable by name.
        first = min(var_list, key=lambda v: v.name)
        self._create_non_slot_variable(self._beta1, "beta1_power", first)
        self._create_non_slot_variable(self._beta2, "beta2_power", first)
        for var in var_list:
            self._zeros_slot(var, "m", self._name)
            self._zeros_slot(var, "v", self._name)

    def _input(self, name: str) -> Any:
        if name.endswith("_power"):
            return self._get_beta_accumulators()[name == "beta2_power"]
        return super()._input(name)

    def _apply_sparse_shared(
        self, grad: Tensor, var: Any, indices: Tensor, scatter: Callable[[Any, Any, Any], Tensor]
    ) -> Operation:
        dtype = var.dtype.base_dtype
        beta1_power, beta2_power, lr_t, beta1_t, beta2_t, epsilon_t = (
            as_dtype_of(self._input(name), dtype) for name in self.inputs[:-1]
        )
        lr = lr_t * raw.Sqrt(1 - beta2_power) / (1 - beta1_power)
        graph = get_default_graph()
        m = self.get_slot(var, "m")
        scaled = grad * (1 - beta1_t)
        with graph.control_dependencies([assign(m, m * beta1_t, use_locking=self._use_locking)]):
            m_t = scatter(m, indices, scaled)
        v = self.get_slot(var, "v")
        scaled = grad * grad * (1 - beta2_t)
        with graph.control_dependencies([assign(v, v * beta2_t, use_locking=self._use_locking)]):
            v_t = scatter(v, indices, scaled)
        update = assign_sub(var, lr * m_t / (raw.Sqrt(v_t) + epsilon_t), use_locking=self._use_locking)
        return group(update, m_t, v_t)

    def _apply_sparse(self, grad: IndexedSlices, var: Any) -> Operation:
        return self._apply_sparse_shared(grad.values, var, grad.indices, self._scatter_add_ref)

    def _scatter_add_ref(self, slot: Any, indices: Any, updates: Any) -> Tensor:
        return scatter_add(slot, indices, updates, use_locking=self._use_locking)

    def _resource_apply_sparse(self, grad: Tensor, handle: Any, indices: Tensor) -> Operation:
        return self._apply_sparse_shared(grad, handle, indices, self._resource_scatter_add)

    def _resource_scatter_add(self, slot: Any, indices: Any, updates: Any) -> Tensor:
        with get_default_graph().control_dependencies(
            [raw.ResourceScatterAdd(slot.handle, indices, updates)]
        ):
            return slot.value()

    def _finish(self, update_ops: list[Any], name_scope: str) -> Operation:
        graph = get_default_graph()
        with graph.control_dependencies(update_ops):
            beta1_power, beta2_power = self._get_beta_accumulators()
            with graph.colocate_with(beta1_power):
                powers = [
                    power.assign(power * beta, use_locking=self._use_locking)
                    for power, beta in (
                        (beta1_power, self._beta1_t),  # type: ignore[attr-defined]
                        (beta2_power, self._beta2_t),
                    )
                ]  # type: ignore[attr-defined]
        return group(*update_ops, *powers, name=name_scope)
