"""Nodes that run functions of the library. The compiler puts the functions' bodies in their place, so they
have no kernel.

Their gradients are registered by functions/gradients.py and control_flow/functional.py, which build
functions.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphrt.core.registry import ALL, KernelContext, ShapeContext, op
from graphrt.core.samples import bools, empty, ints, normal, program, sample, text
from graphrt.core.shapes import SCALAR, TensorShape

_ENDS: dict[str, Any] = {"Tin": "list(type) >= 0", "Tout": "list(type) >= 0"}
_CALL: dict[str, Any] = {
    **_ENDS,
    "f": "func",
    "config": "string = ''",
    "config_proto": "string = ''",
    "executor_type": "string = ''",
}
_IF: dict[str, Any] = {
    "Tcond": "type",
    **_ENDS,
    "then_branch": "func",
    "else_branch": "func",
    "output_shapes": "list(shape) = []",
}
_CASE: dict[str, Any] = {**_ENDS, "branches": "list(func) >= 1", "output_shapes": "list(shape) = []"}


def _declared_shapes(s: ShapeContext) -> list[TensorShape] | None:
    """What `output_shapes` says; None where it says nothing."""
    shapes = s.attrs["output_shapes"]
    if not shapes:
        return None
    if len(shapes) != len(s.attrs["Tout"]):
        raise ValueError(f"output_shapes has {len(shapes)} shapes for {len(s.attrs['Tout'])} outputs")
    return list(shapes)


def _with_v2(tf: Any, build: Any) -> list[Any]:
    was_on = tf.control_flow_v2_enabled()
    tf.enable_control_flow_v2()
    try:
        return build()
    finally:
        if not was_on:
            tf.disable_control_flow_v2()


def _cond(tf: Any) -> list[Any]:
    def build() -> list[Any]:
        pred, x = tf.placeholder_with_default(True, []), tf.placeholder_with_default([1.0, 2.0], [2])
        y = tf.cond(pred, lambda: tf.exp(x) * x, lambda: x - 1.0)
        z = tf.cond(tf.logical_not(pred), lambda: tf.exp(x) * x, lambda: x - 1.0)
        return [y, z, tf.gradients(y + z, x)]

    return _with_v2(tf, build)


def _cond_with_effects(tf: Any) -> list[Any]:
    def build() -> list[Any]:
        variable = tf.Variable([1.0, 2.0], use_resource=True)
        pred = tf.placeholder_with_default(True, [])
        y = tf.cond(
            pred,
            lambda: variable.assign_add([1.0, 1.0]).read_value(),
            lambda: variable.assign([0.0, 0.0]).read_value(),
        )
        return [variable.initializer, y, y, variable]

    return _with_v2(tf, build)


def _switch_case(tf: Any) -> list[Any]:
    x = tf.placeholder_with_default([1.0, 2.0], [2])
    made = [
        tf.switch_case(
            tf.placeholder_with_default(i, []), [lambda: x * 2.0, lambda: tf.exp(x)], lambda: tf.zeros([2])
        )
        for i in (-1, 0, 1, 2)
    ]
    return [*made, tf.gradients(sum(made), x)]


def _switch_case_with_effects(tf: Any) -> list[Any]:
    variable = tf.Variable([1.0, 2.0], use_resource=True)
    y = tf.switch_case(
        tf.placeholder_with_default(1, []),
        [lambda: variable.read_value(), lambda: variable.assign_add([1.0, 1.0]).read_value()],
    )
    return [variable.initializer, y, y, variable]


@op("If(cond: Tcond, input: list(Tin)) -> output: list(Tout)", **_IF)
class If:
    """The function `then_branch` of `input` where `cond` is true (a number: not 0), else `else_branch`."""

    stateful = True
    host_inputs = (0,)

    def shape(self, s: ShapeContext, cond: TensorShape, input: list[TensorShape]) -> list[TensorShape] | None:
        return _declared_shapes(s)

    grad_accepts_none = True
    samples = [program(_cond_with_effects)]


@op("StatelessIf(cond: Tcond, input: list(Tin)) -> output: list(Tout)", **_IF)
class StatelessIf:
    """An If of functions without state."""

    host_inputs = (0,)
    unfoldable = True

    def shape(self, s: ShapeContext, cond: TensorShape, input: list[TensorShape]) -> list[TensorShape] | None:
        return _declared_shapes(s)

    grad_accepts_none = True
    samples = [program(_cond)]


@op("Case(branch_index: int32, input: list(Tin)) -> output: list(Tout)", **_CASE)
class Case:
    """Function number `branch_index` of `branches`, of `input`; the last where there is no such number."""

    stateful = True
    host_inputs = (0,)

    def shape(
        self, s: ShapeContext, branch_index: TensorShape, input: list[TensorShape]
    ) -> list[TensorShape] | None:
        branch_index.with_rank(0)
        return _declared_shapes(s)

    grad_accepts_none = True
    samples = [program(_switch_case_with_effects)]


@op("StatelessCase(branch_index: int32, input: list(Tin)) -> output: list(Tout)", **_CASE)
class StatelessCase:
    """A Case of functions without state."""

    host_inputs = (0,)
    unfoldable = True

    def shape(
        self, s: ShapeContext, branch_index: TensorShape, input: list[TensorShape]
    ) -> list[TensorShape] | None:
        branch_index.with_rank(0)
        return _declared_shapes(s)

    grad_accepts_none = True
    samples = [program(_switch_case)]


@op("PartitionedCall(args: list(Tin)) -> output: list(Tout)", **_CALL)
class PartitionedCall:
    """The function `f` of `args`."""

    unfoldable = True
    grad_accepts_none = True
    samples = [program(_cond, why="calls are imported; tests/core/test_functions.py runs TensorFlow's")]


@op("StatefulPartitionedCall(args: list(Tin)) -> output: list(Tout)", **_CALL)
class StatefulPartitionedCall:
    """The function `f`, which has state, of `args`."""

    stateful = True
    grad_accepts_none = True
    samples = [
        program(_cond_with_effects, why="calls are imported; tests/core/test_functions.py runs TensorFlow's")
    ]


@op("FakeParam() -> output: dtype", dtype="type", shape="shape")
class FakeParam:
    """A value that nobody looks at: what a branch gives where only another has something to give."""

    unfoldable = True

    def shape(self, s: ShapeContext) -> TensorShape:
        return s.attrs["shape"]

    def hoist(self, k: KernelContext) -> Any:
        sizes = k.attrs["shape"].sizes
        made = np.zeros(tuple(d or 0 for d in sizes) if sizes is not None else (), k.dtype)
        return made if k.xp is np else k.device.from_host(made)

    def compute(self, k: KernelContext) -> Any:
        return self.hoist(k)

    samples = [program(_cond, why="gradients of branches make it")]


@op("ToBool(input: T) -> output: bool")
class ToBool:
    """Of a scalar: not 0, not an empty string; of other tensors: not empty."""

    host_inputs = ALL
    host_outputs = ALL
    cpu_only = True

    def shape(self, s: ShapeContext, input: TensorShape) -> TensorShape:
        return SCALAR

    def compute(self, k: KernelContext, input: Any) -> Any:
        value = np.asarray(input)
        return np.bool_(
            value.size > 0 if value.ndim else len(value[()]) > 0 if value.dtype == object else bool(value)
        )

    samples = [
        sample(normal()),
        sample(empty()),
        sample(empty(0)),
        sample(empty(2)),
        sample(ints()),
        sample(bools()),
        sample(text("a")),
    ]


@op("DeviceIndex() -> index: int32", device_names="list(string)")
class DeviceIndex:
    """Where in `device_names` the kind of device is that this runs on; their number where it is not among
    them."""

    stateful = True
    host_outputs = ALL

    def shape(self, s: ShapeContext) -> TensorShape:
        return SCALAR

    def hoist(self, k: KernelContext) -> Any:
        kind = (
            k.device.name.rpartition("device:")[2].partition(":")[0].upper().encode()
            if k.device is not None
            else b"CPU"
        )
        names = [n.upper() for n in k.attrs["device_names"]]
        return np.array(names.index(kind) if kind in names else len(names), np.int32)

    def compute(self, k: KernelContext) -> Any:
        return self.hoist(k)

    samples = [
        program(
            lambda tf: [
                tf.raw_ops.DeviceIndex(device_names=["GPU", "CPU"]),
                tf.raw_ops.DeviceIndex(device_names=["GPU"]),
            ]
        )
    ]
