"""EditDistance of sparse sequences."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphrt.core.errors import InvalidArgumentError
from graphrt.core.registry import KernelContext, ShapeContext, op
from graphrt.core.samples import sample
from graphrt.core.shapes import UNKNOWN, TensorShape
from graphrt.ops.array_sparse import check_sparse


@op(
    "EditDistance(hypothesis_indices: int64, hypothesis_values: T, hypothesis_shape: int64, "
    "truth_indices: int64, truth_values: T, "
    "truth_shape: int64) -> output: float",
    normalize="bool = True",
)
class EditDistance:
    """The Levenshtein distance of each pair of sequences (the last dimension), over the truth's length with
    `normalize`."""

    cpu_only = True
    not_differentiable = True

    def shape(
        self,
        s: ShapeContext,
        hypothesis_indices: TensorShape,
        hypothesis_values: TensorShape,
        hypothesis_shape: TensorShape,
        truth_indices: TensorShape,
        truth_values: TensorShape,
        truth_shape: TensorShape,
    ) -> TensorShape:
        a, b = s.partial(2), s.partial(5)
        if a.sizes is None or b.sizes is None:
            return UNKNOWN
        return TensorShape.of(
            tuple([None if x is None or y is None else max(x, y) for x, y in zip(a.sizes[:-1], b.sizes[:-1])])
        )

    def compute(
        self,
        k: KernelContext,
        hypothesis_indices: Any,
        hypothesis_values: Any,
        hypothesis_shape: Any,
        truth_indices: Any,
        truth_values: Any,
        truth_shape: Any,
    ) -> Any:
        check_sparse(hypothesis_indices, hypothesis_values, hypothesis_shape, " hypothesis")
        check_sparse(truth_indices, truth_values, truth_shape, " truth")
        if hypothesis_shape.size != truth_shape.size or truth_shape.size < 2:
            raise InvalidArgumentError(None, None, "hypothesis and truth must have one rank, 2 or more")
        made = np.zeros(tuple(np.maximum(hypothesis_shape[:-1], truth_shape[:-1]).tolist()), np.float32)
        truth = _sequences(truth_indices, truth_values)
        hypothesis = _sequences(hypothesis_indices, hypothesis_values)
        for place in {*truth, *hypothesis}:
            wanted, given = truth.get(place, []), hypothesis.get(place, [])
            distance = float(_levenshtein(wanted, given))
            if k.attrs["normalize"]:
                distance = distance / len(wanted) if wanted else float("inf") if given else 0.0
            made[place] = distance
        return made

    samples = [
        sample(
            np.array([[0, 0], [0, 1], [1, 0]]),
            np.array([1, 2, 3]),
            np.array([2, 2]),
            np.array([[0, 0], [1, 0], [1, 1]]),
            np.array([1, 4, 3]),
            np.array([2, 2]),
        ),
        sample(
            np.array([[0, 0], [0, 1]]),
            np.array([1, 2]),
            np.array([1, 2]),
            np.array([[0, 0]]),
            np.array([2]),
            np.array([1, 1]),
            normalize=False,
        ),
    ]


def _sequences(indices: Any, values: Any) -> dict[tuple[int, ...], list[Any]]:
    found: dict[tuple[int, ...], list[Any]] = {}
    for row, value in zip(indices.tolist(), values.tolist()):
        found.setdefault(tuple(row[:-1]), []).append(value)
    return found


def _levenshtein(a: list[Any], b: list[Any]) -> int:
    """The fewest insertions, deletions and substitutions that turn `a` into `b`: row by row of the table of
    prefixes."""
    previous = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        row = [i]
        for j, y in enumerate(b, 1):
            row.append(min(previous[j] + 1, row[-1] + 1, previous[j - 1] + (x != y)))
        previous = row
    return previous[-1]
