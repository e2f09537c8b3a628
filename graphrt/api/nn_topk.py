"""Of tf.nn: the largest elements of each row."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

from graphrt.core import raw
from graphrt.core.default_graph import name_scope
from graphrt.core.dtypes import int32
from graphrt.core.tensor import Tensor

__all__ = ["in_top_k", "top_k"]


TopK = namedtuple("TopKV2", ["values", "indices"])


def top_k(
    input: Any, k: Any = 1, sorted: bool = True, index_type: Any = int32, name: str | None = None
) -> TopK:
    """The `k` largest elements of each row, largest first; of equal ones the one of lower index comes first.

    Args:
      input: numeric tensor of rank 1 or more.
      k: int scalar, at most the size of the last axis.
      sorted: False lets them come in any order.
      index_type: int16, int32 or int64.
    Returns:
      (values, indices), both of shape input.shape[:-1] + [k].
    Raises:
      ValueError: rows are known to be shorter than k. InvalidArgumentError at run time.
    """
    return TopK(*raw.TopKV2(input, k, sorted=sorted, index_type=index_type, name=name))


def in_top_k(predictions: Any, targets: Any, k: Any, name: str | None = None) -> Tensor:
    """Whether the class `targets[i]` is among the k largest of `predictions[i]`; ties at the edge count as
    inside.

    Args:
      predictions: float32 tensor [batch, classes].
      targets: int32 or int64 tensor [batch].
    Returns:
      bool tensor [batch]; False where the row has a prediction that is not finite, or the target is no class.
    """
    with name_scope(name, "in_top_k"):
        return raw.InTopKV2(predictions, targets, k, name=name)
