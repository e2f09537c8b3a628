"""Array kernels on drawn shapes: slices are Python's, and what takes apart puts together again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphrt

SIZES = st.lists(st.integers(0, 5), min_size=1, max_size=4)
BOUND = st.one_of(st.none(), st.integers(-7, 7))
SLICE = st.builds(slice, BOUND, BOUND, st.one_of(st.none(), st.integers(-3, 3).filter(bool)))


def run(build: Any, *arrays: np.ndarray) -> Any:
    """What `build` of placeholders of unknown shape gives for `arrays`."""
    with graphrt.Graph().as_default() as graph:
        inputs = [graphrt.placeholder(a.dtype) for a in arrays]
        made = build(*inputs)
        with graphrt.Session(graph=graph) as session:
            return session.run(made, dict(zip(inputs, arrays)))


def numbered(sizes: list[int]) -> np.ndarray:
    return np.arange(int(np.prod(sizes)), dtype=np.float32).reshape(sizes)


@st.composite
def indexed_arrays(draw: Any) -> tuple[np.ndarray, tuple[Any, ...]]:
    """An array, and an index of it with numbers, slices, new axes and at most one ellipsis."""
    x = numbered(draw(SIZES))
    index: list[Any] = []
    for size in x.shape[: draw(st.integers(0, x.ndim))]:
        kinds = [SLICE, st.integers(-size, size - 1)] if size else [SLICE]
        index.append(draw(st.one_of(*kinds)))
    for _ in range(draw(st.integers(0, 2))):
        index.insert(draw(st.integers(0, len(index))), None)
    if draw(st.booleans()):
        index.append(Ellipsis)
    return x, tuple(index)


@given(indexed_arrays())
@settings(max_examples=150)
def test_an_index_means_what_it_means_to_numpy(case: tuple[np.ndarray, tuple[Any, ...]]) -> None:
    x, index = case
    with graphrt.Graph().as_default() as graph:
        fed = graphrt.placeholder("float32", x.shape)
        y = fed[index] if index else graphrt.identity(fed)
        back = graphrt.gradients(y, fed)[0]
        with graphrt.Session(graph=graph) as session:
            value, grad = session.run([y, back], {fed: x})
    np.testing.assert_array_equal(value, x[index])
    assert y.shape.as_list() == list(x[index].shape)
    taken = np.zeros(x.shape, np.float32)
    taken[index] = 1
    np.testing.assert_array_equal(grad, taken)


@given(SIZES, st.data())
@settings(max_examples=60)
def test_split_and_concat_undo_each_other(sizes: list[int], data: Any) -> None:
    x = numbered(sizes)
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    cuts = sorted(data.draw(st.lists(st.integers(0, x.shape[axis]), max_size=3)))
    parts = np.diff([0, *cuts, x.shape[axis]]).tolist()
    whole = run(lambda t: graphrt.concat(graphrt.split(t, parts, axis), axis), x)
    np.testing.assert_array_equal(whole, x)


@given(st.lists(st.integers(1, 3), min_size=1, max_size=2), st.data())
@settings(max_examples=60)
def test_batch_to_space_undoes_space_to_batch(block: list[int], data: Any) -> None:
    space = [data.draw(st.integers(1, 4)) for _ in block]
    x = numbered([data.draw(st.integers(1, 2)), *space, 2])
    before = [data.draw(st.integers(0, 2)) for _ in block]
    pads = [[p, -(d + p) % b] for d, b, p in zip(space, block, before)]

    def round_trip(t: Any) -> Any:
        return graphrt.batch_to_space_nd(graphrt.space_to_batch_nd(t, block, pads), block, pads)

    np.testing.assert_array_equal(run(round_trip, x), x)


@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 3), st.integers(2, 3))
@settings(max_examples=30)
def test_channels_first_blocks_are_channels_last_ones_transposed(h: int, w: int, c: int, block: int) -> None:
    x = numbered([2, h * block, w * block, c])

    def both(t: Any) -> Any:
        last = graphrt.space_to_depth(t, block)
        first = graphrt.space_to_depth(graphrt.transpose(t, [0, 3, 1, 2]), block, data_format="NCHW")
        back = graphrt.depth_to_space(first, block, data_format="NCHW")
        return last, graphrt.transpose(first, [0, 2, 3, 1]), graphrt.transpose(back, [0, 2, 3, 1])

    last, first, back = run(both, x)
    np.testing.assert_array_equal(first, last)
    np.testing.assert_array_equal(back, x)


@given(st.lists(st.integers(0, 4), max_size=12), st.integers(1, 3))
@settings(max_examples=60)
def test_a_stitch_of_a_partition_is_the_whole(partitions: list[int], width: int) -> None:
    x = numbered([len(partitions), width])
    which = np.array(partitions, np.int32)

    def round_trip(t: Any, p: Any) -> Any:
        p.set_shape([None])
        places = graphrt.dynamic_partition(graphrt.range(graphrt.shape(p)[0]), p, 5)
        return graphrt.dynamic_stitch(places, graphrt.dynamic_partition(t, p, 5))

    np.testing.assert_array_equal(run(round_trip, x, which), x)


@given(st.lists(st.sampled_from([-2.5, 0.0, -0.0, 1.0, 3.0]), max_size=12))
@settings(max_examples=60)
def test_unique_values_gathered_by_their_numbers_are_the_vector(values: list[float]) -> None:
    x = np.array(values, np.float32)
    y, idx, count = run(lambda t: list(graphrt.unique_with_counts(t)), x)
    np.testing.assert_array_equal(y[idx], x)
    assert len(set(y.tolist())) == len(y)
    assert count.sum() == len(x)


@given(SIZES, st.data())
@settings(max_examples=60)
def test_mirrored_borders_are_numpys(sizes: list[int], data: Any) -> None:
    x = numbered([d + 1 for d in sizes])
    for mode, offset in (("reflect", 1), ("symmetric", 0)):
        limits = [st.integers(0, min(3, d - offset)) for d in x.shape]
        pads = [[data.draw(limit), data.draw(limit)] for limit in limits]
        made = run(lambda t: graphrt.pad(t, pads, mode), x)  # noqa: B023
        np.testing.assert_array_equal(made, np.pad(x, pads, mode))


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), max_size=8))
@settings(max_examples=60)
def test_scattered_updates_at_one_place_add_up(places: list[tuple[int, int]]) -> None:
    indices = np.array(places, np.int32).reshape(-1, 2)
    updates = np.arange(1, len(places) + 1, dtype=np.float32)
    wanted = np.zeros((3, 4), np.float32)
    for place, update in zip(places, updates):
        wanted[place] += update
    made = run(lambda i, u: graphrt.scatter_nd(i, u, [3, 4]), indices, updates)
    np.testing.assert_array_equal(made, wanted)


def test_more_tensors_than_are_passed_on_keep_their_values() -> None:
    arrays = [np.array([i], np.float32) for i in range(300)]
    made = run(lambda *tensors: graphrt.identity_n(tensors), *arrays)
    np.testing.assert_array_equal(np.concatenate(made), np.arange(300))


def test_a_variables_slice_is_set_in_place() -> None:
    for use_resource in (False, True):
        with graphrt.Graph().as_default() as graph:
            v = graphrt.Variable(np.zeros((2, 3), np.float32), use_resource=use_resource)
            update = v[:, 1].assign([5.0, 6.0])
            with graphrt.Session(graph=graph) as session:
                session.run(v.initializer)
                session.run(update)
                np.testing.assert_array_equal(session.run(v), [[0, 5, 0], [0, 6, 0]])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "complex64", "int8", "bool", "string"])
def test_data_moves_in_every_dtype(dtype: str) -> None:
    kind = graphrt.as_dtype(dtype)
    words = np.array([[b"a", b"bc"], [b"", b"d"]], object)
    x = words if kind is graphrt.string else np.array([[0, 1], [1, 1]]).astype(kind.as_numpy_dtype)
    with graphrt.Graph().as_default() as graph:
        t = graphrt.placeholder(kind, [2, 2])
        moved = graphrt.concat([graphrt.transpose(t), graphrt.gather(t, [1, 0]), t[::-1]], 1)
        moved = graphrt.pad(graphrt.tile(moved, [2, 1]), [[0, 1], [1, 0]])
        with graphrt.Session(graph=graph) as session:
            made = session.run(moved, {t: x})
    wanted = np.tile(np.concatenate([x.T, x[[1, 0]], x[::-1]], 1), (2, 1))
    np.testing.assert_array_equal(made[:-1, 1:], wanted)
    assert made.dtype == x.dtype
