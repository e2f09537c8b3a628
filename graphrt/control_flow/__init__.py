"""Conditionals. Read `cond.py` with `context.py` for Switch and Merge, `functional.py` for If nodes,
`gradient_state.py` for gradients through the former; `case.py` builds on them.
"""

from graphrt.control_flow import functional as _functional
from graphrt.control_flow import gradient_state as _gradient_state
from graphrt.control_flow.cond import cond

__all__ = ["cond"]
