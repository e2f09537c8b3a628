"""Function bodies. Read `func_graph.py` for how one is traced, `gradients.py` for how calls and branches are
differentiated."""
