"""Public products: tf.matmul, tf.tensordot, tf.einsum, tf.cross, tf.trace."""

from __future__ import annotations

from collections import Counter
from math import prod
from typing import Any

import numpy as np

import graphrt.ops  # noqa: F401  (registers the ops)
from graphrt.api.math_elementwise import cast, conj
from graphrt.api.math_reduce import reduce_prod, reduce_sum
from graphrt.api.ranges import range as range_
from graphrt.core import raw
from graphrt.core.convert import convert_to_tensor
from graphrt.core.default_graph import name_scope
from graphrt.core.dtypes import as_dtype, bfloat16, float32, int8, int32, uint8
from graphrt.core.tensor import Tensor
from graphrt.ops.array_nodes import rank_of, shape_of
from graphrt.ops.einsum import ELLIPSIS, parse_equation


def matmul(
    a: Any,
    b: Any,
    transpose_a: bool = False,
    transpose_b: bool = False,
    adjoint_a: bool = False,
    adjoint_b: bool = False,
    a_is_sparse: bool = False,
    b_is_sparse: bool = False,
    output_type: Any = None,
    grad_a: bool = False,
    grad_b: bool = False,
    name: str | None = None,
) -> Tensor:
    """The matrix product a b; of tensors of more dimensions, the products of the matrices in their last two.

    Args:
      a: tensor of shape [..., m, k]; b: of shape [..., k, n], in a's dtype. Leading dimensions broadcast.
      transpose_a, transpose_b: take it transposed first.
      adjoint_a, adjoint_b: take it transposed and conjugated first.
      a_is_sparse, b_is_sparse: a hint that many of its elements are 0.
      output_type: another dtype for the product.
    Returns:
      Tensor of shape [..., m, n].
    Raises:
      ValueError: sizes that do not fit, or transpose and adjoint of one operand.
    """
    for side, turned, adjoint in (("a", transpose_a, adjoint_a), ("b", transpose_b, adjoint_b)):
        if turned and adjoint:
            raise ValueError(f"Only one of `transpose_{side}` and `adjoint_{side}` can be True.")
    with name_scope(name, "MatMul", [a, b]) as scope:
        a = convert_to_tensor(a, name="a")
        b = convert_to_tensor(b, name="b", dtype_hint=a.dtype.base_dtype)
        kinds = a.dtype.base_dtype, b.dtype.base_dtype
        made_in = None if output_type is None else as_dtype(output_type)
        other_type = made_in is not None and kinds != (made_in, made_in)
        is_batch = any(t.shape.rank is None or t.shape.rank > 2 for t in (a, b))
        if is_batch and not a_is_sparse and not b_is_sparse:
            a, b = conj(a) if transpose_a else a, conj(b) if transpose_b else b
            flags: dict[str, Any] = dict(
                adj_x=adjoint_a or transpose_a, adj_y=adjoint_b or transpose_b, grad_x=grad_a, grad_y=grad_b
            )
            if other_type:
                return raw.BatchMatMulV3(a, b, Tout=made_in, name=scope, **flags)
            return raw.BatchMatMulV2(a, b, name=scope, **flags)
        a, b = conj(a) if adjoint_a else a, conj(b) if adjoint_b else b
        transpose_a, transpose_b = transpose_a or adjoint_a, transpose_b or adjoint_b
        by_hint = (a_is_sparse or b_is_sparse) and all(k in (float32, bfloat16) for k in kinds)
        mixed = kinds[0] is not kinds[1] and bfloat16 in kinds and not any(k in (int8, uint8) for k in kinds)
        if by_hint or mixed:
            made = raw.SparseMatMul(
                a,
                b,
                transpose_a=transpose_a,
                transpose_b=transpose_b,
                a_is_sparse=a_is_sparse,
                b_is_sparse=b_is_sparse,
                name=scope,
            )
            return cast(made, bfloat16) if kinds == (bfloat16, bfloat16) else made
        if other_type:
            return raw.BatchMatMulV3(
                a,
                b,
                adj_x=transpose_a,
                adj_y=transpose_b,
                Tout=made_in,
                grad_x=grad_a,
                grad_y=grad_b,
                name=scope,
            )
        return raw.MatMul(
            a, b, transpose_a=transpose_a, transpose_b=transpose_b, grad_a=grad_a, grad_b=grad_b, name=scope
        )


def batch_matmul(x: Any, y: Any, adj_x: bool = False, adj_y: bool = False, name: str | None = None) -> Tensor:
    """Products of two batches of matrices of the same leading dimensions; the name before TF 1.0 of
    matmul."""
    return raw.BatchMatMul(x, y, adj_x=adj_x, adj_y=adj_y, name=name)


def sparse_matmul(
    a: Any,
    b: Any,
    transpose_a: bool = False,
    transpose_b: bool = False,
    a_is_sparse: bool = False,
    b_is_sparse: bool = False,
    name: str | None = None,
) -> Tensor:
    """The float32 product of two matrices that may hold many zeros; see matmul."""
    return raw.SparseMatMul(
        a,
        b,
        transpose_a=transpose_a,
        transpose_b=transpose_b,
        a_is_sparse=a_is_sparse,
        b_is_sparse=b_is_sparse,
        name=name,
    )


def matvec(
    a: Any,
    b: Any,
    transpose_a: bool = False,
    adjoint_a: bool = False,
    a_is_sparse: bool = False,
    b_is_sparse: bool = False,
    name: str | None = None,
) -> Tensor:
    """The products of matrices a [..., m, k] and vectors b [..., k]: [..., m]. Arguments as matmul's."""
    with name_scope(name, "MatVec", [a, b]) as scope:
        b = raw.ExpandDims(b, -1)
        made = matmul(
            a,
            b,
            transpose_a=transpose_a,
            adjoint_a=adjoint_a,
            a_is_sparse=a_is_sparse,
            b_is_sparse=b_is_sparse,
        )
        return raw.Squeeze(made, squeeze_dims=[-1], name=scope)


def cross(a: Any, b: Any, name: str | None = None) -> Tensor:
    """The cross product of vectors of 3, along the last axis."""
    return raw.Cross(a, b, name=name)


def trace(x: Any, name: str | None = None) -> Tensor:
    """The sum of the diagonal of each matrix in the last two dimensions."""
    from graphrt.api.matrix_diagonals import matrix_diag_part

    with name_scope(name, "Trace", [x]) as scope:
        return reduce_sum(matrix_diag_part(convert_to_tensor(x, name="x")), [-1], name=scope)


def tensordot(a: Any, b: Any, axes: Any, name: str | None = None) -> Tensor:
    """The sum of products over pairs of axes of a and b.

    Args:
      axes: a number n: the last n axes of a with the first n of b; or two lists: the axes of a and those of
      b.
    Returns:
      Tensor of the shape of a's other axes followed by b's.
    Raises:
      ValueError: the lists differ in length, or axes that are not there.
    """
    with name_scope(name, "Tensordot", [a, b, axes]) as scope:
        a, b = convert_to_tensor(a, name="a"), convert_to_tensor(b, name="b")
        a_axes, b_axes = _paired_axes(a, axes)
        left, a_free, a_static = _as_matrix(a, a_axes, False)
        right, b_free, b_static = _as_matrix(b, b_axes, True)
        made = matmul(left, right)
        if isinstance(a_free, list) and isinstance(b_free, list):
            shape = a_free + b_free
            return (
                made
                if made.shape.sizes == tuple(shape)
                else raw.Reshape(made, np.array(shape, np.int32), name=scope)
            )
        free = [convert_to_tensor(f, dtype=int32) for f in (a_free, b_free)]
        made = raw.Reshape(made, raw.ConcatV2(free, 0, name="concat"), name=scope)
        if a_static is not None and b_static is not None:
            made.set_shape(a_static + b_static)
        return made


def _paired_axes(a: Tensor, axes: Any) -> tuple[Any, Any]:
    if isinstance(axes, (int, np.integer)) and not isinstance(axes, bool):
        n, rank = int(axes), a.shape.rank
        if n < 0:
            raise ValueError(f"`axes` must be at least 0. Received: {n}.")
        if rank is None:
            whole = raw.Rank(a)
            return range_(whole - n, whole, dtype=int32), range_(n, dtype=int32)
        if n > rank:
            raise ValueError(
                f"`axes` must not be larger than the number of dimensions of tensor {a}. Received {n}, vs "
                "tensor "
                f"dimensions {rank}."
            )
        return [*range(rank - n, rank)], [*range(n)]
    if isinstance(axes, (list, tuple, np.ndarray)):
        if len(axes) != 2:
            raise ValueError(f"`axes` must be an integer or have length 2. Received {axes}.")
        pair = [
            [int(p)]
            if isinstance(p, (int, np.integer))
            else p
            if isinstance(p, Tensor)
            else [int(i) for i in p]
            for p in axes
        ]
        if not any(isinstance(p, Tensor) for p in pair) and len(pair[0]) != len(pair[1]):
            raise ValueError(
                f"Different number of contraction axes `a` and `b`, {len(pair[0])} != {len(pair[1])}."
            )
        return pair[0], pair[1]
    both = convert_to_tensor(axes, dtype=int32, name="axes")
    first, second = raw.Unpack(both, num=2)
    return first, second


def _as_matrix(x: Tensor, axes: Any, axes_first: bool) -> tuple[Tensor, Any, list[int | None] | None]:
    """`x` as a matrix of its free axes by `axes` (or the other way round); the sizes of the free axes, as a
    list or a tensor; and what is known of them."""
    sizes = x.shape.sizes
    static = None
    if sizes is not None and isinstance(axes, list):
        rank = len(sizes)
        for axis in axes:
            if not -rank <= axis < rank:
                raise ValueError(
                    f"tensordot: axis {axis} is outside [{-rank}, {rank}) of a tensor of shape {x.shape}"
                )
        axes = [axis % rank for axis in axes]
        free: Any = [i for i in range(rank) if i not in axes]
        static = [sizes[i] for i in free]
        if None not in sizes:
            order = axes + free if axes_first else free + axes
            rows, columns = (axes, free) if axes_first else (free, axes)
            target = (prod(sizes[i] for i in rows), prod(sizes[i] for i in columns))  # type: ignore[misc]
            if order != [*range(rank)]:
                x = raw.Transpose(x, np.array(order, np.int32), name="transpose")
            return (
                (x if x.shape.sizes == target else raw.Reshape(x, np.array(target, np.int32))),
                static,
                static,
            )
        axes = convert_to_tensor(np.array(axes, np.int32), name="axes")
        free = convert_to_tensor(np.array(free, np.int32), name="free")
        shape = shape_of(x)
    else:
        shape, whole = shape_of(x), rank_of(x)
        axes = convert_to_tensor(axes, dtype=int32, name="axes")
        axes = raw.Select(raw.GreaterEqual(axes, 0), axes, axes + whole)
        free = raw.ListDiff(range_(whole), axes)[0]
    free_sizes, summed = raw.GatherV2(shape, free, 0), raw.GatherV2(shape, axes, 0)
    n, m = reduce_prod(free_sizes), reduce_prod(summed)
    order_ = raw.ConcatV2([axes, free] if axes_first else [free, axes], 0, name="concat")
    target_ = raw.Pack([m, n] if axes_first else [n, m], name="stack")
    return raw.Reshape(raw.Transpose(x, order_, name="transpose"), target_), free_sizes, static


def einsum(equation: str, *inputs: Any, **kwargs: Any) -> Tensor:
    """Sums of products over labelled axes.

        einsum("ij,jk->ik", a, b)     matrix product
        einsum("bij,bjk->bik", a, b)  of batches
        einsum("ii->", a)             trace
        einsum("...ij->...ji", a)     transposes

    Args:
      equation: labels of each input's axes, and of the output's after '->'; without one the output has the
      labels that occur
        once, sorted. '...' stands for axes that broadcast.
      inputs: tensors of one dtype. More than two are multiplied two at a time, the cheapest pairs first.
      name: of the node's scope.
    Raises:
      ValueError: a malformed equation, or inputs that do not fit it.
    """
    name = kwargs.pop("name", None)
    kwargs.pop("optimize", None)
    if kwargs:
        raise TypeError(
            f"Invalid keyword arguments for einsum: {', '.join(kwargs)}. Valid arguments: name, optimize."
        )
    with name_scope(name, "einsum", list(inputs)):
        tensors = [convert_to_tensor(i) for i in inputs]
        text = _explicit(equation.replace(" ", ""))
        parsed = parse_equation(text)
        if len(parsed.inputs) != len(tensors):
            raise ValueError(
                f'Got {len(tensors)} inputs for equation "{equation}", expecting {len(parsed.inputs)}'
            )
        if len(set(parsed.output)) != len(parsed.output):
            raise ValueError(f"Output subscripts contain a label appearing more than once: {equation}")
        if len(tensors) <= 2:
            return raw.Einsum(tensors, equation=text)
        return _contract_pairs(tensors, [*map(list, parsed.inputs)], list(parsed.output))


def _explicit(equation: str) -> str:
    if "->" in equation:
        return equation
    counts = Counter(equation.replace(ELLIPSIS, "").replace(",", ""))
    dots = ELLIPSIS if ELLIPSIS in equation else ""
    return f"{equation}->{dots}{''.join(sorted(c for c, n in counts.items() if n == 1))}"


def _contract_pairs(tensors: list[Tensor], labels: list[list[str]], output: list[str]) -> Tensor:
    """Multiply the pair with the smallest product first, until one is left."""
    sizes: dict[str, int] = {}
    for tensor, names in zip(tensors, labels):
        if tensor.shape.rank is not None and ELLIPSIS not in names:
            for label, size in zip(names, tensor.shape.sizes):  # type: ignore[arg-type]
                sizes[label] = max(sizes.get(label, 1), size or 1)

    def kept(i: int, j: int) -> list[str]:
        others = {n for k, names in enumerate(labels) if k not in (i, j) for n in names} | set(output)
        return [n for n in dict.fromkeys(labels[i] + labels[j]) if n in others]

    def volume(names: list[str]) -> int:
        return prod(sizes.get(n, 1) for n in names)

    while len(tensors) > 2:
        pairs = [(i, j) for i in range(len(tensors)) for j in range(i)]
        i, j = min(pairs, key=lambda p: volume(kept(*p)) - volume(labels[p[0]]) - volume(labels[p[1]]))
        names = kept(i, j)
        made = raw.Einsum(
            [tensors[j], tensors[i]], equation=f"{''.join(labels[j])},{''.join(labels[i])}->{''.join(names)}"
        )
        for at in (i, j):
            del tensors[at], labels[at]
        tensors.append(made)
        labels.append(names)
    return raw.Einsum(tensors, equation=f"{''.join(labels[0])},{''.join(labels[1])}->{''.join(output)}")


__all__ = ["batch_matmul", "cross", "einsum", "matmul", "matvec", "sparse_matmul", "tensordot", "trace"]
