"""Einsum of one or two tensors: labelled axes are matched, multiplied and summed.

The kernel splits a product's labels into batch (in both inputs and the output), contracted (in both inputs
only) and free (in one input), and multiplies matrices. Labels of one input that the output lacks are summed
first.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from graphrt.core import raw
from graphrt.core.dtypes import bfloat16, half
from graphrt.core.registry import KernelContext, ShapeContext, op
from graphrt.core.samples import empty, ints, normal, sample
from graphrt.core.shapes import UNKNOWN, TensorShape, broadcast, unknown
from graphrt.core.tensor import Tensor
from graphrt.ops.broadcasting import conj, shape_of

ELLIPSIS = "..."


@dataclass(frozen=True)
class Equation:
    """An einsum equation: a tuple of labels for each input and for the output; ELLIPSIS is one label."""

    inputs: tuple[tuple[str, ...], ...]
    output: tuple[str, ...]


@lru_cache(maxsize=1024)
def parse_equation(text: str) -> Equation:
    """The Equation of 'ij,jk->ik'.

    Raises:
      ValueError: it is malformed, with the part that is.
    """
    text = text.replace(" ", "")
    if text.count("->") != 1:
        raise ValueError(f"Expecting exactly one '->' in einsum equation: {text}")
    left, right = text.split("->")
    parts = left.split(",")
    made = [_labels(part, text) for part in (*parts, right)]
    output = made.pop()
    known = {label for part in made for label in part}
    for label in output:
        if label not in known:
            raise ValueError(f"einsum {text}: label '{label}' of the output is in no input")
    return Equation(tuple(made), output)


def _labels(part: str, text: str) -> tuple[str, ...]:
    found = re.findall(r"\.\.\.|[A-Za-z]", part)
    if "".join(found) != part or found.count(ELLIPSIS) > 1:
        raise ValueError(f"einsum {text}: '{part}' is not letters with at most one '...'")
    return tuple(found)


def _text(inputs: Any, output: Any) -> str:
    return ",".join("".join(part) for part in inputs) + "->" + "".join(output)


@lru_cache(maxsize=1024)
def expand(
    equation: Equation, ranks: tuple[int, ...]
) -> tuple[tuple[tuple[str, ...], ...], tuple[str, ...], int]:
    """The equation with labels '.0', '.1', … in place of each '...', counted from the right as broadcasting
    does, and how many there are.

    Raises:
      ValueError: an input has too few or too many dimensions for its labels.
    """
    widths = []
    for labels, rank in zip(equation.inputs, ranks):
        named = len(labels) - (ELLIPSIS in labels)
        if rank < named or (rank > named and ELLIPSIS not in labels):
            raise ValueError(
                f"einsum: '{''.join(labels)}' names {named} dimensions, and the input has {rank}"
            )
        widths.append(rank - named)
    most = max(widths, default=0)

    def spell(labels: tuple[str, ...], width: int) -> tuple[str, ...]:
        made: list[str] = []
        for label in labels:
            made += [f".{i}" for i in range(most - width, most)] if label == ELLIPSIS else [label]
        return tuple(made)

    return tuple(spell(p, w) for p, w in zip(equation.inputs, widths)), spell(equation.output, most), most


@op("Einsum(inputs: N*T) -> output: T", equation="string", N="int >= 1", T="type")
class Einsum:
    """Sums of products over labelled axes, as 'ij,jk->ik'; '...' stands for axes that broadcast."""

    cpu_only = True

    def shape(self, s: ShapeContext, inputs: list[TensorShape]) -> TensorShape:
        equation = parse_equation(s.attrs["equation"].decode())
        if len(inputs) != len(equation.inputs):
            raise ValueError(
                f"the equation {s.attrs['equation'].decode()!r} has {len(equation.inputs)} inputs, not "
                f"{len(inputs)}"
            )
        if len(inputs) > 2:
            raise ValueError(
                f"one or two inputs are multiplied at once, not {len(inputs)}: tf.einsum splits the equation"
            )
        if any(i.sizes is None for i in inputs):
            return UNKNOWN if ELLIPSIS in equation.output else unknown(len(equation.output))
        parts, output, _ = expand(equation, tuple(len(i.sizes) for i in inputs))  # type: ignore[arg-type]
        sizes: dict[str, int | None] = {}
        for labels, given in zip(parts, inputs):
            for label, size in zip(labels, given.sizes):  # type: ignore[arg-type]
                before = sizes.get(label)
                if label[0] == ".":
                    joined = broadcast(
                        TensorShape.of((before if label in sizes else 1,)), TensorShape.of((size,))
                    )
                    sizes[label] = joined.sizes[0]  # type: ignore[index]
                elif before is not None and size is not None and before != size:
                    raise ValueError(f"label '{label}' has size {before} and size {size}")
                else:
                    sizes[label] = size if before is None else before
        return TensorShape.of(tuple([sizes[label] for label in output]))

    def bind(self, k: KernelContext) -> Callable[..., Any]:
        equation, dtype = parse_equation(k.attrs["equation"].decode()), k.dtype
        narrow = k.output_dtypes[0] in (half, bfloat16)

        recipes: dict[tuple[Any, ...], Recipe | None] = {}

        def einsum(*inputs: Any) -> Any:
            if len(inputs) == 2 and not narrow:
                x, y = inputs
                key = x.shape, y.shape
                recipe = recipes.get(key, _UNSEEN)
                if recipe is _UNSEEN:
                    recipe = matrix_recipe(equation, *key)
                    if len(recipes) < 64:
                        recipes[key] = recipe
                if recipe is not None:
                    return recipe.run(x, y)
            arrays = [np.asarray(i, np.float32) if narrow else np.asarray(i) for i in inputs]
            parts, output, _ = expand(equation, tuple(a.ndim for a in arrays))
            made = contract(arrays, parts, output)
            # What has no sum is a view of the input.
            return made.astype(dtype, copy=any(np.may_share_memory(made, a) for a in arrays))

        return einsum

    def gradient(self, op: Any, dy: Tensor) -> list[Tensor]:
        equation = parse_equation(op.attrs["equation"].decode())
        shapes = [shape_of(t) for t in op.inputs]
        if len(op.inputs) == 1:
            return [_gradient(op.inputs[0], None, equation.inputs[0], (), equation.output, dy, shapes[0])]
        x, y = op.inputs
        a, b = equation.inputs
        return [
            _gradient(x, y, a, b, equation.output, dy, shapes[0]),
            _gradient(y, x, b, a, equation.output, dy, shapes[1]),
        ]

    samples = [
        sample([normal(3, 4), normal(4, 5)], equation="ij,jk->ik"),
        sample([normal(2, 3, 4), normal(2, 4, 5)], equation="bij,bjk->bik"),
        sample([normal(3, 4)], equation="ij->ji"),
        sample([normal(3, 4)], equation="ij->i"),
        sample([normal(3, 3)], equation="ii->i"),
        sample([normal(3, 3)], equation="ii->"),
        sample([normal(3)], equation="i->ii"),
        sample([normal(3), normal(4)], equation="i,j->ij"),
        sample([normal(3), normal(3)], equation="i,i->"),
        sample([normal(3, 4), normal(4)], equation="ij,j->i"),
        sample([normal(3, 4), normal(5, 6)], equation="ij,kl->il", why="labels of one input are summed"),
        sample([normal(2, 1, 3, 4), normal(5, 4, 6)], equation="...ij,...jk->...ik", why="broadcasts"),
        sample([normal(2, 3, 4), normal(4)], equation="...j,j->...", why="one ellipsis"),
        sample([normal(3, 4), normal(2, 4, 5)], equation="ij,...jk->...ik"),
        sample([normal(2, 3, 4)], equation="...ij->...ji"),
        sample([normal(2, 3, 4, 5), normal(2, 5, 4)], equation="bhqd,bdq->bh"),
        sample([ints(3, 4), ints(4, 5)], equation="ij,jk->ik"),
        sample([empty(0, 4), normal(4, 5)], equation="ij,jk->ik"),
        sample([normal(3, 4, dtype="complex64"), normal(4, 2, dtype="complex64")], equation="ij,jk->ik"),
        sample(
            [normal(3, 4, dtype="half"), normal(4, 5, dtype="half")], equation="ij,jk->ik", gradient=False
        ),
    ]


_UNSEEN: Any = object()


@dataclass(frozen=True)
class Recipe:
    """A product as one matmul: how each input is turned and shaped before it, and the product after it."""

    x_order: tuple[int, ...]
    x_shape: tuple[int, ...]
    y_order: tuple[int, ...]
    y_shape: tuple[int, ...]
    shape: tuple[int, ...]
    order: tuple[int, ...]

    def run(self, x: Any, y: Any) -> Any:
        product = np.matmul(
            x.transpose(self.x_order).reshape(self.x_shape), y.transpose(self.y_order).reshape(self.y_shape)
        )
        return product.reshape(self.shape).transpose(self.order)


def matrix_recipe(equation: Equation, x_shape: tuple[int, ...], y_shape: tuple[int, ...]) -> Recipe | None:
    """The Recipe of two inputs of these shapes; None where a label repeats in one of them, is summed from
    one alone, or
    broadcasts: `contract` takes those."""
    (a, b), output, _ = expand(equation, (len(x_shape), len(y_shape)))
    if len(set(a)) < len(a) or len(set(b)) < len(b) or len(set(output)) < len(output):
        return None
    sizes: dict[str, int] = dict(zip(a, x_shape))
    if any(sizes.setdefault(label, size) != size for label, size in zip(b, y_shape)):
        return None
    batch = [i for i in a if i in b and i in output]
    inner = [i for i in a if i in b and i not in output]
    left, right = [i for i in a if i not in b], [i for i in b if i not in a]
    if not set(left + right) <= set(output):
        return None

    def size(labels: list[str]) -> int:
        return prod(sizes[i] for i in labels)

    made = [*batch, *left, *right]
    outer = tuple(sizes[i] for i in batch)
    return Recipe(
        tuple(a.index(i) for i in (*batch, *left, *inner)),
        (*outer, size(left), size(inner)),
        tuple(b.index(i) for i in (*batch, *inner, *right)),
        (*outer, size(inner), size(right)),
        tuple(sizes[i] for i in made),
        tuple(made.index(i) for i in output),
    )


def contract(arrays: list[Any], parts: tuple[tuple[str, ...], ...], output: tuple[str, ...]) -> Any:
    """The einsum of one or two arrays by expanded labels."""
    if len(arrays) == 1:
        made, labels = _reduce(arrays[0], parts[0], set(output))
        return _arrange(made, labels, output)
    (x, a), (y, b) = (
        _reduce(array, labels, set(output) | set(other))
        for array, labels, other in zip(arrays, parts, reversed(parts))
    )
    batch = [i for i in a if i in b and i in output]
    inner = [i for i in a if i in b and i not in output]
    left, right = [i for i in a if i not in b], [i for i in b if i not in a]
    x, y = _arrange(x, a, (*batch, *left, *inner)), _arrange(y, b, (*batch, *inner, *right))
    # Broadcast labels may have size 1 on one side: where they are summed, the side is repeated.
    n, m = len(batch), len(inner)
    shared = x.shape[x.ndim - m :] if m else ()
    if m and shared != y.shape[n : n + m]:
        shared = np.broadcast_shapes(shared, y.shape[n : n + m])
        x = np.broadcast_to(x, x.shape[: x.ndim - m] + shared)
        y = np.broadcast_to(y, y.shape[:n] + shared + y.shape[n + m :])
    for label, size, other in zip((*batch, *inner), (*x.shape[:n], *x.shape[x.ndim - m :]), y.shape[: n + m]):
        if size != other and label[0] != ".":
            raise ValueError(f"einsum: label '{label}' has size {size} and size {other}")
    rows, columns, summed = x.shape[n : x.ndim - m], y.shape[n + m :], int(np.prod(shared, dtype=np.int64))
    product = np.matmul(
        x.reshape((*x.shape[:n], int(np.prod(rows, dtype=np.int64)), summed)),
        y.reshape((*y.shape[:n], summed, int(np.prod(columns, dtype=np.int64)))),
    )
    return _arrange(product.reshape((*product.shape[:n], *rows, *columns)), (*batch, *left, *right), output)


def _reduce(x: Any, labels: tuple[str, ...], kept: set[str]) -> tuple[Any, tuple[str, ...]]:
    """`x` with the diagonal of every repeated label, and summed over labels that nobody keeps."""
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            i = labels.index(label)
            j = labels.index(label, i + 1)
            if x.shape[i] != x.shape[j]:
                raise ValueError(f"einsum: label '{label}' has size {x.shape[i]} and size {x.shape[j]}")
            x = np.diagonal(x, axis1=i, axis2=j)
            labels = (*labels[:i], *labels[i + 1 : j], *labels[j + 1 :], label)
    gone = tuple(i for i, label in enumerate(labels) if label not in kept)
    if gone:
        x = x.sum(gone, x.dtype)
        labels = tuple(label for label in labels if label in kept)
    return x, labels


def _arrange(x: Any, labels: tuple[str, ...], output: tuple[str, ...]) -> Any:
    """The axes `labels` of `x` in the order of `output`; a label that repeats there makes a diagonal."""
    if labels == output:
        return x
    distinct = tuple(dict.fromkeys(output))
    x = x.transpose([labels.index(label) for label in distinct])
    if distinct == output:
        return x
    sizes = dict(zip(distinct, x.shape))
    made = np.zeros([sizes[label] for label in output], x.dtype)
    # The view of `made` whose axes are the distinct labels: a repeated label steps along all its axes at
    # once.
    steps = [sum(s for s, label in zip(made.strides, output) if label == d) for d in distinct]
    np.lib.stride_tricks.as_strided(made, x.shape, steps)[...] = x
    return made


def _gradient(
    x: Tensor,
    y: Tensor | None,
    a: tuple[str, ...],
    b: tuple[str, ...],
    output: tuple[str, ...],
    dy: Tensor,
    shape: Tensor,
) -> Tensor:
    """The gradient of the operand `x` (labels a, `shape` as a tensor), beside the other operand `y` (labels
    b)."""
    if ELLIPSIS in output and ELLIPSIS not in a:
        # x has none of the axes that '...' stands for: as if it had broadcast along all of them.
        a = (*a, ELLIPSIS)
    # What neither dy nor y has was summed from x alone: its gradient is repeated along there.
    distinct = tuple(dict.fromkeys(a))
    known = tuple(i for i in distinct if i in output or i in b)
    if len(known) == len(distinct):
        target = a
    else:
        target = known
    if y is None:
        made = raw.Einsum([dy], equation=_text([output], target))
    else:
        made = raw.Einsum([dy, conj(y)], equation=_text([output, b], target))
    if ELLIPSIS in b and ELLIPSIS in target or ELLIPSIS in output and ELLIPSIS in target:
        made = _sum_ellipsis(x, a, made, target, shape)
    elif ELLIPSIS in a and ELLIPSIS not in target:
        raise ValueError(
            f"einsum: the gradient of '{_text([a, b], output)}', which sums over '...', is not defined: "
            "name the axes"
        )
    if target != a:
        made = _repeat(x, a, known, made, shape)
    made.set_shape(x.shape)
    return made


def _sum_ellipsis(
    x: Tensor, a: tuple[str, ...], made: Tensor, target: tuple[str, ...], shape: Tensor
) -> Tensor:
    """`made`, whose '...' has the broadcast sizes, summed to the sizes that x has there."""
    at, after = target.index(ELLIPSIS), len(target) - target.index(ELLIPSIS) - 1
    x_at, x_after = a.index(ELLIPSIS), len(a) - a.index(ELLIPSIS) - 1
    x_sizes, sizes = x.shape.sizes, made.shape.sizes
    if x_sizes is not None and sizes is not None:
        own, whole = x_sizes[x_at : len(x_sizes) - x_after], sizes[at : len(sizes) - after]
        if own == whole and None not in own:
            return made

    def middle(shape: Tensor, begin: int, end: int) -> Tensor:
        return raw.StridedSlice(shape, [begin], [-end], [1], end_mask=0 if end else 1)

    whole_shape, own_shape = middle(raw.Shape(made), at, after), middle(shape, x_at, x_after)
    axes = raw.BroadcastGradientArgs(own_shape, whole_shape)[0]
    summed = raw.Sum(made, axes + at, keep_dims=True)
    summed_shape = raw.Shape(summed)
    parts = [raw.StridedSlice(summed_shape, [0], [at], [1]), own_shape]
    if after:
        parts.append(raw.StridedSlice(summed_shape, [-after], [0], [1], end_mask=1))
    return raw.Reshape(summed, raw.ConcatV2(parts, 0))


def _repeat(x: Tensor, a: tuple[str, ...], known: tuple[str, ...], made: Tensor, shape: Tensor) -> Tensor:
    """`made` (labels known) repeated along the labels of `a` that it lacks."""
    if ELLIPSIS in a and x.shape.rank is None:
        raise ValueError(
            "einsum: the gradient of an equation with '...' and a summed label needs an input of known rank"
        )
    distinct = tuple(dict.fromkeys(a))
    width = 0 if ELLIPSIS not in a else len(x.shape.sizes) - len(a) + 1  # type: ignore[arg-type]
    where: dict[str, list[int]] = {}
    at = 0
    for label in a:
        n = width if label == ELLIPSIS else 1
        where.setdefault(label, list(range(at, at + n)))
        at += n
    axes = [i for label in distinct for i in where[label]]
    missing = [j for j, i in enumerate(axes) if not any(i in where[label] for label in known)]
    unique = raw.GatherV2(shape, np.array(axes, np.int32), 0) if axes != list(range(at)) else shape
    for j in missing:
        made = raw.ExpandDims(made, j)
    made = raw.BroadcastTo(made, unique)
    if distinct == a:
        return made
    return raw.Einsum([made], equation=_text([distinct], a))
