"""From what a program says to one partition a device.

Read `step_graph.py` (the form that passes work on), then `pipeline.py`, which reads as the list of the
passes.
`explanation.py` tells what they did to a step.
"""
