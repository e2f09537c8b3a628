"""Variables: tf.Variable in its two kinds, variable scopes, and what initialises and updates variables.

Read `variable.py` first (what the two kinds share), then `ref_variable.py` and `resource_variable.py`;
`variable_scope.py` names and reuses variables through `variable_store.py`; `collections.py` lists and
initialises them; `assignments.py` has tf.assign and its kin. What a variable's memory is, `core/resources.py`
says.
"""
