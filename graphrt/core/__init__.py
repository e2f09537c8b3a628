"""What a program says: graphs, operations, tensors, op classes, gradients.

Read `graph.py` first, then `registry.py` (what an op class is) and `apply.py` (how a node is made).
Nothing here runs a graph; `compiler` and `runtime` do.
"""
