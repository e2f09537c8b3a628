"""tf.nest: nested structures of lists, tuples, dicts and attrs classes."""

from graphrt.core.nest import assert_same_structure, flatten, is_nested, map_structure, pack_sequence_as

__all__ = ["assert_same_structure", "flatten", "is_nested", "map_structure", "pack_sequence_as"]
