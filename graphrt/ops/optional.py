"""Optionals: a variant that holds tensors, or nothing. TensorFlow's gradients of If pass what one branch
computed in them."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphrt.core import raw
from graphrt.core.errors import InvalidArgumentError
from graphrt.core.registry import KernelContext, ShapeContext, op
from graphrt.core.samples import program
from graphrt.core.shapes import SCALAR, TensorShape
from graphrt.core.tensor import Tensor


class OptionalValue:
    """What an optional's variant is in a step: `components` are its arrays, or None."""

    __slots__ = ("components",)
    shape: tuple[int, ...] = ()

    def __init__(self, components: tuple[Any, ...] | None) -> None:
        self.components = components

    def __repr__(self) -> str:
        return (
            "<empty optional>" if self.components is None else f"<optional of {len(self.components)} tensors>"
        )


_EMPTY = OptionalValue(None)


def _there_and_back(tf: Any) -> list[Any]:
    optional = tf.raw_ops.OptionalFromValue(components=[tf.constant([1.0, 2.0]), tf.constant(3)])
    return [
        tf.raw_ops.OptionalHasValue(optional=optional),
        tf.raw_ops.OptionalHasValue(optional=tf.raw_ops.OptionalNone()),
        list(
            tf.raw_ops.OptionalGetValue(
                optional=optional, output_types=[tf.float32, tf.int32], output_shapes=[[2], []]
            )
        ),
    ]


@op(
    "OptionalFromValue(components: list(Toutput_types)) -> optional: variant", Toutput_types="list(type) >= 1"
)
class OptionalFromValue:
    """An optional of `components`."""

    # The arrays live on in the variant.
    aliases = tuple(range(256))
    cpu_only = True
    unfoldable = True

    def shape(self, s: ShapeContext, components: list[TensorShape]) -> TensorShape:
        return SCALAR

    def compute(self, k: KernelContext, *components: Any) -> Any:
        kept = len(self.aliases)
        return OptionalValue((*components[:kept], *[c.copy() for c in components[kept:]]))

    def gradient(self, op: Any, dy: Tensor) -> list[Tensor]:
        return list(
            raw.OptionalGetValue(
                dy,
                output_types=[t.dtype.base_dtype for t in op.inputs],
                output_shapes=[t.shape for t in op.inputs],
            )
        )

    samples = [program(_there_and_back)]


@op("OptionalNone() -> optional: variant")
class OptionalNone:
    """The optional of nothing."""

    cpu_only = True
    unfoldable = True

    def shape(self, s: ShapeContext) -> TensorShape:
        return SCALAR

    def compute(self, k: KernelContext) -> Any:
        return _EMPTY

    samples = [program(_there_and_back)]


@op("OptionalHasValue(optional: variant) -> has_value: bool")
class OptionalHasValue:
    """Whether there is something in `optional`."""

    cpu_only = True
    unfoldable = True

    def shape(self, s: ShapeContext, optional: TensorShape) -> TensorShape:
        optional.with_rank(0)
        return SCALAR

    def compute(self, k: KernelContext, optional: Any) -> Any:
        return np.bool_(_checked(optional, k).components is not None)

    not_differentiable = True
    samples = [program(_there_and_back)]


@op(
    "OptionalGetValue(optional: variant) -> components: list(output_types)",
    output_types="list(type) >= 1",
    output_shapes="list(shape) >= 1",
)
class OptionalGetValue:
    """What is in `optional`; an error where it is empty."""

    aliases = (0,)
    cpu_only = True
    unfoldable = True

    def shape(self, s: ShapeContext, optional: TensorShape) -> list[TensorShape]:
        if len(s.attrs["output_shapes"]) != len(s.attrs["output_types"]):
            raise ValueError(
                f"output_shapes has {len(s.attrs['output_shapes'])} shapes for "
                f"{len(s.attrs['output_types'])} types"
            )
        return list(s.attrs["output_shapes"])

    def compute(self, k: KernelContext, optional: Any) -> Any:
        components = _checked(optional, k).components
        if components is None:
            raise InvalidArgumentError(None, None, "The given optional does not have a value.")
        if len(components) != len(k.output_dtypes):
            raise InvalidArgumentError(
                None,
                None,
                f"The given optional has {len(components)} components, expected {len(k.output_dtypes)}.",
            )
        for i, (component, dtype) in enumerate(zip(components, k.output_dtypes)):
            if not dtype.is_object and component.dtype != dtype.np:
                raise InvalidArgumentError(
                    None,
                    None,
                    f"Component {i} of the given optional is {component.dtype}, expected {dtype.name}.",
                )
        return components

    def gradient(self, op: Any, *grads: Tensor) -> Any:
        return raw.OptionalFromValue(list(grads))

    samples = [program(_there_and_back)]


def _checked(optional: Any, k: KernelContext) -> OptionalValue:
    if not isinstance(optional, OptionalValue):
        raise InvalidArgumentError(
            None, None, f"{k.type}: the input is not an Optional but {type(optional).__name__}."
        )
    return optional
