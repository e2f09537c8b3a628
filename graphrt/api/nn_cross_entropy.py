"""Of tf.nn: losses of logits, an element or a row at a time. tf.losses makes them scalars."""

from __future__ import annotations

import math
from typing import Any

from graphrt import checks
from graphrt.api import array_api, math_api
from graphrt.api.nn_activation import relu
from graphrt.core import raw
from graphrt.core.arguments import renamed
from graphrt.core.convert import convert_to_tensor
from graphrt.core.default_graph import control_dependencies, name_scope
from graphrt.core.dtypes import bfloat16, float16, float32
from graphrt.core.shapes import TensorShape
from graphrt.core.tensor import Tensor

__all__ = [
    "log_poisson_loss",
    "sigmoid_cross_entropy_with_logits",
    "softmax_cross_entropy_with_logits",
    "softmax_cross_entropy_with_logits_v2",
    "sparse_softmax_cross_entropy_with_logits",
    "weighted_cross_entropy_with_logits",
]


def _need_both(name: str, labels: Any, logits: Any) -> None:
    if labels is None or logits is None:
        raise ValueError(
            f"Both `labels` and `logits` must be provided for {name}. Received: labels={labels} and "
            f"logits={logits}. Pass "
            "them by name"
        )


def _converted(labels: Any, logits: Any) -> tuple[Tensor, Tensor]:
    """(labels, logits) as tensors of one shape."""
    logits = convert_to_tensor(logits, name="logits")
    labels = convert_to_tensor(labels, name="labels")
    if not labels.shape.is_compatible_with(logits.shape):
        raise ValueError(
            f"`logits` and `labels` must have the same shape, received ({logits.shape} vs {labels.shape})."
        )
    return labels, logits


def sigmoid_cross_entropy_with_logits(
    labels: Any = None, logits: Any = None, name: str | None = None
) -> Tensor:
    """Cross entropy of sigmoid(logits) with `labels`, an element at a time: for classes that do not exclude
    each other.

    Args:
      labels, logits: floating point tensors of one shape and dtype; labels between 0 and 1.
    Raises:
      ValueError: shapes differ.
    """
    _need_both("sigmoid_cross_entropy_with_logits", labels, logits)
    with name_scope(name, "logistic_loss", [logits, labels]) as name:
        labels, logits = _converted(labels, logits)
        # max(x, 0) - x * z + log(1 + exp(-|x|)): no exponential of a positive number.
        zeros = array_api.zeros_like(logits, dtype=logits.dtype)
        is_positive = logits >= zeros
        positive = array_api.where(is_positive, logits, zeros)
        negative = array_api.where(is_positive, -logits, logits)
        return math_api.add(positive - logits * labels, math_api.log1p(math_api.exp(negative)), name=name)


def weighted_cross_entropy_with_logits(
    labels: Any = None,
    logits: Any = None,
    pos_weight: Any = None,
    name: str | None = None,
    targets: Any = None,
) -> Tensor:
    """sigmoid_cross_entropy_with_logits with positive labels' part multiplied by `pos_weight`. `targets` is
    labels' older name.

    Raises:
      ValueError: shapes differ.
    """
    labels = renamed("labels", labels, "targets", targets)
    _need_both("weighted_cross_entropy_with_logits", labels, logits)
    with name_scope(name, "logistic_loss", [logits, labels]) as name:
        labels, logits = _converted(labels, logits)
        weight = 1 + (pos_weight - 1) * labels
        return math_api.add(
            (1 - labels) * logits,
            weight * (math_api.log1p(math_api.exp(-math_api.abs(logits))) + relu(-logits)),
            name=name,
        )


def log_poisson_loss(
    targets: Any, log_input: Any, compute_full_loss: bool = False, name: str | None = None
) -> Tensor:
    """exp(log_input) - log_input * targets: minus the log-likelihood of counts, but for a constant.

    Args:
      compute_full_loss: add the constant, by Stirling's approximation (0 for targets between 0 and 1).
    Raises:
      ValueError: shapes differ.
    """
    with name_scope(name, "log_poisson_loss", [log_input, targets]):
        log_input = convert_to_tensor(log_input, name="log_input")
        targets = convert_to_tensor(targets, name="targets")
        if not targets.shape.is_compatible_with(log_input.shape):
            raise ValueError(
                f"`log_input` and `targets` must have the same shape, received ({log_input.shape} vs "
                f"{targets.shape})."
            )
        loss = math_api.exp(log_input) - log_input * targets
        if compute_full_loss:
            half = array_api.constant(0.5, dtype=targets.dtype)
            two_pi = array_api.constant(2 * math.pi, dtype=targets.dtype)
            stirling = targets * math_api.log(targets) - targets + half * math_api.log(two_pi * targets)
            zeros = array_api.zeros_like(targets, dtype=targets.dtype)
            ones = array_api.ones_like(targets, dtype=targets.dtype)
            is_small = math_api.logical_and(targets >= zeros, targets <= ones)
            loss += array_api.where(is_small, zeros, stirling)
        return loss


def softmax_cross_entropy_with_logits(
    labels: Any = None, logits: Any = None, dim: int = -1, name: str | None = None, axis: int | None = None
) -> Tensor:
    """softmax_cross_entropy_with_logits_v2 with no gradient to the labels."""
    dim = renamed("axis", axis, "dim", None if dim == -1 else dim)
    _need_both("softmax_cross_entropy_with_logits", labels, logits)
    with name_scope(name, "softmax_cross_entropy_with_logits_sg", [logits, labels]) as name:
        labels = array_api.stop_gradient(labels, name="labels_stop_gradient")
    return softmax_cross_entropy_with_logits_v2(labels=labels, logits=logits, axis=dim, name=name)


def softmax_cross_entropy_with_logits_v2(
    labels: Any, logits: Any, axis: int | None = None, name: str | None = None, dim: int | None = None
) -> Tensor:
    """Cross entropy of softmax(logits) with the distributions `labels`, over `axis` (the last one by
    default).

    Args:
      labels, logits: floating point tensors of one shape; each row of labels sums to 1.
      dim: axis' older name.
    Returns:
      Tensor of logits' shape without `axis`, of their dtype. Gradients go to both.
    """
    axis = renamed("axis", axis, "dim", dim)
    axis = -1 if axis is None else axis
    with name_scope(name, "softmax_cross_entropy_with_logits", [logits, labels]) as name:
        logits = convert_to_tensor(logits, name="logits")
        labels = convert_to_tensor(labels, name="labels")
        shape, dtype = logits.shape, logits.dtype.base_dtype
        is_short = dtype in (float16, bfloat16)
        precise = math_api.cast(logits, float32) if is_short else logits
        labels = math_api.cast(labels, precise.dtype)
        rank = array_api.rank(precise)
        if axis < -1 and shape.rank is not None:
            axis += shape.rank
        if axis != -1:
            precise, labels = _with_last(precise, axis, rank), _with_last(labels, axis, rank)
        precise_shape = array_api.shape(precise)
        cost, _ = raw.SoftmaxCrossEntropyWithLogits(_rows(precise), _rows(labels), name=name)
        cost = array_api.reshape(cost, array_api.slice(precise_shape, [0], [math_api.subtract(rank, 1)]))
        if shape.sizes is not None:
            sizes = list(shape.sizes)
            del sizes[axis]
            cost.set_shape(sizes)
        return math_api.cast(cost, dtype) if is_short else cost


def _with_last(x: Tensor, axis: int, rank: Tensor) -> Tensor:
    """`x` with `axis` moved to the end."""
    order = array_api.concat([math_api.range(axis), math_api.range(axis + 1, rank), [axis]], 0)
    return array_api.transpose(x, order)


def _rows(x: Tensor) -> Tensor:
    """`x` as a matrix: all axes but the last in one."""
    rank = array_api.rank(x)
    last = array_api.slice(array_api.shape(x), [math_api.subtract(rank, 1)], [1])
    made = array_api.reshape(x, array_api.concat([[-1], last], 0))
    sizes = x.shape.sizes
    if sizes and None not in sizes[:-1]:
        made.set_shape([math.prod(sizes[:-1]), sizes[-1]])  # type: ignore[arg-type]
    return made


def sparse_softmax_cross_entropy_with_logits(
    labels: Any = None, logits: Any = None, name: str | None = None
) -> Tensor:
    """Cross entropy of softmax(logits) with one class a row.

    Args:
      labels: int32 or int64 tensor of shape [d0, ..., dn], classes in [0, classes).
      logits: floating point tensor of shape [d0, ..., dn, classes].
    Returns:
      Tensor of labels' shape and logits' dtype.
    Raises:
      ValueError: the shapes do not belong together.
      InvalidArgumentError: at run time, a label that is no class.
    """
    _need_both("sparse_softmax_cross_entropy_with_logits", labels, logits)
    with name_scope(name, "SparseSoftmaxCrossEntropyWithLogits", [labels, logits]):
        labels, logits = convert_to_tensor(labels), convert_to_tensor(logits)
        is_half = logits.dtype.base_dtype is float16
        precise = math_api.cast(logits, float32) if is_half else logits
        static, rank = labels.shape, logits.shape.rank
        labels_shape = array_api.shape(labels)
        is_known = static.is_fully_defined() and logits.shape[:-1].is_fully_defined()
        _check_sparse_shapes(static, logits.shape, is_known)
        if rank == 2:
            cost, _ = raw.SparseSoftmaxCrossEntropyWithLogits(precise, labels, name=name)
            return math_api.cast(cost, float16) if is_half else cost
        same = (
            [] if is_known else [checks.assert_equal(array_api.shape(labels), array_api.shape(logits)[:-1])]
        )
        with control_dependencies(same):
            classes = array_api.shape(logits)[array_api.rank(logits) - 1]
            precise = array_api.reshape(precise, [-1, classes])
            cost, _ = raw.SparseSoftmaxCrossEntropyWithLogits(
                precise, array_api.reshape(labels, [-1]), name=name
            )
            cost = array_api.reshape(cost, labels_shape)
            cost.set_shape(static)
            return math_api.cast(cost, float16) if is_half else cost


def _check_sparse_shapes(labels: TensorShape, logits: TensorShape, is_known: bool) -> None:
    if logits.rank == 0:
        raise ValueError("`logits` cannot be a scalar: its last axis are the classes")
    if logits.rank is not None and labels.rank is not None and labels.rank != logits.rank - 1:
        raise ValueError(
            f"`labels.shape.rank` must equal `logits.shape.rank - 1`. Received: labels.shape={labels} of "
            f"rank {labels.rank} "
            f"and logits.shape={logits} of rank {logits.rank}"
        )
    if is_known and labels != logits[:-1]:
        raise ValueError(
            "`labels.shape` must equal `logits.shape` except for the last dimension. Received: labels.shape="
            f"{labels} and logits.shape={logits}"
        )
