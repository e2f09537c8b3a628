"""tf.losses: scalar losses, weighted and reduced, collected in the graph.

Every function adds its loss to the collection `loss_collection` (GraphKeys.LOSSES; None: nowhere). `weights`
are a scalar or of the losses' rank, with sizes of 1 where they broadcast; an element of weight 0 is left
out.
"""

from __future__ import annotations

from typing import Any

from graphrt.api import array_api, math_api
from graphrt.api.confusion import remove_squeezable_dimensions
from graphrt.api.nn_activation import relu
from graphrt.api.nn_cross_entropy import (
    sigmoid_cross_entropy_with_logits,
    softmax_cross_entropy_with_logits_v2,
    sparse_softmax_cross_entropy_with_logits,
)
from graphrt.api.weights_broadcast import assert_broadcastable, broadcast_weights
from graphrt.control_flow import cond
from graphrt.core.arguments import renamed
from graphrt.core.convert import convert_to_tensor
from graphrt.core.default_graph import (
    add_to_collection,
    control_dependencies,
    get_collection,
    get_default_graph,
    name_scope,
)
from graphrt.core.dtypes import float32
from graphrt.core.graph_keys import GraphKeys
from graphrt.core.tensor import Tensor

__all__ = [
    "Reduction",
    "absolute_difference",
    "add_loss",
    "compute_weighted_loss",
    "cosine_distance",
    "get_losses",
    "get_regularization_loss",
    "get_regularization_losses",
    "get_total_loss",
    "hinge_loss",
    "huber_loss",
    "log_loss",
    "mean_pairwise_squared_error",
    "mean_squared_error",
    "sigmoid_cross_entropy",
    "softmax_cross_entropy",
    "sparse_softmax_cross_entropy",
]


class Reduction:
    """How the losses of elements become one: not at all, their weighted sum, or that over the number of
    elements, the sum of weights, or the number of weights that are not 0 (the default)."""

    NONE = "none"
    SUM = "weighted_sum"
    SUM_OVER_BATCH_SIZE = "weighted_sum_over_batch_size"
    MEAN = "weighted_mean"
    SUM_BY_NONZERO_WEIGHTS = "weighted_sum_by_nonzero_weights"
    SUM_OVER_NONZERO_WEIGHTS = SUM_BY_NONZERO_WEIGHTS

    @classmethod
    def all(cls) -> tuple[str, ...]:
        return (
            cls.NONE,
            cls.SUM,
            cls.MEAN,
            cls.SUM_OVER_BATCH_SIZE,
            cls.SUM_OVER_NONZERO_WEIGHTS,
            cls.SUM_BY_NONZERO_WEIGHTS,
        )

    @classmethod
    def validate(cls, key: str) -> None:
        """Raise ValueError where `key` is no reduction."""
        if key not in cls.all():
            raise ValueError(f"Invalid Reduction Key {key}. Key should be one of {cls.all()}.")


_BY_NONZERO = Reduction.SUM_BY_NONZERO_WEIGHTS
_LOSSES = GraphKeys.LOSSES


def _number_present(losses: Tensor, weights: Any, per_batch: bool = False) -> Tensor:
    """How many losses have a weight other than 0: in all, or for each row with `per_batch`."""
    if isinstance(weights, float) and weights != 0.0:
        return _number_of(losses)
    with name_scope(None, "num_present", [losses, weights]) as scope:
        weights = math_api.cast(weights, float32)
        present = array_api.where(
            math_api.equal(weights, 0.0), array_api.zeros_like(weights), array_api.ones_like(weights)
        )
        present = broadcast_weights(present, losses)
        if per_batch:
            axes = math_api.range(1, array_api.rank(present))
            return math_api.reduce_sum(present, axis=axes, keepdims=True, name=scope)
        return math_api.reduce_sum(present, name=scope)


def _number_of(losses: Tensor) -> Tensor:
    with name_scope(None, "num_elements", [losses]) as scope:
        return math_api.cast(array_api.size(losses, name=scope), losses.dtype)


def _safe_mean(losses: Tensor, count: Tensor) -> Tensor:
    """The sum over `count`; 0 where that is 0."""
    return math_api.div_no_nan(math_api.reduce_sum(losses), count, name="value")


def compute_weighted_loss(
    losses: Any,
    weights: Any = 1.0,
    scope: str | None = None,
    loss_collection: str | None = _LOSSES,
    reduction: str = _BY_NONZERO,
) -> Tensor:
    """`losses` times `weights`, reduced.

    Args:
      losses: tensor of any shape.
      reduction: one of Reduction's.
    Returns:
      A scalar of losses' dtype; with Reduction.NONE a tensor of losses' shape.
    Raises:
      ValueError: no such reduction, or weights that do not fit.
    """
    Reduction.validate(reduction)
    with name_scope(scope, "weighted_loss", [losses, weights]):
        # Optimizers of distribution strategies ask how the loss was reduced.
        get_default_graph()._last_loss_reduction = reduction  # type: ignore[attr-defined]
        with control_dependencies([assert_broadcastable(weights, losses)]):
            losses = convert_to_tensor(losses)
            dtype = losses.dtype
            losses, weights_tensor = math_api.cast(losses, float32), math_api.cast(weights, float32)
            loss = math_api.multiply(losses, weights_tensor)
            if reduction != Reduction.NONE:
                loss = math_api.reduce_sum(loss)
                if reduction == Reduction.MEAN:
                    loss = _safe_mean(loss, math_api.reduce_sum(array_api.ones_like(losses) * weights_tensor))
                elif reduction == Reduction.SUM_BY_NONZERO_WEIGHTS:
                    loss = _safe_mean(loss, _number_present(losses, weights_tensor))
                elif reduction == Reduction.SUM_OVER_BATCH_SIZE:
                    loss = _safe_mean(loss, _number_of(losses))
            loss = math_api.cast(loss, dtype)
            add_loss(loss, loss_collection)
            return loss


def _need(**arguments: Any) -> None:
    for name, value in arguments.items():
        if value is None:
            raise ValueError(f"Argument `{name}` must not be None.")


def _float_pair(predictions: Any, labels: Any) -> tuple[Tensor, Tensor]:
    """Both in float32. Raises ValueError where their shapes differ."""
    predictions, labels = math_api.cast(predictions, float32), math_api.cast(labels, float32)
    predictions.shape.assert_is_compatible_with(labels.shape)
    return predictions, labels


def absolute_difference(
    labels: Any,
    predictions: Any,
    weights: Any = 1.0,
    scope: str | None = None,
    loss_collection: str | None = _LOSSES,
    reduction: str = _BY_NONZERO,
) -> Tensor:
    """|predictions - labels|, weighted and reduced: see compute_weighted_loss."""
    _need(labels=labels, predictions=predictions)
    with name_scope(scope, "absolute_difference", [predictions, labels, weights]) as scope:
        predictions, labels = _float_pair(predictions, labels)
        losses = math_api.abs(math_api.subtract(predictions, labels))
        return compute_weighted_loss(losses, weights, scope, loss_collection, reduction=reduction)


def cosine_distance(
    labels: Any,
    predictions: Any,
    axis: int | None = None,
    weights: Any = 1.0,
    scope: str | None = None,
    loss_collection: str | None = _LOSSES,
    reduction: str = _BY_NONZERO,
    dim: int | None = None,
) -> Tensor:
    """1 - sum(predictions * labels) over `axis`, for unit vectors; weighted and reduced. `dim` is axis' older
    name."""
    axis = renamed("axis", axis, "dim", dim)
    if axis is None:
        raise ValueError("You must specify argument `axis`.")
    _need(labels=labels, predictions=predictions)
    with name_scope(scope, "cosine_distance_loss", [predictions, labels, weights]) as scope:
        predictions, labels = _float_pair(predictions, labels)
        losses = 1 - math_api.reduce_sum(math_api.multiply(predictions, labels), axis=(axis,), keepdims=True)
        return compute_weighted_loss(losses, weights, scope, loss_collection, reduction=reduction)


def hinge_loss(
    labels: Any,
    logits: Any,
    weights: Any = 1.0,
    scope: str | None = None,
    loss_collection: str | None = _LOSSES,
    reduction: str = _BY_NONZERO,
) -> Tensor:
    """max(0, 1 - logits) where labels are 1, max(0, 1 + logits) where they are 0; weighted and reduced."""
    _need(labels=labels, logits=logits)
    with name_scope(scope, "hinge_loss", [logits, labels, weights]) as scope:
        logits, labels = _float_pair(logits, labels)
        ones = array_api.ones_like(labels)
        signs = math_api.subtract(2 * labels, ones)
        losses = relu(math_api.subtract(ones, math_api.multiply(signs, logits)))
        return compute_weighted_loss(losses, weights, scope, loss_collection, reduction=reduction)


def huber_loss(
    labels: Any,
    predictions: Any,
    weights: Any = 1.0,
    delta: float = 1.0,
    scope: str | None = None,
    loss_collection: str | None = _LOSSES,
    reduction: str = _BY_NONZERO,
) -> Tensor:
    """error ** 2 / 2 up to an error of `delta`, linear from there; weighted and reduced."""
    _need(labels=labels, predictions=predictions)
    with name_scope(scope, "huber_loss", [predictions, labels, weights]) as scope:
        predictions, labels = _float_pair(predictions, labels)
        error = math_api.abs(math_api.subtract(predictions, labels))
        quadratic = math_api.minimum(error, delta)
        linear = math_api.subtract(error, quadratic)
        half = convert_to_tensor(0.5, dtype=quadratic.dtype)
        losses = math_api.add(
            math_api.multiply(half, math_api.multiply(quadratic, quadratic)), math_api.multiply(delta, linear)
        )
        return compute_weighted_loss(losses, weights, scope, loss_collection, reduction=reduction)


def log_loss(
    labels: Any,
    predictions: Any,
    weights: Any = 1.0,
    epsilon: float = 1e-7,
    scope: str | None = None,
    loss_collection: str | None = _LOSSES,
    reduction: str = _BY_NONZERO,
) -> Tensor:
    """-labels * log(predictions + epsilon) - (1 - labels) * log(1 - predictions + epsilon), for
    probabilities; weighted and reduced."""
    _need(labels=labels, predictions=predictions)
    with name_scope(scope, "log_loss", [predictions, labels, weights]) as scope:
        predictions, labels = _float_pair(predictions, labels)
        positive = -math_api.multiply(labels, math_api.log(predictions + epsilon))
        losses = positive - math_api.multiply(1 - labels, math_api.log(1 - predictions + epsilon))
        return compute_weighted_loss(losses, weights, scope, loss_collection, reduction=reduction)


def mean_pairwise_squared_error(
    labels: Any,
    predictions: Any,
    weights: Any = 1.0,
    scope: str | None = None,
    loss_collection: str | None = _LOSSES,
) -> Tensor:
    """The mean, over pairs of elements of one example, of the squared error of their difference.

    Args:
      weights: scalar, or [batch, 1, ...].
    """
    _need(labels=labels, predictions=predictions)
    with name_scope(scope, "mean_pairwise_squared_error", [predictions, labels, weights]):
        weights, labels = math_api.cast(weights, float32), math_api.cast(labels, float32)
        with control_dependencies([assert_broadcastable(weights, labels)]):
            predictions = math_api.cast(predictions, float32)
            predictions.shape.assert_is_compatible_with(labels.shape)
            loss = _pairwise(math_api.subtract(predictions, labels), weights)
            add_loss(loss, loss_collection)
            return loss


def _pairwise(diffs: Tensor, weights: Tensor) -> Tensor:
    axes = math_api.range(1, array_api.rank(diffs))
    squares = math_api.reduce_sum(math_api.square(diffs), axis=axes, keepdims=True)
    n = _number_present(diffs, weights, per_batch=True)
    first = 2.0 * math_api.div_no_nan(squares, math_api.maximum(n - 1, 0), name="value")
    total = math_api.reduce_sum(diffs, axis=axes, keepdims=True)
    second = 2.0 * math_api.div_no_nan(
        math_api.square(total), math_api.maximum(math_api.multiply(n, n - 1), 0), name="value"
    )
    loss = math_api.reduce_sum(math_api.multiply(first - second, weights))
    return array_api.where(math_api.reduce_sum(n) > 0, loss, array_api.zeros_like(loss), name="value")


def mean_squared_error(
    labels: Any,
    predictions: Any,
    weights: Any = 1.0,
    scope: str | None = None,
    loss_collection: str | None = _LOSSES,
    reduction: str = _BY_NONZERO,
) -> Tensor:
    """(predictions - labels) ** 2, weighted and reduced: see compute_weighted_loss."""
    _need(labels=labels, predictions=predictions)
    with name_scope(scope, "mean_squared_error", [predictions, labels, weights]) as scope:
        predictions, labels = _float_pair(predictions, labels)
        losses = math_api.squared_difference(predictions, labels)
        return compute_weighted_loss(losses, weights, scope, loss_collection, reduction=reduction)


def sigmoid_cross_entropy(
    multi_class_labels: Any,
    logits: Any,
    weights: Any = 1.0,
    label_smoothing: float = 0,
    scope: str | None = None,
    loss_collection: str | None = _LOSSES,
    reduction: str = _BY_NONZERO,
) -> Tensor:
    """nn.sigmoid_cross_entropy_with_logits, weighted and reduced.

    Args:
      label_smoothing: labels become labels * (1 - label_smoothing) + label_smoothing / 2.
    """
    _need(multi_class_labels=multi_class_labels, logits=logits)
    with name_scope(scope, "sigmoid_cross_entropy_loss", [logits, multi_class_labels, weights]) as scope:
        logits = convert_to_tensor(logits)
        labels = math_api.cast(multi_class_labels, logits.dtype)
        logits.shape.assert_is_compatible_with(labels.shape)
        if label_smoothing > 0:
            labels = labels * (1 - label_smoothing) + 0.5 * label_smoothing
        losses = sigmoid_cross_entropy_with_logits(labels=labels, logits=logits, name="xentropy")
        return compute_weighted_loss(losses, weights, scope, loss_collection, reduction=reduction)


def softmax_cross_entropy(
    onehot_labels: Any,
    logits: Any,
    weights: Any = 1.0,
    label_smoothing: float = 0,
    scope: str | None = None,
    loss_collection: str | None = _LOSSES,
    reduction: str = _BY_NONZERO,
) -> Tensor:
    """nn.softmax_cross_entropy_with_logits_v2 without a gradient to the labels, weighted and reduced.

    Args:
      weights: scalar, or one a row.
      label_smoothing: labels become labels * (1 - label_smoothing) + label_smoothing / classes.
    """
    _need(onehot_labels=onehot_labels, logits=logits)
    with name_scope(scope, "softmax_cross_entropy_loss", [logits, onehot_labels, weights]) as scope:
        logits = convert_to_tensor(logits)
        labels = math_api.cast(onehot_labels, logits.dtype)
        logits.shape.assert_is_compatible_with(labels.shape)
        if label_smoothing > 0:
            classes = math_api.cast(array_api.shape(labels)[-1], logits.dtype)
            smoothed = 1.0 - label_smoothing
            labels = labels * smoothed + label_smoothing / classes
        labels = array_api.stop_gradient(labels, name="labels_stop_gradient")
        losses = softmax_cross_entropy_with_logits_v2(labels=labels, logits=logits, name="xentropy")
        return compute_weighted_loss(losses, weights, scope, loss_collection, reduction=reduction)


def sparse_softmax_cross_entropy(
    labels: Any,
    logits: Any,
    weights: Any = 1.0,
    scope: str | None = None,
    loss_collection: str | None = _LOSSES,
    reduction: str = _BY_NONZERO,
) -> Tensor:
    """nn.sparse_softmax_cross_entropy_with_logits, weighted and reduced; a last axis of size 1 of labels or
    weights is dropped."""
    _need(labels=labels, logits=logits)
    with name_scope(scope, "sparse_softmax_cross_entropy_loss", [logits, labels, weights]) as scope:
        labels, logits = remove_squeezable_dimensions(labels, logits, expected_rank_diff=1)
        weights = _like_labels(weights, labels)
        losses = sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits, name="xentropy")
        return compute_weighted_loss(losses, weights, scope, loss_collection, reduction=reduction)


def _like_labels(weights: Any, labels: Tensor) -> Tensor:
    """`weights` without the last axis where their rank is one more than the labels'."""
    weights = convert_to_tensor(weights)
    a, b = weights.shape.rank, labels.shape.rank
    if a is not None and b is not None:
        return array_api.squeeze(weights, [-1]) if a - b == 1 else weights
    difference = array_api.rank(weights) - array_api.rank(labels)
    if a is None or a > 0 and weights.shape.sizes[-1] in (1, None):  # type: ignore[index]
        return cond(math_api.equal(1, difference), lambda: array_api.squeeze(weights, [-1]), lambda: weights)
    return weights


def add_loss(loss: Any, loss_collection: str | None = _LOSSES) -> None:
    """Add a loss of your own to the collection."""
    if loss_collection:
        add_to_collection(loss_collection, loss)


def get_losses(scope: str | None = None, loss_collection: str = _LOSSES) -> list[Any]:
    """The losses collected so far; with `scope`, those whose names begin with it."""
    return get_collection(loss_collection, scope)


def get_regularization_losses(scope: str | None = None) -> list[Any]:
    """The losses of variables' regularizers; with `scope`, those whose names begin with it."""
    return get_collection(GraphKeys.REGULARIZATION_LOSSES, scope)


def get_regularization_loss(scope: str | None = None, name: str = "total_regularization_loss") -> Tensor:
    """The sum of the losses of variables' regularizers; 0 where there are none."""
    losses = get_regularization_losses(scope)
    return math_api.add_n(losses, name=name) if losses else array_api.constant(0.0)


def get_total_loss(
    add_regularization_losses: bool = True, name: str = "total_loss", scope: str | None = None
) -> Tensor:
    """The sum of the losses collected so far, regularization's too.

    Raises:
      ValueError: there are none.
    """
    losses = get_losses(scope=scope)
    if add_regularization_losses:
        losses += get_regularization_losses(scope=scope)
    if not losses:
        raise ValueError("no losses were collected: tf.losses functions and tf.losses.add_loss collect them")
    return math_api.add_n(losses, name=name)
