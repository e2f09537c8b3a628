"""Nested structures: lists, tuples, namedtuples, dicts (by sorted key) and attrs classes, as public functions
take and return them. With `expand_composites`, IndexedSlices and SparseTensors are structures of their
tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from graphrt.core.tensor import IndexedSlices, SparseTensor

__all__ = ["assert_same_structure", "flatten", "is_nested", "map_structure", "pack_sequence_as"]


def is_nested(seq: Any) -> bool:
    """True for what `flatten` takes apart."""
    return isinstance(seq, (list, tuple, Mapping)) or hasattr(type(seq), "__attrs_attrs__")


def _is_composite(value: Any) -> bool:
    return isinstance(value, (IndexedSlices, SparseTensor))


def _is_open(value: Any, expand_composites: bool) -> bool:
    return is_nested(value) or expand_composites and _is_composite(value)


def _children(value: Any) -> list[Any]:
    """What a structure holds, in the order in which `flatten` visits it."""
    if isinstance(value, (list, tuple)):
        return list(value)
    if isinstance(value, Mapping):
        return [value[key] for key in sorted(value)]
    if isinstance(value, IndexedSlices):
        return [value.values, value.indices] + ([] if value.dense_shape is None else [value.dense_shape])
    if isinstance(value, SparseTensor):
        return [value.indices, value.values, value.dense_shape]
    return [getattr(value, field.name) for field in type(value).__attrs_attrs__]


def _like(value: Any, children: list[Any]) -> Any:
    """A structure as `value` is, of other children."""
    kind: Any = type(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return kind(*children)
    if isinstance(value, (list, tuple)):
        return kind(children)
    if isinstance(value, Mapping):
        by_key = dict(zip(sorted(value), children))
        items = [(key, by_key[key]) for key in value]
        if hasattr(value, "default_factory"):
            return kind(value.default_factory, items)
        return kind(items)
    return kind(*children)


def flatten(structure: Any, expand_composites: bool = False) -> list[Any]:
    """The leaves of a structure in order; [x] for a leaf x."""
    if not _is_open(structure, expand_composites):
        return [structure]
    return [leaf for child in _children(structure) for leaf in flatten(child, expand_composites)]


def pack_sequence_as(structure: Any, flat_sequence: Any, expand_composites: bool = False) -> Any:
    """The leaves `flat_sequence` in the form of `structure`.

    Raises:
      TypeError: `flat_sequence` is not a list.
      ValueError: it has another number of leaves.
    """
    if not is_nested(flat_sequence):
        raise TypeError(
            f"Attempted to pack value:\n  {flat_sequence}\ninto a structure, but found incompatible type "
            f"`{type(flat_sequence)}` instead."
        )
    leaves = list(flat_sequence)
    if not _is_open(structure, expand_composites):
        if len(leaves) != 1:
            raise ValueError(
                f"The target structure is of type `{type(structure)}`\n  {structure}\nHowever the input is "
                "a sequence "
                f"({type(flat_sequence)}) of length {len(leaves)}.\n  {flat_sequence}\nnest cannot "
                "guarantee that it is safe to map one to the other."
            )
        return leaves[0]
    wanted = len(flatten(structure, expand_composites))
    if wanted != len(leaves):
        raise ValueError(
            f"Could not pack sequence. Structure had {wanted} atoms, but flat_sequence had {len(leaves)} "
            f"items.  Structure: {structure}, flat_sequence: {flat_sequence}."
        )
    rest = iter(leaves)

    def build(part: Any) -> Any:
        return (
            _like(part, [build(c) for c in _children(part)])
            if _is_open(part, expand_composites)
            else next(rest)
        )

    return build(structure)


def map_structure(func: Callable[..., Any], *structure: Any, **options: Any) -> Any:
    """`func` of the leaves of structures of one form, in that form.

    Args:
      check_types: lists and tuples, and dicts with other keys, are other forms (True).
      expand_composites: go into IndexedSlices and SparseTensors (False).
    Raises:
      TypeError, ValueError: the structures differ.
    """
    if not callable(func):
        raise TypeError(f"func must be callable, got: {func}")
    if not structure:
        raise ValueError("Must provide at least one structure")
    check_types = options.pop("check_types", True)
    expand_composites = options.pop("expand_composites", False)
    if options:
        raise ValueError(
            "Only valid keyword arguments are `check_types` and `expand_composites`, not: "
            f"`{'`, `'.join(options)}`"
        )
    for other in structure[1:]:
        assert_same_structure(structure[0], other, check_types, expand_composites)
    flat = [flatten(s, expand_composites) for s in structure]
    return pack_sequence_as(structure[0], [func(*leaves) for leaves in zip(*flat)], expand_composites)


def assert_same_structure(
    nest1: Any, nest2: Any, check_types: bool = True, expand_composites: bool = False
) -> None:
    """Check that two structures have one form.

    Raises:
      ValueError: other numbers of elements, other keys, or a leaf where there is a structure.
      TypeError: (check_types) structures of other types.
    """
    try:
        _check_same(nest1, nest2, check_types, expand_composites)
    except (TypeError, ValueError) as error:
        raise type(error)(
            "The two structures don't have the same nested structure.\n\nFirst structure: "
            f"{_shown(nest1)}\n\nSecond structure: {_shown(nest2)}\n\nMore specifically: {error}\n"
            f"Entire first structure:\n{_dotted(nest1, expand_composites)}\n"
            f"Entire second structure:\n{_dotted(nest2, expand_composites)}"
        ) from None


def _check_same(a: Any, b: Any, check_types: bool, expand: bool) -> None:
    is_open = _is_open(a, expand)
    if is_open != _is_open(b, expand):
        nested, leaf = (a, b) if is_open else (b, a)
        raise ValueError(
            f'Substructure "{_shown(nested)}" is a sequence, while substructure "{_shown(leaf)}" is not'
        )
    if not is_open:
        return
    if (
        check_types
        and type(a) is not type(b)
        and not any(isinstance(a, k) and isinstance(b, k) for k in (list, Mapping))
    ):
        raise TypeError(
            f"The two namedtuples don't have the same sequence type. First structure {_shown(a)} has type "
            f"{type(a).__name__}, while second structure {_shown(b)} has type {type(b).__name__}"
        )
    if check_types and isinstance(a, Mapping) and set(a) != set(b):
        raise ValueError(
            "The two dictionaries don't have the same set of keys. First structure has keys "
            f"{_shown(list(a))}, while second structure has keys {_shown(list(b))}"
        )
    ours, theirs = _children(a), _children(b)
    if len(ours) != len(theirs):
        raise ValueError(
            f"The two structures don't have the same number of elements. First structure: {_shown(a)}. "
            f"Second structure: {_shown(b)}"
        )
    for x, y in zip(ours, theirs):
        _check_same(x, y, check_types, expand)


def _shown(value: Any) -> str:
    return f"type={type(value).__name__} str={value}"


class _Dot:
    def __repr__(self) -> str:
        return "."


def _dotted(structure: Any, expand: bool) -> str:
    """The form of a structure, with a dot for each leaf."""
    if not is_nested(structure):
        return (
            f"{type(structure).__name__}({', '.join('.' * len(_children(structure)))})"
            if _is_open(structure, expand)
            else "."
        )
    return str(pack_sequence_as(structure, [_Dot()] * len(flatten(structure))))
