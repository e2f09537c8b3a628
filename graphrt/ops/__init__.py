"""The op classes, a file a family. Importing this package registers them all.

Read `elementwise.py` for how expressions become kernels, then any family; `core/registry.py` says what a class holds.
"""

import importlib

_FAMILIES = ("constants", "sendrecv", "queues", "operators", "math_unary", "math_binary", "cast", "comparisons", "broadcasting",
             "reductions", "matmul", "array_basic", "array_join", "array_slice", "array_gather", "array_layout",
             "array_indexing", "array_pad", "array_blocks", "array_scatter", "array_partition", "array_sets",
             "array_patches", "array_assign", "array_sparse", "array_sparse_math", "unary_grads", "trigonometry", "complex_numbers", "bitwise", "select", "sums", "ranges",
             "nn_activations", "nn_conv", "nn_pool", "nn_norm", "nn_losses", "nn_topk", "nn_misc", "nn_candidates",
             "checks", "einsum", "segments",
             "state_ref", "state_resource", "state_scatter", "training_gradient_descent", "training_adaptive",
             "training_proximal", "sparse_segments", "histograms", "random", "stateless_random")


def load_all() -> None:
    """Import every family."""
    for family in _FAMILIES:
        importlib.import_module(f"graphrt.ops.{family}")


load_all()
