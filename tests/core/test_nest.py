"""tf.nest: what it takes apart, puts together and refuses, as TensorFlow does."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from types import SimpleNamespace
from typing import Any

import pytest

import graphrt
from graphrt import nest

Pair = namedtuple("Pair", "a b")
Other = namedtuple("Other", "a b")

STRUCTURES: list[Any] = [
    1,
    "text",
    None,
    [],
    (),
    {},
    [1, (2, 3)],
    {"b": [1, (2, 3)], "a": Pair(4, None)},
    Pair([1], {"k": 2}),
    OrderedDict([("z", 1), ("a", 2)]),
]

UNLIKE: list[tuple[Any, Any]] = [
    ([1, 2], [1]),
    ([1, 2], (1, 2)),
    ({"a": 1}, {"b": 1}),
    ({"a": 1, "b": 2}, {"a": 1}),
    ([1, [2]], [1, 2]),
    (1, [1]),
    ([1], 1),
    (Pair(1, 2), Other(1, 2)),
    (Pair(1, 2), (1, 2)),
    ([1, [2, 3]], [1, [2]]),
    ({"a": 1}, [1]),
    (None, [1]),
    (None, 1),
    ([1], [2]),
    ({"a": 1}, OrderedDict(a=2)),
]


def _outcome(function: Any, *args: Any, **options: Any) -> Any:
    try:
        return function(*args, **options)
    except (TypeError, ValueError) as error:
        return type(error), str(error)


@pytest.mark.parametrize("structure", STRUCTURES, ids=repr)
def test_what_is_flattened_packs_to_the_same(structure):
    packed = nest.pack_sequence_as(structure, nest.flatten(structure))
    assert packed == structure and type(packed) is type(structure)
    if isinstance(structure, dict):
        assert list(packed) == list(structure)


@pytest.mark.parametrize("structure", STRUCTURES, ids=repr)
def test_flattening_is_tensorflows(structure, tf):
    assert nest.flatten(structure) == tf.nest.flatten(structure)
    assert nest.is_nested(structure) == tf.nest.is_nested(structure)
    doubled = lambda leaf: (leaf, leaf)  # noqa: E731
    assert nest.map_structure(doubled, structure) == tf.nest.map_structure(doubled, structure)


@pytest.mark.parametrize("pair", UNLIKE, ids=repr)
def test_structures_differ_where_they_do_for_tensorflow(pair, tf):
    for options in ({}, {"check_types": False}):
        assert _outcome(nest.assert_same_structure, *pair, **options) == _outcome(
            tf.nest.assert_same_structure, *pair, **options
        )


def test_what_packing_refuses(tf):
    for arguments in (([1, 2], [1]), ([1, 2], [1, 2, 3]), (1, [1, 2]), ([1], 3)):
        assert _outcome(nest.pack_sequence_as, *arguments) == _outcome(tf.nest.pack_sequence_as, *arguments)
    assert _outcome(nest.map_structure, 3, [1]) == _outcome(tf.nest.map_structure, 3, [1])
    assert _outcome(nest.map_structure, len) == _outcome(tf.nest.map_structure, len)
    with pytest.raises(ValueError, match="Only valid keyword arguments are"):
        nest.map_structure(len, ["a"], foo=1)


def test_composites_are_taken_apart_where_it_is_asked_for():
    slices = graphrt.IndexedSlices(graphrt.constant([[1.0]]), graphrt.constant([0]), graphrt.constant([2, 1]))
    sparse = graphrt.SparseTensor([[0]], [1.0], [3])
    structure = {"s": slices, "t": [sparse]}
    assert nest.flatten(structure) == [slices, sparse]
    parts = nest.flatten(structure, expand_composites=True)
    assert parts == [
        slices.values,
        slices.indices,
        slices.dense_shape,
        sparse.indices,
        sparse.values,
        sparse.dense_shape,
    ]
    back = nest.pack_sequence_as(structure, parts, expand_composites=True)
    assert back["s"].indices is slices.indices and back["t"][0].dense_shape is sparse.dense_shape
    with pytest.raises(ValueError, match="is a sequence, while substructure"):
        nest.assert_same_structure(slices, slices.values, expand_composites=True)


class Point:
    """As a class made by attrs is."""

    __attrs_attrs__ = (SimpleNamespace(name="x"), SimpleNamespace(name="y"))

    def __init__(self, x: Any, y: Any) -> None:
        self.x, self.y = x, y


def test_attrs_classes_are_structures():
    assert nest.flatten(Point(1, [2, 3])) == [1, 2, 3]
    doubled = nest.map_structure(lambda v: v * 2, Point(1, [2, 3]))
    assert (type(doubled), doubled.x, doubled.y) == (Point, 2, [4, 6])
