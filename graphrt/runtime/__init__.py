"""How a partition runs.

`plan.py` turns a partition into segments of straight-line code: `schedule.py` orders its nodes and cuts it
at nodes that wait, `guards.py` says which nodes a branch takes with it, `codegen.py` writes the Python that
a segment is, `arena.py` plans its buffers. `step.py` runs the plans of one step; `rendezvous.py` carries
tensors between them.
"""
