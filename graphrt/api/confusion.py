"""tf.confusion_matrix, and how labels and predictions of nearly one shape are brought to one."""

from __future__ import annotations

from typing import Any

from graphrt import checks
from graphrt.api import array_api, math_api
from graphrt.control_flow import cond
from graphrt.control_flow.dependencies import with_dependencies
from graphrt.core import raw
from graphrt.core.convert import convert_to_tensor
from graphrt.core.default_graph import name_scope
from graphrt.core.dtypes import as_dtype, int32, int64
from graphrt.core.tensor import Tensor

__all__ = ["confusion_matrix", "remove_squeezable_dimensions"]


def _may_be_one(x: Tensor) -> bool:
    """Whether x's last size can be 1."""
    return x.shape.sizes is None or bool(x.shape.sizes) and x.shape.sizes[-1] in (1, None)


def remove_squeezable_dimensions(
    labels: Any, predictions: Any, expected_rank_diff: int = 0, name: str | None = None
) -> tuple[Tensor, Tensor]:
    """(labels, predictions) without the last axis of the one whose rank is one too many, where its size is 1.

    Args:
      expected_rank_diff: rank of predictions less rank of labels.
    """
    with name_scope(name, "remove_squeezable_dimensions", [labels, predictions]):
        predictions, labels = convert_to_tensor(predictions), convert_to_tensor(labels)
        p_rank, l_rank = predictions.shape.rank, labels.shape.rank
        if p_rank is not None and l_rank is not None:
            extra = p_rank - l_rank - expected_rank_diff
            if extra == 1 and _may_be_one(predictions):
                predictions = array_api.squeeze(predictions, [-1])
            elif extra == -1 and _may_be_one(labels):
                labels = array_api.squeeze(labels, [-1])
            return labels, predictions
        difference = array_api.rank(predictions) - array_api.rank(labels)
        if _may_be_one(predictions):
            whole_p = predictions
            predictions = cond(
                math_api.equal(expected_rank_diff + 1, difference),
                lambda: array_api.squeeze(whole_p, [-1]),
                lambda: whole_p,
            )
        if _may_be_one(labels):
            whole_l = labels
            labels = cond(
                math_api.equal(expected_rank_diff - 1, difference),
                lambda: array_api.squeeze(whole_l, [-1]),
                lambda: whole_l,
            )
        return labels, predictions


def confusion_matrix(
    labels: Any,
    predictions: Any,
    num_classes: Any = None,
    dtype: Any = int32,
    name: str | None = None,
    weights: Any = None,
) -> Tensor:
    """How often each class was predicted as each: rows are labels, columns predictions.

    Args:
      labels, predictions: int vectors of classes.
      num_classes: the matrix's size; one more than the largest class by default.
      dtype: the matrix's.
      weights: what each example counts, 1 by default.
    Returns:
      Tensor [num_classes, num_classes].
    Raises:
      InvalidArgumentError: at run time, a class below 0 or not below num_classes.
    """
    dtype = as_dtype(dtype)
    with name_scope(name, "confusion_matrix", [predictions, labels, num_classes, weights]):
        labels, predictions = remove_squeezable_dimensions(
            convert_to_tensor(labels, name="labels"), convert_to_tensor(predictions, name="predictions")
        )
        predictions, labels = math_api.cast(predictions, int64), math_api.cast(labels, int64)
        labels = with_dependencies(
            [checks.assert_non_negative(labels, message="`labels` contains negative values")], labels
        )
        predictions = with_dependencies(
            [checks.assert_non_negative(predictions, message="`predictions` contains negative values")],
            predictions,
        )
        if num_classes is None:
            num_classes = math_api.maximum(math_api.reduce_max(predictions), math_api.reduce_max(labels)) + 1
        else:
            bound = math_api.cast(num_classes, int64)
            labels = with_dependencies(
                [checks.assert_less(labels, bound, message="`labels` out of bound")], labels
            )
            predictions = with_dependencies(
                [checks.assert_less(predictions, bound, message="`predictions` out of bound")], predictions
            )
        if weights is not None:
            weights = convert_to_tensor(weights, name="weights")
            predictions.shape.assert_is_compatible_with(weights.shape)
            weights = math_api.cast(weights, dtype)
        shape = array_api.stack([num_classes, num_classes])
        indices = array_api.stack([labels, predictions], axis=1)
        values = array_api.ones_like(predictions, dtype) if weights is None else weights
        return raw.ScatterNd(indices, values, math_api.cast(shape, int64))
