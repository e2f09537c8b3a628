"""Connectionist temporal classification: the loss of unaligned label sequences, and decoders.

A sequence of labels is what is left of a path (a class a time step) when repeats are merged and blanks
dropped. The loss sums the probability of all paths of a sequence, forwards (alpha) and backwards (beta), in
logarithms, for the whole batch at once a time step. Decoders are plain Python: beam search costs about 1 us
a beam, class and time step.
"""

from __future__ import annotations

import heapq
from itertools import count
from typing import Any

import numpy as np

from graphrt.core import raw
from graphrt.core.dtypes import float32, float64
from graphrt.core.errors import FailedPreconditionError, InvalidArgumentError
from graphrt.core.registry import ALL, KernelContext, ShapeContext, op
from graphrt.core.samples import normal, sample
from graphrt.core.shapes import TensorShape
from graphrt.core.signature import Attr
from graphrt.core.tensor import Tensor

_T = Attr("T", "type", allowed=(float32, float64), default=float32)
_NEVER = -np.inf


def _check_lengths(inputs: np.ndarray, lengths: np.ndarray, error: Any) -> None:
    if inputs.ndim != 3:
        raise InvalidArgumentError(None, None, f"inputs is not a 3-Tensor: its shape is {list(inputs.shape)}")
    steps, batch, _ = inputs.shape
    if lengths.ndim != 1:
        raise InvalidArgumentError(
            None, None, f"sequence_length is not a vector: its shape is {list(lengths.shape)}"
        )
    if lengths.size != batch:
        raise error(
            None,
            None,
            f"len(sequence_length) != batch_size.  len(sequence_length):  {lengths.size} batch_size: {batch}",
        )
    for b, n in enumerate(lengths.tolist()):
        if n > steps:
            raise error(None, None, f"sequence_length({b}) <= {steps}, and it is {n}")


def _labels_by_example(indices: np.ndarray, values: np.ndarray, batch: int) -> list[list[int]]:
    """The labels of each example of a sparse batch."""
    if indices.ndim != 2 or values.ndim != 1 or indices.shape[0] != values.size:
        raise InvalidArgumentError(
            None,
            None,
            "labels_indices and labels_values must contain the same number of rows, but saw shapes: "
            f"{list(indices.shape)} vs. {list(values.shape)}",
        )
    made: list[list[int]] = [[] for _ in range(batch)]
    last = (-1, -1)
    for i, ((b, t), label) in enumerate(zip(map(tuple, indices.tolist()), values.tolist())):
        if not 0 <= b < batch or t < 0:
            raise InvalidArgumentError(
                None,
                None,
                f"label SparseTensor is not valid: indices[{i}] = [{b},{t}] is out of bounds: the batch "
                f"has {batch} examples",
            )
        if (b, t) <= last:
            raise InvalidArgumentError(
                None,
                None,
                f"label SparseTensor is not valid: indices[{i}] = [{b},{t}] is out of order: "
                "tf.sparse.reorder orders them",
            )
        last = (b, t)
        made[b].append(label)
    for b, labels in enumerate(made):
        if not labels:
            raise InvalidArgumentError(None, None, f"Labels length is zero in batch {b}")
    return made


def _targets(labels: list[int], example: int, classes: int, collapse: bool) -> list[int]:
    """The labels before the first null one (the blank and above), with repeats merged where `collapse`."""
    made: list[int] = []
    ended = False
    for i, label in enumerate(labels):
        if collapse and i and label == labels[i - 1]:
            continue
        if label >= classes - 1:
            ended = True
        elif ended:
            raise InvalidArgumentError(
                None,
                None,
                "Saw a non-null label (index >= num_classes - 1) following a null label, batch: "
                f"{example} num_classes: {classes} labels: {','.join(map(str, labels))}",
            )
        else:
            made.append(label)
    if any(label < 0 for label in made):
        raise InvalidArgumentError(
            None,
            None,
            f"All labels must be nonnegative integers, batch: {example} labels: {','.join(map(str, labels))}",
        )
    return made


class _Paths:
    """The states of each example's paths, blanks around every label: [batch, states].

    Attributes:
      classes_at: the class of each state.
      exists: False for states beyond an example's own.
      ends: the number of states of each example.
      can_stay, can_skip: whether a path may repeat the state, or come from two states before it.
    """

    def __init__(self, targets: list[list[int]], blank: int, merge: bool) -> None:
        self.ends = np.array([2 * len(t) + 1 for t in targets])
        states = int(self.ends.max())
        self.classes_at = np.full((len(targets), states), blank)
        for b, labels in enumerate(targets):
            self.classes_at[b, 1 : 2 * len(labels) : 2] = labels
        self.exists = np.arange(states) < self.ends[:, None]
        is_blank = self.classes_at == blank
        self.can_stay = is_blank | merge
        self.can_skip = np.zeros_like(is_blank)
        self.can_skip[:, 2:] = ~is_blank[:, 2:] & ~(
            merge & (self.classes_at[:, 2:] == self.classes_at[:, :-2])
        )


def _forward(paths: _Paths, emitted: np.ndarray) -> np.ndarray:
    """log P(a path is in the state at time t, and what it emitted up to then): [time, batch, states]."""
    alpha = np.full_like(emitted, _NEVER)
    alpha[0, :, :2] = emitted[0, :, :2]
    for t in range(1, emitted.shape[0]):
        before = alpha[t - 1]
        reached = np.where(paths.can_stay, before, _NEVER)
        reached[:, 1:] = np.logaddexp(reached[:, 1:], before[:, :-1])
        reached[:, 2:] = np.logaddexp(reached[:, 2:], np.where(paths.can_skip[:, 2:], before[:, :-2], _NEVER))
        alpha[t] = reached + emitted[t]
    return alpha


def _backward(paths: _Paths, emitted: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """log P(what is emitted after time t | the state at t), each example from its own last step: [time,
    batch, states]."""
    beta = np.full_like(emitted, _NEVER)
    states = np.arange(emitted.shape[2])
    final = np.where((states == paths.ends[:, None] - 1) | (states == paths.ends[:, None] - 2), 0.0, _NEVER)
    for t in range(emitted.shape[0] - 1, -1, -1):
        if t + 1 < emitted.shape[0]:
            after = beta[t + 1] + emitted[t + 1]
            left = np.where(paths.can_stay, after, _NEVER)
            left[:, :-1] = np.logaddexp(left[:, :-1], after[:, 1:])
            left[:, :-2] = np.logaddexp(left[:, :-2], np.where(paths.can_skip[:, 2:], after[:, 2:], _NEVER))
            beta[t] = left
        beta[t] = np.where((lengths == t + 1)[:, None], final, beta[t])
    return beta


def ctc_loss(
    logits: np.ndarray, targets: list[list[int]], lengths: np.ndarray, merge: bool
) -> tuple[np.ndarray, np.ndarray]:
    """(-log P(labels) [batch], its gradient [time, batch, classes]); blank is the last class.

    Where no path gives the labels, the loss is infinite and the gradient softmax(logits).
    """
    steps, batch, classes = logits.shape
    x = logits.astype(np.float64)
    x -= x.max(axis=2, keepdims=True)
    log_y = x - np.log(np.exp(x).sum(axis=2, keepdims=True))
    paths = _Paths(targets, classes - 1, merge)
    emitted = np.take_along_axis(
        log_y, np.broadcast_to(paths.classes_at, (steps, *paths.classes_at.shape)), 2
    )
    emitted[:, ~paths.exists] = _NEVER
    alpha, beta = _forward(paths, emitted), _backward(paths, emitted, lengths)
    at_end = alpha[lengths - 1, np.arange(batch)]
    last = np.take_along_axis(at_end, paths.ends[:, None] - 1, 1)[:, 0]
    second = np.where(
        paths.ends > 1, np.take_along_axis(at_end, np.maximum(paths.ends - 2, 0)[:, None], 1)[:, 0], _NEVER
    )
    log_p = np.logaddexp(last, second)
    gradient = np.exp(log_y)
    is_possible = log_p > _NEVER
    share = np.exp(alpha + beta - np.where(is_possible, log_p, 0.0)[:, None])
    share[:, ~is_possible] = 0.0
    np.subtract.at(
        gradient, (np.arange(steps)[:, None, None], np.arange(batch)[:, None], paths.classes_at), share
    )
    gradient[np.arange(steps)[:, None] >= lengths] = 0.0
    return -log_p, gradient


_LABELS = (np.array([[0, 0], [0, 1], [1, 0]], np.int64), np.array([0, 1, 1], np.int32))
_REPEATED = (_LABELS[0], np.array([1, 1, 1], np.int32))


@op(
    "CTCLoss(inputs: T, labels_indices: int64, labels_values: int32, sequence_length: int32) -> loss: T, "
    "gradient: T",
    preprocess_collapse_repeated="bool = False",
    ctc_merge_repeated="bool = True",
    ignore_longer_outputs_than_inputs="bool = False",
    T=_T,
)
class CTCLoss:
    """-log P(labels) under softmax(inputs), and its gradient: [batch], and [time, batch, classes].

    inputs: [time, batch, classes], the blank last. labels: sparse [batch, any].
    """

    host_inputs = host_outputs = ALL
    cpu_only = True

    def shape(
        self,
        s: ShapeContext,
        inputs: TensorShape,
        indices: TensorShape,
        values: TensorShape,
        lengths: TensorShape,
    ) -> list[TensorShape]:
        inputs = inputs.with_rank(3)
        indices.with_rank(2)[:1].merge_with(values.with_rank(1))
        batch = inputs[1:2].merge_with(lengths.with_rank(1))
        return [batch, inputs[:1].concatenate(batch).concatenate(inputs[2:])]

    def compute(
        self, k: KernelContext, inputs: Any, indices: Any, values: Any, lengths: Any
    ) -> tuple[Any, Any]:
        _check_lengths(inputs, lengths, InvalidArgumentError)
        attrs, (_, batch, classes) = k.attrs, inputs.shape
        targets = [
            _targets(labels, b, classes, attrs["preprocess_collapse_repeated"])
            for b, labels in enumerate(_labels_by_example(indices, values, batch))
        ]
        loss, gradient = np.zeros(batch, k.dtype), np.zeros(inputs.shape, k.dtype)
        used = []
        for b, (labels, n) in enumerate(zip(targets, lengths.tolist())):
            if n < 0:
                raise InvalidArgumentError(None, None, f"seq_len({b}) < 0")
            if len(labels) <= n and n:
                used.append(b)
            elif len(labels) > n and not attrs["ignore_longer_outputs_than_inputs"]:
                raise InvalidArgumentError(
                    None,
                    None,
                    f"Not enough time for target transition sequence (required: {len(labels)}, available: "
                    f"{n}) in example {b}. "
                    "You can turn this error into a warning by using the flag "
                    "ignore_longer_outputs_than_inputs",
                )
        if used:
            loss[used], gradient[:, used] = ctc_loss(
                inputs[:, used], [targets[b] for b in used], lengths[used], attrs["ctc_merge_repeated"]
            )
        return loss, gradient

    def gradient(self, op: Any, dloss: Tensor, _: Tensor) -> list[Tensor | None]:
        known = raw.PreventGradient(
            op.outputs[1], message="the loss has no second derivative: its first one comes from the kernel"
        )
        return [raw.ExpandDims(dloss, -1) * known, None, None, None]

    # Numeric gradients would differentiate the second output too.
    samples = [
        sample(normal(4, 2, 3), *_LABELS, np.array([4, 3], np.int32), numeric=False, **attrs)
        for attrs in ({}, {"ctc_merge_repeated": False})
    ]
    samples += [
        sample(
            normal(5, 2, 4, dtype="float64"), *_REPEATED, np.array([5, 3], np.int32), rtol=1e-6, numeric=False
        ),
        sample(
            normal(5, 2, 4), *_REPEATED, np.array([2, 3], np.int32), gradient=False, why="no path is possible"
        ),
        sample(
            normal(5, 2, 4),
            *_REPEATED,
            np.array([3, 3], np.int32),
            preprocess_collapse_repeated=True,
            numeric=False,
        ),
        sample(
            normal(4, 2, 3),
            *_LABELS,
            np.array([1, 3], np.int32),
            ignore_longer_outputs_than_inputs=True,
            numeric=False,
        ),
    ]


def _sparse(decoded: list[list[int]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(indices, values, dense_shape) of rows of labels."""
    indices = [(b, t) for b, labels in enumerate(decoded) for t in range(len(labels))]
    values = [label for labels in decoded for label in labels]
    longest = max(map(len, decoded), default=0)
    return (
        np.array(indices, np.int64).reshape(-1, 2),
        np.array(values, np.int64),
        np.array([len(decoded), longest], np.int64),
    )


@op(
    "CTCGreedyDecoder(inputs: T, sequence_length: int32) -> decoded_indices: int64, decoded_values: int64, "
    "decoded_shape: int64, "
    "log_probability: T",
    merge_repeated="bool = False",
    blank_index="int = -1",
    T=_T,
)
class CTCGreedyDecoder:
    """The labels of the path of the most probable class at each time step, and minus the sum of its
    logits."""

    host_inputs = host_outputs = ALL
    cpu_only = True

    def shape(self, s: ShapeContext, inputs: TensorShape, lengths: TensorShape) -> list[TensorShape]:
        batch = inputs.with_rank(3)[1:2].merge_with(lengths.with_rank(1))
        return [TensorShape([None, 2]), TensorShape([None]), TensorShape([2]), batch.concatenate([1])]

    def compute(self, k: KernelContext, inputs: Any, lengths: Any) -> tuple[Any, ...]:
        _check_lengths(inputs, lengths, FailedPreconditionError)
        steps, batch, classes = inputs.shape
        blank = k.attrs["blank_index"]
        if not -classes <= blank < classes:
            raise InvalidArgumentError(
                None, None, f"blank_index expected to be between {-classes} and {classes - 1} but was {blank}"
            )
        blank %= classes
        is_inside = np.arange(steps)[:, None] < lengths
        best = inputs.argmax(axis=2)
        is_label = is_inside & (best != blank)
        if k.attrs["merge_repeated"]:
            is_label[1:] &= best[1:] != best[:-1]
        top = np.where(is_inside, inputs.max(axis=2), 0)
        decoded = [best[is_label[:, b], b].tolist() for b in range(batch)]
        return *_sparse(decoded), -top.sum(axis=0, dtype=inputs.dtype)[:, None]

    samples = [
        sample(normal(6, 3, 4), np.array([6, 4, 0], np.int32), **attrs)
        for attrs in ({}, {"merge_repeated": True}, {"blank_index": 0}, {"blank_index": -2})
    ]


class _Beam:
    """A prefix of labels: log-probabilities of its paths that end in a blank or in its label, now and a step
    before."""

    __slots__ = ("parent", "label", "children", "blank", "by_label", "total", "old_blank", "old_total")

    def __init__(self, parent: _Beam | None, label: int) -> None:
        self.parent, self.label, self.children = parent, label, {}
        self.blank = self.by_label = self.total = self.old_blank = self.old_total = _NEVER

    def labels(self, merge_repeated: bool) -> list[int]:
        made: list[int] = []
        beam, after = self, -1
        while beam.parent is not None:
            if not merge_repeated or beam.label != after:
                made.append(beam.label)
            beam, after = beam.parent, beam.label
        return made[::-1]


def _plus(a: float, b: float) -> float:
    return float(np.logaddexp(a, b))


def beam_search(log_y: np.ndarray, width: int) -> list[_Beam]:
    """The `width` most probable prefixes of [time, classes] log-probabilities, best first; blank is the last
    class."""
    blank = log_y.shape[1] - 1
    root = _Beam(None, -1)
    root.blank = root.total = 0.0
    kept, order = [root], count()
    for step in log_y.tolist():
        leaves: list[tuple[float, int, _Beam]] = []
        for beam in kept:
            beam.old_blank, beam.old_total = beam.blank, beam.total
        for beam in kept:
            parent = beam.parent
            if parent is not None:
                if parent.total != _NEVER:
                    before = parent.old_blank if beam.label == parent.label else parent.old_total
                    beam.by_label = _plus(beam.by_label, before)
                beam.by_label += step[beam.label]
            beam.blank = beam.old_total + step[blank]
            beam.total = _plus(beam.blank, beam.by_label)
            heapq.heappush(leaves, (beam.total, next(order), beam))
        for beam in kept:
            _grow(beam, step[:blank], leaves, width, order)
        kept = [leaf for _, _, leaf in sorted(leaves, key=lambda leaf: -leaf[0])]
    return kept


def _grow(
    beam: _Beam, step: list[float], leaves: list[tuple[float, int, _Beam]], width: int, order: Any
) -> None:
    """Put the children of `beam` that are among the best `width` into `leaves`, a heap with the worst
    first."""
    if not (beam.old_total > _NEVER and (len(leaves) < width or beam.old_total > leaves[0][0])):
        return
    for label, log_p in enumerate(step):
        child = beam.children.get(label)
        if child is not None and child.total != _NEVER:
            continue
        total = log_p + (beam.old_blank if label == beam.label else beam.old_total)
        if not (total > _NEVER and (len(leaves) < width or total > leaves[0][0])):
            if child is not None:  # it may have fallen out in this step, and must not grow in it
                child.old_blank = child.old_total = _NEVER
            continue
        if child is None:
            child = beam.children[label] = _Beam(beam, label)
        child.blank, child.by_label, child.total = _NEVER, total, total
        if len(leaves) == width:
            worst = heapq.heappop(leaves)[2]
            worst.blank = worst.by_label = worst.total = _NEVER
        heapq.heappush(leaves, (total, next(order), child))


@op(
    "CTCBeamSearchDecoder(inputs: T, sequence_length: int32) -> decoded_indices: top_paths*int64, "
    "decoded_values: top_paths*int64, "
    "decoded_shape: top_paths*int64, log_probability: T",
    beam_width="int >= 1",
    top_paths="int >= 1",
    merge_repeated="bool = True",
    T=_T,
)
class CTCBeamSearchDecoder:
    """The most probable label sequences that a beam search finds, and their log-probabilities [batch,
    top_paths]."""

    host_inputs = host_outputs = ALL
    cpu_only = True

    def shape(self, s: ShapeContext, inputs: TensorShape, lengths: TensorShape) -> list[TensorShape]:
        paths = s.attrs["top_paths"]
        batch = inputs.with_rank(3)[1:2].merge_with(lengths.with_rank(1))
        return [
            *[TensorShape([None, 2])] * paths,
            *[TensorShape([None])] * paths,
            *[TensorShape([2])] * paths,
            batch.concatenate([paths]),
        ]

    def compute(self, k: KernelContext, inputs: Any, lengths: Any) -> tuple[Any, ...]:
        _check_lengths(inputs, lengths, FailedPreconditionError)
        paths, width = k.attrs["top_paths"], k.attrs["beam_width"]
        if paths > width:
            raise InvalidArgumentError(None, None, f"top_paths {paths} is larger than beam_width {width}")
        batch = inputs.shape[1]
        decoded: list[list[list[int]]] = [[] for _ in range(paths)]
        log_probability = np.zeros((batch, paths), inputs.dtype)
        for b, n in enumerate(lengths.tolist()):
            x = inputs[:n, b].astype(np.float64)
            if x.size:
                x -= x.max(axis=1, keepdims=True)
                x -= np.log(np.exp(x).sum(axis=1, keepdims=True))
            found = beam_search(x, width)
            if len(found) < paths:
                raise InvalidArgumentError(
                    None,
                    None,
                    f"Less leaves in the beam search than requested: {len(found)}, and top_paths is {paths}",
                )
            for i in range(paths):
                decoded[i].append(found[i].labels(k.attrs["merge_repeated"]))
                log_probability[b, i] = found[i].total
        made = [_sparse(rows) for rows in decoded]
        return *(m[0] for m in made), *(m[1] for m in made), *(m[2] for m in made), log_probability

    samples = [
        sample(
            normal(6, 3, 4) * 2,
            np.array([6, 4, 5], np.int32),
            beam_width=width,
            top_paths=paths,
            merge_repeated=merged,
        )
        for width, paths, merged in ((1, 1, True), (4, 2, False), (30, 3, True))
    ]
